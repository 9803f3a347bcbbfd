"""``fslstm eval``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from fslstm_plugin.errors import UsageError
from fslstm_plugin.registry import HEADS, TRANSDUCTION

from . import options, results

EXAMPLES = """
[bold]Examples[/bold]

fslstm eval --psm-iters 10

fslstm eval --run train-mini-resnet12-lssvm+iam --shots 1 --episodes 10000 --json results.json

fslstm eval --no-iam --can --head rr

fslstm eval --bn --psm-iters 0

fslstm eval --query-balance dirichlet:2 --interval classes
"""


def evaluate(
    run: results.RunOption = None,
    runs: options.RunsFolder = Path("runs"),
    head: Annotated[
        Optional[str],
        typer.Option(
            help="Another head than the run's; also lssvm(ridge=loo).",
            autocompletion=options.complete(HEADS),
            show_default=False,
        ),
    ] = None,
    psm_iters: Annotated[
        int, typer.Option(min=0, help="Iterations of the Pseudo Support Module; 0 leaves its row out.")
    ] = 10,
    can: Annotated[bool, typer.Option("--can", help="Also a row with CAN's transduction.")] = False,
    transduction: Annotated[
        Optional[list[str]],
        typer.Option(
            help="Also a row with another registered module.",
            autocompletion=options.complete(TRANSDUCTION),
            show_default=False,
        ),
    ] = None,
    iam: Annotated[
        Optional[bool],
        typer.Option(
            "--iam/--no-iam", help="With the Inverse Attention Module; as the run was trained.", show_default=False
        ),
    ] = None,
    bn: Annotated[
        bool, typer.Option("--bn", help="Batch normalisation with the statistics of each episode's own images.")
    ] = False,
    dataset: results.OtherDataset = None,
    split: results.SplitName = "test",
    episodes: results.Episodes = 1000,
    ways: results.Ways = 5,
    shots: results.Shots = None,
    queries: results.Queries = 15,
    query_balance: results.QueryBalance = "uniform",
    interval: results.Interval = "episodes",
    normalize: results.Normalize = None,
    tuned: results.Tuned = True,
    seed: options.Seed = 0,
    batch_episodes: results.BatchEpisodes = 128,
    device: results.Device = "auto",
    data_root: options.DataRoot = None,
    json: options.Json = None,
) -> None:
    """Evaluate a run: accuracy with 95 % interval, with and without the modules."""
    from rich.console import Console

    from fslstm_plugin.evaluation.engine import Method
    from fslstm_plugin.evaluation.experiment import Setting, cached_source, episode_statistics_source
    from fslstm_plugin.evaluation.methods import build_head
    from fslstm_plugin.evaluation.model import TrainedModel
    from fslstm_plugin.runs import Run
    from fslstm_plugin.transduction import CandidateSelection, PseudoSupportModule

    setting = Setting(
        ways=ways, queries=queries, episodes=episodes, seed=seed, query_balance=query_balance, interval=interval
    )
    torch_device = results.pick_device(device)
    modules = [TRANSDUCTION.get(name)() for name in transduction or []]
    chosen = Run.find(run, runs)
    model = TrainedModel.from_run(chosen)
    if iam and model.attention is None:
        raise UsageError(f"The run {chosen.name} was trained without IAM: train with --algorithm HEAD+iam for --iam.")
    attention = model.attention.to(torch_device) if model.attention is not None and iam is not False else None
    before = (("bn",) if bn else ()) + (("iam",) if attention is not None else ())
    console = Console(stderr=True)
    (name,) = results.head_names(
        chosen, [model.head_name if head is None else head], normalize, tuned, console, iam=attention is not None
    )
    base = Method(name.head, build_head(name, model), attention, None, before, name.normalize, name.options)
    after: list[tuple[str, Any]] = [("psm", PseudoSupportModule(psm_iters))] if psm_iters else []
    after += [("can", CandidateSelection())] if can else []
    after += zip(transduction or [], modules, strict=True)
    methods = [base]
    methods += [replace(base, transduction=module, modules=(*before, label)) for label, module in after]

    data = results.load_split_for(chosen, dataset, split, data_root)
    if bn:
        source = episode_statistics_source(model, data, torch_device)
    else:
        source = cached_source(results.split_features(chosen, model, data, torch_device, console))
    rows = results.measure(
        chosen,
        methods,
        source,
        data,
        shots or [1, 5],
        setting,
        torch_device,
        batch_episodes,
        console,
        reentrant=not bn,  # The backbone keeps an episode's statistics while it is in it.
    )
    results.give_out(chosen, "eval", rows, json)

"""``fslstm compare-heads``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from fslstm_plugin.registry import HEADS

from . import options, results

EXAMPLES = """
[bold]Examples[/bold]

fslstm compare-heads

fslstm compare-heads --run pretrain-cifar-fs-conv4 --episodes 10000 --csv heads.csv --latex heads.tex

fslstm compare-heads --head lssvm --head "lssvm(ridge=loo)" --head "rr(ridge=1,normalize)" --shots 5

fslstm compare-heads --query-balance dirichlet:2 --interval classes
"""


def compare_heads(
    run: results.RunOption = None,
    runs: options.RunsFolder = Path("runs"),
    head: Annotated[
        Optional[list[str]],
        typer.Option(
            help="Repeat it for several; also lssvm(ridge=loo). Default nn, rr, svm and lssvm.",
            autocompletion=options.complete(HEADS),
            show_default=False,
        ),
    ] = None,
    psm_iters: Annotated[int, typer.Option(min=1, help="Iterations of the Pseudo Support Module.")] = 10,
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
    csv: Annotated[
        Optional[Path], typer.Option(help="Also write the rows to this CSV file.", show_default=False, dir_okay=False)
    ] = None,
    latex: Annotated[
        Optional[Path],
        typer.Option(help="Also write a booktabs table to this file.", show_default=False, dir_okay=False),
    ] = None,
) -> None:
    """Compare heads on the same features and episodes: plain, with CAN, with PSM.

    The Inverse Attention Module is left out, since it was trained for one head. "To the best" is the mean paired
    difference to the best method with its own 95 % interval, much narrower than the accuracies' intervals suggest.
    """
    from rich.console import Console

    from fslstm_plugin.evaluation.experiment import Setting, cached_source
    from fslstm_plugin.evaluation.methods import comparison
    from fslstm_plugin.evaluation.model import TrainedModel
    from fslstm_plugin.runs import Run

    setting = Setting(
        ways=ways, queries=queries, episodes=episodes, seed=seed, query_balance=query_balance, interval=interval
    )
    torch_device = results.pick_device(device)
    chosen = Run.find(run, runs)
    model = TrainedModel.from_run(chosen)
    console = Console(stderr=True)
    names = results.head_names(chosen, head or ["nn", "rr", "svm", "lssvm"], normalize, tuned, console)
    methods = comparison(model, names, psm_iters)
    data = results.load_split_for(chosen, dataset, split, data_root)
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
    )
    results.give_out(chosen, "compare-heads", rows, json, csv, latex)

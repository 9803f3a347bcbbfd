"""``fslstm tune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from fslstm_plugin.registry import HEADS

from . import options, results

EXAMPLES = """
[bold]Examples[/bold]

fslstm tune

fslstm tune --run pretrain-cifar-fs-conv4 --head lssvm --head rr --shots 5 --episodes 2000
"""


def tune(
    run: results.RunOption = None,
    runs: options.RunsFolder = Path("runs"),
    head: Annotated[
        Optional[list[str]],
        typer.Option(
            help="Repeat it for several. Default nn, rr, svm and lssvm, and the run's own head with its IAM.",
            autocompletion=options.complete(HEADS),
            show_default=False,
        ),
    ] = None,
    episodes: results.Episodes = 1000,
    ways: results.Ways = 5,
    shots: results.Shots = None,
    queries: results.Queries = 15,
    seed: options.Seed = 0,
    batch_episodes: results.BatchEpisodes = 128,
    device: results.Device = "auto",
    data_root: options.DataRoot = None,
    json: options.Json = None,
) -> None:
    """Choose each head's constants (ridge, C) and whether to normalise features, on validation episodes.

    Accuracies are averaged over the numbers of shots. The choice and every candidate's accuracy are kept in the
    run's tuned.json; eval and compare-heads then use it.
    """
    from dataclasses import replace

    from rich.console import Console

    from fslstm_plugin.evaluation import tuning
    from fslstm_plugin.evaluation.experiment import Setting, cached_source
    from fslstm_plugin.evaluation.methods import build_methods
    from fslstm_plugin.evaluation.model import TrainedModel
    from fslstm_plugin.files import write_json
    from fslstm_plugin.runs import Run

    setting = Setting(ways=ways, queries=queries, episodes=episodes, seed=seed)
    torch_device = results.pick_device(device)
    chosen = Run.find(run, runs)
    model = TrainedModel.from_run(chosen)
    names = [str(candidate) for name in head or ["nn", "rr", "svm", "lssvm"] for candidate in tuning.candidates(name)]
    if model.attention is not None and (head is None or model.head_name in head):
        model = replace(model, attention=model.attention.to(torch_device))
        names += [f"{candidate}+iam" for candidate in tuning.candidates(model.head_name)]
    methods = build_methods(names, model)
    console = Console(stderr=True)
    data = results.load_split_for(chosen, None, tuning.SPLIT, data_root)
    source = cached_source(results.split_features(chosen, model, data, torch_device, console))
    rows = results.measure(
        chosen, methods, source, data, shots or [1, 5], setting, torch_device, batch_episodes, console
    )
    if results.join_ranks().rank > 0:
        return
    choices = tuning.choose(rows)
    tuning.save_choices(chosen, choices, rows)
    for sentence in tuning.evidence(choices, rows):
        typer.echo(sentence)
    typer.echo(f"Saved the choices in {chosen.path / 'tuned.json'}.")
    if json:
        write_json(json, {"rows": [row.as_dict() for row in rows]})

"""``fslstm tune``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from fslstm_plugin.errors import UsageError

from . import evaluation, options, results, terminal
from .pictures import Views
from .signatures import with_fields
from .sources import PANEL, Source

if TYPE_CHECKING:
    from rich.console import Console

    from fslstm_plugin.evaluation.session import Session
    from fslstm_plugin.methods.base import Method

EXAMPLES = """
[bold]Examples[/bold]

fslstm tune

fslstm tune lssvm rr --run pretrain-cifar-fs-conv4 --shots 5 --episodes 2000

fslstm tune laplacian-shot tim

fslstm tune lssvm nn --pictures birds/ --ways 4 --queries 5
"""


@with_fields(Source, PANEL)
def tune(
    methods: Annotated[
        Optional[list[str]],
        typer.Argument(
            metavar="METHOD",
            help="Default: nn, rr, svm and lssvm, and the run's own method.",
            show_default=False,
        ),
    ] = None,
    run: evaluation.OneRun = None,
    runs: options.RunsFolder = Path("runs"),
    dataset: evaluation.OtherDataset = None,
    views: Views = None,
    episodes: evaluation.Episodes = 1000,
    ways: evaluation.Ways = 5,
    shots: evaluation.Shots = None,
    queries: evaluation.Queries = 15,
    seed: options.Seed = 0,
    batch_episodes: evaluation.BatchEpisodes = None,
    device: evaluation.Device = "auto",
    data_root: options.DataRoot = None,
    json: options.Json = None,
    **more: Any,
) -> None:
    """Choose each method's constants and feature preprocessing on validation episodes.

    Accuracies are averaged over the numbers of shots. The choice and every candidate's accuracy are kept in the
    run's tuned.json; eval, compare and compare-heads then use it. With --pictures or --features, which should be of
    other classes than those evaluated later, the choices are printed.
    """
    from rich.console import Console

    from fslstm_plugin.evaluation import tuning
    from fslstm_plugin.evaluation.setting import Setting
    from fslstm_plugin.runs.folder import Run

    from .compare import PAPERS_HEADS

    console = Console(stderr=True)
    setting = Setting(ways=ways, queries=queries, episodes=episodes, seed=seed)
    session: Session
    source = Source(**more)
    if source.replaces(run, dataset):
        session = source.session(runs, device, console, views)
    else:
        session = evaluation.open_session(
            Run.find(run, runs), dataset, tuning.SPLIT, data_root, device, console, views=views
        )
    if session.run is not None:
        tuning.load_tuning(session.run)  # which is kept: damage is reported before minutes of work
    wanted = session.methods(methods or dict.fromkeys([*PAPERS_HEADS, str(session.method)]))
    wanted = _with_variants(wanted, console)
    families = {str(method): evaluation.possible(session, tuning.candidates(method), console) for method in wanted}
    built = session.methods(dict.fromkeys(name for names in families.values() for name in names))
    rows = evaluation.measure(
        [(session, built)], list(dict.fromkeys(shots or [1, 5])), setting, batch_episodes, console
    )
    if terminal.join_ranks().rank > 0:
        return
    choices = tuning.choose(families, rows)
    if session.run is not None:
        tuning.save_choices(session.run, choices, rows)
    for sentence in tuning.evidence(choices, rows):
        typer.echo(sentence)
    if session.run is not None:
        typer.echo(f"Saved the choices in {session.run.path / 'tuned.json'}.")
    for note in session.notes:
        typer.echo(note)
    results.write_rows(json, rows, session.notes)


def _with_variants(methods: list[Method], console: Console) -> list[Method]:
    """Those that have something to choose; the others are named.

    Raises:
        UsageError: If there are none.
    """
    found = [method for method in methods if method.variants()]
    if len(found) == len(methods):
        return found
    fixed = ", ".join(str(method) for method in methods if method not in found)
    sentence = f"There is nothing to tune in {fixed}: compare values that you name with 'fslstm compare'."
    if not found:
        raise UsageError(sentence)
    terminal.say(console, sentence)
    return found

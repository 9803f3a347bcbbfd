"""``fslstm tune``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from fslstm_plugin.errors import UsageError, listed, printable

from . import evaluation, options, terminal
from .results import attempt, write_json
from .signatures import split, with_fields
from .sources import PANEL, Source

if TYPE_CHECKING:
    from fslstm_plugin.evaluation.rows import Row
    from fslstm_plugin.evaluation.session import Session
    from fslstm_plugin.methods.base import Method
    from fslstm_plugin.runs.folder import Run

EXAMPLES = """
fslstm tune
fslstm tune lssvm rr --run builtin:cifar-fs-conv4-gpu --shots 5 --episodes 2000
fslstm tune laplacian-shot tim
fslstm tune lssvm nn --pictures birds/ --ways 4 --queries 5
"""

# Options of an evaluation that a choice does not have: its episodes are of one kind.
FIXED = {"split", "query_balance", "interval", "tuned", "precision", "cache"}


@with_fields(Source, PANEL)
@with_fields(evaluation.Evaluation, without=FIXED)
def tune(
    methods: Annotated[
        Optional[list[str]],
        typer.Argument(metavar="METHOD", help="Default: nn, rr, svm and lssvm, and the run's own method."),
    ] = None,
    run: Annotated[
        Optional[list[str]],
        evaluation.one_run("Run folder, its name in --runs, or builtin:NAME; the newest if not given."),
    ] = None,
    json: options.Json = None,
    **more: Any,
) -> None:
    """Choose each method's constants and feature preprocessing on validation episodes.

    Accuracies are averaged over the numbers of shots. The choice and every candidate's accuracy are kept in the
    run's tuned.json; eval, compare and compare-heads then use it on this data set for methods named without
    arguments. With --views, and with --pictures or --features, which should be of other classes than those evaluated
    later, the choices are only printed.
    """
    from fslstm_plugin.evaluation import tuning
    from fslstm_plugin.reporting.results import json_content
    from fslstm_plugin.runs.folder import Run

    from .compare import PAPERS_HEADS

    source, rest = split(Source, more)
    asked = evaluation.Evaluation(**rest, split=tuning.SPLIT)
    session: Session
    if source.replaces(run, asked.dataset, asked.data_root):
        session = source.session(asked.runs, asked.device, asked.views, asked.settings)
    else:
        session = asked.session(Run.find(run[0] if run else None, asked.runs))
    kept_in = None if asked.views else session.run  # other views make other features
    if kept_in is not None:
        tuning.load_tuning(kept_in)  # which is kept: damage is reported before minutes of work
    wanted = session.methods(methods or dict.fromkeys([*PAPERS_HEADS, str(session.method)]))
    wanted = _with_variants(wanted)
    families = {str(each): evaluation.possible(session, [str(each), *each.variants()]) for each in wanted}
    built = session.methods(dict.fromkeys(name for names in families.values() for name in names))
    terminal.say(f"Candidates of {', '.join(families)}: {len(built):,}, on {asked.episodes:,} episodes each.")
    rows = asked.measure([(session, built)])
    if terminal.join_ranks().rank > 0:
        return
    choices = tuning.choose(families, rows)
    for sentence in (*tuning.evidence(choices, rows), *session.notes):
        typer.echo(sentence)
    if kept_in is None:
        typer.echo("The choices are not saved: name the methods with these arguments.")
    attempt(
        (kept_in, lambda run: _keep(run, choices, rows, str(session.method))),
        (json, lambda file: write_json(file, json_content(rows, session.notes))),
    )


def _keep(run: Run, choices: dict[str, str], rows: list[Row], own: str) -> None:
    """Save the choices in the run, and say which of them nothing uses."""
    from fslstm_plugin.evaluation import tuning

    tuning.save_choices(run, choices, rows)
    typer.echo(printable(f"Saved the choices in {run.path / 'tuned.json'}."))
    as_named = [name for name in choices if tuning.tuned_name(choices, name, own) != choices[name]]
    if as_named:
        typer.echo(f"Not used by eval and compare, since named with arguments: {listed(as_named)}.")


def _with_variants(methods: list[Method]) -> list[Method]:
    """Those that have something to choose, of which there must be one; the others are named."""
    found = [method for method in methods if method.variants()]
    if len(found) == len(methods):
        return found
    fixed = ", ".join(str(method) for method in methods if method not in found)
    sentence = f"There is nothing to tune in {fixed}: compare values that you name with 'fslstm compare'."
    if not found:
        raise UsageError(sentence)
    terminal.say(sentence)
    return found

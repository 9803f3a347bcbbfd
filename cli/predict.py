"""``fslstm predict``."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from fslstm_plugin.checks import require
from fslstm_plugin.errors import DataError, StorageError, UsageError, count_of, printable
from fslstm_plugin.stopping import Interrupted

from . import evaluation, gathering, options, pictures, terminal
from .results import attempt

if TYPE_CHECKING:
    from fslstm_plugin.pictures import Picture
    from fslstm_plugin.pictures.predictions import PredictionTable, Sureness

    from .labellers import Labeller

EXAMPLES = """
fslstm predict birds.fslstm pictures/
fslstm predict birds.fslstm pictures/ --csv labels.csv --html gallery.html
fslstm predict birds.fslstm pictures/ --new --html rest.html  (only pictures not in the classifier)
fslstm predict birds.fslstm pictures/ --sort-into sorted/ --link --coverage 0.8
fslstm predict birds.fslstm pictures/ --wrong-at-most 0.05 --csv labels.csv --sort-into sorted/
fslstm predict birds.fslstm pictures/ --transductive --json labels.json
fslstm predict birds.onnx pictures/ --csv labels.csv  (what 'fslstm export' wrote)
"""

_NOT_OF_GRAPHS = {"transductive", "new", "coverage", "guaranteed", "weights", "device"}

ModelOrGraph = Annotated[
    Path, typer.Argument(metavar="MODEL", help="What 'fslstm fit' or 'fslstm export' wrote.", dir_okay=False)
]
Accept = Annotated[
    Optional[float],
    typer.Option(
        help="Share of the pictures of the classes to accept; less familiar pictures become 'none of these'. 1 "
        "accepts all. Default: 0.95; with few labelled pictures the most that they allow, or 1 if that is below 0.9.",
        show_default=False,
    ),
]


def predict(
    context: typer.Context,
    model: ModelOrGraph,
    source: pictures.Pictures,
    csv: Annotated[
        Optional[Path],
        options.output("A table with a line for each picture; an existing table is continued where it stopped."),
    ] = None,
    json: Annotated[Optional[Path], options.output("The same predictions as JSON.", "JSON file")] = None,
    label_studio: Annotated[
        Optional[Path],
        options.output(
            "Tasks for Label Studio, with the labels as predictions; 'update --add' reads its export.",
            "Label Studio file",
        ),
    ] = None,
    xmp: Annotated[
        bool,
        typer.Option(
            "--xmp",
            help="Write the label of each picture as a keyword into NAME.jpg.xmp beside it, for photo programs; with "
            "--above or --wrong-at-most only of the sure ones. Sidecars of other programs are left as they are.",
        ),
    ] = False,
    html: Annotated[
        Optional[Path],
        options.output("A page of all pictures, least certain first, in which labels can be corrected.", "page"),
    ] = None,
    sort_into: Annotated[
        Optional[Path],
        typer.Option(
            help="Copy each picture into a folder for its label within this folder, or into 'unsure' where --above or "
            "--wrong-at-most says that it must be looked at.",
            show_default=False,
            file_okay=False,
        ),
    ] = None,
    link: Annotated[bool, typer.Option("--link", help="With --sort-into: make links instead of copies.")] = False,
    transductive: Annotated[
        bool,
        typer.Option(
            "--transductive",
            help="Let the predictions use the other pictures too, by PSM: no prediction sets, 10,000 pictures at most.",
        ),
    ] = False,
    coverage: Annotated[
        Optional[float],
        typer.Option(
            help="Add to each picture a prediction set: the labels that it may have. This share of the sets, such as "
            "0.8, contains the true label.",
            show_default=False,
        ),
    ] = None,
    coverage_kind: options.CoverageKind = None,
    wrong_at_most: Annotated[
        Optional[float],
        typer.Option(
            help="Say which labels can be taken unchecked: as many as possible while at most this share of all "
            "pictures, such as 0.05, is expected to get a wrong one.",
            show_default=False,
        ),
    ] = None,
    guaranteed: Annotated[
        bool,
        typer.Option(
            "--guaranteed",
            help="With --wrong-at-most: take only labels that are alone in their prediction set. The share is then "
            "guaranteed, not only expected, and fewer labels are taken.",
        ),
    ] = False,
    above: Annotated[
        Optional[float],
        typer.Option(help="Say which labels have at least this probability, such as 0.9.", show_default=False),
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Add each class's probability to the table and to the JSON.")
    ] = False,
    accept: Accept = None,
    new: Annotated[
        bool, typer.Option("--new", help="Leave out the pictures that the classifier was fitted to.")
    ] = False,
    weights: pictures.Moved = None,
    max_pixels: pictures.MaxPixels = None,
    device: evaluation.Device = "auto",
) -> None:
    """Label pictures, say how certain each label is, and which pictures belong to none of the classes.

    Each picture gets its likeliest label with a probability. With --coverage it also gets a prediction set, the labels
    that it may have: for each class, this share of the sets is guaranteed to contain the true label. A picture is "none
    of these" if it is less similar to every class than nearly all labelled pictures are to their own. Pictures are
    never changed or moved.
    """
    from fslstm_plugin.pictures.predictions import Asked, PredictionTable

    from . import outputs
    from .summary import Summary, promises

    sure = _sureness(above, wrong_at_most, guaranteed)
    if sure is not None and sure.guaranteed:
        coverage = _coverage_within(sure, coverage)
    kind = options.coverage_kind(coverage, coverage_kind)
    if probabilities and csv is None and json is None:
        raise UsageError("--probabilities adds to the table and to the JSON: give --csv or --json too.")
    if transductive and coverage is not None:
        option = "--guaranteed" if guaranteed else "--coverage"
        raise UsageError(
            f"{option} cannot be used with --transductive, which treats labelled and new pictures differently: leave "
            "out one of the two."
        )
    _check_sorting(source, sort_into, link)
    options.require_apart(model, source, csv, json, html, label_studio)
    if html is not None:
        import fslstm_plugin.reporting.gallery  # noqa: F401  # what it needs is missed before anything is computed
    found = pictures.unlabelled(source)
    if label_studio is not None:
        pictures.refuse_boxes(found, "--label-studio")
    if xmp:
        _require_writable_beside(found)
    labeller: Labeller
    if model.suffix.lower() == ".onnx":
        allowed = {*context.params} - _NOT_OF_GRAPHS
        options.refuse_beside(context, "An exported graph", allowed, "use the classifier that it was exported from")
        from fslstm_plugin.pictures.graph import Graph  # which needs no PyTorch

        labeller = Graph(model, accept)
    else:
        from .labellers import ClassifierLabeller, Guarantee

        sets = None if coverage is None else Guarantee(coverage, kind)
        labeller = ClassifierLabeller(model, device, weights, transductive, sets, accept, sure)
    _require_calibrated(labeller, sure)
    if new:
        found = _new_ones(found, labeller)
    with ExitStack() as stack:
        if csv is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fslstm-"))
        else:
            stack.enter_context(_alone(csv, labeller.together))
        file = csv or Path(folder) / "predictions.csv"
        table = PredictionTable(file, labeller.identity, labeller.classes if probabilities else [])
        once = {table.entry(each.name): each for each in found}
        with _told_to_go_on(csv):
            unreadable = _predict_all(once, labeller, table)
        asked = Asked(table, once.keys())
        if sure is not None:
            asked = replace(asked, sure=sure.rule(asked, labeller.left_out))
        if sure is not None or table.marked:
            table.mark(asked)
        summary = Summary.of(asked, labeller.classes)
        summary.show(asked, labeller.sets is not None, sure is not None, source, labeller.why_uncalibrated is None)
        left_out = f"; {count_of(unreadable, 'picture')} could not be read" if unreadable else ""
        typer.echo(f"{count_of(summary.total, 'picture')}{left_out}.")
        tested = None if labeller.likeness is None else labeller.likeness.test()
        lead = promises(labeller, summary, tested, sure, accept)
        for sentence in lead:
            typer.echo(sentence)
        if csv is not None:
            more = len(table) - summary.total
            further = f", which has {count_of(more, 'further picture')}" if more else ""
            typer.echo(f"Written: {printable(str(csv))}{further}.")
        title = f"{count_of(summary.total, 'picture')} by {printable(model.name)}"
        attempt(
            (json, lambda file: outputs.write_json(file, asked, labeller, tested)),
            (label_studio, lambda file: outputs.write_tasks(file, ((each.path, each) for each in asked), model.name)),
            (html, lambda file: outputs.write_gallery(file, asked, labeller, title, lead)),
            (xmp, lambda _: outputs.write_sidecars(asked)),
            (sort_into, lambda folder: outputs.sort(folder, asked, summary, link)),
        )


@contextmanager
def _alone(csv: Path, transductive: bool) -> Iterator[None]:
    """Keep the table, which is made if needed, from other commands; one that was made and got no line is removed."""
    made = not csv.exists()
    if made:
        csv.touch()  # what is not there cannot be claimed
    with pictures.claimed(csv):
        if transductive and csv.is_file() and csv.stat().st_size:
            raise UsageError(
                f"{csv} already exists, and predictions that use the other pictures cannot be continued: name another "
                "file, or remove it."
            )
        try:
            yield
        finally:
            if made and csv.is_file() and not csv.stat().st_size:
                csv.resolve().unlink()


@contextmanager
def _told_to_go_on(csv: Path | None) -> Iterator[None]:
    """Say that a table is continued, where its predictions are stopped by Ctrl-C, SIGTERM or a full disk."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, StorageError) as error:
        terminated = 128 + signal.SIGTERM
        if isinstance(error, SystemExit) and error.code != terminated:
            raise
        begun = csv is not None and csv.is_file() and csv.stat().st_size
        advice = f" To continue {printable(str(csv))}, type the same command again." if begun else ""
        if isinstance(error, StorageError):
            raise StorageError(f"{error}{advice}") from error
        stopped = Interrupted(f"Stopped.{advice}", signal.SIGINT)
        if isinstance(error, SystemExit):
            stopped.exit_code = terminated
        raise stopped from None


def _check_sorting(source: Path, sort_into: Path | None, link: bool) -> None:
    if link and sort_into is None:
        raise UsageError("--link says how --sort-into places the pictures: give --sort-into too.")
    if sort_into is not None and source.is_dir() and sort_into.resolve().is_relative_to(source.resolve()):
        raise UsageError(
            f"{sort_into} lies within {source}, where sorted pictures would be taken for new ones: name a folder "
            "outside it."
        )
    if sort_into is not None:
        options.require_writable_folder(sort_into)


def _require_writable_beside(found: Sequence[Picture]) -> None:
    from fslstm_plugin.pictures.picture import unboxed

    for folder in dict.fromkeys(unboxed(each.path)[0].parent for each in found):
        if folder.is_dir() and not os.access(folder, os.W_OK):
            raise UsageError(
                f"--xmp writes beside the pictures, but the folder {folder} cannot be written to: make it writable, "
                "or leave out --xmp."
            )


def _sureness(above: float | None, wrong_at_most: float | None, guaranteed: bool) -> Sureness | None:
    """Which labels are sure, as the options say; None where they do not."""
    from fslstm_plugin.pictures.predictions import Sureness

    if guaranteed and wrong_at_most is None:
        raise UsageError("--guaranteed says how strong --wrong-at-most is: give --wrong-at-most too.")
    if above is not None and wrong_at_most is not None:
        raise UsageError("--above and --wrong-at-most both say which labels are sure: leave out one of the two.")
    if above is None and wrong_at_most is None:
        return None
    return Sureness(above, wrong_at_most, guaranteed)


def _coverage_within(sure: Sureness, coverage: float | None) -> float:
    """The coverage of the prediction sets by which labels are sure; no other may be asked for."""
    # Nearer to 0 or 1 the coverage would round to a number that is none.
    mine = round(1 - require("wrong_at_most", sure.wrong_at_most, least=1e-9, most=1 - 1e-9), 12)
    if coverage not in (None, mine):
        raise UsageError(
            f"--wrong-at-most {sure.wrong_at_most:g} --guaranteed needs prediction sets with coverage {mine:g}, not "
            f"{coverage:g}: leave out --coverage."
        )
    return mine


def _new_ones(found: Sequence[Picture], labeller: Labeller) -> list[Picture]:
    """The pictures that the classifier was not fitted to."""
    left = [each for each in found if each.name not in labeller.labelled]
    if not left:
        raise DataError("The classifier was fitted to all of these pictures: leave out --new, or name others.")
    if known := len(found) - len(left):
        terminal.say(f"{count_of(known, 'picture')} left out: in the classifier itself.")
    return left


def _require_calibrated(labeller: Labeller, sure: Sureness | None) -> None:
    """Refuse to expect something of probabilities that nothing confirms."""
    why = labeller.why_uncalibrated
    if sure is not None and sure.wrong_at_most is not None and not sure.guaranteed and why is not None:
        raise UsageError(
            f"--wrong-at-most needs calibrated probabilities, but these are uncalibrated: {why}. Add --guaranteed or "
            "use --above."
        )


def _predict_all(once: Mapping[str, Picture], labeller: Labeller, table: PredictionTable) -> int:
    """Predict what is not in the table yet; the number of pictures that cannot be read."""
    new = [each for each in once.values() if each.name not in table]
    if len(new) < len(once):
        terminal.say(f"Continued: {count_of(len(once) - len(new), 'picture')} of {len(once):,} already done.")
    if labeller.likeness is not None:
        labeller.likeness.choose([*once.values()])
    unreadable = 0
    for batch in gathering.told(labeller.predict(new), len(new)):
        unreadable += len(batch.problems)
        if batch.values:
            table.append(batch.values)
    if unreadable == len(once):
        raise DataError("None of the pictures can be read.")
    if labeller.likeness is not None and len(new) < len(once):
        labeller.likeness.look_at([*once.values()])
    return unreadable

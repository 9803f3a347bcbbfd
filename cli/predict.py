"""``fslstm predict``."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional, TextIO

import typer

from fslstm_plugin.errors import DataError, UsageError, printable

from . import evaluation, options, pictures, terminal
from .labellers import ClassifierLabeller, GraphLabeller, Labeller, Sets

if TYPE_CHECKING:
    from rich.console import Console

    from fslstm_plugin.pictures import Picture
    from fslstm_plugin.pictures.likeness import Tested
    from fslstm_plugin.pictures.predictions import Asked, Prediction, PredictionTable, Sureness

EXAMPLES = """
[bold]Examples[/bold]

fslstm predict birds.fslstm pictures/

fslstm predict birds.fslstm pictures/ --csv labels.csv --html gallery.html

fslstm predict birds.fslstm pictures/ --sort-into sorted/ --link --coverage 0.8

fslstm predict birds.fslstm pictures/ --wrong-at-most 0.05 --csv labels.csv --sort-into sorted/

fslstm predict birds.fslstm pictures/ --transductive --json labels.json

fslstm predict birds.onnx pictures/ --csv labels.csv  (what 'fslstm export' wrote)
"""

_LISTED = 25  # Pictures that are printed one by one; of more there is a summary.


def _file(help_text: str):  # type: ignore[no-untyped-def]
    return typer.Option(help=help_text, show_default=False, dir_okay=False, callback=options.in_a_folder)


ModelOrGraph = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="What 'fslstm fit' or 'fslstm export' wrote.", dir_okay=False),
]
Accept = Annotated[
    Optional[float],
    typer.Option(
        help="Share of the pictures of known classes that is accepted; less familiar pictures become 'none of "
        "these'. 1 accepts all. Default: 0.95, or the most that so few labelled pictures can tell, but 1 if that "
        "is below 0.9.",
        show_default=False,
    ),
]


def predict(
    model: ModelOrGraph,
    source: pictures.Pictures,
    csv: Annotated[
        Optional[Path], _file("A table with a line for each picture; an existing table is continued where it stopped.")
    ] = None,
    json: Annotated[Optional[Path], _file("The same predictions as JSON.")] = None,
    label_studio: Annotated[
        Optional[Path],
        _file("Tasks for Label Studio, with the labels as predictions; 'update --add' reads its export."),
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
        Optional[Path], _file("A page of all pictures, least certain first, in which labels can be corrected.")
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
            help="Say which labels can be taken without a look, as many as can be while this share of all pictures, "
            "such as 0.05, is expected to get a wrong one at most.",
            show_default=False,
        ),
    ] = None,
    guaranteed: Annotated[
        bool,
        typer.Option(
            "--guaranteed",
            help="With --wrong-at-most: take the labels whose prediction set has no other. That share is guaranteed, "
            "not only expected, and fewer are taken.",
        ),
    ] = False,
    above: Annotated[
        Optional[float],
        typer.Option(help="Say which labels have at least this probability, such as 0.9.", show_default=False),
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Add a column for each class's probability to the table.")
    ] = False,
    accept: Accept = None,
    weights: pictures.Moved = None,
    max_pixels: pictures.MaxPixels = None,
    device: evaluation.Device = "auto",
) -> None:
    """Label pictures, say how certain each label is, and which pictures belong to none of the classes.

    Each picture gets its likeliest label with a probability. With --coverage it also gets a prediction set, the labels
    that it may have: for each class, this share of the sets is guaranteed to contain the true label. A picture is "none
    of these" if it is less similar to every class than nearly all labelled pictures are to theirs. Pictures are never
    changed or moved.
    """
    from rich.console import Console

    from fslstm_plugin.data.reading.decode import allow_pixels
    from fslstm_plugin.pictures import pictures_in
    from fslstm_plugin.pictures.predictions import Asked, PredictionTable

    sure = _sureness(above, wrong_at_most, guaranteed)
    if sure is not None and sure.guaranteed:
        coverage = _coverage_within(sure, coverage)
    kind = options.coverage_kind(coverage, coverage_kind)
    _check(source, sort_into, link, transductive, coverage)
    options.require_apart(model, source, csv, json, html, label_studio)
    if max_pixels is not None:
        allow_pixels(max_pixels)
    if html is not None:
        import fslstm_plugin.pictures.gallery  # noqa: F401  # what it needs is missed before anything is computed
    console = Console(stderr=True)
    found = pictures_in(source, partial(terminal.say, console))
    if label_studio is not None:
        pictures.refuse_boxes(found, "--label-studio")
    labeller: Labeller
    if model.suffix.lower() == ".onnx":
        _refuse_beside_graph(transductive, coverage, weights, device)
        labeller = GraphLabeller(model, accept)
    else:
        sets = None if coverage is None else Sets(coverage, kind)
        labeller = ClassifierLabeller(model, device, weights, transductive, sets, accept, sure)
    _require_calibrated(labeller, sure)
    with ExitStack() as stack:
        if csv is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fslstm-"))
        else:
            stack.enter_context(_alone(csv, labeller.together, console))
        file = csv or Path(folder) / "predictions.csv"
        table = PredictionTable(file, labeller.identity, labeller.classes if probabilities else [])
        once = {table.entry(pictures.text_of(each.path)): each for each in found}
        with _told_to_go_on(csv):
            unreadable = _predict_all(once, labeller, table, console)
        asked = Asked(table, once.keys())
        if sure is not None:
            asked = replace(asked, sure=sure.rule(asked, labeller.left_out))
            table.mark(asked)
        summary = Summary.of(asked, labeller.classes)
        summary.show(asked, labeller.sets is not None, source, labeller.why_uncalibrated is None)
        left_out = f"; {pictures.count_of(unreadable)} could not be read" if unreadable else ""
        typer.echo(f"{pictures.count_of(summary.total)}{left_out}.")
        doubt = doubted(labeller.why_uncalibrated)
        tested = None if labeller.likeness is None else labeller.likeness.test()
        lead = [
            *on_sets(labeller.sets, tested),
            *labeller.on_none(),
            *doubt,
            *on_sure(sure, summary, tested, labeller.together),
        ]
        for sentence in lead:
            typer.echo(sentence)
        if csv is not None:
            more = len(table) - summary.total
            further = f", which has {pictures.count_of(more, 'further picture')}" if more else ""
            typer.echo(f"Written: {printable(str(csv))}{further}.")
        if json is not None:
            _write_json(json, asked, labeller, tested)
        if label_studio is not None:
            _write_tasks(label_studio, asked, model)
        if html is not None:
            title = f"{pictures.count_of(summary.total)} by {printable(model.name)}"
            _write_gallery(html, asked, labeller, title, lead)
        if xmp:
            _write_sidecars(asked)
        if sort_into is not None:
            _sort(sort_into, asked, summary, link, console)


@contextmanager
def _alone(csv: Path, transductive: bool, console: Console) -> Iterator[None]:
    """Keep the table, which is made if needed, from other commands.

    Raises:
        UsageError: If it has predictions, and those to come use the other pictures.
    """
    if not csv.exists():
        csv.touch()  # what is not there cannot be claimed
    with pictures.claimed(csv, console):
        if transductive and csv.is_file() and csv.stat().st_size:
            raise UsageError(
                f"{csv} already exists, and predictions that use the other pictures cannot be continued: name another "
                "file, or remove it."
            )
        yield


@contextmanager
def _told_to_go_on(csv: Path | None) -> Iterator[None]:
    """Say that a table is continued, where its predictions are stopped by Ctrl-C or a full disk."""
    from fslstm_plugin.errors import StorageError
    from fslstm_plugin.stopping import Interrupted

    advice = "" if csv is None else f"The same command continues {printable(str(csv))}, which is whole."
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(f"Stopped. {advice}".rstrip(), signal.SIGINT) from None
    except StorageError as error:
        raise StorageError(f"{error} {advice}".rstrip()) from error


def _check(
    source: Path,
    sort_into: Path | None,
    link: bool,
    transductive: bool,
    coverage: float | None,
) -> None:
    """Refuse what does not go together, before anything is computed."""
    if transductive and coverage is not None:
        raise UsageError(
            "--coverage cannot be guaranteed with --transductive, where the prediction for a picture depends on the "
            "other pictures, so that labelled and new ones are not treated alike: leave out one of the two."
        )
    if link and sort_into is None:
        raise UsageError("--link says how --sort-into places the pictures: give --sort-into too.")
    if sort_into is not None and source.is_dir() and sort_into.resolve().is_relative_to(source.resolve()):
        raise UsageError(
            f"{sort_into} lies within {source}, where sorted pictures would be taken for new ones: name a folder "
            "outside it."
        )


def _sureness(above: float | None, wrong_at_most: float | None, guaranteed: bool) -> Sureness | None:
    """Which labels are sure, as the options say; None where they do not.

    Raises:
        UsageError: If they do not go together.
    """
    from fslstm_plugin.pictures.predictions import Sureness

    if guaranteed and wrong_at_most is None:
        raise UsageError("--guaranteed says how strong --wrong-at-most is: give --wrong-at-most too.")
    if above is not None and wrong_at_most is not None:
        raise UsageError("--above and --wrong-at-most both say which labels are sure: leave out one of the two.")
    if above is None and wrong_at_most is None:
        return None
    return Sureness(above, wrong_at_most, guaranteed)


def _coverage_within(sure: Sureness, coverage: float | None) -> float:
    """The coverage of the prediction sets by which labels are sure.

    Raises:
        UsageError: If another is asked for.
    """
    mine = round(1 - (sure.wrong_at_most or 0), 12)
    if coverage not in (None, mine):
        raise UsageError(
            f"--wrong-at-most {sure.wrong_at_most:g} --guaranteed has prediction sets of the coverage {mine:g}, not "
            f"{coverage:g}: leave out --coverage."
        )
    return mine


def _refuse_beside_graph(transductive: bool, coverage: float | None, weights: Path | None, device: str) -> None:
    """Refuse what a graph cannot do."""
    for option, given in (
        ("--transductive", transductive),
        ("--coverage or --guaranteed", coverage is not None),
        ("--weights", weights is not None),
        ("--device", device != "auto"),
    ):
        if given:
            raise UsageError(f"An exported graph takes no {option}: predict with the classifier that it is from.")


def _require_calibrated(labeller: Labeller, sure: Sureness | None) -> None:
    """Refuse to expect something of probabilities that nothing confirms."""
    why = labeller.why_uncalibrated
    if sure is not None and sure.wrong_at_most is not None and not sure.guaranteed and why is not None:
        raise UsageError(
            f"--wrong-at-most needs calibrated probabilities, but they are not: {why}. Add --guaranteed or use --above."
        )


def _predict_all(once: Mapping[str, Picture], labeller: Labeller, table: PredictionTable, console: Console) -> int:
    """Predict what is not in the table yet; the number of pictures that cannot be read.

    Raises:
        DataError: If none of the pictures can be read.
    """
    new = [each for each in once.values() if pictures.text_of(each.path) not in table]
    if len(new) < len(once):
        terminal.say(
            console, f"Continued: {pictures.count_of(len(once) - len(new))} of {len(once):,} are already done."
        )
    if labeller.likeness is not None:
        labeller.likeness.choose([*once.values()])
    unreadable, remarks = 0, pictures.Remarks()
    with pictures.progress(console, len(new)) as advance:
        for batch in labeller.predict(new):
            pictures.name_unreadable(batch.unreadable, console, before=unreadable)
            unreadable += len(batch.unreadable)
            remarks.add(batch.remarks)
            if batch.predictions:
                table.append(batch.predictions)
            advance(batch.looked_at)
    remarks.say(console)
    if unreadable == len(once):
        raise DataError("None of the pictures can be read.")
    if labeller.likeness is not None and len(new) < len(once):
        labeller.likeness.look_at([*once.values()])
    return unreadable


@dataclass
class _Count:
    pictures: int = 0
    single: int = 0
    sure: int = 0
    probability: float = 0.0


@dataclass(frozen=True)
class Summary:
    """How many pictures there are of each label."""

    counts: Mapping[str, _Count]

    @classmethod
    def of(cls, predictions: Iterable[Prediction], classes: Sequence[str]) -> Summary:
        """Of the predictions, with the classes first and in their order."""
        from fslstm_plugin.pictures.predictions import NONE

        counts = {printable(name): _Count() for name in classes}
        for each in predictions:
            count = counts.setdefault(each.label, _Count())
            count.pictures += 1
            count.single += each.labels is not None and len(each.labels) == 1
            count.sure += bool(each.sure)
            count.probability += each.probability
        return cls({**{name: each for name, each in counts.items() if name != NONE}, NONE: counts.get(NONE, _Count())})

    @property
    def total(self) -> int:
        """Pictures with a prediction."""
        return sum(each.pictures for each in self.counts.values())

    def show(self, predictions: Iterable[Prediction], sets: bool, source: Path, calibrated: bool) -> None:
        """Print it; of few pictures each of them.

        Args:
            predictions: The predictions.
            sets: Whether there are prediction sets.
            source: Where the pictures are from.
            calibrated: Whether the probabilities are.
        """
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        percent = "%" if calibrated else "% (uncalibrated)"
        if self.total <= _LISTED:
            shown = Table("Picture", "Label", percent, *(["May be"] if sets else []))
            for each in predictions:
                label = each.label if each.label == each.likeliest else f"{each.label} ({each.likeliest})"
                cells = [pictures.shown(each.path, source), label, f"{100 * each.probability:.0f}", *_labels(each)]
                shown.add_row(*(Text(printable(cell)) for cell in cells))
        else:
            shown = Table("Label", "Pictures", f"mean {percent}", *(["set of one label"] if sets else []))
            for name, count in self.counts.items():
                if count.pictures:
                    cells = [name, f"{count.pictures:,}", f"{100 * count.probability / count.pictures:.0f}"]
                    cells += [f"{count.single:,}"] if sets else []
                    shown.add_row(*(Text(printable(cell)) for cell in cells))
        for column in shown.columns:
            numbers = column.header in (percent, f"mean {percent}", "Pictures", "set of one label")
            column.justify = "right" if numbers else "left"
        Console().print(shown)


def _labels(prediction: Prediction) -> list[str]:
    """The cell of the set, none where there are no sets."""
    if prediction.labels is None:
        return []
    return [", ".join(prediction.labels)]


def on_sets(sets: Sets | None, tested: Tested | None) -> list[str]:
    """How often the prediction sets contain the true label, and whether the pictures allow to say so.

    Args:
        sets: The prediction sets; no sentence where there are none.
        tested: The pictures; None where none can be read any more.
    """
    if sets is None:
        return []
    whom = (
        "the pictures of each class"
        if sets.kind == options.PER_CLASS
        else "all pictures, where labelled and new ones are drawn alike"
    )
    promise = f"contain the true label for {100 * sets.coverage:g} % of {whom}"
    if tested is None:
        return [f"The prediction sets {promise}."]
    test = f"a permutation test of {pictures.count_of(tested.pictures)}"
    if not tested.withdrawn:
        return [
            f"The prediction sets {promise}.",
            f"That assumes pictures like the labelled ones: {test} finds no difference (p = {tested.p_value:.2g}).",
        ]
    names = ", ".join(printable(Path(each).name) for each in tested.different)
    return [
        f"Not guaranteed: that the prediction sets {promise}. The pictures differ from the labelled ones (p = "
        f"{tested.p_value:.2g} in {test}), most of all {names}. Look at these: label some and add them with 'fslstm "
        "update --add', or leave out what is of none of the classes."
    ]


def on_sure(sure: Sureness | None, summary: Summary, tested: Tested | None = None, together: bool = False) -> list[str]:
    """How many labels can be taken without a look, and what is promised of them; none where that was not asked."""
    if sure is None:
        return []
    number = sum(count.sure for count in summary.counts.values())
    told = f"Sure: {number:,} of {pictures.count_of(summary.total)}; look at the other {summary.total - number:,}."
    if sure.wrong_at_most is None:
        return [f"{told} Sure is a label with a probability of at least {sure.above:g}."]
    share = f"{100 * sure.wrong_at_most:g} % of all pictures"
    if sure.guaranteed and tested is not None and tested.withdrawn:
        return [f"{told} That at most {share} get a wrong label that is sure is not guaranteed either."]
    if sure.guaranteed:
        return [
            f"{told} On average at most {share} get a wrong label that is sure, guaranteed as the prediction sets are, "
            "for pictures of the classes."
        ]
    more = " It can be a little more, since the predictions use the other pictures." if together else ""
    return [
        f"{told} At most {share} are expected to get a wrong label that is sure, if they are of the classes and like "
        f"the labelled ones of each.{more}"
    ]


def doubted(why: str | None) -> list[str]:
    """That the probabilities are uncalibrated, in a sentence with the reason; none where they are calibrated."""
    return [] if why is None else [f"The probabilities are uncalibrated: {why}."]


def _write_json(file: Path, asked: Asked, labeller: Labeller, tested: Tested | None) -> None:
    """All predictions as JSON, one at a time, so that the file is whole or absent."""
    import json

    from fslstm_plugin import __version__
    from fslstm_plugin.pictures.predictions import path_beside
    from fslstm_plugin.reporting.provenance import command_line

    about = {
        "command": command_line(),
        "version": __version__,
        "model": asked.table.model,
        "coverage": labeller.sets and {"share": labeller.sets.coverage, "kind": labeller.sets.kind},
        "likeness": tested and tested._asdict() | {"different": [path_beside(file, each) for each in tested.different]},
        "accept": labeller.accepted,
        "uncalibrated": labeller.why_uncalibrated,
    }
    with _opened(file) as text:
        text.write(json.dumps(about)[:-1] + ', "pictures": [')
        for number, each in enumerate(asked):
            row = {
                "path": path_beside(file, each.path),
                "label": each.label,
                "likeliest": each.likeliest,
                "probability": each.probability,
                "cautious": each.cautious,
                "calibrated": each.calibrated,
                "familiarity": each.familiarity,
                "set": None if each.labels is None else list(each.labels),
                "sure": each.sure,
                "nearest": path_beside(file, each.nearest),
            }
            text.write((",\n" if number else "\n") + json.dumps(row))
        text.write("\n]}\n")
    typer.echo(f"Written: {printable(str(file))}.")


def _write_tasks(file: Path, asked: Asked, model: Path) -> None:
    from fslstm_plugin.pictures.label_studio import task
    from fslstm_plugin.storage.files import write_json

    write_json(file, [task(file, each.path, each, model.name) for each in asked])
    typer.echo(f"Written: {printable(str(file))}.")


@contextmanager
def _opened(file: Path) -> Iterator[TextIO]:
    """A file to write, whole or absent; a link stays one, and a device or a pipe is written to, not replaced."""
    from fslstm_plugin.errors import StorageError
    from fslstm_plugin.storage.files import replacing

    if not file.exists() or file.is_file():
        with replacing(Path(os.path.realpath(file))) as temporary, temporary.open("w", encoding="utf-8") as text:
            yield text
        return
    try:
        with file.open("w", encoding="utf-8") as text:
            yield text
    except OSError as error:
        raise StorageError(f"Cannot write {file}: {error.strerror or error}.") from error


def _write_gallery(
    file: Path,
    asked: Asked,
    labeller: Labeller,
    title: str,
    lead: Sequence[str],
) -> None:
    from fslstm_plugin.pictures.gallery import gallery
    from fslstm_plugin.storage.files import write_text

    write_text(file, gallery(asked, labeller.classes, title, lead, file, labeller.labelled, labeller.identity))
    typer.echo(f"Written: {printable(str(file))}.")


def _write_sidecars(asked: Asked) -> None:
    from fslstm_plugin.pictures.boxes import unboxed
    from fslstm_plugin.pictures.predictions import NONE
    from fslstm_plugin.pictures.tables import path_of
    from fslstm_plugin.pictures.xmp import write_sidecars

    keywords: dict[Path, dict[str, None]] = {}  # of all boxes of a picture, each once
    for each in asked:
        file, _ = unboxed(Path(path_of(each.path)))
        mine = keywords.setdefault(file, {})
        if each.label != NONE and each.sure is not False:
            mine[each.label] = None
    done = write_sidecars(keywords)
    left = f" {done.left:,} of other programs are left as they are." if done.left else ""
    typer.echo(f"Written: {pictures.count_of(done.written, 'XMP sidecar')}.{left}")


def _sort(
    folder: Path,
    asked: Asked,
    summary: Summary,
    link: bool,
    console: Console,
) -> None:
    from fslstm_plugin.pictures.boxes import unboxed
    from fslstm_plugin.pictures.predictions import NONE, UNSURE
    from fslstm_plugin.pictures.sorting import sort_into
    from fslstm_plugin.pictures.tables import path_of

    found = (
        (unboxed(Path(path_of(each.path)))[0], UNSURE if each.sure is False and each.label != NONE else each.label)
        for each in asked
    )
    for sentence in sort_into(folder, found, [*summary.counts, UNSURE], link):
        terminal.say(console, printable(sentence))
    typer.echo(f"{'Linked' if link else 'Copied'} into {printable(str(folder))}.")

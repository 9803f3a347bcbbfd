"""What a classifier says of pictures, and the CSV file that it is kept in while it grows."""

from __future__ import annotations

import codecs
import csv
import hashlib
import io
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..checks import require
from ..confidence.certainty import LeftOut, least_probability
from ..errors import DataError, StorageError, UsageError
from ..storage.files import replaceable, replacing, saying_why
from ..storage.tables import guarded, header, number_in, path_beside, path_of, path_text, rows, unguarded

NONE, UNSURE = "none of these", "unsure"
_COLUMNS = (
    "path", "label", "likeliest", "probability", "cautious", "calibrated", "familiarity", "set", "nearest", "model",
    "sure",
)  # fmt: skip
_YES = {True: "yes", False: "no", None: ""}
_KNOWN = {cell: answer for answer, cell in _YES.items()}


class Prediction(NamedTuple):
    """A picture's label."""

    path: str  # The picture's name.
    label: str  # The likeliest class, or `NONE` where the picture is too unfamiliar.
    likeliest: str  # The likeliest class in any case.
    probability: float  # Its probability.
    familiarity: float  # See `FewShotClassifier.familiarity`.
    labels: tuple[str, ...] | None  # The prediction set, with the likeliest class in it; None where there are no sets.
    nearest: str  # The labelled picture that is most like it; empty where its name is not known.
    calibrated: bool = True  # Whether the probability is.
    sure: bool | None = None  # Whether the label can be taken without a look; None where that was not asked.
    probabilities: tuple[float, ...] = ()  # Of all classes, in their order.
    cautious: float = 0.0  # The probability for a promise, see `certainty.cautious`.

    @property
    def is_corrected(self) -> bool:
        """Whether somebody wrote another class into the table as the label, of which no probability is known."""
        return self.label not in (self.likeliest, NONE)


def identity_of(model: bytes, *settings: object) -> str:
    """A short name for what predictions depend on besides the picture: the classifier's file and some settings.

    It begins with a letter, so that no spreadsheet takes it for a number and writes it in another way.
    """
    return "m" + hashlib.blake2b(model + repr(settings).encode(), digest_size=5).hexdigest()


class PredictionTable:
    r"""A CSV file that grows by whole lines, and is continued where it was stopped.

    A batch is one write at the end of the file. One that fails, as on a full disk, is taken back; half a line that a
    kill or a crash left is cut off when the file is opened again. A line that is there is never written again.

    The columns are those of `Prediction`, and which model it is by. Paths are as `path_beside` gives them. A set
    has its labels separated by semicolons; an empty cell says that there are no sets, or that nobody asked which labels
    are sure. A label that a spreadsheet would take for a formula begins with ``'``.

    Args:
        file: Its place. It is made, or continued.
        model: See `identity_of`.
        classes: Classes whose probabilities get a column each. Default none.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "out.csv"
        >>> found = Prediction("/a, b.png", NONE, "=wren", 0.5, 0.04, ("=wren", "tit"), "/1.png", cautious=0.4)
        >>> PredictionTable(file, "m").append([found])
        >>> print(file.read_text().replace("\r", ""))
        path,label,likeliest,probability,cautious,calibrated,familiarity,set,nearest,model,sure
        "/a, b.png",none of these,'=wren,0.5000,0.4000,yes,0.0400,'=wren;tit,/1.png,m,
        <BLANKLINE>
        >>> "/a, b.png" in PredictionTable(file, "m")
        True
    """

    def __init__(self, file: Path, model: str, classes: Sequence[str] = ()) -> None:
        self.file, self.model = file, model
        self._of_classes = [f"probability of {each}" for each in classes]
        self._columns = [*_COLUMNS, *self._of_classes]
        self.done: set[str] = set()
        self.marked = False  # Whether it says of some labels whether they are sure.
        self._folders: dict[str, str] = {}
        self._separator = ","  # Or as a spreadsheet saved it.
        self._status: os.stat_result | None = None
        replaceable(file)
        if file.exists() and file.stat().st_size:
            self._continue()
        else:
            self._write([])
        self._status = file.stat()

    def _continue(self) -> None:
        with self.file.open("rb") as lines:
            begins = next(lines).removeprefix(codecs.BOM_UTF8)  # which a spreadsheet puts first
        try:
            names, self._separator = header(begins.decode(errors="replace"), _COLUMNS)
        except csv.Error:  # ends of lines that are none here, as after UTF-16
            names = []
        if names[: len(_COLUMNS)] != list(_COLUMNS):
            raise DataError(
                f"{self.file} already exists, and is not a table as 'fslstm predict' writes it: name another file."
            )
        if names != self._columns:
            both = {*names} & {*self._columns}
            other = next((each for each in [*names, *self._columns] if each not in both), "in another order")
            raise UsageError(
                f"{self.file} has other columns than are written now ({other}), and is not continued: name another "
                "file."
            )
        whole = _whole_lines(self.file)
        for line, row in self._rows(whole) if whole else ():
            if row["model"] != self.model:
                raise UsageError(
                    f"{self.file} has predictions by another model or with other options, and is not continued: name "
                    "another file, or remove it."
                )
            entry = self.entry(self._path(row["path"]))
            if entry in self.done:
                raise DataError(
                    f"{self.file} has the picture {row['path']} again in line {line}: two commands wrote into it at "
                    "once, or it was edited. Remove that line, or name another file."
                )
            self.done.add(entry)
            self.marked |= row["sure"] != ""
        self._cut_off(whole)

    def _cut_off(self, whole: int) -> None:
        """Remove the half line that an interrupted write left, but nothing that was a line once."""
        with saying_why(f"Cannot write {self.file}"), self.file.open("rb+") as file:
            file.seek(whole)
            if file.read().endswith(b"\n"):
                raise self._edited("a quote without its other")
            file.truncate(whole)

    def append(self, predictions: Sequence[Prediction]) -> None:
        """Write predictions, all of them or none; not into another file that is in its place."""
        self._write([self._cells(each) for each in predictions])
        self.done.update(self.entry(each.path) for each in predictions)

    def mark(self, asked: Asked) -> None:
        """Say of some predictions whether their labels are sure, and of the others no more."""
        marked = {self.entry(each.path): each.sure for each in asked}
        with replacing(replaceable(self.file)) as temporary, temporary.open("w", encoding="utf-8", newline="") as text:
            lines = csv.writer(text, delimiter=self._separator, lineterminator="\r\n")
            lines.writerow(self._columns)
            lines.writerows(self._cells(each._replace(sure=marked.get(self.entry(each.path)))) for each in self)
        self._status = self.file.stat()

    def _cells(self, prediction: Prediction) -> list[str]:
        return [
            path_beside(self.file, prediction.path),
            guarded(prediction.label),
            guarded(prediction.likeliest),
            f"{prediction.probability:.4f}",
            f"{prediction.cautious:.4f}",
            _YES[prediction.calibrated],
            f"{prediction.familiarity:.4f}",
            guarded(_set_cell(prediction.labels)),
            path_beside(self.file, prediction.nearest),
            self.model,
            _YES[prediction.sure],
            *(f"{each:.4f}" for each, _ in zip(prediction.probabilities, self._of_classes, strict=False)),
        ]

    def entry(self, path: str) -> str:
        """A picture's path whatever links its folder is named by, which is the same for each of its names."""
        folder, name = os.path.split(path_of(path))
        if folder not in self._folders:
            self._folders[folder] = os.path.realpath(folder)
        return path_text(os.path.join(self._folders[folder], name))

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and self.entry(path) in self.done

    def __len__(self) -> int:
        return len(self.done)

    def _write(self, rows: Sequence[Sequence[str]]) -> None:
        """Write at the end, and the columns first where nothing is written yet."""
        text = io.StringIO()
        lines = csv.writer(text, delimiter=self._separator, lineterminator="\r\n")
        how = "rb+" if self._status else "ab"
        with saying_why(f"Cannot write {self.file}"), self.file.open(how, buffering=0) as file:
            if self._status and not os.path.samestat(self._status, os.fstat(file.fileno())):
                raise StorageError(f"{self.file} was replaced while it was written.")
            before = file.seek(0, io.SEEK_END)
            lines.writerows(rows if before or not rows else [self._columns, *rows])
            content = memoryview(text.getvalue().encode())
            try:
                while content:
                    content = content[file.write(content) :]
            except OSError:
                file.truncate(before)
                raise

    def __iter__(self) -> Iterator[Prediction]:
        """The predictions from the file, one at a time."""
        for line, row in self._rows():
            try:
                prediction = self._read(row)
            except (ValueError, KeyError) as error:
                raise DataError(
                    f"Line {line} of {self.file} holds a cell that 'fslstm predict' does not write ({error}): name "
                    "another file."
                ) from error
            yield prediction

    def _read(self, row: Mapping[str, str]) -> Prediction:
        return Prediction(
            self._path(row["path"]),
            unguarded(row["label"]),
            unguarded(row["likeliest"]),
            number_in(row["probability"]),
            number_in(row["familiarity"]),
            _set_of(unguarded(row["set"])),
            row["nearest"] and self._path(row["nearest"]),
            row["calibrated"] == _YES[True],
            _KNOWN[row["sure"]],
            tuple(number_in(row[name]) for name in self._of_classes),
            number_in(row["cautious"]),
        )

    def _path(self, cell: str) -> str:
        return path_text(os.path.normpath(os.path.join(os.path.abspath(self.file.parent), path_of(cell))))

    def _rows(self, size: int | None = None) -> Iterator[tuple[int, dict[str, str]]]:
        """The rows within the first bytes of the file; None for all."""
        try:
            yield from rows(self.file, self._columns, size)
        except DataError as error:
            raise self._edited(error) from error

    def _edited(self, how: object) -> DataError:
        return DataError(f"{self.file} was edited and cannot be continued ({how}): name another file.")


@dataclass(frozen=True)
class Sureness:
    """Which labels are sure enough to be taken without a look.

    Those of at least a probability; or those that leave at most a share of all pictures with a wrong label. These are
    the ones with the greatest probabilities, or if guaranteed, those whose prediction set holds no other label, of sets
    with the coverage 1 - ``wrong_at_most``. A label that was corrected is sure.

    Example:
        >>> found = [Prediction("/1.png", "owl", "owl", p, 1.0, None, "", cautious=p) for p in (0.99, 0.7)]
        >>> list(map(Sureness(wrong_at_most=0.05).rule(found), found))
        [True, False]
    """

    above: float | None = None
    wrong_at_most: float | None = None
    guaranteed: bool = False

    def __post_init__(self) -> None:
        if self.above is not None:
            require("above", self.above, least=0, most=1)
        if self.wrong_at_most is not None:
            require("wrong_at_most", self.wrong_at_most, above=0, below=1)

    def rule(self, predictions: Iterable[Prediction], left_out: LeftOut | None = None) -> Callable[[Prediction], bool]:
        """What tells of each of these predictions whether it is sure, see `least_probability`; `NONE` never is."""
        guess = self._rule(predictions, left_out)
        return lambda each: each.is_corrected or (each.label != NONE and guess(each))

    def _rule(self, predictions: Iterable[Prediction], left_out: LeftOut | None) -> Callable[[Prediction], bool]:
        if self.guaranteed:
            return lambda each: each.labels == (each.label,)
        if self.wrong_at_most is None:
            least = self.above or 0.0
            return lambda each: each.probability >= least
        found = [(each.label == each.likeliest, each.cautious) for each in predictions]
        guessed = np.array([share for is_guess, share in found if is_guess], dtype=np.float64)
        least = least_probability(guessed, len(found), self.wrong_at_most, left_out)
        return lambda each: each.cautious >= least


@dataclass(frozen=True)
class Asked:
    """A table's predictions of some pictures, which are read again each time."""

    table: PredictionTable
    entries: Collection[str]  # See `PredictionTable.entry`.
    sure: Callable[[Prediction], bool] | None = None  # Whether a label is; None where nobody asks.

    def __iter__(self) -> Iterator[Prediction]:
        for each in self.table:
            if self.table.entry(each.path) in self.entries:
                yield each._replace(sure=None if self.sure is None else self.sure(each))


def only_guesses(source: Path) -> bool:
    """Whether a source of labels is a table of predictions in which each is the classifier's own guess."""
    if source.suffix.lower() != ".csv" or not source.is_file():
        return False
    try:
        return all(cells["label"] in (cells["likeliest"], NONE) for _, cells in rows(source, _COLUMNS[:4]))
    except DataError:  # a table of another form
        return False


def _whole_lines(file: Path) -> int:
    """Bytes up to the end of the last whole line; the newlines within quotes end none."""
    whole = position = quotes = 0
    with file.open("rb") as lines:
        for line in lines:
            position += len(line)
            quotes += line.count(b'"')
            if quotes % 2 == 0 and line.endswith(b"\n"):  # of which an editor or Git may have made "\r\n"
                whole = position
    return whole


def _set_cell(labels: tuple[str, ...] | None) -> str:
    if labels is None:
        return ""
    text = io.StringIO()
    csv.writer(text, delimiter=";", lineterminator="").writerow(labels)
    return text.getvalue()


def _set_of(cell: str) -> tuple[str, ...] | None:
    if not cell:
        return None
    return tuple(next(csv.reader([cell], delimiter=";")))

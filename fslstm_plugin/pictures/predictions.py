"""What a classifier says of pictures, and the CSV file that it is kept in while it grows."""

from __future__ import annotations

import csv
import hashlib
import io
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..conformal import attained_coverage
from ..errors import DataError, StorageError, UsageError, printable

if TYPE_CHECKING:
    from ..classifier import FewShotClassifier

NONE = "none of these"
_USUAL = 0.9
_COLUMNS = ("path", "label", "probability", "set", "nearest", "model")
_FORMULA = ("=", "+", "-", "@", "'")  # What a spreadsheet would compute, and the sign that tells it not to.


class Prediction(NamedTuple):
    """A picture's label.

    Args:
        path: The picture, from the root of the file system.
        label: The likeliest.
        probability: Its probability.
        labels: The labels that it may have; none of them, or None where nothing is guaranteed.
        nearest: The labelled picture that is most like it; empty where its name is not known.
    """

    path: str
    label: str
    probability: float
    labels: tuple[str, ...] | None
    nearest: str

    @property
    def group(self) -> str:
        """Where it belongs: its label, or `NONE` where no label is possible."""
        return NONE if self.labels == () else self.label


@dataclass(frozen=True)
class Promise:
    """How often the sets of labels hold the right one.

    Args:
        coverage: Their share.
        kind: See `conformal.p_values`.
    """

    coverage: float
    kind: str = "marginal"


def usual_promise(classifier: FewShotClassifier) -> Promise:
    """A coverage of 0.9, or the greatest of two digits that this number of labelled pictures can promise.

    Raises:
        UsageError: If the classifier can promise none, with the reason.
    """
    points = len(classifier.support_)
    most = math.floor(100 * points / (points + 1)) / 100
    return checked(Promise(_USUAL if attained_coverage(_USUAL, points) < 1 else most), classifier)


def checked(promise: Promise, classifier: FewShotClassifier) -> Promise:
    """The promise, if the classifier can keep it.

    Raises:
        UsageError: If it cannot, with the reason and what it can.
    """
    classifier.predict_set(classifier.support_[:1], promise.coverage, promise.kind)
    return promise


class Predictor:
    """Predicts pictures by their features, any number at a time.

    Args:
        classifier: A fitted one.
        promise: Of the sets of labels. Default None: there are none.

    Example:
        >>> from fslstm_plugin.classifier import FewShotClassifier
        >>> classifier = FewShotClassifier("nn").fit([[0.0, 1.0], [1.0, 0.0]], ["owl", "wren"], ["/1.png", "/2.png"])
        >>> Predictor(classifier)(["/new.png"], torch.tensor([[0.1, 1.0]]))
        [Prediction(path='/new.png', label='owl', probability=0..., labels=None, nearest='/1.png')]
    """

    def __init__(self, classifier: FewShotClassifier, promise: Promise | None = None) -> None:
        self.classifier, self.promise = classifier, promise
        self._classes = [printable(str(each)) for each in classifier.classes_]
        self._places = dict(zip(classifier.classes_.tolist(), self._classes, strict=True))
        self._support = F.normalize(torch.from_numpy(classifier.support_).float(), dim=-1)

    def __call__(self, paths: Sequence[str], features: Tensor) -> list[Prediction]:
        """Predictions of pictures, in their order, from their features ``(m, d)``."""
        if not paths:
            return []
        X = features.numpy()
        best = torch.from_numpy(self.classifier.predict_proba(X)).max(-1)
        sets = self._sets(X)
        nearest = (F.normalize(features.float(), dim=-1) @ self._support.mT).argmax(-1).tolist()
        return [
            Prediction(path, self._classes[label], probability, labels, self.classifier.pictures_[near])
            for path, label, probability, labels, near in zip(
                paths, best.indices.tolist(), best.values.tolist(), sets, nearest, strict=True
            )
        ]

    def _sets(self, X: object) -> Sequence[tuple[str, ...] | None]:
        if self.promise is None:
            return [None] * len(X)  # type: ignore[arg-type]
        sets = self.classifier.predict_set(X, self.promise.coverage, self.promise.kind)
        return [tuple(self._places[each] for each in found.tolist()) for found in sets]


def identity_of(model: Path, *settings: object) -> str:
    """A short name for what predictions depend on besides the picture: the classifier's file and some settings."""
    return hashlib.blake2b(model.read_bytes() + repr(settings).encode(), digest_size=5).hexdigest()


class PredictionTable:
    r"""A CSV file that grows by whole lines, and is continued where it was stopped.

    A batch is one write at the end of the file. One that fails, as on a full disk, is taken back; half a line that a
    crash of the machine left is cut off when the file is opened again. A line that is there is never written again.

    The columns are path, label, probability, set, nearest and model. Paths are as `path_beside` gives them. A cell of
    the set has its labels separated by semicolons, or says `NONE`. A label that a spreadsheet would take for a formula
    begins with ``'``.

    Args:
        file: Its place. It is made, or continued.
        model: See `identity_of`.

    Raises:
        DataError: If there is a file of another form.
        UsageError: If its predictions are another model's.
        StorageError: If it cannot be written.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "out.csv"
        >>> PredictionTable(file, "m").append([Prediction("/a, b.png", "=wren", 0.5, (), "/1.png")])
        >>> print(file.read_text().replace("\r", ""))
        path,label,probability,set,nearest,model
        "/a, b.png",'=wren,0.5000,none of these,/1.png,m
        <BLANKLINE>
        >>> PredictionTable(file, "m").done
        {'/a, b.png'}
    """

    def __init__(self, file: Path, model: str) -> None:
        self.file, self.model = file, model
        self.done: set[str] = set()
        if file.exists() and file.stat().st_size:
            self._continue()
        else:
            self._write([_COLUMNS])

    def _continue(self) -> None:
        with self.file.open("rb") as lines:
            begins = next(lines).rstrip(b"\r\n")
        if begins != ",".join(_COLUMNS).encode():
            raise DataError(f"{self.file} is there already and is no table of 'fslstm predict': name another file.")
        whole = _whole_lines(self.file)
        if whole < self.file.stat().st_size:
            with self.file.open("rb+") as file:
                file.truncate(whole)
        for row in self._cells():
            if row["model"] != self.model:
                raise UsageError(
                    f"{self.file} has predictions of another model, or another coverage, and is not continued: name "
                    "another file, or remove it."
                )
            self.done.add(self._path(row))

    def append(self, predictions: Sequence[Prediction]) -> None:
        """Write predictions, all of them or none.

        Raises:
            StorageError: If they cannot be written; the file is as it was.
        """
        self._write(
            [
                (
                    path_beside(self.file, each.path),
                    _guarded(each.label),
                    f"{each.probability:.4f}",
                    _guarded(_set_cell(each.labels)),
                    each.nearest,
                    self.model,
                )
                for each in predictions
            ]
        )
        self.done.update(each.path for each in predictions)

    def _write(self, rows: Sequence[Sequence[str]]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\r\n").writerows(rows)
        content = memoryview(text.getvalue().encode())
        try:
            with self.file.open("ab", buffering=0) as file:
                before = file.seek(0, io.SEEK_END)
                try:
                    while content:
                        content = content[file.write(content) :]
                except OSError:
                    file.truncate(before)
                    raise
        except OSError as error:
            raise StorageError(
                f"Cannot write {self.file}: {error.strerror or error}. What is in it is whole; the same command "
                "continues it."
            ) from error

    def __iter__(self) -> Iterator[Prediction]:
        """The predictions from the file, one at a time."""
        for row in self._cells():
            yield Prediction(
                self._path(row),
                _unguarded(row["label"]),
                float(row["probability"]),
                _set_of(_unguarded(row["set"])),
                row["nearest"],
            )

    def _path(self, row: dict[str, str]) -> str:
        return os.path.normpath(os.path.join(os.path.abspath(self.file.parent), row["path"]))

    def _cells(self) -> Iterator[dict[str, str]]:
        try:
            with self.file.open(encoding="utf-8", newline="") as text:
                for row in csv.DictReader(text, strict=True):
                    if None in row or None in row.values():
                        raise ValueError("a line with another number of cells")
                    yield row
        except (ValueError, csv.Error) as error:
            raise DataError(
                f"{self.file} was changed, and cannot be continued ({error}): name another file."
            ) from error


def path_beside(file: Path, path: str) -> str:
    """A picture's path for a file that lists it: from its folder where the picture lies within, else from the root.

    So it is what was typed where both were named from one folder, and stays right when that folder is moved.

    Args:
        file: The list.
        path: The picture, from the root of the file system.

    Example:
        >>> path_beside(Path("/home/out.csv"), "/home/new/1.png"), path_beside(Path("/home/out.csv"), "/mnt/1.png")
        ('new/1.png', '/mnt/1.png')
        >>> path_beside(Path("/home/out.csv"), "/home/=1.png")  # which a spreadsheet would take for a formula
        './=1.png'
    """
    folder = os.path.join(os.path.abspath(file.parent), "")
    if not path.startswith(folder):
        return path
    text = path.removeprefix(folder)
    return os.path.join(".", text) if text.startswith(_FORMULA) else text


def _whole_lines(file: Path) -> int:
    """Bytes up to the end of the last whole line; the newlines within quotes end none."""
    whole = position = quotes = 0
    with file.open("rb") as lines:
        for line in lines:
            position += len(line)
            quotes += line.count(b'"')
            if quotes % 2 == 0 and line.endswith(b"\r\n"):
                whole = position
    return whole


def _guarded(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text


def _unguarded(text: str) -> str:
    return text.removeprefix("'")


def _set_cell(labels: tuple[str, ...] | None) -> str:
    if not labels:
        return "" if labels is None else NONE
    text = io.StringIO()
    csv.writer(text, delimiter=";", lineterminator="").writerow(labels)
    return text.getvalue()


def _set_of(cell: str) -> tuple[str, ...] | None:
    if cell in ("", NONE):
        return () if cell else None
    return tuple(next(csv.reader([cell], delimiter=";")))

"""The file of a fitted classifier: one safetensors file whose metadata say in JSON what its numbers are.

Nothing in it is run. It holds the support's features and labels, not a solution: a head is fitted again in
milliseconds, and points and classes can be added and taken out later. The backbone is not in it either, but its name
and the digest of its weights, without which features would silently mean something else.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from datetime import date
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from .. import __version__
from ..errors import RunError, UsageError, printable
from ..features import is_mean
from ..storage.damage import naming_damage
from ..storage.files import replaceable, require_regular
from ..storage.weights import load_described, save_tensors
from .identity import BackboneIdentity

_FORMAT = "fslstm-classifier"
_VERSION = 2
_SEEDS = 2**32
_TENSORS = ("support", "labels", "base_mean")
_NUMBERS = ("bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "float32", "float64")


class Made(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a classifier was made, in ISO 8601, and by which version of this package."""

    date: str
    version: str

    @classmethod
    def now(cls) -> Made:
        """Today, by this version."""
        return cls(date.today().isoformat(), __version__)


class _Shared(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a classifier has in memory as in the JSON of its file, but for the places of pictures and backbone."""

    method: str
    seed: int  # Of what is drawn.
    temperature: float  # By which logits are divided, above 0.
    calibrated: bool  # Whether it was fitted rather than given.
    pictures: tuple[str, ...] = ()  # Where each came from; empty if that is unknown.
    backbone: BackboneIdentity | None = None  # What made the features; None if that is unknown.
    set_method: str | None = None  # That prediction sets are made with; None for `method`.
    made: Made | None = None  # None where that is not known.
    groups: tuple[str, ...] = ()  # See `FewShotClassifier.fit`; empty: each is by itself.

    def moved(self, place: Callable[[str], str]) -> dict[str, Any]:
        """These fields, with other places."""
        mine = {name: getattr(self, name) for name in _Shared.__struct_fields__}
        backbone = self.backbone and self.backbone.moved(place)
        return {**mine, "pictures": tuple(map(place, self.pictures)), "backbone": backbone}


class _Description(_Shared, frozen=True):
    """Everything but the numbers, as JSON."""

    class_type: str
    classes: list[str | bool | int | float]


class ModelFile(_Shared, frozen=True):
    """A fitted classifier.

    In the file, paths of pictures and of the backbone are relative to the file's folder and begin with ``./`` or
    ``../``, so that all can be moved together. Only a path that shares no folder with the file stays absolute.
    """

    classes: np.ndarray  # Their names (ways,), two or more: strings, or numbers of any type.
    support: np.ndarray  # Features (n, d), float32 or float64.
    labels: np.ndarray  # Class of each, int64 (n,) in [0, ways).
    base_mean: np.ndarray | None = None  # Mean feature (d,) of other images, or of each of their classes (classes, d).

    def write(self, file: Path) -> None:
        """Write the file, so that it is whole or absent; a link stays one, to the file that is replaced."""
        place = replaceable(file)
        shared = self.moved(partial(_from_folder_of, place))
        description = _Description(**shared, class_type=_class_type(self.classes), classes=self.classes.tolist())
        arrays = {name: getattr(self, name) for name in _TENSORS}
        save_tensors(
            place,
            {name: torch.from_numpy(np.ascontiguousarray(each)) for name, each in arrays.items() if each is not None},
            {"format": _FORMAT, "version": str(_VERSION), "classifier": msgspec.json.encode(description).decode()},
        )

    @classmethod
    def read(cls, file: Path) -> ModelFile:
        """Read a file, which is not trusted."""
        if not file.exists():
            raise RunError(f"There is no model file at {file}: make one with 'fslstm fit', or name another.")
        if file.suffix.lower() == ".onnx":
            raise UsageError(
                f"{file} is an exported graph, which only 'fslstm predict' takes: name the classifier that it was "
                "exported from."
            )
        tensors, metadata = load_described(require_regular(file))
        if metadata.get("format") != _FORMAT:
            raise RunError(f"{file} is not a model file: it holds weights of another kind. Make one with 'fslstm fit'.")
        if (version := metadata.get("version")) == "1":
            raise RunError(f"{file} was written by an older version of fslstm: fit again with 'fslstm fit'.")
        if version != str(_VERSION):
            raise RunError(
                f"{file} is a model file of version {version}, but this fslstm-plugin reads version {_VERSION}: "
                "install a newer one."
            )
        with naming_damage(file, "is damaged: its content is not that of a model file", RunError):
            return cls._checked(msgspec.json.decode(metadata["classifier"], type=_Description), tensors, file)

    @classmethod
    def _checked(cls, described: _Description, tensors: dict[str, Tensor], file: Path) -> ModelFile:
        support, labels, mean = tensors["support"], tensors["labels"], tensors.get("base_mean")
        classes = _classes(described)
        _require(len(classes) > 1, "fewer than two classes")
        _require(not _alike(classes), "the same class twice")
        _require(support.dim() == 2 and support.dtype in (torch.float32, torch.float64), "features of another shape")
        _require(support.shape[1] > 0, "features of length 0")
        _require(labels.shape == support.shape[:1] and labels.dtype == torch.int64, "labels of another shape")
        _require(labels.unique().tolist() == list(range(len(classes))), "classes that are not the labels'")
        _require(len(described.pictures) in (0, len(support)), "names of other pictures")
        _require(len(described.groups) in (0, len(support)), "groups of other points")
        _require(mean is None or is_mean(mean.shape, support.shape[1]), "a mean of another shape")
        _require(all(bool(each.isfinite().all()) for each in tensors.values()), "numbers that are not finite")
        _require(described.temperature > 0 and isfinite(described.temperature), "a temperature that is not positive")
        _require(0 <= described.seed < _SEEDS, "a seed that is out of range")
        shared = described.moved(partial(_in_folder_of, Path(os.path.realpath(file))))
        arrays: dict[str, Any] = {name: each.numpy() for name, each in tensors.items() if name in _TENSORS}
        return cls(**shared, classes=classes, **arrays)


def _from_folder_of(file: Path, path: str) -> str:
    """A path from the file's folder, unless they share no folder but the root."""
    if not os.path.isabs(path) or Path(path).anchor != file.anchor:
        return path
    shared = os.path.commonpath([file.parent, path])
    if shared == file.anchor:
        return path
    name = Path(os.path.relpath(path, file.parent)).as_posix()
    return name if name.startswith("../") else f"./{name}"


def _in_folder_of(file: Path, name: str) -> str:
    return os.path.normpath(file.parent / name) if name.startswith(("./", "../")) else name


def _alike(classes: np.ndarray) -> list[str]:
    """Names that two classes have, as they are shown."""
    return [name for name, number in Counter(printable(str(each)) for each in classes).items() if number > 1]


def _class_type(classes: np.ndarray) -> str:
    """How the classes are read back: text, Python's strings, or numbers of a type."""
    if alike := _alike(classes):
        raise UsageError(f"Two classes would both be shown as {alike[0]}: give one of them another name.")
    for each in classes:
        if isinstance(each, str) and any("\ud800" <= character <= "\udfff" for character in each):
            raise UsageError(f"The class {each!r} has characters that no file can hold: give it another name.")
    if classes.dtype.kind == "U":
        return "text"
    if classes.dtype.kind == "O" and all(isinstance(each, str) for each in classes):
        return "object"
    if classes.dtype.name in _NUMBERS and np.isfinite(classes).all():
        return classes.dtype.name
    raise UsageError(
        "A model file holds classes that are strings or finite numbers, but these are "
        f"{', '.join(repr(each) for each in classes[:3])}: name them with strings."
    )


def _classes(described: _Description) -> np.ndarray:
    kinds: dict[str, Any] = {"text": str, "object": object, **{name: name for name in _NUMBERS}}
    classes = np.array(described.classes, dtype=kinds[described.class_type])
    types = {type(each) for each in described.classes}  # true is equal to 1
    _require(classes.tolist() == described.classes, "classes of another type")
    _require(types == {type(each) for each in classes.tolist()}, "classes of another type")
    _require(described.class_type != "object" or types <= {str}, "classes of another type")
    return classes


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)

"""Features of any backbone, from a file, evaluated like those of a run."""

from __future__ import annotations

import math
import re
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from ..errors import DataError
from ..features import is_mean
from ..storage.damage import naming_damage
from ..storage.files import require_regular
from ..storage.weights import load_tensors
from .feature_session import FeatureSession
from .ranks import ALONE, Ranks
from .session import Tell, quiet

_NAMES = ("features", "labels", "base_mean")
_SMALL = 2**28  # Bytes of arrays that need no question
_DENSE = 100  # How many times its size a larger file may hold
_DESCRIPTOR = 24  # Bytes that some writers add to a member
_LONGEST_LABEL = 1000  # characters
_WORDS = {"F": "float", "BF": "bfloat", "I": "int", "U": "uint"}  # for safetensors' types
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class _Form(NamedTuple):
    """What an array is, by its header; ``kind`` is NumPy's letter, ``itemsize`` the bytes of a number in an archive."""

    shape: tuple[int, ...]
    dtype: str
    kind: str
    itemsize: int

    def __str__(self) -> str:
        return f"{self.dtype} of shape {self.shape}"


def open_feature_file(
    file: Path, device: torch.device | str = "cpu", ranks: Ranks = ALONE, tell: Tell = quiet
) -> FeatureSession:
    """The features of a file, NumPy's ``.npz`` or safetensors; unfit arrays are refused before their contents are read.

    It holds ``features`` ``(N, d)``, floating point, and ``labels`` ``(N,)``, whole numbers or, in ``.npz``, texts; and
    perhaps ``base_mean``, the mean feature ``(d,)`` of other classes, or that of each of them. Nothing in it is
    run. An ``.npz`` file has checksums; safetensors has none but in files of this package, so that damage to the
    numbers of another's is not noticed.

    Raises:
        DataError: If it cannot be read, has an unexpected format, or has features that are not finite numbers.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "toy.npz"
        >>> np.savez(file, features=np.eye(4), labels=["b", "a", "b", "a"])
        >>> session = open_feature_file(file)
        >>> session.split.class_names, session.split.labels, session.features[0]
        (('a', 'b'), tensor([0, 0, 1, 1]), tensor([0., 1., 0., 0.]))
    """
    if not file.exists():
        raise DataError(f"There is no file of features at {file}.")
    require_regular(file)
    with naming_damage(file):
        forms = _npz_forms(file) if file.suffix in (".npz", ".npy") else _tensor_forms(file)
    _check(file, forms)
    with naming_damage(file):
        found = _npz(file) if file.suffix == ".npz" else _tensors(file)
    features, labels, mean = found["features"], found["labels"], found.get("base_mean")
    with np.errstate(over="ignore"):  # of float64, reported in the next lines
        points = torch.from_numpy(features.astype(np.float32))
        center = None if mean is None else torch.from_numpy(mean.astype(np.float32))
    if not torch.linalg.vector_norm(points, dim=-1).isfinite().all():
        raise DataError(f"Features in {file} are infinite, or not numbers, or too large for float32.")
    if center is not None and not torch.linalg.vector_norm(center, dim=-1).isfinite().all():
        raise DataError(f"Numbers of base_mean in {file} are infinite, or not numbers, or too large for float32.")
    made_by = f"features of length {features.shape[1]}"
    return FeatureSession.of(file.name, "file", points, labels, made_by, device, ranks, tell, center)


def _npz_forms(file: Path) -> dict[str, _Form]:
    if file.suffix == ".npy" or not zipfile.is_zipfile(file):
        raise DataError(
            f"{file} is not an archive of arrays: write one with numpy.savez(FILE, features=..., labels=...), where "
            "the labels are numbers or texts."
        )
    forms = {}
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        size = sum(member.file_size for member in members)
        if size > max(_SMALL, _DENSE * file.stat().st_size):
            raise DataError(
                f"The arrays in {file} have {size:,} bytes, more than {_DENSE} times its size: features are never so "
                "alike. If yours are, write them with numpy.savez, without compression."
            )
        _require_all(file, archive)
        for member in members:
            with archive.open(member) as content:
                version = np.lib.format.read_magic(content)
                shape, _, dtype = _HEADERS[version](content)
                size = math.prod(shape) * dtype.itemsize
                if dtype.kind != "O" and content.tell() + size != member.file_size:
                    raise ValueError(f"{member.filename} does not have the {size:,} bytes of its shape")
                form = _Form(shape, dtype.name, dtype.kind, dtype.itemsize)
                forms[member.filename.removesuffix(".npy")] = form
    return forms


def _require_all(file: Path, archive: zipfile.ZipFile) -> None:
    """Refuse an archive with bytes between its members: a damaged directory may have lost one."""
    end = 0
    with file.open("rb") as content:
        for member in sorted(archive.infolist(), key=lambda each: each.header_offset):
            if not end <= member.header_offset <= end + _DESCRIPTOR:
                break
            content.seek(member.header_offset + 26)
            name, extra = struct.unpack("<HH", content.read(4))
            end = member.header_offset + 30 + name + extra + member.compress_size
        else:
            if end <= archive.start_dir <= end + _DESCRIPTOR:
                return
    raise ValueError("its directory does not name all that is in it")


def _npz(file: Path) -> dict[str, np.ndarray]:
    with np.load(file, allow_pickle=False) as content:
        return {name: content[name] for name in content}


def _tensor_forms(file: Path) -> dict[str, _Form]:
    if file.suffix != ".safetensors":
        raise DataError(
            f"{file} is no file of features: it must be an .npz or .safetensors file with 'features' and 'labels'."
        )
    from safetensors import safe_open

    forms = {}
    with safe_open(file, framework="pt") as content:
        for name in content.keys():  # noqa: SIM118 - it is no dictionary
            part = content.get_slice(name)
            letters, digits, _ = re.split(r"(\d.*|$)", part.get_dtype(), maxsplit=1)
            word = _WORDS.get(letters, letters)
            kind = "V" if digits.startswith("8_") or letters not in _WORDS else word[0].replace("b", "f")
            forms[name] = _Form(tuple(part.get_shape()), f"{word}{digits.lower()}", kind, 0)
    return forms


def _tensors(file: Path) -> dict[str, np.ndarray]:
    # NumPy does not know bfloat16.
    return {
        name: (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
        for name, tensor in load_tensors(file).items()
    }


def _check(file: Path, forms: Mapping[str, _Form]) -> None:
    """Refuse arrays of another form, naming the first."""
    if missing := {"features", "labels"} - forms.keys():
        raise DataError(f"{file} must hold 'features' and 'labels', but has no {' and no '.join(sorted(missing))}.")
    if unknown := [name for name in forms if name not in _NAMES]:
        raise DataError(
            f"{file} holds '{unknown[0]}', but can have only {', '.join(_NAMES)}: write it without, or again if it is "
            "damaged."
        )
    features, labels, mean = forms["features"], forms["labels"], forms.get("base_mean")
    if features.dtype.startswith("float8"):
        raise DataError(f"The features in {file} are {features.dtype}: save them as float16 or float32.")
    if len(features.shape) != 2 or 0 in features.shape or features.kind != "f":
        raise DataError(f"The features in {file} must be floating point of shape (N, d), but are {features}.")
    if labels.kind == "O":
        raise DataError(
            f"The labels in {file} are Python objects, which are not read, since that can run code: save them as "
            "texts, with labels.astype(str)."
        )
    if labels.shape != features.shape[:1] or labels.kind not in "iuU":
        raise DataError(
            f"The labels in {file} must be {features.shape[0]} whole numbers or texts, one for each row of the "
            f"features, but are {labels}."
        )
    if labels.kind == "U" and labels.itemsize > 4 * _LONGEST_LABEL:
        raise DataError(f"The labels in {file} are longer than {_LONGEST_LABEL:,} characters: give the classes names.")
    if mean is not None and (mean.kind != "f" or not is_mean(mean.shape, features.shape[1])):
        raise DataError(
            f"base_mean in {file} must be {features.shape[1]} finite numbers, or an array (classes, "
            f"{features.shape[1]}) of them, but is {mean}."
        )

"""Untrusted pickles: only arrays of numbers and plain containers come out, and nothing runs.

NumPy's own unpickling never sees the file's values: a crafted dtype can make it take numbers for pointers.
Stand-ins receive the file's values, check them, and build the array themselves.
"""

from __future__ import annotations

import math
import pickle
import re
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np

from ...errors import DataError
from ...storage.damage import naming_damage
from .archives import check_file


class _ForbiddenError(pickle.UnpicklingError):
    """The pickle asks for something other than arrays and plain containers."""


class _DType:
    """Stands in for ``numpy.dtype``: booleans, integers and floats only, no objects, no records."""

    def __init__(self, code: str, align: bool = False, copy: bool = True) -> None:
        if not isinstance(code, str) or not re.fullmatch("b1|[iu][1248]|f[248]", code):
            raise _ForbiddenError(f"arrays of type {code!r}")
        self.value = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        byte_order, rest = state[1], state[2:5]
        if byte_order not in ("<", ">", "|", "=") or any(part is not None for part in rest):
            raise _ForbiddenError("a dtype with fields")
        self.value = self.value.newbyteorder(byte_order)


class _Array(np.ndarray):
    """An array that the pickle fills: its content is checked before NumPy sees it."""

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, content = state
        raw = _checked(content, dtype, shape)
        checked: Any = (1, shape, dtype.value, bool(fortran), raw)
        super().__setstate__(checked)


def _checked(content: Any, dtype: Any, shape: Any) -> bytes:
    """The bytes of an array, if they are as many as its type and shape need."""
    raw = content.encode("latin1") if isinstance(content, str) else content
    if not isinstance(dtype, _DType) or not isinstance(raw, (bytes, bytearray)):
        raise _ForbiddenError("arrays of objects")
    if not all(isinstance(size, int) and size >= 0 for size in shape):
        raise _ForbiddenError(f"an array of shape {shape!r}")
    if math.prod(shape) * dtype.value.itemsize != len(raw):
        raise pickle.UnpicklingError(f"an array of shape {shape} does not have {len(raw)} bytes")
    return bytes(raw)


def _from_buffer(content: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    """An array at protocol 5."""
    raw = _checked(content, dtype, shape)
    return np.frombuffer(raw, dtype.value).reshape(shape, order="F" if order == "F" else "C")


_NDARRAY = object()  # stands in for the type itself, which could make arrays of any size and type


def _reconstruct(kind: Any, shape: Any, code: Any) -> _Array:
    """An empty array, which the pickle then fills through ``__setstate__``."""
    if kind is not _NDARRAY:
        raise _ForbiddenError("a subclass of numpy.ndarray")
    return _Array((0,), np.uint8)


def _scalar(dtype: Any, content: Any) -> Any:
    return np.frombuffer(_checked(content, dtype, ()), dtype.value)[0]


def _encode(text: Any, encoding: Any) -> bytes:
    """Bytes as Python 3 writes them at protocol 2; other encodings could import modules."""
    if encoding not in ("latin1", "latin-1"):
        raise _ForbiddenError(f"the encoding {encoding!r}")
    return str.encode(text, "latin1")


def _no_bytes() -> bytes:
    """Empty bytes at protocol 2; with an argument the real thing could allocate any amount."""
    return b""


# `numpy.core` until NumPy 2, `numpy._core` since.
_ADMITTED = {
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _DType,
    ("_codecs", "encode"): _encode,
    ("__builtin__", "bytes"): _no_bytes,
    **{
        (f"numpy.{core}.{module}", name): value
        for core in ("core", "_core")
        for module, name, value in (
            ("multiarray", "_reconstruct", _reconstruct),
            ("multiarray", "scalar", _scalar),
            ("numeric", "_frombuffer", _from_buffer),
        )
    },
}


# Other ways than REDUCE to make an object; no pickle of arrays uses them.
_OTHER_OBJECTS = {
    code[0]
    for code in (
        *(pickle.INST, pickle.OBJ, pickle.NEWOBJ, pickle.NEWOBJ_EX, pickle.PERSID, pickle.BINPERSID),
        *(pickle.EXT1, pickle.EXT2, pickle.EXT4),
    )
}


_Unpickler: Any = pickle._Unpickler


class _ArrayUnpickler(_Unpickler):
    """The unpickler written in Python: the one written in C reserves the memory that a crafted memo index asks for."""

    dispatch: ClassVar = {code: load for code, load in _Unpickler.dispatch.items() if code not in _OTHER_OBJECTS}

    def __init__(self, file: IO[bytes], size: int) -> None:
        super().__init__(file, encoding="latin1")
        self._left = 2 * size  # Bytes: of an array's numbers, and of the array. A file could name the same ones again.

    def _count(self) -> None:
        made = self.stack[-1]
        self._left -= made.nbytes if isinstance(made, np.ndarray) else len(made) if isinstance(made, bytes) else 0
        if self._left < 0:
            raise _ForbiddenError("arrays that are larger than itself")

    def load_reduce(self) -> None:
        """Call one of those admitted."""
        super().load_reduce()
        self._count()

    dispatch[pickle.REDUCE[0]] = load_reduce

    def load_build(self) -> None:
        """Fill an array or a dtype; on a function it would set attributes."""
        if not isinstance(self.stack[-2], (_Array, _DType)):
            raise _ForbiddenError("a state for something other than an array")
        super().load_build()
        self._count()

    dispatch[pickle.BUILD[0]] = load_build

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ADMITTED[module, name]
        except KeyError:
            raise _ForbiddenError(f"{module}.{name}") from None


def load_arrays(path: Path) -> Any:
    """Read a pickle of NumPy arrays, strings, numbers, lists, tuples and dictionaries.

    It is of any protocol, written by Python 2, whose strings are decoded as Latin-1, or 3 and any NumPy.

    Raises:
        DataError: If the file is missing, truncated, no pickle, or asks for anything else. Nothing it asks for has run
            then.
    """
    check_file(path)
    with naming_damage(path, "is a truncated or damaged pickle"), path.open("rb") as file:
        try:
            return _ArrayUnpickler(file, path.stat().st_size).load()
        except _ForbiddenError as error:
            raise DataError(f"{path} is refused: it asks for {error}, not plain NumPy arrays.") from error


def load_dict(path: Path, *keys: str) -> dict[str, Any]:
    """Read a pickled dictionary that must have these keys, see `load_arrays`."""
    content = load_arrays(path)
    if not isinstance(content, dict) or not set(keys) <= set(content):
        raise DataError(f"{path} is not the expected dictionary with {', '.join(keys)}.")
    return content

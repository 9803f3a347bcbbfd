"""Untrusted pickles: arrays come out, nothing else, and nothing runs."""

from __future__ import annotations

import collections
import contextlib
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fslstm_plugin.data.reading.pickles import load_arrays, load_dict
from fslstm_plugin.errors import DataError

CONTENT = {
    "image_data": np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
    "fortran": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
    "big": np.arange(3, dtype=">i4"),
    "empty": np.empty((0, 3), np.int64),
    "flags": np.array([True, False]),
    "scalar": np.int64(7),
    "class_dict": {"n01": [0, 1], "n02": (2,)},
    "bytes": b"\x00\xff",
    "text": "ü",
    "none": None,
    "number": 1.5,
    "large": 1 << 100,
}


def save(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def assert_same(loaded: dict[str, Any], expected: dict[str, Any]) -> None:
    assert loaded.keys() == expected.keys()
    for key, value in expected.items():
        if isinstance(value, np.ndarray):
            assert loaded[key].dtype.newbyteorder("=") == value.dtype.newbyteorder("=")
            np.testing.assert_array_equal(loaded[key], value)
        else:
            assert loaded[key] == value


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol_is_read(tmp_path: Path, protocol: int) -> None:
    path = save(tmp_path / "a.pkl", pickle.dumps(CONTENT, protocol))
    assert_same(load_dict(path, "image_data", "class_dict"), CONTENT)


@pytest.mark.parametrize("protocol", [2, 4])
def test_module_paths_of_old_and_new_numpy_are_read(tmp_path: Path, protocol: int) -> None:
    content = pickle.dumps({"a": CONTENT["image_data"]}, protocol)
    old, new = b"numpy.core.multiarray", b"numpy._core.multiarray"
    present, other = (old, new) if old in content else (new, old)
    swapped = content.replace(present, other)
    if protocol == 4:  # this protocol writes lengths before the name and before everything
        swapped = swapped.replace(bytes([len(present)]) + other, bytes([len(other)]) + other)
        swapped = swapped[:3] + struct.pack("<Q", len(swapped) - 11) + swapped[11:]
    assert swapped != content
    assert_same(load_arrays(save(tmp_path / "a.pkl", swapped)), {"a": CONTENT["image_data"]})


def python2_pickle(array: np.ndarray) -> bytes:
    """``{"data": array}`` of uint8 as Python 2 and its NumPy wrote it, with byte strings."""
    shape = b"(" + b"".join(b"M" + struct.pack("<H", size) for size in array.shape) + b"t"
    dtype = b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    raw = b"T" + struct.pack("<i", array.size) + array.tobytes()
    empty = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
    return b"\x80\x02}U\x04data" + empty + b"(K\x01" + shape + dtype + b"\x89" + raw + b"tbs."


def test_pickles_of_python_2_are_read(tmp_path: Path) -> None:
    array = np.arange(256, dtype=np.uint8).reshape(2, 128)
    content = python2_pickle(array)
    np.testing.assert_array_equal(pickle.loads(content, encoding="latin1")["data"], array)
    np.testing.assert_array_equal(load_arrays(save(tmp_path / "train", content))["data"], array)


class Runs:
    """Unpickled by ``pickle``, it makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_runs_code_runs_nothing(tmp_path: Path, protocol: int) -> None:
    content = pickle.dumps({"image_data": Runs(tmp_path / "ran")}, protocol)
    with pytest.raises(DataError, match=r"a\.pkl is refused: it asks for \w+\.mkdir"):
        load_arrays(save(tmp_path / "a.pkl", content))
    assert not (tmp_path / "ran").exists()
    pickle.loads(content)
    assert (tmp_path / "ran").exists()  # the pickle was not harmless


@pytest.mark.parametrize(
    "value",
    [
        collections.OrderedDict(a=1),
        np.array([object, None], dtype=object),
        np.zeros(2, dtype=[("a", "O"), ("b", "i4")]),
        np.zeros(2, dtype="U3"),
        np.zeros(2, dtype="M8[s]"),
        np.ma.masked_array([1, 2]),
        np.random.default_rng(0),
        slice,
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_things_are_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(DataError, match="is refused: it asks for"):
        load_arrays(save(tmp_path / "a.pkl", pickle.dumps({"a": value})))


GLOBALS = {
    "codec": b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x06\x00\x00\x00base64tR.",
    "dotted name": b"\x80\x04\x8c\x05numpy\x8c\x0fndarray.tofile\x93.",
    "bytes": b"c__builtin__\nbytes\n(J\xff\xff\xff\x7ftR.",
    "eval": b"c__builtin__\neval\n(X\x04\x00\x00\x001+11tR.",
    "record flags": (
        b"cnumpy\ndtype\n(X\x02\x00\x00\x00V8K\x00K\x01tR"
        b"(K\x03X\x01\x00\x00\x00|N(X\x01\x00\x00\x00at}K\x08K\x01K\x00tb."
    ),
    "persistent": b"Pid\n.",
    "huge shape": (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
        b"(K\x01(J\xff\xff\xff\x7ftcnumpy\ndtype\n(U\x02u1K\x00K\x01tR\x89U\x01atb."
    ),
    "negative shape": (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
        b"(K\x01(J\xff\xff\xff\xfftcnumpy\ndtype\n(U\x02u1K\x00K\x01tR\x89U\x01atb."
    ),
    "memory for a memo": b"\x80\x02K\x01r\xff\xff\xff\x7fr\xff\xff\xff\x7f0.",
    "array by itself": b"cnumpy\nndarray\n((J\xff\xff\xff\x7ftX\x02\x00\x00\x00V8tR.",
    "array by its class": b"\x80\x02cnumpy\nndarray\n(J\xff\xff\xff\x7ft\x81.",
    "a function's attributes": b"c_codecs\nencode\n(N}X\x0c\x00\x00\x00__defaults__Nstb.",
    "real dtype state": b"cnumpy\ndtype\n(U\x02u1tR(K\x03U\x01|NNU\x01aK\x00K\x00K\x00tb.",
}


@pytest.mark.parametrize("content", GLOBALS.values(), ids=GLOBALS)
def test_hand_made_attacks_are_named(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(DataError, match=r"a\.pkl is"):
        load_arrays(save(tmp_path / "a.pkl", content))


@pytest.mark.parametrize("share", [0.01, 0.3, 0.7, 0.999])
def test_a_truncated_pickle_is_named(tmp_path: Path, share: float) -> None:
    content = pickle.dumps(CONTENT)
    with pytest.raises(DataError, match=r"a\.pkl is a truncated or damaged pickle"):
        load_arrays(save(tmp_path / "a.pkl", content[: int(len(content) * share)]))


def test_a_web_page_and_wrong_keys_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is a web page"):
        load_arrays(save(tmp_path / "a.pkl", b"<!DOCTYPE html>"))
    for content in ([1], {"image_data": 1}):
        with pytest.raises(DataError, match="not the expected dictionary with image_data, class_dict"):
            load_dict(save(tmp_path / "a.pkl", pickle.dumps(content)), "image_data", "class_dict")


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), protocol=st.sampled_from([2, 5]))
def test_damaged_pickles_never_raise_anything_else(tmp_path: Path, data: st.DataObject, protocol: int) -> None:
    content = bytearray(pickle.dumps(CONTENT, protocol))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DataError):
        load_arrays(save(tmp_path / "a.pkl", bytes(content)))


class _Again:
    """An array of bytes that others have too; a pickle writes them once."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        from numpy.core.numeric import _frombuffer

        return _frombuffer, (self.raw, np.dtype(np.uint8), (len(self.raw),), "C")


def test_a_small_file_does_not_become_many_arrays(tmp_path: Path) -> None:
    raw = bytes(100_000)
    small = save(tmp_path / "small.pkl", pickle.dumps({"a": [_Again(raw)]}, 2))
    assert load_dict(small, "a")["a"][0].nbytes == len(raw)
    swelling = save(tmp_path / "swelling.pkl", pickle.dumps({"a": [_Again(raw) for _ in range(10)]}, 2))
    with pytest.raises(DataError, match=r"swelling.pkl is refused: it asks for arrays that are larger than itself"):
        load_arrays(swelling)

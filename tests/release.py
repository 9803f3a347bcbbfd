"""Builds the sdist and the wheel, installs the wheel in fresh environments, and calls it from an empty folder.

    python tests/release.py
    python tests/release.py --python 3.13 --work /tmp/release

For each Python, the wheel is installed alone, where a command that needs an extra must say so, and then with the extras
``report`` and ``pictures``. Nothing may be compiled. It needs uv and a package index, and respects uv's environment
variables, such as ``UV_TORCH_BACKEND=cpu``. The exit code is 1 if anything is not as it should be.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
IN_THE_SDIST = ("tests/conftest.py", "tests/golden", "reproductions/table1/specification.json", "CHANGELOG.md")
CLASSIFIER = """
from fslstm_plugin import FewShotClassifier
print(*FewShotClassifier("lssvm+psm").fit([[0.0, 1.0], [1.0, 0.0]], ["owl", "wren"]).predict([[0.1, 0.9], [0.9, 0.1]]))
"""
FILES = """
from pathlib import Path
import numpy as np
from PIL import Image
random = np.random.default_rng(0)
np.savez("features.npz", features=random.normal(size=(60, 8)), labels=np.arange(60) % 3)
for place, colour in (("labelled/red", 0), ("labelled/blue", 2), ("more/green", 1), ("pictures", 1)):
    Path(place).mkdir(parents=True)
    for number in range(4):
        pixels = random.integers(0, 90, (40, 40, 3), dtype=np.uint8)
        pixels[..., colour] += 150
        Image.fromarray(pixels).save(f"{place}/{number}.png")
"""
BACKBONE = "from fslstm_plugin.pretrained import open_backbone; print(open_backbone().out_features)"
REGISTER = "import fslstm_plugin; fslstm_plugin.register()"

TINY = ("--dataset", "glyphs", "--backbone", "conv4", "--accelerator", "cpu", "--devices", "1", "--max-steps", "2")
FEW = ("--run", "b", "--episodes", "20")
FEATURES = ("--features", "features.npz", "--ways", "2", "--queries", "5", "--episodes", "20")
FIT, PICTURES = ("fit", "labelled", "-o", "colours.fslstm"), ("colours.fslstm", "pictures")
ALONE: tuple[tuple[str, ...], ...] = (
    ("data", "list"),
    ("eval", "lssvm", "tim", "--calibration", *FEATURES),
    ("compare", "nn", "lssvm+psm", *FEATURES),
    ("tune", "rr", *FEATURES),
)
NEED_AN_EXTRA: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("report", ("demo",)),
    ("report", ("report",)),
    ("report", ("train", *TINY)),
    ("bench", ("bench", "heads")),
    ("pictures", FIT),
)
WITH_EXTRAS: tuple[tuple[str, ...], ...] = (
    ("data", "prepare", "glyphs"),
    ("pretrain", *TINY, "--batch-size", "16", "--name", "a"),
    ("train", *TINY, "--pretrained", "a", "--val-episodes", "10", "--episodes-per-step", "1", "--name", "b"),
    ("eval", *FEW, "--can"),
    ("compare", "lssvm+iam+psm", "simpleshot", *FEW),
    ("tune", "lssvm", *FEW),
    ("report", "b"),
    ("reproduce", "table1", "--dry-run", "--scale", "quick", "--dataset", "glyphs", "--backbone", "conv4"),
    FIT,
    ("predict", *PICTURES, "--csv", "labels.csv", "--html", "gallery.html"),
    ("suggest", *PICTURES, "--count", "2"),
    ("update", "colours.fslstm", "--add", "more"),
)


def call(*command: str | Path, code: int = 0, folder: Path = ROOT, words: str = "") -> None:
    """Run a command, and compare its exit code and what it writes with what is expected."""
    told = " ".join(part if "\n" not in part else "..." for part in map(str, command))
    print(f"$ {told}", flush=True)
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment["FSLSTM_DATA_ROOT"] = str(folder / "data")
    done = subprocess.run(list(map(str, command)), cwd=folder, env=environment, capture_output=True, text=True)
    text = done.stdout + done.stderr
    if done.returncode != code or words not in text:
        raise SystemExit(f"{text}\nended with {done.returncode}; expected {code} and the words {words!r}.")


def build(work: Path) -> Path:
    """The wheel; it and the sdist pass twine's check, and the sdist holds what its tests need."""
    call("uv", "build", "--out-dir", work / "dist", ROOT)
    (sdist,), (wheel,) = (sorted((work / "dist").glob(pattern)) for pattern in ("*.tar.gz", "*.whl"))
    call("uvx", "twine", "check", "--strict", sdist, wheel)
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    if missing := [name for name in IN_THE_SDIST if name not in names]:
        raise SystemExit(f"{sdist} does not hold {', '.join(missing)}.")
    return wheel


def check(python: str, wheel: Path, work: Path) -> None:
    """The wheel alone, and with extras, under one Python."""
    environment, folder = work / "environment", work / "empty"
    folder.mkdir(parents=True)
    call("uv", "venv", "--python", python, environment)
    inside, fslstm = environment / "bin" / "python", environment / "bin" / "fslstm"
    install = ("uv", "pip", "install", "--only-binary", ":all:", "--python", inside)
    call(*install, wheel)
    call(fslstm, "--help", folder=folder, words="compare")
    call(inside, "-c", CLASSIFIER, folder=folder, words="owl wren")
    call(inside, "-c", FILES, folder=folder)
    for arguments in ALONE:
        call(fslstm, *arguments, folder=folder)
    for extra, arguments in NEED_AN_EXTRA:
        call(fslstm, *arguments, code=1, folder=folder, words=f'"fslstm-plugin[{extra}]"')
    call(inside, "-c", REGISTER, code=1, folder=folder, words='"fslstm-plugin[l2l]"')
    call(inside, "-c", BACKBONE, code=1, folder=folder, words='"fslstm-plugin[pictures]"')
    call(*install, f"{wheel}[report,pictures]")
    for arguments in WITH_EXTRAS:
        call(fslstm, *arguments, folder=folder)
    call(fslstm, "export", "colours.fslstm", "--onnx", "c.onnx", code=1, folder=folder, words='"fslstm-plugin[onnx]"')
    call(inside, "-c", BACKBONE, folder=folder, words="1280")


def main() -> None:
    """Build, and check under each Python that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", nargs="+", default=PYTHONS, help="Versions, or paths of interpreters.")
    parser.add_argument("--work", type=Path, help="Folder that is kept; default a temporary one.")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = (asked.work or Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        wheel = build(work)
        for number, python in enumerate(asked.python):
            check(python, wheel, work / str(number))
    print("The release is as it should be.", file=sys.stderr)


if __name__ == "__main__":
    main()

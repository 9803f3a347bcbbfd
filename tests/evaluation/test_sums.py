"""``--run a+b``: several runs as one source of features."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fslstm_plugin import evaluate
from fslstm_plugin.data.images import make_images
from fslstm_plugin.model import FewShotModel
from fslstm_plugin.runs.folder import Run

SHORT = ("--ways", 3, "--shots", 1, "--queries", 3, "--episodes", 20)
METHODS = ("lssvm", "nn+psm")


@pytest.fixture
def runs(tmp_path: Path, fslstm) -> Path:
    """Two runs, one of which has a name with a plus."""
    for seed, name in ((0, "base"), (1, "lssvm+iam")):
        done = fslstm("pretrain", "--dataset", "dots", "--backbone", "tiny", "--max-steps", 3, "--batch-size", 32,
                      "--runs", tmp_path, "--name", name, "--seed", seed)  # fmt: skip
        assert done.code == 0, done.err
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "config.json").write_text("{")
    return tmp_path


def rows(fslstm, *arguments) -> list[dict]:
    file = Path(arguments[-1])
    done = fslstm(*arguments[:-1], *SHORT, "--json", file)
    assert done.code == 0, done.err
    return json.loads(file.read_text())["rows"]


@pytest.mark.parametrize("names", [("base", "lssvm+iam"), ("lssvm+iam", "base"), ("base", "lssvm+iam", "base")])
def test_products_are_the_mean_of_the_runs_cosines(names, fslstm, runs: Path, dots, tmp_path: Path) -> None:
    parts, squares = [], []
    for name in names:
        model = FewShotModel.from_run(Run.open(runs / name))
        images = make_images(dots.images, torch.arange(len(dots.labels)), model.normalization)
        with torch.no_grad():
            found = model.backbone(images)
        parts.append(F.normalize(found, dim=-1))
        squares.append(found.square().sum(-1).mean().item())
    square = sum(squares) / len(parts)
    features = torch.cat(parts, -1) * (square / len(parts)) ** 0.5
    torch.testing.assert_close(features @ features.mT, square * sum(each @ each.mT for each in parts) / len(parts))
    np.savez(tmp_path / "sum.npz", features=features.numpy(), labels=dots.labels.numpy())
    expected = rows(fslstm, "eval", *METHODS, "--features", tmp_path / "sum.npz", tmp_path / "a.json")
    command = ("eval", *METHODS, "--run", "+".join(names), "--runs", runs, "--split", "train")
    found = rows(fslstm, *command, tmp_path / "b.json")
    assert [row["accuracy"] for row in found] == pytest.approx([row["accuracy"] for row in expected])


def test_a_sum_gains_by_what_the_other_run_knows_and_loses_by_noise() -> None:
    """Classes with random means; the other run has means and noise of its own, or those of the first and more noise."""
    generator = torch.Generator().manual_seed(0)
    labels, scale = torch.arange(20).repeat_interleave(60), torch.arange(1, 129) ** -0.5

    def noise(count: int) -> torch.Tensor:
        return scale * torch.randn(count, 128, generator=generator)

    def drawn(apart: float) -> torch.Tensor:
        return F.normalize(1 + apart * noise(20)[labels] + noise(1200), dim=-1)

    def accuracy(*parts: torch.Tensor) -> float:
        features = torch.cat(parts, -1) / len(parts) ** 0.5
        return evaluate(features, labels, ["lssvm(ridge=1,normalize)"], shots=1, episodes=500)[0].accuracy

    run = drawn(0.45)
    alone, spread = accuracy(run), (run - run.mean(0)).square().mean().sqrt()
    assert accuracy(run, run) == pytest.approx(alone, abs=0.01), "but for a tie that rounding decides"
    assert accuracy(run, drawn(0.45)) > alone + 5
    noisier = F.normalize(run + spread * torch.randn(run.shape, generator=generator), dim=-1)
    for worse in (drawn(0), noisier):
        assert accuracy(worse) < accuracy(run, worse) < alone - 1


def test_a_name_with_a_plus_is_a_run_before_it_is_a_sum(runs: Path) -> None:
    def found(wanted: str) -> list[str]:
        return [run.name for run in Run.find_sum(wanted, runs)]

    assert found("lssvm+iam") == ["lssvm+iam"]
    assert found("lssvm+iam+base") == ["lssvm+iam", "base"]
    assert found("builtin:cifar-fs-conv4+base") == ["builtin-cifar-fs-conv4", "base"]


def test_a_sum_stands_beside_its_runs_in_a_table(fslstm, runs: Path, tmp_path: Path) -> None:
    named = ("--run", "base", "--run", "base+lssvm+iam", "--runs", runs, "--split", "val")
    found = rows(fslstm, "compare", "lssvm", *named, tmp_path / "a.json")
    assert [row["run"] for row in found] == ["base", "base+lssvm+iam"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("lssvm", "--run", "base+nothing"), ("no run at", "nothing")),
        (("lssvm", "--run", "base+"), ("run's name is empty",)),
        (("lssvm", "--run", ""), ("--run is empty",)),
        (("lssvm", "--run="), ("--run is empty",)),
        (("lssvm", "--run", "damaged+base"), ("damaged", "config.json")),
        (("lssvm+iam", "--run", "base+lssvm+iam"), ("lssvm+iam", "base+lssvm+iam")),
        (("lssvm(center=base)", "--run", "base+lssvm+iam"), ("base",)),
    ],
)
def test_what_a_sum_has_not_is_said(arguments, words, fslstm, runs: Path) -> None:
    done = fslstm("eval", *arguments, "--runs", runs, "--split", "val", *SHORT)
    assert done.code in (1, 2), done.err
    assert all(word in done.err for word in words), done.err
    assert len(done.err.strip().splitlines()) == 1, done.err


@pytest.mark.parametrize("command", [("tune", "lssvm", "--run"), ("reproduce", "table3", "--run")])
def test_a_command_of_one_run_refuses_a_sum(command, fslstm, runs: Path) -> None:
    done = fslstm(*command, "base+builtin:cifar-fs-conv4", "--runs", runs)
    assert done.code == 2, done.err
    assert done.err.startswith("fslstm: base+builtin:cifar-fs-conv4 is a sum of runs, which only 'eval'"), done.err

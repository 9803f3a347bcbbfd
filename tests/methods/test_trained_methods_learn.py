"""Rivals learn: a short training beats the prototypes of its own untrained backbone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from drawings import draw_few
from narrow import narrow  # noqa: F401  # a fixture
from rich.console import Console
from torch import Tensor

from fslstm_plugin.backbones.base import build_backbone
from fslstm_plugin.data.sampler import EpisodeSampler
from fslstm_plugin.data.sets import glyphs
from fslstm_plugin.evaluation.features import extract_features
from fslstm_plugin.evaluation.runner import indexed, run_methods
from fslstm_plugin.evaluation.statistics import Estimate, estimate
from fslstm_plugin.heads import PrototypeClassifier
from fslstm_plugin.methods.kernel import KernelMethod
from fslstm_plugin.model import FewShotModel
from fslstm_plugin.runs.configuration import Validation
from fslstm_plugin.runs.folder import Run
from fslstm_plugin.training.configuration import train_config
from fslstm_plugin.training.engine import EngineOptions
from fslstm_plugin.training.meta_training import train

EPISODES, SEED = 200, 3


@dataclass(frozen=True)
class Case:
    """A short training on episodes of 5 ways and 1 shot.

    Args:
        algorithm: The rival.
        steps: Optimiser steps.
        margin: Percentage points that it must be better, at the lower end of the 95 % interval.
        given: Values in place of the recipe's, for so few steps.
    """

    algorithm: str
    steps: int
    margin: float
    given: dict[str, Any] = field(default_factory=dict)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Glyphs, fewer than usual."""
    with pytest.MonkeyPatch.context() as patch:
        draw_few(patch)
        yield glyphs_in(tmp_path_factory.mktemp("data"))


def glyphs_in(root: Path) -> Path:
    glyphs.GLYPHS.prepare(root)
    return root


def gain(case: Case, backbone: str, root: Path, folder: Path) -> Estimate:
    """How much better the trained model is than the untrained backbone's prototypes, on the same test episodes."""
    config = train_config(
        "glyphs", backbone, case.algorithm, max_steps=case.steps, seed=SEED, precision="32", test_shots=1,
        validation=Validation(episodes=50, shots=1), given={"steps_per_epoch": case.steps, **case.given},
    )  # fmt: skip
    run = Run(folder / "run", config)
    train(run, EngineOptions(accelerator="cpu"), data_root=root, console=Console(quiet=True))
    torch.manual_seed(SEED)  # as the training begins
    untrained = FewShotModel(build_backbone(backbone, 32), KernelMethod(PrototypeClassifier()))
    before, after = (accuracies(model, root) for model in (untrained, FewShotModel.from_run(run)))
    return estimate(after - before)


def accuracies(model: FewShotModel, root: Path) -> Tensor:
    split = glyphs.GLYPHS.load(root, "test")
    features = extract_features(model.embedding_of(model.method), split)
    sampler = EpisodeSampler(split.labels, 5, 1, 15, seed=0)
    return run_methods(indexed(features, model.map_shape), sampler, [model.method], EPISODES)[0].accuracies


FASTER = {"lr": 5e-3, "method_lr": 5e-3}  # Than the recipes, which have a hundred times as many steps.
QUICK = [
    Case("feat", 150, 10, {"episodes_per_step": 2, **FASTER}),
    Case("sib", 150, 10, {"episodes_per_step": 2, **FASTER}),
    Case("dpgn(shots=1,width=32)", 150, 10, {"episodes_per_step": 8, **FASTER}),
]
BY_THE_RECIPE = [
    Case("feat", 2000, 25),
    Case("sib", 2000, 25),
    Case("dpgn(shots=1)", 1000, 25, {"episodes_per_step": 8}),
]


@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.algorithm)
def test_it_learns(case: Case, narrow: str, root: Path, tmp_path: Path) -> None:  # noqa: F811
    found = gain(case, narrow, root, tmp_path)
    assert found.mean - found.ci95 > case.margin, f"{found.mean:.2f} ± {found.ci95:.2f}"


@pytest.mark.slow
@pytest.mark.parametrize("case", BY_THE_RECIPE, ids=lambda case: case.algorithm)
def test_it_learns_by_the_recipe(case: Case, narrow: str, tmp_path: Path) -> None:  # noqa: F811
    found = gain(case, narrow, glyphs_in(tmp_path), tmp_path)
    assert found.mean - found.ci95 > case.margin, f"{found.mean:.2f} ± {found.ci95:.2f}"

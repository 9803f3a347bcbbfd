"""Minutes of pretraining from scratch until LSSVM reaches a mark on validation classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytorch_lightning as pl
from rich.console import Console
from rich.table import Column, Table
from torch.utils.benchmark import timer

from ..data.base import Split
from ..data.root import load_split
from ..evaluation.features import extract_features
from ..evaluation.runner import indexed, run_methods
from ..evaluation.setting import Setting
from ..evaluation.statistics import estimate
from ..naming import parse_method
from ..runs.configuration import PretrainConfig
from ..runs.folder import Run
from ..stopping import Interrupted
from ..storage.plain import to_plain
from ..training.classification import Classification
from ..training.engine import EngineOptions
from ..training.pretraining import pretrain
from .report import machine

METHOD = "lssvm"
SETTING = Setting(ways=5, shots=5, queries=15, episodes=2000, seed=0)


@dataclass(frozen=True)
class Point:
    """The validation after an epoch."""

    step: int  # Optimiser steps until then.
    minutes: float  # Of training until then; validation is not timed.
    accuracy: float
    ci95: float  # Half width of the 95 % interval over episodes.


class Curve(pl.Callback):
    """Validates after each epoch, and ends the training once the mark is passed. The clock runs from the start.

    The mark is in percent; the precision, ``"32"`` or ``"bf16"``, is that of the features. A sentence is told after
    each validation.
    """

    def __init__(self, split: Split, mark: float, precision: str, tell: Callable[[str], None]) -> None:
        self.split, self.mark, self.precision, self.tell = split, mark, precision, tell
        self.sampler = SETTING.sampler(split)
        self.points: list[Point] = []
        self.began = timer()

    @property
    def passed(self) -> Point | None:
        """The first point that reached the mark."""
        return next((point for point in self.points if point.accuracy >= self.mark), None)

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Stop the clock and measure, on the same episodes each time."""
        assert isinstance(module, Classification)
        paused = timer()
        features = extract_features(module.backbone, self.split, precision=self.precision)
        (outcome,) = run_methods(indexed(features), self.sampler, [parse_method(METHOD)], SETTING.episodes)
        found = estimate(outcome.accuracies)
        point = Point(trainer.global_step, (paused - self.began) / 60, found.mean, found.ci95)
        self.points.append(point)
        self.tell(f"step {point.step}, {point.minutes:.1f} min: {point.accuracy:.2f} ± {point.ci95:.2f} %")
        trainer.should_stop = self.passed is not None
        self.began += timer() - paused

    def as_dict(self, config: PretrainConfig) -> dict[str, Any]:
        """Everything as plain data, with the training's configuration and the machine."""
        return {
            "machine": machine(),
            "config": to_plain(config),
            "setting": {"method": METHOD, "split": self.split.name, **asdict(SETTING)},
            "mark": self.mark,
            "passed": asdict(self.passed) if self.passed else None,
            "rows": [asdict(point) for point in self.points],
        }

    def table(self) -> Table:
        """A line for each validation; the caption says when the mark was passed."""
        best = max((point.accuracy for point in self.points), default=0.0)
        verdict = f"not passed: {best:.2f} % is the most"
        if self.passed:
            verdict = f"passed after {self.passed.minutes:.1f} minutes"
        table = Table(
            *(Column(name, justify="right") for name in ("Steps", "Minutes of training", "Accuracy in %")),
            title=f"{METHOD}, {SETTING.shots}-shot, {SETTING.episodes:,} validation episodes",
            title_justify="left",
            caption=f"{self.mark:g} % is {verdict}.",
            caption_justify="left",
        )
        for point in self.points:
            table.add_row(f"{point.step:,}", f"{point.minutes:.1f}", f"{point.accuracy:.2f} ± {point.ci95:.2f}")
        return table


def bench_accuracy(config: PretrainConfig, mark: float, data_root: Path | None, tell: Callable[[str], None]) -> Curve:
    """Pretrain on the CPU as ``fslstm pretrain`` does, until the mark in percent is passed or the recipe ends.

    Raises:
        DataError: If the data set is missing.
        UsageError: If the validation classes do not suffice for the episodes.
        Interrupted: If the user stopped it.
    """
    options = EngineOptions(accelerator="cpu", devices=1)
    with TemporaryDirectory() as folder:
        run = Run(Path(folder) / "run", config)
        curve = Curve(load_split(config.dataset or "", "val", data_root), mark, config.precision, tell)
        try:
            pretrain(run, options, data_root=data_root, console=Console(quiet=True), callbacks=[curve])
        except Interrupted as stopped:
            raise Interrupted("Stopped; the training is not kept.", stopped.number) from None
    return curve

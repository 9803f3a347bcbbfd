"""The metrics of a training, each row once, however often it was stopped or killed."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytorch_lightning as pl

from ..errors import FSLSTMError
from ..runs.folder import Run
from ..storage.files import csv_lines, replacing


def is_logged(trainer: pl.Trainer, step: int) -> bool:
    """Whether loss and accuracy of a step, from 1, are recorded; to log those of each costs a small step's time."""
    every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
    return step % every == 0 or step == trainer.max_steps


class Metrics(pl.Callback):
    """Records the logged metrics every few steps and after every epoch, and writes them atomically as ``metrics.csv``.

    Lightning's own CSV logger appends, and later than a checkpoint is written: after a kill its file lacks some steps
    and, once the training continues, holds others twice. Here the rows belong to the training's state: every checkpoint
    holds them, and a continued training begins with those of its checkpoint.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        # Name to number, with the steps done and the epochs before, in chronological order.
        self.rows: list[dict[str, float]] = []

    def state_dict(self) -> dict[str, Any]:
        """State for the checkpoint."""
        return {"rows": self.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state from the checkpoint."""
        self.rows = list(state_dict["rows"])

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """Record the metrics of the step."""
        if is_logged(trainer, trainer.global_step):
            self._note(trainer, "train_")

    def on_train_epoch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """Record the metrics of the validation."""
        self._note(trainer, "valid_")

    def on_exception(self, trainer: pl.Trainer, *_: Any) -> None:
        """Also write what came after the last checkpoint: it may show why the training failed."""
        if not trainer.is_global_zero or not self.rows:  # before a checkpoint is restored the file has more
            return
        with suppress(FSLSTMError):  # the reason of the failure matters more
            self.write()

    def write(self) -> None:
        """Write the file."""
        with replacing(self.run.path / "metrics.csv") as temporary:
            temporary.write_text(csv_lines(self.rows), encoding="utf-8")

    def _note(self, trainer: pl.Trainer, prefix: str) -> None:
        numbers = {name: value.item() for name, value in trainer.callback_metrics.items() if name.startswith(prefix)}
        if numbers:
            self.rows.append({"step": trainer.global_step, "epoch": trainer.current_epoch, **numbers})

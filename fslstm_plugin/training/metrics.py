"""The logged numbers of a training, each once, however often it was stopped or killed."""

from __future__ import annotations

import csv
import io
from typing import Any

from pytorch_lightning.loggers.logger import Logger
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from ..files import write_text
from ..runs import Run


class Metrics(Logger):
    """Keeps the numbers in memory and writes them whole, as ``metrics.csv``.

    Lightning's own CSV logger appends, so that after a kill its file lacks what was not flushed and, once the training
    continues, holds some steps twice. Here the rows belong to the training's state: every checkpoint holds them, and a
    continued training begins with those of its checkpoint. They are few: one in ``log_every_n_steps``.

    Args:
        run: Whose folder takes the file.

    Attributes:
        rows: Name to number, with the step, in the order of logging.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.rows: list[dict[str, float]] = []

    @property
    def name(self) -> str:
        """Part of Lightning's interface."""
        return "metrics"

    @property
    def version(self) -> str:
        """Part of Lightning's interface."""
        return ""

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """Nothing: the run's configuration has them."""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Add a row."""
        self.rows.append({"step": int(step or 0), **{name: float(value) for name, value in metrics.items()}})

    @rank_zero_only
    def save(self) -> None:
        """Write the file; all rows have all columns, empty where a row has no such number."""
        text = io.StringIO()
        columns = sorted({name for row in self.rows for name in row} - {"step"})
        writer = csv.DictWriter(text, ["step", *columns], lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        write_text(self.run.path / "metrics.csv", text.getvalue())

    def finalize(self, status: str) -> None:
        """Write what was logged since the last checkpoint too: it may tell why the training failed."""
        self.save()

"""Results of a benchmark, as plain data and as tables."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from rich.table import Column, Table
from torch.utils.benchmark import Measurement

from .agreement import Agreement


@dataclass(frozen=True)
class Comparison:
    """One line: our time against another's."""

    group: str  # ``"heads"``, ``"transduction"``, ``"sets"``, ``"eval"`` or ``"train"``.
    case: str  # What was done.
    against: str  # The alternative.
    unit: str  # What is timed, ``"episode"`` or ``"step"``.
    ours: Measurement
    theirs: Measurement
    agreement: Agreement  # How the answers were compared.
    target: float | None = None  # Least ratio to reach, or None.
    at_most_ms: float | None = None  # Upper limit for our time, in milliseconds, or None.

    @property
    def ratio(self) -> float:
        """How many times as long the alternative takes: the ratio of the medians."""
        return self.theirs.median / self.ours.median

    def as_dict(self) -> dict[str, Any]:
        """The line as plain data, times in milliseconds."""
        return {
            "group": self.group,
            "case": self.case,
            "against": self.against,
            "unit": self.unit,
            "ours_ms": self.ours.median * 1e3,
            "ours_iqr_ms": self.ours.iqr * 1e3,
            "theirs_ms": self.theirs.median * 1e3,
            "theirs_iqr_ms": self.theirs.iqr * 1e3,
            "ratio": self.ratio,
            "target": self.target,
            "at_most_ms": self.at_most_ms,
            "rounds": len(self.ours.times),
            **asdict(self.agreement),
        }


@dataclass(frozen=True)
class Figure:
    """One number that is not a comparison."""

    group: str
    what: str
    value: float
    unit: str
    at_most: float | None = None  # Target that it should not exceed, or None.
    at_least: float | None = None  # Target that it should reach, or None.


Result = Comparison | Figure


def as_plain(results: Sequence[Result]) -> dict[str, Any]:
    """All results of a benchmark as plain data, with the machine that they were measured on."""
    return {
        "machine": machine(),
        "rows": [each.as_dict() for each in results if isinstance(each, Comparison)],
        "figures": [asdict(each) for each in results if isinstance(each, Figure)],
    }


def machine() -> dict[str, Any]:
    """The machine and software that the times depend on."""
    return {
        "processor": platform.processor() or platform.machine(),
        "processors": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }


def tables(results: Sequence[Result]) -> list[Table]:
    """The tables of the comparisons and of the other numbers, if there are any."""
    comparisons = [each for each in results if isinstance(each, Comparison)]
    figures = [each for each in results if isinstance(each, Figure)]
    return [*([comparison_table(comparisons)] if comparisons else []), *([figure_table(figures)] if figures else [])]


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """A line for each comparison; it fits into 80 columns. Targets are ratios, or our milliseconds."""
    rounds = len(comparisons[0].ours.times)
    compared = sum(line.agreement.predictions for line in comparisons)
    ties = sum(line.agreement.ties for line in comparisons)
    differing = f"{ties:,} differ, all where the other side's two best logits tie" if ties else "all are the same"
    table = Table(
        "Case",
        "Against",
        *(Column(name, justify="right", no_wrap=True) for name in ("Ours", "Theirs", "Ratio", "Target")),
        title=f"Median milliseconds per episode or step, ± interquartile range, of {rounds} rounds in turns",
        title_justify="left",
        caption=f"{compared:,} predictions compared: {differing}.",
        caption_justify="left",
    )
    for line in comparisons:
        times = _time(line.ours), _time(line.theirs)
        table.add_row(line.case, line.against, *times, f"{line.ratio:.1f}x", _target(line))
    return table


def figure_table(figures: Sequence[Figure]) -> Table:
    """A line for each number."""
    value, target = (Column(name, justify="right") for name in ("Value", "Target"))
    table = Table("What", value, "Unit", target, title="The machine, and what else was measured", title_justify="left")
    for figure in figures:
        verdict = _verdict(figure.value, figure.at_least, figure.at_most)
        table.add_row(figure.what, f"{figure.value:.3g}", figure.unit, verdict)
    return table


def _time(measured: Measurement) -> str:
    return f"{measured.median * 1e3:.3g} ± {100 * measured.iqr / measured.median:.0f} %"


def _target(line: Comparison) -> str:
    if line.at_most_ms is not None:
        return _verdict(line.ours.median * 1e3, at_most=line.at_most_ms, unit=" ms")
    return _verdict(line.ratio, at_least=line.target)


def _verdict(value: float, at_least: float | None = None, at_most: float | None = None, unit: str = "") -> str:
    """The target, and whether it is met."""
    if at_least is not None:
        return f"≥ {at_least:g}{unit} {'✓' if value >= at_least else '✗'}"
    if at_most is not None:
        return f"≤ {at_most:g}{unit} {'✓' if value <= at_most else '✗'}"
    return ""

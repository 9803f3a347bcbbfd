"""Accuracy against something, with confidence bands, in a grid of panels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

# Okabe and Ito's colours, which the colour-blind can tell apart; markers and dashes say the same without colour.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")


@dataclass(frozen=True)
class Point:
    """One number of a figure.

    Args:
        row: Which row of panels.
        column: Which column of panels.
        series: Which line.
        x: Place on the horizontal axis; words are spread evenly in the order of their coming.
        y: The number.
        ci95: Half width of its 95 % interval.
    """

    row: str
    column: str
    series: str
    x: float | str
    y: float
    ci95: float


@dataclass(frozen=True)
class Lines:
    """What a figure shows.

    Args:
        x_label: Of the horizontal axis.
        y_label: Of the vertical axis.
        points: The numbers, in the order of panels, series and places.
        logarithmic: Whether the horizontal axis is.
    """

    x_label: str
    y_label: str
    points: Sequence[Point]
    logarithmic: bool = False

    def as_dicts(self) -> list[dict[str, Any]]:
        """The points as plain data."""
        return [asdict(point) for point in self.points]


def draw(lines: Lines) -> Figure:
    """The figure, a panel for each row and column, its legend above the panels."""
    rows, columns = _unique(point.row for point in lines.points), _unique(point.column for point in lines.points)
    series = _unique(point.series for point in lines.points)
    width, height = max(4.5, 2.9 * len(columns)), 2.5 * len(rows) + 0.8
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(len(rows), len(columns), sharex="col", sharey="row", squeeze=False)
    for number, row in enumerate(rows):
        for place, column in enumerate(columns):
            panel = axes[number, place]
            mine = [point for point in lines.points if (point.row, point.column) == (row, column)]
            _panel(panel, mine, series, lines.logarithmic)
            if number == 0:
                panel.set_title(column, fontsize=9)
            if place == 0:
                panel.set_ylabel(f"{row}\n{lines.y_label}" if row else lines.y_label, fontsize=9)
            if number == len(rows) - 1:
                panel.set_xlabel(lines.x_label, fontsize=9)
    shown = {
        label: handle for panel in axes.flat for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    beside = max(1, min(len(series), int(width // 2.2)))
    handles = [shown[name] for name in series]
    figure.legend(handles, series, loc="outside upper center", ncols=beside, fontsize=9, frameon=False)
    return figure


def _panel(panel: Axes, points: Sequence[Point], series: Sequence[str], logarithmic: bool) -> None:
    words = _unique(str(point.x) for point in points if isinstance(point.x, str))
    for name in _unique(point.series for point in points):
        style = series.index(name)
        mine = [point for point in points if point.series == name]
        x = [float(words.index(point.x)) if isinstance(point.x, str) else point.x for point in mine]
        y = [point.y for point in mine]
        colour = COLOURS[style % len(COLOURS)]
        panel.plot(
            x, y, label=name, color=colour, marker=MARKERS[style % len(MARKERS)], markersize=3.5, linewidth=1.3,
            linestyle="-" if style < len(COLOURS) else "--",
        )  # fmt: skip
        low, high = [point.y - point.ci95 for point in mine], [point.y + point.ci95 for point in mine]
        panel.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)
    if logarithmic:
        panel.set_xscale("log")
        places = sorted({point.x for point in points if not isinstance(point.x, str)})
        panel.set_xticks(places, [f"{place:g}" for place in places])
        panel.xaxis.set_minor_locator(NullLocator())
    if words:
        panel.set_xticks(range(len(words)), words)
    elif not logarithmic:
        panel.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    panel.grid(alpha=0.3, linewidth=0.6)
    panel.tick_params(labelsize=8)
    panel.spines[["top", "right"]].set_visible(False)


def _unique(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))

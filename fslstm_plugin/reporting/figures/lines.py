"""Gains in accuracy against something, with confidence bands, in a grid of panels."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...evaluation.rows import Row
from ...extras import needs_extra
from ...grammar import parse
from ..blocks import Block
from ..words import display_name

with needs_extra("A figure", "report"):
    from matplotlib import rc_context
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, NullLocator
    from matplotlib.transforms import ScaledTranslation

NamedRow = tuple[str, Row]  # A row with the name of its model.
Place = float | str | None

# Okabe and Ito's colours, which the colour-blind can tell apart; markers and dashes say the same without colour.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")

# Two panels fill a paper's column and four its page, with letters at their printed size; many rows
# of panels are lower, so that they fit a page.
PANEL_WIDTH, PANEL_HEIGHT = 1.72, 1.5
PAGE_HEIGHT, LEGEND_HEIGHT = 9.0, 0.6
LINE_HEIGHT, AXIS_HEIGHT = 0.15, 0.42  # Of a legend, and of what is below the lowest panels.
STYLE: dict[Any, Any] = {
    "axes.labelsize": 7.5,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 7.5,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.5,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "lines.linewidth": 1.1,
    "lines.markersize": 3,
    "text.parse_math": False,  # A name may hold any letters.
    "xtick.labelsize": 6.5,
    "xtick.major.size": 2.5,
    "xtick.major.width": 0.6,
    "ytick.labelsize": 6.5,
    "ytick.major.size": 2.5,
    "ytick.major.width": 0.6,
}


@dataclass(frozen=True)
class Point:
    """One number of a figure."""

    row: str  # Which row of panels.
    column: str  # Which column of panels.
    series: str  # Which line.
    x: Place  # Place on the horizontal axis: a number, a `balance`, or None for the whole axis.
    gain: float  # Paired difference that the figure shows, in points of accuracy.
    gain_ci95: float  # Half width of its 95 % interval.
    accuracy: float
    accuracy_ci95: float  # Half width of its 95 % interval.
    share_error: float | None = None  # See `Row`, for the tables.


@dataclass(frozen=True)
class Lines:
    """What a figure shows."""

    x_label: str  # Of the horizontal axis.
    over: str  # What the gains are measured against.
    points: Sequence[Point]  # The numbers, in the order of panels, series and places.
    logarithmic: bool = False  # Whether the horizontal axis is.
    summary: Sequence[Block] = ()  # Tables of the main numbers.
    own_scales: bool = False  # Whether each panel has a vertical scale of its own, and not each row of panels.


@rc_context(STYLE)
def draw(lines: Lines) -> Figure:
    """The figure, a panel for each row and column; its legend above, or where columns share no line, one below each."""
    rows, columns = _unique(point.row for point in lines.points), _unique(point.column for point in lines.points)
    series = _unique(point.series for point in lines.points)
    of_column = {name: _unique(point.series for point in lines.points if point.column == name) for name in columns}
    apart = len(columns) > 1 and sum(map(len, of_column.values())) == len(series)
    width = PANEL_WIDTH * max(2, len(columns))
    legend_height = LEGEND_HEIGHT + (LINE_HEIGHT * max(map(len, of_column.values())) if apart else 0)
    height = min(PANEL_HEIGHT * len(rows), PAGE_HEIGHT - legend_height)
    figure = Figure(figsize=(width, height + legend_height), layout="constrained")
    sharey: Literal["row", "none"] = "none" if lines.own_scales else "row"
    axes = figure.subplots(len(rows), len(columns), sharex="col", sharey=sharey, squeeze=False)
    of_axis = {name: in_order(point for point in lines.points if point.column == name) for name in columns}
    for number, row in enumerate(rows):
        for place, column in enumerate(columns):
            panel = axes[number, place]
            mine = [point for point in lines.points if (point.row, point.column) == (row, column)]
            if mine:
                _panel(panel, mine, of_column[column] if apart else series, of_axis[column], lines.logarithmic)
            else:  # measured elsewhere only
                panel.set_axis_off()
            if number == 0:
                panel.set_title(column)
            if place == 0:
                # Above the names of the columns; it may reach over the next panels.
                panel.set_title(f"{row}\n" if number == 0 else row, loc="left", fontweight="bold")
            if row == [point.row for point in lines.points if point.column == column][-1]:
                panel.set_xlabel(lines.x_label)
                panel.tick_params(labelbottom=True)
    side = height + legend_height if len(rows) > 1 else 0.8 * height  # one panel's label stays beside it
    letters = int(side * 72 / (0.5 * STYLE["axes.labelsize"]))  # of mean width
    label = textwrap.wrap(f"gain in points over {lines.over}", letters)
    figure.supylabel("\n".join(label), fontsize=STYLE["axes.labelsize"], multialignment="center")
    if apart:
        for name, panels in zip(columns, axes.T, strict=True):
            below = panels[-1].transAxes + ScaledTranslation(0, -AXIS_HEIGHT, figure.dpi_scale_trans)
            shown = _handles(panels)
            panels[-1].legend(
                [shown[each] for each in of_column[name]], of_column[name], loc="upper center", bbox_to_anchor=(0.5, 0),
                bbox_transform=below, borderaxespad=0, handlelength=1.3, handletextpad=0.5,
            )  # fmt: skip
        return figure
    shown = _handles(axes.flat)
    most = max(2, len(columns))
    beside = -(-len(series) // -(-len(series) // most))  # as many in each line
    figure.legend([shown[name] for name in series], series, loc="outside upper center", ncols=beside)
    return figure


def _handles(panels: Iterable[Axes]) -> dict[str, Artist]:
    """What a legend shows of each line, which may not be in all of the panels."""
    return {label: handle for panel in panels for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)}


def _panel(
    panel: Axes, points: Sequence[Point], series: Sequence[str], places: Sequence[Place], logarithmic: bool
) -> None:
    """A panel; `places` are those of all panels on its axis, which share their ticks."""
    panel.axhline(0, color="0.5", linewidth=0.8)
    words = [place for place in places if isinstance(place, str)]
    for name in _unique(point.series for point in points):
        style = series.index(name)
        mine = sorted((point for point in points if point.series == name), key=lambda point: _key(point.x))
        x = [float(words.index(point.x)) if isinstance(point.x, str) else point.x for point in mine]
        low = [point.gain - point.gain_ci95 for point in mine]
        high = [point.gain + point.gain_ci95 for point in mine]
        colour = COLOURS[style % len(COLOURS)]
        if x == [None]:
            panel.axhline(mine[0].gain, label=name, color=colour, linestyle=("--", ":")[style % 2])
            panel.axhspan(low[0], high[0], color=colour, alpha=0.12, linewidth=0)
        else:
            known = [place for place in x if place is not None]
            panel.plot(
                known, [point.gain for point in mine], label=name, color=colour, marker=MARKERS[style % len(MARKERS)]
            )
            panel.fill_between(known, low, high, color=colour, alpha=0.2, linewidth=0)
    if logarithmic:
        panel.set_xscale("log")
        ticks = _apart([place for place in places if isinstance(place, (int, float))])
        panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        panel.xaxis.set_minor_locator(NullLocator())
    elif words:
        panel.set_xticks(range(len(words)), words)
    else:
        panel.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    panel.yaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10], min_n_ticks=3))
    panel.grid()


def in_order(points: Iterable[Point]) -> list[Place]:
    """The places of points, each once: numbers from small to large, balances from equal shares on, None last.

    Example:
        >>> in_order([Point("", "", "", x, 0.0, 0.0, 0.0, 0.0) for x in ("2", "0.5", "∞", "2", "10")])
        ['∞', '10', '2', '0.5']
    """
    return sorted({point.x for point in points}, key=_key)


def _key(place: Place) -> float:
    if isinstance(place, str):
        return -math.inf if place == EQUAL else -float(place)
    return math.inf if place is None else place


def _apart(ticks: Sequence[float]) -> list[float]:
    """The ticks of a logarithmic axis whose labels do not overlap those of the next."""
    least = math.log(ticks[-1] / ticks[0]) / 12 if ticks else 0.0
    following = [*ticks[1:], math.inf]
    return [tick for tick, after in zip(ticks, following, strict=True) if math.log(after / tick) >= least]


def _unique(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


EQUAL = "∞"
BALANCE = f"Dirichlet A ({EQUAL}: balanced)"


def balance(row: Row) -> str:
    """How the queries of a row are shared among the classes, as a tick of the axis `BALANCE`."""
    return row.query_balance.replace("uniform", EQUAL).removeprefix("dirichlet:")


def gains(
    rows: Iterable[NamedRow], column: Callable[[Row], str], series: Callable[[Row], str], x: Callable[[Row], Place]
) -> list[Point]:
    """A point for each row that gains over another, with its column, its line and its place on the horizontal axis."""
    points = []
    for model, row in rows:
        if row.gain is not None and row.gain_ci95 is not None:
            numbers = row.gain, row.gain_ci95, row.accuracy, row.ci95, row.share_error
            points.append(Point(f"{model}, {row.shots}-shot", column(row), series(row), x(row), *numbers))
    return points


def gains_of_modules(rows: Sequence[NamedRow], x: Callable[[Row], Place]) -> list[Point]:
    """A point for each method with modules, gaining over the same without the last; columns are heads."""
    return gains(
        [(model, row) for model, row in rows if row.modules],
        lambda row: row.head.upper(),
        lambda row: display_name("+".join(map(str, parse(row.method)[-len(row.modules) :]))),
        x,
    )

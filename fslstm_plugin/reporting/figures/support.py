"""The paper's figure "change": how IAM moves the support of four 1-shot tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor

from ...extras import needs_extra
from .lines import COLOURS, MARKERS, PANEL_WIDTH, STYLE

with needs_extra("A figure", "report"):
    from matplotlib import rc_context
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Ellipse

Place = tuple[float, float]
_LABELS = STYLE["axes.labelsize"]


class Task(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An episode in the plane."""

    dataset: str
    backbone: str
    run: str
    algorithm: str  # The method that it was trained with.
    training: str  # The same with how much of it.
    episode: int  # Number of the episode.
    classes: tuple[str, ...]  # Name of the class of each support point.
    support_labels: tuple[int, ...]  # Class of each support point.
    query_labels: tuple[int, ...]  # Class of each query.
    before: float  # Accuracy with the support as it is, in percent.
    after: float  # Accuracy with the adjusted support, in percent.
    support: tuple[Place, ...]  # The support, see `project`.
    adjusted: tuple[Place, ...]  # The adjusted support.
    query: tuple[Place, ...]  # The queries.


def project(support: Tensor, adjusted: Tensor, query: Tensor) -> list[Tensor]:
    """The three in the plane of the two principal components of all of them together, as in the paper.

    ``(n, d)``, the same after IAM, and ``(m, d)`` become ``(n, 2)``, ``(n, 2)`` and ``(m, 2)``.
    """
    points = torch.cat([support, adjusted, query]).double()
    points = points - points.mean(0)
    axes = torch.linalg.svd(points, full_matrices=False).Vh[:2]
    return list((points @ axes.mT).split([len(support), len(adjusted), len(query)]))


@rc_context(STYLE)
def draw(tasks: Sequence[tuple[str, Task]]) -> Figure:
    """Two panels for each task with a title: all of it, with arrows to the adjusted support, and the queries alone."""
    columns = min(2, len(tasks))
    rows = -(-len(tasks) // columns)
    figure = Figure(figsize=(2 * columns * PANEL_WIDTH, (PANEL_WIDTH + 0.45) * rows + 0.5), layout="constrained")
    panels = figure.subplots(rows, 2 * columns, squeeze=False)
    for panel in panels.flat:
        panel.set_visible(False)
    for number, (title, task) in enumerate(tasks):
        row, column = divmod(number, columns)
        _whole(panels[row, 2 * column], title, task)
        _clusters(panels[row, 2 * column + 1], task)
    figure.legend(*_legend(panels[0, 0]), loc="outside upper center", ncols=4, handletextpad=0.2, columnspacing=1.2)
    figure.supxlabel("first principal component of support, adjusted support and queries together", fontsize=_LABELS)
    figure.supylabel("second principal component", fontsize=_LABELS)
    return figure


def _whole(panel: Axes, title: str, task: Task) -> None:
    """Colour and shape show the class, size and edge the role."""
    for label, start, end in zip(task.support_labels, task.support, task.adjusted, strict=True):
        _queries(panel, task, label, size=5)
        arrow = {"arrowstyle": "->", "color": "0.5", "linewidth": 0.8, "shrinkA": 3, "shrinkB": 3}
        panel.annotate("", end, start, arrowprops=arrow, zorder=2)
        _support(panel, start, label, size=20)
        panel.scatter(end[0], end[1], s=26, edgecolors="black", linewidths=0.6, zorder=3, **_style(label))
    panel.set_title(title, loc="left")
    panel.set_xlabel(f"accuracy {task.before:.1f} % → {task.after:.1f} %", loc="left")
    _square(panel, [*task.query, *task.support, *task.adjusted])


def _clusters(panel: Axes, task: Task) -> None:
    """Where the queries of each class are: their mean and one standard deviation around it, beside the support."""
    for label, start in zip(task.support_labels, task.support, strict=True):
        _queries(panel, task, label, size=9)
        _support(panel, start, label, size=30)
        mine = torch.tensor(_of_class(task, label), dtype=torch.float64)
        if len(mine) > 1:
            panel.add_patch(_ellipse(mine, _style(label)["color"]))
    panel.text(0.03, 0.97, "magnified", transform=panel.transAxes, verticalalignment="top", fontsize=6)
    handles = [panel.scatter([], [], s=14, **_style(label)) for label in task.support_labels]
    panel.legend(
        handles, task.classes, loc="upper left", bbox_to_anchor=(-0.05, -0.01), fontsize=5.5, ncols=3, handletextpad=0,
        columnspacing=0.4, borderpad=0,
    )  # fmt: skip
    _square(panel, [*task.query, *task.support])


def _ellipse(points: Tensor, colour: str) -> Ellipse:
    """One standard deviation around the mean of points ``(n, 2)``."""
    variances, axes = torch.linalg.eigh(torch.cov(points.mT))
    across, along = (2 * variances.clamp(min=0).sqrt()).tolist()
    angle = math.degrees(math.atan2(axes[1, 1].item(), axes[0, 1].item()))
    middle = points.mean(0).tolist()
    return Ellipse((middle[0], middle[1]), along, across, angle=angle, color=colour, alpha=0.18, linewidth=0, zorder=0)


def _of_class(task: Task, label: int) -> list[Place]:
    return [place for place, other in zip(task.query, task.query_labels, strict=True) if other == label]


def _queries(panel: Axes, task: Task, label: int, size: float) -> None:
    mine = _of_class(task, label)
    panel.scatter([x for x, _ in mine], [y for _, y in mine], s=size, alpha=0.75, linewidths=0, **_style(label))


def _support(panel: Axes, place: Place, label: int, size: float) -> None:
    style = _style(label)
    panel.scatter(*place, s=size, facecolors="white", edgecolors=style["color"], marker=style["marker"], zorder=3)


def _style(label: int) -> dict[str, Any]:
    return {"color": COLOURS[label % len(COLOURS)], "marker": MARKERS[label % len(MARKERS)]}


def _square(panel: Axes, places: Sequence[Place]) -> None:
    """One scale for both axes, and some room."""
    sides = [(min(side), max(side)) for side in zip(*places, strict=True)]
    half = 0.58 * max(high - low for low, high in sides)
    left, bottom = ((low + high) / 2 - half for low, high in sides)
    panel.set(xticks=[], yticks=[], xlim=(left, left + 2 * half), ylim=(bottom, bottom + 2 * half), aspect="equal")
    panel.spines[["top", "right"]].set_visible(True)
    panel.set_visible(True)


def _legend(panel: Axes) -> tuple[list[Any], list[str]]:
    names = {"query": (3, "0.5", "none"), "support": (5, "white", "0.5"), "adjusted support": (5, "0.5", "black")}
    handles: list[Any] = [
        panel.plot([], [], "o", markersize=size, markerfacecolor=face, markeredgecolor=edge)[0]
        for size, face, edge in names.values()
    ]
    spread = Ellipse((0, 0), 1, 1, color="0.5", alpha=0.3, linewidth=0)
    return [*handles, spread], [*names, "queries of a class: one standard deviation"]

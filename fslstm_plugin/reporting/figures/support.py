"""The paper's figure "change": how IAM moves the support of four 1-shot tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from .lines import COLOURS, MARKERS, PANEL_WIDTH, STYLE


def project(support: Tensor, adjusted: Tensor, query: Tensor) -> list[Tensor]:
    """The three in the plane of the two principal components of all of them together, as in the paper.

    Args:
        support: Features ``(n, d)``.
        adjusted: The same after IAM ``(n, d)``.
        query: Features ``(m, d)``.

    Returns:
        ``(n, 2)``, ``(n, 2)`` and ``(m, 2)``.

    Example:
        >>> [len(part) for part in project(torch.rand(2, 4), torch.rand(2, 4), torch.rand(6, 4))]
        [2, 2, 6]
    """
    points = torch.cat([support, adjusted, query]).double()
    points = points - points.mean(0)
    axes = torch.linalg.svd(points, full_matrices=False).Vh[:2]
    return list((points @ axes.mT).split([len(support), len(adjusted), len(query)]))


def draw(tasks: Sequence[dict[str, Any]]) -> Figure:
    """A panel for each task, with arrows from the support to the adjusted support.

    Args:
        tasks: For each, the points of :func:`project` as lists by the names of its arguments, ``support_labels`` and
            ``query_labels``, ``classes`` of the support, ``title``, and the accuracies ``before`` and ``after`` in
            percent.
    """
    with rc_context(STYLE):
        columns = min(2, len(tasks))
        rows = -(-len(tasks) // columns)
        figure = Figure(figsize=(2 * PANEL_WIDTH, 1.6 * rows + 0.3), layout="constrained")
        panels = list(figure.subplots(rows, columns, squeeze=False).flat)
        for panel in panels[len(tasks) :]:
            panel.set_visible(False)
        for panel, task in zip(panels, tasks, strict=False):
            _panel(panel, task)
        figure.legend(*_legend(panels[0]), loc="outside upper center", ncols=3, handletextpad=0.2, columnspacing=1.2)
    return figure


def _panel(panel: Axes, task: dict[str, Any]) -> None:
    """Colour and shape tell the class, size and edge the part."""
    ends = zip(task["support"], task["adjusted"], strict=True)
    for label, name, (start, end) in zip(task["support_labels"], task["classes"], ends, strict=True):
        style: dict[str, Any] = {"color": COLOURS[label % len(COLOURS)], "marker": MARKERS[label % len(MARKERS)]}
        mine = [place for place, other in zip(task["query"], task["query_labels"], strict=True) if other == label]
        panel.scatter([x for x, _ in mine], [y for _, y in mine], s=7, alpha=0.75, linewidths=0, **style)
        arrow = {"arrowstyle": "->", "color": "0.5", "linewidth": 0.8, "shrinkA": 3, "shrinkB": 3}
        panel.annotate("", end, start, arrowprops=arrow, zorder=2)
        panel.scatter(
            start[0], start[1], s=24, facecolors="white", edgecolors=style["color"], marker=style["marker"], zorder=3
        )
        panel.scatter(end[0], end[1], s=28, edgecolors="black", linewidths=0.6, zorder=3, label=name, **style)
    panel.set_title(task["title"], loc="left")
    panel.set_xlabel(f"accuracy {task['before']:.1f} % → {task['after']:.1f} %", loc="left")
    panel.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=6, handletextpad=0.1)
    sides = [(min(side), max(side)) for side in zip(*task["query"], *task["support"], *task["adjusted"], strict=True)]
    half = 0.58 * max(high - low for low, high in sides)  # one scale for both axes, and some room
    left, bottom = ((low + high) / 2 - half for low, high in sides)
    panel.set(xticks=[], yticks=[], xlim=(left, left + 2 * half), ylim=(bottom, bottom + 2 * half), aspect="equal")
    panel.spines[["top", "right"]].set_visible(True)


def _legend(panel: Axes) -> tuple[list[Any], list[str]]:
    names = {"query": (3, "0.5", "none"), "support": (5, "white", "0.5"), "adjusted support": (5, "0.5", "black")}
    handles = [
        panel.plot([], [], "o", markersize=size, markerfacecolor=face, markeredgecolor=edge)[0]
        for size, face, edge in names.values()
    ]
    return handles, list(names)

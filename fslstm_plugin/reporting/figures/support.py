"""The paper's figure "change": how IAM moves the support of four 1-shot tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from .lines import COLOURS


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
            ``query_labels``, ``title``, and the accuracies ``before`` and ``after`` in percent.
    """
    columns = min(2, len(tasks))
    rows = -(-len(tasks) // columns)
    figure = Figure(figsize=(3.6 * columns, 3.5 * rows + 0.5), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for panel in panels:
        panel.set_visible(False)
    for panel, task in zip(panels, tasks, strict=False):
        panel.set_visible(True)
        _panel(panel, task)
    figure.legend(
        *_legend(panels[0]), loc="outside upper center", ncols=3, fontsize=9, frameon=False, handletextpad=0.4
    )
    return figure


def _panel(panel: Axes, task: dict[str, Any]) -> None:
    own, others = ([COLOURS[label % len(COLOURS)] for label in task[f"{part}_labels"]] for part in ("support", "query"))
    x, y = zip(*task["query"], strict=True)
    panel.scatter(x, y, c=others, s=14, alpha=0.6, linewidths=0)
    for start, end in zip(task["support"], task["adjusted"], strict=True):
        panel.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": "0.4", "linewidth": 0.9}, zorder=2)
    for part, marker, size in (("support", "s", 60), ("adjusted", "*", 140)):
        x, y = zip(*task[part], strict=True)
        panel.scatter(x, y, c=own, s=size, marker=marker, edgecolors="black", linewidths=0.8, zorder=3)
    panel.set_title(task["title"], fontsize=9)
    panel.set_xlabel(f"accuracy {task['before']:.1f} % → {task['after']:.1f} %", fontsize=9)
    panel.set_xticks([])
    panel.set_yticks([])


def _legend(panel: Axes) -> tuple[list[Any], list[str]]:
    names = {"query": ("o", 5), "support": ("s", 7), "adjusted support": ("*", 11)}
    handles = [
        panel.plot([], [], linestyle="", marker=marker, markersize=size, color="0.6", markeredgecolor="black")[0]
        for marker, size in names.values()
    ]
    return handles, list(names)

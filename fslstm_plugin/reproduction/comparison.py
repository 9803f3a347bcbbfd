"""The published numbers beside ours, one line for a method and a training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..reporting.tables import TASKS, display_name


@dataclass(frozen=True)
class Cell:
    """One number of the paper and ours.

    Args:
        published: Accuracy in percent, or None.
        published_ci95: Half width of its interval, or None.
        ours: Accuracy in percent, or None.
        ours_ci95: Half width of its interval, or None.
        episodes: Number of our episodes.
        published_seconds: Time for 10,000 tasks in the paper, or None.
        ours_seconds: Our time for as many, from images to answers, or None.
    """

    published: float | None = None
    published_ci95: float | None = None
    ours: float | None = None
    ours_ci95: float | None = None
    episodes: int | None = None
    published_seconds: float | None = None
    ours_seconds: float | None = None

    @property
    def difference(self) -> float | None:
        """Ours less the published, or None.

        Example:
            >>> Cell(published=70.0, published_ci95=0.5, ours=69.75, ours_ci95=0.3).difference
            -0.25
        """
        return None if self.ours is None or self.published is None else self.ours - self.published

    @property
    def within(self) -> bool | None:
        """Whether the difference lies within both intervals, or None.

        Example:
            >>> Cell(published=70.0, published_ci95=0.5, ours=69.6, ours_ci95=0.3).within
            False
        """
        if self.difference is None or self.published_ci95 is None or self.ours_ci95 is None:
            return None
        return abs(self.difference) <= min(self.published_ci95, self.ours_ci95)


@dataclass(frozen=True)
class Line:
    """One line of a table.

    Args:
        dataset: Name of the data set.
        backbone: Name of the backbone.
        method: As shown.
        training: What our model was trained with; empty if nothing was run.
        scale: At what scale; empty if nothing was run.
        rival: Whether it is another paper's method.
        cells: By number of shots.
    """

    dataset: str
    backbone: str
    method: str
    training: str
    scale: str
    rival: bool
    cells: dict[int, Cell] = field(default_factory=dict)

    def as_dicts(self) -> list[dict[str, Any]]:
        """One flat dictionary for each number of shots."""
        names = ("published", "published_ci95", "ours", "ours_ci95", "episodes", "difference", "within")
        seconds = ("published_seconds", "ours_seconds")
        return [
            {
                "dataset": self.dataset,
                "backbone": self.backbone,
                "method": self.method,
                "rival": self.rival,
                "training": self.training,
                "scale": self.scale,
                "shots": shots,
                **{name: getattr(cell, name) for name in (*names, *seconds)},
            }
            for shots, cell in sorted(self.cells.items())
        ]


def compare(
    methods: Sequence[str], published: Iterable[dict[str, Any]], measured: Iterable[dict[str, Any]]
) -> list[Line]:
    """Lines by data set, backbone, method and training; rivals first, then the methods in their order.

    Args:
        methods: Labels of our methods.
        published: Values of ``published.json``.
        measured: Measurements; balanced ones with 15 queries a class.
    """
    published, measured = list(published), list(measured)
    order = [display_name(method) for method in methods]
    places = dict.fromkeys((each["dataset"], each["backbone"]) for each in (*measured, *published))
    lines = []
    for dataset, backbone in places:
        said = [each for each in published if (each["dataset"], each["backbone"]) == (dataset, backbone)]
        found = [each for each in measured if (each["dataset"], each["backbone"]) == (dataset, backbone)]
        rivals = list(dict.fromkeys(each["method"] for each in said if each["method"] not in order))
        for method in (*rivals, *order):
            cells = {each["shots"]: _published_cell(each) for each in said if each["method"] == method}
            mine = [each for each in found if display_name(each["method"]) == method]
            for training in dict.fromkeys(each["training"] for each in mine) or [""]:
                of_training = [each for each in mine if each["training"] == training]
                scale = of_training[0]["provenance"]["scale"] if of_training else ""
                shots = {*cells, *(each["shots"] for each in of_training)}
                line = Line(dataset, backbone, method, training, scale, method in rivals)
                for count in sorted(shots):
                    here = [each for each in of_training if each["shots"] == count]
                    line.cells[count] = _cell(cells.get(count, Cell()), here)
                if line.cells:
                    lines.append(line)
    return lines


def _published_cell(each: dict[str, Any]) -> Cell:
    return Cell(each["accuracy"], each["ci95"], published_seconds=each.get("seconds"))


def _cell(published: Cell, measured: Sequence[dict[str, Any]]) -> Cell:
    if not measured:
        return published
    each = measured[0]
    seconds = None
    if "backbone_seconds" in each:
        seconds = (each["seconds"] + each["backbone_seconds"]) * TASKS / each["episodes"]
    return Cell(
        published.published,
        published.published_ci95,
        each["accuracy"],
        each["ci95"],
        each["episodes"],
        published.published_seconds,
        seconds,
    )

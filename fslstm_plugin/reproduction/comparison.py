"""The published numbers beside ours, one line for a method and a training."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..reporting.captions import TASKS
from ..reporting.words import display_name
from .measurements import Measurement
from .specification import PublishedValue, Reproduction


class Trained(NamedTuple):
    """What a letter in a table stands for."""

    training: str  # What the model was trained with.
    seed: int  # What its test episodes follow from.


@dataclass(frozen=True)
class Cell:
    """One number of the paper and ours, as far as there are any."""

    published: PublishedValue | None = None
    ours: Measurement | None = None

    @property
    def difference(self) -> float | None:
        """Ours less the published, or None."""
        if self.ours is None or self.published is None or self.published.accuracy is None:
            return None
        return self.ours.accuracy - self.published.accuracy

    @property
    def within(self) -> bool | None:
        """Whether the difference lies within its interval, or None.

        The two means are independent, so that the half width of the difference's interval is the root of the sum of
        the squares of theirs.
        """
        if self.difference is None or self.ours is None or self.published is None or self.published.ci95 is None:
            return None
        return abs(self.difference) <= math.hypot(self.published.ci95, self.ours.ci95)

    @property
    def ours_seconds(self) -> float | None:
        """Our time for 10,000 tasks, from images to answers, or None."""
        if self.ours is None or self.ours.seconds is None or self.ours.backbone_seconds is None:
            return None
        return (self.ours.seconds + self.ours.backbone_seconds) * TASKS / self.ours.episodes


@dataclass(frozen=True)
class Line:
    """One line of a table."""

    dataset: str
    backbone: str
    method: str  # As shown.
    rival: bool  # Whether it is another paper's method.
    known: bool  # Whether the specification has it, so that it can be run.
    cells: dict[int, Cell]  # By number of shots, in order.

    @property
    def trained(self) -> list[Trained]:
        """Our models: none if nothing was run, several where a rival has one for each number of shots."""
        ours = [cell.ours for cell in self.cells.values() if cell.ours]
        return list(dict.fromkeys(Trained(each.training, each.seed) for each in ours))

    @property
    def episodes(self) -> int:
        """The most of our episodes in a cell; 0 if nothing was run."""
        return max((cell.ours.episodes for cell in self.cells.values() if cell.ours), default=0)

    def as_dicts(self) -> list[dict[str, Any]]:
        """One flat dictionary for each number of shots."""
        return [
            {
                "dataset": self.dataset,
                "backbone": self.backbone,
                "method": self.method,
                "rival": self.rival,
                "training": cell.ours.training if cell.ours else "",
                "scale": cell.ours.provenance.scale if cell.ours else "",
                "shots": shots,
                "published": cell.published and cell.published.accuracy,
                "published_ci95": cell.published and cell.published.ci95,
                "ours": cell.ours and cell.ours.accuracy,
                "ours_ci95": cell.ours and cell.ours.ci95,
                "episodes": cell.ours and cell.ours.episodes,
                "difference": cell.difference,
                "within": cell.within,
                "published_seconds": cell.published and cell.published.seconds,
                "ours_seconds": cell.ours_seconds,
            }
            for shots, cell in self.cells.items()
        ]


def compare(reproduction: Reproduction, measured: Iterable[Measurement]) -> list[Line]:
    """Lines by data set, backbone, method and training; rivals first, then the methods in their order.

    The paper's queries and balance are the specification's first; measurements with others are left out.
    """
    specification = reproduction.specification
    columns = specification.split, specification.queries[0], specification.query_balances[0]
    published = [each for each in reproduction.published.values if each.query_balance == columns[-1]]
    measured = [each for each in measured if (each.split, each.queries, each.query_balance) == columns]
    order = [display_name(method) for method in specification.methods]

    def name_of(each: Measurement) -> str:
        return specification.rivals.get(each.method, display_name(each.method))

    every: list[Measurement | PublishedValue] = [*measured, *published]
    places = dict.fromkeys((each.dataset, each.backbone) for each in every)
    lines = []
    for place in places:
        published_here = [each for each in published if (each.dataset, each.backbone) == place]
        measured_here = [each for each in measured if (each.dataset, each.backbone) == place]
        known = set(specification.rivals.values()) if measured_here else set()
        others = [each.method for each in published_here if each.method not in order]
        rivals = list(dict.fromkeys([*others, *sorted(known)]))
        for method in (*rivals, *order):
            cells = {each.shots: Cell(each) for each in published_here if each.method == method}
            of_method = [each for each in measured_here if name_of(each) == method]
            for by_shots in _by_line(of_method, method in known):
                ours = {shots: replace(cells.get(shots, Cell()), ours=each) for shots, each in by_shots.items()}
                if cells or ours or method in known:
                    all_cells = dict(sorted({**cells, **ours}.items()))
                    lines.append(Line(*place, method, method in rivals, method in {*order, *known}, all_cells))
    return lines


def _by_line(measured: Sequence[Measurement], rival: bool) -> list[dict[int, Measurement]]:
    """What the lines of a method show, by shots: one model each, but a rival's models for different shots together."""
    lines: dict[tuple[int, str | int], dict[int, Measurement]] = {}
    for each in measured:
        of_shots = [other.training for other in measured if (other.shots, other.seed) == (each.shots, each.seed)]
        place = of_shots.index(each.training) if rival else each.training
        lines.setdefault((each.seed, place), {})[each.shots] = each
    return list(lines.values()) or [{}]

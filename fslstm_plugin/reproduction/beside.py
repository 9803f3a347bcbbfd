"""What was measured here beside what is shipped with the package: pairs, their differences, and how they are shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ..reporting.blocks import Block
from ..reporting.words import display_name, number, signed
from . import measurements, shipped
from .measurements import Measurement
from .rendering import Table
from .titles import place


class Pair(NamedTuple):
    """The same thing measured by the user and by those who ship the package."""

    mine: Measurement  # The user's.
    shipped: Measurement  # Theirs.

    @property
    def difference(self) -> float:
        """The user's less theirs, in percent."""
        return self.mine.accuracy - self.shipped.accuracy

    @property
    def ci95(self) -> float:
        """Half width of the difference's 95 % interval, of independent means."""
        return math.hypot(self.mine.ci95, self.shipped.ci95)

    @property
    def within(self) -> bool:
        """Whether the difference lies within its interval."""
        return abs(self.difference) <= self.ci95

    @property
    def same_training(self) -> bool:
        """Whether their models were trained with the same."""
        return self.mine.training == self.shipped.training


def pairs(measured: Iterable[Measurement], shipped: Iterable[Measurement]) -> list[Pair]:
    """What was measured here and is shipped too: the same method in the same setting, on a model of the same algorithm.

    A shipped model with the same training is preferred to one with another; what is shipped itself has no pair.
    """
    theirs: dict[tuple[Hashable, str], list[Measurement]] = {}
    for each in shipped:
        theirs.setdefault(_setting(each), []).append(each)
    found = []
    for mine in measured:
        others = theirs.get(_setting(mine), [])
        if others and mine not in others:
            found.append(Pair(mine, max(others, key=lambda other: other.training == mine.training)))
    return found


def _setting(measurement: Measurement) -> tuple[Hashable, str]:
    return replace(measurement, training="", seed=0).key, measurement.algorithm


def shipped_pairs(name: str, measured: Sequence[Measurement]) -> list[Pair]:
    """The measurements of a reproduction that are shipped too, see `pairs`."""
    return pairs(measured, measurements.read(shipped.folder() / name))


def blocks(name: str, measured: Sequence[Measurement]) -> list[Block]:
    """The numbers of a reproduction beside those that are shipped, with their models, if any are."""
    found = shipped_pairs(name, measured)
    if not found:
        return []
    words = f"{sentence(found)} The interval is that of a difference of independent means; ✓ is within it."
    models = dict.fromkeys(
        f"{place(each.dataset, each.backbone)}, {who}: {each.training}"
        for pair in found
        for who, each in (("measured here", pair.mine), ("shipped", pair.shipped))
    )
    head, rows = table(found)
    return [Block("Beside what is shipped with the package", words, head, rows, sentences=list(models), folded=True)]


def sentence(pairs: Sequence[Pair]) -> str:
    """How far the numbers are from those that are shipped, in a sentence."""
    if not pairs:
        return "The package ships no measurements of these."
    within, other = sum(pair.within for pair in pairs), sum(not pair.same_training for pair in pairs)
    return (
        f"Differences to the measurements that are shipped with the package, within their 95 % interval: {within} of "
        f"{len(pairs)}{f'; to a model with another training: {other}' if other else ''}."
    )


def table(pairs: Sequence[Pair]) -> Table:
    """A line for each number that is shipped too; columns for what is not the same in all lines."""
    conditions = {
        name: texts
        for name, value in _CONDITIONS.items()
        if len(set(texts := [value(pair) for pair in pairs])) > 1 or name == "shots"
    }
    rows = [
        [
            display_name(pair.mine.method),
            *(texts[line] for texts in conditions.values()),
            number(pair.mine.accuracy, pair.mine.ci95),
            number(pair.shipped.accuracy, pair.shipped.ci95),
            signed(pair.difference, pair.ci95) + (" ✓" if pair.within else ""),
        ]
        for line, pair in enumerate(pairs)
    ]
    return ["method", *conditions, "measured here", "shipped with the package", "difference"], rows


_CONDITIONS: dict[str, Callable[[Pair], str]] = {
    "model": lambda pair: place(pair.mine.dataset, pair.mine.backbone),
    "training here": lambda pair: pair.mine.training,
    "training shipped": lambda pair: pair.shipped.training,
    "shots": lambda pair: str(pair.mine.shots),
    "queries": lambda pair: str(pair.mine.queries),
    "balance": lambda pair: pair.mine.query_balance,
}

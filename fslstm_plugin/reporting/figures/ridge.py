"""The effect of a head's constant, with features as extracted and normalised."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ...arguments import options
from ...evaluation.rows import Row
from ...registry import HEADS
from ..blocks import Block
from ..words import NOTHING, number, signed
from .lines import Lines, NamedRow, Point


@dataclass(frozen=True)
class _Tried:
    """A head with a constant."""

    model: str
    row: Row
    constant: float | None  # The constant; None if the head chooses it itself, or has none.
    letter: str | None  # Its letter; None if the head has none.
    published: bool  # Whether the gains are over this one.
    gain: float  # Paired difference to the head with its published constant and features as extracted.
    gain_ci95: float  # Half width of its interval.

    @property
    def normalised(self) -> bool:
        """Whether the features are."""
        return "normalize" in self.row.adapters

    @property
    def chosen(self) -> bool:
        """Whether the head chooses its constant by leaving one out."""
        return "loo" in self.row.options.values()


def _tried(rows: Sequence[NamedRow]) -> Iterator[_Tried]:
    for model, row in rows:
        constant = letter = None
        if row.head in HEADS.names() and (found := HEADS.get(row.head).constant) is not None:
            name, letter = found
            value = row.options.get(name, options(HEADS.get(row.head))[name])
            constant = float(value) if isinstance(value, (int, float)) else None
        published = not row.options and not row.adapters
        gain, ci95 = (0.0, 0.0) if published else (row.gain, row.gain_ci95)  # its own gain is over another head
        if gain is not None and ci95 is not None:
            yield _Tried(model, row, constant, letter, published, gain, ci95)


def lines(rows: Sequence[NamedRow]) -> Lines:
    """Gain over the published constant; columns are heads, rows of panels models and shots.

    The ridge that the LSSVM chooses itself is a level line.
    """
    tried = list(_tried(rows))
    points = []
    for each in tried:
        if each.letter is not None:
            panel = f"{each.model}, {each.row.shots}-shot", f"{each.row.head.upper()}, {each.letter}"
            way = f"{'leave-one-out, ' if each.chosen else ''}{'normalised' if each.normalised else 'as extracted'}"
            numbers = each.gain, each.gain_ci95, each.row.accuracy, each.row.ci95
            points.append(Point(*panel, way, each.constant, *numbers))
    over = "the head with its published constant and features as extracted"
    return Lines("constant of the head", over, points, logarithmic=True, summary=[_summary(tried)])


def _summary(tried: Sequence[_Tried]) -> Block:
    """For each model, shots and head: the published constant, and the most that each way gains over it."""
    ways = {
        "best constant, as extracted": (False, False),
        "best constant, normalised": (False, True),
        "leave-one-out, as extracted": (True, False),
        "leave-one-out, normalised": (True, True),
    }
    groups: dict[tuple[str, int, str], list[_Tried]] = {}
    for each in tried:
        groups.setdefault((each.model, each.row.shots, each.row.head), []).append(each)
    rows = []
    for (model, shots, head), mine in groups.items():
        plain = next((each.row for each in mine if each.published), None)
        published = NOTHING if plain is None else number(plain.accuracy, plain.ci95)
        cells = [_best(each for each in mine if (each.chosen, each.normalised) == way) for way in ways.values()]
        rows.append([f"{head.upper()}, {shots}-shot", model, published, *cells])
    remark = "The best constant is chosen on the episodes that its gain is measured on, which favours it a little."
    return Block("In short", remark, ["head", "model", "published constant", *ways], rows)


def _best(tried: Iterable[_Tried]) -> str:
    """The greatest gain, and the constant that it was reached with."""
    known = (each for each in tried if each.constant is not None or not each.published)
    best = max(known, key=lambda each: each.gain, default=None)
    if best is None:
        return NOTHING
    constant = "" if best.constant is None else f" ({best.letter} = {best.constant:g})"
    return f"{signed(best.gain, best.gain_ci95)}{constant}"

"""Paired differences in words, with a warning where they are within noise."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from ..evaluation.experiment import Row
from .tables import display_name, method_name, signed


def statement(first: str, second: str, shots: int, difference: float, ci95: float) -> str:
    """What a paired difference says.

    Args:
        first: Name of a method.
        second: Name of the method that it is measured against.
        shots: Support images a class.
        difference: Mean of first - second over the same episodes, in points of accuracy.
        ci95: Half width of its 95 % interval.

    Example:
        >>> statement("LSSVM+PSM", "LSSVM", 1, 3.1, 0.4)
        '1-shot: LSSVM+PSM beats LSSVM by 3.10 ± 0.40 points.'
        >>> statement("RR", "LSSVM", 5, -1.25, 0.3)
        '5-shot: RR is behind LSSVM by 1.25 ± 0.30 points.'
        >>> statement("SVM", "RR", 5, 0.1, 0.3)
        '5-shot: warning: SVM and RR are within noise of each other (+0.10 ± 0.30 points).'
    """
    if abs(difference) <= ci95:
        noise = f"warning: {first} and {second} are within noise of each other ({signed(difference, ci95)} points)"
        return f"{shots}-shot: {noise}."
    verb = "beats" if difference > 0 else "is behind"
    return f"{shots}-shot: {first} {verb} {second} by {abs(difference):.2f} ± {ci95:.2f} points."


def statements(rows: Sequence[Row]) -> list[str]:
    """Each row against its reference, and the best against the second best if that is another, for each of the shots.

    Args:
        rows: Rows with the same episodes for the same number of shots, in the order of the shots.
    """
    sentences = []
    for shots, group in groupby(rows, key=lambda row: row.shots):
        same = list(group)
        for row in same:
            if row.reference is not None and row.gain is not None and row.gain_ci95 is not None:
                names = method_name(row), display_name(row.reference)
                sentences.append(statement(*names, shots, row.gain, row.gain_ci95))
        best, *others = sorted(same, key=lambda row: row.difference, reverse=True)
        if others and best.reference != others[0].method:
            second = others[0]
            names = f"the best, {method_name(best)},", method_name(second)
            sentences.append(statement(*names, shots, -second.difference, second.difference_ci95))
    return sentences

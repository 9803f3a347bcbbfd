"""Paired differences in words: the few that answer a question, and all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..errors import printable
from ..evaluation.rows import Row
from ..grammar import parse
from ..methods.base import LSSVM
from ..registry import HEADS
from .words import (
    by_shots,
    display_name,
    full_name,
    is_among_best,
    listed,
    number,
    reference_name,
    several_runs,
    signed,
)

_HELPS = ("helps", "hurts", "no clear difference for")
_LEADS = ("ahead with", "behind with", "no clear difference with")
_FEW_ROWS = 3  # With so few rows, what each adds already says which is best.


def statement(first: str, second: str, shots: int, difference: float, ci95: float) -> str:
    """The mean difference of first - second over the same episodes, in points of accuracy, as a sentence.

    Its 95 % interval must hold at once for all differences that sentences are made of.

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
    return f"{shots}-shot: {first} {verb} {second} by {number(abs(difference), ci95)} points."


def statements(rows: Sequence[Row]) -> list[str]:
    """Each row against its reference, and the best against the second best if that is another pair, by number of shots.

    Rows of one number of shots are of the same episodes.
    """
    sentences = []
    for shots, group in by_shots(rows).items():
        for row in group:
            if row.reference is not None and row.gain is not None and row.gain_ci95 is not None:
                names = full_name(row, rows), reference_name(row, rows)
                sentences.append(statement(*names, shots, row.gain, row.gain_ci95))
        best, *others = _best_first(group)
        if others and (best.reference, best.reference_run) != (others[0].method, others[0].run):
            further = sum(map(is_among_best, others[1:])) if is_among_best(others[0]) else 0
            more = f" (and {further} more)" if further else ""
            names = f"the best, {full_name(best, rows)},", f"{full_name(others[0], rows)}{more}"
            sentences.append(statement(*names, shots, -others[0].difference, others[0].difference_ci95))
    return sentences


def verdict(rows: Sequence[Row]) -> list[str]:
    """Conclusions from the rows, a sentence each: which method is best, and what each module or method adds.

    For each number of shots, whose rows are of the same episodes, the best method and what is within noise of it; then
    each module, transductive method, choice of arguments and further run. No difference is stated twice. Transductive
    methods that nothing is there to measure against are named.
    """
    questions = _questions(rows)
    best = [
        _best(shots, group, rows)
        for shots, group in by_shots(rows).items()
        if len(group) > _FEW_ROWS or (len(group) > 1 and not questions)
    ]
    return best + [question.answer() for question in questions] + _unmeasured(rows)


def _unmeasured(rows: Sequence[Row]) -> list[str]:
    """The transductive methods beside others, but without a head to measure them against, in a sentence."""
    references = {row.reference for row in rows}
    alone = [row for row in rows if row.transductive and row.reference is None and row.method not in references]
    names = list(dict.fromkeys(display_name(row.method) for row in alone))
    if not names or len({row.method for row in rows}) == 1:
        return []
    are = "is" if len(names) == 1 else "are"
    other = LSSVM if any(row.method == "nn" for row in rows) else "nn"
    needed = dict.fromkeys(
        str(parse(row.method)[0]) if row.modules else row.head if row.head in HEADS.names() else other for row in alone
    )
    return [f"{listed(names)} {are} compared with nothing here: add {listed(list(needed))}."]


def _best_first(group: Sequence[Row]) -> list[Row]:
    return sorted(group, key=lambda row: row.difference, reverse=True)


def _best(shots: int, group: Sequence[Row], rows: Sequence[Row]) -> str:
    """Which method is best, and whether that is certain."""
    best, second, *_ = ordered = _best_first(group)
    near = [full_name(row, rows) for row in ordered[1:] if is_among_best(row)]
    name = full_name(best, rows)
    if not near:
        ahead = number(-second.difference, second.difference_ci95)
        return f"{shots}-shot: {name} is best, {ahead} points ahead of {full_name(second, rows)}."
    if len(near) == len(group) - 1 > 1:  # of the best, which does not say that they are of each other
        return f"{shots}-shot: {name} is best; all others are within noise of it."
    return f"{shots}-shot: {name} is best; {listed(near)} {'is' if len(near) == 1 else 'are'} within noise of it."


class _Gain(NamedTuple):
    """One paired difference."""

    label: str  # What was measured against.
    mean: float  # In points.
    ci95: float  # Half width of its 95 % interval.
    share_error: float | None  # Error of the class shares predicted by a transductive method; None for others.

    @property
    def sign(self) -> int:
        """1, -1, or 0 where it lies within its interval."""
        return 0 if abs(self.mean) <= self.ci95 else 1 if self.mean > 0 else -1


@dataclass
class _Question:
    """What a module, a method, a choice of arguments or another run gains."""

    title: str  # What is compared.
    words: tuple[str, str, str]  # For gains, losses, and what is neither.
    everyone: str  # Phrase for all the labels together.
    gains: dict[int, list[_Gain]] = field(default_factory=dict)  # For each number of shots.

    def answer(self) -> str:
        """The sentence."""
        clauses = [
            f"at {shots} {'shot' if shots == 1 else 'shots'} {self._clause(gains)}"
            for shots, gains in self.gains.items()
        ]
        return f"{self.title}: {'; '.join(clauses)}."

    def _clause(self, gains: Sequence[_Gain]) -> str:
        pieces = []
        for sign, words in zip((1, -1, 0), self.words, strict=True):
            mine = [each for each in gains if each.sign == sign]
            if mine:
                everyone = self.everyone if len(mine) == len(gains) > 1 else ""
                everyone = everyone if sign else everyone.replace("every", "any")
                names = everyone or listed([each.label for each in mine])
                words = f"{words} {names}" if names else words.removesuffix(" for")
                pieces.append(f"{words} ({_amount(mine)} points{_shares(mine)})")
        return ", ".join(pieces)


def _amount(gains: Sequence[_Gain]) -> str:
    """One difference with its interval, or the range of several."""
    if len(gains) == 1:
        return signed(gains[0].mean, gains[0].ci95)
    values = sorted(each.mean for each in gains)
    return " to ".join(dict.fromkeys(signed(end, None) for end in (values[0], values[-1])))


def _shares(gains: Sequence[_Gain]) -> str:
    """How far the predicted class shares are from the true ones, where that is known."""
    errors = sorted(each.share_error for each in gains if each.share_error is not None)
    if not errors:
        return ""
    ends = dict.fromkeys(f"{error:.1f}" for error in (errors[0], errors[-1]))
    return f"; class shares off by {' to '.join(ends)}"


def _questions(rows: Sequence[Row]) -> list[_Question]:
    """The comparisons that the rows allow, in their order."""
    questions: dict[str, _Question] = {}
    for row in rows:
        asked = _asked(row, rows)
        if asked is not None and row.gain is not None and row.gain_ci95 is not None:
            question, label = asked
            known = questions.setdefault(question.title, question)
            error = row.share_error if row.transductive else None
            known.gains.setdefault(row.shots, []).append(_Gain(label, row.gain, row.gain_ci95, error))
    return list(questions.values())


def _asked(row: Row, rows: Sequence[Row]) -> tuple[_Question, str] | None:
    """The comparison of a row, and its reference; None for a head measured against another head."""
    if row.reference is None:
        return None
    if row.reference_run != row.run:
        title = printable(f"{row.run} against {row.reference_run}")
        return _Question(title, _LEADS, "every method"), display_name(row.method)
    *before, last = map(str, parse(row.method))
    if row.modules and row.reference == "+".join(before):
        return _Question(display_name(last), _HELPS, "every head"), reference_name(row, rows)
    if row.modules or row.transductive or parse(row.reference)[0].name == row.head:
        title = f"{display_name(row.method)} over {display_name(row.reference)}"
        return _Question(title, _HELPS, "every run"), printable(row.run) if several_runs(rows) else ""
    return None

"""What tables and sentences of rows are made of: rows that belong together, names, and numbers as they are written."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import printable
from ..evaluation.rows import Row
from ..grammar import parse

NOTHING = "–"


def by_shots(rows: Sequence[Row]) -> dict[int, list[Row]]:
    """The rows of each number of shots, which are of the same episodes."""
    groups: dict[int, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.shots, []).append(row)
    return groups


def by_method(rows: Sequence[Row]) -> list[dict[int, Row]]:
    """The rows of each method of each run, by the number of shots."""
    lines: dict[tuple[str, str], dict[int, Row]] = {}
    for row in rows:
        lines.setdefault((row.run, row.method), {})[row.shots] = row
    return list(lines.values())


def several_runs(rows: Sequence[Row]) -> bool:
    """Whether a method's name alone does not identify its row."""
    return len({row.run for row in rows}) > 1


def are_compared(rows: Sequence[Row]) -> bool:
    """Whether there are several methods, so that one can be best."""
    return len(rows) > len(by_shots(rows))


def is_among_best(row: Row) -> bool:
    """Whether a row is the best of those of the same episodes, or within noise of it."""
    return abs(row.difference) <= row.difference_ci95


def is_marked(row: Row, rows: Sequence[Row]) -> bool:
    """Whether a table of the rows marks this one as among the best."""
    return are_compared(rows) and is_among_best(row)


def display_name(method: str) -> str:
    """A method's name with heads and modules in capitals, as in the paper, and arguments as typed.

    Example:
        >>> display_name("lssvm(kernel=rbf(scale=1),normalize)+iam+psm")
        'LSSVM(kernel=rbf(scale=1),normalize)+IAM+PSM'
    """
    parts = parse(method)
    return "+".join(part.name.upper() + str(part).removeprefix(part.name) for part in parts)


def full_name(row: Row, rows: Sequence[Row]) -> str:
    """The method of a row, with its run where the rows are of several."""
    return _of_run(row.method, row.run, rows)


def reference_name(row: Row, rows: Sequence[Row]) -> str:
    """The name of a row's reference, in the same way."""
    return _of_run(row.reference or "", row.reference_run or "", rows)


def _of_run(method: str, run: str, rows: Sequence[Row]) -> str:
    name = display_name(method)
    return f"{name} of {printable(run)}" if several_runs(rows) else name


def number(value: float | None, ci95: float | None) -> str:
    """A number with its interval, as far as known.

    Example:
        >>> number(62.849, 0.84), number(3.0, None), number(None, None)
        ('62.85 ± 0.84', '3.00', '–')
    """
    if value is None:
        return NOTHING
    value = round(value, 2) + 0.0  # no sign on a zero
    return f"{_short(value)} ± {_short(ci95)}" if ci95 else _short(value)


def signed(value: float | None, ci95: float | None) -> str:
    """The same of a difference.

    Example:
        >>> signed(3.1, 0.4), signed(-0.001, 0.4), signed(0.0, 0.0)
        ('+3.10 ± 0.40', '0.00 ± 0.40', '0.00')
    """
    return f"+{number(value, ci95)}" if value is not None and round(value, 2) > 0 else number(value, ci95)


def share(points: float | None) -> str:
    """A mean error of classes' shares, in points, as far as known."""
    return NOTHING if points is None else f"{points:.1f}"


def close(text: str) -> str:
    """A number with its interval in less space, for narrow terminals."""
    return text.replace(" ± ", "±")


def _short(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 1e6 else f"{value:.2e}"  # percents are smaller


def listed(names: Sequence[str], most: int = 4) -> str:
    """Names in a sentence, at most so many of them.

    Example:
        >>> listed(["NN"]), listed(["NN", "RR", "SVM"]), listed(["NN", "RR", "SVM", "LSSVM"], most=2)
        ('NN', 'NN, RR and SVM', 'NN, RR and 2 others')
    """
    if len(names) > most + 1:
        names = [*names[:most], f"{len(names) - most} others"]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))

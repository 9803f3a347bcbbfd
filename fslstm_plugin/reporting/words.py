"""Names and numbers as tables and sentences write them."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import printable
from ..evaluation.rows import Row
from ..grammar import parse
from .groups import several_runs

NOTHING = "–"

_WRITTEN_OUT = 1e6  # Percents are smaller; other numbers would fill the line.


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


def close(text: str) -> str:
    """A number with its interval in less space, for narrow terminals."""
    return text.replace(" ± ", "±")


def _short(value: float) -> str:
    return f"{value:.2f}" if abs(value) < _WRITTEN_OUT else f"{value:.2e}"


def listed(names: Sequence[str], most: int = 4) -> str:
    """Names in a sentence, at most so many of them.

    Example:
        >>> listed(["NN"]), listed(["NN", "RR", "SVM"]), listed(["NN", "RR", "SVM", "LSSVM"], most=2)
        ('NN', 'NN, RR and SVM', 'NN, RR and 2 others')
    """
    if len(names) > most + 1:
        names = [*names[:most], f"{len(names) - most} others"]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))

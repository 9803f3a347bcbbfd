"""Tables of what is evaluated besides accuracy: calibration, prediction sets, unknown classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ..confidence.conformal import MARGINAL, PER_CLASS
from ..errors import count_of
from ..evaluation.calibration import CalibrationRow
from ..evaluation.coverage import CoverageRow
from ..evaluation.open_set import OpenRow
from .terminal import plain_table
from .words import close, display_name, number

Columns = dict[str, Callable[[Any], str]]  # The names of numbers, and their texts in a row.


def calibration_table(rows: Sequence[CalibrationRow]) -> RenderableType:
    """How good probabilities are, before and after the temperature."""
    reasons = sorted({row.uncalibrated for row in rows if row.uncalibrated is not None})
    columns: Columns = {
        "ECE": lambda row: f"{row.before.ece:.2f}→{row.after.ece:.2f}",
        "Brier": lambda row: f"{row.before.brier:.3f}→{row.after.brier:.3f}",
        "NLL": lambda row: f"{row.before.nll:.3f}→{row.after.nll:.3f}",
    }
    if reasons:
        columns["calibrated"] = lambda row: "yes" if row.uncalibrated is None else "no"
    note = (
        "Probabilities before and after the temperature that each support chooses: labelled points are left out "
        "through the whole method, as further queries. ECE: expected calibration error in percent, 15 bins. NLL: "
        "negative log-likelihood."
    )
    return _table("Calibration", columns, rows, " ".join([note, *(f"Uncalibrated: {reason}." for reason in reasons)]))


def coverage_table(rows: Sequence[CoverageRow]) -> RenderableType:
    """How often prediction sets contain the true label, and how large they are."""
    columns: Columns = {
        "guaranteed": lambda row: f"{row.guaranteed:.1f}",
        "covered": lambda row: close(number(row.covered, row.ci95)),
        "labels": lambda row: f"{row.size:.2f}",
        "one label": lambda row: f"{row.singletons:.1f}",
    }
    kind = rows[0].kind
    holds = {
        PER_CLASS: "for each class",
        MARGINAL: "where labelled images and queries are drawn alike, and not exactly with a fixed number per class, "
        "as here",
    }[kind]
    note = (
        f"In percent, except the mean size. The coverage guarantee ({kind}) holds {holds}. With n labelled "
        "images, of a class or together, coverage goes in steps of 1/(n + 1), and the guarantee is rounded up to the "
        "next one."
    )
    return _table(f"Prediction sets at coverage {rows[0].asked:g} %", columns, rows, note)


def open_table(rows: Sequence[OpenRow]) -> RenderableType:
    """How well unknown classes are detected."""
    columns: Columns = {
        "score": lambda row: row.score,
        "AUROC": lambda row: close(number(row.auroc, row.auroc_ci95)),
        "accuracy": lambda row: close(number(row.accuracy, row.accuracy_ci95)),
        "refused": lambda row: close(number(row.refused, row.refused_ci95)),
    }
    note = (
        "In percent. AUROC: pairs of a known and an unknown query that the score ranks correctly. The other columns "
        "accept the best 95 % of each episode's known queries: how many of these are correctly predicted, and how "
        "many unknown ones are refused."
    )
    return _table(f"Queries of {count_of(rows[0].open_ways, 'unknown class')} among the others", columns, rows, note)


TABLES: dict[str, Callable[[Sequence[Any]], RenderableType]] = {
    "calibration": calibration_table,
    "coverage": coverage_table,
    "open": open_table,
}


def _table(
    title: str, columns: Columns, rows: Sequence[CalibrationRow | CoverageRow | OpenRow], note: str
) -> RenderableType:
    """A table whose first columns are method and shots, as narrow as the table of accuracies above it."""
    numbers: Columns = {"shots": lambda row: str(row.shots), **columns}
    table = plain_table()
    table.add_column("method", overflow="fold", min_width=6)
    for name in numbers:
        table.add_column(name, justify="left" if name == "score" else "right", no_wrap=True)
    for row in rows:
        table.add_row(Text(display_name(row.method)), *(Text(text(row)) for text in numbers.values()))
    return Group(Text(""), Text(title, style="bold"), table, Text(note, style="dim"))

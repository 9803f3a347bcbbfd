"""Tables of what is evaluated besides accuracy: calibration, prediction sets, unknown classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..confidence.conformal import MARGINAL, PER_CLASS
from ..errors import printable
from ..evaluation.calibration import CalibrationRow
from ..evaluation.coverage import CoverageRow
from ..evaluation.open_set import OpenRow
from .words import display_name, number


def calibration_table(rows: Sequence[CalibrationRow]) -> RenderableType:
    """How good probabilities are, before and after the temperature."""
    reasons = sorted({row.uncalibrated for row in rows if row.uncalibrated is not None})

    def cells(row: CalibrationRow) -> list[str]:
        pairs = [
            f"{row.before.ece:.2f}→{row.after.ece:.2f}",
            f"{row.before.brier:.3f}→{row.after.brier:.3f}",
            f"{row.before.nll:.3f}→{row.after.nll:.3f}",
        ]
        calibrated = ["yes" if row.uncalibrated is None else "no"] if reasons else []
        return [*_names(row), f"{row.accuracy:.2f}", *pairs, *calibrated]

    note = (
        "Probabilities before and after the temperature that each support chooses: labelled points are left out "
        "through the whole method, as further queries. ECE: expected calibration error in percent, 15 bins. NLL: "
        "negative log-likelihood."
    )
    note = " ".join([note, *(f"Uncalibrated: {reason}." for reason in reasons)])
    columns = ["accuracy", "ECE", "Brier", "NLL", *(["calibrated"] if reasons else [])]
    return _table("Calibration", columns, [cells(row) for row in rows], note)


def coverage_table(rows: Sequence[CoverageRow]) -> RenderableType:
    """How often prediction sets contain the true label, and how large they are."""

    def cells(row: CoverageRow) -> list[str]:
        return [
            *_names(row),
            f"{row.guaranteed:.1f}",
            _close(number(row.covered, row.ci95)),
            f"{row.size:.2f}",
            f"{row.singletons:.1f}",
        ]

    kind = rows[0].kind
    holds = {
        PER_CLASS: "for each class",
        MARGINAL: "where labelled images and queries are drawn alike, and not exactly with a fixed number per class, "
        "as here",
    }[kind]
    note = f"Percent of the sets, but for their mean size. The coverage guarantee ({kind}) holds {holds}."
    return _table(
        f"Prediction sets at coverage {rows[0].asked:g} %",
        ["guaranteed", "covered", "labels", "one label"],
        [cells(row) for row in rows],
        note,
    )


def open_table(rows: Sequence[OpenRow]) -> RenderableType:
    """How well unknown classes are detected."""

    def cells(row: OpenRow) -> list[str]:
        values = ((row.auroc, row.auroc_ci95), (row.accuracy, row.accuracy_ci95), (row.refused, row.refused_ci95))
        return [*_names(row), row.score, *(_close(number(*value)) for value in values)]

    note = (
        "Percent. AUROC: pairs of a known and an unknown query that the score puts in order. Then with the best 95 % "
        "of each episode's known queries accepted: how many of these are correctly predicted, and how many "
        "unknown ones are refused."
    )
    return _table(
        f"Queries of {rows[0].open_ways} unknown classes among the others",
        ["score", "AUROC", "accuracy", "refused"],
        [cells(row) for row in rows],
        note,
    )


TABLES: dict[str, Callable[[Sequence[Any]], RenderableType]] = {
    "calibration": calibration_table,
    "coverage": coverage_table,
    "open": open_table,
}


def _names(row: CalibrationRow | CoverageRow | OpenRow) -> list[str]:
    return [printable(row.run), display_name(row.method), str(row.shots)]


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], note: str) -> RenderableType:
    """A table whose first columns are run, method and shots; the run is left out where there is only one."""
    several = len({row[0] for row in rows}) > 1
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ["run", "method"][not several :]:
        table.add_column(name, overflow="fold", min_width=6)
    for name in ("shots", *columns):
        table.add_column(name, justify="left" if name == "score" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row[not several :]))
    return Group(Text(""), Text(title, style="bold"), table, Text(note, style="dim"))


def _close(text: str) -> str:
    return text.replace(" ± ", "±")

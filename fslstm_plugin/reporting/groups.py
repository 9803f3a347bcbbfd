"""Rows that belong together, and the best of them."""

from __future__ import annotations

from collections.abc import Sequence

from ..evaluation.rows import Row


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

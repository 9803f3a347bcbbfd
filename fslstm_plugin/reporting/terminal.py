"""Rows as a table for the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ..errors import printable
from ..evaluation.rows import Row
from .captions import columns, notes, title
from .words import NOTHING, by_method, by_shots, close, display_name, is_marked, several_runs

BEST_MARK = "*"


class ResultsTable:
    """Methods down and shots across where the terminal is wide enough, else a section for each number of shots.

    Below it are how to read it, and further notes on what was measured.
    """

    def __init__(self, rows: Sequence[Row], further: Sequence[str] = ()) -> None:
        self.rows, self.further = rows, further
        self.several_runs, self.any_transductive = several_runs(rows), any(row.transductive for row in rows)
        self.columns = {name: text for name, text in columns(rows).items() if not name.startswith("gain")}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """What `rich.console.Console.print` shows."""
        table = self._across()
        if Measurement.get(console, options.update(width=10**6), table).maximum > options.max_width:
            table = self._sections()
        yield Text(title(self.rows), style="bold")
        yield table
        yield Text(" ".join(notes(self.rows, BEST_MARK, "T")), style="dim")
        yield from map(Text, self.further)

    def _across(self) -> Table:
        table = self._table()
        groups = by_shots(self.rows)
        for shots in groups:
            self._add_numbers(table, f"{shots}-shot")
        empty = [Text(NOTHING)] * len(self.columns)
        for line in by_method(self.rows):
            first = next(iter(line.values()))
            numbers = (self._numbers(line[shots]) if shots in line else empty for shots in groups)
            table.add_row(*self._names(first), *(cell for cells in numbers for cell in cells))
        return table

    def _sections(self) -> Table:
        table = self._table()
        table.add_column("shots", justify="right", no_wrap=True)
        self._add_numbers(table, "accuracy")
        for shots, group in by_shots(self.rows).items():
            for row in group:
                table.add_row(*self._names(row), str(shots), *self._numbers(row))
            table.add_section()
        return table

    def _table(self) -> Table:
        table = plain_table()
        if self.several_runs:
            table.add_column("run", overflow="fold", min_width=6)
        table.add_column("method", overflow="fold", min_width=6)
        if self.any_transductive:
            table.add_column("T", no_wrap=True)
        return table

    def _add_numbers(self, table: Table, over: str) -> None:
        for name in (f" {over} % ", *list(self.columns)[1:]):
            table.add_column(name, justify="right", no_wrap=True)

    def _names(self, row: Row) -> list[Text]:
        run = [Text(printable(row.run))] if self.several_runs else []
        marks = [Text("T" if row.transductive else "")] if self.any_transductive else []
        return [*run, Text(display_name(row.method)), *marks]

    def _numbers(self, row: Row) -> list[Text]:
        accuracy, *others = (close(text(row)) for text in self.columns.values())
        marked = is_marked(row, self.rows)
        first = Text(f"{accuracy}{BEST_MARK}", style="bold") if marked else Text(f"{accuracy} ")
        return [first, *map(Text, others)]


def plain_table() -> Table:
    """A table without columns yet, as narrow as can be."""
    return Table(box=SIMPLE_HEAD, show_edge=False, padding=0, pad_edge=False)


def running_table(methods: Sequence[str], accuracies: Mapping[int, Sequence[float]]) -> Table:
    """Interim results: for each number of shots a column of the methods' means in percent, NaN where not known yet."""
    table = Table("Method", *(f"{shots}-shot so far" for shots in accuracies))
    for name, means in zip(methods, zip(*accuracies.values(), strict=True), strict=True):
        table.add_row(display_name(name), *(NOTHING if math.isnan(mean) else f"{mean:.2f}" for mean in means))
    return table

"""Rows as a table for the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ..errors import printable
from ..evaluation.rows import Row
from .captions import notes, seconds_text, shares_text, shows_shares, title, to_best_text
from .groups import are_compared, by_method, by_shots, is_among_best, several_runs
from .words import NOTHING, display_name, method_name, number

BEST_MARK = "*"


class ResultsTable:
    """Methods down and shots across where the terminal is wide enough, else a section for each number of shots.

    Args:
        rows: The rows.
        more: Notes on what was measured, in sentences. Default none.
    """

    def __init__(self, rows: Sequence[Row], more: Sequence[str] = ()) -> None:
        self.rows, self.more = rows, more
        self.several_runs = several_runs(rows)
        self.compared = are_compared(rows)
        self.columns: list[tuple[str, Callable[[Row], Text]]] = [("% ", self._accuracy)]
        if self.compared:
            self.columns.append(("to the best", lambda row: Text(_close(to_best_text(row)))))
        if shows_shares(rows):
            self.columns.append(("shares", lambda row: Text(shares_text(row))))
        if any(row.seconds is not None for row in rows):
            self.columns.append(("s/10k", lambda row: Text(seconds_text(row))))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """What `rich.console.Console.print` shows."""
        table = self._across()
        if Measurement.get(console, options.update(width=10**6), table).maximum > options.max_width:
            table = self._sections()
        yield Text(title(self.rows), style="bold")
        yield table
        yield Text(" ".join(notes(self.rows, BEST_MARK, "T")), style="dim")
        yield from map(Text, self.more)

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
        table = Table(box=SIMPLE_HEAD, show_edge=False, padding=0, pad_edge=False)
        if self.several_runs:
            table.add_column("run", overflow="fold", min_width=6)
        table.add_column("method", overflow="fold", min_width=6)
        table.add_column("T", no_wrap=True)
        return table

    def _add_numbers(self, table: Table, over: str) -> None:
        (first, _), *others = self.columns
        for name in (f" {over} {first}", *(name for name, _ in others)):
            table.add_column(name, justify="right", no_wrap=True)

    def _names(self, row: Row) -> list[Text]:
        run = [Text(printable(row.run))] if self.several_runs else []
        return [*run, Text(method_name(row)), Text("T" if row.transductive else "")]

    def _numbers(self, row: Row) -> list[Text]:
        return [text(row) for _, text in self.columns]

    def _accuracy(self, row: Row) -> Text:
        text = _close(number(row.accuracy, row.ci95))
        marked = self.compared and is_among_best(row)
        return Text(f"{text}{BEST_MARK}", style="bold") if marked else Text(f"{text} ")


def _close(text: str) -> str:
    """A number with its interval in less space, for narrow terminals."""
    return text.replace(" ± ", "±")


def running_table(methods: Sequence[str], accuracies: Mapping[int, Sequence[float]]) -> Table:
    """Interim results: a column of mean accuracies for each number of shots.

    Args:
        methods: Names of the methods.
        accuracies: For each number of shots, one mean per method in percent; NaN where not known yet.
    """
    table = Table("Method", *(f"{shots}-shot so far" for shots in accuracies))
    for name, means in zip(methods, zip(*accuracies.values(), strict=True), strict=True):
        table.add_row(display_name(name), *(NOTHING if math.isnan(mean) else f"{mean:.2f}" for mean in means))
    return table

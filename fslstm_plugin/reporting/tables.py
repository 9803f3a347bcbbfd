"""Rows as a table for the terminal, JSON, CSV and LaTeX."""

from __future__ import annotations

import csv
import html
import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType
from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ..errors import printable
from ..evaluation.calibration import CalibrationRow
from ..evaluation.coverage import CoverageRow
from ..evaluation.open_set import OpenRow
from ..evaluation.rows import Row
from ..grammar import value_text
from ..storage.plain import to_plain
from .groups import are_compared, by_method, by_shots, is_among_best, several_runs
from .statements import statements
from .words import NOTHING, display_name, listed, method_name, number, signed

TASKS = 10_000  # The paper reports the time for so many tasks.

BEST_MARK = "*"

_LATEX = {
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "ρ": "$\\rho$",
    "λ": "$\\lambda$",
    "±": "$\\pm$",
    "∞": "$\\infty$",
    "–": "--",
    "†": "$^\\dagger$",
}
_LATEX |= {letter: f"\\{letter}" for letter in "&%$#_{}"}
_LATEX |= {letter: f"${letter}$" for letter in "<>|"}
_LATEX |= {letter: f"{{{letter}}}" for letter in "[]*"}  # after a line end they would be read as its argument


# What the rows have in common.


def title(rows: Sequence[Row]) -> str:
    """The run, the images and the episodes, in one line."""
    runs = list(dict.fromkeys(row.run for row in rows))
    return f"{printable(runs[0])}: {setting(rows)}" if len(runs) == 1 else setting(rows)


def setting(rows: Sequence[Row]) -> str:
    """The images and the episodes."""
    row = rows[0]
    backbones = listed(list(dict.fromkeys(row.backbone for row in rows)))
    queries = "1 query" if row.queries == 1 else f"{row.queries} queries"
    balance = "" if row.query_balance == "uniform" else f" on average ({row.query_balance})"
    return printable(
        f"{row.dataset} {row.split}, {backbones}, {row.ways}-way, {queries} per class{balance}, "
        f"{row.episodes:,} episodes, seed {row.seed}"
    )


def notes(rows: Sequence[Row], best: str, transductive: str) -> list[str]:
    """How to read the rows.

    Args:
        rows: The rows.
        best: How the table marks the best.
        transductive: How it marks what is transductive.
    """
    intervals = listed(list(dict.fromkeys(row.interval for row in rows)))
    words = [f"Accuracy in percent with 95 % interval over {intervals}."]
    if are_compared(rows):
        words.append(
            f"{best}: best or within noise of it. Intervals of differences, and what is said of them, hold for all "
            "pairs of rows of this table at once; that of an accuracy holds alone."
        )
    if any(row.transductive for row in rows):
        words.append(f"{transductive}: transductive, uses the other queries.")
    if shows_shares(rows):
        words.append("shares: mean absolute error of the classes' shares in the predictions, in points.")
    if any(row.seconds is not None for row in rows):
        words.append(f"s/10k: seconds for {TASKS:,} episodes from features.")
    often = iterations(rows)
    return [*words, f"{often}."] if often else words


def iterations(rows: Sequence[Row]) -> str:
    """Iterations of the modules whose names do not say them; empty if there are none."""
    counts = {
        row.modules[-1]: row.iterations
        for row in rows
        if row.iterations is not None and row.modules and row.method.endswith(f"+{row.modules[-1]}")
    }
    return ", ".join(f"{count} iterations of {name.upper()}" for name, count in counts.items())


def shows_shares(rows: Sequence[Row]) -> bool:
    """Whether the rows have errors of class shares from a transductive method."""
    return any(row.transductive and row.share_error is not None for row in rows)


def shares_text(row: Row) -> str:
    """The error of the classes' shares, in points."""
    return NOTHING if row.share_error is None else f"{row.share_error:.1f}"


def seconds_text(row: Row) -> str:
    """Seconds for 10,000 episodes, to two digits.

    Example:
        >>> [_two_digits(value) for value in (0.735, 4.25, 92.75, 1510.0)]
        ['0.73', '4.2', '93', '1510']
    """
    return NOTHING if row.seconds is None else _two_digits(row.seconds * TASKS / row.episodes)


def _two_digits(value: float) -> str:
    return f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 9.95 else f"{value:.0f}"


def to_best_text(row: Row) -> str:
    """The difference to the best of the same episodes."""
    same = row.difference == 0 and row.difference_ci95 == 0
    return "best" if same else signed(row.difference, row.difference_ci95)


# The terminal.


def rich_table(rows: Sequence[Row], more: Sequence[str] = ()) -> ResultsTable:
    """A table for the terminal, with more notes below it than those on how to read it."""
    return ResultsTable(rows, more)


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


# Files.


class Results(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a JSON file of results holds.

    Args:
        command: The command as typed.
        version: Of the plugin.
        date: When, as ISO 8601.
        rows: The numbers.
        statements: Paired differences in words.
        notes: Further notes.
        calibration: Quality of the probabilities, if requested.
        coverage: Coverage and size of prediction sets, if requested.
        open: Detection of unknown classes, if requested.
    """

    command: str
    version: str
    date: str
    rows: Annotated[list[Row], Meta(min_length=1)]
    statements: list[str]
    notes: list[str] = []
    calibration: list[CalibrationRow] | UnsetType = UNSET
    coverage: list[CoverageRow] | UnsetType = UNSET
    open: list[OpenRow] | UnsetType = UNSET


def json_content(
    rows: Sequence[Row], command: str, version: str, date: str, notes: Sequence[str] = (), **further: Any
) -> dict[str, Any]:
    """Content of a JSON file of results, as plain data, see `Results`, whose last fields are the further ones."""
    results = Results(
        command=command,
        version=version,
        date=date,
        rows=list(rows),
        statements=statements(rows),
        notes=list(notes),
        **further,
    )
    return dict(to_plain(results))


def csv_text(rows: Sequence[Row]) -> str:
    """Every field of every row; lists are joined by ``+``, options are as typed."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, Row.__struct_fields__, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _csv_cell(value) for name, value in to_plain(row).items()} for row in rows)
    return buffer.getvalue()


def _csv_cell(value: Any) -> Any:
    if isinstance(value, dict):
        return ",".join(f"{name}={value_text(each)}" for name, each in value.items())
    return "+".join(value) if isinstance(value, list) else value


def latex_number(text: str) -> str:
    """The output of `number` and `signed`, for LaTeX."""
    return "--" if text == NOTHING else f"${text.replace('±', chr(92) + 'pm')}$"


def latex_escape(text: str) -> str:
    r"""Text for LaTeX, in one line.

    Example:
        >>> print(latex_escape("a_b & [5 %]"))
        a\_b \& {[}5 \%{]}
    """
    return "".join(_LATEX.get(letter, letter) for letter in printable(text))


def markdown_escape(text: str) -> str:
    r"""Text for a cell of a Markdown table, in one line, with all Markdown and HTML escaped.

    Example:
        >>> print(markdown_escape("<b>|_x_"))
        &lt;b&gt;&#124;\_x\_
    """
    escaped = "".join(f"\\{letter}" if letter in "\\`*_[]~" else letter for letter in printable(text))
    return html.escape(escaped, quote=False).replace("|", "&#124;")


def latex_text(rows: Sequence[Row], more: Sequence[str] = ()) -> str:
    r"""A floating table: methods down, shots across; bold what is the best or within noise of it; notes below.

    Needs ``\usepackage{booktabs}``.

    Args:
        rows: The rows.
        more: See `ResultsTable`.
    """
    groups = by_shots(rows)
    several, compared, shares = several_runs(rows), are_compared(rows), shows_shares(rows)

    def cells(row: Row | None) -> list[str]:
        if row is None:
            return [latex_number(NOTHING)] * (2 if shares else 1)
        text = latex_number(number(row.accuracy, row.ci95))
        text = f"$\\mathbf{{{text.strip('$')}}}$" if compared and is_among_best(row) else text
        return [text, latex_number(shares_text(row))] if shares else [text]

    def line(of_method: dict[int, Row]) -> str:
        row = next(iter(of_method.values()))
        name = latex_escape(f"{method_name(row)}{'†' if row.transductive else ''}")
        run = [latex_escape(row.run)] if several else []
        numbers = [text for shots in groups for text in cells(of_method.get(shots))]
        return " & ".join([*run, name, *numbers]) + " \\\\"

    first = rows[0]
    features = "" if several else f", features of the run {printable(first.run)}"
    caption = f"Few-shot classification on {setting(rows)}{features}."
    remarks = [*(words for words in notes(rows, "Bold", "†") if "s/10k" not in words), *more]
    names = [*(["Run"] if several else []), "Method"]
    columns = [name for shots in groups for name in (f"{first.ways}-way {shots}-shot", *(["shares"] if shares else []))]
    return "\n".join(
        [
            "% Needs \\usepackage{booktabs}.",
            "\\begin{table}",
            "\\centering",
            f"\\caption{{{latex_escape(caption)}}}",
            f"\\label{{tab:{_label(first)}}}",
            f"\\begin{{tabular}}{{{'l' * len(names)}{'c' * len(columns)}}}",
            "\\toprule",
            " & ".join([*names, *columns]) + " \\\\",
            "\\midrule",
            *map(line, by_method(rows)),
            "\\bottomrule",
            "\\end{tabular}",
            "",
            "\\smallskip",
            *(f"{{\\footnotesize {latex_escape(words)}\\par}}" for words in remarks),
            "\\end{table}",
            "",
        ]
    )


def _label(row: Row) -> str:
    """A label in characters that every LaTeX accepts."""
    words = f"{row.dataset}-{row.split}-{row.backbone}"
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in words)

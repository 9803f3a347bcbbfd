"""Rows as a Rich table, JSON, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby

from rich.table import Table

from ..evaluation.experiment import Row

TASKS = 10_000  # The paper reports the time for so many tasks.

NOTHING = "–"

_LATEX = {
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "ρ": "$\\rho$",
    "λ": "$\\lambda$",
}
_LATEX |= {letter: f"\\{letter}" for letter in "&%$#_{}"}


def method_name(row: Row) -> str:
    """Head and modules as the paper writes them, options as they are typed.

    Example:
        >>> display_name("lssvm(ridge=10)+iam+psm")
        'LSSVM(ridge=10)+IAM+PSM'
    """
    return display_name(row.method)


def display_name(label: str) -> str:
    """A method's label with heads and modules in capitals."""
    return re.sub(r"\([^)]*\)|[^(]+", lambda part: part[0] if part[0].startswith("(") else part[0].upper(), label)


def number(value: float | None, ci95: float | None) -> str:
    """A number with its interval, as far as they are known."""
    if value is None:
        return NOTHING
    value = round(value, 2) + 0.0  # no sign on a zero
    return f"{value:.2f} ± {ci95:.2f}" if ci95 else f"{value:.2f}"


def signed(value: float | None, ci95: float | None) -> str:
    """The same of a difference.

    Example:
        >>> signed(3.1, 0.4), signed(-0.001, 0.4), signed(0.0, 0.0)
        ('+3.10 ± 0.40', '0.00 ± 0.40', '0.00')
    """
    return f"+{number(value, ci95)}" if value is not None and round(value, 2) > 0 and ci95 else number(value, ci95)


def latex_number(text: str) -> str:
    """What :func:`number` and :func:`signed` give, for LaTeX."""
    return "--" if text == NOTHING else f"${text.replace('±', chr(92) + 'pm')}$"


def latex_escape(text: str) -> str:
    r"""Text for LaTeX.

    Example:
        >>> print(latex_escape("a_b & 5 %"))
        a\_b \& 5 \%
    """
    return "".join(_LATEX.get(letter, letter) for letter in text)


def _columns(rows: Sequence[Row]) -> list[tuple[str, Callable[[Row], str]]]:
    return [
        ("Method", method_name),
        ("Transd.", lambda row: "yes" if row.transductive else "no"),
        ("Shots", lambda row: str(row.shots)),
        ("Accuracy %", lambda row: f"{row.accuracy:.2f} ± {row.ci95:.2f}"),
        (
            "To the best",
            lambda row: f"{row.difference:+.2f} ± {row.difference_ci95:.2f}" if row.difference_ci95 else "best",
        ),
        ("s / 10k", lambda row: f"{row.seconds * TASKS / row.episodes:.1f}"),
    ]


def title(rows: Sequence[Row]) -> str:
    """What the rows have in common, in one line."""
    row = rows[0]
    queries = f"{row.queries} queries a class"
    if row.query_balance != "uniform":
        queries += f" on average ({row.query_balance})"
    intervals = ", 95 % intervals over classes" if row.interval == "classes" else ""
    often = iterations((row.modules, row.iterations) for row in rows)
    return (
        f"{row.dataset} {row.split}, {row.backbone}, {row.ways}-way, {queries}, "
        f"{row.episodes:,} episodes, seed {row.seed}{often}{intervals}"
    )


def iterations(found: Iterable[tuple[Sequence[str], int | None]]) -> str:
    """How often the modules refit whose names do not say it; empty if there are none.

    Args:
        found: Modules of each method, and the iterations of the last.

    Example:
        >>> iterations([(["iam"], None), (["iam", "psm"], 10)])
        ', 10 iterations of PSM'
    """
    counts = {modules[-1]: count for modules, count in found if count is not None}
    return "".join(f", {count} iterations of {name.upper()}" for name, count in counts.items() if "(" not in name)


def rich_table(rows: Sequence[Row]) -> Table:
    """A table for the terminal, a section for each number of shots; it fits into 80 columns."""
    caption = f"Transd.: predictions depend on the other queries. s / 10k: seconds for {TASKS:,} tasks, from features."
    table = Table(title=title(rows), title_justify="left", caption=caption, caption_justify="left")
    columns = _columns(rows)
    for name, _ in columns:
        first = name == "Method"
        table.add_column(name, justify="left" if first else "right", no_wrap=not first, overflow="fold")
    for _, group in groupby(rows, key=lambda row: row.shots):
        for row in group:
            table.add_row(*(value(row) for _, value in columns))
        table.add_section()
    return table


def running_table(methods: Sequence[str], accuracies: Mapping[int, Sequence[float]]) -> Table:
    """What is known while episodes still run: a column of mean accuracies for each number of shots.

    Args:
        methods: Labels of the methods.
        accuracies: For each number of shots, one mean a method in percent.
    """
    table = Table("Method", *(f"{shots}-shot so far" for shots in accuracies))
    for name, means in zip(methods, zip(*accuracies.values(), strict=True), strict=True):
        table.add_row(display_name(name), *(f"{mean:.2f}" for mean in means))
    return table


def csv_text(rows: Sequence[Row]) -> str:
    """Every field of every row."""
    buffer = io.StringIO()
    fields = list(rows[0].as_dict())
    writer = csv.DictWriter(buffer, fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows({**row.as_dict(), "modules": "+".join(row.modules)} for row in rows)
    return buffer.getvalue()


def latex_text(rows: Sequence[Row]) -> str:
    r"""A booktabs table: methods down, shots across, the best of each column in bold.

    Needs ``\usepackage{booktabs}``.
    """
    shots = sorted({row.shots for row in rows})
    cells = {(method_name(row), row.shots): row for row in rows}
    methods = list(dict.fromkeys(method_name(row) for row in rows))
    best = {count: max(row.accuracy for row in rows if row.shots == count) for count in shots}

    def cell(method: str, count: int) -> str:
        row = cells.get((method, count))
        text = latex_number(number(row.accuracy, row.ci95) if row else NOTHING)
        return f"$\\mathbf{{{text.strip('$')}}}$" if row and row.accuracy == best[count] else text

    lines = [
        f"% {title(rows)}",
        f"\\begin{{tabular}}{{l{'c' * len(shots)}}}",
        "\\toprule",
        " & ".join(["Method", *(f"{rows[0].ways}-way {count}-shot" for count in shots)]) + " \\\\",
        "\\midrule",
        *(
            " & ".join([latex_escape(method), *(cell(method, count) for count in shots)]) + " \\\\"
            for method in methods
        ),
        "\\bottomrule",
        "\\end{tabular}",
    ]
    return "\n".join(lines) + "\n"

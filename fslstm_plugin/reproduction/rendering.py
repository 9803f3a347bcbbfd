"""A reproduction's table as Markdown, LaTeX, CSV and JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, TypeAlias

from ..reporting.figures.lines import Point
from ..reporting.statements import statement
from ..reporting.tables import display_name
from .comparison import Cell, Line
from .specification import Specification

_NOTHING = "–"


def markdown(specification: Specification, lines: Sequence[Line], measured: Sequence[dict[str, Any]]) -> str:
    """The table with what it is based on, and what the paired differences say."""
    published = specification.published()
    text = [f"# {specification.title}", ""]
    if published["values"]:
        text += [f"Published: {published['source']} {published['training']}", ""]
    text += [
        "Accuracy in percent with 95 % interval. *Difference* is ours less the published; it is in **bold** where it "
        "lies within both intervals. The training of our models is named by letters, explained below the tables.",
        "",
    ]
    letters = _letters(lines)
    for (dataset, backbone), group in groupby(lines, key=lambda line: (line.dataset, line.backbone)):
        text += [f"## {dataset}, {backbone}", "", *_markdown_table(list(group), letters, specification.times), ""]
    text += ["## Training of our models", ""]
    text += [f"* **{letter}** ({scale}): {training}" for (training, scale), letter in letters.items()] or ["* not run"]
    text += _said(measured) + sources(measured)
    return "\n".join(text) + "\n"


def _letters(lines: Iterable[Line]) -> dict[tuple[str, str], str]:
    trained = dict.fromkeys((line.training, line.scale) for line in lines if line.training)
    return {key: chr(ord("A") + number) for number, key in enumerate(trained)}


def _markdown_table(lines: list[Line], letters: dict[tuple[str, str], str], times: bool) -> list[str]:
    shots = sorted({count for line in lines for count in line.cells})
    columns: list[tuple[str, Callable[[Cell], str]]] = [
        ("published", lambda cell: number(cell.published, cell.published_ci95)),
        ("ours", lambda cell: number(cell.ours, cell.ours_ci95)),
        ("difference", _difference),
    ]
    if times:
        columns += [
            ("published s / 10k", lambda cell: _seconds(cell.published_seconds)),
            ("ours s / 10k", lambda cell: _seconds(cell.ours_seconds)),
        ]
    heads = ["method", "training", *(f"{count}-shot {name}" for count in shots for name, _ in columns)]
    rows = [f"| {' | '.join(heads)} |", f"| --- | --- |{' ---: |' * (len(heads) - 2)}"]
    for line in lines:
        trained = "published only" if line.rival else letters.get((line.training, line.scale), "not run")
        cells = [value(line.cells.get(count, Cell())) for count in shots for _, value in columns]
        rows.append(f"| {line.method} | {trained} | {' | '.join(cells)} |")
    return rows


def number(value: float | None, ci95: float | None) -> str:
    """A number with its interval, as far as they are known."""
    if value is None:
        return _NOTHING
    return f"{value:.2f} ± {ci95:.2f}" if ci95 else f"{value:.2f}"


def _difference(cell: Cell) -> str:
    if cell.difference is None:
        return _NOTHING
    text = f"{cell.difference:+.2f}"
    return f"**{text}**" if cell.within else text


def _seconds(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.0f}"


def _said(measured: Sequence[dict[str, Any]]) -> list[str]:
    """The paired differences of the measurements in words."""
    text = []
    for training, group in groupby(measured, key=lambda each: each["training"]):
        sentences = [
            statement(
                display_name(each["method"]), display_name(each["reference"]), each["shots"], each["gain"],
                each["gain_ci95"],
            )
            for each in group
            if each["reference"] is not None
        ]  # fmt: skip
        if sentences:
            text += ["", f"### {training}", "", *(f"* {sentence}" for sentence in sentences)]
    return ["", "## Paired differences on the same episodes", *text[0:]] if text else []


def trained(measured: Iterable[dict[str, Any]]) -> list[str]:
    """What the models of measurements were trained with."""
    words = dict.fromkeys(f"* {each['run']}: {each['training']}" for each in measured)
    return ["", "## Training of the models", "", *words]


def markdown_grid(points: Sequence[Point], x_label: str) -> list[str]:
    """Series down, places across."""
    places, rows = grid(points)
    lines = [f"| {x_label} | {' | '.join(places)} |", f"| --- |{' ---: |' * len(places)}"]
    return lines + [f"| {name} | {' | '.join(number(*cell) for cell in cells)} |" for name, cells in rows]


def latex_grid(points: Sequence[Point], x_label: str) -> list[str]:
    """The same with booktabs."""
    places, rows = grid(points)
    return [
        f"\\begin{{tabular}}{{l{'c' * len(places)}}}",
        "\\toprule",
        f"{x_label} & {' & '.join(places)} \\\\",
        "\\midrule",
        *(f"{_escape(name)} & {' & '.join(_math(*cell) for cell in cells)} \\\\" for name, cells in rows),
        "\\bottomrule",
        "\\end{tabular}",
    ]


Cells: TypeAlias = "list[tuple[float | None, float | None]]"


def grid(points: Sequence[Point]) -> tuple[list[str], list[tuple[str, Cells]]]:
    """Names of the places, and for each series its number and interval at each of them."""
    places = list(dict.fromkeys(point.x for point in points))
    if not any(isinstance(place, str) for place in places):
        places.sort(key=float)
    found: dict[tuple[str, float | str], tuple[float | None, float | None]] = {
        (point.series, point.x): (point.y, point.ci95) for point in points
    }
    names = dict.fromkeys(point.series for point in points)
    rows = [(name, [found.get((name, place), (None, None)) for place in places]) for name in names]
    return [place if isinstance(place, str) else f"{place:g}" for place in places], rows


def sources(measured: Iterable[dict[str, Any]]) -> list[str]:
    """Where measurements come from: command, commit, seed, hardware and date."""
    text = []
    for each in measured:
        where = each["provenance"]
        line = (
            f"* `{where['command']}` at commit {where['commit']} on {where['date']}, seed {each['seed']}, "
            f"scale: {where['scale']}; {where['hardware']}"
        )
        if line not in text:
            text.append(line)
    return ["", "## Measured with", "", *text] if text else []


def latex(specification: Specification, lines: Sequence[Line]) -> str:
    r"""The same as a booktabs table, ours below the published. Needs ``\usepackage{booktabs}``."""
    shots = sorted({count for line in lines for count in line.cells})
    heads = ["Method", "Backbone", *(f"{count}-shot {name}" for count in shots for name in ("published", "ours"))]
    text = [f"% {specification.title}", f"\\begin{{tabular}}{{ll{'cc' * len(shots)}}}", "\\toprule"]
    text.append(" & ".join(heads) + " \\\\")
    for dataset, group in groupby(lines, key=lambda line: line.dataset):
        text += ["\\midrule", f"\\multicolumn{{{len(heads)}}}{{l}}{{{_escape(dataset)}}} \\\\"]
        for line in group:
            cells = [line.cells.get(count, Cell()) for count in shots]
            numbers = [
                _math(*pair)
                for cell in cells
                for pair in ((cell.published, cell.published_ci95), (cell.ours, cell.ours_ci95))
            ]
            comment = f" % {line.training} ({line.scale})" if line.training else ""
            text.append(f"{_escape(line.method)} & {_escape(line.backbone)} & {' & '.join(numbers)} \\\\{comment}")
    return "\n".join([*text, "\\bottomrule", "\\end{tabular}", ""])


def _math(value: float | None, ci95: float | None) -> str:
    if value is None:
        return "--"
    return f"${value:.2f} \\pm {ci95:.2f}$" if ci95 else f"${value:.2f}$"


def _escape(text: str) -> str:
    return text.replace("_", "\\_").replace("&", "\\&").replace("%", "\\%")


def csv_lines(rows: Sequence[dict[str, Any]]) -> str:
    """Flat dictionaries of the same keys as CSV; empty without rows."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()

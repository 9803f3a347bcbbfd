"""A reproduction's table as Markdown, LaTeX, CSV and JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from string import digits
from typing import Any, TypeAlias

from ..reporting.figures.lines import Lines, Point
from ..reporting.statements import statement
from ..reporting.tables import NOTHING, display_name, latex_escape, latex_number, number, signed
from .comparison import Cell, Line
from .specification import Specification

Table: TypeAlias = "tuple[list[str], list[list[str]]]"  # Names of the columns, and the rows.


def markdown(specification: Specification, lines: Sequence[Line], measured: Sequence[dict[str, Any]]) -> str:
    """The table with what it is based on, and what the paired differences say."""
    text = [f"# {specification.title}", ""]
    text += [f"{words}\n" for words in (published_by(specification), explanation(lines)) if words]
    letters = training_letters(lines)
    for heading, table in comparisons(lines, letters):
        text += [f"## {heading}", "", *markdown_table(*table), ""]
    text += ["## Training of our models", "", *(f"* {words}" for words in explained(letters) or ["not run"])]
    text += _said(measured, letters) + sources(measured)
    return "\n".join(text) + "\n"


def explanation(lines: Sequence[Line]) -> str:
    """How to read the tables."""
    words = ["Accuracy in percent with 95 % interval"]
    if any(cell.difference is not None for line in lines for cell in line.cells.values()):
        words.append("; the difference is ours less the published, with ✓ where it lies within both intervals")
    words.append(".")
    if any(line.training for line in lines):
        words.append(" The training of our models is named by letters, explained below the tables.")
    return "".join(words)


def published_by(specification: Specification) -> str:
    """Where the published numbers come from, and what their models were trained with; empty if there are none."""
    published = specification.published()
    return f"Published: {published['source']} {published['training']}" if published["values"] else ""


def comparisons(lines: Sequence[Line], letters: dict[tuple[str, str], str]) -> list[tuple[str, Table]]:
    """For each data set and backbone a heading and the published numbers, with ours beside them if there are any."""
    tables = []
    for (dataset, backbone), group in groupby(lines, key=lambda line: (line.dataset, line.backbone)):
        mine = list(group)
        heading = f"{dataset}, {backbone}"
        run = any(line.training for line in mine)
        tables.append((heading if run else f"{heading} (not run)", _comparison(mine, letters, run)))
    return tables


def _comparison(lines: list[Line], letters: dict[tuple[str, str], str], run: bool) -> Table:
    shots = sorted({count for line in lines for count in line.cells})
    columns: list[tuple[str, Callable[[Cell], str]]] = []
    columns.append(("published", lambda cell: number(cell.published, cell.published_ci95)))
    if run:
        columns.append(("ours", lambda cell: number(cell.ours, cell.ours_ci95)))
        columns.append(("difference", _difference))
    columns.append(("published s / 10k", lambda cell: _seconds(cell.published_seconds)))
    if run:
        columns.append(("ours s / 10k", lambda cell: _seconds(cell.ours_seconds)))
    head = [
        "method",
        *(["training"] if run else []),
        *(f"{count}-shot {name}" for count in shots for name, _ in columns),
    ]
    rows = []
    for line in lines:
        trained = "published only" if line.rival else letters.get((line.training, line.scale), "not run")
        cells = [value(line.cells.get(count, Cell())) for count in shots for _, value in columns]
        rows.append([line.method, *([trained] if run else []), *cells])
    filled = [place for place in range(len(head)) if any(row[place] != NOTHING for row in rows)]
    return [head[place] for place in filled], [[row[place] for place in filled] for row in rows]


def training_letters(lines: Iterable[Line]) -> dict[tuple[str, str], str]:
    """A letter for each training and scale."""
    trained = dict.fromkeys((line.training, line.scale) for line in lines if line.training)
    return {key: chr(ord("A") + number) for number, key in enumerate(trained)}


def explained(letters: dict[tuple[str, str], str]) -> list[str]:
    """What the letters mean."""
    return [f"{letter} ({scale}): {training}" for (training, scale), letter in letters.items()]


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, columns of numbers to the right."""
    numbers = [all(row[place][:1] in f"+-{NOTHING}{digits}" for row in rows) for place in range(1, len(head))]
    lines = [head, ["---", *("---:" if right else "---" for right in numbers)], *rows]
    return [f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines]


def _difference(cell: Cell) -> str:
    if cell.difference is None:
        return NOTHING
    return f"{cell.difference:+.2f} ✓" if cell.within else f"{cell.difference:+.2f}"


def _seconds(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.0f}"


def said(measured: Sequence[dict[str, Any]], letters: dict[tuple[str, str], str]) -> list[tuple[str, list[str]]]:
    """The paired differences of the measurements in words, for each model's training, and between trainings."""
    found: dict[str, list[str]] = {}
    letter = {training: letters[training, scale] for training, scale in letters}
    for each in measured:
        if each["reference"] is None:
            continue
        names = [display_name(each["method"]), display_name(each["reference"])]
        what, other = each["training"], each.get("reference_training")
        if other is not None:
            what, places = "between trainings", [letter.get(its, "no longer shown") for its in (what, other)]
            names = [f"{name} ({place})" for name, place in zip(names, places, strict=True)]
        heading = f"{each['dataset']}, {each['backbone']}: {what}"
        sentence = statement(names[0], names[1], each["shots"], each["gain"], each["gain_ci95"])
        found.setdefault(heading, []).append(sentence)
    return list(found.items())


def _said(measured: Sequence[dict[str, Any]], letters: dict[tuple[str, str], str]) -> list[str]:
    found = said(measured, letters)
    text = ["", "## Paired differences on the same episodes"] if found else []
    for training, sentences in found:
        text += ["", f"### {training}", "", *(f"* {sentence}" for sentence in sentences)]
    return text


def trained(measured: Iterable[dict[str, Any]]) -> list[str]:
    """What the models of measurements were trained with."""
    words = dict.fromkeys(f"* {_model(each)}: {each['training']}" for each in measured)
    return ["", "## Training of the models", "", *words]


def _model(each: dict[str, Any]) -> str:
    return f"{each['run']} ({each['backbone']}, {each['dataset']})" if "backbone" in each else each["run"]


def grids(lines: Lines) -> list[tuple[str, Table]]:
    """Gains, and then accuracies, of each row of panels, with headings."""
    rows = {point.row: [each for each in lines.points if each.row == point.row] for point in lines.points}
    return [
        (f"{what}: {row}", grid(points, lines.x_label, show))
        for what, show in (("Gain in points", _gain), ("Accuracy in percent", _accuracy))
        for row, points in rows.items()
    ]


def _gain(point: Point) -> str:
    return signed(point.gain, point.gain_ci95)


def _accuracy(point: Point) -> str:
    return number(point.accuracy, point.accuracy_ci95)


def grid(points: Sequence[Point], x_label: str, show: Callable[[Point], str]) -> Table:
    """Series and places, the more numerous of them down."""
    places = list(dict.fromkeys(point.x for point in points))
    if not any(isinstance(place, str) for place in places):
        places.sort(key=lambda place: float("inf") if place is None else float(place))
    series = list(dict.fromkeys((point.column, point.series) for point in points))
    cells = {(point.column, point.series, point.x): show(point) for point in points}
    names = [", ".join(name) for name in series]
    ticks = ["any" if place is None else place if isinstance(place, str) else f"{place:g}" for place in places]
    rows = [[cells.get((*name, place), NOTHING) for place in places] for name in series]
    if len(places) > len(series):
        names, ticks, rows = ticks, names, [list(column) for column in zip(*rows, strict=True)]
    return [x_label, *ticks], [[name, *row] for name, row in zip(names, rows, strict=True)]


def latex_grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The same with booktabs."""
    return [
        f"\\begin{{tabular}}{{l{'c' * (len(head) - 1)}}}",
        "\\toprule",
        f"{' & '.join(latex_escape(name) for name in head)} \\\\",
        "\\midrule",
        *(f"{latex_escape(name)} & {' & '.join(latex_number(cell) for cell in cells)} \\\\" for name, *cells in rows),
        "\\bottomrule",
        "\\end{tabular}",
    ]


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
    r"""The same as a booktabs table, ours beside the published. Needs ``\usepackage{booktabs}``."""
    shots = sorted({count for line in lines for count in line.cells})
    times = specification.timed is not None
    names = ["published", "ours", *(["published s / 10k", "ours s / 10k"] if times else [])]
    wide, width = len(names), 1 + len(names) * len(shots)
    letters = training_letters(lines)
    text = [f"% {specification.title}", f"\\begin{{tabular}}{{l{'c' * (width - 1)}}}", "\\toprule"]
    text.append(" & ".join(["", *(f"\\multicolumn{{{wide}}}{{c}}{{{count}-shot}}" for count in shots)]) + " \\\\")
    text.append(" ".join(f"\\cmidrule(lr){{{end - wide + 1}-{end}}}" for end in range(1 + wide, width + 1, wide)))
    text.append(" & ".join(["Method", *names * len(shots)]) + " \\\\")
    for (dataset, backbone), group in groupby(lines, key=lambda line: (line.dataset, line.backbone)):
        place = latex_escape(f"{dataset}, {backbone}")
        text += ["\\midrule", f"\\multicolumn{{{width}}}{{l}}{{\\emph{{{place}}}}} \\\\"]
        for line in group:
            cells = [line.cells.get(count, Cell()) for count in shots]
            numbers = [latex_number(shown) for cell in cells for shown in _pair(cell, times)]
            letter = f" ({letters[line.training, line.scale]})" if line.training else ""
            text.append(f"{' & '.join([latex_escape(line.method + letter), *numbers])} \\\\")
    text += ["\\bottomrule", "\\end{tabular}"]
    text += [f"\\par {latex_escape(words)}." for words in explained(letters)]
    return "\n".join([*text, ""])


def _pair(cell: Cell, times: bool) -> list[str]:
    """What was published and what is ours."""
    accuracies = [number(cell.published, cell.published_ci95), number(cell.ours, cell.ours_ci95)]
    return accuracies + ([_seconds(cell.published_seconds), _seconds(cell.ours_seconds)] if times else [])


def csv_lines(rows: Sequence[dict[str, Any]]) -> str:
    """Flat dictionaries of the same keys as CSV; empty without rows."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()

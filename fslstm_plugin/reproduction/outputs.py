"""The files of a reproduction that are made from its measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from ..files import read_json, replacing, write_json, write_text
from ..reporting.figures import iterations, queries, ridge, support, unbalanced
from ..reporting.figures import lines as line_figure
from . import measurements, rendering
from .comparison import compare
from .specification import Specification

LINES: dict[str, Callable[[Sequence[dict[str, Any]]], line_figure.Lines]] = {
    "iterations": iterations.lines,
    "queries": queries.lines,
    "ridge": ridge.lines,
    "unbalanced": unbalanced.lines,
}
SUPPORT = "support"


def write(specification: Specification) -> None:
    """Make the table, and the figure if it has one, from what was measured and published.

    Raises:
        DataError: If the measurements are damaged.
    """
    if specification.shows == SUPPORT:
        _write_support(specification)
    elif specification.shows == "table":
        _write_table(specification)
    else:
        _write_lines(specification)


def _write_table(specification: Specification) -> None:
    measured = measurements.read(specification.folder)
    lines = compare(specification.methods, specification.published()["values"], measured)
    rows = [row for line in lines for row in line.as_dicts()]
    folder = specification.folder
    write_text(folder / "table.md", rendering.markdown(specification, lines, measured))
    write_text(folder / "table.tex", rendering.latex(specification, lines))
    write_text(folder / "table.csv", rendering.csv_lines(rows))
    write_json(folder / "table.json", {"rows": rows})


def _write_lines(specification: Specification) -> None:
    measured = measurements.read(specification.folder)
    if not measured:
        return
    lines = LINES[specification.shows](measured)
    folder = specification.folder
    _save(line_figure.draw(lines), specification)
    rows = lines.as_dicts()
    write_text(folder / "table.csv", rendering.csv_lines(rows))
    write_json(folder / "table.json", {"x": lines.x_label, "gain_over": lines.over, "rows": rows})
    text = [f"# {specification.title}", "", f"![{specification.title}](figure.png)", "", gains_over(lines), ""]
    if lines.summary:
        text += ["## In short", "", lines.remark, ""]
        text += [*rendering.markdown_table(lines.summary[0], lines.summary[1:]), ""]
    latex = [f"% {specification.title}"]
    for heading, table in rendering.grids(lines):
        text += [f"## {heading}", "", *rendering.markdown_table(*table), ""]
        latex += [f"% {heading}", *rendering.latex_grid(*table)]
    text = [*text[:-1], *rendering.trained(measured), *rendering.sources(measured)]
    write_text(folder / "table.md", "\n".join(text) + "\n")
    write_text(folder / "table.tex", "\n".join(latex) + "\n")


def gains_over(lines: line_figure.Lines) -> str:
    """What the gains of a figure are."""
    return f"Gains are paired differences to {lines.over}, on the same episodes, with 95 % intervals."


def _write_support(specification: Specification) -> None:
    folder = specification.folder
    tasks = support_tasks(specification)
    if not tasks:
        return
    _save(support.draw(tasks), specification)
    rows = [{"task": task["title"], "before": task["before"], "after": task["after"]} for task in tasks]
    write_text(folder / "table.csv", rendering.csv_lines(rows))
    text = [f"# {specification.title}", "", f"![{specification.title}](figure.png)", ""]
    text += ["| task | classes | before | after |", "| --- | --- | ---: | ---: |"]
    for task in tasks:
        text.append(f"| {task['title']} | {', '.join(task['classes'])} | {task['before']:.1f} | {task['after']:.1f} |")
    lines = [*text, *rendering.trained(tasks), *rendering.sources(tasks)]
    write_text(folder / "table.md", "\n".join(lines) + "\n")


def support_tasks(specification: Specification) -> list[dict[str, Any]]:
    """The tasks of the support figure, each with its run, training and provenance; none if there are none."""
    file = specification.folder / "measured.json"
    if not file.is_file():
        return []
    content = read_json(file)
    return [{**task, "provenance": content["provenance"], "seed": content["seed"]} for task in content["tasks"]]


def _save(figure: Figure, specification: Specification) -> None:
    """As PNG and SVG, the same bytes for the same numbers."""
    with rc_context({"svg.hashsalt": specification.name, "svg.fonttype": "none"}):
        for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
            with replacing(specification.folder / f"figure.{kind}") as temporary:
                figure.savefig(temporary, format=kind, dpi=240, metadata=metadata)

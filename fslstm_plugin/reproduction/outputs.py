"""The files of a reproduction that are made from its measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module

from ..extras import needs_extra
from ..reporting.blocks import Block
from ..reporting.chart import save
from ..reporting.figures import lines as line_figure
from ..reporting.figures import support as support_figure
from ..storage.files import csv_lines, exclusive, write_json, write_text
from . import beside, literature, measurements, rendering, support
from .comparison import compare
from .measurements import Measurement
from .specification import TABLE, Reproduction
from .titles import model_titles

with needs_extra("A figure", "report"):
    from matplotlib.figure import Figure


def write(reproduction: Reproduction) -> None:
    """Make the table, and the figure if it has one, from what was measured and published."""
    with exclusive(reproduction.folder):  # or another process, which read earlier, might write later
        if reproduction.specification.shows_tasks:
            _write_support(reproduction)
        elif reproduction.specification.shows == TABLE:
            _write_table(reproduction)
        else:
            _write_lines(reproduction)


def _write_table(reproduction: Reproduction) -> None:
    measured = measurements.read(reproduction.folder)
    lines = compare(reproduction, measured)
    rows = [row for line in lines for row in line.as_dicts()]
    folder = reproduction.folder
    shipped = beside.blocks(reproduction.name, measured, explained=True)
    write_text(folder / "table.md", rendering.markdown(reproduction, lines, measured, shipped), follow_links=False)
    write_text(folder / "table.tex", rendering.latex(reproduction, lines), follow_links=False)
    write_text(folder / "table.csv", csv_lines(rows), follow_links=False)
    write_json(folder / "table.json", {"rows": rows}, follow_links=False)


def lines_of(reproduction: Reproduction, measured: Sequence[Measurement]) -> line_figure.Lines:
    """What the figure of a reproduction shows."""
    figure = import_module(f"..reporting.figures.{reproduction.specification.shows}", __package__)
    lines: Callable[[Sequence[line_figure.NamedRow]], line_figure.Lines] = figure.lines
    return lines(list(zip(model_titles(measured), measured, strict=True)))


def figure_blocks(reproduction: Reproduction, lines: line_figure.Lines, measured: Sequence[Measurement]) -> list[Block]:
    """The tables of a figure: its main numbers, all of them folded, and those that others published."""
    blocks = [Block("In short", lines.remark, lines.summary[0], lines.summary[1:])] if lines.summary else []
    blocks += rendering.grids(lines)
    if reproduction.published.values:
        head, rows = literature.table(reproduction.published.values, measured)
        words = rendering.published_by(reproduction.published)
        blocks.append(Block("Beside what was published", words, head, rows, folded=True))
    return blocks


def _write_lines(reproduction: Reproduction) -> None:
    measured = measurements.read(reproduction.folder)
    if not measured:
        return
    lines = lines_of(reproduction, measured)
    folder, title = reproduction.folder, reproduction.specification.title
    _save(line_figure.draw(lines), reproduction)
    rows = lines.as_dicts()
    write_text(folder / "table.csv", csv_lines(rows), follow_links=False)
    write_json(folder / "table.json", {"x": lines.x_label, "gain_over": lines.over, "rows": rows}, follow_links=False)
    blocks = figure_blocks(reproduction, lines, measured)
    further = beside.blocks(reproduction.name, measured, explained=True)
    further += rendering.origin(((each.provenance, each.seed) for each in measured), measured)
    text = [f"# {title}", "", f"![{title}](figure.png)", "", gains_over(lines)]
    text += rendering.markdown_blocks([*blocks, *further])
    latex = [f"% {title}"]
    for block in blocks:
        if block.folded:  # not what is said in short
            latex += [f"% {block.heading}", *rendering.latex_grid(block.head, block.rows)]
    write_text(folder / "table.md", "\n".join(text) + "\n", follow_links=False)
    write_text(folder / "table.tex", "\n".join(latex) + "\n", follow_links=False)


def gains_over(lines: line_figure.Lines) -> str:
    """What the gains of a figure are."""
    return f"Gains are paired differences to {lines.over}, on the same episodes, with 95 % intervals."


def titled(tasks: support.Tasks) -> list[tuple[str, support_figure.Task]]:
    """Each task with its title."""
    titles = model_titles(tasks.tasks)
    return [(f"{title}, episode {task.episode}", task) for title, task in zip(titles, tasks.tasks, strict=True)]


def _write_support(reproduction: Reproduction) -> None:
    folder, title = reproduction.folder, reproduction.specification.title
    found = support.read(folder)
    if found is None:
        return
    named = titled(found)
    _save(support_figure.draw(named), reproduction)
    rows = [{"task": name, "before": task.before, "after": task.after} for name, task in named]
    write_text(folder / "table.csv", csv_lines(rows), follow_links=False)
    text = [f"# {title}", "", f"![{title}](figure.png)", ""]
    cells = [[name, ", ".join(task.classes), f"{task.before:.1f}", f"{task.after:.1f}"] for name, task in named]
    text += rendering.markdown_table(["task", "classes", "before", "after"], cells)
    text += rendering.markdown_blocks(rendering.origin([(found.provenance, found.seed)], found.tasks))
    write_text(folder / "table.md", "\n".join(text) + "\n", follow_links=False)


def _save(figure: Figure, reproduction: Reproduction) -> None:
    for kind in ("png", "svg", "pdf"):
        save(figure, reproduction.folder / f"figure.{kind}", reproduction.name)

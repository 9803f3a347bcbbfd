"""What a reproduction shows, in files and in a report: sentences, tables and a figure, made from its measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ..extras import needs_extra
from ..reporting.blocks import Block, Section
from ..reporting.chart import save
from ..reporting.figures import lines as line_figure
from ..reporting.figures import support as support_figure
from ..storage.files import csv_lines, exclusive, write_json, write_text
from . import beside, measurements, rendering, support
from .comparison import compare
from .measurements import Measurement
from .specification import TABLE, Reproduction
from .titles import model_titles

with needs_extra("A figure", "report"):
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Contents:
    """What is shown; of what was not measured nothing, but for a table of published numbers."""

    lead: Sequence[str] = ()  # Sentences on top.
    figure: Figure | None = None
    blocks: Sequence[Block] = ()  # Tables and lists.
    rows: Sequence[dict[str, Any]] = ()  # The numbers as plain data.
    latex: str = ""  # The tables of numbers; empty if there are none.


def contents(reproduction: Reproduction) -> Contents:
    """What a reproduction shows now."""
    if reproduction.specification.shows_tasks:
        return _tasks(reproduction)
    measured = measurements.read(reproduction.folder)
    return (_table if reproduction.specification.shows == TABLE else _lines)(reproduction, measured)


def _table(reproduction: Reproduction, measured: Sequence[Measurement]) -> Contents:
    lines = compare(reproduction, measured)
    letters = rendering.training_letters(lines)
    blocks = rendering.comparisons(lines, letters)
    if letters:
        blocks.append(Block("Training of our models", sentences=rendering.explained(letters)))
    blocks += rendering.paired_differences(measured, letters)
    blocks += beside.blocks(reproduction.name, measured)
    blocks += rendering.origin((each.provenance, each.seed) for each in measured)
    lead = [words for words in (rendering.published_by(reproduction.published), rendering.explanation(lines)) if words]
    rows = [row for line in lines for row in line.as_dicts()]
    return Contents(lead, None, blocks, rows, rendering.latex(reproduction, lines))


def _lines(reproduction: Reproduction, measured: Sequence[Measurement]) -> Contents:
    if not measured:
        return Contents()
    module = import_module(f"..reporting.figures.{reproduction.specification.shows}", __package__)
    make: Callable[[Sequence[line_figure.NamedRow]], line_figure.Lines] = module.lines
    lines = make(list(zip(model_titles(measured), measured, strict=True)))
    tables = rendering.grids(lines)
    if reproduction.published.values:
        head, rows = rendering.literature(reproduction.published.values, measured)
        words = rendering.published_by(reproduction.published)
        tables.append(Block("Beside what was published", words, head, rows, folded=True))
    latex = [f"% {reproduction.specification.title}"]
    for block in tables:
        latex += [f"% {block.heading}", *rendering.latex_grid(block.head, block.rows)]
    origin = rendering.origin(((each.provenance, each.seed) for each in measured), measured)
    return Contents(
        [f"Gains are paired differences to {lines.over}, on the same episodes, with 95 % intervals."],
        line_figure.draw(lines),
        [*lines.summary, *tables, *beside.blocks(reproduction.name, measured), *origin],
        [asdict(point) for point in lines.points],
        "\n".join(latex) + "\n",
    )


def _tasks(reproduction: Reproduction) -> Contents:
    found = support.read(reproduction.folder)
    if found is None:
        return Contents()
    titles = model_titles(found.tasks)
    named = [(f"{title}, episode {task.episode}", task) for title, task in zip(titles, found.tasks, strict=True)]
    cells = [[name, ", ".join(task.classes), f"{task.before:.1f}", f"{task.after:.1f}"] for name, task in named]
    return Contents(
        figure=support_figure.draw(named),
        blocks=[
            Block("Accuracy in percent", head=["task", "classes", "before", "after"], rows=cells, words=True),
            *rendering.origin([(found.provenance, found.seed)], found.tasks),
        ],
        rows=[{"task": name, "before": task.before, "after": task.after} for name, task in named],
    )


def write(reproduction: Reproduction) -> bool:
    """Make the files of a reproduction, tables and the figure if it has one, from what was measured and published.

    Returns:
        Whether there was anything to show; if not, nothing is written.
    """
    folder, title = reproduction.folder, reproduction.specification.title
    with exclusive(folder):  # or another process, which read earlier, might write later
        found = contents(reproduction)
        if not found.rows:
            return False
        lead = list(found.lead)
        if found.figure is not None:
            lead.insert(0, f"![{title}](figure.png)")
            for kind in ("png", "svg", "pdf"):
                save(found.figure, folder / f"figure.{kind}", reproduction.name)
        write_text(folder / "table.md", rendering.markdown(title, lead, found.blocks), follow_links=False)
        write_text(folder / "table.csv", csv_lines(found.rows), follow_links=False)
        write_json(folder / "table.json", {"rows": found.rows}, follow_links=False)
        if found.latex:
            write_text(folder / "table.tex", found.latex, follow_links=False)
    return True


def reproduction_section(folder: Path) -> Section:
    """The section of a reproduction: its figure, the published numbers beside ours, and where ours come from."""
    from ..reporting.html import svg_element  # Pages need a further library.

    reproduction = Reproduction.read(folder)
    found = contents(reproduction)
    lead = list(found.lead)
    if not (folder / "measured.json").is_file():
        lead.insert(0, f"Not measured yet: fslstm reproduce {reproduction.name} does.")
    figure = [] if found.figure is None else [Block(figure=svg_element(found.figure, reproduction.name))]
    return Section(reproduction.specification.title, lead, [*figure, *found.blocks])

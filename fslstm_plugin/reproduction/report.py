"""What a report shows of a reproduction."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..reporting.figures import lines as line_figure
from ..reporting.figures import support as support_figure
from ..reporting.html import Block, Section, svg_element
from . import beside, literature, measurements, rendering, support
from .beside import Pair
from .comparison import compare
from .measurements import Measurement
from .outputs import BESIDE_PUBLISHED, SUPPORT, gains_over, lines_of, titled
from .specification import TABLE, Reproduction


def reproduction_section(folder: Path) -> Section:
    """The section of a reproduction: its figure, the published numbers beside ours, and where ours come from.

    Raises:
        DataError: If its files are damaged.
    """
    reproduction = Reproduction.read(folder)
    if reproduction.specification.shows == SUPPORT:
        lead, blocks = _tasks(folder)
    else:
        lead, blocks = _measured(reproduction, measurements.read(folder))
    if not (folder / "measured.json").is_file():
        lead = [f"Not measured yet: fslstm reproduce {reproduction.name} does.", *lead]
    return Section(reproduction.specification.title, [words for words in lead if words], blocks)


def _tasks(folder: Path) -> tuple[list[str], list[Block]]:
    found = support.read(folder)
    if found is None:
        return [], []
    trained = rendering.trained_with(found.tasks, [task.training for task in found.tasks])
    figure = svg_element(support_figure.draw(titled(found)), folder.name)
    return [], [Block(figure=figure), *_origin(trained, rendering.sources([(found.provenance, found.seed)]))]


def _measured(reproduction: Reproduction, measured: Sequence[Measurement]) -> tuple[list[str], list[Block]]:
    trained = rendering.trained_with(measured, [each.training for each in measured])
    sources = rendering.sources((each.provenance, each.seed) for each in measured)
    pairs = beside.shipped_pairs(reproduction.name, measured)
    if reproduction.specification.shows == TABLE:
        lead, blocks = _table(reproduction, measured)
        return lead, [*blocks, *_shipped(pairs), *_origin([], sources)]
    if not measured:
        return [], []
    lines = lines_of(reproduction, measured)
    return [gains_over(lines)], [*_lines(reproduction, lines, measured), *_shipped(pairs), *_origin(trained, sources)]


def _origin(trained: Sequence[str], sources: Sequence[str]) -> list[Block]:
    said = {"Training of the models": trained, "Measured with": [line.replace("`", "") for line in sources]}
    return [Block(heading, sentences=sentences) for heading, sentences in said.items() if sentences]


def _shipped(pairs: Sequence[Pair]) -> list[Block]:
    if not pairs:
        return []
    head, rows = beside.table(pairs)
    words = beside.sentence(pairs)
    return [Block("Beside what is shipped with the package", words, head, rows, folded=True)]


def _lines(reproduction: Reproduction, lines: line_figure.Lines, measured: Sequence[Measurement]) -> list[Block]:
    blocks = [Block(figure=svg_element(line_figure.draw(lines), reproduction.name))]
    if lines.summary:
        blocks.append(Block("In short", lines.remark, lines.summary[0], lines.summary[1:]))
    tables = rendering.grids(lines)
    blocks += [Block(heading, head=head, rows=rows, folded=True) for heading, (head, rows) in tables]
    published = reproduction.published
    if published.values:
        head, rows = literature.table(published.values, measured)
        blocks.append(Block(BESIDE_PUBLISHED, rendering.published_by(published), head, rows, folded=True))
    return blocks


def _table(reproduction: Reproduction, measured: Sequence[Measurement]) -> tuple[list[str], list[Block]]:
    lines = compare(reproduction, measured)
    letters = rendering.training_letters(lines)
    blocks = [Block(heading, head=head, rows=rows) for heading, (head, rows) in rendering.comparisons(lines, letters)]
    if letters:
        blocks.append(Block("Training of our models", sentences=rendering.explained(letters)))
    for training, sentences in rendering.said(measured, letters):
        heading = f"Paired differences on the same episodes: {training}"
        blocks.append(Block(heading, rendering.ALL_AT_ONCE, sentences=sentences, folded=True))
    return [rendering.published_by(reproduction.published), rendering.explanation(lines)], blocks

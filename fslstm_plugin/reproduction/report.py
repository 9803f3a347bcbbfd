"""What a report shows of a reproduction."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..reporting.blocks import Block, Section
from ..reporting.figures import lines as line_figure
from ..reporting.figures import support as support_figure
from ..reporting.html import svg_element
from . import beside, measurements, rendering, support
from .comparison import compare
from .measurements import Measurement
from .outputs import figure_blocks, gains_over, lines_of, titled
from .specification import TABLE, Reproduction

Content = tuple[list[str], list[Block]]  # Sentences, and what stands below them.


def reproduction_section(folder: Path) -> Section:
    """The section of a reproduction: its figure, the published numbers beside ours, and where ours come from."""
    reproduction = Reproduction.read(folder)
    if reproduction.specification.shows_tasks:
        lead, blocks = _tasks(folder)
    elif reproduction.specification.shows == TABLE:
        lead, blocks = _table(reproduction, measurements.read(folder))
    else:
        lead, blocks = _figure(reproduction, measurements.read(folder))
    if not (folder / "measured.json").is_file():
        lead = [f"Not measured yet: fslstm reproduce {reproduction.name} does.", *lead]
    return Section(reproduction.specification.title, [words for words in lead if words], blocks)


def _tasks(folder: Path) -> Content:
    found = support.read(folder)
    if found is None:
        return [], []
    figure = Block(figure=svg_element(support_figure.draw(titled(found)), folder.name))
    return [], [figure, *rendering.origin([(found.provenance, found.seed)], found.tasks, mark="")]


def _table(reproduction: Reproduction, measured: Sequence[Measurement]) -> Content:
    lines = compare(reproduction, measured)
    letters = rendering.training_letters(lines)
    blocks = rendering.comparisons(lines, letters)
    if letters:
        blocks.append(Block("Training of our models", sentences=rendering.explained(letters)))
    for training, sentences in rendering.paired_differences(measured, letters):
        heading = f"Paired differences on the same episodes: {training}"
        blocks.append(Block(heading, rendering.ALL_AT_ONCE, sentences=sentences, folded=True))
    blocks += beside.blocks(reproduction.name, measured)
    blocks += rendering.origin(((each.provenance, each.seed) for each in measured), mark="")
    return [rendering.published_by(reproduction.published), rendering.explanation(lines)], blocks


def _figure(reproduction: Reproduction, measured: Sequence[Measurement]) -> Content:
    if not measured:
        return [], []
    lines = lines_of(reproduction, measured)
    blocks = [Block(figure=svg_element(line_figure.draw(lines), reproduction.name))]
    blocks += figure_blocks(reproduction, lines, measured) + beside.blocks(reproduction.name, measured)
    blocks += rendering.origin(((each.provenance, each.seed) for each in measured), measured, mark="")
    return [gains_over(lines)], blocks

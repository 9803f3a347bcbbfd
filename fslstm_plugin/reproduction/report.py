"""What a report shows of a reproduction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..reporting.figures import lines as line_figure
from ..reporting.figures import support
from ..reporting.html import Block, Section, svg_element
from . import measurements, rendering
from .comparison import Line, compare
from .outputs import LINES, SUPPORT, gains_over, support_tasks
from .specification import Specification

Measured = Sequence[dict[str, Any]]


def reproduction_section(specification: Specification) -> Section:
    """The section of a reproduction: its figure, the published numbers beside ours, and where ours come from.

    Raises:
        DataError: If its files are damaged.
    """
    tasks = specification.shows == SUPPORT
    measured = support_tasks(specification) if tasks else measurements.read(specification.folder)
    lead: list[str] = []
    blocks: list[Block] = []
    if not measured:
        lead.append(f"Not measured yet: fslstm reproduce {specification.name} does.")
    if specification.shows == "table":
        compared = compare(specification.methods, specification.published()["values"], measured)
        lead += [rendering.published_by(specification), rendering.explanation(compared)]
        blocks += _tables(specification, measured, compared)
    elif tasks and measured:
        blocks.append(Block(figure=svg_element(support.draw(measured), specification.name)))
    elif measured:
        lines = LINES[specification.shows](measured)
        lead.append(gains_over(lines))
        blocks += _lines(specification, lines)
    if measured:
        if specification.shows != "table":
            blocks.append(Block("Training of the models", sentences=_items(rendering.trained(measured))))
        blocks.append(Block("Measured with", sentences=_items(rendering.sources(measured))))
    return Section(specification.title, [words for words in lead if words], blocks)


def _items(lines: list[str]) -> list[str]:
    """The items of a list in Markdown, as plain text."""
    return [line.removeprefix("* ").replace("`", "") for line in lines if line.startswith("* ")]


def _lines(specification: Specification, lines: line_figure.Lines) -> list[Block]:
    blocks = [Block(figure=svg_element(line_figure.draw(lines), specification.name))]
    if lines.summary:
        blocks.append(Block("In short", lines.remark, lines.summary[0], lines.summary[1:]))
    tables = rendering.grids(lines)
    blocks += [Block(heading, head=head, rows=rows, folded=True) for heading, (head, rows) in tables]
    return blocks


def _tables(specification: Specification, measured: Measured, lines: Sequence[Line]) -> list[Block]:
    letters = rendering.training_letters(lines)
    tables = rendering.comparisons(lines, letters)
    blocks = [Block(heading, head=head, rows=rows) for heading, (head, rows) in tables]
    if letters:
        blocks.append(Block("Training of our models", sentences=rendering.explained(letters)))
    for training, sentences in rendering.said(measured, letters):
        blocks.append(Block(f"Paired differences on the same episodes: {training}", sentences=sentences, folded=True))
    return blocks

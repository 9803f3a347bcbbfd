"""What a report shows of a reproduction."""

from __future__ import annotations

from collections.abc import Sequence

from ..reporting.figures.lines import Point
from ..reporting.html import Block, Section, inline_svg
from . import measurements, rendering
from .comparison import Cell, Line, compare
from .outputs import LINES, SUPPORT, panels, support_tasks
from .specification import Specification


def reproduction_section(specification: Specification) -> Section:
    """The section of a reproduction: its figure, the published numbers beside ours, and where ours come from.

    Raises:
        DataError: If its files are damaged.
    """
    blocks = []
    figure = specification.folder / "figure.svg"
    if figure.is_file():
        blocks.append(Block(figure=inline_svg(figure.read_text(encoding="utf-8"), specification.name)))
    tasks = specification.shows == SUPPORT
    measured = support_tasks(specification) if tasks else measurements.read(specification.folder)
    if specification.shows == "table":
        lines = compare(specification.methods, specification.published()["values"], measured)
        blocks += [_table(lines, *place) for place in dict.fromkeys((line.dataset, line.backbone) for line in lines)]
    elif measured and not tasks:
        shown = LINES[specification.shows](measured)
        blocks += [_grid(heading, points, shown.x_label) for heading, points in panels(shown.points)]
    if measured:
        blocks.append(Block("Training of the models", sentences=_items(rendering.trained(measured))))
        blocks.append(Block("Measured with", sentences=_items(rendering.sources(measured))))
    return Section(specification.title, blocks=blocks)


def _items(lines: list[str]) -> list[str]:
    """The items of a list in Markdown, as plain text."""
    return [line.removeprefix("* ").replace("`", "") for line in lines if line.startswith("* ")]


def _grid(heading: str, points: Sequence[Point], x_label: str) -> Block:
    places, rows = rendering.grid(points)
    return Block(heading, [x_label, *places], [[name, *(rendering.number(*c) for c in cells)] for name, cells in rows])


def _table(lines: list[Line], dataset: str, backbone: str) -> Block:
    mine = [line for line in lines if (line.dataset, line.backbone) == (dataset, backbone)]
    shots = sorted({count for line in mine for count in line.cells})
    head = ["method", *(f"{count}-shot {name}" for count in shots for name in ("published", "ours", "difference"))]
    rows = [
        [line.method, *(text for count in shots for text in _texts(line.cells.get(count, Cell()))), line.training]
        for line in mine
    ]
    return Block(f"{dataset}, {backbone}", [*head, "training of ours"], rows)


def _texts(cell: Cell) -> tuple[str, str, str]:
    difference = "–" if cell.difference is None else f"{cell.difference:+.2f}"
    return (
        rendering.number(cell.published, cell.published_ci95),
        rendering.number(cell.ours, cell.ours_ci95),
        f"{difference} (within both)" if cell.within else difference,
    )

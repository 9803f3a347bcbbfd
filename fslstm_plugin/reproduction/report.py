"""What a report shows of a reproduction."""

from __future__ import annotations

from pathlib import Path

from ..reporting.blocks import Block, Section
from ..reporting.html import svg_element
from .contents import contents
from .specification import Reproduction


def reproduction_section(folder: Path) -> Section:
    """The section of a reproduction: its figure, the published numbers beside ours, and where ours come from."""
    reproduction = Reproduction.read(folder)
    found = contents(reproduction)
    lead = list(found.lead)
    if not (folder / "measured.json").is_file():
        lead.insert(0, f"Not measured yet: fslstm reproduce {reproduction.name} does.")
    figure = [] if found.figure is None else [Block(figure=svg_element(found.figure, reproduction.name))]
    return Section(reproduction.specification.title, lead, [*figure, *found.blocks])

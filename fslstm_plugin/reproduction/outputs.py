"""The files of a reproduction that are made from its measurements."""

from __future__ import annotations

from ..reporting.chart import save
from ..storage.files import csv_lines, exclusive, write_json, write_text
from .contents import contents
from .rendering import markdown
from .specification import Reproduction


def write(reproduction: Reproduction) -> None:
    """Make the table, and the figure if it has one, from what was measured and published."""
    folder, title = reproduction.folder, reproduction.specification.title
    with exclusive(folder):  # or another process, which read earlier, might write later
        found = contents(reproduction)
        if not found.rows:
            return
        lead = list(found.lead)
        if found.figure is not None:
            lead.insert(0, f"![{title}](figure.png)")
            for kind in ("png", "svg", "pdf"):
                save(found.figure, folder / f"figure.{kind}", reproduction.name)
        write_text(folder / "table.md", markdown(title, lead, found.blocks), follow_links=False)
        write_text(folder / "table.csv", csv_lines(found.rows), follow_links=False)
        write_json(folder / "table.json", {"rows": found.rows}, follow_links=False)
        if found.latex:
            write_text(folder / "table.tex", found.latex, follow_links=False)

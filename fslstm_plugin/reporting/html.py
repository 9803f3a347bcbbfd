"""A page of one file, without anything from the network: sections of tables, figures and sentences."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date

from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib import rc_context
from matplotlib.figure import Figure

from .. import __version__


@dataclass(frozen=True)
class Block:
    """One table, figure or list, with a heading.

    Args:
        heading: Above it.
        head: Names of the columns; without them there is no table.
        rows: Cells.
        caption: Of the table.
        words: Whether the table holds text rather than numbers.
        figure: An SVG element.
        sentences: Items of a list.
    """

    heading: str = ""
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    caption: str = ""
    words: bool = False
    figure: str = ""
    sentences: Sequence[str] = ()


@dataclass(frozen=True)
class Section:
    """What belongs to one run or reproduction.

    Args:
        title: Its heading.
        lead: A sentence below it.
        blocks: What it shows.
    """

    title: str
    lead: str = ""
    blocks: Sequence[Block] = field(default_factory=tuple)


def page(title: str, sections: Sequence[Section]) -> str:
    """The page.

    Example:
        >>> "<td>1 &lt; 2</td>" in page("A", [Section("B", blocks=[Block(head=["c"], rows=[["1 < 2"]])])])
        True
    """
    environment = Environment(
        loader=PackageLoader("fslstm_plugin.reporting"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    template = environment.get_template("report.html")
    return template.render(title=title, sections=sections, version=__version__, date=date.today().isoformat())


def svg_element(figure: Figure, salt: str) -> str:
    """A figure as an SVG element that may stand in a page beside others.

    Args:
        figure: The figure.
        salt: Makes its identifiers differ from those of the other figures of the page.
    """
    buffer = io.StringIO()
    figure.patch.set_alpha(0)
    with rc_context({"svg.hashsalt": salt, "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return inline_svg(buffer.getvalue(), salt)


def inline_svg(text: str, salt: str) -> str:
    """The SVG element of a file, its identifiers made those of this figure alone."""
    element = text[text.index("<svg") :]
    prefix = re.sub(r"\W", "-", salt)
    return re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", element)

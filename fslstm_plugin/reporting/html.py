"""A page in one file, without anything from the network: sections of tables, figures and sentences."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from .. import __version__
from ..extras import needs_extra

with needs_extra("A report", "report"):
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup, escape
    from matplotlib import rc_context
    from matplotlib.figure import Figure


class Best(str):
    """A cell that the page marks: the best of its column, or within noise of it."""

    is_best = True


@dataclass(frozen=True)
class Block:
    """One table, figure or list, with a heading."""

    heading: str = ""  # Above it.
    caption: str = ""  # A sentence below the heading.
    head: Sequence[str] = ()  # Names of the columns; without them there is no table.
    rows: Sequence[Sequence[str]] = ()  # Cells; a `Best` one is marked.
    words: bool = False  # Whether the table holds text rather than numbers.
    figure: str = ""  # An SVG element, see :func:`svg_element`.
    sentences: Sequence[str] = ()  # Items of a list.
    folded: bool = False  # Whether it shows its heading alone until that is clicked.


@dataclass(frozen=True)
class Section:
    """What belongs to one run or reproduction."""

    title: str  # Its heading.
    lead: Sequence[str] = ()  # Paragraphs below the heading.
    blocks: Sequence[Block] = ()  # Tables, figures and lists.
    numbers: Sequence[tuple[str, str]] = ()  # The most important numbers, each with its description.
    verdict: Sequence[str] = ()  # Conclusions, in sentences.
    notes: Sequence[str] = ()  # How to read the tables, once for all of them.


def page(title: str, sections: Sequence[Section]) -> str:
    """The page.

    Example:
        >>> "<td>1 &lt; 2</td>" in page("A", [Section("B", blocks=[Block(head=["c"], rows=[["1 < 2"]])])])
        True
    """
    environment = Environment(
        loader=PackageLoader("fslstm_plugin.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = breakable
    template = environment.get_template("report.html")
    return template.render(title=title, sections=sections, version=__version__, date=date.today().isoformat())


def breakable(text: str) -> Markup:
    """Escaped text whose long names may break after ``+``, ``,`` and ``.``, and before ``(``.

    Example:
        >>> print(breakable("NN+PSM"))
        NN+<wbr>PSM
    """
    return Markup(re.sub(r"(?<=[\w)][+,.])(?=\w)|(?<=\w)(?=\()", "<wbr>", str(escape(text))))


def svg_element(figure: Figure, salt: str) -> str:
    """A figure as an SVG element for a page with other figures; its black and white follow the page.

    Args:
        figure: The figure.
        salt: Makes its identifiers differ from those of the other figures of the page.
    """
    buffer = io.StringIO()
    with rc_context({"svg.hashsalt": salt, "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    text = buffer.getvalue()
    element = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", text[text.index("<svg") :], flags=re.DOTALL)
    prefix = re.sub(r"\W", "-", salt)
    element = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", element).replace("xlink:href", "href")
    element = re.sub(r"fill: #ffffff|stroke: #ffffff", lambda white: f"{white[0].split()[0]} var(--ground)", element)
    width = figure.get_figwidth() * 72
    return f'<svg style="--points: {width:.0f}"{element.removeprefix("<svg")}'.replace("#000000", "currentColor")

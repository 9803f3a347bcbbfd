"""A page in one file, without anything from the network: sections of tables, figures and sentences."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

from ..extras import needs_extra
from .blocks import Section

with needs_extra("A report", "report"):
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    from .pages import filled


def page(title: str, sections: Sequence[Section]) -> str:
    """The page.

    Example:
        >>> from .blocks import Block
        >>> "<td>1 &lt; 2</td>" in page("A", [Section("B", blocks=[Block(head=["c"], rows=[["1 < 2"]])])])
        True
    """
    return filled("report.html", title=title, sections=sections)


def svg_element(figure: Figure, salt: str) -> str:
    """A figure as an SVG element for a page with other figures; its black and white follow the page.

    The salt makes its identifiers differ from those of the other figures.
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

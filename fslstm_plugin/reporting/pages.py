"""The templates of pages."""

from __future__ import annotations

import re

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape


def template(name: str) -> Template:
    """The template with the name of its file; what is filled in is escaped, and nothing may be missing."""
    environment = Environment(
        loader=PackageLoader("fslstm_plugin.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = breakable
    return environment.get_template(name)


def breakable(text: str) -> Markup:
    """Escaped text whose long names may break after ``+``, ``,`` and ``.``, and before ``(``.

    Example:
        >>> print(breakable("NN+PSM"))
        NN+<wbr>PSM
    """
    return Markup(re.sub(r"(?<=[\w)][+,.])(?=\w)|(?<=\w)(?=\()", "<wbr>", str(escape(text))))

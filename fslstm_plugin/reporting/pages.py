"""The templates of pages."""

from __future__ import annotations

import re
from datetime import date

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from .. import __version__


def filled(name: str, **values: object) -> str:
    """The template of a file of this name, filled in: values are escaped, and none may be missing."""
    environment = Environment(
        loader=PackageLoader("fslstm_plugin.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = breakable
    made = {"version": __version__, "date": date.today().isoformat()}
    return environment.get_template(name).render(made | values)


def breakable(text: str) -> Markup:
    """Escaped text whose long names may break before ``(``, and before a letter after ``+``, ``,`` or ``.``.

    Example:
        >>> print(breakable("NN(power=0.5)+PSM"))
        NN<wbr>(power=0.5)+<wbr>PSM
    """
    return Markup(re.sub(r"(?<=[\w)][+,.])(?=[^\W\d])|(?<=\w)(?=\()", "<wbr>", str(escape(text))))

"""What the reference makes of docstrings: its generator knows ``Examples:`` only, and no ``Meta``."""

from __future__ import annotations

import re
from typing import Any

import griffe

_DESCRIPTION = re.compile(r"""Meta\(.*description=["'](.*)["']\)""")


class Examples(griffe.Extension):
    """Renames the section ``Example:`` in every docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Change the docstring of one object."""
        if obj.docstring:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)


class Descriptions(griffe.Extension):
    """Shows the fields of a recipe with what their ``Annotated[type, Meta(description=...)]`` says."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        """Make type and docstring of one field."""
        annotated = attr.annotation
        said = _DESCRIPTION.search(str(annotated))
        if said and isinstance(annotated, griffe.ExprSubscript) and isinstance(annotated.slice, griffe.ExprTuple):
            attr.annotation = annotated.slice.elements[0]
            attr.docstring = griffe.Docstring(said[1], parent=attr)

"""What the reference changes in docstrings, whose generator knows ``Examples:`` only, and no Sphinx roles."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":\w+:`(?:~[\w.]*\.)?([\w.]+)`")


class Examples(griffe.Extension):
    """Renames the section ``Example:`` in every docstring, and leaves of a role the name, before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Change the docstring of one object."""
        if obj.docstring:
            text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = _ROLE.sub(r"`\1`", text)

"""The figures: one file each, found by its name, and what they share."""

from __future__ import annotations

from pkgutil import iter_modules


def names() -> list[str]:
    """Names of the figures."""
    return [module.name for module in iter_modules(__path__) if module.name != "lines"]

"""Sentences of a training while it runs."""

from __future__ import annotations

from rich.console import Console

from ..errors import printable


def say(console: Console, sentence: str) -> None:
    """A sentence on a line of its own."""
    console.print(printable(sentence), highlight=False, soft_wrap=True, markup=False)

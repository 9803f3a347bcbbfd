"""Sentences of a training while it runs."""

from __future__ import annotations

from rich.console import Console


def say(console: Console, sentence: str) -> None:
    """A sentence on a line of its own."""
    console.print(sentence, highlight=False, soft_wrap=True, markup=False)

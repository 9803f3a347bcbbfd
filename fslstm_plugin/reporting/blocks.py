"""What pages and files show: sections of tables, figures and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


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
    figure: str = ""  # An SVG element, see `svg_element`.
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

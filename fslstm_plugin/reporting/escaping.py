"""Text and numbers in LaTeX and Markdown."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from ..errors import printable
from .words import NOTHING

_LATEX = {
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "ρ": "$\\rho$",
    "λ": "$\\lambda$",
    "±": "$\\pm$",
    "∞": "$\\infty$",
    "–": "--",
    "†": "$^\\dagger$",
}
_LATEX |= {letter: f"\\{letter}" for letter in "&%$#_{}"}
_LATEX |= {letter: f"${letter}$" for letter in "<>|"}
_LATEX |= {letter: f"{{{letter}}}" for letter in "[]*"}  # after a line end they would be read as its argument


def latex_number(text: str) -> str:
    """The output of `number` and `signed`, for LaTeX."""
    return "--" if text == NOTHING else f"${text.replace('±', chr(92) + 'pm')}$"


def latex_tabular(columns: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table of booktabs, given its cells in LaTeX."""
    first, *others = (f"{' & '.join(cells)} \\\\" for cells in (head, *rows))
    ends = "\\bottomrule", "\\end{tabular}"
    return [f"\\begin{{tabular}}{{{columns}}}", "\\toprule", first, "\\midrule", *others, *ends]


def latex_escape(text: str) -> str:
    r"""Text for LaTeX, in one line.

    Example:
        >>> print(latex_escape("a_b & [5 %]"))
        a\_b \& {[}5 \%{]}
    """
    return "".join(_LATEX.get(letter, letter) for letter in printable(text))


def markdown_escape(text: str) -> str:
    r"""Text for a cell of a Markdown table, in one line, with all Markdown and HTML escaped.

    Example:
        >>> print(markdown_escape("<b>|_x_"))
        &lt;b&gt;&#124;\_x\_
    """
    escaped = "".join(f"\\{letter}" if letter in "\\`*_[]~" else letter for letter in printable(text))
    return html.escape(escaped, quote=False).replace("|", "&#124;")

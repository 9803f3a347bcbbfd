"""A chart of methods: the accuracy of each with its interval, the best on top."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from ..errors import UsageError
from ..evaluation.rows import Row
from ..extras import needs_extra
from ..storage.files import replaceable, replacing
from .figures.lines import COLOURS, STYLE
from .words import by_method, by_shots, full_name

with needs_extra("A figure", "report"):
    from matplotlib import rc_context
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Who made the file, by which the command knows it as one that it may replace, and no date, which makes files differ.
_MARK = "drawn by fslstm"
_METADATA = {
    "png": {"Software": _MARK},
    "svg": {"Creator": _MARK, "Date": None},
    "pdf": {"Creator": _MARK, "CreationDate": None},
}
_LINE, _CAPTION, _AROUND = 0.17, 0.13, 0.75  # Heights of a method, a line of caption, what is around, in inches.
_PANEL, _NAMES, _LETTERS = 1.9, 1.4, 28  # Widths of a panel and of the names in inches, of a name's line in letters.


@rc_context(STYLE)
def chart(rows: Sequence[Row], caption: str = "") -> Figure:
    """Accuracies with 95 % intervals: a line for each method, by mean accuracy, a panel for each number of shots.

    A caption, for a figure that stands alone, is written below; without one, a heading says the only number of shots.
    """
    lines = sorted(by_method(rows), key=lambda line: fmean(row.accuracy for row in line.values()))
    names = [full_name(next(iter(line.values())), rows) for line in lines]
    shots = list(by_shots(rows))
    labels = ["\n".join(textwrap.wrap(each, _LETTERS, break_on_hyphens=False)) for each in names]
    heights = [1 + 0.7 * label.count("\n") for label in labels]
    places = [sum(heights[: place + 1]) - heights[place] / 2 for place in range(len(labels))]
    width = _NAMES + _PANEL * len(shots)
    letters = int(width * 72 / (0.55 * STYLE["axes.labelsize"]))  # of mean width
    below = ["accuracy in %, with 95 % interval", *textwrap.wrap(caption, letters)]
    height = _LINE * sum(heights) + _AROUND + _CAPTION * (len(below) - 1)
    figure = Figure(figsize=(width, height), layout="constrained")
    panels = figure.subplots(1, len(shots), sharey=True, squeeze=False)[0]
    for panel, count in zip(panels, shots, strict=True):
        mine = [(place, line[count]) for place, line in zip(places, lines, strict=True) if count in line]
        _panel(panel, mine)
        if caption or len(shots) > 1:  # else a heading says it
            panel.set_title(f"{count}-shot")
    panels[0].set_yticks(places, labels)
    panels[0].set_ylim(0, sum(heights))
    figure.supxlabel("\n".join(below), fontsize=STYLE["axes.labelsize"])
    shown = dict(zip(*reversed(panels[0].get_legend_handles_labels()), strict=True))
    if len(shown) > 1:
        figure.legend(shown.values(), shown.keys(), loc="outside upper center", ncols=2)
    return figure


def save(figure: Figure, file: Path, salt: str) -> None:
    """Write a figure as its file is named: PNG, SVG or PDF, the same bytes each time.

    The salt makes its identifiers differ from those of other figures of a page.
    """
    kind = require_kind(file).suffix[1:].lower()
    with (
        rc_context({"svg.hashsalt": salt, "svg.fonttype": "none", "pdf.fonttype": 42}),
        replacing(replaceable(file)) as temporary,
    ):
        figure.savefig(temporary, format=kind, dpi=240, metadata=_METADATA[kind])


def require_kind(file: Path) -> Path:
    """The file, whose name must say which kind of figure it is."""
    if file.suffix[1:].lower() not in _METADATA:
        raise UsageError(f"{file} must end in .svg, .png or .pdf, which says what kind of figure it is.")
    return file


def _panel(panel: Axes, placed: Sequence[tuple[float, Row]]) -> None:
    kinds = ((False, "inductive", "o"), (True, "transductive", "D"))
    for colour, (transductive, label, marker) in zip(COLOURS, kinds, strict=False):
        mine = [(place, row) for place, row in placed if row.transductive is transductive]
        if mine:
            panel.errorbar(
                [row.accuracy for _, row in mine], [place for place, _ in mine], xerr=[row.ci95 for _, row in mine],
                fmt=marker, color=colour, label=label,
            )  # fmt: skip
    panel.tick_params(axis="y", length=0)
    panel.grid()

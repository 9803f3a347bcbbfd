"""How many pictures of each label `predict` found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fslstm_plugin.errors import printable

from . import pictures, terminal

if TYPE_CHECKING:
    from fslstm_plugin.pictures.predictions import Prediction

_LISTED = 25  # Pictures that are printed one by one; of more there is a summary.


@dataclass
class _Count:
    pictures: int = 0
    single: int = 0
    sure: int = 0
    predicted: int = 0  # Pictures whose label nobody corrected.
    probability: float = 0.0  # The sum of theirs.


@dataclass(frozen=True)
class Summary:
    """How many pictures there are of each label."""

    counts: Mapping[str, _Count]

    @classmethod
    def of(cls, predictions: Iterable[Prediction], classes: Sequence[str]) -> Summary:
        """Of the predictions, with the classes first and in their order."""
        from fslstm_plugin.pictures.predictions import NONE

        counts = {printable(name): _Count() for name in classes}
        for each in predictions:
            count = counts.setdefault(each.label, _Count())
            count.pictures += 1
            count.single += each.labels is not None and len(each.labels) == 1
            count.sure += bool(each.sure)
            if not each.is_corrected:
                count.predicted += 1
                count.probability += each.probability
        return cls({**{name: each for name, each in counts.items() if name != NONE}, NONE: counts.get(NONE, _Count())})

    @property
    def total(self) -> int:
        """Pictures with a prediction."""
        return sum(each.pictures for each in self.counts.values())

    def show(self, predictions: Iterable[Prediction], sets: bool, sure: bool, source: Path, calibrated: bool) -> None:
        """Print it, with columns for prediction sets and for sure labels where there are some; few pictures singly."""
        from rich.table import Column, Table

        from fslstm_plugin.pictures.predictions import NONE

        right = partial(Column, justify="right")
        doubt = "" if calibrated else " (uncalibrated)"
        if self.total <= _LISTED:
            shown = Table(
                "Picture",
                "Label",
                right(f"Probability %{doubt}"),
                *(["May be"] if sets else []),
                *(["Sure"] if sure else []),
            )
            for each in predictions:
                label = each.label if each.label == each.likeliest else f"{each.label} ({each.likeliest})"
                cells = [pictures.shown(each.path, source), label, _percent(each.probability, not each.is_corrected)]
                cells += [] if each.labels is None else [", ".join(each.labels)]
                cells += ["yes" if each.sure else "look"] if sure else []
                shown.add_row(*map(terminal.cell, cells))
        else:
            single = [right("Set of one label")] if sets else []
            shown = Table("Label", right("Pictures"), right(f"Mean probability %{doubt}"), *single)
            for name, count in self.counts.items():
                if count.pictures:
                    likely = 0 if name == NONE else count.predicted  # whose probability is their label's
                    cells = [name, f"{count.pictures:,}", _percent(count.probability, likely)]
                    cells += [f"{count.single:,}"] if sets else []
                    shown.add_row(*map(terminal.cell, cells))
        terminal.for_tables().print(shown)


def _percent(probability: float, pictures: int) -> str:
    """A mean from a sum; of a label that is no prediction there is none."""
    return f"{100 * probability / pictures:.0f}" if pictures else "–"

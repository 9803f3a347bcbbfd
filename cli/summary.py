"""What `predict` says of its predictions: how many pictures of each label there are, and what is promised of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Column, Table

from fslstm_plugin.errors import count_of, printable
from fslstm_plugin.pictures.acceptance import accepting
from fslstm_plugin.pictures.predictions import NONE, Prediction, Sureness

from . import pictures, terminal
from .options import PER_CLASS

if TYPE_CHECKING:
    from fslstm_plugin.pictures.likeness import Tested
    from fslstm_plugin.pictures.predictor import Guarantee

    from .labellers import Labeller

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


def promises(
    labeller: Labeller, summary: Summary, tested: Tested | None, sure: Sureness | None, accept: float | None
) -> list[str]:
    """What holds of the predictions together, and what is not to be expected of them."""
    why = labeller.why_uncalibrated
    return [
        *_on_sets(labeller.sets, tested),
        *_on_sure(sure, summary, tested, labeller),
        *_on_likeness(tested),
        *accepting(labeller.accepted, labeller.counts, accept),
        *([] if why is None else [f"The probabilities are uncalibrated: {why}."]),
    ]


def _on_sets(sets: Guarantee | None, tested: Tested | None) -> list[str]:
    """How often the prediction sets contain the true label; none where there are none."""
    if sets is None:
        return []
    whom = (
        "the pictures of each class"
        if sets.kind == PER_CLASS
        else "all pictures, where labelled and new ones are drawn alike"
    )
    contain = "are not guaranteed to contain" if _withdrawn(tested) else "contain"
    untested = ", if they are like the labelled ones, which was not tested" if tested is None else ""
    return [f"The prediction sets {contain} the true label for {100 * sets.coverage:g} % of {whom}{untested}."]


def _on_sure(sure: Sureness | None, summary: Summary, tested: Tested | None, labeller: Labeller) -> list[str]:
    """How many labels can be taken without a look, and what is promised of them; none where that was not asked."""
    if sure is None:
        return []
    number = sum(count.sure for count in summary.counts.values())
    rest = summary.total - number
    others = f"; look at the other {rest:,}" if rest else ""
    told = f"Sure: {number:,} of {count_of(summary.total, 'picture')}{others}."
    if sure.wrong_at_most is None:
        corrected = any(count.pictures > count.predicted for count in summary.counts.values())
        other = ", or if it was corrected" if corrected else ""
        return [f"{told} A label is sure if its probability is at least {sure.above:g}{other}."]
    if not number:
        return [told]
    share = f"{100 * sure.wrong_at_most:g} % of all pictures"
    if _withdrawn(tested):
        how = "guaranteed" if sure.guaranteed else "expected"
        return [f"{told} It is not {how} that at most {share} get a wrong label that is sure."]
    if sure.guaranteed:
        return [
            f"{told} On average at most {share} get a wrong label that is sure, with the same guarantee as the "
            "prediction sets, for pictures of the classes."
        ]
    more = " It can be a little more, since the predictions use the other pictures." if labeller.together else ""
    shares = ", in the same proportions" if len(set(labeller.counts)) > 1 else ""
    untested = ", which was not tested" if tested is None else ""
    return [
        f"{told} At most {share} are expected to get a wrong label that is sure, if they are of the classes and like "
        f"the labelled ones of each{shares}{untested}.{more}"
    ]


def _on_likeness(tested: Tested | None) -> list[str]:
    """Whether the pictures are like the labelled ones, as every promise assumes; none where that was not tested."""
    if tested is None:
        return []
    test = f"a permutation test of {count_of(tested.pictures, 'picture')}"
    if not tested.withdrawn:
        return [
            f"Every promise assumes pictures like the labelled ones: {test} finds no difference (p = "
            f"{tested.p_value:.2g})."
        ]
    names = ", ".join(printable(Path(each).name) for each in tested.different)
    return [
        f"The pictures differ from the labelled ones (p = {tested.p_value:.2g} in {test}), most of all {names}. Look "
        "at these: label some and add them with 'fslstm update --add', or leave out those of none of the classes."
    ]


def _withdrawn(tested: Tested | None) -> bool:
    return tested is not None and tested.withdrawn

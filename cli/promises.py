"""What the predictions of `predict` promise, in sentences."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fslstm_plugin.errors import count_of, printable

from .options import PER_CLASS

if TYPE_CHECKING:
    from fslstm_plugin.pictures.likeness import Tested
    from fslstm_plugin.pictures.predictions import Sureness
    from fslstm_plugin.pictures.predictor import Guarantee

    from .labellers import Labeller
    from .summary import Summary


def promises(
    labeller: Labeller, summary: Summary, tested: Tested | None, sure: Sureness | None, accept: float | None
) -> list[str]:
    """What holds of the predictions together, and what is not to be expected of them."""
    from fslstm_plugin.pictures.acceptance import accepting

    return [
        *_on_sets(labeller.sets, tested),
        *_on_sure(sure, summary, tested, labeller.together),
        *_on_likeness(tested),
        *accepting(labeller.accepted, labeller.counts, accept),
        *_doubted(labeller.why_uncalibrated),
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
    begins = "Not guaranteed: that the" if _withdrawn(tested) else "The"
    untested = ", if they are like the labelled ones, which was not tested" if tested is None else ""
    return [f"{begins} prediction sets contain the true label for {100 * sets.coverage:g} % of {whom}{untested}."]


def _on_sure(sure: Sureness | None, summary: Summary, tested: Tested | None, together: bool) -> list[str]:
    """How many labels can be taken without a look, and what is promised of them; none where that was not asked."""
    if sure is None:
        return []
    number = sum(count.sure for count in summary.counts.values())
    rest = summary.total - number
    others = f"; look at the other {rest:,}" if rest else ""
    told = f"Sure: {number:,} of {count_of(summary.total, 'picture')}{others}."
    if sure.wrong_at_most is None:
        corrected = any(count.pictures > count.predicted for count in summary.counts.values())
        other = ", or one that was corrected" if corrected else ""
        return [f"{told} Sure is a label with a probability of at least {sure.above:g}{other}."]
    if not number:
        return [told]
    share = f"{100 * sure.wrong_at_most:g} % of all pictures"
    if _withdrawn(tested):
        how = "guaranteed" if sure.guaranteed else "to be expected"
        return [f"{told} Not {how}: that at most {share} get a wrong label that is sure."]
    if sure.guaranteed:
        return [
            f"{told} On average at most {share} get a wrong label that is sure, guaranteed as the prediction sets are, "
            "for pictures of the classes."
        ]
    more = " It can be a little more, since the predictions use the other pictures." if together else ""
    untested = ", which was not tested" if tested is None else ""
    return [
        f"{told} At most {share} are expected to get a wrong label that is sure, if they are of the classes and like "
        f"the labelled ones of each{untested}.{more}"
    ]


def _on_likeness(tested: Tested | None) -> list[str]:
    """Whether the pictures are like the labelled ones, as every promise assumes; none where that was not tested."""
    if tested is None:
        return []
    test = f"a permutation test of {count_of(tested.pictures, 'picture')}"
    if not tested.withdrawn:
        return [
            f"What is promised assumes pictures like the labelled ones: {test} finds no difference (p = "
            f"{tested.p_value:.2g})."
        ]
    names = ", ".join(printable(Path(each).name) for each in tested.different)
    return [
        f"The pictures differ from the labelled ones (p = {tested.p_value:.2g} in {test}), most of all {names}. Look "
        "at these: label some and add them with 'fslstm update --add', or leave out what is of none of the classes."
    ]


def _withdrawn(tested: Tested | None) -> bool:
    return tested is not None and tested.withdrawn


def _doubted(why: str | None) -> list[str]:
    """That the probabilities are uncalibrated, in a sentence with the reason; none where they are calibrated."""
    return [] if why is None else [f"The probabilities are uncalibrated: {why}."]

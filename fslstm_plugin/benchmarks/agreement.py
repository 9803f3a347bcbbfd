"""Whether two sides of a benchmark agree: the time of a wrong answer means nothing."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..errors import FSLSTMError

TIE = 1e-4
"""A query is a tie if its two best logits are no further apart than this share of its best and its worst.

Both sides begin with single-precision features, whose rounding moves logits by a few millionths of that.
"""


class Disagreement(FSLSTMError):
    """The two sides of a benchmark do not agree."""


@dataclass(frozen=True)
class Agreement:
    """The agreement of two sides."""

    predictions: int  # How many predictions were compared.
    ties: int  # On how many of them the sides differed, each a tie of the reference's.


def compare(case: str, ours: Tensor, reference: Tensor, tie: float = TIE) -> Agreement:
    """Compare the predictions of every query, after each fit.

    The pseudo labels of one fit make the support of the next, so an episode in which a tie was broken differently is
    compared up to that fit only.

    Args:
        case: For the error message.
        ours: Predicted classes, int64 ``(fits, episodes, queries)``.
        reference: Logits ``(fits, episodes, queries, ways)``.
        tie: What is a tie, see `TIE`.

    Raises:
        Disagreement: If a prediction differs and was no tie.

    Example:
        >>> import torch
        >>> compare("toy", torch.tensor([[[0, 1]]]), torch.tensor([[[[2.0, 1.0], [0.0, 3.0]]]]))
        Agreement(predictions=2, ties=0)
    """
    differ = ours != reference.argmax(-1)
    parted = differ.any(-1)
    together = (parted.cumsum(0) - parted.long() == 0).unsqueeze(-1).expand_as(differ)
    wrong = differ & together & ~near_ties(reference, tie)
    if wrong.any():
        fit, episode, query = (int(index) for index in wrong.nonzero()[0])
        raise Disagreement(
            f"{case}: {int(wrong.sum())} of {int(together.sum())} predictions differ from the reference's, "
            f"the first of episode {episode}, query {query}, fit {fit}; the times mean nothing."
        )
    return Agreement(int(together.sum()), int((differ & together).sum()))


def near_ties(logits: Tensor, tie: float = TIE) -> Tensor:
    """Which queries have two practically equal best logits, bool, without the last dimension."""
    best = logits.topk(2).values
    return best[..., 0] - best[..., 1] <= tie * (best[..., 0] - logits.amin(-1))


def require_same_accuracies(case: str, ours: Tensor, expected: Tensor, reference: Tensor, tie: float = TIE) -> None:
    """Compare the accuracies of a run of the engine with those of the predictions that were compared.

    Args:
        case: For the error message.
        ours: Percent, one per episode ``(episodes,)``.
        expected: The same from the predictions.
        reference: The reference's logits ``(fits, episodes, queries, ways)``; episodes without ties must be equal.
        tie: What is a tie, see `TIE`.

    Raises:
        Disagreement: If an episode without ties has another accuracy.
    """
    decided = ~near_ties(reference, tie).any(-1).any(0)
    wrong = decided & ((ours - expected).abs() > 1e-6)
    if wrong.any():
        raise Disagreement(
            f"{case}: a run of the engine gave {int(wrong.sum())} of {len(ours)} episodes another accuracy than the "
            "predictions that were compared; the times mean nothing."
        )

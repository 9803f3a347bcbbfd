"""The Pseudo Support Module (PSM)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..checks import one_of, require
from ..gram import EpisodeGram
from ..heads import Head, one_hot
from .base import TransductiveModule


class PseudoSupportModule(TransductiveModule):
    """Append the average query of each predicted class to the support, refit, and repeat; for testing only.

    The averages accumulate: k iterations add k points to each class. A class without assigned queries is left out of
    that iteration. (The published implementation appends a zero vector for it.) Most classes keep their queries after
    an iteration or two; a repeated average is not appended, its weight grows: the same solution, from a system
    that stays small.

    As published, every average has the weight of one shot, however few queries its class was assigned. That is right
    where all classes have equally many queries. Where they do not, the average of a rare class is mostly of other
    classes' queries, and the module can cost accuracy. ``prior="tested"`` lowers the weights as the predictions speak
    against balanced queries, see `average_weights`. Use it where the queries may be far from balanced, except with NN
    at 1 shot.

    Source: the paper's section on the Pseudo Support Module; the tested prior is ours.

    Args:
        iterations: Number of refits k, at least 0; default 10. 0 is the plain head.
        prior: What is assumed of the shares of the classes among the queries: ``"uniform"`` (default), equal, as
            published; or ``"tested"``, equal as long as the predictions agree with it.

    Raises:
        UsageError: If the iterations are no whole number of at least 0, or there is no such prior.

    Example:
        >>> from fslstm_plugin.heads import PrototypeClassifier
        >>> support, labels = torch.tensor([[0.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 1])
        >>> query = torch.tensor([[0.0, 2.0], [2.0, 2.0]])  # Moves each prototype half way to its query.
        >>> PseudoSupportModule(iterations=1)(PrototypeClassifier(), support, labels, query)
        tensor([[-0.5000, -2.5000],
                [-2.5000, -0.5000]])
    """

    def __init__(self, iterations: int = 10, prior: str = "uniform") -> None:
        super().__init__()
        self.prior = one_of("prior", prior, ("tested", "uniform"))
        self.iterations = require("iterations", iterations, least=0, whole=True)

    def refine(self, head: Head, gram: EpisodeGram, targets: Tensor) -> Tensor:
        """See `TransductiveModule.refine`."""
        return self.trajectory(head, gram, targets)[-1]

    def trajectory(self, head: Head, gram: EpisodeGram, targets: Tensor) -> Tensor:
        """The logits after each refit, in one pass: ``(iterations + 1, ..., m, ways)``, the plain head's first."""
        shots, ways = targets.sum(-2), targets.shape[-1]
        head, gram, targets = head.reduced(gram, targets)
        dual = head.learn(gram, targets)
        logits = [head.decide(gram, targets, dual)]
        weights = torch.ones_like(shots)
        before = torch.zeros_like(logits[0])
        latest = torch.zeros_like(targets[..., 0, :], dtype=torch.int64)  # Place of the last average of a class.
        for _ in range(self.iterations):
            predicted = one_hot(logits[-1].argmax(-1), ways)
            given = predicted.any(-2)
            new = given & (predicted != before).any(-2)
            if self.prior == "tested":
                weights = average_weights(logits[-1], shots)
            again = torch.where(given & ~new, weights, 0)
            targets = targets.scatter_add(-2, latest.unsqueeze(-2), again.unsqueeze(-2))
            # Each episode fills as many of the new places as it needs; one left empty is an absent point.
            place = new.cumsum(-1) - 1
            size = int(place.max()) + 1
            if size:
                added = one_hot(torch.where(new, place, size), size).mT
                latest = torch.where(new, targets.shape[-2] + place, latest)
                averages = predicted / predicted.sum(-2, keepdim=True).clamp(min=1)
                gram = gram.append(added @ averages.mT)
                targets = torch.cat([targets, added * weights.unsqueeze(-2)], -2)
            dual = head.learn(gram, targets, dual)
            logits.append(head.decide(gram, targets, dual))
            before = predicted
        return torch.stack(logits)


def average_weights(logits: Tensor, shots: Tensor) -> Tensor:
    """Weights of the classes' averages: those of one shot, lower as the predictions speak against balanced queries.

    Let ``r`` be the share of a class among the predictions times the number of classes, ``q`` the queries per class.
    The spread of balanced predictions, ``q (r - 1)^2`` averaged over classes, would be 1 if they were drawn
    independently. A head of few shots spreads them more, since it prefers some classes whatever the query. So they are
    counted once more, as ``r'``, after the mean logit that the class has for the queries of others is subtracted, and
    the evidence is what both counts agree on::

        evidence = sum_c q (r_c - 1) (r'_c - 1) / (ways - 1)
        expected = 1 + q / (4 shots)
        weight_c = (min(1, r_c) / 2) ^ (3 max(0, evidence / expected - 1))

    The factor 1/2 lowers the frequent classes' weights too: a head that interpolates, such as the LSSVM with its small
    ridge, ignores weights until all are nearly 0, and only then is the plain head again.

    Source: ours; the form and its constants were chosen on the validation classes of CIFAR-FS.

    Args:
        logits: ``(..., m, ways)``.
        shots: Support points of each class ``(..., ways)``; unequal ones count by the mean of ``1 / shots``.

    Returns:
        ``(..., ways)``, in [0, 1]; meaningless for a class without assigned queries.

    Example:
        >>> average_weights(torch.eye(2).repeat(20, 1), shots=torch.ones(2))
        tensor([1., 1.], dtype=torch.float64)
        >>> skewed = torch.eye(2).repeat_interleave(torch.tensor([30, 10]), dim=0)
        >>> average_weights(skewed, shots=torch.ones(2))
        tensor([0.2500, 0.0625], dtype=torch.float64)
    """
    ways, queries = logits.shape[-1], logits.shape[-2] / logits.shape[-1]
    predicted = one_hot(logits.argmax(-1), ways)
    others = 1 - predicted
    logits = logits - logits.mean(-1, keepdim=True)
    preference = (logits * others).sum(-2, keepdim=True) / others.sum(-2, keepdim=True).clamp(min=1)
    unprejudiced = one_hot((logits - preference).argmax(-1), ways)
    excess = predicted.sum(-2) / queries - 1
    agreed = excess * (unprejudiced.sum(-2) / queries - 1)
    evidence = queries * agreed.sum(-1, keepdim=True) / max(ways - 1, 1)
    expected = 1 + queries / 4 * (1 / shots).mean(-1, keepdim=True)
    return ((1 + excess).clamp(max=1) / 2) ** (3 * (evidence / expected - 1).clamp(min=0))

"""The Pseudo Support Module (PSM)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import require_whole
from ..gram import EpisodeGram
from ..heads import Head, one_hot
from .base import TransductiveModule


class PseudoSupportModule(TransductiveModule):
    """Append the average query of each predicted class to the support, refit, and repeat; for testing only.

    The averages accumulate: k iterations add k points to each class. A class that no query was given is left
    out of that iteration. (The published implementation appends a zero vector for it.) Most classes keep their
    queries after an iteration or two; an average that comes again is not appended, its weight grows by one: the
    same solution, from a system that stays small.

    Source: the paper's section on the Pseudo Support Module.

    Args:
        iterations: Number of refits k, at least 0; default 10. 0 is the plain head.

    Raises:
        UsageError: If the iterations are no whole number of at least 0.

    Example:
        >>> from fslstm_plugin.heads import PrototypeClassifier
        >>> support, labels = torch.tensor([[0.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 1])
        >>> query = torch.tensor([[0.0, 2.0], [2.0, 2.0]])  # Moves each prototype half way to its query.
        >>> PseudoSupportModule(iterations=1)(PrototypeClassifier(), support, labels, query)
        tensor([[-0.5000, -2.5000],
                [-2.5000, -0.5000]])
    """

    def __init__(self, iterations: int = 10) -> None:
        super().__init__()
        self.iterations = require_whole("iterations", iterations)

    def refine(self, head: Head, gram: EpisodeGram, targets: Tensor) -> Tensor:
        """See `TransductiveModule.refine`."""
        return self.trajectory(head, gram, targets)[-1]

    def trajectory(self, head: Head, gram: EpisodeGram, targets: Tensor) -> Tensor:
        """The logits after each refit, in one pass.

        Args:
            head: See `refine`.
            gram: See `refine`.
            targets: See `refine`.

        Returns:
            ``(iterations + 1, ..., m, ways)``; the first are the plain head's.
        """
        dual = head.learn(gram, targets)
        logits = [head.decide(gram, targets, dual)]
        ways = targets.shape[-1]
        before = torch.zeros_like(logits[0])
        latest = torch.zeros_like(targets[..., 0, :], dtype=torch.int64)  # Where the last average of a class is.
        for _ in range(self.iterations):
            predicted = one_hot(logits[-1].argmax(-1), ways)
            given = predicted.any(-2)
            new = given & (predicted != before).any(-2)
            again = (given & ~new).to(targets)
            targets = targets.scatter_add(-2, latest.unsqueeze(-2), again.unsqueeze(-2))
            # Each episode fills as many of the new places as it needs; one left empty is an absent point.
            place = new.cumsum(-1) - 1
            size = int(place.max()) + 1
            if size:
                added = one_hot(torch.where(new, place, size), size).mT
                latest = torch.where(new, targets.shape[-2] + place, latest)
                averages = predicted / predicted.sum(-2, keepdim=True).clamp(min=1)
                gram = gram.append(added @ averages.mT)
                targets = torch.cat([targets, added], -2)
            dual = head.learn(gram, targets, dual)
            logits.append(head.decide(gram, targets, dual))
            before = predicted
        return torch.stack(logits)

"""The transduction of CAN (cross attention network), for any head."""

from __future__ import annotations

import torch
from torch import Tensor

from ..checks import one_of, require
from ..gram import EpisodeGram
from ..heads import Head, one_hot
from .base import TransductiveModule


class CandidateSelection(TransductiveModule):
    """Append the most confidently predicted queries to the support, refit, and repeat with more of them.

    Iteration i takes the ``i T`` queries of highest winning score over all classes together, T =
    ``int(fraction * m)``, at most all; between equal scores the query that comes first. They replace the
    candidates of the iteration before.

    Not for a head whose constant is large for the length of the features, such as ``rr(normalize)``: it scores a class
    higher, the more points it has, and then few classes have all candidates.

    Source: the paper's comparison with CAN, after Hou et al., "Cross attention network for few-shot
    classification", 2019. The default takes 35, then 70, of 75 queries.

    Args:
        fraction: Share of the queries that each iteration adds, in (0, 1]; default 35/75.
        iterations: Number of refits, at least 0; default 2. 0 is the plain head.
        score: ``"logit"`` (default), the winning logit, as published; or ``"probability"``, its softmax.

    Raises:
        UsageError: If an argument is outside its range.

    Example:
        >>> from fslstm_plugin.heads import PrototypeClassifier
        >>> support, labels = torch.tensor([[0.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 1])
        >>> query = torch.tensor([[0.0, 2.0], [2.0, 2.0]])
        >>> CandidateSelection(fraction=0.5)(PrototypeClassifier(), support, labels, query)
        tensor([[-0.5000, -2.5000],
                [-2.5000, -0.5000]])
    """

    def __init__(self, fraction: float = 35 / 75, iterations: int = 2, score: str = "logit") -> None:
        super().__init__()
        self.fraction = require("fraction", fraction, above=0, most=1)
        self.score = one_of("score", score, ("logit", "probability"))
        self.iterations = require("iterations", iterations, least=0, whole=True)

    def refine(self, head: Head, gram: EpisodeGram, targets: Tensor) -> Tensor:
        """See `TransductiveModule.refine`."""
        head, gram, targets = head.reduced(gram, targets)
        logits = head.predict(gram, targets)
        for count in self.counts(logits.shape[-2]):
            chosen, labels = self._candidates(logits, count)
            # Not from the plain solution: with so many new points it is not a close start.
            logits = head.predict(gram.append_queries(chosen), torch.cat([targets, labels], -2))
        return logits

    def counts(self, queries: int) -> list[int]:
        """How many candidates each iteration takes.

        Example:
            >>> CandidateSelection().counts(75)
            [35, 70]
        """
        step = int(self.fraction * queries + 1e-9)  # 35 of 75 must not become 34 by rounding.
        return [min(i * step, queries) for i in range(1, self.iterations + 1)]

    def _candidates(self, logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The candidates' indices ``(..., count)``, and their predicted one-hot labels."""
        scores = logits.softmax(-1) if self.score == "probability" else logits
        winning, predicted = scores.max(-1)
        chosen = winning.sort(dim=-1, descending=True, stable=True).indices[..., :count]
        labels = one_hot(predicted.gather(-1, chosen), logits.shape[-1])
        return chosen, labels

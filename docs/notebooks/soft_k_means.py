"""Soft k-means: prototypes that are refined by the queries."""

import torch
from fslstm_plugin import Method


class SoftKMeans(Method):
    """Prototypes, refined by soft assignments of the queries.

    Source: Ren et al., "Meta-learning for semi-supervised few-shot classification",
    2018, section 3.1.1; here distances are divided by the number of features.

    Args:
        steps: Number of refinements; default 3.
    """

    is_transductive = True

    def __init__(self, steps: int = 3) -> None:
        super().__init__()
        self.steps = steps

    def logits(self, features):
        targets = features.targets.to(features.query.dtype)
        sums, counts = targets.mT @ features.support, targets.sum(-2).unsqueeze(-1)
        logits = self._nearness(features.query, sums / counts)
        for _ in range(self.steps):
            shares = logits.softmax(-1)
            prototypes = (sums + shares.mT @ features.query) / (
                counts + shares.sum(-2).unsqueeze(-1)
            )
            logits = self._nearness(features.query, prototypes)
        return logits

    @staticmethod
    def _nearness(query, prototypes):
        return -torch.cdist(query, prototypes).square() / query.shape[-1]

"""The Inverse Attention Module (IAM)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..checks import require
from ..errors import UsageError
from ..features import EpisodeFeatures
from .base import FeatureAdapter


class InverseAttentionModule(FeatureAdapter):
    """Shift each class of the support by what its points attend to among the queries.

    ``A = softmax(Q K^T / sqrt(d)) V`` with Q from the support and K, V from the queries; each row of A is
    replaced by the mean of its class; the adjusted support is ``LayerNorm(S + Dropout(output_map(A)))``.
    Trained together with the head, used in training and testing. The queries stay as they are.

    Source: the paper's section on the Inverse Attention Module.

    Args:
        dim: Number of features d.
        reduction: Ratio r of the bottlenecks Linear(d, d/r), ReLU, Linear(d/r, d), 1 to d; default 8 (the
            paper's for CIFAR-FS; 16 for miniImageNet).
        dropout: Probability in [0, 1); default 0.5.

    Raises:
        UsageError: If an argument is outside its range.

    Example:
        >>> iam = InverseAttentionModule(dim=16).eval()
        >>> iam(torch.rand(5, 16), torch.arange(5), torch.rand(75, 16), ways=5).shape
        torch.Size([5, 16])
    """

    is_transductive = True
    is_label_free = False
    is_static = True
    sizes = ("dim",)

    def __init__(self, dim: int, reduction: int = 8, dropout: float = 0.5) -> None:
        super().__init__()
        require("dim", dim, least=1, whole=True)
        self.dropout = require("dropout", dropout, least=0, below=1)
        self.reduction = require("reduction", reduction, least=1, most=dim, whole=True)
        self.query_map, self.key_map, self.value_map, self.output_map = (_bottleneck(dim, reduction) for _ in range(4))
        self.norm = nn.LayerNorm(dim)

    def forward(self, support: Tensor, labels: Tensor, query: Tensor, ways: int | None = None) -> Tensor:
        """Adjust the support.

        Args:
            support: Features ``(..., n, d)``.
            labels: int64 in [0, ways): ``(..., n)``, or ``(n,)`` for all episodes.
            query: Features ``(..., m, d)``.
            ways: Number of classes; default the greatest label + 1.

        Returns:
            The adjusted support ``(..., n, d)``.

        Raises:
            UsageError: If a shape, type or value is wrong, or a class has no support point.
        """
        return self.adapt(EpisodeFeatures(support, query, labels, ways)).support

    def adapt(self, features: EpisodeFeatures) -> EpisodeFeatures:
        """See `FeatureAdapter.adapt`; the queries' features stay as they are."""
        dim = self.norm.normalized_shape[0]
        if features.query.shape[-1] != dim:
            raise UsageError(f"This IAM is for {dim} features, but got support {tuple(features.support.shape)}.")

        def adjusted(points: Tensor) -> Tensor:
            points = points.to(self.norm.weight.dtype)
            support, query = points.tensor_split([features.num_support], dim=-2)
            return torch.cat([self._adjust(support, features.targets, query), query], -2)

        return features.derived(adjusted)

    def _adjust(self, support: Tensor, targets: Tensor, query: Tensor) -> Tensor:
        """The adjusted support ``(..., n, d)``; the targets are one-hot labels ``(..., n, ways)``."""
        scores = self.query_map(support) @ self.key_map(query).mT / support.shape[-1] ** 0.5
        members = targets.to(scores.dtype)
        # All that follows is linear in the attention weights up to the class mean, so average them first.
        class_mean = (members / members.sum(-2, keepdim=True)).mT
        attended = (class_mean @ scores.softmax(-1)) @ self.value_map(query)
        shift = members @ self.output_map(attended)
        return self.norm(support + F.dropout(shift, self.dropout, self.training))


def _bottleneck(dim: int, reduction: int) -> nn.Sequential:
    layers = nn.Sequential(nn.Linear(dim, dim // reduction), nn.ReLU(), nn.Linear(dim // reduction, dim))
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_normal_(layer.weight)
    return layers

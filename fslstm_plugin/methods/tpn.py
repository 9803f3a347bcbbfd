"""TPN: label propagation over a graph whose widths are learned."""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..checks import require
from ..errors import UsageError
from ..features import EpisodeFeatures
from ..recipes import MetaRecipe
from .base import Criterion, Method
from .shared.halving import halving_adam


class TPN(Method):
    r"""Labels spread over a graph of all images of an episode, in which each image has a width of its own.

    A small network g makes a signed number ``sigma_i`` of an image's maps; with its features f flattened,
    ``W_ij = exp(-mean((f_i / sigma_i - f_j / sigma_j)^2) / 2)``, of which an entry stays if it is among the k greatest
    of its row or column; the labels spread by ``F = (I - alpha S)^-1 [Y; 0]`` with ``S = D^-1/2 W D^-1/2``, D the row
    sums of W. The logits are the queries' rows of F, not normalised; the loss is the cross entropy of F of all images,
    the support included. Each episode has a graph of its own, but g is normalised over all images of a step.

    No prior over the classes of the queries, but a cluster is one class. It takes any classes, shots and queries.

    Use this where many queries come at once and form clusters; not for single queries. Where sigma nears 0 an image has
    no neighbour but itself, and a query then no score.

    Ours: g reads maps of 64 channels; wider ones are brought to as many by a convolution of 1 x 1 (published: a
    backbone of 64). Sigma begins at ``width`` (published: near 0, by chance): where it is small a graph has no edges,
    where it is large all weights are alike, and there is little to learn from either. Pixels are normalised for the
    backbone (published: from 0 to 255). Like the published one, the backbone is trained without dropout
    (`MetaRecipe.dropout`): a graph of features with it does not fit those without. "Higher shot" is training with 5
    shots for tests with 1, and with 10 for 5: ``--shots``.

    Not repeated: the published early stopping can never come true, and the weights that are tested are those of an
    episode chosen by hand; here the best on validation classes are kept.

    Source: Liu et al., "Learning to propagate labels: transductive propagation network for few-shot learning", ICLR
    2019; the numbers are those of its PyTorch release.

    Args:
        backbone: Asked for the shape of its maps.
        k: Neighbours kept in each row, the image itself among them; default 20; all where there are fewer.
        alpha: Share of a label that comes from neighbours, in [0, 1); default 0.99.
        channels: Of the maps that g reads, default 64.
        width: Where sigma begins for every image, above 0; default 0.3.

    Raises:
        UsageError: If the backbone has no maps, or an argument is outside its range.

    Example:
        >>> from fslstm_plugin.backbones import Conv4
        >>> method = TPN(Conv4(image_size=32)).eval()
        >>> features = EpisodeFeatures(torch.eye(2, 2048), torch.ones(1, 2048), torch.tensor([0, 1]))
        >>> method.logits(features).shape
        torch.Size([1, 2])
    """

    is_transductive = True
    sizes = ("backbone",)
    uses_criterion = False

    def __init__(
        self, backbone: nn.Module, k: int = 20, alpha: float = 0.99, channels: int = 64, width: float = 0.3
    ) -> None:
        super().__init__()
        if getattr(backbone, "map_shape", None) is None:
            raise UsageError(
                f"tpn needs feature maps, but {type(backbone).__name__} has no map_shape: use a backbone that has one, "
                "such as conv4 or resnet12."
            )
        self.k = require("k", k, least=1, whole=True)
        self.alpha = require("alpha", alpha, least=0, below=1)  # At 1 no label would stay where it is.
        self.width = require("width", width, above=0)
        self.channels = require("channels", channels, least=1, whole=True)
        self.map_shape: tuple[int, int, int] = cast(Any, backbone).map_shape
        wide, *sides = self.map_shape
        read = min(wide, channels)
        self.reduction = nn.Conv2d(wide, read, 1) if wide > read else nn.Identity()
        self.conv1 = nn.Conv2d(read, read, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(read)
        self.conv2 = nn.Conv2d(read, 1, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(1)
        height, across = ((side // 2 + 1) // 2 + 1 for side in sides)  # of pools with padding
        self.fc1 = nn.Linear(height * across, 8)
        self.fc2 = nn.Linear(8, 1)
        nn.init.zeros_(self.fc2.weight)
        nn.init.constant_(self.fc2.bias, width)

    def recipe(self, recipe: MetaRecipe, *, pretrained: bool, test_shots: int) -> MetaRecipe:
        """See `Method.recipe`: 210,000 episodes, the rates halved every 10,000."""
        return halving_adam(recipe, episodes=210_000, every=10_000, shots=test_shots, queries=15, pretrained=pretrained)

    def logits(self, features: EpisodeFeatures) -> Tensor:
        """See `Method.logits`; in double precision but for sigma."""
        return self.scores(features)[..., features.num_support :, :]

    def loss(self, features: EpisodeFeatures, query_labels: Tensor, criterion: Criterion) -> tuple[Tensor, Tensor]:
        """See `Method.loss`: the cross entropy of the scores of all images; the criterion is not used."""
        scores = self.scores(features)
        labels = torch.cat([features.labels, query_labels], -1)
        return F.cross_entropy(scores.flatten(0, -2), labels.flatten()), scores[..., features.num_support :, :]

    def scores(self, features: EpisodeFeatures) -> Tensor:
        """F, the scores ``(..., n + m, ways)`` of support and queries."""
        exact = features.targets.dtype
        weights = similarities(features.points.to(exact), self.widths(features.points).to(exact))
        propagation = normalized(with_neighbours(weights, self.k))
        labels = F.pad(features.targets, (0, 0, 0, features.num_query))
        return torch.linalg.solve(labels.new_ones(labels.shape[-2]).diag() - self.alpha * propagation, labels)

    def widths(self, points: Tensor) -> Tensor:
        """Sigma ``(..., N)`` of the images of flattened maps ``(..., N, d)``."""
        maps = self.reduction(points.reshape(-1, *self.map_shape))
        maps = F.max_pool2d(self.bn1(self.conv1(maps)).relu(), 2, padding=1)
        maps = F.max_pool2d(self.bn2(self.conv2(maps)).relu(), 2, padding=1)
        return self.fc2(self.fc1(maps.flatten(1)).relu()).view(points.shape[:-1])


def similarities(points: Tensor, widths: Tensor) -> Tensor:
    """W ``(..., N, N)``, in (0, 1], before neighbours are chosen, of features ``(..., N, d)`` and sigma ``(..., N)``.

    A change of all signs of sigma at once changes nothing.

    Example:
        >>> similarities(torch.tensor([[0.0], [2.0]]), torch.tensor([1.0, 2.0]))
        tensor([[1.0000, 0.6065],
                [0.6065, 1.0000]])
    """
    scaled = points / (widths.unsqueeze(-1) + 2.2e-16)  # as published: a width may be 0
    products = scaled @ scaled.mT / points.shape[-1]
    norms = torch.linalg.diagonal(products)
    squared = norms.unsqueeze(-1) + norms.unsqueeze(-2) - (products + products.mT)
    return torch.exp(-squared.clamp(min=0) / 2)


def with_neighbours(weights: Tensor, k: int) -> Tensor:
    """The entries of a symmetric matrix ``(..., N, N)`` that are among the k greatest of their row or column.

    Example:
        >>> with_neighbours(torch.tensor([[1.0, 0.3, 0.2], [0.3, 1.0, 0.1], [0.2, 0.1, 1.0]]), 2)
        tensor([[1.0000, 0.3000, 0.2000],
                [0.3000, 1.0000, 0.0000],
                [0.2000, 0.0000, 1.0000]])
    """
    near = weights.topk(min(k, weights.shape[-1])).indices
    kept = torch.zeros_like(weights, dtype=torch.bool).scatter(-1, near, True)
    return torch.where(kept | kept.mT, weights, 0)


def normalized(weights: Tensor) -> Tensor:
    """``D^-1/2 W D^-1/2`` of a matrix W ``(..., N, N)`` with row sums D.

    Example:
        >>> normalized(torch.ones(2, 2))
        tensor([[0.5000, 0.5000],
                [0.5000, 0.5000]])
    """
    factors = weights.sum(-1).rsqrt()
    return factors.unsqueeze(-1) * weights * factors.unsqueeze(-2)

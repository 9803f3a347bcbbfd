"""Relation networks: a small network says how alike a query and a class are."""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..checks import require, require_bool
from ..errors import UsageError
from ..features import EpisodeFeatures
from ..recipes import MetaRecipe
from .base import Criterion, Method
from .shared.halving import halving_adam


class RelationNet(Method):
    r"""A query belongs to the class whose maps, beside its own, the relation module scores highest.

    The support's maps are summed by class (not averaged, as published), set beside the query's along the channels, and
    go through two convolutions with batch normalisation, ReLU and pooling, and two linear layers; the sigmoid of the
    result is trained to be 1 for the query's class and 0 for the others by its squared error. The logits are the
    results before the sigmoid, whose greatest is the same, with fewer ties.

    A sum grows with the shots: test with as many as in training. It takes any number of classes and queries.

    Use this as the early learned metric that later methods are measured against; not where training is short: it learns
    to compare from nothing, and with several shots prototypes on a pretrained backbone do better for long.

    Ours: the maps are those of the plugin's backbones without the last two poolings, brought to 64 channels by a
    convolution of 1 x 1, which would else outweigh the backbone (published: a backbone of 64 channels). The
    convolutions are padded where maps are small. Batch normalisation keeps running statistics (published: a momentum of
    1, so that those of the last batch are all there is, and training mode in testing too); over all pairs of a step.
    Images are normalised for the backbone (published: by a mean and deviation that are apparently Omniglot's), which is
    trained without dropout, as published (`MetaRecipe.dropout`).

    Not repeated: the published 5-shot script keeps the weights that are best on the *test* classes, the 1-shot script
    those that are best on 3 queries per class of the validation classes.

    Source: Sung et al., "Learning to compare: relation network for few-shot learning", CVPR 2018; its released code.

    Args:
        backbone: Only its output shape is read; it has a ``wide_map``, as the plugin's own do.
        channels: Of the maps that are compared, default 64.
        hidden: Units between the two linear layers, default 8.
        padding: Of the convolutions; default None: 0 as published, or 1 for maps below 10 x 10, of which 0 would
            leave nothing (images of 32 pixels).
        momentum: Of the running statistics, in (0, 1]; default 0.1 (published: 1).
        batch_statistics: Whether testing normalises by the statistics of the episode itself, as the published code
            does: of its images in the backbone, and of its pairs here. Queries then tell of each other, so that the
            method is transductive. All queries go together (published: in groups of 15 or 25 with every class in equal
            number, support and queries apart). Default False.

    Raises:
        UsageError: If the backbone has no such maps, or nothing is left of them, or an argument is outside its range.

    Example:
        >>> from fslstm_plugin.backbones import Conv4
        >>> backbone = Conv4(image_size=32).eval()
        >>> method = RelationNet(backbone).eval()
        >>> maps = method.embed(backbone, torch.zeros(3, 3, 32, 32))
        >>> maps.shape, method.logits(EpisodeFeatures(maps[:2], maps[2:], torch.tensor([0, 1]))).shape
        (torch.Size([3, 4096]), torch.Size([1, 2]))
    """

    sizes = ("backbone",)
    uses_criterion = False

    def __init__(
        self,
        backbone: nn.Module,
        channels: int = 64,
        hidden: int = 8,
        padding: int | None = None,
        momentum: float = 0.1,
        batch_statistics: bool = False,
    ) -> None:
        super().__init__()
        if not hasattr(backbone, "wide_map"):
            raise UsageError(
                f"relation-net needs feature maps without the last two poolings, but {type(backbone).__name__} has no "
                "wide_map: use a backbone that has one, such as conv4 or resnet12."
            )
        self.momentum = require("momentum", momentum, above=0, most=1)
        self.channels = require("channels", channels, least=1, whole=True)
        self.hidden = require("hidden", hidden, least=1, whole=True)
        self.padding, self.batch_statistics = padding, require_bool("batch_statistics", batch_statistics)
        self.is_transductive = self.episode_statistics = self.batch_statistics  # Of the backbone too.
        sizes = cast(Any, backbone)
        self.side = sizes.image_size // 4
        usual = 0 if self.side >= 10 else 1  # published is 0, which leaves nothing of a smaller map
        self.border = usual if padding is None else require("padding", padding, least=0, whole=True)
        self.reduction = nn.Conv2d(sizes.map_channels, channels, 1)
        self.conv1 = nn.Conv2d(2 * channels, channels, 3, padding=self.border)
        self.bn1 = nn.BatchNorm2d(channels, momentum=momentum)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=self.border)
        self.bn2 = nn.BatchNorm2d(channels, momentum=momentum)
        self.fc1 = nn.Linear(channels * self._pooled_side() ** 2, hidden)
        self.fc2 = nn.Linear(hidden, 1)
        self._initialize()

    def _pooled_side(self) -> int:
        """Side of the maps after both convolutions and poolings."""
        side = self.side
        for _ in range(2):
            side = (side + 2 * self.border - 2) // 2
        if side < 1:
            raise UsageError(
                f"relation-net with padding={self.border} leaves nothing of maps of {self.side} x {self.side}: use "
                "padding=1."
            )
        return side

    def _initialize(self) -> None:
        """The published initialisation."""
        for layer in self.children():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
                nn.init.zeros_(layer.bias)  # type: ignore[arg-type]  # it has one
            elif isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight, std=0.01)
                nn.init.ones_(layer.bias)

    def recipe(self, recipe: MetaRecipe, *, pretrained: bool, test_shots: int) -> MetaRecipe:
        """See `Method.recipe`: 500,000 episodes, the rates halved every 100,000, gradients clipped to 0.5."""
        return halving_adam(
            recipe,
            episodes=500_000,
            every=100_000,
            shots=test_shots,
            queries=15 if test_shots < 5 else 10,
            pretrained=pretrained,
            clip_norm=0.5,
        )

    def embed(self, backbone: nn.Module, images: Tensor) -> Tensor:
        """See `Method.embed`: the wide maps with fewer channels, flattened."""
        return self.reduction(cast(Any, backbone).wide_map(images)).flatten(1)

    def logits(self, features: EpisodeFeatures) -> Tensor:
        """See `Method.logits`: the relation scores ``(..., m, ways)`` before the sigmoid."""
        shape = (self.channels, self.side, self.side)
        sums = features.targets.to(features.support).mT @ features.support
        classes, queries = sums.unflatten(-1, shape), features.query.unflatten(-1, shape)
        *leading, _, _ = features.query.shape
        classes, queries = classes.reshape(-1, *classes.shape[-4:]), queries.reshape(-1, *queries.shape[-4:])
        # Episodes are one batch of the normalisation in training only; and all pairs of many take much memory.
        size = len(classes) if self.training else 1
        parts = [self._related(*part) for part in zip(classes.split(size), queries.split(size), strict=True)]
        return torch.cat(parts).unflatten(0, leading) if leading else parts[0][0]

    def _related(self, classes: Tensor, queries: Tensor) -> Tensor:
        """Scores ``(episodes, m, ways)`` of maps ``(episodes, ways, C, h, w)`` and ``(episodes, m, C, h, w)``."""
        # A convolution of maps side by side is the sum of two, each of which is computed once per class or query.
        of_class, of_query = self.conv1.weight.chunk(2, dim=1)
        left = F.conv2d(classes.flatten(0, 1), of_class, self.conv1.bias, padding=self.border)
        right = F.conv2d(queries.flatten(0, 1), of_query, padding=self.border)
        left, right = left.unflatten(0, classes.shape[:2]), right.unflatten(0, queries.shape[:2])
        pairs = left.unsqueeze(1) + right.unsqueeze(2)
        maps = self._pooled(self.bn1, pairs.flatten(0, 2))
        maps = self._pooled(self.bn2, self.conv2(maps))
        return self.fc2(self.fc1(maps.flatten(1)).relu()).view(pairs.shape[:3])

    def _pooled(self, norm: nn.BatchNorm2d, maps: Tensor) -> Tensor:
        if self.batch_statistics and not self.training:  # without a change of the running ones
            maps = F.batch_norm(maps, None, None, norm.weight, norm.bias, training=True, eps=norm.eps)
        else:
            maps = norm(maps)
        return F.max_pool2d(maps.relu(), 2)

    def loss(self, features: EpisodeFeatures, query_labels: Tensor, criterion: Criterion) -> tuple[Tensor, Tensor]:
        """See `Method.loss`: the mean squared error of the scores; the criterion is not used."""
        logits = self.logits(features)
        wanted = F.one_hot(query_labels, features.ways).to(logits)
        return F.mse_loss(logits.sigmoid(), wanted), logits

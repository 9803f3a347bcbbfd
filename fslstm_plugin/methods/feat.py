"""FEAT and its two transductive variants."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from msgspec.structs import replace
from torch import Tensor, nn

from ..backbones import ResNet12
from ..checks import one_of, require
from ..features import EpisodeFeatures
from ..recipes import Augmentation, MetaRecipe
from .base import Criterion, Method
from .shared.prototypes import class_means, complete_squares


class _Published(NamedTuple):
    """Constants of the loss."""

    balance: float
    temperature: float
    aux_temperature: float


# By whether the backbone is a ResNet12, and whether there are 5 shots or more.
_PUBLISHED = {
    (False, False): _Published(1.0, 64.0, 16.0),
    (False, True): _Published(0.1, 32.0, 64.0),
    (True, False): _Published(0.01, 64.0, 64.0),
    (True, True): _Published(0.1, 64.0, 32.0),
}


class FEAT(Method):
    r"""Prototypes adapted to each other by self-attention: ``logit_c = -||q - p_c||^2 / temperature``.

    One head of attention and layer normalisation, ``E(X; Z) = norm(x + sum_z a_xz V z)``, make a set's points look at
    another set. The class means look at each other (``inductive``), or at the queries too (``semi``); or every support
    point looks at support and queries, and the means of what comes out then take in the queries, each by its
    probabilities (``semi-proto``). Training adds a contrastive term: the points of each class, support and query, look
    at each other, and all are classified by the centres of what comes out.

    Feature maps are averaged over the image, here and not in the backbone, so that the features stay those of all
    methods [ours: published are a global maximum for Conv4, the average for ResNet12]. No prior over the queries'
    classes; ``semi-proto`` leans towards classes that get many queries.

    Use it where there is a pretrained backbone and tasks of the same ways and shots to train on; any ways and shots can
    be tested. Not from few classes: four d x d matrices are learned.

    The recipe for pretrained weights is the published one (the attention learns ten times as fast as the backbone, no
    augmentation, no dropout in a Conv4, ResNet12's DropBlock). FEAT was never trained from scratch: without pretrained
    weights both learn by Adam at 1e-3 [ours]. The published script classifies by inner products unless told otherwise,
    which no published figure used: it has no option here.

    Source: Ye et al., "Few-shot learning via embedding adaptation with set-to-set functions", CVPR 2020.

    Args:
        dim: Length of the backbone's features.
        backbone: Its ``map_shape``, where it has one, says how many channels its maps have.
        variant: ``"inductive"`` (default), ``"semi"`` or ``"semi-proto"``; the latter two are transductive.
        temperature: Of the distances. Default None: as published, 64 at one shot and 32 at five; ResNet12's 64.
        balance: Weight of the contrastive term. Default None: as published, 1 at one shot and 0.1 at five; ResNet12's
            0.01 and 0.1.
        aux_temperature: Of its distances. Default None: as published, 16 and 64; ResNet12's 64 and 32.
        attention_dropout: Of the attention; default 0.1.
        dropout: Of what the attention adds; default 0.5.

    Raises:
        UsageError: If an argument is out of its range.

    Example:
        >>> from fslstm_plugin.backbones import Conv4
        >>> method = FEAT(2048, Conv4(image_size=32), variant="semi").eval()
        >>> features = EpisodeFeatures(torch.rand(5, 2048), torch.rand(9, 2048), torch.arange(5), map_shape=(512, 2, 2))
        >>> method.logits(features).shape, method.is_transductive
        (torch.Size([9, 5]), True)
    """

    sizes = ("dim", "backbone")
    uses_criterion = False

    def __init__(
        self,
        dim: int,
        backbone: nn.Module,
        variant: str = "inductive",
        temperature: float | None = None,
        balance: float | None = None,
        aux_temperature: float | None = None,
        attention_dropout: float = 0.1,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.variant = one_of("variant", variant, ("inductive", "semi", "semi-proto"))
        self.is_transductive = variant != "inductive"
        self.temperature = None if temperature is None else require("temperature", temperature, above=0)
        self.aux_temperature = None if aux_temperature is None else require("aux_temperature", aux_temperature, above=0)
        self.balance = None if balance is None else require("balance", balance, least=0)
        self.attention_dropout = require("attention_dropout", attention_dropout, least=0, below=1)
        self.dropout = require("dropout", dropout, least=0, below=1)
        self.is_resnet = isinstance(backbone, ResNet12)
        map_shape = getattr(backbone, "map_shape", None)
        dim = require("dim", dim if map_shape is None else map_shape[0], least=1, whole=True)
        self.query_map, self.key_map, self.value_map = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.output_map, self.norm = nn.Linear(dim, dim), nn.LayerNorm(dim)
        for layer in (self.query_map, self.key_map, self.value_map):
            nn.init.normal_(layer.weight, std=dim**-0.5)
        nn.init.xavier_normal_(self.output_map.weight)

    def constants(self, features: EpisodeFeatures) -> _Published:
        """The loss's constants: those given, others as published for the backbone and the shots."""
        published = _PUBLISHED[self.is_resnet, features.num_support >= 5 * features.ways]
        given = {name: value for name in _Published._fields if (value := getattr(self, name)) is not None}
        return published._replace(**given)

    def logits(self, features: EpisodeFeatures) -> Tensor:
        """See `Method.logits`."""
        return self._answer(features)[0]

    def loss(self, features: EpisodeFeatures, query_labels: Tensor, criterion: Criterion) -> tuple[Tensor, Tensor]:
        """See `Method.loss`: cross entropy of the queries, and the contrastive term; the criterion is not used."""
        logits, support = self._answer(features)
        query = _pooled(features.query, features)
        points, labels = torch.cat([support, query], -2), torch.cat([features.labels, query_labels], -1)
        aux_logits = self.contrast(points, labels, features)
        loss = F.cross_entropy(logits.flatten(0, -2), query_labels.flatten())
        aux_loss = F.cross_entropy(aux_logits.flatten(0, -2), labels.flatten())
        return loss + self.constants(features).balance * aux_loss, logits

    def contrast(self, points: Tensor, labels: Tensor, features: EpisodeFeatures) -> Tensor:
        """Logits ``(..., n + m, ways)`` of the contrastive term, of points ``(..., n + m, d)`` with their labels."""
        same_class = labels.unsqueeze(-1) == labels.unsqueeze(-2)
        members = F.one_hot(labels, features.ways).to(points)
        centres = class_means(members) @ self.adapt(points, points, same_class)
        return _similarities(points, centres) / self.constants(features).aux_temperature

    def adapt(self, points: Tensor, others: Tensor, seen: Tensor | None = None) -> Tensor:
        """The set-to-set function E of points ``(..., m, d)`` that look at others ``(..., l, d)``.

        A Boolean ``(..., m, l)`` says which look at which. Default None: all at all.
        """
        scores = self.query_map(points) @ self.key_map(others).mT / points.shape[-1] ** 0.5
        if seen is not None:
            scores = scores.masked_fill(~seen, -torch.inf)
        attention = F.dropout(scores.softmax(-1), self.attention_dropout, self.training)
        found = self.output_map(attention @ self.value_map(others))
        return self.norm(points + F.dropout(found, self.dropout, self.training))

    def _answer(self, features: EpisodeFeatures) -> tuple[Tensor, Tensor]:
        """Logits of the queries, and the support as the contrastive term takes it."""
        support, query = _pooled(features.support, features), _pooled(features.query, features)
        targets, temperature = features.targets.to(support), self.constants(features).temperature
        if self.variant == "semi-proto":
            support = self.adapt(support, torch.cat([support, query], -2))
            prototypes = class_means(targets) @ support
            shares = (_similarities(query, prototypes) / temperature).softmax(-1)
            prototypes = class_means(torch.cat([targets, shares], -2)) @ torch.cat([support, query], -2)
        else:
            prototypes = class_means(targets) @ support
            others = [query] if self.variant == "semi" else []
            prototypes = self.adapt(prototypes, torch.cat([prototypes, *others], -2))
        return _similarities(query, prototypes) / temperature, support

    def recipe(self, recipe: MetaRecipe, *, pretrained: bool, test_shots: int) -> MetaRecipe:
        """See `Method.recipe`: 200 epochs of 100 episodes; the shots are those that will be tested."""
        every = 0.2 if self.is_resnet else 0.1
        milestones = tuple(round(every * fall, 1) for fall in range(1, round(1 / every)))
        rate = 1e-4 if pretrained else 1e-3
        optimizer: dict[str, Any] = {"optimizer": "adam", "lr": rate, "method_lr": 1e-3, "weight_decay": 0.0}
        if pretrained and self.is_resnet:
            optimizer = {"optimizer": "sgd", "lr": 2e-4, "method_lr": 2e-3, "momentum": 0.9, "weight_decay": 5e-4}
        return replace(
            recipe,
            augmentation=Augmentation(padding=0, jitter=0.0, flip=0.0),
            epochs=200,
            steps_per_epoch=100,
            episodes_per_step=1,
            shots=test_shots,
            queries=15,
            schedule="steps",
            milestones=milestones,
            factors=tuple(0.5**fall for fall in range(1, len(milestones) + 1)),
            dropout=1.0 if self.is_resnet else 0.0,
            **optimizer,
        )


def _pooled(vectors: Tensor, features: EpisodeFeatures) -> Tensor:
    """Maps averaged over the image; other vectors as they are."""
    return vectors if features.map_shape is None else vectors.unflatten(-1, features.map_shape).mean((-2, -1))


def _similarities(points: Tensor, prototypes: Tensor) -> Tensor:
    """Negative squared distances ``(..., points, prototypes)``."""
    norms = prototypes.square().sum(-1), points.square().sum(-1)
    return -complete_squares(prototypes @ points.mT, *norms).mT

"""DPGN."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from msgspec.structs import replace
from torch import Tensor, nn

from ..backbones import ResNet12
from ..checks import one_of, require
from ..errors import UsageError
from ..features import EpisodeFeatures
from ..recipes import Augmentation, MetaRecipe
from .base import Criterion, Method
from .shared.dpgn_network import DistributionPropagation, Generation

_GRID_NUMBERS = 2**24  # Of the hidden layer of an edge update without a gradient: 64 MB in single precision.


class _Published(NamedTuple):
    """A released configuration: of the network, of its loss, and of its training."""

    generations: int
    metric: str
    loss_generations: int
    generation_weight: float
    node_weight: float
    distribution_weight: float
    episodes: int
    weight_decay: float
    factor: float
    every: int


# By whether the backbone is a ResNet12, the images have more than 32 pixels, and there are 5 shots or more.
_PUBLISHED = {
    (True, True, False): _Published(6, "l2", 3, 0.2, 0.1, 0.0, 25, 1e-5, 0.1, 17_000),
    (True, True, True): _Published(6, "l2", 6, 0.2, 0.1, 0.1, 28, 1e-5, 0.1, 15_000),
    (True, False, False): _Published(6, "l2", 6, 0.2, 0.1, 0.0, 40, 1e-5, 0.1, 15_000),
    (True, False, True): _Published(6, "l2", 6, 0.2, 0.1, 0.1, 40, 1e-5, 0.1, 15_000),
    (False, True, False): _Published(5, "l1", 3, 0.5, 0.1, 0.0, 40, 1e-6, 0.5, 15_000),
    (False, True, True): _Published(5, "l1", 3, 0.5, 0.0, 0.0, 40, 1e-6, 0.5, 15_000),
    (False, False, False): _Published(5, "l1", 3, 0.5, 0.1, 0.0, 60, 1e-6, 0.5, 15_000),
    (False, False, True): _Published(6, "l1", 6, 0.2, 0.1, 0.1, 40, 1e-5, 0.1, 15_000),
}
_STEPS, _EPOCH = 100_000, 1000


class DPGN(Method):
    r"""Two graphs over support and queries that refine each other: of points, and of their similarities to the support.

    Each image brings two vectors of ``width``, from the backbone's third stage (for the first edges) and its last one.
    A query's logit is the sum of its edges to a class's support.

    The network has a place for each support image, ordered by class, so it is tied to ways and shots. It is trained on
    graphs with ``queries`` of each class, one as published: of an episode with more, each graph gets as many as in
    training, assigned round-robin in the order of their mean feature, which knows neither their classes nor their order
    [ours; every published figure has one query per class]. The support is sorted by class, but within a class the
    places are those in which it came: with several shots another order changes the logits a little.

    Transductive, but weakly: queries meet through the support only. No prior over their classes but that of training,
    where a graph has as many of each. Use it for tasks of one fixed shape with much to train on.

    The released recipe is the default, from scratch; a pretrained backbone learns as much more slowly as the paper's
    own methods let it [ours]. The released code chooses the weights by their accuracy on the *test* classes, which
    explains a part of its figures; here validation classes choose. Its node loss contrasts the queries, and
    is defined for one per class only; the default is the cross entropy over classes that its paper describes.
    Its jitter of the hue is left out; both stages' maps are flattened (for ResNet12 it averages the last one).

    Source: Yang et al., "DPGN: Distribution propagation graph network for few-shot learning", CVPR 2020.

    Args:
        backbone: With ``stages``, ``widths`` and ``image_size``, as the plugin's own.
        ways: Classes of an episode; default 5.
        shots: Support images per class; default 5.
        queries: Query images per class in a graph; default 1.
        width: Of the vectors; default 128.
        generations: Rounds. This and the following default to None: as released for backbone, image size and shots.
        metric: ``"l1"`` or ``"l2"``, the components' differences as they are or squared.
        loss_generations: How many rounds have a part in the loss: the last one, and the first ones.
        generation_weight: Weight of all but the last.
        node_weight: Of the loss of the points' distances; released 0.1, or 0.
        distribution_weight: Of that of the distribution graph's edges; released 0.1, or 0.
        dropout: Of whole channels, in all rounds but the last; default 0.1.
        node_loss: ``"classes"`` (default), or ``"as-released"``.

    Raises:
        UsageError: If the backbone has no stages, or an argument is out of its range; later, if an episode has another
            shape.

    Example:
        >>> from fslstm_plugin.backbones import Conv4
        >>> backbone = Conv4(image_size=32).eval()
        >>> method = DPGN(backbone, ways=3, shots=1, width=8).eval()
        >>> points = method.embed(backbone, torch.rand(9, 3, 32, 32))
        >>> method.logits(EpisodeFeatures(points[:3], points[3:], torch.arange(3))).shape
        torch.Size([6, 3])
    """

    is_transductive = True
    sizes = ("backbone",)
    uses_criterion = False

    def __init__(
        self,
        backbone: nn.Module,
        ways: int = 5,
        shots: int = 5,
        queries: int = 1,
        width: int = 128,
        generations: int | None = None,
        metric: str | None = None,
        loss_generations: int | None = None,
        generation_weight: float | None = None,
        node_weight: float | None = None,
        distribution_weight: float | None = None,
        dropout: float = 0.1,
        node_loss: str = "classes",
    ) -> None:
        super().__init__()
        if not hasattr(backbone, "stages"):
            raise UsageError(
                f"dpgn takes the maps of a backbone's last two stages, but {type(backbone).__name__} has no stages: "
                "use conv4 or resnet12."
            )
        self.node_loss = one_of("node loss", node_loss, ("classes", "as-released"))
        self.ways = require("ways", ways, least=2, whole=True)
        self.shots = require("shots", shots, least=1, whole=True)
        self.queries = require("queries", queries, least=1, whole=True)
        self.width = require("width", width, least=1, whole=True)
        self.generations, self.metric, self.loss_generations = generations, metric, loss_generations
        self.generation_weight, self.node_weight = generation_weight, node_weight
        self.distribution_weight = distribution_weight
        sizes: Any = backbone
        released = _PUBLISHED[isinstance(backbone, ResNet12), sizes.image_size > 32, shots >= 5]
        given = {name: getattr(self, name) for name in _Published._fields if getattr(self, name, None) is not None}
        self.settings = released._replace(**given)
        _require_valid(self.settings, dropout)
        if node_loss == "as-released" and queries > 1:
            raise UsageError(f"The node loss as released is for one query per class in a graph, but got {queries}.")
        self.dropout = dropout
        area = (sizes.image_size // 16) ** 2
        self.middle_vector, self.last_vector = (
            nn.Sequential(nn.Linear(channels * area, width), nn.BatchNorm1d(width)) for channels in sizes.widths[2:]
        )
        self.network = DistributionPropagation(
            width, ways * shots, self.settings.generations, self.settings.metric, dropout
        )

    def embed(self, backbone: nn.Module, images: Tensor) -> Tensor:
        """See `Method.embed`: the vectors of the last stage and of the one before, one after the other."""
        stages: Any = backbone
        *_, middle, last = stages.stages(images)
        middle = F.max_pool2d(middle, 2)
        return torch.cat([self.last_vector(last.flatten(1)), self.middle_vector(middle.flatten(1))], -1)

    def why_not_shape(self, ways: int, num_support: int, num_query: int) -> str | None:
        """See `Method.why_not_shape`."""
        if ways != self.ways or num_support != ways * self.shots:
            return (
                f"dpgn was built for {self.ways}-way {self.shots}-shot episodes, but got {ways}-way "
                f"{num_support / ways:g}-shot ones: use the same shape in training, validation and testing, or train "
                f"dpgn(ways={ways},shots={max(num_support // ways, 1)})."
            )
        if num_query == 0 or num_query % (ways * self.queries):
            return (
                f"dpgn was built for graphs of {ways * self.queries} queries, but got {num_query} in an episode: "
                f"take a multiple of {ways * self.queries}."
            )
        return None

    def logits(self, features: EpisodeFeatures) -> Tensor:
        """See `Method.logits`: the sums of edges, between 0 and 1."""
        points, members, order = self.graphs(features)
        few = max(1, _GRID_NUMBERS // (2 * self.width * points.shape[1] ** 2))
        size = len(points) if self.training else few  # Batch statistics are those of all.
        parts = zip(points.split(size), members.split(size), strict=True)
        edges = torch.cat([self.propagate(*part)[-1].point_edges for part in parts])
        return _undealt(class_sums(edges, members), order)

    def loss(self, features: EpisodeFeatures, query_labels: Tensor, criterion: Criterion) -> tuple[Tensor, Tensor]:
        """See `Method.loss`: of the edges and of the points' distances, in several generations; no criterion's."""
        points, members, order = self.graphs(features)
        if self.node_loss == "as-released" and order.shape[-2:] != (1, self.ways):
            raise UsageError(
                "The node loss as released needs episodes with one query per class: train with `queries=1`."
            )
        labels = query_labels.gather(-1, order.flatten(-2)).reshape(len(points), -1)
        generations = self.propagate(points, members)
        logits = _undealt(class_sums(generations[-1].point_edges, members), order)
        early = generations[: self.settings.loss_generations - 1]
        losses = [self.settings.generation_weight * self.generation_loss(each, members, labels) for each in early]
        return torch.stack([*losses, self.generation_loss(generations[-1], members, labels)]).mean(), logits

    def graphs(self, features: EpisodeFeatures) -> tuple[Tensor, Tensor, Tensor]:
        """The graphs of a batch of episodes, and which queries are in which.

        Their points are ``(E, n, 2 width)``, one-hot labels ``(E, support, ways)`` of their support, sorted by class,
        and the places of their queries in the episode ``(..., graphs, queries)``.
        """
        self.require_shape(features)
        if (features.targets.sum(-2) != self.shots).any():
            raise UsageError(f"dpgn needs {self.shots} support images of every class, but their numbers differ.")
        by_class = features.labels.argsort(dim=-1, stable=True)
        members = features.targets.to(features.support).take_along_dim(by_class.unsqueeze(-1), -2)
        support = features.support.take_along_dim(by_class.unsqueeze(-1), -2)
        ranked = features.query.mean(-1).argsort(dim=-1, stable=True)
        order = ranked.unflatten(-1, (self.ways * self.queries, -1)).mT  # Round-robin: neighbours are alike.
        query = features.query.take_along_dim(order.flatten(-2).unsqueeze(-1), -2)
        query = query.unflatten(-2, order.shape[-2:])
        graphs = query.shape[:-2]
        support, members = (each.unsqueeze(-3).expand(*graphs, *each.shape[-2:]) for each in (support, members))
        points = torch.cat([support, query], -2)
        return points.reshape(-1, *points.shape[-2:]), members.reshape(-1, *members.shape[-2:]), order

    def propagate(self, points: Tensor, members: Tensor) -> list[Generation]:
        """All generations of some graphs; see `graphs`."""
        return self.network(*points.split(self.width, -1), members)

    def generation_loss(self, generation: Generation, members: Tensor, labels: Tensor) -> Tensor:
        """The loss of one generation, of all graphs together."""
        loss = self.edge_loss(generation, members, labels)
        if self.settings.node_weight:
            scores = class_sums(generation.dissimilarities, members)
            if self.node_loss == "classes":
                node_loss = F.cross_entropy(scores.flatten(0, -2), labels.flatten())
            else:  # For each class the queries are told apart, with that of the class, the only one, as the right one.
                node_loss = F.cross_entropy(scores, labels.argsort(dim=-1))
            loss = loss + self.settings.node_weight * node_loss
        return loss

    def edge_loss(self, generation: Generation, members: Tensor, labels: Tensor) -> Tensor:
        """Cross entropy of the edges that the support does not give, means over same and over different classes."""
        m = members.shape[-2]
        classes = torch.cat([members.argmax(-1), labels], -1)
        same = (classes.unsqueeze(-1) == classes.unsqueeze(-2)).to(members)
        asked = torch.ones_like(same)
        asked[:, :m, :m] = 0
        losses = F.binary_cross_entropy(generation.point_edges, same, reduction="none")
        if self.settings.distribution_weight:
            of_distributions = F.binary_cross_entropy(generation.distribution_edges, same, reduction="none")
            losses = losses + self.settings.distribution_weight * of_distributions
        alike, unlike = asked * same, asked * (1 - same)
        return (losses * alike).sum() / alike.sum() + (losses * unlike).sum() / unlike.sum()

    def recipe(self, recipe: MetaRecipe, *, pretrained: bool, test_shots: int) -> MetaRecipe:
        """See `Method.recipe`: 100,000 steps of Adam."""
        every, factor = self.settings.every / _STEPS, self.settings.factor
        falls = range(1, int(1 / every) + 1)
        return replace(
            recipe,
            augmentation=Augmentation(padding=recipe.augmentation.padding // 2, jitter=0.1),
            optimizer="adam",
            lr=1e-3 * (recipe.lr / 0.1 if pretrained else 1),
            method_lr=1e-3,
            weight_decay=self.settings.weight_decay,
            epochs=_STEPS // _EPOCH,
            steps_per_epoch=_EPOCH,
            episodes_per_step=self.settings.episodes,
            ways=self.ways,
            shots=self.shots,
            queries=self.queries,
            schedule="steps",
            milestones=tuple(fall * every for fall in falls),
            factors=tuple(factor**fall for fall in falls),
        )


def class_sums(edges: Tensor, members: Tensor) -> Tensor:
    """Sums ``(E, queries, ways)`` of the queries' edges ``(E, n, n)`` to each class's support."""
    m = members.shape[-2]
    return edges[:, m:, :m] @ members


def _undealt(scores: Tensor, order: Tensor) -> Tensor:
    """Scores ``(E, queries, ways)`` of graphs as those of episodes ``(..., m, ways)``, each where its query was."""
    dealt = scores.reshape(*order.shape[:-2], -1, scores.shape[-1])
    places = order.flatten(-2).unsqueeze(-1).expand_as(dealt)
    return torch.zeros_like(dealt).scatter(-2, places, dealt)


def _require_valid(settings: _Published, dropout: float) -> None:
    """Refuse settings out of their ranges."""
    require("generations", settings.generations, least=1, whole=True)
    require("loss_generations", settings.loss_generations, least=1, whole=True)
    if settings.loss_generations > settings.generations:
        raise UsageError(
            f"There cannot be more generations in the loss ({settings.loss_generations}) than in all "
            f"({settings.generations})."
        )
    one_of("metric", settings.metric, ("l1", "l2"))
    require("dropout", dropout, least=0, below=1)
    for name in ("generation_weight", "node_weight", "distribution_weight"):
        require(name, getattr(settings, name), least=0)

"""SIB."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from msgspec.structs import replace
from torch import Tensor, nn

from ..checks import require
from ..features import EpisodeFeatures
from ..kernels import of_unit_length
from ..recipes import MetaRecipe
from .base import Criterion, Method
from .shared.prototypes import class_means


class SIB(Method):
    r"""A cosine classifier that descends, for each episode, along gradients that a network makes up from the queries.

    The logits are ``scale * (bias + cos(q, p_c))``. Prototypes begin as the class means of the support points, brought
    to unit length, times learned weights; then the network turns the queries' logits into what their labels would have
    made of them, the derivative of the loss by the logits, and the prototypes take that step. The derivative by the
    prototypes is in closed form: testing needs no automatic differentiation, and training differentiates through all
    steps.
    The network's batch normalisation always uses the queries of the episode, each episode's apart.

    Transductive, with a prior that the network has learned: classes and queries as in training. It is therefore tied to
    the ways (a unit for each class: the result depends on the order of the classes, although it should not) and to the
    number of queries, over which gradients are summed: where another number is wanted, ``sib(queries=...)`` of the
    trained run scales its steps by as much. Any shots can be tested.

    Use it on a good pretrained backbone, which it leaves as it is; not where the queries come one at a time.

    With pretrained weights the recipe is the published one: the backbone frozen, 50,000 episodes at 1e-3. SIB was never
    trained from scratch: without pretrained weights the backbone learns too, both by Adam at 1e-3 [ours].
    The published code pools the batch normalisation of several episodes; nothing is shared between episodes here.

    Source: Hu et al., "Empirical Bayes transductive meta-learning with synthetic gradients", ICLR 2020.

    Args:
        dim: Length of the features.
        ways: Classes of an episode; default 5.
        queries: Query images per class, of which an episode has ``ways * queries`` in any proportion; default 15.
        steps: Number of steps, default 3. 0 leaves the nearest prototype by cosine.
        step_size: Default 1e-3, as the published learning rate, from which the published code takes it.

    Raises:
        UsageError: If an argument is out of its range; later, if an episode has another shape.

    Example:
        >>> method = SIB(dim=8, ways=3, queries=2).eval()
        >>> features = EpisodeFeatures(torch.rand(3, 8), torch.rand(6, 8), torch.arange(3))
        >>> method.logits(features).shape
        torch.Size([6, 3])
    """

    is_transductive = True
    sizes = ("dim",)
    uses_criterion = False

    def __init__(self, dim: int, ways: int = 5, queries: int = 15, steps: int = 3, step_size: float = 1e-3) -> None:
        super().__init__()
        require("dim", dim, least=1, whole=True)
        self.ways = require("ways", ways, least=2, whole=True)
        self.queries = require("queries", queries, least=1, whole=True)
        self.steps = require("steps", steps, least=0, whole=True)
        self.step_size = require("step_size", step_size, least=0)
        self.scale, self.bias = nn.Parameter(torch.full((1,), 10.0)), nn.Parameter(torch.zeros(1))
        self.init_scale = nn.Parameter(torch.ones(dim))
        self.gradient_net = _GradientNet(ways)

    def why_not_shape(self, ways: int, num_support: int, num_query: int) -> str | None:
        """See `Method.why_not_shape`."""
        if ways != self.ways:
            return (
                f"sib was built for {self.ways}-way episodes, but got {ways}-way ones: use the same shape in "
                f"training, validation and testing, or train sib(ways={ways})."
            )
        if num_query != ways * self.queries:
            other = f", or name sib(queries={num_query // ways})" if num_query and num_query % ways == 0 else ""
            return (
                f"sib sums its steps over {ways * self.queries} queries per episode, but got {num_query}: use the same "
                f"number in training, validation and testing{other}."
            )
        return None

    def logits(self, features: EpisodeFeatures) -> Tensor:
        """See `Method.logits`."""
        self.require_shape(features)
        query = of_unit_length(features.query)
        return self.classify(query, self.classifier(features, query))

    def classifier(self, features: EpisodeFeatures, query: Tensor) -> Tensor:
        """The classifier ``(..., ways, d)`` after all steps, with queries of unit length."""
        support = of_unit_length(features.support)
        classifier = class_means(features.targets).to(support) @ support * self.init_scale
        for _ in range(self.steps):
            gradient = self.scale * self.gradient_net(self.classify(query, classifier)).mT @ query
            norms = classifier.norm(dim=-1, keepdim=True)
            lengths = norms.clamp(min=1e-12)  # finite for a zero vector
            unit = classifier / lengths
            across = gradient - (gradient * unit).sum(-1, keepdim=True) * unit  # A cosine knows no length.
            classifier = classifier - self.step_size * across / lengths * (norms > 0)  # Zero has no direction to turn.
        return classifier

    def classify(self, query: Tensor, classifier: Tensor) -> Tensor:
        """Logits ``(..., m, ways)`` of queries of unit length."""
        return self.scale * (self.bias + query @ of_unit_length(classifier).mT)

    def loss(self, features: EpisodeFeatures, query_labels: Tensor, criterion: Criterion) -> tuple[Tensor, Tensor]:
        """See `Method.loss`: the queries' cross entropy; the logits have a scale of their own, no criterion's."""
        logits = self.logits(features)
        return F.cross_entropy(logits.flatten(0, -2), query_labels.flatten()), logits

    def recipe(self, recipe: MetaRecipe, *, pretrained: bool, test_shots: int) -> MetaRecipe:
        """See `Method.recipe`; the shots are those that will be tested."""
        optimizer: dict[str, Any] = {"optimizer": "adam", "lr": 1e-3, "method_lr": 1e-3, "weight_decay": 0.0}
        if pretrained:
            optimizer = {"optimizer": "sgd", "method_lr": 1e-3, "momentum": 0.9, "weight_decay": 5e-4}
        return replace(
            recipe,
            frozen_backbone=pretrained,
            epochs=50,
            steps_per_epoch=1000,
            episodes_per_step=1,
            ways=self.ways,
            shots=test_shots,
            queries=self.queries,
            schedule="steps",
            milestones=(),
            factors=(),
            **optimizer,
        )


class _GradientNet(nn.Module):
    """From logits of queries to derivatives of a loss by them, ``(..., m, ways)`` both."""

    def __init__(self, ways: int) -> None:
        super().__init__()
        hidden = 8 * ways
        self.fc1, self.bn1 = nn.Linear(ways, hidden), _EpisodeNorm(hidden)
        self.fc2, self.bn2 = nn.Linear(hidden, hidden), _EpisodeNorm(hidden)
        self.fc3 = nn.Linear(hidden, ways)

    def forward(self, logits: Tensor) -> Tensor:
        hidden = self.bn1(self.fc1(logits).relu())
        return self.fc3(self.bn2(self.fc2(hidden).relu()))


class _EpisodeNorm(nn.Module):
    """Batch normalisation of ``(..., m, channels)`` over the m queries of each episode alone, in testing too."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, hidden: Tensor) -> Tensor:
        return F.layer_norm(hidden.mT, hidden.shape[-2:-1]).mT * self.weight + self.bias

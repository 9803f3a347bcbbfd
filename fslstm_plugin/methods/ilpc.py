"""Iterative label propagation and cleaning (iLPC)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ..adapters import Center, Normalize, Power
from ..checks import require, require_bool
from ..errors import UsageError
from ..features import EpisodeFeatures
from ..heads import one_hot
from .base import Gram, Method
from .shared.batches import in_chunks
from .shared.prototypes import class_means

_BALANCED = 1e-6  # Greatest change of a row's sum at which balancing stops, as published; so are these:
_SWEEPS = 1000
_SOLVED = 1e-6  # Relative residual at which conjugate gradients stop.
_CONJUGATE_STEPS = 20
_FASTEST = 100  # Of unit length, points are learned at rates of about 1; thousands of times that only add noise.


class ILPC(Method):
    r"""Pseudo-labels by propagation over a graph, the cleanest of which join the support, round by round.

    A round propagates the labels over the graph of nearest neighbours, balances the result so that each class gets its
    quota of the queries, and fits a linear classifier to labels and pseudo-labels. The queries with the smallest loss
    in its course, up to ``per_class`` each, become labelled points and are taken off the quota. An episode ends when no
    query is left, or fewer than ``least`` could be moved; what is left keeps its last pseudo-label.

    Prior over the classes: exactly equal shares of the queries. Use this when queries are balanced and many to a class;
    not when they are unbalanced (a class's quota is filled whatever the truth), nor when time counts. (The published
    code can be told the true counts of an episode's queries, which nobody knows; that is left out.)

    Hard labels, hence without gradients: the logits are 1 for the class and 0 for the others. Where the published code
    divides 0 by 0 this one leaves 0; an episode with a point all of whose nearest points lie on the other side of the
    mean loses its negative edges; a query that no label reaches gets equal shares, one that only classes without quota
    reach its propagated label (published: the first class's); the bias starts at 0, not at random.

    Source: Lazarou et al., "Iterative label cleaning for transductive and semi-supervised few-shot learning", ICCV
    2021. Its features are, of a WideResNet, the signed square root, centred in the episode; of a ResNet-12, as they
    are: ``ilpc(power=false,neighbours=15)``.

    Args:
        power: Whether to take the signed square root, and subtract the episode's mean. Default True.
        neighbours: Of each point in the graph, at least 1; default 20, at most all the others.
        alpha: Share of what a point takes from its neighbours, in (0, 1); default 0.8.
        exponent: Of the similarities in the graph, and of the propagated labels: a whole number of at least 1; 3.
        per_class: How many queries of a class a round moves at most, at least 1; default 3.
        least: An episode ends when a round would move fewer. Default None, the number of classes (published: 5).
        steps: Of the classifier in each round, at least 1; default 1000.
        learning_rate: Of the classifier, above 0, at most 100; default 0.1.
        momentum: In [0, 1); default 0.9.
        weight_decay: At least 0; at most 1 / learning_rate, beyond which the weights grow; default 5e-4.

    Raises:
        UsageError: If an argument is outside its range.

    Example:
        >>> support, query = torch.eye(2), torch.tensor([[1.0, 0.5], [0.9, 1.0], [0.2, 1.0], [0.7, 0.6]])
        >>> ILPC(steps=10).logits(EpisodeFeatures(support, query, torch.tensor([0, 1]))).argmax(-1)
        tensor([0, 1, 1, 0])
    """

    is_transductive = True
    fills_classes_equally = True
    uses_gram: Gram = "all"
    search_space: ClassVar = {"neighbours": (10, 15, 20, 30), "alpha": (0.5, 0.8, 0.9)}

    def __init__(
        self,
        power: bool = True,
        neighbours: int = 20,
        alpha: float = 0.8,
        exponent: int = 3,
        per_class: int = 3,
        least: int | None = None,
        steps: int = 1000,
        learning_rate: float = 0.1,
        momentum: float = 0.9,
        weight_decay: float = 5e-4,
    ) -> None:
        root = [Power(negative="signed"), Normalize(), Center("episode")]
        power = require_bool("power", power)
        super().__init__([*(root if power else []), Normalize()])
        self.alpha = require("alpha", alpha, above=0, below=1)
        self.momentum = require("momentum", momentum, least=0, below=1)
        self.learning_rate = require("learning_rate", learning_rate, above=0, most=_FASTEST)
        self.weight_decay = require("weight_decay", weight_decay, least=0)
        if weight_decay * learning_rate > 1:
            raise UsageError(
                f"weight_decay can be at most 1 / learning_rate in ilpc, {1 / learning_rate:g}, but got {weight_decay}."
            )
        self.power = power
        self.neighbours = require("neighbours", neighbours, least=1, whole=True)
        self.exponent = require("exponent", exponent, least=1, whole=True)
        self.per_class = require("per_class", per_class, least=1, whole=True)
        self.least = None if least is None else require("least", least, least=1, whole=True)
        self.steps = require("steps", steps, least=1, whole=True)

    @torch.no_grad()
    def logits(self, features: EpisodeFeatures) -> Tensor:
        """See `Method.logits`; 0 or 1, in double precision."""
        features = self.prepare(features)
        return in_chunks(self._solve, features.gram.whole, features.targets)

    def _solve(self, gram: Tensor, targets: Tensor) -> Tensor:
        """The rounds of a chunk of episodes; those that have ended are left out of the next."""
        episodes, n, ways = targets.shape
        m = gram.shape[-1] - n
        graph = neighbour_graph(gram, self.neighbours, self.exponent)
        labels = torch.cat([targets.mT.to(gram), gram.new_zeros(episodes, ways, m)], -1)
        quota = gram.new_full((episodes, ways, 1), m / ways)
        predicted = torch.zeros(episodes, m, dtype=torch.int64, device=gram.device)
        active = torch.arange(episodes, device=gram.device)
        while m and len(active):
            known = labels[active]
            free = known[..., n:].sum(-2, keepdim=True) == 0
            spread = propagate(graph[active], known, self.alpha)[..., n:]
            plan = balance(spread**self.exponent * free, quota[active])
            # Only classes that have had their quota reach some queries; these keep their propagated label.
            plan = torch.where(plan.sum(-2, keepdim=True) == 0, spread, plan)
            found = torch.where(free.squeeze(-2), plan.argmax(-2), predicted[active])
            predicted[active] = found
            guess = one_hot(found, ways).mT.to(gram)
            losses = self.losses(gram[active], known, torch.cat([known[..., :n], guess], -1))[..., n:]
            chosen = cleanest(losses, (guess > 0) & free, self.per_class)
            go_on = chosen.sum((-2, -1)) >= (ways if self.least is None else self.least)
            active, chosen = active[go_on], chosen[go_on].to(gram)
            labels[active, :, n:] += chosen
            quota[active] -= chosen.sum(-1, keepdim=True)
            active = active[(labels[active, :, n:].sum(-2) == 0).any(-1)]
        return one_hot(predicted, ways)

    def losses(self, gram: Tensor, known: Tensor, labels: Tensor) -> Tensor:
        """Cross entropy ``(episodes, points)``, averaged over the course of the linear classifier's training.

        Args:
            gram: ``(episodes, points, points)``.
            known: One-hot labels ``(episodes, ways, points)``, zeros for points without: its weights start at these
                classes' means, of unit length.
            labels: One-hot labels of all points, which it is trained by.
        """
        count = gram.shape[-1]
        mean = class_means(known.mT)
        logits = mean @ gram
        length = (mean * logits).sum(-1, keepdim=True).clamp(min=torch.finfo(gram.dtype).tiny).sqrt()
        logits = logits / length
        # The weights stay mixtures of the points, so a step in them is a step in their products with the points; the
        # bias is the weight of one more feature, which is 1 in every point.
        gram = (gram + 1) / count
        velocity, total = torch.zeros_like(logits), torch.zeros_like(logits)
        for _ in range(self.steps):
            log_p = logits.log_softmax(-2)
            total += log_p
            velocity.baddbmm_(log_p.exp_().sub_(labels), gram, beta=self.momentum)
            velocity.add_(logits, alpha=self.weight_decay)
            logits.sub_(velocity, alpha=self.learning_rate)
        return -(total * labels).sum(-2) / self.steps


def neighbour_graph(gram: Tensor, neighbours: int, exponent: int) -> Tensor:
    """The normalised weights between points: of each and its nearest, their cosine to a power, added both ways.

    They have the shape of the cosines ``(episodes, points, points)``, are symmetric, and 0 on the diagonal. A point has
    as many neighbours as there are others at most.
    """
    diagonal = torch.eye(gram.shape[-1], dtype=torch.bool, device=gram.device)
    similar = gram.masked_fill(diagonal, -torch.inf)
    weight, nearest = similar.topk(min(neighbours, gram.shape[-1] - 1))
    directed = torch.zeros_like(gram).scatter(-1, nearest, weight**exponent)
    graph = directed + directed.mT
    degree = graph.sum(-1, keepdim=True)
    broken = (degree < 0).any(-2, keepdim=True)
    graph = torch.where(broken, graph.clamp(min=0), graph)
    degree = torch.where(broken, graph.sum(-1, keepdim=True), degree)
    scale = torch.where(degree == 0, 1, degree).rsqrt()
    return graph * scale * scale.mT


def propagate(graph: Tensor, labels: Tensor, alpha: float) -> Tensor:
    """The shares of the classes in each point: ``(I - alpha graph)^-1`` of the labels, by conjugate gradients.

    The graph is ``(episodes, points, points)``. Labels are one-hot ``(episodes, ways, points)``, zeros for points
    without; the shares, of the same shape, are at least 0, and sum to 1 over the classes.
    """
    found, residual, direction = torch.zeros_like(labels), labels, torch.zeros_like(labels)
    enough = _SOLVED * labels.norm(dim=-1, keepdim=True)
    before = torch.ones_like(enough)
    for _ in range(_CONJUGATE_STEPS):
        size = residual.square().sum(-1, keepdim=True)
        on = size.sqrt() >= enough  # A class that is done stays as it is.
        direction = residual + _divided(size, before) * direction
        image = direction - alpha * direction @ graph
        step = torch.where(on, _divided(size, (direction * image).sum(-1, keepdim=True)), 0)
        found, residual, before = found + step * direction, residual - step * image, size
    found = found.clamp(min=0)
    total = found.sum(-2, keepdim=True)
    return torch.where(total > 0, found / total, 1 / labels.shape[-2])


def balance(plan: Tensor, quota: Tensor) -> Tensor:
    """Scale rows and columns in turn until queries sum to 1 and classes to their quotas (Sinkhorn and Knopp).

    Each episode stops by itself.

    Args:
        plan: ``(episodes, ways, m)``, at least 0; zeros for queries that take no part.
        quota: ``(episodes, ways, 1)``. It may be 0 or below, and is used as it is: the class's entries then become 0,
            or negative.
    """
    return _balanced(plan, quota, torch.zeros_like(plan[..., :1, :]), _SWEEPS)


def _balanced(plan: Tensor, quota: Tensor, sums: Tensor, sweeps: int) -> Tensor:
    """See `balance`; of each query the sum before the last sweep is given."""
    for sweep in range(sweeps):
        latest = plan.sum(-2, keepdim=True)
        on = (sums - latest).abs().amax(-1, keepdim=True) > _BALANCED
        count = int(on.sum())
        if not count:
            break
        if 2 * count <= len(on):  # The last episode takes several times as many sweeps as most.
            going = on[:, 0, 0]
            return plan.masked_scatter(on, _balanced(plan[going], quota[going], sums[going], sweeps - sweep))
        rows = _divided(plan, latest)
        plan = torch.where(on, _divided(rows * quota, rows.sum(-1, keepdim=True)), plan)
        sums = torch.where(on, latest, sums)
    return plan


def _divided(numerator: Tensor, denominator: Tensor) -> Tensor:
    """The quotient, where there is something to divide by; or else 0."""
    return torch.where(denominator == 0, 0, numerator / denominator)


def cleanest(losses: Tensor, candidates: Tensor, per_class: int) -> Tensor:
    """So many candidates of each class at most, with the smallest losses ``(episodes, m)``, the first of equals.

    Candidates, and what is left of them, are bool ``(episodes, ways, m)``, each query in at most one class.
    """
    ranked = torch.where(candidates, losses.unsqueeze(-2), torch.inf).sort(dim=-1, stable=True).indices[..., :per_class]
    return torch.zeros_like(candidates).scatter(-1, ranked, True) & candidates

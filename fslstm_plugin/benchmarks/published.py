"""Transductive methods as their authors' code computes them: in coordinates, an episode or a batch at a time.

Written from the published descriptions; the constants are the published defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

Published = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""From support ``(b, n, d)``, one-hot labels ``(b, n, ways)``, query ``(b, m, d)`` and the base classes' mean ``(d,)``
to scores ``(b, m, ways)``, the greatest of which is the prediction."""


def _class_means(support: Tensor, targets: Tensor) -> Tensor:
    return targets.mT @ support / targets.sum(-2).unsqueeze(-1)


def _unit(*points: Tensor) -> tuple[Tensor, ...]:
    return tuple(F.normalize(each, dim=-1) for each in points)


def _squared(left: Tensor, right: Tensor) -> Tensor:
    return torch.cdist(left, right).square()


def simpleshot(support: Tensor, targets: Tensor, query: Tensor, mean: Tensor) -> Tensor:
    """Wang et al., "SimpleShot: revisiting nearest-neighbor classification for few-shot learning", 2019."""
    support, query = _unit(support - mean, query - mean)
    return -_squared(query, _class_means(support, targets)).sqrt()


def balanced_affinities(points: Tensor, reg: float = 0.2) -> Tensor:
    """Shalam and Korman, "The balanced-pairwise-affinities feature transform", 2024: rows ``(b, n, n)``."""
    (points,) = _unit(points)
    itself = torch.eye(points.shape[-2], dtype=torch.bool)
    logits = (points @ points.mT - 1).masked_fill(itself, -1e5) / reg
    columns = torch.zeros_like(logits[..., :1, :])
    for _ in range(10):
        rows = -(logits + columns).logsumexp(-1, keepdim=True)
        columns = -(logits + rows).logsumexp(-2, keepdim=True)
    plan = (logits + rows + columns).exp()
    return (plan / plan.amax((-2, -1), keepdim=True)).masked_fill(itself, 1)


def prototypes_of_affinities(support: Tensor, targets: Tensor, query: Tensor, mean: Tensor) -> Tensor:
    """The nearest class mean of `balanced_affinities`."""
    rows = balanced_affinities(torch.cat([support, query], -2))
    support, query = rows.split([support.shape[-2], query.shape[-2]], -2)
    return -_squared(query, _class_means(support, targets)).sqrt()


def _rectified(support: Tensor, targets: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
    """BD-CSPN's prototypes, and the queries moved onto the support."""
    moved = query + support.mean(-2, keepdim=True) - query.mean(-2, keepdim=True)
    points, means = torch.cat([support, moved], -2), _class_means(support, targets)
    cosines = F.cosine_similarity(points.unsqueeze(-2), means.unsqueeze(-3), dim=-1)
    taken = F.one_hot(cosines.argmax(-1), cosines.shape[-1]).to(points)
    weights = taken * (10 * cosines).softmax(-1)
    counts = taken.sum(-2).unsqueeze(-1)
    return torch.where(counts > 0, weights.mT @ points / counts.clamp(min=1), means), moved


def bd_cspn(support: Tensor, targets: Tensor, query: Tensor, mean: Tensor) -> Tensor:
    """Liu et al., "Prototype rectification for few-shot learning", 2020; a class that no point takes keeps its mean."""
    support, query = _unit(support - mean, query - mean)
    prototypes, _ = _rectified(support, targets, query)
    return -_squared(query, prototypes).sqrt()


def laplacian_shot(support: Tensor, targets: Tensor, query: Tensor, mean: Tensor, weight: float = 1.0) -> Tensor:
    """Ziko et al., "Laplacian regularized few-shot learning", 2020; one episode at a time."""
    support, query = _unit(support - mean, query - mean)
    prototypes, query = _rectified(support, targets, query)
    unary = _squared(query, prototypes)
    near = torch.cdist(query, query).topk(3, largest=False).indices[..., 1:]
    neighbours = torch.zeros_like(query @ query.mT).scatter(-1, near, 1)
    shares, before = (-unary).softmax(-1), torch.inf
    for iteration in range(20):
        shares = (weight * neighbours @ shares - unary).softmax(-1)
        pull = weight * (neighbours @ shares) * shares
        energy = (shares * shares.clamp(min=1e-20).log() + unary * shares - pull).sum().item()
        if iteration > 1 and abs(energy - before) <= 1e-6 * abs(before):
            break
        before = energy
    return shares


def _tim_logits(points: Tensor, prototypes: Tensor) -> Tensor:
    own, norms = points.square().sum(-1, keepdim=True), prototypes.square().sum(-1).unsqueeze(-2)
    return 15 * (points @ prototypes.mT - own / 2 - norms / 2)


def tim_adm(support: Tensor, targets: Tensor, query: Tensor, mean: Tensor) -> Tensor:
    """Boudiaf et al., "Transductive information maximization for few-shot learning", 2020; closed forms."""
    support, query = _unit(support, query)
    prototypes = _class_means(support, targets)
    of_support, of_query = 0.1 / 1.1, support.shape[-2] / query.shape[-2]
    for _ in range(150):
        found = _tim_logits(query, prototypes).softmax(-1)
        sharp = found**1.1
        wanted = sharp / sharp.sum(-2, keepdim=True).sqrt()
        wanted = wanted / wanted.sum(-1, keepdim=True)
        learned = _tim_logits(support, prototypes).softmax(-1)
        pull = of_support * ((targets - learned).mT @ support + prototypes * learned.sum(-2).unsqueeze(-1))
        pull = pull + of_query * ((wanted - found).mT @ query + prototypes * found.sum(-2).unsqueeze(-1))
        prototypes = pull / (of_support * targets.sum(-2) + of_query * wanted.sum(-2)).unsqueeze(-1)
    return _tim_logits(query, prototypes)


Entropies = Callable[[Tensor], tuple[Tensor, Tensor]]
"""From the queries' probabilities ``(b, m, ways)`` to the entropy of their mean and the mean of their entropies."""


def _shannon(found: Tensor) -> tuple[Tensor, Tensor]:
    shares = found.mean(-2)
    return -(shares * shares.log()).sum(-1), -(found * (found + 1e-12).log()).sum(-1).mean(-1)


def _tsallis(found: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    shares = found.mean(-2)
    return (
        (1 - (shares**alpha).sum(-1)) / (alpha - 1),
        ((1 - ((found + 1e-12) ** alpha).sum(-1)) / (alpha - 1)).mean(-1),
    )


def _descend(
    support: Tensor, targets: Tensor, query: Tensor, weights: tuple[float, float, float], entropies: Entropies
) -> Tensor:
    """A thousand steps of Adam, with gradients found by automatic differentiation."""
    support, query = _unit(support, query)
    prototypes = _class_means(support, targets).requires_grad_()
    optimizer = torch.optim.Adam([prototypes], lr=1e-4)
    for _ in range(1000):
        learned = _tim_logits(support, prototypes).softmax(-1)
        marginal, conditional = entropies(_tim_logits(query, prototypes).softmax(-1))
        cross = -(targets * (learned + 1e-12).log()).sum(-1).mean(-1)
        loss = weights[0] * cross - weights[1] * marginal + weights[2] * conditional
        optimizer.zero_grad()
        loss.sum().backward()
        optimizer.step()
    return _tim_logits(query, prototypes.detach())


@torch.enable_grad()
def tim_gd(support: Tensor, targets: Tensor, query: Tensor, mean: Tensor) -> Tensor:
    """The paper of `tim_adm`; by gradients."""
    return _descend(support, targets, query, (0.1, 1.0, 0.1), _shannon)


@torch.enable_grad()
def alpha_tim(support: Tensor, targets: Tensor, query: Tensor, mean: Tensor) -> Tensor:
    """Veilleux et al., "Realistic evaluation of transductive few-shot learning", 2021."""
    shots = targets.shape[-2] // targets.shape[-1]
    alpha = 2.0 if shots == 1 else 5.0 if shots < 5 else 7.0
    return _descend(support, targets, query, (1.0, 1.0, 1.0), partial(_tsallis, alpha=alpha))


def _balanced(plan: Tensor, columns: Tensor | float, tolerance: float, known: Tensor | None = None) -> Tensor:
    """Sinkhorn's sweeps to rows of 1 and these columns, until no row of the whole batch changes by more.

    The first rows are set to what is known after each sweep. What is no number because of an empty column is 0.
    """
    before, empty = torch.zeros_like(plan[..., 0]), isinstance(columns, Tensor) and bool((columns <= 0).any())
    for _ in range(1000):
        rows = plan.sum(-1)
        if (rows - before).abs().max() <= tolerance:
            break
        before, plan = rows, plan / rows.unsqueeze(-1)
        plan = plan * (columns / plan.sum(-2, keepdim=True))
        if empty:
            plan = plan.nan_to_num(nan=0.0)
        if known is not None:
            plan = torch.cat([known, plan[..., known.shape[-2] :, :]], -2)
    return plan


def _transport(query: Tensor, prototypes: Tensor, tolerance: float) -> Tensor:
    plan = (-10 * _squared(query, prototypes)).exp()
    return _balanced(plan / plan.sum((-2, -1), keepdim=True), plan.shape[-2] / plan.shape[-1], tolerance)


def _moved(prototypes: Tensor, members: Tensor, points: Tensor) -> Tensor:
    """Prototypes a fifth of the way to the means of their members."""
    return prototypes + 0.2 * (members.mT @ points / members.sum(-2).unsqueeze(-1) - prototypes)


def pt_map(support: Tensor, targets: Tensor, query: Tensor, mean: Tensor) -> Tensor:
    """Hu et al., "Leveraging the feature distribution in transfer-based few-shot learning", 2021."""
    points = _unit((torch.cat([support, query], -2) + 1e-6).sqrt())[0]
    points = torch.linalg.qr(points.mT).R.mT  # In the points' own directions: no inner product changes.
    parts = points.tensor_split([support.shape[-2]], dim=-2)
    support, query = _unit(*(part - part.mean(-2, keepdim=True) for part in parts))
    points, prototypes = torch.cat([support, query], -2), _class_means(support, targets)
    for _ in range(20):
        members = torch.cat([targets, _transport(query, prototypes, 1e-6)], -2)
        prototypes = _moved(prototypes, members, points)
    return _transport(query, prototypes, 1e-6)


def paddle(support: Tensor, targets: Tensor, query: Tensor, mean: Tensor) -> Tensor:
    """Martin et al., "Towards practical few-shot query sets: transductive minimum description length", 2022."""
    spread = query.amax(-2, keepdim=True) - query.amin(-2, keepdim=True)
    spread = torch.where(spread > 0, spread, 1)
    support, query = support / spread, query / spread
    prototypes, price = _class_means(support, targets), torch.zeros_like(targets[:, :1])
    for _ in range(100):
        shares = (price - _squared(query, prototypes) / 2).softmax(-1)
        price = (shares.mean(-2, keepdim=True) + 1e-6).log() + 1
        members = (shares.sum(-2) + targets.sum(-2)).unsqueeze(-1)
        prototypes = (shares.mT @ query + targets.mT @ support) / members
    return shares


def proto_lp(support: Tensor, targets: Tensor, query: Tensor, mean: Tensor) -> Tensor:
    """Zhu and Koniusz, "Transductive few-shot learning with prototype-based label propagation", 2023."""
    n = support.shape[-2]
    points = _unit((torch.cat([support, query], -2) + 1e-6).sqrt())[0]
    directions = torch.linalg.svd(points, full_matrices=False).Vh[..., :40, :]
    points = points @ directions.mT
    points = _unit(points - points.mean(-2, keepdim=True))[0]
    support, query = points[..., :n, :], points[..., n:, :]
    (prototypes,) = _unit(_class_means(support, targets))
    for _ in range(100):
        members = torch.cat([targets, _transport(query, prototypes, 1e-3)], -2)
        spread = _propagated(members, targets)
        weights = (0.6 * spread + 0.4 * members).clamp(0, 1)
        prototypes = _moved(prototypes, weights, points)
    return _transport(query, prototypes, 1e-3)


def _propagated(members: Tensor, targets: Tensor) -> Tensor:
    """Labels spread over the graph of points and prototypes, then balanced, the support's restored after each sweep."""
    ways = targets.shape[-1]
    counts = torch.diag_embed(targets.sum(-2))
    laplacian = torch.eye(ways).to(members) - members.mT @ members / members.sum(-2).unsqueeze(-2)
    spread = members @ torch.linalg.solve(counts + laplacian, counts)
    return _balanced(spread, members.shape[-2] / ways, 0.01, targets)


@torch.enable_grad()
def ilpc(support: Tensor, targets: Tensor, query: Tensor, mean: Tensor) -> Tensor:
    """Lazarou et al., "Iterative label cleaning for transductive and semi-supervised few-shot learning", 2021.

    One episode at a time; its classifier starts with a bias of 0, where the published code draws one.
    """
    points = torch.cat([support, query], -2)
    roots = (points.abs() + 1e-6).sqrt()
    (points,) = _unit(torch.where(points < 0, -roots, roots))
    (points,) = _unit(points - points.mean(-2, keepdim=True))
    return torch.stack([_cleaned(*episode) for episode in zip(points, targets, strict=True)])


def _cleaned(points: Tensor, targets: Tensor) -> Tensor:
    """For each query the shares of the classes in the round that labelled it last."""
    n, ways = targets.shape
    known, labels = list(range(n)), targets.argmax(-1).tolist()
    free = list(range(n, len(points)))
    quota = points.new_full((ways,), len(free) / ways)
    scores = points.new_zeros(len(points), ways)
    while free:
        (here,) = _unit(points[known + free])
        spread = _spread_over_neighbours(here, torch.tensor(labels), ways)[len(known) :]
        scores[free] = plan = _balanced(spread**3, quota, 1e-6)
        guess = plan.argmax(-1).tolist()
        losses = _average_losses(here, torch.tensor(labels + guess), len(known), ways)[len(known) :].tolist()
        ranked = sorted(range(len(free)), key=losses.__getitem__)
        chosen = [place for each in range(ways) for place in [at for at in ranked if guess[at] == each][:3]]
        if len(chosen) < ways:
            break
        for place in chosen:
            quota[guess[place]] -= 1
        known += [free[place] for place in chosen]
        labels += [guess[place] for place in chosen]
        free = [each for place, each in enumerate(free) if place not in chosen]
    return scores[n:]


def _spread_over_neighbours(points: Tensor, labels: Tensor, ways: int) -> Tensor:
    """Labels of the first points spread over the graph of the 20 nearest, a class at a time: shares in all points."""
    from scipy.sparse import csr_array, eye_array
    from scipy.sparse.linalg import cg

    count = len(points)
    weights, near = (points @ points.mT).topk(min(21, count))
    directed = torch.zeros(count, count).to(points).scatter(-1, near[:, 1:], weights[:, 1:] ** 3)
    graph = directed + directed.mT
    graph.fill_diagonal_(0)
    degree = graph.sum(-1)
    scale = torch.where(degree == 0, 1, degree).rsqrt()
    system = eye_array(count) - 0.8 * csr_array((scale[:, None] * graph * scale).numpy())
    found = torch.zeros(count, ways).to(points)
    for each in range(ways):
        wanted = torch.zeros(count).to(points)
        wanted[: len(labels)] = (labels == each).to(points)
        found[:, each] = torch.from_numpy(cg(system, wanted.numpy(), rtol=1e-6, maxiter=20)[0])
    found = found.clamp(min=0)
    return found / found.sum(-1, keepdim=True)


def _average_losses(points: Tensor, labels: Tensor, known: int, ways: int) -> Tensor:
    """The cross entropies of points in the course of a linear classifier's training by them, which begins at means."""
    targets = F.one_hot(labels[:known], ways).to(points)
    (weights,) = _unit(_class_means(points[:known], targets))
    weights, bias = weights.clone().requires_grad_(), points.new_zeros(ways, requires_grad=True)
    optimizer = torch.optim.SGD([weights, bias], lr=0.1, momentum=0.9, weight_decay=5e-4)
    total = torch.zeros(len(points)).to(points)
    for _ in range(1000):
        losses = F.cross_entropy(points @ weights.mT + bias, labels, reduction="none")
        total += losses.detach()
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
    return total / 1000

"""The network of DPGN: a graph of points and one of their similarities to the support, which refine each other."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Generation(NamedTuple):
    """What one round through the graph leaves, each ``(E, n, n)``; E graphs of n points, the support first."""

    point_edges: Tensor
    dissimilarities: Tensor  # Negative distances of the points before the round.
    distribution_edges: Tensor


class DistributionPropagation(nn.Module):
    """All rounds of propagation through some graphs.

    Args:
        width: Length of the points' vectors.
        num_support: Support points of a graph, each of which has a place in the network.
        generations: Number of rounds.
        metric: ``"l1"`` or ``"l2"``, the components' differences as they are or squared.
        dropout: Of whole channels, in all rounds but the last.

    Example:
        >>> network = DistributionPropagation(width=8, num_support=2, generations=3, metric="l1", dropout=0.1).eval()
        >>> points = torch.rand(4, 5, 8)
        >>> generations = network(points, points, torch.eye(2).expand(4, -1, -1))
        >>> len(generations), generations[-1].point_edges.shape
        (3, torch.Size([4, 5, 5]))
    """

    def __init__(self, width: int, num_support: int, generations: int, metric: str, dropout: float) -> None:
        super().__init__()
        self.generations = generations
        self.initial_edge = _Edge(width, metric, dropout)
        for number in range(generations):
            is_last = number == generations - 1
            layers = _Generation(width, num_support, metric, 0.0 if is_last else dropout, is_last)
            self.add_module(f"generation{number}", layers)

    def forward(self, points: Tensor, first_points: Tensor, members: Tensor) -> list[Generation]:
        """What each round leaves, of points, and those that the first edges are made of, ``(E, n, width)``.

        The support comes first, sorted by class; members are its one-hot labels ``(E, m, ways)``.
        """
        n, m = points.shape[-2], members.shape[-2]
        same = members @ members.mT
        distributions = torch.cat([same, same.new_full((len(same), n - m, m), 1 / m)], -2)
        edges = F.pad(distributions, (0, n - m))
        edges[:, :m, m:] = 1 / m
        own = _identity(edges)
        distribution_edges = edges * (1 - own) + own
        point_edges, _ = self.initial_edge(first_points, distribution_edges)
        found = []
        for number in range(self.generations):
            generation: _Generation = getattr(self, f"generation{number}")
            point_edges, dissimilarities = generation.point_edge(points, point_edges)
            distributions = generation.distribution_node(torch.cat([point_edges[..., :m], distributions], -1))
            distribution_edges, _ = generation.distribution_edge(distributions, distribution_edges)
            if generation.point_node is not None:
                points = generation.point_node(points, distribution_edges)
            found.append(Generation(point_edges, dissimilarities, distribution_edges))
        return found


class _Generation(nn.Module):
    """The layers of one round; the last one has no new points to make."""

    def __init__(self, width: int, num_support: int, metric: str, dropout: float, is_last: bool) -> None:
        super().__init__()
        self.point_edge = _Edge(width, metric, dropout)
        # New distributions ``(E, n, m)`` from the edges to the support and the old ones, ``(E, n, 2m)``.
        fc = nn.Linear(2 * num_support, num_support)
        self.distribution_node = nn.Sequential(OrderedDict(fc=fc, activation=nn.LeakyReLU()))
        self.distribution_edge = _Edge(num_support, metric, dropout)
        self.point_node = None if is_last else _PointNode(width, dropout)


class _Edge(nn.Module):
    """New edges from points and old edges."""

    def __init__(self, width: int, metric: str, dropout: float) -> None:
        super().__init__()
        self.metric, self.dropout = metric, dropout
        self.conv1, self.bn1 = nn.Linear(width, 2 * width, bias=False), nn.BatchNorm1d(2 * width)
        self.conv2, self.bn2 = nn.Linear(2 * width, width, bias=False), nn.BatchNorm1d(width)
        self.conv3 = nn.Linear(width, 1)

    def forward(self, points: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        """Edges ``(E, n, n)`` and dissimilarities ``(E, n, n)``, of points ``(E, n, width)``."""
        if self.training:  # Batch statistics count each pair in both orders, and each point with itself.
            similar, dissimilarities = self.compare(points.unsqueeze(-2) - points.unsqueeze(-3))
        else:
            n = points.shape[-2]
            first, second = torch.triu_indices(n, n, device=points.device)
            pairs = torch.arange(len(first), device=points.device)
            place = pairs.new_zeros(n, n)
            place[first, second] = place[second, first] = pairs
            similar, dissimilarities = (each[:, place] for each in self.compare(points[:, first] - points[:, second]))
        own = _identity(edges)
        others = edges * (1 - own)
        shares = F.normalize(similar * others, p=1, dim=-1) * others.sum(-1, keepdim=True) + own + 1e-6
        return shares / shares.sum(-1, keepdim=True), dissimilarities

    def compare(self, apart: Tensor) -> tuple[Tensor, Tensor]:
        """Similarities ``(E, ...)`` in (0, 1) and dissimilarities ``(E, ...)`` of differences ``(E, ..., width)``."""
        apart = apart.square() if self.metric == "l2" else apart.abs()
        hidden = _dropped(F.leaky_relu(_normalized(self.bn1, self.conv1(apart))), self.dropout, self.training)
        hidden = _dropped(F.leaky_relu(_normalized(self.bn2, self.conv2(hidden))), self.dropout, self.training)
        return self.conv3(hidden).squeeze(-1).sigmoid(), -apart.sum(-1)


class _PointNode(nn.Module):
    """New points ``(E, n, width)``, of the old ones and their neighbours by the distribution edges."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.conv1, self.bn1 = nn.Linear(2 * width, 2 * width, bias=False), nn.BatchNorm1d(2 * width)
        self.conv2, self.bn2 = nn.Linear(2 * width, width, bias=False), nn.BatchNorm1d(width)

    def forward(self, points: Tensor, edges: Tensor) -> Tensor:
        others = edges * (1 - _identity(edges))
        around = F.normalize(others, p=1, dim=-1) @ points
        hidden = F.leaky_relu(_normalized(self.bn1, self.conv1(torch.cat([points, around], -1))))
        return _dropped(F.leaky_relu(_normalized(self.bn2, self.conv2(hidden))), self.dropout, self.training)


def _identity(edges: Tensor) -> Tensor:
    """The edges of points with themselves."""
    return torch.eye(edges.shape[-1], device=edges.device, dtype=edges.dtype)


def _normalized(norm: nn.Module, values: Tensor) -> Tensor:
    """Batch normalisation over all but the last dimension."""
    return norm(values.flatten(0, -2)).view_as(values)


def _dropped(values: Tensor, dropout: float, training: bool) -> Tensor:
    """Dropout of whole channels of a graph, ``(E, ..., channels)``."""
    if not training or not dropout:
        return values
    kept = F.dropout(values.new_ones(len(values), values.shape[-1]), dropout, training)
    return values * kept.view(len(values), *[1] * (values.dim() - 2), -1)

"""TEAM (our reconstruction): a metric of its own for each episode, in closed form."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..checks import require
from ..features import EpisodeFeatures
from ..heads.linalg import eigh
from ..recipes import MetaRecipe
from .base import Criterion, Method
from .shared.halving import halving_adam
from .shared.prototypes import class_means

_SPAN = 1e-12  # Squared length, of the longest's, below which a direction of the episode's points is rounding.
_TINY = 1e-30


class TEAM(Method):
    r"""TEAM (our reconstruction): prototypes by a metric that every episode makes for itself.

    No code was released and the equations could not be read: this is rebuilt from the abstract and a figure's caption.
    Its numbers are ours, and no reproduction.

    *Mixing* (training only): ``x_i <- lambda x_i + (1 - lambda) x_pi(i)`` with one permutation of the episode's images
    and one lambda of at least 1/2; labels stay. *Metric*: z are coordinates of the centred features in their span,
    scaled to a mean squared norm of its dimension r. S is the mean of ``(z_i - z_j)(z_i - z_j)'`` over pairs that
    belong together (support of one class; each query with the support point nearest to it), D over pairs that do not
    (support of different classes), and ``M0 = (C + I)^-1`` the prior, C the covariance of z. M minimises ``tr(M S) +
    tr(M^-1 D) + prior (tr(M M0^-1) + tr(M^-1 M0))``: it is the positive definite M with ``M P M = R``, where ``P = S +
    prior M0^-1`` and ``R = D + prior M0``. *Similarity*: with ``l_jc = -(z_j - p_c)' M (z_j - p_c) / (temperature r)``
    the score is the softmax of l over classes times that over queries, brought to sum 1 over classes. The logits are
    its logarithms.

    Assumed: a uniform lambda, one for an episode; unchanged labels; the scaling of z; what queries belong to, and that
    they enter so; the prior's form and weight; geometric-mean metric learning for the unknown programme; M constant in
    the backward pass (gradients flow through z); a backbone without dropout; the temperature r times a learned factor;
    the product of both softmaxes; the schedule and its 100,000 episodes.

    The softmax over queries expects as many queries of each class. It takes any classes, shots and queries.

    Use this to see what an episode's own metric adds to prototypes; not where the queries' classes are unbalanced, and
    not to judge the published method.

    Source: Qiao et al., "Transductive episodic-wise adaptive metric for few-shot learning", ICCV 2019, as far as said.

    Args:
        prior: Weight of the prior (mu), above 0; default 1.
        temperature: Of the similarities, in units of r, above 0: where its learned factor begins. Default 1.
        mixing: a of Beta(a, a), from which lambda comes, 0 or more; default 1, uniform; 0 for no mixing.

    Raises:
        UsageError: If an argument is outside its range.

    Example:
        >>> points = torch.tensor([[0.0, 1.0], [4.0, 0.0], [0.0, 0.5], [4.0, 0.5]])
        >>> features = EpisodeFeatures(points[:2], points[2:], torch.tensor([0, 1]))
        >>> TEAM().logits(features).argmax(-1)
        tensor([0, 1])
    """

    is_transductive = True
    uses_criterion = False

    def __init__(self, prior: float = 1.0, temperature: float = 1.0, mixing: float = 1.0) -> None:
        super().__init__()
        self.prior = require("prior", prior, above=0)
        self.temperature = require("temperature", temperature, above=0)
        self.mixing = require("mixing", mixing, least=0)
        self.log_temperature = nn.Parameter(torch.tensor(float(temperature)).log())

    def recipe(self, recipe: MetaRecipe, *, pretrained: bool, test_shots: int) -> MetaRecipe:
        """See `Method.recipe`: 100,000 episodes, the rates halved every 10,000."""
        return halving_adam(recipe, episodes=100_000, every=10_000, shots=test_shots, queries=15, pretrained=pretrained)

    def training_images(self, images: Tensor) -> Tensor:
        """See `Method.training_images`: each image with a little of another one of its episode."""
        if not self.mixing:
            return images
        episodes, count = images.shape[:2]
        share = torch.distributions.Beta(self.mixing, self.mixing).sample((episodes,)).to(images)
        share = torch.maximum(share, 1 - share)[:, None, None, None, None]
        others = torch.rand(episodes, count, device=images.device).argsort(-1)
        mixed = images[torch.arange(episodes, device=images.device).unsqueeze(-1), others]
        return torch.lerp(mixed, images, share)

    def logits(self, features: EpisodeFeatures) -> Tensor:
        """See `Method.logits`; in double precision."""
        coordinates, rank = spanned(features.points.to(features.targets))
        with torch.no_grad():
            metric = metric_root(coordinates, features.targets, self.prior)
        support, query = (coordinates @ metric).tensor_split([features.num_support], dim=-2)
        prototypes = class_means(features.targets) @ support
        squared = (query.unsqueeze(-2) - prototypes.unsqueeze(-3)).square().sum(-1)
        similarity = -squared / (rank[..., None, None] * self.log_temperature.exp())
        return (similarity.log_softmax(-1) + similarity.log_softmax(-2)).log_softmax(-1)

    def loss(self, features: EpisodeFeatures, query_labels: Tensor, criterion: Criterion) -> tuple[Tensor, Tensor]:
        """See `Method.loss`: the negative log score of the true class; the criterion is not used."""
        logits = self.logits(features)
        return F.nll_loss(logits.flatten(0, -2), query_labels.flatten()), logits


def spanned(points: Tensor) -> tuple[Tensor, Tensor]:
    """Coordinates of centred points ``(..., N, d)`` in their own span, scaled to a mean squared norm of its dimension.

    Returns:
        Coordinates ``(..., N, N)``, some of them 0 where the span has fewer dimensions; the axes are constants for
        gradients. And the number of its dimensions ``(...)``, at least 1.

    Example:
        >>> coordinates, rank = spanned(torch.tensor([[0.0, 0.0], [2.0, 0.0]]))
        >>> coordinates.abs().round(), rank
        (tensor([[0., 1.],
                [0., 1.]]), tensor(1))
    """
    centred = points - points.mean(-2, keepdim=True)
    with torch.no_grad():
        squares, vectors = eigh(centred @ centred.mT)
        least = max(_SPAN, points.shape[-2] * torch.finfo(points.dtype).eps) * squares[..., -1:] + _TINY
        inside = squares > least
        axes = centred.mT @ vectors * torch.where(inside, squares.clamp(min=_TINY).rsqrt(), 0).unsqueeze(-2)
        rank = inside.sum(-1).clamp(min=1)
    coordinates = centred @ axes
    mean = coordinates.square().sum(-1).mean(-1).clamp(min=_TINY)
    return coordinates * (rank / mean).sqrt()[..., None, None], rank


def metric_root(coordinates: Tensor, targets: Tensor, prior: float) -> Tensor:
    """The episode's metric M as a map B ``(..., N, N)``, M = B B', after which Euclidean distances are those of M.

    The coordinates ``(..., n + m, N)`` are those of `spanned`, the targets one-hot labels ``(..., n, ways)``.
    """
    support, query = coordinates.tensor_split([targets.shape[-2]], dim=-2)
    same = targets @ targets.mT
    nearest = F.one_hot(torch.cdist(query, support).argmin(-1), targets.shape[-2]).to(targets)
    own = same - same.new_ones(same.shape[-1]).diag()
    together = torch.cat([torch.cat([own, nearest], -2), F.pad(nearest.mT, (0, 0, 0, query.shape[-2]))], -1)
    similar, different = mean_square(coordinates, together), mean_square(support, 1 - same)
    spread = coordinates.mT @ coordinates / coordinates.shape[-2]
    inverse_prior = spread + spread.new_ones(spread.shape[-1]).diag()
    return geometric_mean_root(similar + prior * inverse_prior, different + prior * torch.linalg.inv(inverse_prior))


def mean_square(points: Tensor, pairs: Tensor) -> Tensor:
    """The mean ``(..., d, d)`` of ``(x_i - x_j)(x_i - x_j)'`` over pairs of points ``(..., N, d)``; 0 of none.

    Pairs are symmetric ``(..., N, N)``, 1 for a pair and 0 for none.

    Example:
        >>> mean_square(torch.tensor([[0.0], [2.0], [5.0]]), torch.tensor([[0.0, 1, 1], [1, 0, 0], [1, 0, 0]]))
        tensor([[14.5000]])
    """
    laplacian = torch.diag_embed(pairs.sum(-1)) - pairs
    return points.mT @ laplacian @ points / (pairs.sum((-2, -1)) / 2).clamp(min=1)[..., None, None]


def geometric_mean_root(p: Tensor, r: Tensor) -> Tensor:
    """A root B of the positive definite M = B B' with ``M P M = R``, of positive definite P and R ``(..., N, N)``.

    Example:
        >>> root = geometric_mean_root(torch.eye(2) * 2, torch.eye(2) * 8)
        >>> (root @ root.mT).round()
        tensor([[2., 0.],
                [0., 2.]])
    """
    # With P = L L' and L' R L = Q A Q': M = L'^-1 Q A^1/2 Q' L^-1.
    lower = torch.linalg.cholesky(p)
    squares, vectors = eigh(lower.mT @ r @ lower)
    return torch.linalg.solve_triangular(
        lower.mT, vectors * squares.clamp(min=0).sqrt().sqrt().unsqueeze(-2), upper=True
    )

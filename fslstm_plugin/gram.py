"""An episode after the backbone: its Gram matrix, and its extension by mixtures.

Every head of the paper is a kernel machine, so it sees features only through inner products. The linear Gram
matrix is computed once per episode; kernels are elementwise functions of it, and support points that are
averages or copies of queries (pseudo supports, candidates) extend it by small matrix products.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .errors import UsageError, count_of
from .kernels import RBF, FarAwayWarning, Kernel, Linear, inverse_lengths
from .tracing import values_known

_ILL_CONDITIONED = 1e-4  # Smallest eigenvalue over the mean diagonal; networks' features have 5e-4 and more.


def require_resolved(points: Tensor, precision: float) -> None:
    """Refuse features ``(n, d)`` that are so far from the origin that rounding hides what tells them apart.

    Raises:
        UsageError: If the precision of a squared distance, which is given as a share of the squared norms, is more than
            a tenth of the mean squared distance to their mean.

    Example:
        >>> require_resolved(torch.eye(3, dtype=torch.float64) + 1e9, 1e-16)
        Traceback (most recent call last):
        ...
        fslstm_plugin.errors.UsageError: The features are so far from 0 that rounding hides their differences: ...
    """
    spread = (points - points.mean(0)).square().sum(-1).mean()
    if 0 < spread < 10 * precision * points.square().sum(-1).mean():
        raise UsageError(
            "The features are so far from 0 that rounding hides their differences: subtract their common mean first."
        )


@dataclass(frozen=True, eq=False)
class EpisodeGram:
    """The linear Gram matrix of a batch of episodes, in blocks, in double precision.

    The blocks are small, so double precision costs next to nothing and spares every head the question whether
    its system is solvable: averages appended twice, or more points than features, make the matrix singular.

    Args:
        support: Support with support ``(..., n, n)``.
        cross: Queries with support ``(..., m, n)``.
        query_norms: Squared norms of the queries ``(..., m)``.
        dim: Number of features d.
        query: Queries with queries ``(..., m, m)``; needed by `append` only.

    Example:
        >>> support, query = torch.eye(3), torch.ones(2, 3)
        >>> gram = EpisodeGram.from_features(support, query, transductive=True)
        >>> gram.append(torch.tensor([[0.5, 0.5]])).support
        tensor([[1., 0., 0., 1.],
                [0., 1., 0., 1.],
                [0., 0., 1., 1.],
                [1., 1., 1., 3.]], dtype=torch.float64)
    """

    support: Tensor
    cross: Tensor
    query_norms: Tensor
    dim: int
    query: Tensor | None = None

    @classmethod
    def from_features(cls, support: Tensor, query: Tensor, transductive: bool = False) -> EpisodeGram:
        """Multiply out the features of a batch of episodes.

        Args:
            support: Features ``(..., n, d)``, any floating-point type.
            query: Features ``(..., m, d)``.
            transductive: Whether to compute the query block too, which `append` needs. Default False.

        Returns:
            The blocks in double precision, differentiable with respect to both arguments.
        """
        return cls.from_points(torch.cat([support, query], -2), support.shape[-2], transductive)

    @classmethod
    def from_points(cls, points: Tensor, support_size: int, transductive: bool = False) -> EpisodeGram:
        """The same as `from_features`, for features that lie together, ``(..., n + m, d)``, n of support first."""
        exact = small_matrix_dtype(points.device)
        # All in one product: a larger one is so much faster that half of it may be computed twice.
        rows = points.shape[-2] if transductive else support_size
        # Half precision, autocast's too, loses the small differences between features that decide.
        with torch.autocast(points.device.type, enabled=False):
            points = points.to(_product_dtype(points))
            products = _products(points, rows)
            if points.dtype != exact:
                lost = _lost_to_rounding(products[0][..., :rows].detach(), support_size)
                products = [each.to(exact) for each in products]
                if lost.any():
                    again = _products(points[lost].to(exact), rows)
                    masks = lost[..., None, None], lost[..., None]
                    products = [old.masked_scatter(*new) for old, *new in zip(products, masks, again, strict=True)]
        product, norms = products
        own, crossing = product[..., :support_size, :].tensor_split([support_size], dim=-1)
        query = _symmetric(product[..., support_size:, support_size:]) if transductive else None
        return cls(_symmetric(own), crossing.mT, norms[..., support_size:], points.shape[-1], query)

    @classmethod
    def cat(cls, grams: Sequence[EpisodeGram]) -> EpisodeGram:
        """One batch of the episodes of several, along the first dimension; all with the query block, or none."""
        blocks = zip(*((gram.support, gram.cross, gram.query_norms) for gram in grams), strict=True)
        support, cross, query_norms = map(torch.cat, blocks)
        queries = [gram.query for gram in grams if gram.query is not None]
        return cls(support, cross, query_norms, grams[0].dim, torch.cat(queries) if queries else None)

    def normalized(self) -> EpisodeGram:
        """The Gram matrix of the same features at unit length; a zero vector stays zero.

        Unlike the `Cosine` kernel, points that `append` mixes afterwards are not normalised again.

        Example:
            >>> EpisodeGram.from_features(torch.eye(2) * 3, torch.ones(1, 2)).normalized().cross
            tensor([[0.7071, 0.7071]], dtype=torch.float64)
        """
        left, right = inverse_lengths(self.query_norms), inverse_lengths(torch.linalg.diagonal(self.support))
        return EpisodeGram(
            self.support * right.unsqueeze(-1) * right.unsqueeze(-2),
            self.cross * left.unsqueeze(-1) * right.unsqueeze(-2),
            self.query_norms * left.square(),
            self.dim,
            None if self.query is None else self.query * left.unsqueeze(-1) * left.unsqueeze(-2),
        )

    def beside(self, other: EpisodeGram, share: float) -> EpisodeGram:
        """The Gram matrix of both features side by side, in which the other inner products have this share, up to 1.

        Example:
            >>> own, other = (EpisodeGram.from_features(torch.eye(2) * k, torch.eye(2), True) for k in (1, 3))
            >>> own.beside(other, 0.25).support
            tensor([[3., 0.],
                    [0., 3.]], dtype=torch.float64)
        """
        return EpisodeGram(
            torch.lerp(self.support, other.support, share),
            torch.lerp(self.cross, other.cross, share),
            torch.lerp(self.query_norms, other.query_norms, share),
            self.dim + other.dim,
            torch.lerp(self.query_block, other.query_block, share),
        )

    def plus(self, other: EpisodeGram) -> EpisodeGram:
        """The Gram matrix of the same features with others beside them; the other one has the same blocks.

        Example:
            >>> own, other = (EpisodeGram.from_features(torch.eye(2) * k, torch.eye(2)) for k in (1, 3))
            >>> own.plus(other).cross
            tensor([[4., 0.],
                    [0., 4.]], dtype=torch.float64)
        """
        query = None if self.query is None else self.query + other.query_block
        norms = self.query_norms + other.query_norms
        return EpisodeGram(self.support + other.support, self.cross + other.cross, norms, self.dim, query)

    @property
    def whole(self) -> Tensor:
        """The inner products of all points with all, ``(..., n + m, n + m)``, the support first; see `query_block`.

        Example:
            >>> EpisodeGram.from_features(torch.eye(2), torch.ones(1, 2), transductive=True).whole
            tensor([[1., 0., 1.],
                    [0., 1., 1.],
                    [1., 1., 2.]], dtype=torch.float64)
        """
        query = self.query_block
        return torch.cat([torch.cat([self.support, self.cross.mT], -1), torch.cat([self.cross, query], -1)], -2)

    @property
    def query_block(self) -> Tensor:
        """The inner products of queries with queries.

        Raises:
            UsageError: If they were not computed.
        """
        if self.query is None:
            raise UsageError("Appending queries needs their Gram block: build it with transductive=True.")
        return self.query

    def append(self, mix: Tensor) -> EpisodeGram:
        """Extend the support by mixtures of queries.

        Args:
            mix: Weights ``(..., p, m)``: row i makes the new point ``sum_j mix_ij query_j``. A row of zeros
                is an absent point; give it a row of zeros among the targets as well.

        Returns:
            The Gram matrix with p more support points, after the present ones.

        Raises:
            UsageError: See `query_block`.
        """
        query = self.query_block
        mix = mix.to(query.dtype)
        queries_new = query @ mix.mT
        return self._with(mix @ self.cross, queries_new, mix @ queries_new)

    def append_queries(self, indices: Tensor) -> EpisodeGram:
        """Extend the support by copies of queries, whose indices are int64 ``(..., p)``; see `append`."""
        query = self.query_block
        rows, crossing = (each.take_along_dim(indices.unsqueeze(-1), -2) for each in (query, self.cross))
        return self._with(crossing, rows.mT, rows.take_along_dim(indices.unsqueeze(-2), -1))

    def _with(self, new_support: Tensor, queries_new: Tensor, new_new: Tensor) -> EpisodeGram:
        """Larger by new points, whose products with support, queries and each other are given."""
        top = torch.cat([self.support, new_support.mT], -1)
        bottom = torch.cat([new_support, new_new], -1)
        return replace(self, support=torch.cat([top, bottom], -2), cross=torch.cat([self.cross, queries_new], -1))

    def support_kernel(self, kernel: Kernel, targets: Tensor) -> Tensor:
        """Kernel values of the support with itself.

        Args:
            kernel: The kernel.
            targets: Labels ``(..., n, ways)``; a row of zeros marks an absent point.

        Returns:
            ``(..., n, n)``; rows and columns of absent points are zero.
        """
        if isinstance(kernel, Linear):  # An absent point's products are zero already.
            return self.support
        present = (targets.sum(-1, keepdim=True) > 0).to(self.support)
        norms = torch.linalg.diagonal(self.support)
        return kernel(self.support, norms, norms, self.dim) * present * present.mT

    def cross_kernel(self, kernel: Kernel, targets: Tensor) -> Tensor:
        """Kernel values of the queries with the support, ``(..., m, n)``; see `support_kernel`."""
        if isinstance(kernel, Linear):
            return self.cross
        present = (targets.sum(-1, keepdim=True) > 0).to(self.support)
        values = kernel(self.cross, self.query_norms, torch.linalg.diagonal(self.support), self.dim) * present.mT
        if isinstance(kernel, RBF) and values.numel() and values_known():
            alone = int((values.detach() == 0).all(-1).sum())
            if alone:
                warnings.warn(
                    f"Too far from every support point: {count_of(alone, 'query')}. There {kernel} is 0 and says "
                    "nothing about the class: normalise the features, or give a smaller scale, as in "
                    f"rbf(scale={0.1 / float(torch.linalg.diagonal(self.support).mean()):.1g}).",
                    FarAwayWarning,
                    stacklevel=2,
                )
        return values

    def query_self_kernel(self, kernel: Kernel) -> Tensor:
        """Kernel value ``(..., m)`` of each query with itself."""
        norms = self.query_norms.unsqueeze(-1)
        return kernel(norms.unsqueeze(-1), norms, norms, self.dim).squeeze((-1, -2))


def _products(points: Tensor, rows: int) -> list[Tensor]:
    """The first rows' products with all points ``(..., n, d)``, and every point's squared norm, in their precision."""
    product = points[..., :rows, :] @ points.mT
    others = torch.linalg.vector_norm(points[..., rows:, :], dim=-1).square()
    return [product, torch.cat([torch.linalg.diagonal(product), others], -1)]


def _lost_to_rounding(products: Tensor, support_size: int) -> Tensor:
    """Episodes ``(...)`` whose products ``(..., n, n)``, rounded to single precision, may lose decisive digits.

    Either the support points lie far closer together than to the origin: rounding of the large products hides their
    small differences. Or some combination of the points nearly vanishes: a head divides by the smallest eigenvalue, or
    by its ridge, and so makes the rounding of all products large.
    """
    own = products[..., :support_size, :support_size]
    offset = own.mean((-2, -1))
    close_together = torch.linalg.diagonal(own).mean(-1) - offset < 0.01 * offset
    shifted = products.clone()
    diagonal = torch.linalg.diagonal(shifted)
    diagonal.sub_(_ILL_CONDITIONED * diagonal.mean(-1, keepdim=True))
    # The smallest eigenvalue is above the shift exactly where the shifted matrix has a Cholesky factor.
    return close_together | (torch.linalg.cholesky_ex(shifted).info != 0)


def _product_dtype(points: Tensor) -> torch.dtype:
    """The precision of inner products of points ``(..., n, d)``: single at least.

    With more points than features the matrix is singular, so a rounding error of its entries would be divided by the
    ridge alone. With so few features the exact product is cheap. Where PyTorch was told that it may multiply single
    precision with fewer digits (TF32), which Lightning advises on some GPUs, only double precision keeps them. And
    where values cannot be read, nothing shows whether single precision is enough.
    """
    too_few = points.shape[-1] < points.shape[-2]
    if too_few or not values_known() or not _keeps_single_precision():
        return small_matrix_dtype(points.device)
    return torch.promote_types(points.dtype, torch.float32)


def _keeps_single_precision() -> bool:
    """Whether PyTorch was not told that products in single precision may have fewer digits."""
    try:
        return torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # So it answers where only one library was told, as by torch.backends.cuda.matmul.
        return False


def small_matrix_dtype(device: torch.device) -> torch.dtype:
    """Double precision, but single on Apple's GPUs, which have no double."""
    return torch.float32 if device.type == "mps" else torch.float64


def _symmetric(matrix: Tensor) -> Tensor:
    """Both triangles alike: a product's may differ by rounding, and a solver that reads one of them stalls."""
    return (matrix + matrix.mT) / 2

"""Kernels as functions of inner products and norms, so that features are multiplied out once for all of them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from .arguments import build, options_of
from .checks import one_of, require
from .grammar import Part

_TINY = 1e-30  # Of a squared norm; no real feature has so small a one.


class FarAwayWarning(UserWarning):
    """A kernel is 0 between a query and every support point, and so says nothing about its class."""


class Kernel(ABC):
    """An elementwise function of inner products and squared norms; subclass it to add a kernel."""

    @abstractmethod
    def __call__(self, inner: Tensor, left_norms: Tensor, right_norms: Tensor, dim: int) -> Tensor:
        """The kernel of every left point with every right point.

        Args:
            inner: Inner products ``(..., a, b)``.
            left_norms: Squared Euclidean norms ``(..., a)`` of the left points.
            right_norms: Squared Euclidean norms ``(..., b)`` of the right points.
            dim: Number of features d, for scales that depend on it.

        Returns:
            Kernel values ``(..., a, b)``.
        """

    def __str__(self) -> str:
        """The text that `resolve_kernel` reads: the name, and the arguments that are not their defaults.

        Example:
            >>> str(Polynomial(degree=2))
            'polynomial(degree=2)'
        """
        return str(Part(type(self).__name__.lower(), options_of(self)))


@dataclass(frozen=True)
class Linear(Kernel):
    """``k(x, y) = x.y``, the paper's kernel."""

    def __call__(self, inner: Tensor, left_norms: Tensor, right_norms: Tensor, dim: int) -> Tensor:
        """See `Kernel`."""
        return inner


@dataclass(frozen=True)
class RBF(Kernel):
    """``k(x, y) = exp(-scale ||x - y||^2)``.

    Args:
        scale: Inverse squared length, above 0. Default None: 1/d, right for features of about unit size each.

    Raises:
        UsageError: If the scale is not above 0.
    """

    scale: float | None = None

    def __post_init__(self) -> None:
        if self.scale is not None:
            require("scale", self.scale, above=0)

    def __call__(self, inner: Tensor, left_norms: Tensor, right_norms: Tensor, dim: int) -> Tensor:
        """See `Kernel`."""
        distances = left_norms.unsqueeze(-1) + right_norms.unsqueeze(-2) - 2 * inner
        # Rounding can make the distance of two equal points slightly negative.
        return torch.exp(-_scale(self.scale, dim) * distances.clamp(min=0))


@dataclass(frozen=True)
class Polynomial(Kernel):
    """``k(x, y) = (scale x.y + offset)^degree``.

    Args:
        degree: At least 1; default 3.
        offset: At least 0 (below it the kernel is not positive semidefinite); default 1.
        scale: Factor of the inner product, above 0. Default None: 1/d.

    Raises:
        UsageError: If an argument is outside its range.
    """

    degree: int = 3
    offset: float = 1.0
    scale: float | None = None

    def __post_init__(self) -> None:
        if self.scale is not None:
            require("scale", self.scale, above=0)
        require("offset", self.offset, least=0)
        require("degree", self.degree, least=1, whole=True)

    def __call__(self, inner: Tensor, left_norms: Tensor, right_norms: Tensor, dim: int) -> Tensor:
        """See `Kernel`."""
        return (_scale(self.scale, dim) * inner + self.offset) ** self.degree


@dataclass(frozen=True)
class Cosine(Kernel):
    """``k(x, y) = x.y / (||x|| ||y||)``: the linear kernel on unit-length features (0 for a zero vector)."""

    def __call__(self, inner: Tensor, left_norms: Tensor, right_norms: Tensor, dim: int) -> Tensor:
        """See `Kernel`."""
        return inner * inverse_lengths(left_norms).unsqueeze(-1) * inverse_lengths(right_norms).unsqueeze(-2)


def inverse_lengths(norms: Tensor, nothing: float = _TINY) -> Tensor:
    """One over the lengths of vectors with these squared norms; 0 up to ``nothing``, and so are the derivatives there.

    Example:
        >>> inverse_lengths(torch.tensor([4.0, 0.0]))
        tensor([0.5000, 0.0000])
    """
    return norms.masked_fill(norms <= nothing, math.inf).rsqrt()


def of_unit_length(points: Tensor) -> Tensor:
    """Vectors ``(..., d)`` brought to unit length; a zero vector stays zero, and has the derivative 0.

    Example:
        >>> of_unit_length(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]])
    """
    lengths = points.norm(dim=-1, keepdim=True)
    return points / lengths.masked_fill(lengths <= _TINY**0.5, math.inf)


_KERNELS: dict[str, type[Kernel]] = {"linear": Linear, "rbf": RBF, "polynomial": Polynomial, "cosine": Cosine}


def resolve_kernel(kernel: str | Kernel) -> Kernel:
    """The kernel itself, or the one that a text names: linear, rbf, polynomial or cosine, perhaps with arguments.

    Raises:
        UnknownNameError: If no kernel has that name, or it has no argument of that name.
        UsageError: If the text or an argument cannot be read, or an argument is outside its range.

    Example:
        >>> resolve_kernel("rbf(scale=0.1)")
        RBF(scale=0.1)
    """
    if isinstance(kernel, Kernel):
        return kernel
    part = Part.parse(str(kernel))
    return build(_KERNELS[one_of("kernel", part.name, _KERNELS)], part.arguments, str(part))


def _scale(scale: float | None, dim: int) -> float:
    return 1 / dim if scale is None else scale

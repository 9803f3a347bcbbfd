"""Kernels as functions of inner products and norms, so that features are multiplied out once for all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from .errors import UnknownNameError, UsageError, require_not_negative, require_positive, require_whole

TINY = 1e-30  # Keeps the cosine of a zero vector finite (it is 0); no real feature has so small a norm.


class Kernel(ABC):
    """An elementwise function of inner products and squared norms; subclass it, as a dataclass, to add a kernel."""

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
        options = [(each.name, getattr(self, each.name), each.default) for each in fields(self)]  # type: ignore[arg-type]
        changed = ",".join(f"{name}={value}" for name, value, default in options if value != default)
        name = type(self).__name__.lower()
        return f"{name}({changed})" if changed else name


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
            require_positive(scale=self.scale)

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
            require_positive(scale=self.scale)
        require_not_negative(offset=self.offset)
        require_whole("degree", self.degree, 1)

    def __call__(self, inner: Tensor, left_norms: Tensor, right_norms: Tensor, dim: int) -> Tensor:
        """See `Kernel`."""
        return (_scale(self.scale, dim) * inner + self.offset) ** self.degree


@dataclass(frozen=True)
class Cosine(Kernel):
    """``k(x, y) = x.y / (||x|| ||y||)``: the linear kernel on unit-length features (0 for a zero vector)."""

    def __call__(self, inner: Tensor, left_norms: Tensor, right_norms: Tensor, dim: int) -> Tensor:
        """See `Kernel`."""
        left = left_norms.clamp(min=TINY).rsqrt().unsqueeze(-1)
        right = right_norms.clamp(min=TINY).rsqrt().unsqueeze(-2)
        return inner * left * right


_KERNELS: dict[str, type[Kernel]] = {"linear": Linear, "rbf": RBF, "polynomial": Polynomial, "cosine": Cosine}


def resolve_kernel(kernel: str | Kernel) -> Kernel:
    """The kernel itself, or the one that a text names.

    Args:
        kernel: ``"linear"``, ``"rbf"``, ``"polynomial"``, ``"cosine"``, perhaps with arguments as in
            ``"rbf(scale=0.1)"``; or a `Kernel`.

    Raises:
        UnknownNameError: If no kernel has that name, or it has no argument of that name.
        UsageError: If an argument cannot be read, or is outside its range.

    Example:
        >>> resolve_kernel("rbf(scale=0.1)")
        RBF(scale=0.1)
    """
    if isinstance(kernel, Kernel):
        return kernel
    name, opening, rest = str(kernel).partition("(")
    if name not in _KERNELS:
        raise UnknownNameError("kernel", name, _KERNELS)
    if opening and not rest.endswith(")"):
        raise UsageError(f"The kernel '{kernel}' lacks its closing parenthesis.")
    known = [each.name for each in fields(_KERNELS[name])]  # type: ignore[arg-type]
    arguments = {}
    for argument in filter(None, rest.removesuffix(")").split(",")):
        key, _, value = (word.strip() for word in argument.partition("="))
        if key not in known:
            raise UnknownNameError(f"argument of the kernel {name}", key, known)
        arguments[key] = _number(value, str(kernel))
    return _KERNELS[name](**arguments)


def _number(text: str, kernel: str) -> float:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise UsageError(f"The arguments of the kernel '{kernel}' must be numbers, as in rbf(scale=0.1), but got '{text}'.")


def _scale(scale: float | None, dim: int) -> float:
    return 1 / dim if scale is None else scale

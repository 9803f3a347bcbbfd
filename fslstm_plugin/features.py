"""The features of a batch of episodes: the one input of every method."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property
from math import prod
from typing import Protocol

import torch
from torch import Tensor

from .errors import UsageError
from .gram import EpisodeGram
from .heads import one_hot
from .heads.validation import check_query, check_support, require_tensor
from .tracing import values_known


class Adapter(Protocol):
    """What `EpisodeFeatures.adapted` asks of a `FeatureAdapter`."""

    @property
    def key(self) -> Hashable:
        """Adapters with equal keys do the same."""

    def adapt(self, features: EpisodeFeatures) -> EpisodeFeatures:
        """The same episodes with other features."""


class EpisodeFeatures:
    """Support, queries and labels of a batch of episodes, and what follows from them, computed once and on demand.

    Methods ask it for `gram`, or for `adapted` features and their `gram`, so that methods with the same adapters share
    the products of the features, which cost most.

    Args:
        support: Features ``(..., n, d)``, any floating-point type.
        query: Features ``(..., m, d)``; leading dimensions as the support's. If the types differ, both get the wider
            one.
        labels: int64 in [0, ways), any order, any number per class: ``(..., n)``, or ``(n,)`` for all episodes.
        ways: Number of classes; default the greatest label + 1.
        base_mean: Mean feature ``(d,)`` of the base classes' images, or of each of these classes ``(classes, d)``, for
            methods that need it. Default None.
        map_shape: Shape (channels, height, width) of the feature maps that were flattened to d features, for methods
            that work on maps. Default None.

    Raises:
        UsageError: If a shape, type or value is wrong, or a class has no support point.

    Example:
        >>> features = EpisodeFeatures(torch.eye(2), torch.ones(3, 2), torch.tensor([0, 1]))
        >>> features.ways, features.targets.shape, features.gram.cross.shape
        (2, torch.Size([2, 2]), torch.Size([3, 2]))
    """

    def __init__(
        self,
        support: Tensor,
        query: Tensor,
        labels: Tensor,
        ways: int | None = None,
        *,
        base_mean: Tensor | None = None,
        map_shape: tuple[int, int, int] | None = None,
    ) -> None:
        labels, ways = check_support(support, labels, ways)
        check_query(support, query)
        if base_mean is not None:
            _check_base_mean(base_mean, support.shape[-1])
        if map_shape is not None:
            _check_map_shape(map_shape, support.shape[-1])
        both = torch.promote_types(support.dtype, query.dtype)
        self.support, self.query = support.to(both), query.to(both)
        self._set(one_hot(labels, ways), query.shape[-2], base_mean, map_shape)

    @staticmethod
    def from_points(
        points: Tensor,
        targets: Tensor,
        base_mean: Tensor | None = None,
        map_shape: tuple[int, int, int] | None = None,
    ) -> EpisodeFeatures:
        """The same for features that lie together, ``(..., n + m, d)``, the support first; nothing is checked.

        Targets are one-hot labels ``(..., n, ways)`` in the Gram matrix's type; for the rest see `EpisodeFeatures`.
        """
        count = points.shape[-2] - targets.shape[-2]
        return EpisodeFeatures.looked_up(lambda: points, count, targets, base_mean, map_shape)

    @staticmethod
    def looked_up(
        look_up: Callable[[], Tensor],
        num_query: int,
        targets: Tensor,
        base_mean: Tensor | None = None,
        map_shape: tuple[int, int, int] | None = None,
        gram: Callable[[bool], EpisodeGram] | None = None,
    ) -> EpisodeFeatures:
        """The same as `from_points`, for m queries, of points that are looked up when needed, also after `release`.

        So are the Gram matrices, with the queries' own block where asked for. Default None: they are multiplied out.
        """
        return _Made(look_up, targets, num_query, base_mean, map_shape, gram)

    def _set(
        self, targets: Tensor, num_query: int, base_mean: Tensor | None, map_shape: tuple[int, int, int] | None
    ) -> None:
        self.targets, self.num_query, self.base_mean, self.map_shape = targets, num_query, base_mean, map_shape
        self._grams: dict[bool, EpisodeGram] = {}  # with the queries' own block, and without
        self._adapted: dict[Hashable, EpisodeFeatures] = {}

    @property
    def ways(self) -> int:
        """Number of classes."""
        return self.targets.shape[-1]

    @property
    def num_support(self) -> int:
        """Number n of support points of an episode."""
        return self.targets.shape[-2]

    @cached_property
    def labels(self) -> Tensor:
        """Class of each support point, int64 ``(..., n)``."""
        return self.targets.argmax(-1)

    @cached_property
    def points(self) -> Tensor:
        """Features ``(..., n + m, d)`` of support and queries, the support first."""
        return torch.cat([self.support, self.query], -2)

    @cached_property
    def support(self) -> Tensor:
        """Features ``(..., n, d)`` of the support."""
        return self.points[..., : self.num_support, :]

    @cached_property
    def query(self) -> Tensor:
        """Features ``(..., m, d)`` of the queries."""
        return self.points[..., self.num_support :, :]

    @property
    def support_maps(self) -> Tensor:
        """Feature maps ``(..., n, channels, height, width)`` of the support.

        Raises:
            UsageError: If the features are no maps.
        """
        return self._maps(self.support)

    @property
    def query_maps(self) -> Tensor:
        """Feature maps ``(..., m, channels, height, width)`` of the queries; see `support_maps`."""
        return self._maps(self.query)

    def _maps(self, vectors: Tensor) -> Tensor:
        if self.map_shape is None:
            raise UsageError(
                "These features are vectors, but the method needs feature maps: use a backbone with a map_shape, "
                "such as conv4 or resnet12."
            )
        return vectors.unflatten(-1, self.map_shape)

    @property
    def gram(self) -> EpisodeGram:
        """The Gram matrices, with the queries' own block."""
        return self._gram(whole=True)

    @property
    def support_gram(self) -> EpisodeGram:
        """The Gram matrices without the queries' own block, which costs most; `gram`'s where that is there."""
        return self._gram(whole=True in self._grams)

    def _gram(self, whole: bool) -> EpisodeGram:
        if whole not in self._grams:
            self._grams[whole] = self._product(whole)
        return self._grams[whole]

    def _product(self, whole: bool) -> EpisodeGram:
        return EpisodeGram.from_points(self.points, self.num_support, whole)

    @property
    def has_own_product(self) -> bool:
        """Whether the Gram matrices are multiplied out from these features, and do not follow from others."""
        return True

    def adapted(self, adapter: Adapter) -> EpisodeFeatures:
        """These features after an adapter: the same object for the same adapter."""
        if adapter.key not in self._adapted:
            changed = adapter.adapt(self)
            if not isinstance(changed, EpisodeFeatures):
                raise UsageError(
                    f"{type(adapter).__name__}.adapt must give EpisodeFeatures, as features.derived does, but gave a "
                    f"{type(changed).__name__}."
                )
            if changed is self:  # Kept, it would make `forget` and `release` go round in circles.
                return self
            self._adapted[adapter.key] = changed
        return self._adapted[adapter.key]

    def forget(self) -> None:
        """Release what adapters made of these features, which refers back to them, so that memory is freed at once."""
        for each in self._adapted.values():
            each.forget()
        self._adapted.clear()

    def release(self) -> None:
        """Free points that can be made again, here and behind adapters; Gram matrices are kept."""
        for each in self._adapted.values():
            each.release()

    def watched(self) -> Callable[[], bool]:
        """A function that tells whether a tensor that methods share was changed in place since this call."""
        before = [(each, each._version) for each in self._tensors() if not each.is_inference()]
        return lambda: any(each._version != version for each, version in before)

    def _tensors(self) -> Iterator[Tensor]:
        for values in (vars(self), *map(vars, self._grams.values())):
            yield from (each for each in values.values() if isinstance(each, Tensor))
        for adapted in self._adapted.values():
            yield from adapted._tensors()

    def derived(
        self, change: Callable[[Tensor], Tensor], gram: Callable[[EpisodeGram], EpisodeGram] | None = None
    ) -> EpisodeFeatures:
        """The same episodes with other features.

        Args:
            change: From the points ``(..., n + m, d)``, in single precision at least, to the new ones, called when
                they are needed.
            gram: The new Gram matrices from these ones, where they follow without features. Default None: they are
                multiplied out.
        """
        product = None if gram is None else lambda whole: gram(self.gram if whole else self.support_gram)
        return _Made(
            lambda: change(_single_at_least(self.points)),
            self.targets,
            self.num_query,
            self.base_mean,
            self.map_shape,
            product,
        )

    @staticmethod
    def join(parts: Sequence[EpisodeFeatures]) -> EpisodeFeatures:
        """Several batches of episodes as one, along the first dimension; what they have computed is kept.

        Raises:
            UsageError: If there are none.
        """
        if not parts:
            raise UsageError("There are no episodes to join: give at least one batch.")
        return parts[0] if len(parts) == 1 else _Joined(parts)


def is_mean(shape: Sequence[int], dim: int) -> bool:
    """Whether a shape is that of the base classes' mean feature, or of the means of each of them."""
    return len(shape) in (1, 2) and shape[-1] == dim and shape[0] > 0


def _check_base_mean(base_mean: Tensor, dim: int) -> None:
    require_tensor("The base mean", base_mean)
    if not is_mean(base_mean.shape, dim):
        raise UsageError(
            f"The base mean must be one feature vector ({dim},), or one for each base class (classes, {dim}), but got "
            f"{tuple(base_mean.shape)}."
        )
    if base_mean.is_complex():
        raise UsageError(f"The base mean must be of real numbers, but got {base_mean.dtype}.")
    if values_known() and not base_mean.isfinite().all():
        raise UsageError("The base mean holds NaN or infinite values; check the features that it was computed from.")


def _check_map_shape(shape: tuple[int, int, int], dim: int) -> None:
    is_shape = isinstance(shape, (tuple, list)) and len(shape) == 3 and all(type(e) is int and e > 0 for e in shape)
    if not is_shape or prod(shape) != dim:
        raise UsageError(
            f"`map_shape` must be (channels, height, width), whose product is the {dim} features, but got {shape!r}."
        )


def _single_at_least(points: Tensor) -> Tensor:
    """Half precision, in which sums and squares overflow, as single; others as they are."""
    return points.to(torch.promote_types(points.dtype, torch.float32))


class _Made(EpisodeFeatures):
    """Features of support and queries that lie together, made when they are needed; perhaps the Gram matrices too."""

    def __init__(
        self,
        make: Callable[[], Tensor],
        targets: Tensor,
        num_query: int,
        base_mean: Tensor | None,
        map_shape: tuple[int, int, int] | None,
        gram_of: Callable[[bool], EpisodeGram] | None = None,
    ) -> None:
        self._make, self._gram_of = make, gram_of
        self._set(targets, num_query, base_mean, map_shape)

    @cached_property
    def points(self) -> Tensor:
        return self._make()

    def _product(self, whole: bool) -> EpisodeGram:
        return super()._product(whole) if self._gram_of is None else self._gram_of(whole)

    @property
    def has_own_product(self) -> bool:
        return self._gram_of is None

    def release(self) -> None:
        super().release()
        for kept in ("points", "support", "query"):
            vars(self).pop(kept, None)  # if it is made yet


class _Joined(EpisodeFeatures):
    """Batches of episodes as one; everything is that of the parts, joined when it is asked for."""

    def __init__(self, parts: Sequence[EpisodeFeatures]) -> None:
        self._parts, first = parts, parts[0]
        targets = torch.cat([part.targets for part in parts])
        self._set(targets, first.num_query, first.base_mean, first.map_shape)

    @cached_property
    def points(self) -> Tensor:
        return torch.cat([part.points for part in self._parts])

    def _product(self, whole: bool) -> EpisodeGram:
        return EpisodeGram.cat([part.gram if whole else part.support_gram for part in self._parts])

    def adapted(self, adapter: Adapter) -> EpisodeFeatures:
        if adapter.key not in self._adapted:
            self._adapted[adapter.key] = _Joined([part.adapted(adapter) for part in self._parts])
        return self._adapted[adapter.key]

    def forget(self) -> None:
        for each in (*self._parts, *self._adapted.values()):
            each.forget()
        self._adapted.clear()

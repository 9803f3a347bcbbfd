"""The features of a batch of episodes: the one input of every method."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .errors import UsageError
from .gram import EpisodeGram
from .heads import one_hot
from .heads.validation import check_query, check_support, require_tensor
from .tracing import values_known

if TYPE_CHECKING:
    from .adapters import FeatureAdapter


class EpisodeFeatures:
    """Support, queries and labels of a batch of episodes, and what follows from them, computed once and on demand.

    Methods ask it for `gram`, or for `adapted` features and theirs, so that methods with the same adapters share the
    products of the features, which cost most.

    Args:
        support: Features ``(..., n, d)``, any floating-point type.
        query: Features ``(..., m, d)``; leading dimensions as the support's. If the types differ, both get the wider
            one.
        labels: int64 in [0, ways), any order, any number per class: ``(..., n)``, or ``(n,)`` for all episodes.
        ways: Number of classes; default the greatest label + 1.
        base_mean: Mean feature ``(d,)`` of the base classes' images, for methods that subtract it. Default None.
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
        if map_shape is not None and prod(map_shape) != support.shape[-1]:
            raise UsageError(f"Maps of shape {tuple(map_shape)} do not make {support.shape[-1]} features.")
        both = torch.promote_types(support.dtype, query.dtype)
        self.support, self.query = support.to(both), query.to(both)
        self._set(lambda: torch.cat([self.support, self.query], -2), one_hot(labels, ways), base_mean, map_shape)

    @classmethod
    def from_points(
        cls,
        points: Tensor,
        targets: Tensor,
        base_mean: Tensor | None = None,
        map_shape: tuple[int, int, int] | None = None,
    ) -> EpisodeFeatures:
        """The same for features that lie together and need no check.

        Args:
            points: Features of support and queries ``(..., n + m, d)``, the support first.
            targets: One-hot labels ``(..., n, ways)`` in the Gram matrix's type.
            base_mean: See the class.
            map_shape: See the class.
        """
        features = cls.__new__(cls)
        features._set(lambda: points, targets, base_mean, map_shape)
        return features

    def _set(
        self,
        make_points: Callable[[], Tensor],
        targets: Tensor,
        base_mean: Tensor | None,
        map_shape: tuple[int, int, int] | None,
        gram_of: Callable[[bool], EpisodeGram] | None = None,
    ) -> None:
        self._make_points, self._gram_of = make_points, gram_of
        self.targets, self.base_mean, self.map_shape = targets, base_mean, map_shape
        self._adapted: dict[Hashable, EpisodeFeatures] = {}

    @property
    def ways(self) -> int:
        """Number of classes."""
        return self.targets.shape[-1]

    @property
    def num_support(self) -> int:
        """Number n of support points of an episode."""
        return self.targets.shape[-2]

    @property
    def num_query(self) -> int:
        """Number m of queries of an episode."""
        return self.query.shape[-2]

    @cached_property
    def labels(self) -> Tensor:
        """Class of each support point, int64 ``(..., n)``."""
        return self.targets.argmax(-1)

    @cached_property
    def points(self) -> Tensor:
        """Features ``(..., n + m, d)`` of support and queries, the support first."""
        return self._make_points()

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

    @cached_property
    def gram(self) -> EpisodeGram:
        """The Gram matrices, with the queries' own block."""
        return self._product(transductive=True)

    @cached_property
    def support_gram(self) -> EpisodeGram:
        """The Gram matrices without the queries' own block, which costs most; `gram`'s where that is there."""
        return self.gram if "gram" in self.__dict__ else self._product(transductive=False)

    def _product(self, transductive: bool) -> EpisodeGram:
        if self._gram_of is not None:
            return self._gram_of(transductive)
        return EpisodeGram.from_points(self.points, self.num_support, transductive)

    @property
    def has_own_product(self) -> bool:
        """Whether the Gram matrices are multiplied out from these features, and do not follow from others."""
        return self._gram_of is None

    def adapted(self, adapter: FeatureAdapter) -> EpisodeFeatures:
        """These features after an adapter: the same object for the same adapter."""
        if adapter.key not in self._adapted:
            self._adapted[adapter.key] = adapter.adapt(self)
        return self._adapted[adapter.key]

    def forget(self) -> None:
        """Release what adapters made of these features, which refers back to them, so that memory is freed at once."""
        for each in self._adapted.values():
            each.forget()
        self._adapted.clear()

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
        features = EpisodeFeatures.__new__(EpisodeFeatures)
        gram_of = None
        if gram is not None:
            gram_of = lambda transductive: gram(self.gram if transductive else self.support_gram)  # noqa: E731
        features._set(
            lambda: change(_single_at_least(self.points)), self.targets, self.base_mean, self.map_shape, gram_of
        )
        return features

    @staticmethod
    def join(parts: Sequence[EpisodeFeatures]) -> EpisodeFeatures:
        """Several batches of episodes as one, along the first dimension; what they have computed is kept."""
        return parts[0] if len(parts) == 1 else _Joined(parts)


def _check_base_mean(base_mean: Tensor, dim: int) -> None:
    require_tensor("The base mean", base_mean)
    if base_mean.shape != (dim,):
        raise UsageError(f"The base mean must be one feature vector ({dim},), but got {tuple(base_mean.shape)}.")
    if values_known() and not base_mean.isfinite().all():
        raise UsageError("The base mean holds NaN or infinite values; check the features that it is the mean of.")


def _single_at_least(points: Tensor) -> Tensor:
    """Half precision, in which sums and squares overflow, as single; others as they are."""
    return points.to(torch.promote_types(points.dtype, torch.float32))


class _Joined(EpisodeFeatures):
    """Batches of episodes as one; everything is theirs, joined when it is asked for."""

    def __init__(self, parts: Sequence[EpisodeFeatures]) -> None:
        self._parts = parts
        self._set(
            lambda: torch.cat([part.points for part in parts]),
            torch.cat([part.targets for part in parts]),
            parts[0].base_mean,
            parts[0].map_shape,
        )

    def _product(self, transductive: bool) -> EpisodeGram:
        return EpisodeGram.cat([part.gram if transductive else part.support_gram for part in self._parts])

    def adapted(self, adapter: FeatureAdapter) -> EpisodeFeatures:
        if adapter.key not in self._adapted:
            self._adapted[adapter.key] = _Joined([part.adapted(adapter) for part in self._parts])
        return self._adapted[adapter.key]

    def forget(self) -> None:
        for each in (*self._parts, *self._adapted.values()):
            each.forget()
        self._adapted.clear()

"""What feature adapters share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import ClassVar

from torch import nn

from ..arguments import part_text
from ..features import EpisodeFeatures


class FeatureAdapter(nn.Module, ABC):
    """A change of features before a head or another method sees them; a subclass implements `adapt`.

    An adapter without weights is written among the head's arguments, ``lssvm(normalize)``; a value is for its first
    argument, ``lssvm(center=episode)``. An adapter with weights names the ``sizes`` that they need, and is written
    after the head, ``lssvm+iam``.

    Attributes:
        is_transductive: Whether a point's new features depend on the queries. Default False.
        is_label_free: Whether no label enters and support and queries are treated alike. Default True.
        needs_gram: Whether the new features are made of the Gram matrices, the queries' own block included, so that
            there is no mean of them over the base classes. Default False.
        needs_base_mean: Whether the mean feature of the base classes is needed. Default False.
        needs_base_classes: Whether the mean feature of each base class is needed. Default False.
        is_static: See `Method`. Default False.
        sizes: What the constructor is given to size its weights: ``"dim"``, the length of the features, or
            ``"backbone"``, the backbone. Default none: it has no weights.
    """

    is_transductive: bool = False
    is_label_free: bool = True
    needs_gram: bool = False
    needs_base_mean: bool = False
    needs_base_classes: bool = False
    is_static: bool = False
    sizes: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def adapt(self, features: EpisodeFeatures) -> EpisodeFeatures:
        """The same batch of episodes, which must not be changed, with other features."""

    @property
    def key(self) -> Hashable:
        """Adapters with equal keys do the same; one with weights is equal to itself alone."""
        if any(True for _ in self.parameters()):
            return self  # not its id, which the next one may have once it is gone
        return type(self), part_text("", self)

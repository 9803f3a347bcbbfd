"""What modules that refit a head with the help of its queries share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor, nn

from ..errors import UsageError
from ..features import EpisodeFeatures
from ..gram import EpisodeGram
from ..heads import Head


class TransductiveModule(nn.Module, ABC):
    """Refits any head with its own predictions; a subclass implements `refine`.

    Attributes:
        sizes: See `FeatureAdapter`. Default none.
    """

    is_transductive: ClassVar[bool] = True
    sizes: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def refine(self, head: Head, gram: EpisodeGram, targets: Tensor) -> Tensor:
        """Logits of the queries of a batch of episodes, without any check of the input.

        Args:
            head: The head to fit and refit.
            gram: The episodes' Gram matrices, with the query block (``transductive=True``).
            targets: One-hot labels ``(..., n, ways)`` in the Gram matrix's type.

        Returns:
            Logits ``(..., m, ways)`` in the Gram matrix's type.
        """

    def forward(self, head: Head, support: Tensor, labels: Tensor, query: Tensor, ways: int | None = None) -> Tensor:
        """Fit the head to the support, refit it with the queries' help, and predict the queries.

        Args:
            head: Any `Head`; its fitted state is neither used nor changed.
            support: Features ``(..., n, d)``; after IAM, the adjusted ones.
            labels: int64 in [0, ways): ``(..., n)``, or ``(n,)`` for all episodes.
            query: Features ``(..., m, d)`` of the backbone, also after IAM.
            ways: Number of classes; default the greatest label + 1.

        Returns:
            Logits ``(..., m, ways)`` in the queries' type.

        Raises:
            UsageError: If the head is not a `Head`, a shape, type or value is wrong, or a class has no support point.
        """
        if not isinstance(head, Head):
            raise UsageError(
                f"{type(self).__name__} needs a head that it can refit, but got {type(head).__name__}: "
                "subclass fslstm_plugin.heads.Head."
            )
        features = EpisodeFeatures(support, query, labels, ways)
        return self.refine(head, features.gram, features.targets).to(query.dtype)

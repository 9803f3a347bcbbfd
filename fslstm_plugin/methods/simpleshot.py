"""SimpleShot."""

from __future__ import annotations

from torch import Tensor

from ..features import EpisodeFeatures
from ..gram import EpisodeGram
from .base import Gram, Method
from .shared.prototypes import cl2n, class_means, complete_squares, root


class SimpleShot(Method):
    r"""Nearest class mean of centred features of unit length: ``logit_c = -||q - p_c||``.

    Inductive: no prior over the classes of the queries, each is classified alone. The means p_c are not brought to
    unit length again, so at several shots per class whose points disagree has a shorter one. The logits are distances,
    not log-probabilities of a model.

    Use this as the baseline that unlabelled queries have to beat, and where queries come one at a time.

    Source: Wang et al., "SimpleShot: revisiting nearest-neighbor classification for few-shot learning", 2019 (CL2N).

    Args:
        center: Mean to subtract first: ``"base"`` (default), the base classes'; ``"episode"``, which makes the method
            transductive; None for none (its L2N).

    Raises:
        UnknownNameError: If there is no such mean.

    Example:
        >>> import torch
        >>> features = EpisodeFeatures(torch.eye(2), torch.tensor([[3.0, 4.0]]), torch.tensor([0, 1]))
        >>> SimpleShot(center=None).logits(features)
        tensor([[-0.8944, -0.6325]], dtype=torch.float64)
    """

    uses_gram: Gram = "support"

    def __init__(self, center: str | None = "base") -> None:
        super().__init__(cl2n(center))
        self.center = center
        self.is_transductive = center == "episode"

    def logits(self, features: EpisodeFeatures) -> Tensor:
        """See `Method.logits`; in double precision."""
        gram: EpisodeGram = self.prepare(features).support_gram
        mix = class_means(features.targets)
        norms = (mix @ gram.support * mix).sum(-1)
        return -root(complete_squares(mix @ gram.cross.mT, norms, gram.query_norms)).mT

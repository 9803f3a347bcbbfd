"""BD-CSPN: prototypes rectified by the queries."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ..checks import require, require_bool
from ..features import EpisodeFeatures
from .base import Gram, Method
from .shared.prototypes import cl2n, class_means, root, squared_distances


class BDCSPN(Method):
    r"""Nearest prototype, after queries were shifted onto the support and averaged into the prototypes.

    Queries are moved by the support's mean less the queries' mean. Each point i, the support's too, then takes
    the class z_i whose mean is nearest by cosine, with the weight ``w_i = softmax_c(temperature cos(x_i, p_c))[z_i]``,
    and the prototype of a class is the sum of its weighted points over their number;
    ``logit_c = -||q - p_c||`` of the query where it was.

    No prior over the classes of the queries as such, but the shift takes them for as balanced as the support. The
    published code drops a class that no point takes, and shifts all later ones by one; here it keeps its mean.

    Use this for one cheap step towards the queries; not with few or very unbalanced queries, whose mean says little
    about the support's: a single one is moved onto the support's mean, and says nothing at all.

    Source: Liu et al., "Prototype rectification for few-shot learning", ECCV 2020, in the form in which the authors of
    alpha-TIM compare it.

    Args:
        temperature: Above 0, default 10; PADDLE's authors use 30 and 50.
        shifted: Whether the queries are classified where they were moved to, as LaplacianShot's authors do. Default
            False.
        center: See `SimpleShot`; default ``"base"``.

    Raises:
        UsageError: If the temperature is not above 0, or there is no such mean.

    Example:
        >>> features = EpisodeFeatures(torch.eye(2), torch.tensor([[3.0, 4.0], [1.0, 0.0]]), torch.tensor([0, 1]))
        >>> BDCSPN(center=None).logits(features).argmax(-1)
        tensor([1, 0])
    """

    is_transductive = True
    uses_gram: Gram = "all"
    search_space: ClassVar = {"temperature": (10.0, 30.0, 50.0)}

    def __init__(self, temperature: float = 10.0, shifted: bool = False, center: str | None = "base") -> None:
        super().__init__(cl2n(center))
        self.temperature = require("temperature", temperature, above=0)
        self.shifted, self.center = require_bool("shifted", shifted), center

    def logits(self, features: EpisodeFeatures) -> Tensor:
        """See `Method.logits`; in double precision."""
        gram = self.prepare(features).gram.whole
        mix, shift = rectified_prototypes(gram, features.targets, self.temperature)
        if self.shifted:
            mix = mix - shift
        return -root(squared_distances(gram, mix)[..., features.num_support :]).mT


def rectified_prototypes(gram: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """The prototypes of `BDCSPN` ``(..., ways, n + m)``, and how it shifts the queries ``(n + m,)``.

    Both are combinations of the points where they were, whose inner products are ``(..., n + m, n + m)``; the targets
    are one-hot labels ``(..., n, ways)``.
    """
    num_support, num_query = targets.shape[-2], gram.shape[-1] - targets.shape[-2]
    moved = (torch.arange(gram.shape[-1], device=gram.device) >= num_support).to(gram)
    shift = (1 - moved) / num_support - moved / max(num_query, 1)

    means = class_means(targets, num_query)
    inner, along = means @ gram, shift @ gram
    lengths = root(torch.linalg.diagonal(gram) + moved * (2 * along + along @ shift.unsqueeze(-1)))
    mean_lengths = root((inner * means).sum(-1, keepdim=True))
    cosines = (inner + moved * (inner @ shift).unsqueeze(-1)) / (mean_lengths * lengths.unsqueeze(-2))

    nearest = cosines.argmax(-2, keepdim=True)
    taken = torch.zeros_like(cosines).scatter(-2, nearest, 1)
    sizes = taken.sum(-1, keepdim=True)
    mix = torch.where(sizes > 0, taken * (temperature * cosines).softmax(-2) / sizes.clamp(min=1), means)
    return mix + (mix @ moved).unsqueeze(-1) * shift, shift

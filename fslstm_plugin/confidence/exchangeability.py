"""Whether new points look as if drawn like the labelled ones, which every guarantee of prediction sets assumes."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

PERMUTATIONS = 999
LEVEL = 0.01  # Of the test; it also answers for groups that are predicted, not known.


class Difference(NamedTuple):
    """How new points differ from labelled ones."""

    p_value: float  # Share of the permutations of all points that differ as much at least, this one included.
    shares: Tensor  # How much each new point adds to the difference (m,).

    @property
    def is_significant(self) -> bool:
        """Whether the points are not exchangeable, as far as can be told."""
        return self.p_value <= LEVEL


def difference(
    labelled: Tensor, new: Tensor, groups: tuple[Tensor, Tensor] | None = None, permutations: int = PERMUTATIONS
) -> Difference:
    """Permutation test of whether new points are exchangeable with labelled ones.

    The statistic is the energy distance between the two samples, of features of unit length: twice the mean distance
    between a labelled and a new point, less the mean distances within each. With groups it is summed over these, each
    weighted by the product of its two sizes over their sum, and points change places within their group alone, so that
    the sizes of the groups, the proportions of classes, do not matter.

    Were all points drawn alike, the p-value would be at most a with a probability of at most a.

    Source: Szekely and Rizzo, "Energy statistics: a class of statistics based on distances", 2013.

    Args:
        labelled: Features ``(n, d)``.
        new: Features ``(m, d)``.
        groups: Group of each labelled and of each new point, int64 ``(n,)`` and ``(m,)``. Default None: one for all.
        permutations: How many are drawn. Default 999.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> points = torch.randn(60, 8, generator=generator)
        >>> difference(points[:20], points[20:]).is_significant, difference(points[:20], points[20:] + 1).is_significant
        (False, True)
    """
    points = F.normalize(torch.cat([labelled, new]).double(), dim=-1)
    is_new = torch.arange(len(points), device=points.device) >= len(labelled)
    group = points.new_zeros(len(points), dtype=torch.long) if groups is None else torch.cat(groups)
    generator = torch.Generator("cpu").manual_seed(0)
    statistics = torch.zeros(permutations + 1, dtype=torch.float64, device="cpu")
    shares = torch.zeros(len(points), dtype=torch.float64, device="cpu")
    for each in group.unique():
        mine = (group == each).nonzero().squeeze(1)
        among = is_new[mine].double()
        count, others = among.sum(), (1 - among).sum()
        if count == 0 or others == 0:
            continue
        signs = among / count - (1 - among) / others
        orders = torch.rand(permutations, len(mine), generator=generator, device="cpu").argsort(-1)
        all_signs = torch.cat([signs.unsqueeze(0), signs[orders]])
        distances = (2 - 2 * points[mine] @ points[mine].mT).clamp(min=0).sqrt()
        weight = count * others / (count + others)
        statistics -= weight * ((all_signs @ distances) * all_signs).sum(-1)
        shares[mine] = -weight * (distances @ signs) * signs
    as_much = (statistics[1:] >= statistics[0] * (1 - 1e-9)).sum().item()  # equal but for rounding
    return Difference((1 + as_much) / (1 + permutations), shares[len(labelled) :])

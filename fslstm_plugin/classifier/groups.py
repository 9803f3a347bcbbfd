"""Labelled points that belong together, as pictures of one burst, place or patient: they are left out together.

A picture is easily recognised by another one of its burst, which new pictures will not have among the labelled ones. So
what is expected of new pictures is estimated without the whole group of a point, and what needs independent points, as
prediction sets do, has one point of each group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

_FOLDS = 10


def group_name(name: Any) -> str:
    """The name of a group, empty for what is missing."""
    try:
        missing = name is None or name is np.ma.masked or bool(name != name)  # as NaN and NaT do
    except TypeError:  # of pandas' NA, which is neither
        missing = True
    return "" if missing else str(name)


def numbered(names: Sequence[str]) -> Tensor | None:
    """The groups as numbers, int64 ``(n,)``, if there are some; points of an empty name are groups of their own.

    Example:
        >>> numbered(["burst", "", "burst", ""])
        tensor([0, 1, 0, 2])
    """
    if not any(names):
        return None
    found: dict[object, int] = {}
    numbers = [found.setdefault(name or object(), len(found)) for name in names]
    return torch.tensor(numbers, dtype=torch.int64, device="cpu")


def folds(labels: Tensor, groups: Tensor) -> Tensor:
    """At most ten folds of whole groups, about as many of each class in each; or more where that empties a class.

    As with single points, groups of all classes leave together: a class that has lost some of its points is less likely
    for that alone. Labels and groups are int64 ``(n,)``, and so are the folds, -1 where a class would be left without
    points.

    Example:
        >>> folds(torch.tensor([0, 0, 0, 1, 1, 2]), torch.tensor([0, 0, 1, 2, 3, 4]))
        tensor([ 0,  0,  1,  0,  1, -1])
    """
    pairs = torch.stack([labels, groups], -1).unique(dim=0)
    count = min(_FOLDS, int(pairs[:, 0].bincount().max()))
    taken = torch.zeros(int(labels.max()) + 1, count, device=labels.device)  # Points of each class in each fold.
    found = torch.full_like(labels, -1)
    sizes = groups.bincount()
    for group in sizes.argsort(descending=True, stable=True)[: int((sizes > 0).sum())]:
        mine = groups == group
        points = labels[mine].bincount(minlength=len(taken))
        fold = int(taken[points > 0].sum(0).argmin())
        taken[:, fold] += points
        found[mine] = fold
    emptied = (taken == labels.bincount(minlength=len(taken)).unsqueeze(-1)).any(-1)
    single = pairs[:, 0].bincount() == 1
    if (emptied & ~single).any():  # groups of several classes, which cannot be spread evenly: one after the other
        found = groups
    return found.masked_fill(single[labels], -1)


def representatives(labels: Tensor, groups: Tensor) -> Tensor:
    """One point of each group, at random, of the class that has the fewest so far; places, int64, in order.

    A class that shares all its groups with others can be left without any, and gets one all the same. Labels and groups
    are int64 ``(n,)``.

    Example:
        >>> len(representatives(torch.tensor([0, 0, 0, 1, 1, 2]), torch.tensor([0, 0, 1, 2, 3, 4])))
        5
    """
    generator = torch.Generator("cpu").manual_seed(0)
    taken = labels.new_zeros(int(labels.max()) + 1)
    found = []
    for group in groups.unique():
        places = (groups == group).nonzero().flatten()
        places = places[torch.randperm(len(places), generator=generator, device="cpu")]
        place = places[taken[labels[places]].argmin()]
        taken[labels[place]] += 1
        found.append(int(place))
    found += [int((labels == label).nonzero()[0]) for label in labels.unique() if not taken[label]]
    return torch.tensor(sorted(found), device="cpu")

"""Episodes as indices: classes and images are drawn exactly as learn2learn draws them, but without it."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..checks import require
from ..errors import UsageError, count_of
from .balance import BALANCED, QueryBalance


class EpisodeSampler:
    """Draws episodes of one split as indices of images.

    Episode ``i`` depends on ``(seed, i)`` and the split's labels alone: not on the machine, the batch size, the
    number of workers or what was drawn before. It is the task that ``learn2learn.data.Taskset`` with
    ``FusedNWaysKShots`` draws after ``random.seed(f"{seed}/{i}")``, index for index.

    Args:
        labels: Class of each image of the split, int64 ``(N,)``.
        ways: Classes per episode.
        shots: Support images per class.
        queries: Query images per class; on average, where they are not balanced.
        seed: Any non-negative integer.
        class_names: Names for error messages, by label.
        balance: How the ``ways * queries`` query images are shared among the classes; equally by default.
        prefix: What the names of the arguments begin with in error messages.

    Raises:
        UsageError: If the split has too few classes, or a class too few images.

    Example:
        >>> labels = torch.arange(6).repeat_interleave(20)
        >>> sampler = EpisodeSampler(labels, ways=5, shots=1, queries=3, seed=0)
        >>> indices = sampler.batch(start=0, count=2)
        >>> indices.shape, bool((indices == sampler.batch(0, 2)).all())
        (torch.Size([2, 20]), True)
    """

    def __init__(
        self,
        labels: Tensor,
        ways: int,
        shots: int,
        queries: int,
        seed: int,
        class_names: Sequence[str] = (),
        balance: QueryBalance = BALANCED,
        prefix: str = "",
    ) -> None:
        for what, value, least in (("ways", ways, 2), ("shots", shots, 1), ("queries", queries, 1)):
            require(f"{prefix}{what}", value, least=least, whole=True)
        require("seed", seed, least=0, most=sys.maxsize, whole=True)
        counts = torch.bincount(labels)
        if ways > len(counts):
            found = count_of(len(counts), "class")
            raise UsageError(f"`{prefix}ways={ways}` is not possible: the split has only {found}.")
        fewest = int(counts.argmin())
        most = balance.most(ways, queries)
        if shots + most > int(counts[fewest]):
            name = class_names[fewest] if class_names else fewest
            raise UsageError(
                f"`{prefix}shots={shots}` and `{prefix}queries={queries}` need "
                f"{'' if most == queries else 'up to '}{shots + most} images per class, but class '{name}' has "
                f"{int(counts[fewest])}: lower one of them."
            )
        self.ways, self.shots, self.queries, self.seed, self.balance = ways, shots, queries, seed, balance
        self._images_per_class = shots + most
        self._members = [members.tolist() for members in labels.argsort(stable=True).split(counts.tolist())]

    @property
    def num_support(self) -> int:
        """Support images per episode."""
        return self.ways * self.shots

    @property
    def labels(self) -> Tensor:
        """Labels of a balanced episode's images, support first, int64 ``(ways * (shots + queries),)``."""
        classes = torch.arange(self.ways, device="cpu")
        return torch.cat([classes.repeat_interleave(self.shots), classes.repeat_interleave(self.queries)])

    def query_labels(self, start: int, count: int) -> Tensor:
        """Labels of the queries of the episodes ``start`` to ``start + count - 1``.

        Returns:
            int64 ``(count, ways * queries)``, ascending in each episode.
        """
        counts = self._counts(start, count).flatten()
        return torch.arange(self.ways, device="cpu").repeat(count).repeat_interleave(counts).view(count, -1)

    def batch(self, start: int, count: int) -> Tensor:
        """Image indices of the episodes ``start`` to ``start + count - 1``.

        Returns:
            int64 ``(count, ways * (shots + queries))``, support first; the support in the order of `labels`,
            the queries in that of `query_labels`.
        """
        tasks = [self._draw(episode) for episode in range(start, start + count)]
        # Through NumPy, which converts nested lists five times as fast.
        by_class = torch.from_numpy(np.array(tasks, np.int64).reshape(count, self.ways, self._images_per_class))
        support, query = by_class[..., : self.shots], by_class[..., self.shots :]
        # Where the queries are not balanced, more are drawn than are used: the first ones of each class are.
        used = torch.arange(query.shape[-1], device="cpu") < self._counts(start, count).unsqueeze(-1)
        return torch.cat([support.flatten(1), query[used].view(count, -1)], dim=1)

    def _draw(self, episode: int) -> list[list[int]]:
        """Images of each class of an episode, by the calls that learn2learn makes, on a generator of its own."""
        generator = random.Random(f"{self.seed}/{episode}")
        classes = generator.sample(self._members, self.ways)
        return [generator.sample(members, self._images_per_class) for members in classes]

    def _counts(self, start: int, count: int) -> Tensor:
        """Queries of each class of some episodes, int64 ``(count, ways)``."""
        episodes = range(start, start + count)
        return torch.tensor(
            [self.balance.counts(self.ways, self.queries, self.seed, episode) for episode in episodes], device="cpu"
        )

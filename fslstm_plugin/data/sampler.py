"""Episodes as indices: learn2learn chooses classes and images, this module fixes what its choice depends on."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.utils.data import Dataset

from ..errors import UsageError
from .balance import BALANCED, QueryBalance


class _Labels(Dataset):
    """A data set of labels only, so that learn2learn's bookkeeping decodes no image."""

    def __init__(self, labels: Sequence[int]) -> None:
        self.labels = labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[int, int]:
        return index, self.labels[index]


@contextmanager
def _own_random_state() -> Iterator[None]:
    """learn2learn's samplers draw from Python's global generator: give it back as it was."""
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)


class EpisodeSampler:
    """Draws episodes of one split through ``learn2learn.data.Taskset``, as indices of images.

    Episode ``i`` depends on ``(seed, i)`` and the split's labels alone: not on the machine, the batch size, the
    number of workers or what was drawn before.

    Args:
        labels: Class of each image of the split, int64 ``(N,)``.
        ways: Classes an episode.
        shots: Support images a class.
        queries: Query images a class; on average, where they are not balanced.
        seed: Any non-negative integer.
        class_names: Names for error messages, by label.
        balance: How the ``ways * queries`` query images are shared among the classes; equally by default.

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
    ) -> None:
        for what, value, least in (("ways", ways, 2), ("shots", shots, 1), ("queries", queries, 1)):
            if value < least:
                raise UsageError(f"{what} must be at least {least}, but got {value}.")
        if seed < 0:
            raise UsageError(f"seed must not be negative, but got {seed}.")
        counts = torch.bincount(labels)
        if ways > len(counts):
            raise UsageError(f"{ways} ways were asked for, but the split has only {len(counts)} classes.")
        fewest = int(counts.argmin())
        most = balance.most(ways, queries)
        if shots + most > int(counts[fewest]):
            name = class_names[fewest] if class_names else fewest
            raise UsageError(
                f"{shots} shots and {'' if most == queries else 'up to '}{most} queries need {shots + most} images "
                f"a class, but class '{name}' has {int(counts[fewest])}."
            )
        self.ways, self.shots, self.queries, self.seed, self.balance = ways, shots, queries, seed, balance
        self._images_per_class = shots + most
        self._taskset = self._make_taskset(labels)

    def _make_taskset(self, labels: Tensor) -> Iterator[list[int]]:
        from learn2learn.data import MetaDataset, Taskset
        from learn2learn.data.transforms import FusedNWaysKShots

        numbers = labels.tolist()
        members: dict[int, list[int]] = {label: [] for label in range(max(numbers) + 1)}
        for index, label in enumerate(numbers):
            members[label].append(index)
        dataset = MetaDataset(_Labels(numbers), labels_to_indices=members)
        choose = FusedNWaysKShots(dataset, n=self.ways, k=self._images_per_class)
        return iter(Taskset(dataset, [choose], task_collate=list))

    @property
    def num_support(self) -> int:
        """Support images an episode."""
        return self.ways * self.shots

    @property
    def labels(self) -> Tensor:
        """Labels of a balanced episode's images, support first, int64 ``(ways * (shots + queries),)``."""
        classes = torch.arange(self.ways)
        return torch.cat([classes.repeat_interleave(self.shots), classes.repeat_interleave(self.queries)])

    def query_labels(self, start: int, count: int) -> Tensor:
        """Labels of the queries of the episodes ``start`` to ``start + count - 1``.

        Returns:
            int64 ``(count, ways * queries)``, ascending in each episode.
        """
        counts = self._counts(start, count).flatten()
        return torch.arange(self.ways).repeat(count).repeat_interleave(counts).view(count, -1)

    def batch(self, start: int, count: int) -> Tensor:
        """Image indices of the episodes ``start`` to ``start + count - 1``.

        Returns:
            int64 ``(count, ways * (shots + queries))``, support first; the support in the order of :attr:`labels`,
            the queries in that of :meth:`query_labels`.
        """
        tasks = []
        with _own_random_state():
            for episode in range(start, start + count):
                random.seed(f"{self.seed}/{episode}", version=2)
                tasks.append(next(self._taskset))
        by_class = torch.tensor(tasks).view(count, self.ways, self._images_per_class)
        support, query = by_class[..., : self.shots], by_class[..., self.shots :]
        # Where the queries are not balanced, more are drawn than are used: the first ones of each class are.
        used = torch.arange(query.shape[-1]) < self._counts(start, count).unsqueeze(-1)
        return torch.cat([support.flatten(1), query[used].view(count, -1)], dim=1)

    def _counts(self, start: int, count: int) -> Tensor:
        """Queries of each class of some episodes, int64 ``(count, ways)``."""
        episodes = range(start, start + count)
        return torch.tensor([self.balance.counts(self.ways, self.queries, self.seed, episode) for episode in episodes])

"""Evaluation by several processes, each with its share of the episodes."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, distributed

_PATIENCE = datetime.timedelta(hours=12)  # The first rank may extract the features while the others wait.


@dataclass(frozen=True)
class Ranks:
    """The processes that evaluate together; by default this one alone.

    Args:
        rank: Number of this process, from 0.
        size: How many there are.

    Example:
        >>> [list(Ranks(rank, 3).share(7)) for rank in range(3)]
        [[0, 1], [2, 3], [4, 5, 6]]
    """

    rank: int = 0
    size: int = 1

    @classmethod
    def join(cls) -> Ranks:
        """Meet the other processes if ``torchrun`` started this one."""
        if not distributed.is_torchelastic_launched():
            return cls()
        if not distributed.is_initialized():
            distributed.init_process_group("gloo", timeout=_PATIENCE)
        return cls(distributed.get_rank(), distributed.get_world_size())

    @property
    def device_index(self) -> int:
        """Which of its machine's GPUs is this process's."""
        return int(os.environ["LOCAL_RANK"]) if self.size > 1 else 0

    def share(self, episodes: int) -> range:
        """The episodes of this process: as many as the others', in one piece."""
        return range(self.rank * episodes // self.size, (self.rank + 1) * episodes // self.size)

    def gather(self, accuracies: Tensor, seconds: float) -> tuple[Tensor, float]:
        """All processes' accuracies in the order of the episodes, and the time of the slowest."""
        if self.size == 1:
            return accuracies, seconds
        parts: list[tuple[Tensor, float]] = [(accuracies, seconds)] * self.size
        distributed.all_gather_object(parts, (accuracies, seconds))
        return torch.cat([part for part, _ in parts]), max(time for _, time in parts)

    @contextmanager
    def first_alone(self) -> Iterator[None]:
        """Let the first process do something before the others, so that they find its result."""
        if self.size > 1 and self.rank > 0:
            distributed.barrier()
        yield
        if self.size > 1 and self.rank == 0:
            distributed.barrier()


ALONE = Ranks()

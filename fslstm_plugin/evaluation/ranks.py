"""Evaluation by several processes, each with its share of the episodes."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, distributed

from ..errors import UsageError, is_out_of_memory
from .processes import forget_stale

_PATIENCE = datetime.timedelta(hours=12)  # The first rank may extract features while the others wait.


@dataclass(frozen=True)
class Ranks:
    """The processes that evaluate together, of which this is number ``rank`` from 0; by default this one alone.

    Example:
        >>> [list(Ranks(rank, 3).share(7)) for rank in range(3)]
        [[0, 1], [2, 3], [4, 5, 6]]
    """

    rank: int = 0
    size: int = 1

    @classmethod
    def join(cls) -> Ranks:
        """Join the other processes if ``torchrun`` started this one."""
        forget_stale()
        if not distributed.is_torchelastic_launched():
            return cls()
        if not distributed.is_initialized():
            distributed.init_process_group("gloo", timeout=_PATIENCE)
        return cls(distributed.get_rank(), distributed.get_world_size())

    def device(self, name: str) -> torch.device:
        """The device of an option; each of several processes on a machine has a GPU of its own.

        Args:
            name: ``"auto"`` (this process's GPU, or the CPU where there is none), ``"cpu"``, ``"cuda"`` (this
                process's GPU), ``"cuda:1"`` (that one for every process), ``"mps"``, or another of PyTorch's.

        Raises:
            UsageError: If there is no such device here.

        Example:
            >>> ALONE.device("cpu")
            device(type='cpu')
        """
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        local = int(os.environ["LOCAL_RANK"]) if self.size > 1 else 0  # of the processes of this machine
        wanted = f"cuda:{local}" if name == "cuda" else name
        try:
            torch.ones(1, device=wanted).item()
        except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
            if is_out_of_memory(error):  # of a GPU that others use
                raise
            here = ["auto", "cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
            here += ["mps"] if torch.backends.mps.is_available() else []
            several = ", and no more processes than GPUs" if wanted != name and self.size > 1 else ""
            advice = f"choose one of {', '.join(here)}{several}"
            raise UsageError(f"There is no device '{wanted}' here: {advice}.") from error
        return torch.device(wanted)

    def share(self, episodes: int) -> range:
        """The episodes of this process: as many as the others', in one piece."""
        return range(self.rank * episodes // self.size, (self.rank + 1) * episodes // self.size)

    def gather(self, values: Tensor, seconds: float) -> tuple[Tensor, float]:
        """All processes' values ``(..., episodes)`` in the order of the episodes, and the time of the slowest."""
        if self.size == 1:
            return values, seconds
        parts: list[tuple[Tensor, float]] = [(values, seconds)] * self.size
        distributed.all_gather_object(parts, (values, seconds))
        return torch.cat([part for part, _ in parts], -1), max(time for _, time in parts)

    @contextmanager
    def first_alone(self) -> Iterator[None]:
        """Let the first process do something before the others, so that they find its result."""
        if self.size > 1 and self.rank > 0:
            distributed.barrier()
        yield
        if self.size > 1 and self.rank == 0:
            distributed.barrier()


ALONE = Ranks()

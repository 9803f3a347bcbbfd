"""Copies and clocks for which Python does not wait on a GPU, and how many episodes fit into its memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

_SHARE = 0.6  # Of the free memory; the rest is for what grows faster than the episodes, and for other programs.


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the CPU on the device."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def fetched(tensors: Sequence[Tensor]) -> Callable[[], Sequence[Tensor]]:
    """Begin to copy tensors of one device to the CPU; the function gives the copies, and waits for nothing else."""
    if tensors[0].device.type != "cuda":
        copies = [each.cpu() for each in tensors]
        return lambda: copies
    copies = [each.to("cpu", non_blocking=True) for each in tensors]
    there = torch.cuda.Event()
    there.record(torch.cuda.current_stream(tensors[0].device))

    def arrived() -> Sequence[Tensor]:
        there.synchronize()
        return copies

    return arrived


class Clock:
    """Measures the time of its block, on a GPU that of its work there, whenever it is done.

    Example:
        >>> with Clock(torch.device("cpu")) as clock:
        ...     _ = sum(range(1000))
        >>> 0 < clock.seconds < 1
        True
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def __enter__(self) -> Clock:
        self._marks = [self._now()]
        return self

    def __exit__(self, *_: object) -> None:
        self._marks.append(self._now())

    def _now(self) -> Any:
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    @property
    def seconds(self) -> float:
        """How long it took; on a GPU once something that was computed later has arrived."""
        began, ended = self._marks
        return began.elapsed_time(ended) / 1e3 if self.device.type == "cuda" else ended - began


def episodes_that_fit(work: Callable[[], object], episodes: int, device: torch.device, most: int) -> int:
    """How many episodes a GPU's free memory holds, from 1 to ``most``, by the most that work on a few of them takes.

    Libraries have their own memory already.
    """
    torch.cuda.reset_peak_memory_stats(device)
    work()
    kept = torch.cuda.memory_allocated(device)
    each = (torch.cuda.max_memory_allocated(device) - kept) / episodes
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info(device)[0]
    return most if most * each <= _SHARE * free else max(1, int(_SHARE * free / each))

"""Contenders timed alternately, so that any other load slows all of them alike, and the machine's limits among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.utils.benchmark import Measurement, TaskSpec, timer
from torch.utils.flop_counter import FlopCounterMode

from .report import Figure

_MATRIX = 2048
_FLOATS = 1 << 25  # 128 MiB: more than any cache holds.
_CEILINGS = {"flops": "product's rate", "bytes": "copy's rate"}


@dataclass(frozen=True)
class Contender:
    """Something to time."""

    # Does the work once and says how long it took; `clocked` makes one of any function.
    seconds: Callable[[], float]
    units: int = 1  # Number of episodes, steps or other units in one call; times are per unit.


def clocked(work: Callable[[], object]) -> Callable[[], float]:
    """A function that does the work and returns the seconds that it took."""

    def seconds() -> float:
        began = timer()
        work()
        return timer() - began

    return seconds


def race(contenders: Sequence[Contender], rounds: int) -> list[Measurement]:
    """Let every contender run once per round: of each its times, in seconds per unit.

    The caller has run each of them once, so that no first call is timed.
    """
    turns = [[contender.seconds() for contender in contenders] for _ in range(rounds)]
    return [
        Measurement(contender.units, list(times), TaskSpec("", ""))
        for contender, times in zip(contenders, zip(*turns, strict=True), strict=True)
    ]


@dataclass(frozen=True)
class Work:
    """Work whose size is known."""

    what: str
    seconds: Callable[[], float]  # Does it once and says how long it took.
    amount: float  # Floating-point operations, or bytes read and written.
    kind: str = "flops"  # ``"flops"`` or ``"bytes"``.


def flops_of(work: Callable[[], object]) -> int:
    """Floating-point operations of the matrix products and convolutions, forward and backward, in a function.

    Example:
        >>> flops_of(lambda: torch.ones(2, 3) @ torch.ones(3, 4))
        48
    """
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


def shares(group: str, works: Sequence[Work], rounds: int) -> list[Figure]:
    """The rate of each work, and its share of the machine's own in the same rounds.

    The ceilings are the single-precision product of two large matrices, and the copy of a large array.
    """
    left, right = torch.randn(2, _MATRIX, _MATRIX).unbind()
    source, target = torch.zeros(2, _FLOATS).unbind()
    ceilings = [
        Work("product of matrices, float32", clocked(lambda: left @ right), 2.0 * _MATRIX**3),
        Work("copy in memory", clocked(lambda: target.copy_(source)), 2.0 * 4 * _FLOATS, "bytes"),
    ]
    every = [*ceilings, *works]
    for work in every:
        work.seconds()
    measured = race([Contender(work.seconds) for work in every], rounds)
    rates = [work.amount / measurement.median for work, measurement in zip(every, measured, strict=True)]
    best = {"flops": rates[0], "bytes": rates[1]}
    units = {"flops": "GFLOP/s", "bytes": "GB/s"}
    figures = [Figure(group, work.what, rate / 1e9, units[work.kind]) for work, rate in zip(every, rates, strict=True)]
    return figures + [
        Figure(group, f"{work.what}: share of the {_CEILINGS[work.kind]}", 100 * rate / best[work.kind], "%")
        for work, rate in zip(works, rates[len(ceilings) :], strict=True)
    ]

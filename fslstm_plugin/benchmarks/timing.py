"""Contenders timed alternately, so that any other load slows all of them alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.utils.benchmark import Measurement, TaskSpec, timer


@dataclass(frozen=True)
class Contender:
    """Something to time."""

    name: str
    # Does the work once and says how long it took; :func:`clocked` makes one of any function.
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
    """Let every contender run once per round.

    Args:
        contenders: What to time. The caller has run each of them once, so that no first call is timed.
        rounds: How often, at least 1.

    Returns:
        For each contender its times of all rounds, in seconds per unit.

    Example:
        >>> fast = Contender("ten sums", clocked(lambda: [sum(range(100)) for _ in range(10)]), units=10)
        >>> (measured,) = race([fast], rounds=3)
        >>> len(measured.times), 0 < measured.median < 1
        (3, True)
    """
    turns = [[contender.seconds() for contender in contenders] for _ in range(rounds)]
    return [
        Measurement(
            number_per_run=contender.units,
            raw_times=list(times),
            task_spec=TaskSpec(stmt=contender.name, setup="pass", num_threads=torch.get_num_threads()),
        )
        for contender, times in zip(contenders, zip(*turns, strict=True), strict=True)
    ]

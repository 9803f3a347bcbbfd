"""Batches of episodes side by side, a thread each.

An episode's matrices are so small that PyTorch gains nothing from several threads within one operation; threads that
work on different episodes share nothing and scale well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")


def map_in_threads(
    function: Callable[[_Argument], _Result], arguments: Iterable[_Argument], workers: int
) -> Iterator[_Result]:
    """``map`` by several threads, each with one of PyTorch's; results in order, arguments taken a few ahead only.

    Args:
        function: Called from the threads; must not change what another call reads.
        arguments: Its arguments, taken in the caller's thread.
        workers: Number of threads, at least 1. With 1 everything runs in the caller's thread, with all of PyTorch's.

    Yields:
        The results in the order of the arguments.

    Example:
        >>> list(map_in_threads(lambda x: x * x, range(5), workers=2))
        [0, 1, 4, 9, 16]
    """
    if workers == 1:
        yield from map(function, arguments)
        return
    threads = torch.get_num_threads()
    running: deque[Future[_Result]] = deque()
    # The number of threads belongs to each thread, but the matrix library's to all: set it back at the end.
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        try:
            for argument in arguments:
                running.append(pool.submit(function, argument))
                if len(running) > 2 * workers:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(threads)

"""Many episodes and several methods at once, all on the same features."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import torch
from torch import Tensor

from ..data.base import silent
from ..data.sampler import EpisodeSampler
from ..heads import one_hot
from ..methods.base import Method
from .devices import episodes_that_fit
from .ranks import ALONE, Ranks
from .running import FEATURES_AT_A_TIME, Episodes, Running, grams_suffice
from .source import FeatureSource, indexed

__all__ = ["FeatureSource", "Outcome", "indexed", "run_methods"]

Report = Callable[[int, Sequence[float]], None]

_BATCH_BYTES = 2**25  # Of what is kept of a batch, for each thread of a CPU.
_BATCH_EPISODES = 128
_GPU_EPISODES = 4096  # Beyond which a GPU gains nothing more.


@dataclass(frozen=True)
class Outcome:
    """The outcome of a method.

    Args:
        method: The method.
        accuracies: Percent of the queries correctly predicted, one per episode ``(episodes,)``, float64.
        share_errors: How far the classes' shares of the predictions lie from the true ones, the mean over the classes
            of the absolute difference, in percentage points; shaped like the accuracies.
        seconds: Time from features to answers; of parallel threads, their mean.
    """

    method: Method
    accuracies: Tensor
    share_errors: Tensor
    seconds: float

    def then(self, later: Outcome) -> Outcome:
        """The outcome in these episodes and in those of another."""
        accuracies = torch.cat([self.accuracies, later.accuracies])
        share_errors = torch.cat([self.share_errors, later.share_errors])
        return Outcome(self.method, accuracies, share_errors, self.seconds + later.seconds)


def run_methods(
    source: FeatureSource,
    sampler: EpisodeSampler,
    methods: Sequence[Method],
    episodes: int,
    device: torch.device | str = "cpu",
    batch_episodes: int | None = None,
    report: Report = silent,
    workers: int | None = None,
    ranks: Ranks = ALONE,
    first: int = 0,
) -> list[Outcome]:
    """Evaluate methods on the same episodes.

    Args:
        source: Where the features come from.
        sampler: Which images make an episode.
        methods: What to evaluate, on the device. Methods with the same adapters share their Gram matrices; each is
            charged the time of what it needs of them.
        episodes: Number of episodes, one after the other.
        device: Where to compute.
        batch_episodes: Episodes at a time; the results depend on it by rounding alone. Default: by their size, up to
            128 for each thread of a CPU, and as many as fit into a GPU's memory.
        report: Called with the number of episodes that this process has done, and each method's mean accuracy in them.
        workers: Threads that share the batches between them, on the CPU; the results do not depend on it.
            Default: as many as PyTorch has.
        ranks: The processes that share the episodes; every one gets all outcomes. Default: this one alone.
        first: Number of the first of them in the sampler, default 0.

    Returns:
        An outcome for each method, in their order.

    Raises:
        DataError: If a feature is infinite or not a number.
        UsageError: If a logit is not a number or plus infinity, from which any accuracy could result.
    """
    device = torch.device(device)
    if device.type != "cpu" or not source.reentrant:
        workers = 1  # A device works on all episodes of a batch side by side.
    elif workers is None:
        workers = torch.get_num_threads()
    targets = one_hot(sampler.labels[: sampler.num_support].to(device), sampler.ways)
    for method in methods:
        method.eval()

    def run(episodes: Episodes) -> Running:
        with torch.no_grad():  # not inference mode: a method may take gradients of its own
            return Running(source, episodes, targets, methods)

    def episodes_from(start: int, count: int) -> Episodes:
        return Episodes(sampler.batch(start, count), sampler.query_labels(start, count))

    # The first call of anything is slow (threads, libraries): make it before the time is taken.
    run(episodes_from(0, 1)).results()
    mine = ranks.share(episodes)
    if batch_episodes is None and device.type == "cuda":
        few = episodes_from(0, FEATURES_AT_A_TIME)
        most = _GPU_EPISODES if source.reentrant else 4 * FEATURES_AT_A_TIME
        fitting = episodes_that_fit(lambda: run(few).results(), FEATURES_AT_A_TIME, device, most)
        batch_episodes = math.ceil(len(mine) / math.ceil(len(mine) / fitting)) if mine else 1
    elif batch_episodes is None:
        batch_episodes = _fitting_batch(source, sampler, device, methods)
    starts = mine[::batch_episodes]
    batches = (episodes_from(first + start, min(batch_episodes, mine.stop - start)) for start in starts)
    under_way = _in_threads(run, batches, workers)
    parts: list[list[tuple[Tensor, float]]] = []
    done, sums = 0, torch.zeros(len(methods), dtype=torch.float64, device="cpu")
    for running in under_way if device.type == "cpu" else _one_ahead(under_way):
        part = running.results()
        parts.append(part)
        accuracies = torch.stack([values[0] for values, _ in part])
        done, sums = done + accuracies.shape[1], sums + accuracies.sum(1)
        report(done, (sums / done).tolist())
    outcomes = []
    for index, method in enumerate(methods):
        values = torch.cat([sums.new_empty(2, 0), *(part[index][0] for part in parts)], -1)
        values, seconds = ranks.gather(values, sum(part[index][1] for part in parts) / workers)
        outcomes.append(Outcome(method, values[0], values[1], seconds))
    return outcomes


def _in_threads(run: Callable[[Episodes], Running], batches: Iterable[Episodes], workers: int) -> Iterator[Running]:
    """``map`` by several threads, each with one of PyTorch's; results in order, batches taken a few ahead only.

    An episode's matrices are so small that PyTorch gains nothing from several threads within one operation; threads
    that work on different episodes share nothing and scale well. One worker is the caller's thread, with all of
    PyTorch's.
    """
    if workers == 1:
        yield from map(run, batches)
        return
    threads = torch.get_num_threads()
    running: deque[Future[Running]] = deque()
    # The number of threads belongs to each thread, but the matrix library's to all: set it back at the end.
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        try:
            for batch in batches:
                running.append(pool.submit(run, batch))
                if len(running) > 2 * workers:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(threads)


def _one_ahead(batches: Iterable[Running]) -> Iterator[Running]:
    """Each batch when the next is under way, so that a device has work while its results are read."""
    ended: Any = None
    return (before for before, _ in pairwise(chain(batches, [ended])))


def _fitting_batch(
    source: FeatureSource, sampler: EpisodeSampler, device: torch.device, methods: Sequence[Method]
) -> int:
    """As many episodes as fit into a CPU's cache, with room for a handful of matrices of their points."""
    if not source.reentrant:
        return FEATURES_AT_A_TIME  # Images take longer: progress is reported more often.
    indices = sampler.batch(0, 1).to(device)
    points = indices.shape[1]
    dim = 0 if grams_suffice(methods) else source.points(indices).shape[-1]
    return max(1, min(_BATCH_EPISODES, _BATCH_BYTES // (points * (4 * dim + 4 * 8 * points))))

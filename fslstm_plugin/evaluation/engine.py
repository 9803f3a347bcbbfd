"""Many episodes and several methods at once, all on the same features."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..data.sampler import EpisodeSampler
from ..errors import DataError
from ..gram import EpisodeGram
from ..heads import Head, one_hot
from ..transduction import InverseAttentionModule, TransductiveModule
from .parallel import map_in_threads
from .ranks import ALONE, Ranks

FeatureSource = Callable[[Tensor], Tensor]
Report = Callable[[int, Sequence[float]], None]

_FEATURES_AT_A_TIME = 16  # Episodes multiplied out together: some 13 MB, little enough for the cache.


@dataclass(frozen=True)
class Method:
    """One row of a table: a head and what surrounds it.

    Args:
        head_name: As in the tables.
        head: The head.
        attention: The Inverse Attention Module, or None.
        transduction: PSM, CAN or another, or None.
        modules: Names of the modules, as in the tables.
        normalize: Whether features are brought to unit length, those of the support after its adjustment.
        options: Arguments of the head that are not its defaults, as in the tables.
    """

    head_name: str
    head: Head
    attention: InverseAttentionModule | None = None
    transduction: TransductiveModule | None = None
    modules: tuple[str, ...] = ()
    normalize: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Its name, see :func:`method_label`."""
        return method_label(self.head_name, self.modules, self.options, self.normalize)

    @property
    def is_transductive(self) -> bool:
        """Whether a query's prediction depends on the other queries."""
        parts = (self.head, self.attention, self.transduction)
        return "bn" in self.modules or any(part is not None and part.is_transductive for part in parts)

    def logits(self, gram: EpisodeGram, targets: Tensor) -> Tensor:
        """Logits of the queries ``(batch, m, ways)``."""
        if self.normalize:
            gram = gram.normalized()
        if self.transduction is None:
            return self.head.predict(gram, targets)
        return self.transduction.refine(self.head, gram, targets)


def method_label(head: str, modules: Sequence[str], options: Mapping[str, Any], normalize: bool) -> str:
    """Head, options and modules in one name.

    Example:
        >>> method_label("lssvm", ["iam", "psm"], {"ridge": 10.0}, normalize=True)
        'lssvm(ridge=10,normalize)+iam+psm'
    """
    words = [f"{name}={_short(value)}" for name, value in options.items()]
    words += ["normalize"] if normalize else []
    return "+".join([f"{head}({','.join(words)})" if words else head, *modules])


def _short(value: Any) -> str:
    """As short as can be read back: 10.0 is ``10``."""
    short = f"{value:g}" if isinstance(value, float) else ""
    return short if short and float(short) == value else str(value)


@dataclass(frozen=True)
class Outcome:
    """What a method did.

    Args:
        method: The method.
        accuracies: Percent of the queries predicted rightly, one an episode ``(episodes,)``, float64.
        seconds: Time from features to answers; of threads that work side by side, their mean.
    """

    method: Method
    accuracies: Tensor
    seconds: float


class _Clock:
    """Measures the time of its block, on any device."""

    seconds: float

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def __enter__(self) -> _Clock:
        self._wait()
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._wait()
        self.seconds = time.perf_counter() - self._began

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def run_methods(
    source: FeatureSource,
    sampler: EpisodeSampler,
    methods: Sequence[Method],
    episodes: int,
    device: torch.device | str = "cpu",
    batch_episodes: int = 128,
    report: Report = lambda done, accuracies: None,
    workers: int | None = None,
    ranks: Ranks = ALONE,
) -> list[Outcome]:
    """Evaluate methods on the same episodes.

    Args:
        source: From image indices ``(batch, N)`` to features ``(batch, N, d)``.
        sampler: Which images make an episode.
        methods: What to evaluate. Methods that see the same support share their Gram matrices; each is charged
            the time of what it needs of them.
        episodes: Number of episodes; the sampler's first ones.
        device: Where to compute.
        batch_episodes: Episodes at a time; the results do not depend on it.
        report: Called with the number of episodes done by this process, and each method's mean accuracy in them.
        workers: Threads that share the batches between them, on the processor; the results do not depend on it.
            Default: as many as PyTorch has. A source that is not safe to call from several needs 1.
        ranks: The processes that share the episodes; every one gets all outcomes. Default: this one alone.

    Returns:
        An outcome for each method, in their order.

    Raises:
        DataError: If a feature is infinite or not a number.
    """
    device = torch.device(device)
    if device.type != "cpu":
        workers = 1  # The device itself works on all episodes of a batch side by side.
    elif workers is None:
        workers = torch.get_num_threads()
    targets = one_hot(sampler.labels[: sampler.num_support].to(device), sampler.ways)

    def run(batch: tuple[Tensor, Tensor]) -> list[tuple[Tensor, float]]:
        indices, query_labels = batch
        with torch.inference_mode():
            return _run_batch(source, indices.to(device), targets, query_labels, methods)

    def episodes_from(start: int, count: int) -> tuple[Tensor, Tensor]:
        return sampler.batch(start, count), sampler.query_labels(start, count)

    # The first call of anything is slow (threads, libraries): make it before the clock runs.
    run(episodes_from(0, 1))
    mine = ranks.share(episodes)
    starts = mine[::batch_episodes]
    batches = (episodes_from(start, min(batch_episodes, mine.stop - start)) for start in starts)
    parts: list[list[tuple[Tensor, float]]] = []
    done, sums = 0, torch.zeros(len(methods), dtype=torch.float64)
    for part in map_in_threads(run, batches, workers):
        parts.append(part)
        accuracies = torch.stack([of_method for of_method, _ in part])
        done, sums = done + accuracies.shape[1], sums + accuracies.sum(1)
        report(done, (sums / done).tolist())
    outcomes = []
    for index, method in enumerate(methods):
        accuracies = torch.cat([torch.empty(0, dtype=torch.float64), *(part[index][0] for part in parts)])
        seconds = sum(part[index][1] for part in parts) / workers
        outcomes.append(Outcome(method, *ranks.gather(accuracies, seconds)))
    return outcomes


class _Shared:
    """What methods with the same attention share: their episodes' Gram matrices, and the time these took.

    Args:
        attention: The Inverse Attention Module, or None.
        transductive: Whether a method needs the queries' own block.
    """

    def __init__(self, attention: InverseAttentionModule | None, transductive: bool) -> None:
        self.attention, self.transductive = attention, transductive
        self.grams: list[EpisodeGram] = []
        self.inductive_seconds = self.transductive_seconds = 0.0

    def add(self, points: Tensor, targets: Tensor) -> None:
        """Multiply out the features of some more episodes ``(batch, n + m, d)``, their support first."""
        size, count = targets.shape[-2], points.shape[-2]
        with _Clock(points.device) as adjusting:
            if self.attention is not None:
                support, query = points.tensor_split([size], dim=1)
                points = torch.cat([self.attention.adjust(support, targets, query), query], 1)
        with _Clock(points.device) as multiplying:
            gram = EpisodeGram.from_points(points, size, self.transductive)
        if not (gram.support.isfinite().all() and gram.query_norms.isfinite().all()):
            raise DataError("Some features are infinite or not numbers: the model's weights are damaged.")
        self.grams.append(gram)
        share = size / count if self.transductive else 1.0  # Of the product: the rows of the support.
        self.inductive_seconds += adjusting.seconds + share * multiplying.seconds
        self.transductive_seconds += (1 - share) * multiplying.seconds


def _run_batch(
    source: FeatureSource, indices: Tensor, targets: Tensor, query_labels: Tensor, methods: Sequence[Method]
) -> list[tuple[Tensor, float]]:
    """Accuracies and seconds of each method."""
    attentions = {id(method.attention): method.attention for method in methods}
    transductive = {id(method.attention) for method in methods if method.transduction is not None}
    shared = {key: _Shared(attention, key in transductive) for key, attention in attentions.items()}
    for some in indices.split(_FEATURES_AT_A_TIME):
        points = source(some)
        for mine in shared.values():
            mine.add(points, targets.expand(len(some), -1, -1))
    grams = {key: EpisodeGram.cat(mine.grams) for key, mine in shared.items()}
    targets = targets.expand(len(indices), -1, -1)
    results = []
    for method in methods:
        mine = shared[id(method.attention)]
        with _Clock(indices.device) as own:
            predictions = method.logits(grams[id(method.attention)], targets).argmax(-1)
        seconds = mine.inductive_seconds + own.seconds
        if method.transduction is not None:
            seconds += mine.transductive_seconds
        right = predictions.cpu() == query_labels
        results.append((right.double().mean(-1) * 100, seconds))
    return results

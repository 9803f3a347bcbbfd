"""Many episodes and several methods at once, all on the same features."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..adapters import FeatureAdapter
from ..data.sampler import EpisodeSampler
from ..errors import DataError, UsageError
from ..features import EpisodeFeatures
from ..heads import one_hot
from ..methods.base import Gram, Method
from .parallel import map_in_threads
from .ranks import ALONE, Ranks

Adapters = tuple[Hashable, ...]
Report = Callable[[int, Sequence[float]], None]

_FEATURES_AT_A_TIME = 16  # Episodes multiplied out together: some 13 MB, little enough for the cache.
_BATCH_BYTES = 2**25  # Of the features and Gram matrices of a batch, for each thread.
_BATCH_EPISODES = 128


@dataclass(frozen=True)
class FeatureSource:
    """Where the features of episodes come from.

    Args:
        points: From image indices ``(batch, N)`` to features ``(batch, N, d)``.
        map_shape: Shape of the maps that the features are made of, if they are.
        base_mean: Mean feature ``(d,)`` of the base classes, for methods that need it.
        reentrant: Whether it may be called from several threads.
        bfloat16: Whether images go through networks in bfloat16, those of methods too.
    """

    points: Callable[[Tensor], Tensor]
    map_shape: tuple[int, int, int] | None = None
    base_mean: Tensor | None = None
    reentrant: bool = True
    bfloat16: bool = False

    def precision_of(self, method: Method, device: torch.device) -> torch.autocast:
        """In which a method's logits are computed."""
        return torch.autocast(device.type, torch.bfloat16, enabled=self.bfloat16 and method.follows_autocast)


def indexed(
    features: Tensor, map_shape: tuple[int, int, int] | None = None, base_mean: Tensor | None = None
) -> FeatureSource:
    """Features looked up in those of a whole split ``(N, d)``."""

    def points(indices: Tensor) -> Tensor:
        # Several times as fast as indexing with a matrix.
        return features.index_select(0, indices.flatten()).unflatten(0, indices.shape)

    return FeatureSource(points, map_shape, base_mean)


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
    batch_episodes: int | None = None,
    report: Report = lambda done, accuracies: None,
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
        batch_episodes: Episodes at a time; the results do not depend on it. Default: up to 128, by their size.
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

    def run(batch: tuple[Tensor, Tensor]) -> list[tuple[Tensor, float]]:
        indices, query_labels = batch
        with torch.no_grad():  # not inference mode: a method may take gradients of its own
            return _run_batch(source, indices.to(device), targets, query_labels, methods)

    def episodes_from(start: int, count: int) -> tuple[Tensor, Tensor]:
        return sampler.batch(start, count), sampler.query_labels(start, count)

    # The first call of anything is slow (threads, libraries): make it before the time is taken.
    run(episodes_from(0, 1))
    if batch_episodes is None:
        batch_episodes = _fitting_batch(source, sampler, device)
    mine = ranks.share(episodes)
    starts = mine[::batch_episodes]
    batches = (episodes_from(first + start, min(batch_episodes, mine.stop - start)) for start in starts)
    parts: list[list[tuple[Tensor, float]]] = []
    done, sums = 0, torch.zeros(len(methods), dtype=torch.float64)
    for part in map_in_threads(run, batches, workers):
        parts.append(part)
        accuracies = torch.stack([values[0] for values, _ in part])
        done, sums = done + accuracies.shape[1], sums + accuracies.sum(1)
        report(done, (sums / done).tolist())
    outcomes = []
    for index, method in enumerate(methods):
        values = torch.cat([torch.empty(2, 0, dtype=torch.float64), *(part[index][0] for part in parts)], -1)
        values, seconds = ranks.gather(values, sum(part[index][1] for part in parts) / workers)
        outcomes.append(Outcome(method, values[0], values[1], seconds))
    return outcomes


def _fitting_batch(source: FeatureSource, sampler: EpisodeSampler, device: torch.device) -> int:
    """As many episodes as fit into the memory for a batch, with room for a handful of matrices of their points."""
    if not source.reentrant:
        return _FEATURES_AT_A_TIME  # Images take longer: progress is reported more often.
    indices = sampler.batch(0, 1).to(device)
    points, dim = indices.shape[1], source.points(indices).shape[-1]
    return max(1, min(_BATCH_EPISODES, _BATCH_BYTES // (points * (4 * dim + 4 * 8 * points))))


class _Group:
    """Methods whose features went through the same adapters, and the time of what they share.

    Args:
        methods: The methods.
        whole: Whether the queries' own block is needed.
        share: Share of the whole product that the rows of the support alone would have taken.
    """

    def __init__(self, methods: Sequence[Method], whole: bool, share: float) -> None:
        self.methods, self.whole, self.share = methods, whole, share
        self.adapting = self.multiplying = 0.0
        self.follows = self.relates = any(adapter.needs_gram for adapter in methods[0].adapters)

    def prepare(self, part: EpisodeFeatures) -> None:
        """Compute what the methods share, while the features are in the cache."""
        uses = {method.uses_gram for method in self.methods}
        with _Clock(part.targets.device) as adapting:
            adapted = self.methods[0].prepare(part)
            own = adapted.has_own_product
            found = [adapted.points] if own or uses == {"none"} else []
        self.follows = self.relates or not own
        with _Clock(part.targets.device) as multiplying:
            if uses != {"none"}:
                gram = adapted.gram if self.whole else adapted.support_gram
                found = [gram.support, gram.query_norms]
        if not all(values.isfinite().all() for values in found):
            if not part.points.isfinite().all():
                raise DataError("Some features are infinite or not numbers: the model's weights are damaged.")
            raise UsageError(
                f"{self.methods[0]} makes of the features what is infinite or not a number: its arguments, or the "
                "features, are far out of scale."
            )
        self.adapting += adapting.seconds
        self.multiplying += multiplying.seconds

    def charge(self, uses: Gram, origin: _Group | None) -> float:
        """Seconds charged to a method, and for what its features are made of; for the support's rows, their share."""
        made_of = origin if self.follows else None
        before = made_of.charge("all" if self.relates else uses, None) if made_of is not None else 0.0
        share = {"none": 0.0, "support": self.share if self.whole else 1.0, "all": 1.0}[uses]
        return before + self.adapting + share * self.multiplying


def _run_batch(
    source: FeatureSource, indices: Tensor, targets: Tensor, query_labels: Tensor, methods: Sequence[Method]
) -> list[tuple[Tensor, float]]:
    """Of each method accuracies and errors of the shares ``(2, episodes)``, and seconds."""
    groups = _groups(methods, targets.shape[-2] / indices.shape[1])
    parts = []
    for some in indices.split(_FEATURES_AT_A_TIME):
        mine = targets.expand(len(some), -1, -1)
        part = EpisodeFeatures.from_points(source.points(some), mine, source.base_mean, source.map_shape)
        for group in groups.values():
            group.prepare(part)
        parts.append(part)
    features = EpisodeFeatures.join(parts)
    results = []
    true_shares = class_shares(query_labels, targets.shape[-1])
    for method in methods:
        key = _adapter_keys(method)
        with _Clock(indices.device) as own, source.precision_of(method, indices.device):
            logits = method.logits(features)
            predictions = logits.argmax(-1)
        if not (logits < math.inf).all():  # whose argmax would be arbitrary; -inf is the log of a zero probability
            raise UsageError(
                f"{method} gives logits that are infinite or not numbers: its arguments are far out of scale."
            )
        seconds = groups[key].charge(method.uses_gram, _origin(groups, method)) + own.seconds
        predictions = predictions.cpu()
        correct = (predictions == query_labels).double().mean(-1)
        share_errors = (class_shares(predictions, targets.shape[-1]) - true_shares).abs().mean(-1)
        results.append((torch.stack([correct, share_errors]) * 100, seconds))
    features.forget()
    return results


def class_shares(labels: Tensor, ways: int) -> Tensor:
    """The share of each class in the labels of episodes.

    Args:
        labels: int64 ``(episodes, m)``.
        ways: Number of classes.

    Returns:
        float64 ``(episodes, ways)``.

    Example:
        >>> class_shares(torch.tensor([[0, 0, 0, 2], [1, 1, 2, 2]]), ways=3).tolist()
        [[0.75, 0.0, 0.25], [0.0, 0.5, 0.5]]
    """
    counts = torch.zeros(len(labels), ways, dtype=torch.float64)
    return counts.scatter_add_(1, labels, counts.new_ones(1, 1).expand_as(labels)) / labels.shape[1]


def _groups(methods: Sequence[Method], share: float) -> dict[Adapters, _Group]:
    """Methods by their adapters; those whose Gram matrices others are derived from come first."""
    keys = sorted({_adapter_keys(method) for method in methods}, key=len)
    groups = {}
    for key in keys:
        behind = [each for each in methods if _adapter_keys(each)[: len(key)] == key]
        whole = any(each.uses_gram == "all" or _first_related(each.adapters[len(key) :]) is not None for each in behind)
        groups[key] = _Group([each for each in methods if _adapter_keys(each) == key], whole, share)
    return groups


def _origin(groups: Mapping[Adapters, _Group], method: Method) -> _Group | None:
    """The group whose Gram matrices those of a method's group are made of."""
    key, first = _adapter_keys(method), _first_related(method.adapters)
    return (groups.get(key[:-1]) if key else None) or (None if first is None else groups.get(key[:first]))


def _first_related(adapters: Sequence[FeatureAdapter]) -> int | None:
    """Place of the first adapter that makes its features of all Gram matrices."""
    return next((place for place, adapter in enumerate(adapters) if adapter.needs_gram), None)


def _adapter_keys(method: Method) -> Adapters:
    return tuple(adapter.key for adapter in method.adapters)

"""A batch of episodes under way: several methods on the same features, and the time of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import DataError, FSLSTMError, UsageError
from ..features import EpisodeFeatures
from ..methods.base import Gram, Method
from ..methods.shared.logits import changed_in_place, logits_beside_others, no_numbers
from .devices import Clock, fetched, sent
from .source import FeatureSource

Adapters = tuple[Hashable, ...]

FEATURES_AT_A_TIME = 16  # Episodes multiplied out together on a CPU: some 13 MB, little enough for the cache.


class Episodes(NamedTuple):
    """Indices of images, int64 ``(episodes, n + m)``, support first, and query labels ``(episodes, m)``, on the CPU."""

    indices: Tensor
    query_labels: Tensor


class Running:
    """Methods at work on a batch of episodes; on a GPU nothing waits for them before `results`.

    One-hot labels of the support ``(n, ways)`` and the methods are on the device. What `results` refuses is refused at
    once on a CPU, and what a method itself refuses everywhere.
    """

    def __init__(self, source: FeatureSource, episodes: Episodes, targets: Tensor, methods: Sequence[Method]) -> None:
        self._source, self._episodes, self._methods, self._targets = source, episodes, methods, targets
        self._groups = _groups(methods, targets.shape[-2] / episodes.indices.shape[1])
        self._clocks = [Clock(targets.device) for _ in methods]
        self._found: list[Tensor] = []  # Whether all is as it must be, and what to say where it is not:
        self._refusals: list[Callable[[], FSLSTMError]] = []
        together = sent(torch.cat(episodes, 1), targets.device)  # One copy.
        indices, labels = together.tensor_split([episodes.indices.shape[1]], dim=1)
        features = self._features(indices)
        try:
            counts = [self._counts(features, labels, *each) for each in zip(methods, self._clocks, strict=True)]
        except FSLSTMError:
            self._refuse(torch.stack(self._found))  # What a method refuses may come from there.
            raise
        features.forget()
        self._arriving = fetched([torch.stack(counts), torch.stack(self._found)])

    def _features(self, indices: Tensor) -> EpisodeFeatures:
        """The features, with what groups of methods share."""
        if indices.device.type != "cpu":
            return self._part(indices)
        return EpisodeFeatures.join([self._part(some) for some in indices.split(FEATURES_AT_A_TIME)])

    def _part(self, indices: Tensor) -> EpisodeFeatures:
        """Some of the features. On a CPU only Gram matrices are kept where these suffice: they stay in the cache."""
        source, targets = self._source, self._targets.expand(len(indices), -1, -1)
        num_query = indices.shape[1] - targets.shape[1]
        part = EpisodeFeatures.looked_up(
            partial(source.points, indices), num_query, targets, source.base_mean, source.map_shape
        )
        _ = part.points  # Looked up before the time is taken, which is from features on.
        for group in self._groups.values():
            is_changed = part.watched()
            for values in group.prepare(part):
                if is_changed():
                    raise changed_in_place(group.methods[0])
                self._require(values.isfinite().all(), partial(self._far_out, group.methods[0], indices))
        if indices.device.type == "cpu":
            self._refuse(torch.stack(self._found))
            if grams_suffice(self._methods):
                part.release()
        return part

    def _counts(self, features: EpisodeFeatures, labels: Tensor, method: Method, clock: Clock) -> Tensor:
        """How many queries are correctly predicted, and how many are predicted of each class, ``(b, 1 + ways)``."""
        with clock, self._source.precision_of(method, labels.device):
            logits = logits_beside_others(method, features)
            predictions = logits.argmax(-1)
        # Minus infinity is the logarithm of a zero probability.
        self._require((logits < math.inf).all(), partial(no_numbers, method))
        correct = (predictions == labels).sum(-1, keepdim=True)
        return torch.cat([correct, _class_counts(predictions, features.ways)], 1)

    def _require(self, true: Tensor, refusal: Callable[[], FSLSTMError]) -> None:
        self._found.append(true)
        self._refusals.append(refusal)

    def _refuse(self, found: Tensor) -> None:
        for true, refusal in zip(found.tolist(), self._refusals, strict=True):
            if not true:
                raise refusal()

    def _far_out(self, method: Method, indices: Tensor) -> FSLSTMError:
        if not self._source.points(indices).isfinite().all():
            return DataError("Some features are infinite or not numbers: the model's weights are damaged.")
        return UsageError(
            f"{method} turns the features into infinite numbers or NaN: its arguments, or the features, are far "
            "out of scale."
        )

    def results(self) -> list[tuple[Tensor, float]]:
        """Of each method accuracies and errors of the shares ``(2, episodes)``, in percent, and seconds.

        Raises:
            DataError: If a feature is infinite or not a number.
            UsageError: If a method makes such numbers of finite ones.
        """
        counts, found = self._arriving()
        self._refuse(found)
        labels, ways = self._episodes.query_labels, self._targets.shape[-1]
        true_shares = _class_counts(labels, ways).double() / labels.shape[1]
        results = []
        for method, mine, clock in zip(self._methods, counts.double() / labels.shape[1], self._clocks, strict=True):
            seconds = self._groups[_adapter_keys(method)].charge(method.uses_gram) + clock.seconds
            share_errors = (mine[:, 1:] - true_shares).abs().mean(-1)
            results.append((torch.stack([mine[:, 0], share_errors]) * 100, seconds))
        return results


def grams_suffice(methods: Sequence[Method]) -> bool:
    """Whether no method works on the features themselves."""
    return all(method.uses_gram != "none" for method in methods)


class _Group:
    """Methods whose features went through the same adapters, and the time of what they share.

    ``whole`` says whether the queries' own block is needed; ``share`` is the part of the whole product that the rows of
    the support alone would have taken. ``origin`` is the group that shares the most adapters, if any.
    """

    def __init__(self, methods: Sequence[Method], whole: bool, share: float, origin: _Group | None) -> None:
        self.methods, self.whole, self.share, self.origin = methods, whole, share, origin
        self.adapting: list[Clock] = []
        self.multiplying: list[Clock] = []
        self.of_origin: Gram | None = None  # What of its Gram matrices is used; None: as much as of these.

    def prepare(self, part: EpisodeFeatures) -> list[Tensor]:
        """Compute what the methods share, while the features are in the cache; what of it must be finite."""
        uses = {method.uses_gram for method in self.methods}
        with Clock(part.targets.device) as adapting:
            adapted = self.methods[0].prepare(part)
            own = adapted.has_own_product
            found = [adapted.points] if own or uses == {"none"} else []
        self.of_origin = self._used_of_origin(part)
        with Clock(part.targets.device) as multiplying:
            if uses != {"none"}:
                gram = adapted.gram if self.whole else adapted.support_gram
                found = [gram.support, gram.query_norms]
        self.adapting.append(adapting)
        self.multiplying.append(multiplying)
        return found

    def _used_of_origin(self, features: EpisodeFeatures) -> Gram | None:
        """See `of_origin`; from the features before all adapters."""
        shared = 0 if self.origin is None else len(self.origin.methods[0].adapters)
        for place, adapter in enumerate(self.methods[0].adapters):
            before, features = features, features.adapted(adapter)
            if place >= shared and adapter.needs_gram:
                return "all"
            if place >= shared and features.has_own_product and features is not before:
                return "none"
        return None

    def charge(self, uses: Gram) -> float:
        """Seconds charged to a method, and for what its features are made of; for the support's rows, their share."""
        before = 0.0 if self.origin is None else self.origin.charge(self.of_origin or uses)
        share = {"none": 0.0, "support": self.share if self.whole else 1.0, "all": 1.0}[uses]
        adapting, multiplying = (sum(clock.seconds for clock in each) for each in (self.adapting, self.multiplying))
        return before + adapting + share * multiplying


def _groups(methods: Sequence[Method], share: float) -> dict[Adapters, _Group]:
    """Methods by their adapters; those whose Gram matrices others are derived from come first."""
    keys = sorted({_adapter_keys(method) for method in methods}, key=len)
    groups: dict[Adapters, _Group] = {}
    for key in keys:
        behind = [each for each in methods if _adapter_keys(each)[: len(key)] == key]
        whole = any(each.uses_gram == "all" or any(a.needs_gram for a in each.adapters[len(key) :]) for each in behind)
        origin = next((groups[key[:end]] for end in reversed(range(len(key))) if key[:end] in groups), None)
        groups[key] = _Group([each for each in methods if _adapter_keys(each) == key], whole, share, origin)
    return groups


def _adapter_keys(method: Method) -> Adapters:
    return tuple(adapter.key for adapter in method.adapters)


def _class_counts(labels: Tensor, ways: int) -> Tensor:
    """How many labels ``(episodes, m)`` are of each class, int64 ``(episodes, ways)``."""
    return (labels.unsqueeze(-2) == torch.arange(ways, device=labels.device).unsqueeze(-1)).sum(-1)

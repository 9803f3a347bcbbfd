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

FeatureSource = Callable[[Tensor], Tensor]


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
    words = [f"{name}={value if isinstance(value, str) else format(value, 'g')}" for name, value in options.items()]
    words += ["normalize"] if normalize else []
    return "+".join([f"{head}({','.join(words)})" if words else head, *modules])


@dataclass
class Outcome:
    """What a method did.

    Args:
        method: The method.
        accuracies: Percent of the queries predicted rightly, one an episode ``(episodes,)``, float64.
        seconds: Time from features to answers.
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
    batch_episodes: int = 32,
    report: Callable[[int], None] = lambda done: None,
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
        report: Called with the number of episodes done.

    Returns:
        An outcome for each method, in their order.

    Raises:
        DataError: If a feature is infinite or not a number.
    """
    device = torch.device(device)
    targets_one = one_hot(sampler.labels[: sampler.num_support].to(device), sampler.ways)
    outcomes = [Outcome(method, torch.empty(0, dtype=torch.float64), 0.0) for method in methods]
    with torch.inference_mode():
        # The first call of anything is slow (threads, libraries): make it before the clock runs.
        _run_batch(source(sampler.batch(0, 1).to(device)), targets_one[None], sampler.query_labels(0, 1), outcomes)
        for outcome in outcomes:
            outcome.accuracies, outcome.seconds = outcome.accuracies[:0], 0.0
        for start in range(0, episodes, batch_episodes):
            count = min(batch_episodes, episodes - start)
            features = source(sampler.batch(start, count).to(device))
            if not torch.isfinite(features).all():
                raise DataError("Some features are infinite or not numbers: the model's weights are damaged.")
            _run_batch(features, targets_one.expand(count, -1, -1), sampler.query_labels(start, count), outcomes)
            report(start + count)
    return outcomes


def _run_batch(features: Tensor, targets: Tensor, query_labels: Tensor, outcomes: Sequence[Outcome]) -> None:
    """Add a batch of episodes to the outcomes; methods with the same adjusted support share its Gram matrix."""
    num_support = targets.shape[-2]
    support, query = features[:, :num_support], features[:, num_support:]
    for attention in {id(outcome.method.attention): outcome.method.attention for outcome in outcomes}.values():
        mine = [outcome for outcome in outcomes if outcome.method.attention is attention]
        with _Clock(features.device) as inductive:
            adjusted = attention.adjust(support, targets, query) if attention is not None else support
            gram = EpisodeGram.from_features(adjusted, query)
        with _Clock(features.device) as transductive:
            if any(outcome.method.transduction is not None for outcome in mine):
                gram = gram.with_queries(query)
        for outcome in mine:
            with _Clock(features.device) as own:
                predictions = outcome.method.logits(gram, targets).argmax(-1)
            outcome.seconds += inductive.seconds + own.seconds
            if outcome.method.transduction is not None:
                outcome.seconds += transductive.seconds
            right = (predictions.cpu() == query_labels).double().mean(-1) * 100
            outcome.accuracies = torch.cat([outcome.accuracies, right])

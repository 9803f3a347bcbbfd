"""Many episodes and several methods at once, all on the same features."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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
    """

    head_name: str
    head: Head
    attention: InverseAttentionModule | None = None
    transduction: TransductiveModule | None = None
    modules: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """For example ``lssvm+iam+psm``."""
        return "+".join((self.head_name, *self.modules))

    @property
    def is_transductive(self) -> bool:
        """Whether a query's prediction depends on the other queries."""
        return bool(self.modules)

    def logits(self, gram: EpisodeGram, targets: Tensor) -> Tensor:
        """Logits of the queries ``(batch, m, ways)``."""
        if self.transduction is None:
            return self.head.predict(gram, targets)
        return self.transduction.refine(self.head, gram, targets)


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


@dataclass
class _Clock:
    """Adds up the time spent in its blocks, on any device."""

    device: torch.device
    seconds: float = field(default=0.0)

    def __enter__(self) -> None:
        self._wait()
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._wait()
        self.seconds += time.perf_counter() - self._began

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
        methods: What to evaluate. Methods that see the same support share their Gram matrices.
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
    clocks = [_Clock(device) for _ in methods]
    accuracies: list[list[Tensor]] = [[] for _ in methods]
    labels = sampler.labels.to(device)
    num_support = sampler.num_support
    targets_one = one_hot(labels[:num_support], sampler.ways)
    attentions = list({id(method.attention): method.attention for method in methods}.values())
    with torch.inference_mode():
        for start in range(0, episodes, batch_episodes):
            count = min(batch_episodes, episodes - start)
            features = source(sampler.batch(start, count).to(device))
            if not torch.isfinite(features).all():
                raise DataError("Some features are infinite or not numbers: the model's weights are damaged.")
            targets = targets_one.expand(count, -1, -1)
            for attention in attentions:
                mine = [index for index, method in enumerate(methods) if method.attention is attention]
                shared = _Clock(device)
                with shared:
                    gram = _gram(features, targets, attention, [methods[index] for index in mine])
                for index in mine:
                    clocks[index].seconds += shared.seconds
                    with clocks[index]:
                        predictions = methods[index].logits(gram, targets).argmax(-1)
                    right = (predictions == labels[num_support:]).double().mean(-1) * 100
                    accuracies[index].append(right.cpu())
            report(start + count)
    return [
        Outcome(method, torch.cat(parts), clock.seconds)
        for method, parts, clock in zip(methods, accuracies, clocks, strict=True)
    ]


def _gram(
    features: Tensor, targets: Tensor, attention: InverseAttentionModule | None, methods: Sequence[Method]
) -> EpisodeGram:
    """The Gram matrices that methods with the same adjusted support share."""
    num_support = targets.shape[-2]
    support, query = features[:, :num_support], features[:, num_support:]
    if attention is not None:
        support = attention.adjust(support, targets, query)
    transductive = any(method.transduction is not None for method in methods)
    return EpisodeGram.from_features(support, query, transductive)

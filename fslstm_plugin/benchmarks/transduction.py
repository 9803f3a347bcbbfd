"""Registered methods on given features, Gram matrices included: ours against the published code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ..data.sampler import EpisodeSampler
from ..evaluation.runner import FeatureSource, indexed
from ..heads import one_hot
from ..methods.base import Method
from ..naming import parse_method, whole_methods
from . import published
from .agreement import TIE, DrawnEpisodes, accuracies, agreed
from .published import Published
from .report import Comparison, Figure
from .timing import Contender, clocked, race

WAYS, QUERIES = 5, 15
EPISODES = 256
DIM, SHOTS = 640, 5  # Setting of the targets.


@dataclass(frozen=True)
class Case:
    """A method and its published computation."""

    method: str
    reference: Published | None = None  # The published computation; None times ours alone.
    batch: int = 64  # Episodes that it takes at a time: 64 where the published code works on batches, else 1.
    episodes: int = 64  # Episodes that it solves per round: few where it is slow.
    ours: int = EPISODES  # Episodes that ours solves per round.
    at_most: float | None = None  # Milliseconds per episode that ours should not exceed on two cores, or None.
    tie: float = TIE  # See `agreement.compare`; larger where ours takes many steps in single precision.


# A thousand steps of Adam take so long that few episodes must suffice; they still fill a CPU's cores.
_SLOW = {"batch": 16, "episodes": 16, "ours": 32}

CASES = (
    Case("simpleshot", published.simpleshot, batch=1, at_most=0.5),
    Case("bd-cspn", published.bd_cspn, batch=1, at_most=0.6),
    Case("laplacian-shot", published.laplacian_shot, batch=1, at_most=0.8),
    Case("tim", published.tim_adm, at_most=5),
    Case("pt-map", published.pt_map, at_most=2),
    Case("paddle", published.paddle, at_most=3),
    Case("proto-lp", published.proto_lp, at_most=4),
    Case("tim(solver=gd)", published.tim_gd, at_most=75, tie=1e-3, **_SLOW),
    Case("alpha-tim", published.alpha_tim, at_most=75, tie=1e-3, **_SLOW),
    Case("ilpc", published.ilpc, batch=1, episodes=4, ours=32, at_most=150),
)


def cases() -> list[Case]:
    """The cases of the registered methods without weights; one of another package is timed alone."""
    registered = whole_methods()
    known = [case for case in CASES if case.method.partition("(")[0] in registered]
    compared = {case.method for case in known}
    return known + [Case(name) for name in registered if name not in compared]


def bench_transduction(
    features: Tensor, labels: Tensor, shots: int, rounds: int, seed: int, report: Callable[[str], None]
) -> tuple[list[Comparison], list[Figure]]:
    """Every registered method without weights, on features ``(N, d)`` and int64 labels ``(N,)`` of a split.

    Features that are negative are set to 0, since some methods take roots, and their mean stands for that of the base
    classes.

    Raises:
        Disagreement: If a method predicts otherwise than the published computation.
    """
    drawn = EpisodeSampler(labels, WAYS, shots, QUERIES, seed).batch(0, EPISODES)
    features = features.relu()
    source = indexed(features, map_shape=(features.shape[-1], 1, 1), base_mean=features.mean(0))
    as_planned = shots == SHOTS and features.shape[-1] == DIM
    comparisons, figures = [], []
    for case in cases():
        bench = _Bench(case, source, drawn, shots)
        target = case.at_most if as_planned else None
        if case.reference is None:
            report(f"transduction: {case.method}")
            figures.append(bench.alone(rounds, target))
        else:
            report(f"transduction: {case.method} against its published computation")
            comparisons.append(bench.compared(case.reference, rounds, target))
    return comparisons, figures


class _Bench:
    """One method on drawn episodes; see `Case`."""

    def __init__(self, case: Case, source: FeatureSource, drawn: Tensor, shots: int) -> None:
        self.case, self.source = case, source
        self.method: Method = parse_method(case.method)
        self.every = DrawnEpisodes(drawn[: case.ours], WAYS, shots, QUERIES)
        self.count = len(self.every.indices)
        self.few = DrawnEpisodes(self.every.indices[: case.episodes], WAYS, shots, QUERIES)
        self.ours = partial(accuracies, source, self.every, [self.method], self.count)

    def alone(self, rounds: int, target: float | None) -> Figure:
        """The time of ours."""
        self.ours()
        (measured,) = race([Contender(clocked(self.ours), self.count)], rounds)
        what = f"{self.case.method}, an episode"
        return Figure("transduction", what, measured.median * 1e3, "ms", at_most=target)

    def compared(self, reference: Published, rounds: int, target: float | None) -> Comparison:
        """The times of both, after comparing what they predict."""
        name, against = f"transduction, {self.case.method}", f"published, {_batches(self.case.batch)}"
        scores = self.solve(reference, torch.float64, 1)  # In a batch, some methods stop only when all episodes may.
        agreement = agreed(name, self.source, self.few, [self.method], scores[None], self.case.tie)
        self.ours()
        theirs = partial(self.solve, reference, torch.float32, self.case.batch)
        theirs()
        contenders = [Contender(clocked(self.ours), self.count), Contender(clocked(theirs), len(self.few.indices))]
        our_times, their_times = race(contenders, rounds)
        return Comparison(
            "transduction", self.case.method, against, "episode", our_times, their_times, agreement, at_most_ms=target
        )

    def solve(self, reference: Published, dtype: torch.dtype, batch: int) -> Tensor:
        """The published computation's scores ``(episodes, queries, ways)``."""
        episodes, mean = self.few, self.source.base_mean
        targets = one_hot(episodes.labels[: episodes.num_support], WAYS).to(dtype)
        assert mean is not None

        def each() -> Iterator[Tensor]:
            for indices in episodes.indices.split(batch):
                points = self.source.points(indices).to(dtype)
                support, query = points.tensor_split([episodes.num_support], dim=-2)
                yield reference(support, targets.expand(len(indices), -1, -1), query, mean.to(dtype))

        with torch.no_grad():
            return torch.cat(list(each()))


def _batches(size: int) -> str:
    return "one by one" if size == 1 else f"batches of {size}"

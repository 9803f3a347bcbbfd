"""Registered methods on given features, Gram matrices included: ours against the published code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ..data.sampler import EpisodeSampler
from ..evaluation.runner import FeatureSource, indexed
from ..heads import one_hot
from ..naming import parse_method, whole_methods
from ..registry import HEADS
from . import published
from .agreement import TIE, DrawnEpisodes, accuracies, agreed
from .published import Published
from .report import Comparison, Figure, Result
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
    Case("nn(bpa)", published.prototypes_of_affinities, at_most=0.7),
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
    """The cases of the heads and methods that are registered; a method of another package is timed alone."""
    registered = whole_methods()
    known = [case for case in CASES if case.method.partition("(")[0] in {*HEADS.names(), *registered}]
    compared = {case.method for case in known}
    return known + [Case(name) for name in registered if name not in compared]


def bench_transduction(
    features: Tensor, labels: Tensor, shots: int, rounds: int, seed: int, report: Callable[[str], None]
) -> list[Result]:
    """Every registered method without weights, and affinities, on a split's features ``(N, d)`` and labels ``(N,)``.

    Features that are negative are set to 0, since some methods take roots, and their mean stands for that of the base
    classes.

    Raises:
        Disagreement: If a method predicts otherwise than the published computation.
    """
    drawn = EpisodeSampler(labels, WAYS, shots, QUERIES, seed).batch(0, EPISODES)
    features = features.relu()
    source = indexed(features, map_shape=(features.shape[-1], 1, 1), base_mean=features.mean(0))
    as_planned = shots == SHOTS and features.shape[-1] == DIM
    results: list[Result] = []
    for case in cases():
        method, target = parse_method(case.method), case.at_most if as_planned else None
        every = DrawnEpisodes(drawn[: case.ours], WAYS, shots, QUERIES)
        work = partial(accuracies, source, every, [method], len(every.indices))
        ours = Contender(clocked(work), len(every.indices))
        if case.reference is None:
            report(f"transduction: {case.method}")
            work()
            (measured,) = race([ours], rounds)
            what = f"{case.method}, an episode"
            results.append(Figure("transduction", what, measured.median * 1e3, "ms", at_most=target))
            continue
        report(f"transduction: {case.method} against its published computation")
        against = f"published, {'one by one' if case.batch == 1 else f'batches of {case.batch}'}"
        few = DrawnEpisodes(every.indices[: case.episodes], WAYS, shots, QUERIES)
        # In a batch, some methods stop only when all episodes may.
        scores = _solve(case.reference, source, few, torch.float64, 1)
        agreement = agreed(f"transduction, {case.method}", source, few, [method], scores[None], case.tie)
        theirs = partial(_solve, case.reference, source, few, torch.float32, case.batch)
        work()
        theirs()
        our_times, their_times = race([ours, Contender(clocked(theirs), len(few.indices))], rounds)
        compared = "transduction", case.method, against, "episode", our_times, their_times
        results.append(Comparison(*compared, agreement, at_most_ms=target))
    return results


def _solve(
    reference: Published, source: FeatureSource, episodes: DrawnEpisodes, dtype: torch.dtype, batch: int
) -> Tensor:
    """The published computation's scores ``(episodes, queries, ways)``, some episodes at a time."""
    assert source.base_mean is not None
    targets = one_hot(episodes.labels[: episodes.num_support], WAYS).to(dtype)
    scores = []
    with torch.no_grad():
        for indices in episodes.indices.split(batch):
            points = source.points(indices).to(dtype)
            support, query = points.tensor_split([episodes.num_support], dim=-2)
            scores.append(reference(support, targets.expand(len(indices), -1, -1), query, source.base_mean.to(dtype)))
    return torch.cat(scores)

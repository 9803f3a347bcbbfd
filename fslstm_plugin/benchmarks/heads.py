"""Heads on given features: batches of episodes against one episode at a time, and the whole of the paper's Table 3."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ..data.sampler import EpisodeSampler
from ..errors import RunError
from ..evaluation.runner import indexed, run_methods
from ..gram import EpisodeGram
from ..methods.base import Method
from ..methods.kernel import KernelMethod
from ..naming import parse_method
from ..registry import HEADS
from ..transduction import PseudoSupportModule
from . import references
from .agreement import DrawnEpisodes, accuracies, agreed
from .references import Reference, refine
from .report import Comparison, Figure, Result
from .timing import Contender, Work, clocked, flops_of, race, shares

WAYS, QUERIES = 5, 15
EPISODES = 256
PSM_ITERATIONS = 10
TABLE3_TASKS = 10_000
TABLE3 = tuple(head + module for head in ("nn", "rr", "svm", "lssvm") for module in ("", "+can", "+psm"))


@dataclass(frozen=True)
class Case:
    """A head and what it is compared with."""

    head: str  # Registered name.
    against: str
    reference: Reference
    episodes: int  # Episodes that the alternative solves per round: few where it is slow.
    target: float | None = None  # Least ratio to reach at 5 shots, or None.
    psm_iterations: int = 0  # Refits of the Pseudo Support Module; 0 is the plain head.

    @property
    def name(self) -> str:
        """For example ``"lssvm+psm"``."""
        return f"{self.head}+psm" if self.psm_iterations else self.head

    def methods(self) -> list[Method]:
        """The head with no refit, with one, and so on: the predictions after each refit of the last one."""
        head = HEADS.get(self.head)()
        refits = [PseudoSupportModule(iterations) for iterations in range(1, self.psm_iterations + 1)]
        return [KernelMethod(head), *(KernelMethod(head, transduction=module) for module in refits)]


_PROTOTYPES = ("nn", "learn2learn's PrototypicalClassifier", references.learn2learn_prototypes)
_RIDGE = ("rr", "quadratic programmes (qpth)", references.qpth_ridge)
_SVM = ("svm", "learn2learn's SVClassifier (qpth)", references.learn2learn_svm)
_LSSVM = ("lssvm", "the paper's dense system", references.paper_lssvm)

CASES = (
    Case(*_PROTOTYPES, episodes=64, target=2),
    Case(*_RIDGE, episodes=32, target=8),
    Case(*_SVM, episodes=32, target=25),
    Case(*_LSSVM, episodes=64, target=4),
    Case(*_PROTOTYPES, episodes=32, target=6, psm_iterations=PSM_ITERATIONS),
    Case(*_RIDGE, episodes=4, target=60, psm_iterations=PSM_ITERATIONS),
    Case(*_SVM, episodes=4, target=120, psm_iterations=PSM_ITERATIONS),
    Case(*_LSSVM, episodes=16, target=25, psm_iterations=PSM_ITERATIONS),
)

_SKLEARN = (
    ("nn", "scikit-learn's NearestCentroid", references.sklearn_prototypes),
    ("rr", "scikit-learn's KernelRidge", references.sklearn_ridge),
)
SKLEARN_CASES = tuple(
    Case(*alternative, episodes=16, psm_iterations=iterations)
    for iterations in (0, PSM_ITERATIONS)
    for alternative in _SKLEARN
)


def bench_heads(
    features: Tensor, labels: Tensor, shots: int, rounds: int, seed: int, report: Callable[[str], None]
) -> list[Result]:
    """Every case, and the share of the machine's rates that the Gram matrices and the gathering of features reach.

    Features ``(N, d)`` and int64 labels ``(N,)`` are of a split.

    Raises:
        Disagreement: If a head predicts otherwise than its reference.
        RunError: If a reference cannot solve an episode.
    """
    drawn = EpisodeSampler(labels, WAYS, shots, QUERIES, seed).batch(0, EPISODES)
    cases = (*CASES, *SKLEARN_CASES)
    comparisons = []
    for case in cases:
        report(f"heads: {case.name} against {case.against}")
        comparisons.append(_compare(case, features, drawn, shots, rounds))
    report("heads: share of the machine's ceiling")
    return [*comparisons, *shares("heads", _works(features, drawn, shots), rounds)]


def _compare(case: Case, features: Tensor, drawn: Tensor, shots: int, rounds: int) -> Comparison:
    name = f"heads, {case.name} against {case.against}"
    methods = case.methods()
    every = DrawnEpisodes(drawn, WAYS, shots, QUERIES)
    few = DrawnEpisodes(drawn[: case.episodes], WAYS, shots, QUERIES)
    ours = partial(accuracies, indexed(features), every, methods[-1:], EPISODES)
    theirs = partial(solve, case.reference, features, few, case.psm_iterations)
    try:
        theirs()
        logits = solve(references.exact(case.reference), features, few, case.psm_iterations)
    except RuntimeError as error:
        raise RunError(f"{name}: the alternative cannot solve an episode: {str(error).splitlines()[0]}") from error
    agreement = agreed(name, indexed(features), few, methods, logits)
    ours()
    contenders = [Contender(clocked(ours), EPISODES), Contender(clocked(theirs), case.episodes)]
    our_times, their_times = race(contenders, rounds)
    target = case.target if shots == 5 else None
    return Comparison("heads", case.name, case.against, "episode", our_times, their_times, agreement, target)


def solve(reference: Reference, features: Tensor, episodes: DrawnEpisodes, psm_iterations: int = 0) -> Tensor:
    """An alternative's logits, one episode after the other, ``(psm_iterations + 1, episodes, queries, ways)``."""
    labels = episodes.labels[: episodes.num_support]
    logits = []
    with torch.no_grad():
        for indices in episodes.indices:
            support, query = features[indices].tensor_split([episodes.num_support])
            logits.append(refine(reference, support, labels, query, episodes.ways, psm_iterations))
    return torch.stack(logits, 1)


def _works(features: Tensor, drawn: Tensor, shots: int) -> list[Work]:
    indices = drawn[:32]
    gathered = features[indices]
    gather = partial(indexed(features).points, indices)
    gram = partial(EpisodeGram.from_points, gathered, WAYS * shots, transductive=True)
    return [
        Work("Gram matrices of 32 episodes", clocked(gram), flops_of(gram)),
        Work("gathering their features", clocked(gather), 2.0 * gathered.nbytes, "bytes"),
    ]


def bench_table3(features: Tensor, labels: Tensor, episodes: int, seed: int) -> list[Figure]:
    """Time and memory of Table 3, four heads with and without modules, from features ``(N, d)`` and labels ``(N,)``.

    Seconds are for 10,000 episodes of both settings, scaled from ``episodes`` of each. Where the system tells it, there
    is also the greatest memory that this process has had in use: an upper bound of the table's own.
    """
    methods = [parse_method(name) for name in TABLE3]

    def table() -> None:
        for shots in (1, 5):
            run_methods(indexed(features), EpisodeSampler(labels, 5, shots, 15, seed), methods, episodes)

    seconds = clocked(table)() * TABLE3_TASKS / episodes
    what = f"Table 3, {len(methods)} methods, 1- and 5-shot, {TABLE3_TASKS:,} episodes"
    scaled = "" if episodes == TABLE3_TASKS else f", scaled from {episodes:,}"
    figures = [Figure("heads", what + scaled, seconds, "s", at_most=90)]
    memory = peak_memory()
    if memory is not None:
        figures.append(Figure("heads", "greatest memory of this process", memory / 2**30, "GiB", at_most=2))
    return figures


def peak_memory() -> float | None:
    """Greatest memory of this process so far, in bytes; None where Python cannot ask for it, as on Windows."""
    try:
        resource = importlib.import_module("resource")
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024  # Linux counts in KiB.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

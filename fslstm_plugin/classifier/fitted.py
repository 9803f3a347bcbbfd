"""A method with its labelled points, ready for queries in batches of any size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from ..confidence.calibration import fit_temperature, temperature_of, why_uncalibrated
from ..confidence.conformal import is_per_class, ranks, require_prediction_sets
from ..confidence.familiarity import familiarity_rank
from ..errors import UsageError
from ..features import EpisodeFeatures
from ..gram import EpisodeGram, require_resolved
from ..heads import Head, one_hot
from ..heads.base import SolvedSystem
from ..heads.validation import check_support
from ..methods.base import Method
from ..methods.shared.leaving_out import moved_logits
from ..methods.shared.logits import logits_beside_others, no_numbers
from .groups import folds, representatives

_QUERIES = 4096  # Of one part.
_RANKS = 10**6  # Of one part: queries times points.
_PAIRS = 4 * 10**6  # Of queries and points, in one part of prediction sets.


class FittedMethod:
    """One episode whose support is known before its queries are.

    A head without transduction is solved once, for all queries to come. Everything else looks at support and queries
    together, each time.

    Args:
        method: The method.
        support: Features ``(n, d)``; they are computed with in double precision.
        labels: int64 ``(n,)`` in [0, ways).
        ways: Number of classes.
        base_mean: See `EpisodeFeatures`. Default None.
        groups: Points that belong together, int64 ``(n,)``, see `groups`. Default None: each is by itself.

    Example:
        >>> from fslstm_plugin import parse_method
        >>> fitted = FittedMethod(parse_method("rr(ridge=1)"), torch.eye(2), torch.tensor([0, 1]), ways=2)
        >>> fitted.logits(torch.tensor([[3.0, 1.0]])).round(decimals=6)
        tensor([[3., 1.]], dtype=torch.float64)
    """

    def __init__(
        self,
        method: Method,
        support: Tensor,
        labels: Tensor,
        ways: int,
        base_mean: Tensor | None = None,
        groups: Tensor | None = None,
    ) -> None:
        if method.episode_statistics:
            raise UsageError(
                f"{method} needs the images of an episode, and cannot be fitted to features: leave out +bn."
            )
        self.labels, self.ways = check_support(support, labels, ways)
        self.method, self.support, self.groups = method.eval(), support.double(), groups
        self.base_mean = None if base_mean is None else base_mean.double()
        self.targets = one_hot(self.labels, ways)
        self._folds = None if groups is None else folds(self.labels, groups)
        self._head = method.fixed_head
        seen = self.support if self._head is None else self.adapted(self.support)
        require_resolved(seen, torch.finfo(seen.dtype).eps)
        if self._head is not None:  # whose support can be solved before the queries are known
            self._points, self._own = seen, EpisodeGram.from_points(seen, len(seen))
            with torch.no_grad():
                self._dual = self._head.learn(self._own, self.targets)

    @torch.no_grad()
    def adapted(self, points: Tensor) -> Tensor:
        """Points ``(m, d)`` after the adapters, which must change each by itself."""
        none = points.new_zeros(0, self.ways)
        return self.method.prepare(EpisodeFeatures.from_points(points, none, self.base_mean)).points

    def _gram(self, query: Tensor) -> EpisodeGram:
        """Of the points with queries after the adapters."""
        return replace(self._own, cross=query @ self._points.mT, query_norms=query.square().sum(-1))

    def _episode(self, query: Tensor) -> EpisodeFeatures:
        return EpisodeFeatures(self.support, query, self.labels, self.ways, base_mean=self.base_mean)

    @torch.no_grad()
    def logits(self, query: Tensor) -> Tensor:
        """Logits ``(m, ways)``, float64, of queries ``(m, d)``.

        A transductive method takes all of them as the queries of one episode.
        """
        found = torch.cat([self._logits(part) for part in self._parts(query, _QUERIES)])
        if not (found < torch.inf).all():
            raise no_numbers(self.method)
        return found

    @torch.no_grad()
    def familiarity(self, query: Tensor) -> Tensor:
        """See `familiarity_rank`, ``(m,)``; among features after the method's adapters."""
        parts = self._parts(query, _RANKS // len(self.labels))
        return torch.cat([familiarity_rank(self.method.prepare(self._episode(part))) for part in parts])

    def _parts(self, query: Tensor, most: int) -> Iterator[Tensor]:
        """Queries in double precision: so many at a time, or all together for a method that looks at all of them."""
        size = len(query) if self.method.is_transductive else most
        return (part.double() for part in query.split(max(1, size)))

    def _logits(self, query: Tensor) -> Tensor:
        if self._head is not None:
            return self._decided(self._head, self.adapted(query))
        episode = self._episode(query)
        found = logits_beside_others(self.method, episode).double()
        episode.forget()  # of 10,000 queries its similarities take 0.8 GB
        return found

    def _decided(self, head: Head, query: Tensor) -> Tensor:
        """Logits of queries after the adapters."""
        return head.decide(self._gram(query), self.targets, self._dual)

    def linear(self) -> tuple[Tensor, Tensor]:
        """Weights ``(d, ways)`` and bias ``(ways)`` that give the logits of adapted queries, where there are some.

        They sum to 0 over the classes; logits that differ from these by a number of each query's own, as distances
        do, have the same probabilities.
        """
        if self._head is None:
            raise UsageError(
                f"{self.method} has no weights of its own: what it predicts depends on the other queries, or it is no "
                "head. Fit again with the method lssvm, rr or nn."
            )
        point = torch.zeros_like(self._points[:1]).requires_grad_()
        logits = self._decided(self._head, point)[0]
        centred = logits - logits.mean()
        weights = torch.stack([torch.autograd.grad(each, point, retain_graph=True)[0][0] for each in centred], -1)
        expected = self._decided(self._head, self._points)
        found = self._points @ weights + centred.detach()
        if not torch.allclose(found, expected - expected.mean(-1, keepdim=True), rtol=1e-6, atol=1e-9):
            raise UsageError(f"{self.method} is not linear in its features: fit again with a linear kernel.")
        return weights, centred.detach()

    @torch.no_grad()
    def left_out(self) -> Tensor | None:
        """Logits ``(n, ways)`` of each point by the method fitted without it and one of each other class.

        None where these would say nothing. Points of a group leave together. See `Method.leave_one_out`; of one with a
        transductive module, by the head alone. Other transductive methods need many queries at a time, and have no
        logits of single ones.
        """
        if (single := self.method.without_queries()) is None:
            return None
        episode = self._episode(self.support[:0])
        return single.leave_one_out(episode) if self._folds is None else moved_logits(single, episode, self._folds)

    @property
    def judged(self) -> Tensor:
        """Which points can be left out, bool ``(n,)``: those without which something is left of their class."""
        return self.labels.bincount()[self.labels] > 1 if self._folds is None else self._folds >= 0

    @cached_property
    def independent(self) -> Tensor:
        """Places of the points that do not belong together: one of each group, or all, int64."""
        if self.groups is None:
            return torch.arange(len(self.labels), device=self.labels.device)
        return representatives(self.labels, self.groups)

    @cached_property
    def representatives(self) -> FittedMethod:
        """The method with the `independent` points alone."""
        if self.groups is None:
            return self
        kept = self.independent
        return FittedMethod(self.method, self.support[kept], self.labels[kept], self.ways, self.base_mean)

    def left_out_temperature(self, logits: Tensor) -> float:
        """The temperature of `left_out`'s logits."""
        told = self.judged if self.judged.any() else slice(None)
        return float(fit_temperature(logits[told], self.targets[told]))

    @torch.no_grad()
    def temperature(self, query: Tensor) -> float:
        """The temperature of the logits of queries ``(m, d)``, see `temperature_of`.

        That of a method that is not transductive is one for any queries, also for none.
        """
        if self._folds is not None and not self.judged.any():
            return self.representatives.temperature(query)
        if self._folds is not None:
            return self.left_out_temperature(moved_logits(self.method, self._episode(query.double()), self._folds))
        return float(temperature_of(self.method, self._episode(query.double())))

    def why_uncalibrated(self) -> str | None:
        """See `why_uncalibrated`."""
        if not self.judged.any() and self.groups is not None:
            return "each class has one group of labelled points, and nothing is left of it without that group"
        return why_uncalibrated(self.method, self.targets, 0)

    def p_values(self, query: Tensor, kind: str, seed: int) -> Tensor:
        """See `conformal.p_values`, ``(m, ways)``."""
        require_prediction_sets(self.method)
        found, of_own = [], is_per_class(kind)
        for place, part in enumerate(self._parts(query, _PAIRS // len(self.support))):
            if self._head is None:
                joined = self.method.leave_one_out_with_queries(self._episode(part), of_own_class=of_own)
            else:  # what it needs of the points alone is solved once
                gram, solved = self._gram(self.adapted(part)), self._solved
                joined = self._head.leave_one_out_with_queries(gram, self.targets, of_own_class=of_own, system=solved)
            found.append(ranks(joined, self.targets, kind, seed=seed, first=place))
        return torch.cat(found)

    @cached_property
    def _solved(self) -> SolvedSystem | None:
        return None if self._head is None else self._head.solved_system(self._own, self.targets)

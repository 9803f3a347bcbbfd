"""Queries of unknown classes, which have no support, among the others, and how well scores detect them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ..confidence.calibration import probabilities, temperature_of
from ..confidence.conformal import p_values, why_no_prediction_sets
from ..confidence.familiarity import familiarity
from ..data.base import Split
from ..errors import UsageError
from ..methods.base import Method
from .batches import Batch, MethodRow, collect
from .rows import summary
from .session import Session
from .setting import Setting

_SCORES = ("p-value", "probability", "distance")  # The first only of methods that have prediction sets.


class OpenRow(MethodRow, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of the table of unknown classes; all in percent."""

    open_ways: int  # Classes without support, with as many queries each as the others.
    # What known queries should have more of: ``"p-value"``, the greatest of the labels'; ``"probability"``, the
    # greatest; or ``"distance"``, less of it to the nearest class mean, see `familiarity`.
    score: str
    auroc: float  # Pairs of a known and an unknown query of which the known one has the better score.
    auroc_ci95: float  # Half width of its 95 % interval.
    accuracy: float  # Correct predictions for those known queries that are accepted, the best 95 % of each episode.
    accuracy_ci95: float  # Half width of its 95 % interval.
    refused: float  # Unknown queries whose score is below what accepts these.
    refused_ci95: float  # Half width of its 95 % interval.


def with_unknown(setting: Setting, split: Split, open_ways: int) -> Setting:
    """The same episodes with more classes, the last of which will have no support.

    Raises:
        UsageError: If the split has too few classes, the queries are not balanced, or the intervals cannot be taken.
    """
    ways, classes = setting.ways + open_ways, len(split.class_names)
    if ways > classes:
        raise UsageError(
            f"`ways={setting.ways}` and `open_ways={open_ways}` need {ways} classes, but {split.dataset} {split.name} "
            f"has {classes}."
        )
    if setting.query_balance != "uniform":
        raise UsageError("Unknown classes need as many queries in every episode: leave out `query_balance`.")
    more = replace(setting, ways=ways)
    more.check(split)
    return more


def open_rows(session: Session, methods: Sequence[Method], setting: Setting, open_ways: int) -> list[OpenRow]:
    """How well each score of each method tells known from unknown classes; a row for each."""
    wider = with_unknown(setting, session.split, open_ways)

    def answer(method: Method, batch: Batch) -> Sequence[Tensor]:
        logits = method.logits(batch.features)
        known = batch.query_labels < setting.ways
        right = logits.argmax(-1) == batch.query_labels
        scores = _scores(method, batch, logits, setting.seed)
        return [torch.stack(tell_apart(score, known, right), -1) for score in scores]

    estimated = summary(wider, session.split)
    rows = []
    for method, found in collect(session, methods, wider, answer, "Unknown classes", setting.ways):
        for score, measured in zip(_SCORES[-len(found) :], found, strict=True):
            known, unknown = setting.ways * setting.queries, open_ways * setting.queries
            counted = (min(known, unknown), known, unknown)
            auroc, accuracy, refused = (
                estimated(100 * each, counted=many) for each, many in zip(measured.mT, counted, strict=True)
            )
            rows.append(
                OpenRow(
                    run=session.name,
                    method=str(method),
                    shots=setting.shots,
                    open_ways=open_ways,
                    score=score,
                    auroc=auroc.mean,
                    auroc_ci95=auroc.ci95,
                    accuracy=accuracy.mean,
                    accuracy_ci95=accuracy.ci95,
                    refused=refused.mean,
                    refused_ci95=refused.ci95,
                )
            )
    return rows


def _scores(method: Method, batch: Batch, logits: Tensor, seed: int) -> list[Tensor]:
    """The `_SCORES` that the method has, ``(episodes, m)`` each; the greater, the better known."""
    likely = probabilities(logits, temperature_of(method, batch.features))
    scores = [likely.amax(-1), familiarity(method.prepare(batch.features))]
    if why_no_prediction_sets(method) is None:
        found = p_values(method, batch.features, "marginal", seed=seed, first=batch.first)
        scores.insert(0, found.amax(-1))
    return scores


def tell_apart(score: Tensor, known: Tensor, right: Tensor, accepted: float = 0.95) -> tuple[Tensor, Tensor, Tensor]:
    """How well a score tells known from unknown queries; of equal scores as many are accepted as are needed.

    Args:
        score: The greater, the better known ``(..., m)``.
        known: Whether a query's class has support, bool ``(..., m)``; in each episode as many, and not all.
        right: Whether it was correctly predicted, bool ``(..., m)``.
        accepted: The share of the known queries that is accepted; default 0.95.

    Returns:
        The area under the curve of known queries accepted over unknown ones accepted; the accuracy of the known
        queries that are accepted; the share of unknown ones that is refused; each ``(...)`` from 0 to 1.

    Example:
        >>> score = torch.tensor([0.9, 0.8, 0.3, 0.1])
        >>> tell_apart(score, torch.tensor([True, True, False, True]), torch.tensor([True, True, False, False]), 0.6)
        (tensor(0.6667), tensor(1.), tensor(1.))
    """
    episodes = score.shape[:-1]
    mine, other = score[known].view(*episodes, -1), score[~known].view(*episodes, -1)
    correct = right[known].view(*episodes, -1).to(score)
    pairs = mine.unsqueeze(-1) - other.unsqueeze(-2)
    auroc = ((pairs > 0).to(score) + (pairs == 0).to(score) / 2).mean((-2, -1))
    wanted = math.ceil(accepted * mine.shape[-1] - 1e-9)
    least = mine.topk(wanted, dim=-1).values[..., -1:]
    above, level = (mine > least).to(score), (mine == least).to(score)
    share = (wanted - above.sum(-1, keepdim=True)) / level.sum(-1, keepdim=True)
    accuracy = ((above + share * level) * correct).sum(-1) / wanted
    refused = 1 - ((other > least).to(score) + share * (other == least).to(score)).mean(-1)
    return auroc, accuracy, refused

"""How often prediction sets contain the true label, and how large they are."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..confidence.conformal import (
    PER_CLASS,
    attained_coverage,
    p_values,
    prediction_sets,
    require_attainable,
    require_prediction_sets,
    why_no_prediction_sets,
)
from ..errors import UsageError
from ..methods.base import Method
from .batches import Batch, MethodRow, collect
from .rows import summary
from .session import Session
from .setting import Setting


class CoverageRow(MethodRow, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of the table of prediction sets; all in percent but the size."""

    kind: str  # ``"per-class"`` or ``"marginal"``.
    asked: float  # The requested coverage.
    guaranteed: float  # The guaranteed coverage: the next step above it that this number of labelled images allows.
    covered: float  # Sets that contain the true label.
    ci95: float  # Half width of its 95 % interval.
    size: float  # Mean number of labels in a set.
    singletons: float  # Sets of one label, the predicted one.


def require_coverage(methods: Sequence[Method], settings: Sequence[Setting], coverage: float, kind: str) -> None:
    """Refuse methods without prediction sets, and settings none of which has the images to guarantee the coverage."""
    require_attainable(coverage, _labelled(max(settings, key=lambda setting: setting.shots)), kind)
    if not with_prediction_sets(methods):
        require_prediction_sets(methods[0])


def why_not_attainable(setting: Setting, coverage: float, kind: str) -> str | None:
    """What `require_attainable` says of the episodes of a setting; None if their images can guarantee it."""
    try:
        require_attainable(coverage, _labelled(setting), kind)
    except UsageError as error:
        return f"No prediction sets at {setting.shots} shot{'s' if setting.shots > 1 else ''}: {error}"
    return None


def _labelled(setting: Setting) -> Tensor:
    """One-hot labels of the support of an episode."""
    return torch.eye(setting.ways, device="cpu").repeat(setting.shots, 1)


def with_prediction_sets(methods: Sequence[Method]) -> list[Method]:
    """Those of the methods that have prediction sets."""
    return [method for method in methods if why_no_prediction_sets(method) is None]


def coverage_rows(
    session: Session, methods: Sequence[Method], setting: Setting, coverage: float, kind: str
) -> list[CoverageRow]:
    """Coverage and size of prediction sets in the episodes of a setting, a row for each method that has them."""
    points = setting.shots if kind == PER_CLASS else setting.ways * setting.shots

    def answer(method: Method, batch: Batch) -> Sequence[Tensor]:
        found = p_values(method, batch.features, kind, seed=setting.seed, first=batch.first)
        sets = prediction_sets(found, method.logits(batch.features).argmax(-1), coverage)
        hits = sets.gather(-1, batch.query_labels.unsqueeze(-1)).squeeze(-1)
        sizes = sets.sum(-1)
        return [each.double().mean(-1) for each in (hits, sizes, sizes == 1)]

    rows = []
    for method, (hits, sizes, singletons) in collect(
        session, with_prediction_sets(methods), setting, answer, "Prediction sets"
    ):
        covered = summary(setting, session.split)(100 * hits, counted=setting.ways * setting.queries)
        rows.append(
            CoverageRow(
                run=session.name,
                method=str(method),
                shots=setting.shots,
                kind=kind,
                asked=100 * coverage,
                guaranteed=100 * attained_coverage(coverage, points),
                covered=covered.mean,
                ci95=covered.ci95,
                size=sizes.mean().item(),
                singletons=100 * singletons.mean().item(),
            )
        )
    return rows

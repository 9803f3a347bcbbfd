"""How good the probabilities of methods are, before and after the temperature that the support chooses."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from torch import Tensor

from ..confidence.calibration import (
    brier_score,
    expected_calibration_error,
    negative_log_likelihood,
    probabilities,
    temperature_of,
    why_uncalibrated,
)
from ..heads import one_hot
from ..methods.base import Method
from .batches import Batch, MethodRow, collect
from .session import Session
from .setting import Setting


class Quality(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How good probabilities are; the smaller, the better."""

    ece: float  # Expected calibration error in percent, in 15 bins, of all episodes' queries together.
    brier: float  # Mean Brier score, 0 to 2.
    nll: float  # Mean negative log-likelihood.


class CalibrationRow(MethodRow, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of the table of calibration."""

    accuracy: float  # Mean accuracy in percent.
    before: Quality  # Of the softmax of the logits.
    after: Quality  # Of the softmax of the logits over the temperature.
    temperature: float  # The median temperature.
    # Why no labelled points confirm the temperature, see `why_uncalibrated`; None where they do.
    uncalibrated: str | None


def calibration_rows(session: Session, methods: Sequence[Method], setting: Setting) -> list[CalibrationRow]:
    """Calibration of methods in the episodes of a setting, a row for each."""
    sampler = setting.sampler(session.split)
    labels = sampler.query_labels(0, setting.episodes)

    def answer(method: Method, batch: Batch) -> Sequence[Tensor]:
        logits = method.logits(batch.features).double()
        temperature = temperature_of(method, batch.features)
        return [probabilities(logits), probabilities(logits, temperature), temperature]

    targets = one_hot(sampler.labels[: sampler.num_support], setting.ways)
    return [
        CalibrationRow(
            run=session.name,
            method=str(method),
            shots=setting.shots,
            accuracy=100 * (before.argmax(-1) == labels).double().mean().item(),
            before=_quality(before, labels),
            after=_quality(after, labels),
            temperature=temperature.median().item(),
            uncalibrated=why_uncalibrated(method, targets, sampler.ways * sampler.queries),
        )
        for method, (before, after, temperature) in collect(session, methods, setting, answer, "Calibration")
    ]


def _quality(shares: Tensor, labels: Tensor) -> Quality:
    return Quality(
        ece=100 * expected_calibration_error(shares, labels),
        brier=brier_score(shares, labels).mean().item(),
        nll=negative_log_likelihood(shares, labels).mean().item(),
    )

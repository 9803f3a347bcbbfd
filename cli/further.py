"""What ``fslstm eval`` measures besides accuracy, as typed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from . import options

if TYPE_CHECKING:
    from fslstm_plugin.evaluation.session import Session
    from fslstm_plugin.evaluation.setting import Setting
    from fslstm_plugin.methods.base import Method


@dataclass(frozen=True)
class Further:
    """The measurements; by default none."""

    calibration: Annotated[
        bool,
        typer.Option(
            "--calibration",
            help="Calibration error, Brier score and likelihood of the probabilities, before and after the temperature "
            "that each support chooses.",
        ),
    ] = False
    coverage: Annotated[
        Optional[float],
        typer.Option(
            help="Prediction sets with this guaranteed coverage, such as 0.8: the coverage they reach, and their size."
        ),
    ] = None
    coverage_kind: options.CoverageKind = None
    open_ways: Annotated[
        Optional[int],
        typer.Option(
            min=1, help="Queries of this many unknown classes among the others: which scores tell them apart."
        ),
    ] = None

    def check(self, session: Session, methods: Sequence[Method], settings: Sequence[Setting]) -> list[str]:
        """Refuse what cannot be measured, before anything is computed; what is left out is returned in sentences."""
        from fslstm_plugin.confidence.conformal import why_no_prediction_sets
        from fslstm_plugin.evaluation.coverage import require_coverage, why_not_attainable
        from fslstm_plugin.evaluation.open_set import with_unknown

        kind = options.coverage_kind(self.coverage, self.coverage_kind)
        if self.open_ways is not None:
            for setting in settings:
                with_unknown(setting, session.split, self.open_ways)
        if self.coverage is None:
            return []
        require_coverage(methods, settings, self.coverage, kind)
        reasons = [why_not_attainable(setting, self.coverage, kind) for setting in settings]
        reasons += [why_no_prediction_sets(method) for method in methods]
        return [reason for reason in reasons if reason is not None]

    def rows(self, session: Session, methods: Sequence[Method], settings: Sequence[Setting]) -> dict[str, list[Any]]:
        """The rows of each table that was asked for, see `fslstm_plugin.reporting.results.Results`."""
        from fslstm_plugin.evaluation.calibration import calibration_rows
        from fslstm_plugin.evaluation.coverage import coverage_rows, why_not_attainable
        from fslstm_plugin.evaluation.open_set import open_rows

        kind = options.coverage_kind(self.coverage, self.coverage_kind)
        found: dict[str, list[Any]] = {}
        for setting in settings:
            if self.calibration:
                found.setdefault("calibration", []).extend(calibration_rows(session, methods, setting))
            if self.coverage is not None and why_not_attainable(setting, self.coverage, kind) is None:
                mine = coverage_rows(session, methods, setting, self.coverage, kind)
                found.setdefault("coverage", []).extend(mine)
            if self.open_ways is not None:
                found.setdefault("open", []).extend(open_rows(session, methods, setting, self.open_ways))
        return found

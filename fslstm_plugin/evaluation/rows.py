"""The lines of a table: the accuracy of a method, with intervals and paired differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, NamedTuple

import torch
from msgspec import Meta, Struct

from ..data.base import Split
from ..methods.base import Method
from .runner import Outcome
from .setting import Setting
from .statistics import Estimate, estimate, estimate_over_classes, estimate_to_the_best, together

_Number = Annotated[int, Meta(ge=0, le=10**9)]
_Count = Annotated[int, Meta(ge=1, le=10**9)]
_AtLeastTwo = Annotated[int, Meta(ge=2, le=10**9)]
_Percent = Annotated[float, Meta(ge=0, le=100)]
_Difference = Annotated[float, Meta(ge=-100, le=100)]
_NotNegative = Annotated[float, Meta(ge=0)]


class Row(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of a table, as the JSON files hold it.

    Args:
        dataset: Name of the data set.
        split: ``"test"``, ``"val"`` or ``"train"``.
        backbone: Registered name.
        run: Name of the run whose weights were used.
        method: Name of the method, as typed.
        head: Registered name of the head, or of the method itself.
        modules: Names of what surrounds the head, for example ``["iam", "psm"]``.
        options: Arguments of the head or method that are not its defaults.
        adapters: Feature adapters before the head, as typed.
        transductive: Whether predictions depend on the other queries.
        iterations: Refits of the transductive module; None without one, or if it has no such number.
        ways: Classes per episode.
        shots: Support images per class.
        queries: Query images per class.
        episodes: Number of episodes.
        seed: Seed of the episodes.
        query_balance: How the queries are shared among the classes.
        interval: Sampling unit of the 95 % intervals.
        accuracy: Mean accuracy in percent.
        ci95: Half width of its 95 % interval in percent.
        seconds: Time from the features to the answers of all episodes; None where it was not measured carefully.
        difference: Mean paired difference to the best row of the same episodes, in percent.
        difference_ci95: Half width of its 95 % interval, which holds for all pairs of methods of the table at once; 0
            for the best row itself.
        reference: Name of the row that this one is measured against, see `reference`; None if there is none.
        reference_run: Name of the run of that row.
        gain: Mean paired difference to the reference, in percent.
        gain_ci95: Half width of its 95 % interval, which holds at once too; alone among the measurements of a
            reproduction.
        share_error: How far the classes' shares of an episode's predictions lie from the true ones: the absolute
            difference in percentage points, averaged over classes and episodes. None in older rows, without this
            number.
    """

    dataset: str
    split: str
    backbone: str
    run: str
    method: str
    head: str
    modules: list[str]
    options: dict[str, Any]
    adapters: list[str]
    transductive: bool
    iterations: _Number | None
    ways: _AtLeastTwo
    shots: _Count
    queries: _Count
    episodes: _AtLeastTwo
    seed: Annotated[int, Meta(ge=0)]
    query_balance: str
    interval: str
    accuracy: _Percent
    ci95: _NotNegative
    seconds: _NotNegative | None
    difference: _Difference
    difference_ci95: _NotNegative
    reference: str | None = None
    reference_run: str | None = None
    gain: _Difference | None = None
    gain_ci95: _NotNegative | None = None
    share_error: _Percent | None = None


class Measured(NamedTuple):
    """The outcome of a method of a run, with the names of the run and of its backbone."""

    run: str
    backbone: str
    outcome: Outcome

    @property
    def method(self) -> Method:
        """The method."""
        return self.outcome.method


def rows_of(
    measured: Sequence[Measured], split: Split, setting: Setting, tables: int = 1, gains_alone: bool = False
) -> list[Row]:
    """Accuracy, interval, time and paired differences of methods that were run on the same episodes; a row for each.

    ``tables`` is how many numbers of shots the table has, see `together`. The intervals of all differences hold at
    once, but with ``gains_alone`` those of gains hold each alone, for pages that make tables of their own of them.
    """
    summarize = summary(setting, split)
    accuracies = torch.stack([each.outcome.accuracies for each in measured])
    classes = None if setting.interval == "episodes" else setting.classes(split)
    counted = setting.ways * setting.queries
    compare = together(accuracies, tables, classes, counted)
    differences = estimate_to_the_best(accuracies, compare)
    gained = summarize if gains_alone else compare
    rows = []
    for each, difference in zip(measured, differences, strict=True):
        accuracy = summarize(each.outcome.accuracies, counted=counted)
        other = reference(each, measured)
        gain = None if other is None else gained(each.outcome.accuracies - other.outcome.accuracies)
        rows.append(
            Row(
                dataset=split.dataset,
                split=split.name,
                backbone=each.backbone,
                run=each.run,
                **each.method.description(),
                **asdict(setting),
                accuracy=accuracy.mean,
                ci95=accuracy.ci95,
                seconds=each.outcome.seconds,
                difference=difference.mean,
                difference_ci95=difference.ci95,
                reference=None if other is None else str(other.method),
                reference_run=None if other is None else other.run,
                gain=None if gain is None else gain.mean,
                gain_ci95=None if gain is None else gain.ci95,
                share_error=each.outcome.share_errors.mean().item(),
            )
        )
    return rows


def summary(setting: Setting, split: Split) -> Callable[..., Estimate]:
    """`estimate` or `estimate_over_classes`, as the setting requests."""
    if setting.interval == "episodes":
        return estimate
    return partial(estimate_over_classes, classes=setting.classes(split))


def reference(each: Measured, measured: Sequence[Measured]) -> Measured | None:
    """What a method is naturally measured against: `Method.references` on the same run, or itself on the first run.

    A plain head that is not there with its defaults may be there with other constants, as tuned. None if neither is
    there.

    Example:
        >>> from fslstm_plugin import parse_method
        >>> zeros = torch.zeros(2)
        >>> plain, refined = (Outcome(parse_method(name), zeros, zeros, 0.0) for name in ("nn", "nn+psm"))
        >>> rows = [Measured("a", "conv4", plain), Measured("a", "conv4", refined), Measured("b", "conv4", plain)]
        >>> [rows.index(found) if (found := reference(row, rows)) else None for row in rows]
        [None, 0, 0]
    """
    mine = [other for other in measured if other.run == each.run and other is not each]
    exact = {str(other.method): other for other in reversed(mine)}
    tuned = {other.method.family: other for other in reversed(mine) if other.method.is_head}
    if each.method.is_head:  # two that stand in for the default would be measured against each other
        tuned = {}
    for name in each.method.references:
        found = exact.get(name) or tuned.get(name)
        if found is not None:
            return found
    elsewhere = (other for other in measured if other.run == measured[0].run and other is not each)
    return next((other for other in elsewhere if str(other.method) == str(each.method)), None)

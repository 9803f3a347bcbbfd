"""From a trained model to the rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..algorithms.batch_statistics import episode_statistics
from ..backbones.base import normalization_of
from ..data.balance import QueryBalance
from ..data.base import Split
from ..data.images import make_images
from ..data.sampler import EpisodeSampler
from ..errors import UnknownNameError, UsageError
from .engine import FeatureSource, Method, Outcome, Report, method_label, run_methods
from .model import TrainedModel
from .ranks import ALONE, Ranks
from .statistics import Estimate, estimate, estimate_over_classes

_INTERVALS = ("episodes", "classes")
_MAX_EPISODES = 10**9


@dataclass(frozen=True)
class Setting:
    """The episodes of one column of a table.

    Args:
        ways: Classes an episode.
        shots: Support images a class.
        queries: Query images a class.
        episodes: Number of episodes.
        seed: What the episodes follow from.
        query_balance: ``"uniform"`` or ``"dirichlet:A"``, see :class:`~fslstm_plugin.data.balance.QueryBalance`.
        interval: What the 95 % intervals are over: ``"episodes"``, or ``"classes"`` for statements about new classes.
    """

    ways: int = 5
    shots: int = 5
    queries: int = 15
    episodes: int = 1000
    seed: int = 0
    query_balance: str = "uniform"
    interval: str = "episodes"

    def __post_init__(self) -> None:
        if not 2 <= self.episodes <= _MAX_EPISODES:
            raise UsageError(f"There can be 2 to {_MAX_EPISODES:,} episodes, but got {self.episodes}.")
        QueryBalance.parse(self.query_balance)
        if self.interval not in _INTERVALS:
            raise UnknownNameError("interval", self.interval, _INTERVALS)

    def sampler(self, split: Split) -> EpisodeSampler:
        """The episodes of a split.

        Raises:
            UsageError: If an episode needs more classes or images than there are.
        """
        balance = QueryBalance.parse(self.query_balance)
        return EpisodeSampler(split.labels, self.ways, self.shots, self.queries, self.seed, split.class_names, balance)


@dataclass(frozen=True)
class Row:
    """One line of a table, as the JSON files hold it.

    Args:
        dataset: Name of the data set.
        split: ``"test"``, ``"val"`` or ``"train"``.
        backbone: Registered name.
        head: Registered name.
        modules: What surrounds the head, for example ``["iam", "psm"]``.
        transductive: Whether predictions depend on the other queries.
        iterations: Refits of the transductive module; None without one, or if it has no such number.
        ways: Classes an episode.
        shots: Support images a class.
        queries: Query images a class.
        episodes: Number of episodes.
        seed: What the episodes follow from.
        query_balance: How the queries are shared among the classes.
        interval: What the 95 % intervals are over.
        options: Arguments of the head that are not its defaults.
        normalize: Whether features were brought to unit length.
        accuracy: Mean accuracy in percent.
        ci95: Half width of its 95 % interval in percent.
        seconds: Time from the features to the answers of all episodes.
        difference: Mean paired difference to the best row of the same episodes, in percent.
        difference_ci95: Half width of its 95 % interval; 0 for the best row itself.
        reference: Name of the row that this one is measured against, see :func:`reference`; None if there is none.
        gain: Mean paired difference to the reference, in percent.
        gain_ci95: Half width of its 95 % interval.
    """

    dataset: str
    split: str
    backbone: str
    head: str
    modules: list[str]
    transductive: bool
    iterations: int | None
    ways: int
    shots: int
    queries: int
    episodes: int
    seed: int
    query_balance: str
    interval: str
    options: dict[str, Any]
    normalize: bool
    accuracy: float
    ci95: float
    seconds: float
    difference: float
    difference_ci95: float
    reference: str | None = None
    gain: float | None = None
    gain_ci95: float | None = None

    @property
    def method(self) -> str:
        """See :attr:`~fslstm_plugin.evaluation.engine.Method.label`."""
        return method_label(self.head, self.modules, self.options, self.normalize)

    def as_dict(self) -> dict[str, Any]:
        """The row as plain data."""
        return asdict(self)


def cached_source(features: Tensor) -> FeatureSource:
    """Features looked up in those of the whole split ``(N, d)``."""
    return lambda indices: features.index_select(0, indices.flatten()).view(*indices.shape, -1)


def episode_statistics_source(model: TrainedModel, split: Split, device: torch.device) -> FeatureSource:
    """Features computed episode by episode with the batch statistics of the episode's own images (the "+BN" rows)."""
    backbone = model.backbone.to(device)

    def source(indices: Tensor) -> Tensor:
        with episode_statistics(backbone):
            episodes = [
                make_images(split.images[episode.cpu()].to(device), _everything(episode), normalization_of(backbone))
                for episode in indices
            ]
            return torch.stack([backbone(images).float() for images in episodes])

    return source


def _everything(indices: Tensor) -> Tensor:
    return torch.arange(len(indices), device=indices.device)


def evaluate(
    methods: Sequence[Method],
    source: FeatureSource,
    split: Split,
    backbone: str,
    setting: Setting,
    device: torch.device | str = "cpu",
    batch_episodes: int = 128,
    report: Report = lambda done, accuracies: None,
    workers: int | None = None,
    ranks: Ranks = ALONE,
) -> list[Row]:
    """Accuracy, interval and time of several methods on the same episodes.

    Args:
        methods: What to evaluate.
        source: From image indices to features.
        split: Where the episodes come from.
        backbone: Name of the backbone, for the rows.
        setting: Shape and number of the episodes.
        device: Where to compute.
        batch_episodes: Episodes at a time; the results do not depend on it.
        report: See :func:`run_methods`.
        workers: See :func:`run_methods`.
        ranks: See :func:`run_methods`.

    Returns:
        A row for each method.

    Raises:
        UsageError: If an episode needs more classes or images than there are.
        DataError: If a feature is infinite or not a number.
    """
    sampler = setting.sampler(split)
    outcomes = run_methods(source, sampler, methods, setting.episodes, device, batch_episodes, report, workers, ranks)
    return rows_of(outcomes, split, backbone, setting)


def rows_of(outcomes: Sequence[Outcome], split: Split, backbone: str, setting: Setting) -> list[Row]:
    """Accuracy, interval, time and paired differences of methods that were run on the same episodes.

    Args:
        outcomes: See :func:`run_methods`; of one call or of several.
        split: Where the episodes come from.
        backbone: Name of the backbone, for the rows.
        setting: Shape and number of the episodes.

    Returns:
        A row for each outcome.
    """
    methods = [outcome.method for outcome in outcomes]
    summarize = _summary(setting, setting.sampler(split), split)
    best = max(outcomes, key=lambda outcome: outcome.accuracies.mean().item())
    rows = []
    for outcome in outcomes:
        accuracy = summarize(outcome.accuracies)
        difference = summarize(outcome.accuracies - best.accuracies)
        row = Row(
            dataset=split.dataset,
            split=split.name,
            backbone=backbone,
            head=outcome.method.head_name,
            modules=list(outcome.method.modules),
            transductive=outcome.method.is_transductive,
            iterations=getattr(outcome.method.transduction, "iterations", None),
            **asdict(setting),
            options=dict(outcome.method.options),
            normalize=outcome.method.normalize,
            accuracy=accuracy.mean,
            ci95=accuracy.ci95,
            seconds=outcome.seconds,
            difference=difference.mean,
            difference_ci95=difference.ci95,
        )
        place = reference(outcome.method, methods)
        if place is not None:
            gain = summarize(outcome.accuracies - outcomes[place].accuracies)
            row = replace(row, reference=methods[place].label, gain=gain.mean, gain_ci95=gain.ci95)
        rows.append(row)
    return rows


def _summary(setting: Setting, sampler: EpisodeSampler, split: Split) -> Callable[[Tensor], Estimate]:
    """Mean and interval of one number an episode, as the setting wants it."""
    if setting.interval == "episodes":
        return estimate
    first_shots = sampler.batch(0, setting.episodes)[:, : sampler.num_support : setting.shots]
    return partial(estimate_over_classes, classes=split.labels[first_shots])


def reference(method: Method, methods: Sequence[Method]) -> int | None:
    """Place of the method that another is naturally measured against.

    With modules it is the same without the last of them; with changed options, or normalised, the same with the
    head's defaults; a plain head is measured against plain LSSVM, the paper's.

    Returns:
        The place among the methods, or None if that method is not there, or is this one.

    Example:
        >>> from fslstm_plugin.heads import PrototypeClassifier
        >>> from fslstm_plugin.transduction import PseudoSupportModule
        >>> plain = Method("nn", PrototypeClassifier())
        >>> with_psm = Method("nn", PrototypeClassifier(), transduction=PseudoSupportModule(), modules=("psm",))
        >>> reference(with_psm, [plain, with_psm]), reference(plain, [plain, with_psm])
        (0, None)
    """
    if method.modules:
        wanted = method_label(method.head_name, method.modules[:-1], method.options, method.normalize)
    elif method.options or method.normalize:
        wanted = method.head_name
    else:
        wanted = "lssvm"
    labels = [other.label for other in methods]
    return labels.index(wanted) if wanted in labels and wanted != method.label else None

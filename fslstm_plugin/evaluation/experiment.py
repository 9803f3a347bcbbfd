"""From a trained model to the rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ..algorithms.batch_statistics import episode_statistics
from ..backbones.base import normalization_of
from ..data.base import Split
from ..data.images import make_images
from ..data.sampler import EpisodeSampler
from ..transduction import CandidateSelection, PseudoSupportModule
from .engine import FeatureSource, Method, Outcome, run_methods
from .model import TrainedModel
from .ranks import ALONE, Ranks
from .statistics import estimate, paired_difference


@dataclass(frozen=True)
class Setting:
    """The episodes of one column of a table.

    Args:
        ways: Classes an episode.
        shots: Support images a class.
        queries: Query images a class.
        episodes: Number of episodes.
        seed: What the episodes follow from.
    """

    ways: int = 5
    shots: int = 5
    queries: int = 15
    episodes: int = 1000
    seed: int = 0


@dataclass(frozen=True)
class Row:
    """One line of a table, as the JSON files hold it.

    Args:
        dataset: Name of the data set.
        split: ``"test"``, ``"val"`` or ``"train"``.
        backbone: Registered name.
        head: Registered name.
        modules: What surrounds the head, for example ``["iam", "psm"]``.
        ways: Classes an episode.
        shots: Support images a class.
        queries: Query images a class.
        episodes: Number of episodes.
        seed: What the episodes follow from.
        accuracy: Mean accuracy in percent.
        ci95: Half width of its 95 % interval in percent.
        seconds: Time from the features to the answers of all episodes.
        difference: Mean paired difference to the best row of the same episodes, in percent.
        difference_ci95: Half width of its 95 % interval; 0 for the best row itself.
    """

    dataset: str
    split: str
    backbone: str
    head: str
    modules: list[str]
    ways: int
    shots: int
    queries: int
    episodes: int
    seed: int
    accuracy: float
    ci95: float
    seconds: float
    difference: float
    difference_ci95: float

    def as_dict(self) -> dict[str, Any]:
        """The row as plain data."""
        return asdict(self)


def cached_source(features: Tensor) -> FeatureSource:
    """Features looked up in those of the whole split ``(N, d)``."""
    return lambda indices: features[indices]


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
    report: Callable[[int], None] = lambda done: None,
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
        report: Called with the number of episodes done.
        workers: See :func:`run_methods`.
        ranks: See :func:`run_methods`.

    Returns:
        A row for each method.

    Raises:
        UsageError: If an episode needs more classes or images than there are.
        DataError: If a feature is infinite or not a number.
    """
    sampler = EpisodeSampler(
        split.labels, setting.ways, setting.shots, setting.queries, setting.seed, split.class_names
    )
    outcomes = run_methods(source, sampler, methods, setting.episodes, device, batch_episodes, report, workers, ranks)
    best = max(outcomes, key=lambda outcome: outcome.accuracies.mean().item())
    return [_row(outcome, best, split, backbone, setting) for outcome in outcomes]


def _row(outcome: Outcome, best: Outcome, split: Split, backbone: str, setting: Setting) -> Row:
    accuracy = estimate(outcome.accuracies)
    difference = paired_difference(outcome.accuracies, best.accuracies)
    return Row(
        dataset=split.dataset,
        split=split.name,
        backbone=backbone,
        head=outcome.method.head_name,
        modules=list(outcome.method.modules),
        **asdict(setting),
        accuracy=accuracy.mean,
        ci95=accuracy.ci95,
        seconds=outcome.seconds,
        difference=difference.mean,
        difference_ci95=difference.ci95,
    )


def comparison(model: TrainedModel, heads: Sequence[str], psm_iterations: int = 10) -> list[Method]:
    """Each head plain, with CAN and with PSM: the rows of the paper's table 3.

    Args:
        model: Whose heads to build; its Inverse Attention Module is left out, since it was trained for one head.
        heads: Registered names.
        psm_iterations: Iterations of the Pseudo Support Module.
    """
    can, psm = CandidateSelection(), PseudoSupportModule(psm_iterations)
    methods = []
    for name in heads:
        head = model.head(name)
        methods += [
            Method(name, head),
            Method(name, head, transduction=can, modules=("can",)),
            Method(name, head, transduction=psm, modules=("psm",)),
        ]
    return methods

"""The tasks of the figure "change of the support samples"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from rich.console import Console

from ..data.root import load_split
from ..evaluation.experiment import Setting
from ..evaluation.features import cached_features
from ..evaluation.model import TrainedModel
from ..files import write_json
from ..gram import EpisodeGram
from ..heads import one_hot
from ..reporting.figures.support import project
from ..runs import Run
from . import measurements, trainings
from .engine import Part, Request
from .specification import Specification
from .trainings import Training

_PANELS = 4


def measure(specification: Specification, parts: Sequence[Part], request: Request, console: Console) -> None:
    """The first episodes of each run with IAM, in the plane; four in all, or one for each run if there are more.

    They are kept as ``measured.json`` of the reproduction.
    """
    panels: list[dict[str, Any]] = []
    count = tasks_each(parts)
    for part in parts:
        run = part.source
        if isinstance(run, Training):
            run = trainings.ensure(run, request.runs, request.data_root, request.resume, console)
        panels += [_task(run, specification, request, episode) for episode in range(count)]
    where = measurements.provenance("given run" if request.given else request.scale.name)
    write_json(specification.folder / "measured.json", {"provenance": where, "seed": request.seed, "tasks": panels})


def tasks_each(parts: Sequence[Part]) -> int:
    """How many tasks of each model are shown."""
    return max(1, _PANELS // len(parts))


def _task(run: Run, specification: Specification, request: Request, episode: int) -> dict[str, Any]:
    model = TrainedModel.from_run(run)
    assert model.attention is not None, "the plan names only runs with IAM"
    split = load_split(run.config["dataset"], specification.split, request.data_root)
    features = cached_features(run.path / "cache", model.backbone, split, request.device)
    sampler = Setting(shots=specification.shots[0], seed=request.seed).sampler(split)
    indices, query_labels = sampler.batch(episode, 1)[0], sampler.query_labels(episode, 1)[0]
    support, query = features[indices].split([sampler.num_support, len(query_labels)])
    support_labels = sampler.labels[: sampler.num_support]
    targets = one_hot(support_labels, sampler.ways)
    with torch.inference_mode():
        adjusted = model.attention.adjust(support, targets, query)
        accuracies = []
        for points in (support, adjusted):
            predictions = model.trained_head.predict(EpisodeGram.from_features(points, query), targets).argmax(-1)
            accuracies.append((predictions == query_labels).double().mean().item() * 100)
    names = [split.class_names[label] for label in split.labels[indices[: sampler.num_support]]]
    points = zip(("support", "adjusted", "query"), project(support, adjusted, query), strict=True)
    return {
        "title": f"{run.config['dataset']}, {run.config['backbone']}, episode {episode}",
        "run": run.name,
        "training": trainings.describe(run.config),
        "classes": names,
        "support_labels": support_labels.tolist(),
        "query_labels": query_labels.tolist(),
        "before": accuracies[0],
        "after": accuracies[1],
        **{name: place.tolist() for name, place in points},
    }

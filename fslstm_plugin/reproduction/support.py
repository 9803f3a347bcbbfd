"""The tasks of the figure "change of the support samples"."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import torch
from msgspec import Struct

from ..errors import DataError
from ..evaluation.setting import Setting
from ..features import EpisodeFeatures
from ..heads import one_hot
from ..reporting.figures.support import Task, project
from ..storage.files import write_json
from ..storage.plain import read_plain, to_plain
from . import trainings
from .engine import Model, Part, Request, provenance
from .measurements import Provenance
from .specification import Reproduction


class Tasks(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``measured.json`` of this figure holds."""

    provenance: Provenance
    seed: int  # What the episodes follow from.
    tasks: tuple[Task, ...]


def read(folder: Path) -> Tasks | None:
    """The tasks of a reproduction; None if there are none."""
    file = folder / "measured.json"
    return read_plain(file, Tasks, DataError) if os.path.lexists(file) else None


def measure(reproduction: Reproduction, parts: Sequence[Part], request: Request) -> None:
    """Keep the first episodes of each run with IAM, in the plane: four in all, or one of each of more runs."""
    tasks = []
    for part in parts:
        model = Model.of(part, request)
        setting = Setting(shots=reproduction.specification.shots[0], seed=request.seed)
        tasks += [_task(model, part.methods[0], setting, episode) for episode in range(tasks_each(parts))]
    found = Tasks(provenance=provenance(request), seed=request.seed, tasks=tuple(tasks))
    write_json(reproduction.folder / "measured.json", to_plain(found), follow_links=False)


def tasks_each(parts: Sequence[Part]) -> int:
    """How many tasks of each model are shown."""
    return max(1, 4 // len(parts))


def _task(model: Model, name: str, setting: Setting, episode: int) -> Task:
    """An episode, with the method and with the same without its IAM."""
    session = model.session
    sampler = setting.sampler(session.split)
    indices, query_labels = sampler.batch(episode, 1)[0], sampler.query_labels(episode, 1)[0]
    support_labels = sampler.labels[: sampler.num_support]
    targets = one_hot(support_labels, sampler.ways).to(session.device)
    features = EpisodeFeatures.from_points(session.features[indices.to(session.device)], targets)
    (after,) = session.methods([name])
    (before,) = session.methods(after.references[:1] or [name])
    with torch.no_grad():
        adjusted = after.prepare(features).support
        predictions = [method.logits(features).argmax(-1).cpu() for method in (before, after)]
    accuracies = [(each == query_labels).double().mean().item() * 100 for each in predictions]
    points = [tuple(map(tuple, part.tolist())) for part in project(features.support, adjusted, features.query)]
    return Task(
        dataset=session.split.dataset,
        backbone=session.run.config.backbone,
        run=session.run.name,
        algorithm=trainings.algorithm_of(session.run.config),
        training=model.training,
        episode=episode,
        classes=tuple(session.split.class_names[each] for each in session.split.labels[indices[: sampler.num_support]]),
        support_labels=tuple(support_labels.tolist()),
        query_labels=tuple(query_labels.tolist()),
        before=accuracies[0],
        after=accuracies[1],
        support=points[0],
        adjusted=points[1],
        query=points[2],
    )

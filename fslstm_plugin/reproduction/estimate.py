"""What a reproduction would do, and how long that would take on this machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from ..errors import count_of
from ..evaluation.setting import Setting
from ..grammar import BATCH_NORM, parse
from ..model import FewShotModel
from ..reporting.words import listed
from ..runs.configuration import TrainConfig
from ..runs.folder import Run
from . import trainings
from .engine import Part, Request, describe, provenance, settings
from .outcomes import OutcomeStore
from .probes import seconds_per_episode, seconds_per_feature, seconds_per_step
from .support import tasks_each
from .trainings import Identity, Training

Pass = tuple[tuple[str, ...], Setting]  # Methods, and the episodes that they are evaluated in.


class Step(NamedTuple):
    """Something that would be done."""

    lines: Sequence[str]  # What it is.
    name: str = ""  # What its time stands beside.
    seconds: Callable[[], float] | None = None  # Measures, which takes a while, how long it takes; None: no time.


def planned_steps(parts: Sequence[Part], request: Request, planned: set[Identity]) -> Iterator[Step]:
    """What would be done, with times from measured steps and a few measured episodes.

    Trainings that are planned stand in earlier plans; these ones are added to them.
    """
    for part in parts:
        yield from _training_steps(part, request, planned)
        if part.specification.shows_tasks:
            what = f"draw {count_of(tasks_each(parts), 'task')}"
            yield Step([what], what, partial(_forward_seconds, part, request, ()))
        else:
            yield _evaluation_step(part, request)


def _training_steps(part: Part, request: Request, planned: set[Identity]) -> list[Step]:
    if isinstance(part.source, Run):
        return [Step([f"use {part.source.path}: {trainings.describe(part.config)}"])]
    steps: list[Step] = []
    training: Training | None = part.source
    while training is not None:
        key = trainings.wanted_identity(training)
        if key not in planned:
            steps.insert(0, _training_step(training, request))
        planned.add(key)
        training = training.begins_from
    return steps


def _evaluation_step(part: Part, request: Request) -> Step:
    left = _passes_left(part, request)
    if not left:
        return Step(["everything is measured already"])

    def seconds() -> float:
        each = (_episode_seconds(part, names, one, request) * one.episodes for names, one in left)
        return _forward_seconds(part, request, left) + sum(each)

    lines = [f"evaluate {listed(names, most=3)}: {describe(each)}" for names, each in left]
    return Step(lines, f"evaluation of {_title(part.source)}", seconds)


def _passes_left(part: Part, request: Request) -> list[Pass]:
    """What is evaluated: all, but to continue only the episodes that are not measured yet."""
    every = settings(part, request)
    run = trainings.finished(part.source, request.runs, request.data_root) if request.resume else None
    if run is None:
        return [(part.methods, each) for each in every]
    model = FewShotModel.from_run(run)
    store = OutcomeStore(run, model, part.split(request), request.device, provenance(request))
    left: list[Pass] = []
    for each in every:
        counts = {name: each.episodes - store.answered(name, each) for name in part.methods}
        for count in sorted(set(counts.values()) - {0}, reverse=True):
            some = tuple(name for name in part.methods if counts[name] == count)
            left.append((some, replace(each, episodes=max(count, 2))))
    return left


def _forward_seconds(part: Part, request: Request, left: Sequence[Pass]) -> float:
    images = len(part.split(request).labels)
    for names, each in left:
        if any(BATCH_NORM in (word.name for word in parse(name)) for name in names):
            # No features to keep: each episode has its own.
            images += each.ways * (each.shots + each.queries) * each.episodes
    return images * seconds_per_feature(part.config.backbone, part.config.image_size, request.device)


def _training_step(training: Training, request: Request) -> Step:
    steps = trainings.total_steps(training.config, request.data_root)
    run = trainings.existing(training, request.runs)
    done = trainings.steps_done(run) if run else 0
    if run is not None and done >= steps:
        return Step([f"use {run.path}: {trainings.describe(run.config)}"])
    title = _title(training)
    what = f"train {title}, {count_of(steps, 'step')}"
    if run is not None:
        what = f"continue {run.path} at step {done:,} of {steps:,}"
    return Step([what], title, lambda: (steps - done) * seconds_per_step(training.config, request.device))


def _title(source: Run | Training) -> str:
    """A run's name; a training's with the shots too, by which two of one name differ."""
    if isinstance(source, Run):
        return source.name
    config = source.config
    shots = f", {config.recipe.shots}-shot" if isinstance(config, TrainConfig) else ""
    return f"{source.name} ({trainings.algorithm_of(config)}{shots})"


def _episode_seconds(part: Part, names: tuple[str, ...], setting: Setting, request: Request) -> float:
    shape = Setting(setting.ways, setting.shots, setting.queries, episodes=2)  # The balance takes no time.
    split = part.split(request)
    model = part.config.backbone, part.config.image_size
    if part.methods[0] in part.specification.rivals:  # which may be built for the shots
        names = (trainings.algorithm_of(part.config),)
    key = model, names, shape, split.dataset, split.name, request.device
    if key not in _known:
        _known[key] = seconds_per_episode(split, *model, names, shape, request.device)
    return _known[key]


_known: dict[Hashable, float] = {}  # What was measured once is the same in every estimate.
_ROUND = (1, 2, 3, 5, 10, 15, 20, 30, 45)
_UNITS = (("s", 1, _ROUND), ("min", 60, _ROUND), ("h", 3600, _ROUND[:-1]), ("days", 86400, (2, 3, 5, 10, 20, 50, 100)))


def duration(seconds: float) -> str:
    """A time in a round number, so coarse that two measurements hardly ever differ in it.

    Example:
        >>> [duration(seconds) for seconds in (0.2, 17, 100, 4000, 200_000)]
        ['about 1 s', 'about 15 s', 'about 2 min', 'about 1 h', 'about 2 days']
    """
    places = [(number * size, f"about {number} {unit}") for unit, size, numbers in _UNITS for number in numbers]
    return min(places, key=lambda place: abs(math.log(max(seconds, 1) / place[0])))[1]

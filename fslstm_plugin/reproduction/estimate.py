"""What a reproduction would do, and how long that would take on this machine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import torch

from ..backbones.base import build_backbone
from ..data.base import Split
from ..data.root import load_split
from ..evaluation.runner import indexed, run_methods
from ..evaluation.setting import Setting
from ..grammar import parse
from ..methods import BATCH_NORM, parse_method
from ..model import FewShotModel
from ..reporting.words import listed
from ..runs import Run
from . import trainings
from .engine import Part, Request, Turn, describe, provenance, settings, turns
from .outcomes import OutcomeStore
from .outputs import SUPPORT
from .specification import Reproduction, Specification
from .support import tasks_each
from .trainings import Identity, Training

_FEW = 8  # Episodes that are measured.
_REPEATS = 3
_IMAGES = 32  # Of the measured steps.


@dataclass(frozen=True)
class Step:
    """Something that would be done.

    Args:
        what: In words.
        seconds: How long it would take; None for what stands in another step's time, or takes none.
    """

    what: str
    seconds: float | None = None

    def __str__(self) -> str:
        return self.what if self.seconds is None else f"{self.what}: {duration(self.seconds)}"


def estimate(reproduction: Reproduction, parts: Sequence[Part], request: Request, planned: set[Identity]) -> list[Step]:
    """What would be done, with times from measured steps and a few measured episodes.

    Args:
        reproduction: What is reproduced.
        parts: What :func:`~fslstm_plugin.reproduction.engine.plan` gives for it.
        request: What was asked for.
        planned: The trainings that stand in earlier estimates; these ones are added.

    Returns:
        A step for each training that is not planned yet, and for each evaluation.

    """
    steps, specification = [], reproduction.specification
    drawn = specification.shows == SUPPORT
    for part in parts:
        steps += _training_steps(part, request, planned)
        if drawn:
            seconds = _forward_seconds(specification, part, request, ())
            steps.append(Step(f"draw {tasks_each(parts)} tasks", seconds))
        else:
            steps += _evaluation_steps(specification, part, request)
    return steps


def total(steps: Sequence[Step]) -> Step:
    """All of it."""
    return Step("in all", sum(step.seconds or 0 for step in steps))


def _training_steps(part: Part, request: Request, planned: set[Identity]) -> list[Step]:
    if isinstance(part.source, Run):
        return [Step(f"use {part.source.path}: {trainings.describe(part.config)}")]
    steps: list[Step] = []
    training: Training | None = part.source
    while training is not None:
        key = trainings.wanted_identity(training)
        if key not in planned:
            steps.insert(0, _training_step(training, _image_seconds(part, request), request))
        planned.add(key)
        training = training.begins_from
    return steps


def _evaluation_steps(specification: Specification, part: Part, request: Request) -> list[Step]:
    left = _turns_left(specification, part, request)
    if not left:
        return [Step("everything is measured already")]
    seconds = _forward_seconds(specification, part, request, left)
    seconds += sum(_episode_seconds(specification, part, names, each, request) * each.episodes for names, each in left)
    steps = [Step(f"evaluate {listed(names, most=3)}: {describe(each)}") for names, each in left]
    return [*steps, Step("evaluation", seconds)]


def _turns_left(specification: Specification, part: Part, request: Request) -> list[Turn]:
    """What is evaluated: all, but to continue only what is not measured yet."""
    every = [turn for each in settings(specification, part, request) for turn in turns(specification, part, each)]
    run = trainings.finished(part.source, request.runs, request.data_root) if request.resume else None
    if run is None:
        return every
    split = load_split(run.config.dataset or "", specification.split, request.data_root)
    store = OutcomeStore(run, split, request.device, provenance(request))
    left = [(tuple(name for name in names if not store.has(name, each)), each) for names, each in every]
    return [(names, each) for names, each in left if names]


def _forward_seconds(specification: Specification, part: Part, request: Request, left: Sequence[Turn]) -> float:
    """Seconds that the backbone needs."""
    images = len(load_split(part.config.dataset or "", specification.split, request.data_root).labels)
    for names, each in left:
        if any(BATCH_NORM in (word.name for word in parse(name)) for name in names):
            # No features to keep: each episode has its own.
            images += each.ways * (each.shots + each.queries) * each.episodes
    return images * _image_seconds(part, request) / 3  # a forward pass costs about a third of a step


def _image_seconds(part: Part, request: Request) -> float:
    return seconds_per_image(part.config.backbone, part.config.image_size, request.device)


def _training_step(training: Training, image_seconds: float, request: Request) -> Step:
    steps = trainings.total_steps(training.config, trainings.training_images(training.config, request.data_root))
    run = trainings.existing(training, request.runs)
    done = trainings.steps_done(run) if run else 0
    if run is not None and done >= steps:
        return Step(f"use {run.path}: {trainings.describe(run.config)}")
    seconds = (steps - done) * trainings.images_per_step(training.config) * image_seconds
    if run is not None:
        return Step(f"continue {run.path} at step {done:,} of {steps:,}", seconds)
    return Step(f"train {training.name} ({trainings.algorithm_of(training.config)}), {steps:,} steps", seconds)


def _episode_seconds(
    specification: Specification, part: Part, names: tuple[str, ...], setting: Setting, request: Request
) -> float:
    """Seconds per episode of these methods."""
    few = replace(setting, episodes=_FEW, seed=0)
    split = load_split(part.config.dataset or "", specification.split, request.data_root)
    model = part.config.backbone, part.config.image_size
    if part.methods[0] in specification.rivals:  # which may be built for the shots
        names = (trainings.algorithm_of(part.config),)
    key = model, names, few, split.dataset, split.name, request.device
    if key not in _known:
        _known[key] = _measured_episode(split, *model, names, few, request.device)
    return _known[key]


_known: dict[Hashable, float] = {}  # What was measured once is the same in every estimate.


def _measured_episode(
    split: Split, backbone: str, image_size: int, names: Sequence[str], setting: Setting, device: torch.device
) -> float:
    """Seconds per episode, on random features and untrained parts."""
    model = FewShotModel.from_backbone(backbone, image_size=image_size).eval()
    with torch.no_grad():
        image = torch.zeros(1, 3, image_size, image_size)
        methods = [parse_method(name, dim=model.embed(image).shape[-1], backbone=model.backbone) for name in names]
        embedding = model.embedding_of(methods[0]).eval()  # that of all, whose trainings are one
        dim = embedding(image).shape[-1]
    features = torch.randn(len(split.labels), dim, generator=torch.Generator().manual_seed(0)).to(device)
    source = indexed(features, embedding.map_shape, features.mean(0))
    model.to(device)
    methods = [method.to(device) for method in methods]
    sampler = setting.sampler(split)
    whole = methods[0].embeds and methods[0].episode_statistics  # Seconds for each episode.
    episodes, repeats = (2, 1) if whole else (_FEW, _REPEATS)
    work = partial(run_methods, source, sampler, methods, episodes, device, workers=1)
    return _seconds(work, device, repeats) / (episodes + 1)  # The runner adds an episode, to warm up.


@cache
def seconds_per_image(backbone: str, image_size: int, device: torch.device | str) -> float:
    """Time of a training step for one image; measured once, the same in every estimate."""
    model = build_backbone(backbone, image_size).to(device).to(memory_format=torch.channels_last).train()
    images = torch.rand(_IMAGES, 3, image_size, image_size, device=device).to(memory_format=torch.channels_last)
    return _seconds(lambda: model(images).square().mean().backward(), device) / _IMAGES


def _seconds(work: Callable[[], Any], device: torch.device | str, repeats: int = _REPEATS) -> float:
    """The shortest time of a few that some work takes: what this machine can, whatever else it does just now.

    On the processor it is that of its threads, which other processes do not lengthen.
    """
    cuda = torch.device(device).type == "cuda"
    clock = time.perf_counter if cuda else time.process_time
    times = []
    for _ in range(repeats):
        began = clock()
        work()
        if cuda:
            torch.cuda.synchronize(device)
        times.append(clock() - began)
    return min(times) / (1 if cuda else torch.get_num_threads())


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

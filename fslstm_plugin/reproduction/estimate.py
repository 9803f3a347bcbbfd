"""What a reproduction would do, and how long that would take on this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import torch

from ..backbones.base import build_backbone
from ..data.root import load_split
from ..evaluation.engine import Method
from ..evaluation.experiment import Setting, cached_source, evaluate
from ..evaluation.methods import build_methods, parse_method
from ..evaluation.model import TrainedModel
from ..registry import HEADS
from ..runs import Run
from ..transduction import InverseAttentionModule
from . import trainings
from .engine import Part, Request, describe, settings
from .outputs import SUPPORT
from .specification import Specification
from .support import tasks_each
from .trainings import Training


def estimate(specification: Specification, parts: Sequence[Part], request: Request, planned: set[str]) -> list[str]:
    """What would be done, with times from a measured step and a few measured episodes.

    Args:
        specification: The reproduction.
        parts: What :func:`~fslstm_plugin.reproduction.engine.plan` gives for it.
        request: What was asked for.
        planned: Configurations of the trainings that stand in earlier estimates; these ones' are added.

    Returns:
        One line for each training that is not planned yet, and for each evaluation.
    """
    lines = []
    for part in parts:
        lines += _training_lines(part, request, planned)
        if specification.shows == SUPPORT:
            seconds = _forward_seconds(specification, part, request)
            lines.append(f"draw {tasks_each(parts)} tasks: about {_duration(seconds)}")
        else:
            lines += _evaluation_lines(specification, part, request)
    return lines


def _training_lines(part: Part, request: Request, planned: set[str]) -> list[str]:
    if isinstance(part.source, Run):
        return [f"use {part.source.path}: {trainings.describe(part.config)}"]
    lines: list[str] = []
    training: Training | None = part.source
    while training is not None:
        key = str(trainings.wanted_identity(training))
        if key not in planned:
            lines.insert(0, _training_line(training, _image_seconds(part, request), request))
        planned.add(key)
        training = training.begins_from
    return lines


def _evaluation_lines(specification: Specification, part: Part, request: Request) -> list[str]:
    columns = settings(specification, part, request)
    seconds = _forward_seconds(specification, part, request)
    seconds += sum(_episode_seconds(specification, part, each, request) * each.episodes for each in columns)
    lines = [f"evaluate {len(part.methods)} methods, {describe(each)}" for each in columns]
    return [*lines, f"evaluation: about {_duration(seconds)}"]


def _forward_seconds(specification: Specification, part: Part, request: Request) -> float:
    """Seconds that the backbone needs."""
    images = len(load_split(part.config["dataset"], specification.split, request.data_root).labels)
    if any("bn" in parse_method(name)[1] for name in part.methods):  # no features to keep: each episode has its own
        columns = settings(specification, part, request)
        images += sum(each.ways * (each.shots + each.queries) * each.episodes for each in columns)
    return images * _image_seconds(part, request) / 3  # a forward pass costs about a third of a step


def _image_seconds(part: Part, request: Request) -> float:
    return trainings.seconds_per_image(part.config["backbone"], part.config["image_size"], request.device)


def _training_line(training: Training, image_seconds: float, request: Request) -> str:
    images = len(load_split(training.config["dataset"], "train", request.data_root).labels)
    total = trainings.total_steps(training.config, images)
    run = trainings.existing(training, request.runs)
    done = trainings.steps_done(run) if run else 0
    if run is not None and done >= total:
        return f"use {run.path}: {trainings.describe(run.config)}"
    seconds = (total - done) * trainings.images_per_step(training.config) * image_seconds
    what = f"continue {run.path} at step {done:,} of" if run else f"train {training.name}:"
    words = "" if run else f" ({training.config.get('algorithm', 'pretraining')})"
    return f"{what} {total:,} steps{words}, about {_duration(seconds)}"


def _episode_seconds(specification: Specification, part: Part, setting: Setting, request: Request) -> float:
    """Seconds an episode, on random features and an untrained IAM."""
    split = load_split(part.config["dataset"], specification.split, request.data_root)
    backbone = build_backbone(part.config["backbone"], part.config["image_size"])
    dim = int(backbone.out_features)  # type: ignore[arg-type]
    attention = InverseAttentionModule(dim).to(request.device)
    features = torch.randn(len(split.labels), dim, device=request.device)
    methods: list[Method] = []
    for name in part.methods:
        head = parse_method(name)[0].head
        methods += build_methods([name], TrainedModel(backbone, head, HEADS.get(head)(), attention))
    few = 8
    began = time.perf_counter()
    evaluate(methods, cached_source(features), split, "", replace(setting, episodes=few), request.device, few)
    return (time.perf_counter() - began) / (few + 1)  # the engine runs one more, to warm up


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"

"""Short measurements of this machine, of which an estimate is made: an image, a training step, a test episode."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch
from msgspec.structs import replace

from ..backbones.base import build_backbone
from ..data.base import Split
from ..episodes import Episodes
from ..evaluation.runner import indexed, run_methods
from ..evaluation.setting import Setting
from ..model import FewShotModel
from ..naming import parse_method
from ..runs.configuration import Config, PretrainConfig, TrainConfig

_FEW = 8  # Episodes that are measured.
_REPEATS = 3
_IMAGES = 32  # Of a measured pass.


@cache
def seconds_per_feature(backbone: str, image_size: int, device: torch.device) -> float:
    """Time in which an image becomes features, in single precision."""
    model = build_backbone(backbone, image_size).to(device, memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
    images = _images(_IMAGES, image_size, device)
    return _seconds(torch.no_grad()(lambda: model(images)), device) / _IMAGES


def seconds_per_step(config: Config, device: torch.device) -> float:
    """Time of a step of a training in its own precision, on random images, from fresh weights."""
    same = replace(config, seed=0, max_steps=None)
    if isinstance(same, PretrainConfig):
        return _seconds_per_image(same, device) * same.recipe.batch_size * same.recipe.arithmetic
    return _seconds_per_task(replace(same, pretrained=None), device) * same.recipe.episodes_per_step


@cache
def _seconds_per_image(config: PretrainConfig, device: torch.device) -> float:
    """Time of an image of full size in a pretraining."""
    model = build_backbone(config.backbone, config.image_size)
    model.to(device, memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    images = _images(_IMAGES, config.image_size, device)
    return _seconds_of_step(lambda: model(images).square().mean(), config, device) / _IMAGES


@cache
def _seconds_per_task(config: TrainConfig, device: torch.device) -> float:
    """Time of an episode in a meta-training, with the method's own part."""
    from ..training.meta_training import episodic_module  # which imports Lightning

    recipe = config.recipe
    module = episodic_module(config, build_backbone(config.backbone, config.image_size))
    module.to(device, memory_format=torch.channels_last).train()
    labels = torch.arange(recipe.ways, device=device).repeat(recipe.shots + recipe.queries)
    images = _images(len(labels), config.image_size, device)
    episodes = Episodes(images[None], labels[None], recipe.ways * recipe.shots, recipe.ways)
    return _seconds_of_step(lambda: module.learn(episodes)[0], config, device)


def _seconds_of_step(loss_of: Callable[[], torch.Tensor], config: Config, device: torch.device) -> float:
    """Time of a loss in the precision of a training, and of its gradient."""

    def step() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bf16"):
            loss = loss_of()
        loss.backward()

    return _seconds(step, device)


def seconds_per_episode(
    split: Split, backbone: str, image_size: int, names: Sequence[str], setting: Setting, device: torch.device
) -> float:
    """Time of methods, all of one training, for a test episode of a shape, on random features and untrained parts."""
    model = FewShotModel.from_backbone(backbone, image_size=image_size).eval()
    with torch.no_grad():
        image = torch.zeros(1, 3, image_size, image_size)
        methods = [parse_method(name, dim=model.embed(image).shape[-1], backbone=model.backbone) for name in names]
        embedding = model.embedding_of(methods[0]).eval()  # that of all, whose trainings are one
        dim = embedding(image).shape[-1]
    generator = torch.Generator("cpu").manual_seed(0)
    features = torch.randn(len(split.labels), dim, generator=generator, device="cpu").to(device)
    source = indexed(features, embedding.map_shape, features.mean(0))
    model.to(device)
    methods = [method.to(device) for method in methods]
    sampler = setting.sampler(split)
    whole = methods[0].embeds and methods[0].episode_statistics  # Seconds for each episode.
    episodes, repeats = (1, 1) if whole else (_FEW, _REPEATS)
    work = partial(run_methods, source, sampler, methods, episodes, device, workers=1)
    return _seconds(work, device, repeats) / (episodes + 1)  # The runner adds an episode, to warm up.


def _images(number: int, side: int, device: torch.device) -> torch.Tensor:
    return torch.rand(number, 3, side, side, device=device).to(memory_format=torch.channels_last)


def _seconds(work: Callable[[], Any], device: torch.device, repeats: int = _REPEATS) -> float:
    """The shortest time of a few that some work takes: what this machine can, whatever else it does just now.

    On the CPU it is that of its threads, which other processes do not lengthen.
    """
    cuda = device.type == "cuda"
    clock = time.perf_counter if cuda else time.process_time
    times = []
    for _ in range(repeats):
        began = clock()
        work()
        if cuda:
            torch.cuda.synchronize(device)
        times.append(clock() - began)
    return min(times) / (1 if cuda else torch.get_num_threads())

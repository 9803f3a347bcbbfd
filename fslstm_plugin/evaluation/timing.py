"""Time that the backbone takes for an episode's images."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..backbones.base import normalization_of
from ..data.base import Split
from ..data.images import make_images
from .devices import Clock
from .setting import Setting


def backbone_seconds(backbone: nn.Module, split: Split, setting: Setting, device: torch.device | str = "cpu") -> float:
    """Mean seconds from an episode's images to their features, one episode at a time as in the paper's table 2.

    They are those of 20 episodes. One more warms up the backbone, which is in evaluation mode.
    """
    device = torch.device(device)
    backbone = backbone.to(device)
    first, *others = setting.sampler(split).batch(0, 1 + 20)

    def embed(episode: Tensor) -> None:
        images = split.images[episode].to(device)
        backbone(make_images(images, torch.arange(len(images), device=device), normalization_of(backbone)))

    with torch.inference_mode():
        embed(first)
        with Clock(device) as clock:
            for episode in others:
                embed(episode)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock.seconds / len(others)

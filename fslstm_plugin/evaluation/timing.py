"""Time that the backbone takes for an episode's images."""

from __future__ import annotations

import time

import torch
from torch import nn

from ..backbones.base import normalization_of
from ..data.base import Split
from ..data.images import make_images
from .setting import Setting


def backbone_seconds(
    backbone: nn.Module, split: Split, setting: Setting, device: torch.device | str = "cpu", episodes: int = 20
) -> float:
    """Mean seconds from an episode's images to their features, one episode at a time as in the paper's table 2.

    One more episode warms up a backbone, which is in evaluation mode.
    """
    device = torch.device(device)
    backbone = backbone.to(device)
    indices = setting.sampler(split).batch(0, episodes + 1)
    began = 0.0
    with torch.inference_mode():
        for number, episode in enumerate(indices):
            if number == 1:
                began = _now(device)
            images = split.images[episode].to(device)
            backbone(make_images(images, torch.arange(len(images), device=device), normalization_of(backbone)))
        return (_now(device) - began) / episodes


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()

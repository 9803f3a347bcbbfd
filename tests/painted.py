"""Small pictures of a few colours, and a backbone that tells them apart, for the commands on a user's own pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from fslstm_plugin.backbones import Conv4
from fslstm_plugin.storage.weights import save_tensors

COLOURS = {"blue": (30, 40, 220), "green": (40, 200, 30), "red": (220, 30, 40)}


def picture(colour: str, number: int) -> Image.Image:
    """A picture that is mostly of a colour; each number gives another."""
    noise = np.random.default_rng([number, *COLOURS[colour]]).normal(0, 40, (40, 48, 3))
    return Image.fromarray((np.array(COLOURS[colour]) + noise).clip(0, 255).astype(np.uint8))


def labelled(folder: Path, each: int = 5) -> Path:
    """A folder with a folder of so many pictures for each colour."""
    for colour in COLOURS:
        (folder / colour).mkdir(parents=True)
        for number in range(each):
            picture(colour, number).save(folder / colour / f"{number}.png")
    return folder


def unlabelled(folder: Path, each: int = 4) -> Path:
    """A folder of so many other pictures of each colour, named by it."""
    folder.mkdir(parents=True)
    for colour in COLOURS:
        for number in range(each):
            picture(colour, 100 + number).save(folder / f"{colour}-{number}.png")
    return folder


def backbone(folder: Path) -> list[str]:
    """Options of a small backbone, the same each time."""
    torch.manual_seed(1)
    file = folder / "conv4.safetensors"
    save_tensors(file, Conv4(image_size=84).state_dict())
    return ["--backbone", "conv4", "--weights", str(file)]

"""What another package may add to the plugin: a head, a backbone, a data set, a transductive module."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from fslstm_plugin.data.base import Dataset
from fslstm_plugin.data.prepared import RawSplit
from fslstm_plugin.heads import Dual, Head
from fslstm_plugin.transduction import TransductiveModule


class CentroidHead(Head):
    """The logit is the mean kernel value with a class's support."""

    def solve(self, kernel, targets):
        return Dual(targets / targets.sum(-2, keepdim=True), torch.zeros_like(targets[..., 0, :]))


class TinyBackbone(nn.Module):
    """Sixteen features, quickly."""

    out_features = 16

    def __init__(self, image_size):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 16, 5, stride=4), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )

    def forward(self, images):
        return self.net(images)


class PlainBackbone(nn.Sequential):
    """Twelve features without batch normalisation."""

    out_features = 12

    def __init__(self, image_size):
        super().__init__(nn.Conv2d(3, 12, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())


class AverageModule(TransductiveModule):
    """Averages the logits over the queries: useless, but transductive."""

    def refine(self, head, gram, targets):
        logits = head.predict(gram, targets)
        return logits + logits.mean(-2, keepdim=True)


class Dots(Dataset):
    """Classes of differently coloured noise."""

    name = "dots"
    title = "Dots"
    image_size = 32
    classes = {"train": 8, "val": 6, "test": 6}
    images_per_class = 30

    def read(self, root, source, report):
        random = np.random.default_rng(0)
        for split, count in self.classes.items():
            colours = random.uniform(60, 195, (count, 1, 1, 1, 3))
            images = (
                random.normal(colours, 40, (count, 30, self.image_size, self.image_size, 3))
                .clip(0, 255)
                .astype(np.uint8)
            )
            yield RawSplit(split, {f"{split}{number}": images[number] for number in range(count)}, np.asarray)


class WideDots(Dots):
    """The same with larger images."""

    name = "wide-dots"
    image_size = 48


DOTS = Dots()
WIDE_DOTS = WideDots()

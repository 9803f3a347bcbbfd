"""What another package may add to the plugin, each part in a few lines: heads, adapters, modules, methods, data."""

from __future__ import annotations

import numpy as np
import torch
from msgspec import structs
from torch import nn

from fslstm_plugin import Method
from fslstm_plugin.adapters import FeatureAdapter
from fslstm_plugin.data.base import Dataset
from fslstm_plugin.data.prepared import RawSplit
from fslstm_plugin.data.sets.folders import FolderDataset
from fslstm_plugin.heads import Dual, Head
from fslstm_plugin.recipes import BackboneRecipe
from fslstm_plugin.transduction import TransductiveModule


class CentroidHead(Head):
    """The logit is the mean kernel value with a class's support."""

    def solve(self, kernel, targets):
        return Dual(targets / targets.sum(-2, keepdim=True), torch.zeros_like(targets[..., 0, :]))


class Clip(FeatureAdapter):
    """No feature is above the greatest value."""

    def __init__(self, greatest=1.0):
        super().__init__()
        self.greatest = greatest

    def adapt(self, features):
        return features.derived(lambda points: points.clamp(max=self.greatest))


class Rescale(FeatureAdapter):
    """A factor for every feature, learned."""

    sizes = ("dim",)

    def __init__(self, dim, start=1.0):
        super().__init__()
        self.start = start
        self.factors = nn.Parameter(torch.full((dim,), float(start)))

    def adapt(self, features):
        return features.derived(lambda points: points * self.factors)


class AverageModule(TransductiveModule):
    """Averages the logits over the queries: useless, but transductive."""

    def refine(self, head, gram, targets):
        logits = head.predict(gram, targets)
        return logits + logits.mean(-2, keepdim=True)


class Lean(TransductiveModule):
    """The same by a weight that is learned."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(0.5))

    def refine(self, head, gram, targets):
        logits = head.predict(gram, targets)
        return logits + self.weight * logits.mean(-2, keepdim=True)


class LearnedSimilarity(Method):
    """Similarity to the class means after a linear map, which a loss of its own keeps near the identity."""

    is_transductive = False
    sizes = ("dim",)
    search_space = {"temperature": (0.1, 10.0)}

    def __init__(self, dim, temperature=1.0):
        super().__init__()
        self.temperature = temperature
        self.map = nn.Linear(dim, dim, bias=False)
        nn.init.eye_(self.map.weight)

    def logits(self, features):
        members = features.targets.to(features.support)
        means = members.mT @ features.support / members.sum(-2).unsqueeze(-1)
        return self.map(features.query) @ means.mT / self.temperature

    def loss(self, features, query_labels, criterion):
        loss, logits = super().loss(features, query_labels, criterion)
        identity = torch.eye(len(self.map.weight), device=self.map.weight.device)
        return loss + (self.map.weight - identity).square().mean(), logits

    def recipe(self, recipe, *, pretrained, test_shots):
        return structs.replace(recipe, label_smoothing=0.0)


class Projected(Method):
    """Class means after a layer for each image alone, trained by Adam on the distances to the right ones."""

    is_transductive = False
    sizes = ("backbone",)

    def __init__(self, backbone, size=8):
        super().__init__()
        self.size = size
        self.layer, self.scale = nn.Linear(backbone.out_features, size), nn.Parameter(torch.ones(()))

    def embed(self, backbone, images):
        return self.layer(backbone(images))

    def training_images(self, images):
        return images + 0.01 * torch.randn_like(images)

    def logits(self, features):
        members = features.targets.to(features.support)
        means = members.mT @ features.support / members.sum(-2).unsqueeze(-1)
        return -self.scale * torch.cdist(features.query, means)

    def loss(self, features, query_labels, criterion):
        logits = self.logits(features)
        return -logits.gather(-1, query_labels.unsqueeze(-1)).mean() + logits.exp().mean(), logits

    def recipe(self, recipe, *, pretrained, test_shots):
        return structs.replace(
            recipe, optimizer="adam", lr=1e-3, method_lr=1e-2, weight_decay=0.0, clip_norm=1.0, schedule="linear"
        )


class MapPeak(Method):
    """Compares the greatest value of each channel of the feature maps, by a scale that is learned."""

    is_transductive = False

    def __init__(self):
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(()))

    def logits(self, features):
        support, query = features.support_maps.amax((-2, -1)), features.query_maps.amax((-2, -1))
        members = features.targets.to(support)
        means = members.mT @ support / members.sum(-2).unsqueeze(-1)
        return -self.log_scale.exp() * torch.cdist(query, means)


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


class MappedBackbone(nn.Sequential):
    """Feature maps of 6 channels, and rates of its own for training from pretrained weights."""

    map_shape = (6, 2, 2)
    out_features = 24
    recipe = BackboneRecipe(lr=0.02, method_lr=0.03)

    def __init__(self, image_size):
        super().__init__(nn.Conv2d(3, 6, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())


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


class Pictures(FolderDataset):
    """Pictures in a folder for each class."""

    name = "pictures"
    title = "Pictures"
    image_size = 32
    classes = {"train": 3, "val": 2, "test": 3}


DOTS = Dots()
WIDE_DOTS = WideDots()
PICTURES = Pictures()

"""Endless training episodes as images, in an order that depends on the seed and the step alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytorch_lightning as pl

from ..data.base import Split
from ..data.images import Augmentation, make_images
from ..data.sampler import EpisodeSampler
from ..episodes import Episodes
from ..normalization import Normalization


@dataclass
class EpisodeStream:
    """The batches of one epoch of meta-training; iterate it again for the next epoch.

    Iterating begins at the module's global step. Step ``s`` takes the sampler's episodes ``s * episodes_per_step``
    and following, shared among the ranks, so that any number of devices trains on the same episodes, and a continued
    training sees what it would have seen.

    Args:
        split: Where the images come from; moved to the module's device once.
        sampler: Which images make an episode.
        normalization: The backbone's.
        augmentation: Random changes of the images.
        episodes_per_step: Episodes per step over all ranks.
        steps: Steps per epoch.
        module: The module in training.
    """

    split: Split
    sampler: EpisodeSampler
    normalization: Normalization
    augmentation: Augmentation
    episodes_per_step: int
    steps: int
    module: pl.LightningModule

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Episodes]:
        trainer, device = self.module.trainer, self.module.device
        share = self.episodes_per_step // trainer.world_size
        self.split = self.split.to(device)
        labels = self.sampler.labels.to(device).expand(share, -1)
        first = trainer.global_step
        for step in range(first, first - first % self.steps + self.steps):
            start = step * self.episodes_per_step + trainer.global_rank * share
            indices = self.sampler.batch(start, share).to(device)
            # The second number separates these draws from any other use of the same seed.
            keys = [(self.sampler.seed, 1, episode) for episode in range(start, start + share)]
            batch = make_images(self.split.images, indices, self.normalization, self.augmentation, keys)
            yield Episodes(batch, labels, self.sampler.num_support, self.sampler.ways)

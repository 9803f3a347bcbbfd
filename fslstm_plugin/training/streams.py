"""Endless training episodes as images, in an order that depends on the seed and the step alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import pytorch_lightning as pl
import torch
from torch import Tensor

from ..data.base import Split
from ..data.images import Augmentation, changes, make_images, uniform_draws
from ..data.sampler import EpisodeSampler
from ..episodes import Episodes
from ..evaluation.devices import sent
from ..normalization import Normalization

_TOGETHER = 2**24  # Numbers in the images that a GPU makes together.
_AHEAD = 64  # Steps whose indices and random numbers are made, and go to the device, together.


class Step(NamedTuple):
    """The images of a step: their indices, int64 ``(...)`` on the CPU, and the keys of `uniform_draws`."""

    indices: Tensor
    keys: Sequence[Sequence[int]]


def augmented(
    split: Split, steps: Iterable[Step], normalization: Normalization, augmentation: Augmentation | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """The indices of each step, equally many, on the split's device, and its images ``(..., 3, H, W)``.

    Nothing waits for the device. The images are changed at random by the augmentation, if there is one.
    """
    device, steps = split.images.device, iter(steps)
    together = 1
    while ahead := list(islice(steps, _AHEAD)):
        indices = sent(torch.stack([step.indices for step in ahead]), device)
        if device.type != "cpu":  # whose cache holds the images of one step
            together = max(1, _TOGETHER // (ahead[0].indices.numel() * split.images[0].numel()))
        every = None
        if augmentation is not None:
            draws = torch.stack([uniform_draws(step.keys, step.indices.numel()) for step in ahead])
            every = changes(augmentation, sent(draws, device), *split.images.shape[1:3])
        for first in range(0, len(ahead), together):
            part = slice(first, first + together)
            own = None if every is None else every.of(part)
            yield from zip(indices[part], make_images(split.images, indices[part], normalization, own), strict=True)


@dataclass
class EpisodeStream:
    """The batches of one epoch of meta-training; iterate it again for the next epoch.

    Iterating begins at the global step of the module in training. Step ``s`` takes the sampler's episodes
    ``s * episodes_per_step`` and following, shared among the ranks, so that any number of devices trains on the same
    episodes, and a continued training sees what it would have seen.

    The split is moved to the module's device once; ``steps`` are those of an epoch.
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
        trainer, device = self.module.trainer, torch.device(self.module.device)
        share = self.episodes_per_step // trainer.world_size
        self.split = self.split.to(device)
        labels = sent(self.sampler.labels, device).expand(share, -1)
        first = trainer.global_step
        numbers = range(first, first - first % self.steps + self.steps)
        steps = (self._step(number * self.episodes_per_step + trainer.global_rank * share, share) for number in numbers)
        for _, images in augmented(self.split, steps, self.normalization, self.augmentation):
            yield Episodes(images, labels, self.sampler.num_support, self.sampler.ways)

    def _step(self, start: int, share: int) -> Step:
        # The second number separates these draws from any other use of the same seed.
        keys = [(self.sampler.seed, 1, episode) for episode in range(start, start + share)]
        return Step(self.sampler.batch(start, share), keys)

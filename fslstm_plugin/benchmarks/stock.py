"""learn2learn's own path to CIFAR-FS: PNG files, decoded again for each task, one task at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..data.base import Split
from ..data.sets.cifarfs import CIFAR_FS
from ..errors import DataError
from ..normalization import Normalization
from .agreement import Disagreement
from .references import Reference


def require_cifarfs(root: Path) -> None:
    """Check that CIFAR-FS is there in both layouts, ours and learn2learn's; the message says what fixes it."""
    processed = root / "cifarfs" / "processed"
    if not CIFAR_FS.is_prepared(root):
        raise DataError(
            f"The benchmark of eval and train reads CIFAR-FS, which is not prepared in {CIFAR_FS.folder(root)}: "
            f"{CIFAR_FS.remedy(root)}"
        )
    if not all((processed / mode).is_dir() for mode in ("train", "test")):
        raise DataError(
            f"The benchmark of eval and train reads CIFAR-FS as learn2learn does too, but {processed} is missing: "
            f"remove {CIFAR_FS.folder(root)}, {CIFAR_FS.remedy(root)}"
        )


class StockTasks:
    """The benchmark's taskset, built as ``learn2learn.vision.benchmarks`` builds it.

    It is of ``"train"`` or ``"test"``; the transform makes of a PIL image a tensor ``(3, 32, 32)``.
    """

    def __init__(
        self, root: Path, mode: str, transform: Callable[[Any], Tensor], ways: int, shots: int, queries: int
    ) -> None:
        from learn2learn.data import MetaDataset, Taskset
        from learn2learn.data.transforms import ConsecutiveLabels, KShots, LoadData, NWays, RemapLabels
        from learn2learn.vision.datasets import CIFARFS

        images = CIFARFS(root=str(root), mode=mode, transform=transform)
        # With this path learn2learn would decode every image to learn the labels, and keep them beside the data.
        del images._bookkeeping_path
        meta = MetaDataset(images, indices_to_labels=dict(enumerate(images.targets)))
        transforms = [
            NWays(meta, ways),
            KShots(meta, shots + queries),
            LoadData(meta),
            RemapLabels(meta),
            ConsecutiveLabels(meta),
        ]
        self.taskset, self.ways, self.shots, self.queries = Taskset(meta, transforms), ways, shots, queries

    def sample(self) -> tuple[Tensor, Tensor]:
        """A task: images ``(N, 3, 32, 32)`` and labels in [0, ways) ``(N,)``, any order of classes."""
        return self.taskset.sample()

    def draw(self) -> tuple[Tensor, Tensor, Tensor]:
        """A task as `sample` gives it, and the indices of its images ``(N,)``."""
        description = self.taskset.sample_task_description()
        images, labels = self.taskset.get_task(description)
        return images, labels, torch.tensor([sample.index for sample in description])

    def ordered(self, labels: Tensor) -> Tensor:
        """The places of a task's samples, support first, in the order of `EpisodeSampler.labels`."""
        places = labels.argsort(stable=True).view(self.ways, self.shots + self.queries)
        return torch.cat([places[:, : self.shots].flatten(), places[:, self.shots :].flatten()])

    def logits(self, backbone: nn.Module, head: Reference, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of the queries of a task ``(m, ways)`` through backbone and head, and their labels ``(m,)``."""
        order = self.ordered(labels)
        vectors, labels = backbone(images)[order], labels[order]
        split = self.ways * self.shots
        return head(vectors[:split], labels[:split], vectors[split:], self.ways), labels[split:]


def plain_transform(normalization: Normalization) -> Callable[[Any], Tensor]:
    """The benchmark's ``ToTensor``, and the normalisation that the backbone needs."""
    from torchvision import transforms

    return transforms.Compose([transforms.ToTensor(), transforms.Normalize(normalization.mean, normalization.std)])


def augmenting_transform(normalization: Normalization) -> Callable[[Any], Tensor]:
    """The augmentation that learn2learn calls ``lee2019``, for 32 pixels; all on PIL images."""
    from torchvision import transforms

    return transforms.Compose(
        [
            transforms.RandomCrop(32, padding=4),
            transforms.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4),
            transforms.RandomHorizontalFlip(),
            plain_transform(normalization),
        ]
    )


def require_same_images(images: Tensor, indices: Tensor, split: Split, normalization: Normalization) -> None:
    """Check that learn2learn's images and those of the prepared data set are the same, byte for byte.

    Images ``(N, 3, H, W)`` were normalised by `plain_transform`; their indices ``(N,)`` are those of the prepared
    split.
    """
    mean, std = (torch.tensor(values)[:, None, None] for values in (normalization.mean, normalization.std))
    pixels = ((images * std + mean) * 255).round().to(torch.uint8).permute(0, 2, 3, 1)
    if not torch.equal(pixels, split.images[indices]):
        raise Disagreement(
            f"The {split.name} images of {split.dataset} are not those of learn2learn's files: prepare it again."
        )

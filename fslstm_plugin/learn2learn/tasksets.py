"""The prepared data sets as learn2learn tasksets, next to its own benchmarks."""

from __future__ import annotations

from functools import partial
from os.path import expanduser
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from ..data.base import SPLITS, Split
from ..data.root import LEARN2LEARN_ROOT, load_split
from ..registry import DATASETS


class SplitImages(Dataset):
    """A split as learn2learn's data sets are: one image and its label at a time; on no device they are memory-mapped.

    Example:
        >>> images = torch.zeros(2, 8, 8, 3, dtype=torch.uint8)
        >>> split = Split("toy", "train", images, torch.tensor([0, 1]), ("a", "b"))
        >>> image, label = SplitImages(split)[1]
        >>> image.shape, image.dtype, label
        (torch.Size([3, 8, 8]), torch.float32, 1)
    """

    def __init__(self, split: Split, device: torch.device | str | None = None) -> None:
        self._images = split.images if device is None else split.images.to(device)
        self._labels = split.labels.tolist()

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self._images[index].permute(2, 0, 1).float() / 255, self._labels[index]

    def members(self) -> dict[int, list[int]]:
        """Class to the indices of its images."""
        members: dict[int, list[int]] = {}
        for index, label in enumerate(self._labels):
            members.setdefault(label, []).append(index)
        return members


def tasksets(
    dataset: str,
    train_ways: int = 5,
    train_samples: int = 10,
    test_ways: int = 5,
    test_samples: int = 10,
    root: str | Path = LEARN2LEARN_ROOT,
    device: torch.device | str | None = None,
    **kwargs: Any,
) -> tuple[tuple[Any, ...], tuple[list[Any], ...]]:
    """What learn2learn's ``get_tasksets`` expects of a benchmark.

    Samples are images per class, shots and queries together; validation is as testing. On no device the images
    stay memory-mapped. Options of other benchmarks are ignored, as learn2learn's own do.

    learn2learn always passes a root, so its default, ``~/data``, counts as not given, and
    `data_root` decides.

    Returns:
        The train, validation and test data sets, and the transforms of their tasks. Images are float32
        ``(3, H, W)`` in [0, 1].

    Raises:
        DataError: If the data set is not prepared; the message has the command that fixes it.
    """
    from learn2learn.data import MetaDataset
    from learn2learn.data.transforms import ConsecutiveLabels, FusedNWaysKShots, LoadData, RemapLabels

    given = None if expanduser(root) == expanduser(LEARN2LEARN_ROOT) else Path(root)
    datasets, transforms = [], []
    for split in SPLITS:
        images = SplitImages(load_split(dataset, split, given), device)
        meta = MetaDataset(images, labels_to_indices=images.members())
        ways, samples = (train_ways, train_samples) if split == "train" else (test_ways, test_samples)
        choose = FusedNWaysKShots(meta, n=ways, k=samples)
        datasets.append(meta)
        transforms.append([choose, LoadData(meta), RemapLabels(meta), ConsecutiveLabels(meta)])
    return tuple(datasets), tuple(transforms)


def register_tasksets() -> None:
    """Add every registered data set to ``learn2learn.vision.benchmarks``, replacing no name that is there.

    Example:
        >>> register_tasksets()
        >>> from learn2learn.vision.benchmarks import list_tasksets
        >>> sorted(set(list_tasksets()) & {"glyphs", "cifar-fs", "mini", "cifarfs"})
        ['cifar-fs', 'cifarfs', 'glyphs', 'mini']
    """
    from learn2learn.vision import benchmarks

    for name in DATASETS.names():
        benchmarks._TASKSETS.setdefault(name, partial(tasksets, name))

"""Folders of images to pretrain on: Places365, or any folder with a folder for each class."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytorch_lightning as pl
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ..data.reading.decode import read_rgb, require_picture
from ..data.reading.walk import Report, class_folders
from ..errors import DataError, listed
from ..normalization import Normalization
from ..recipes import PretrainRecipe
from ..storage.files import require_regular, saying_why
from .classification import epoch_order

_TOGETHER = 256  # Files that a thread reads at a time.


@dataclass(frozen=True)
class FolderImages:
    """The images of a folder, by path and number of the class, and what is done with each in training."""

    files: Sequence[tuple[str, int]]
    classes: Sequence[str]
    transform: Callable[[Image.Image], Tensor]


def open_folder(
    folder: Path, image_size: int, normalization: Normalization, places: bool, report: Report
) -> FolderImages:
    """The images of a folder with the published transform: resize, random resized crop, flip.

    The folder is Places365-standard as torchvision lays it out, or one of class folders, on which `class_folders`
    reports. The images are resized to 92 pixels before crops of 84, to 36 before 32.
    """
    from torchvision import datasets, transforms

    transform = transforms.Compose(
        [
            transforms.Resize(image_size + (8 if image_size > 32 else 4)),
            transforms.RandomResizedCrop(image_size),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(normalization.mean, normalization.std),
        ]
    )
    if places:
        try:
            known = datasets.Places365(str(folder), small=True)
        except (OSError, RuntimeError) as error:
            layout = "Places365-standard (small images, as torchvision keeps it)"
            raise DataError(f"{folder} does not hold {layout}: {str(error).splitlines()[0]}") from error
        return FolderImages(known.imgs, known.classes, transform)
    found = class_folders(folder, report)
    if len(found) < 2:  # of which any classifier would be right about all pictures
        raise DataError(
            f"{folder} must hold a folder for each of at least two classes, but has {listed(list(found)) or 'none'}."
        )
    files = [(str(path), label) for label, paths in enumerate(found.values()) for path in paths]
    return FolderImages(files, list(found), transform)


def folder_digest(images: FolderImages) -> str:
    """Digest of a folder's images: of their classes, names and contents, in order.

    All files are read once, but not decoded, which an epoch does too.

    Raises:
        DataError: If `read_picture` would refuse one by its header, before hours of training.
    """
    files = [Path(name) for name, _ in images.files]
    parts = [files[start : start + _TOGETHER] for start in range(0, len(files), _TOGETHER)]
    digest = hashlib.blake2b(digest_size=16)
    with ThreadPoolExecutor() as pool:
        for each in pool.map(_digest, parts):
            digest.update(each)
    return digest.hexdigest()


def _digest(files: Sequence[Path]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        with saying_why(f"Cannot read {file}", DataError):
            content = require_regular(file).read_bytes()
        require_picture(file, content)
        name = os.fsencode(f"{file.parent.name}/{file.name}")
        digest.update(b"%d %d " % (len(name), len(content)) + name + content)
    return digest.digest()


class _Reproducible(Dataset):
    """Images whose random crop and flip follow from seed, epoch and image alone, in any process.

    torchvision draws them from torch's global generator, whose state is restored.
    """

    def __init__(self, images: FolderImages, seed: int, epoch: int) -> None:
        self.images, self.seed, self.epoch = images, seed, epoch

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        words = np.random.SeedSequence([self.seed, self.epoch, index]).generate_state(2)
        path, label = self.images.files[index]
        image = Image.fromarray(read_rgb(Path(path)))
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(words.view(np.uint64)[0]))
            return self.images.transform(image), label


class FolderBatches:
    """Batches of a folder's images, decoded by worker processes in the order of `epoch_order`.

    Like `SplitBatches`, it begins at the global step of the module, which is set later.
    """

    module: pl.LightningModule

    def __init__(self, images: FolderImages, recipe: PretrainRecipe, seed: int, workers: int) -> None:
        self.images, self.recipe, self.seed, self.workers = images, recipe, seed, workers

    def __len__(self) -> int:
        return self.recipe.steps_per_epoch(len(self.images.files))

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        trainer, size = self.module.trainer, self.recipe.batch_size
        epoch, first = divmod(trainer.global_step, len(self))
        order = epoch_order(len(self.images.files), self.seed, epoch)[: len(self) * size].view(len(self), size)
        mine = order[first:, trainer.global_rank :: trainer.world_size]
        images = _Reproducible(self.images, self.seed, epoch)
        try:
            yield from DataLoader(images, batch_sampler=mine.tolist(), num_workers=self.workers)
        except DataError as error:  # PyTorch puts the traceback of a worker before its message
            raise DataError(
                str(error.args[0]).splitlines()[-1].removeprefix(f"{DataError.__module__}.DataError: ")
            ) from None

"""Features of a whole split: computed once, kept beside the run, and verified when read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from ..backbones.base import normalization_of
from ..backbones.folding import fold_batch_norm
from ..data.base import Split, silent
from ..data.images import make_images
from ..errors import RunError, StorageError, UsageError
from ..storage.files import prune, subfolder
from ..storage.weights import checksum, load_tensors, save_tensors
from .devices import sent

Progress = Callable[[int, int], None]


def extract_features(
    backbone: nn.Module,
    split: Split,
    device: torch.device | str = "cpu",
    precision: str = "32",
    batch_size: int = 256,
    progress: Progress = silent,
) -> Tensor:
    """Features of every image of a split, float32 ``(N, d)`` on the CPU.

    Args:
        backbone: Maps images to vectors; used in evaluation mode, not changed.
        split: The images.
        device: Where to compute.
        precision: ``"32"``, or ``"bf16"``: bfloat16 in the backbone's products.
        batch_size: Images per forward pass.
        progress: Called with the number of images done and their total.
    """
    device = torch.device(device)
    normalization = normalization_of(backbone)
    backbone = fold_batch_norm(backbone).to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    reduced = torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")
    parts = []
    with torch.inference_mode(), reduced:
        for indices in torch.arange(len(split.labels), device=split.labels.device).split(batch_size):
            batch = sent(split.images[indices], device)
            images = make_images(batch, torch.arange(len(indices), device=device), normalization)
            parts.append(backbone(images).float())
            progress(int(indices[-1]) + 1, len(split.labels))
        features = torch.cat(parts).cpu()
    return features.clone()  # not an inference tensor: a method may need gradients


def cache_key(backbone: nn.Module, split: Split, precision: str) -> str:
    """What features depend on: layers, weights, images, normalisation, precision, as a short hexadecimal digest.

    A change in the code of a backbone's ``forward`` alone is not noticed.
    """
    digest = hashlib.blake2b(checksum(backbone.state_dict()).encode(), digest_size=16)
    digest.update(f"{split.dataset}/{split.name}{tuple(split.images.shape)}{normalization_of(backbone)}".encode())
    digest.update(split.digest.encode() if split.digest else split.images.contiguous().numpy().data)
    digest.update(f"{backbone} folded {precision} {torch.__version__}".encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class FeatureStore:
    """Features of splits, computed once and kept in a folder."""

    backbone: nn.Module  # Maps images to vectors.
    folder: Path | None  # The run's; its ``cache`` takes the files. None keeps nothing.
    device: torch.device | str = "cpu"  # Where to compute.
    precision: str = "32"  # See `extract_features`.
    # A word in the files' names, for features of another kind than a backbone's; default none.
    kind: tuple[str, ...] = ()
    note: Callable[[str], None] = silent  # Called with a sentence if the files cannot be kept, which is not an error.

    def features(self, split: Split, progress: Progress = silent) -> Tensor:
        """Features of every image, float32 ``(N, d)``; a file that is damaged or holds something else is replaced.

        Raises:
            RunError: If some features are not finite numbers, from which any accuracy could result.
        """
        return self._kept(split, "features", len(split.labels), progress, lambda features: features)

    def mean(self, split: Split, progress: Progress = silent) -> Tensor:
        """Mean feature of the images, float32 ``(d,)``; see `features`."""
        return self._kept(split, "mean", 1, progress, lambda each: each.double().mean(0, keepdim=True).float())[0]

    def class_means(self, split: Split, progress: Progress = silent) -> Tensor:
        """Mean feature of the images of each class, float32 ``(classes, d)``; see `features`."""

        def means(features: Tensor) -> Tensor:
            found = features.new_zeros(len(split.class_names), features.shape[1], dtype=torch.float64)
            labels = split.labels.to(found.device)
            return (found.index_add_(0, labels, features.double()) / labels.bincount().unsqueeze(1)).float()

        return self._kept(split, "class-means", len(split.class_names), progress, means)

    def _kept(
        self, split: Split, what: str, rows: int, progress: Progress, reduce: Callable[[Tensor], Tensor]
    ) -> Tensor:
        # The kind before the rest, so that no pattern of one kind matches the files of another.
        stem = "-".join([split.dataset, split.name, *self.kind, what, self.precision])
        name = f"{stem}-{cache_key(self.backbone, split, self.precision)}.safetensors"
        kept = None if self.folder is None else _read(self.folder / "cache" / name, rows)
        if kept is not None:
            return kept
        features = extract_features(self.backbone, split, self.device, self.precision, progress=progress)
        if not features.isfinite().all():
            raise RunError(
                f"Features of {split.dataset} {split.name} are infinite or not numbers: the weights of this "
                "backbone are damaged, or its training diverged."
            )
        kept = reduce(features)
        if self.folder is not None:
            try:
                file = subfolder(self.folder, "cache") / name
                save_tensors(file, {"features": kept})
                prune(file.parent, keep=file, pattern=f"{stem}-*.safetensors")
            except (StorageError, UsageError) as error:
                self.note(f"The features are not kept: {error}")
        return kept


def _read(file: Path, rows: int) -> Tensor | None:
    """Features of this shape from a file, or None if it is absent, damaged or has an unexpected format."""
    if not file.is_file():
        return None
    try:
        features = load_tensors(file)["features"]
    except (RunError, KeyError):
        return None
    return features if features.dtype == torch.float32 and features.ndim == 2 and len(features) == rows else None

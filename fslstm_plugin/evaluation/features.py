"""Features of a whole split: computed once, kept beside the run, noticed when damaged."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from ..backbones.base import normalization_of
from ..backbones.folding import fold_batch_norm
from ..data.base import Split
from ..data.images import make_images
from ..errors import RunError
from ..normalization import Normalization
from ..weights import load_tensors, save_tensors


def extract_features(
    backbone: nn.Module,
    split: Split,
    device: torch.device | str = "cpu",
    batch_size: int = 256,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Tensor:
    """Features of every image of a split.

    Args:
        backbone: Maps images to vectors; used in evaluation mode, not changed.
        split: The images.
        device: Where to compute.
        batch_size: Images a forward pass.
        report: Called with the number of images done and their total.

    Returns:
        float32 ``(N, d)`` on the processor.
    """
    normalization = normalization_of(backbone)
    backbone = fold_batch_norm(backbone).to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    parts = []
    with torch.inference_mode():
        for indices in torch.arange(len(split.labels)).split(batch_size):
            images = make_images(
                split.images[indices].to(device), torch.arange(len(indices), device=device), normalization
            )
            parts.append(backbone(images).float().cpu())
            report(int(indices[-1]) + 1, len(split.labels))
    return torch.cat(parts)


def cache_key(backbone: nn.Module, split: Split, normalization: Normalization) -> str:
    """What features depend on: layers, weights, images and normalisation, as a short hexadecimal digest.

    A change of the code of a backbone's ``forward`` alone is not seen.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name, value in sorted(backbone.state_dict().items()):
        digest.update(f"{name}{tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    digest.update(f"{split.dataset}/{split.name}{tuple(split.images.shape)}{normalization}".encode())
    digest.update(split.images.contiguous().numpy().data)
    digest.update(f"{backbone} folded {torch.__version__}".encode())
    return digest.hexdigest()


def cached_features(
    folder: Path,
    backbone: nn.Module,
    split: Split,
    device: torch.device | str = "cpu",
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Tensor:
    """Features of a split from the cache, or computed and put there.

    Args:
        folder: Cache folder; made if needed.
        backbone: Maps images to vectors.
        split: The images.
        device: Where to compute what is not cached.
        report: Called with the number of images done and their total while computing.

    Returns:
        float32 ``(N, d)``. A cache file that is damaged or of something else is made anew.

    Raises:
        RunError: If there are features that are no finite numbers, from which any accuracy could come.
    """
    key = cache_key(backbone, split, normalization_of(backbone))
    file = folder / f"{split.dataset}-{split.name}-{key}.safetensors"
    features = _read(file, len(split.labels))
    if features is None:
        features = extract_features(backbone, split, device, report=report)
        if not features.isfinite().all():
            raise RunError(
                f"Features of {split.dataset} {split.name} are infinite or not numbers: the weights of this "
                "backbone are damaged, or its training diverged."
            )
        folder.mkdir(parents=True, exist_ok=True)
        save_tensors(file, {"features": features})
    return features


def _read(file: Path, images: int) -> Tensor | None:
    """The features of so many images in a cache file, or None if it is absent or damaged."""
    try:
        features = load_tensors(file)["features"]
    except (RunError, KeyError):
        return None
    fits = features.dtype == torch.float32 and features.ndim == 2 and len(features) == images
    return features if fits else None

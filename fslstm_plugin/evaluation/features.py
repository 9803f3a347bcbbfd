"""Features of a whole split: computed once, kept beside the run, noticed when damaged."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor, nn

from ..backbones.base import normalization_of
from ..backbones.folding import fold_batch_norm
from ..data.base import Split
from ..data.images import make_images
from ..errors import RunError
from ..weights import save_tensors

Progress = Callable[[int, int], None]


def _silent(done: int, total: int) -> None:
    """Tell nobody."""


def extract_features(
    backbone: nn.Module,
    split: Split,
    device: torch.device | str = "cpu",
    precision: str = "32",
    batch_size: int = 256,
    progress: Progress = _silent,
) -> Tensor:
    """Features of every image of a split.

    Args:
        backbone: Maps images to vectors; used in evaluation mode, not changed.
        split: The images.
        device: Where to compute.
        precision: ``"32"``, or ``"bf16"``: bfloat16 in the backbone's products.
        batch_size: Images per forward pass.
        progress: Called with the number of images done and their total.

    Returns:
        float32 ``(N, d)`` on the processor.
    """
    device = torch.device(device)
    normalization = normalization_of(backbone)
    backbone = fold_batch_norm(backbone).to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    reduced = torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext()
    parts = []
    with torch.inference_mode(), reduced:
        for indices in torch.arange(len(split.labels)).split(batch_size):
            images = make_images(
                split.images[indices].to(device), torch.arange(len(indices), device=device), normalization
            )
            parts.append(backbone(images).float().cpu())
            progress(int(indices[-1]) + 1, len(split.labels))
    return torch.cat(parts).clone()  # no inference tensor: a method may want gradients


def cache_key(backbone: nn.Module, split: Split, precision: str) -> str:
    """What features depend on: layers, weights, images, normalisation, precision, as a short hexadecimal digest.

    A change of the code of a backbone's ``forward`` alone is not seen.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name, value in sorted(backbone.state_dict().items()):
        digest.update(f"{name}{tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    digest.update(f"{split.dataset}/{split.name}{tuple(split.images.shape)}{normalization_of(backbone)}".encode())
    digest.update(split.digest.encode() if split.digest else split.images.contiguous().numpy().data)
    digest.update(f"{backbone} folded {precision} {torch.__version__}".encode())
    return digest.hexdigest()


def cached_features(
    folder: Path | None,
    backbone: nn.Module,
    split: Split,
    device: torch.device | str = "cpu",
    precision: str = "32",
    progress: Progress = _silent,
) -> Tensor:
    """Features of a split from the cache, or computed and put there.

    Args:
        folder: Cache folder, made if needed; None for no cache.
        backbone: Maps images to vectors.
        split: The images.
        device: Where to compute what is not cached.
        precision: See :func:`extract_features`.
        progress: Called with the number of images done and their total while computing.

    Returns:
        float32 ``(N, d)``. A cache file that is damaged or of something else is made anew.

    Raises:
        RunError: If there are features that are no finite numbers, from which any accuracy could come.
    """
    return _cached(folder, backbone, split, device, precision, progress, mean=False)


def cached_mean(
    folder: Path | None,
    backbone: nn.Module,
    split: Split,
    device: torch.device | str = "cpu",
    precision: str = "32",
    progress: Progress = _silent,
) -> Tensor:
    """Mean feature ``(d,)`` of a split's images, float32; see :func:`cached_features`."""
    return _cached(folder, backbone, split, device, precision, progress, mean=True)[0]


def _cached(
    folder: Path | None,
    backbone: nn.Module,
    split: Split,
    device: torch.device | str,
    precision: str,
    progress: Progress,
    mean: bool,
) -> Tensor:
    name = f"{split.dataset}-{split.name}{'-mean' if mean else ''}"
    file = None if folder is None else folder / f"{name}-{cache_key(backbone, split, precision)}.safetensors"
    features = None if file is None else _read(file, 1 if mean else len(split.labels))
    if features is not None:
        return features
    features = extract_features(backbone, split, device, precision, progress=progress)
    if not features.isfinite().all():
        raise RunError(
            f"Features of {split.dataset} {split.name} are infinite or not numbers: the weights of this "
            "backbone are damaged, or its training diverged."
        )
    if mean:
        features = features.double().mean(0, keepdim=True).float()
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        save_tensors(file, {"features": features}, {"checksum": str(_checksum(features))})
    return features


def _checksum(features: Tensor) -> int:
    return zlib.crc32(features.numpy().data)


def _read(file: Path, images: int) -> Tensor | None:
    """The features of so many images in a cache file, or None if it is absent or damaged."""
    from safetensors import SafetensorError, safe_open

    if not file.is_file():
        return None
    try:
        with safe_open(file, framework="pt") as content:
            features = content.get_tensor("features")
            expected = (content.metadata() or {}).get("checksum")
    except (SafetensorError, OSError, ValueError):
        return None
    # The checksum is of the numbers' bytes alone.
    fits = features.dtype == torch.float32 and features.ndim == 2 and len(features) == images
    return features if fits and expected == str(_checksum(features)) else None

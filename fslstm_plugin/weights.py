"""Weights files: read without running code, loaded only where every tensor fits."""

from __future__ import annotations

import hashlib
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from .errors import RunError
from .files import damaged_member, replacing

_CHECKSUM = "blake2b"
_DIFFERS = "its content does not fit its checksum"


def save_tensors(file: Path, tensors: dict[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file with a checksum of its content, so that it is whole or absent.

    Args:
        file: Its place; the folder must exist.
        tensors: What to save, by name.
        metadata: Texts that are saved with them, by name. Default none.

    Raises:
        StorageError: If the file cannot be written.
    """
    from safetensors.torch import save

    metadata = metadata or {}
    content = save(tensors, {**metadata, _CHECKSUM: checksum(tensors, metadata)})
    with replacing(file) as temporary:  # safetensors' own writer would leave a partial file when killed
        temporary.write_bytes(content)


def checksum(tensors: dict[str, Tensor], metadata: Mapping[str, str] | None = None) -> str:
    """Digest of names, types, shapes and numbers, and of texts by name; blake2b of 16 bytes in hexadecimal."""
    import torch

    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    for pair in sorted((metadata or {}).items()):
        digest.update(repr(pair).encode())
    return digest.hexdigest()


def load_tensors(file: Path) -> dict[str, Tensor]:
    """Tensors of a safetensors file, or of a ``.pth``/``.ckpt`` file read without running any code in it.

    Checksums are compared where the file has some, as all of :func:`save_tensors` and nearly all of PyTorch have.

    Args:
        file: The file.

    Raises:
        RunError: If the file is missing, damaged, or holds more than tensors and plain containers.
    """
    if not file.is_file():
        raise RunError(f"There are no weights at {file}. Train first, or name another run or file.")
    try:
        return _read_tensors(file)
    except Exception as error:  # readers raise many types, as files can be damaged in many ways
        raise RunError(
            f"Cannot read weights from {file}: it is damaged or not a weights file ({_reason(error)})."
        ) from error


def load_described(file: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a file that :func:`save_tensors` wrote, whatever its name ends with.

    Args:
        file: The file; it must exist.

    Raises:
        RunError: If it is damaged or not a safetensors file.
    """
    try:
        return _read_safetensors(file)
    except Exception as error:  # see load_tensors
        raise RunError(f"{file} is damaged, or no file that fslstm wrote ({_reason(error)}).") from error


def _reason(error: Exception) -> str:
    """A reader's message, without PyTorch's advice to read the file unprotected."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    refused = [line.partition("WeightsUnpickler error: ")[2] for line in lines if "WeightsUnpickler error: " in line]
    return (refused or lines)[0].partition(" Please use")[0].rstrip(".") or type(error).__name__


def _read_tensors(file: Path) -> dict[str, Tensor]:
    import torch

    if file.suffix == ".safetensors":
        return _read_safetensors(file)[0]
    if zipfile.is_zipfile(file) and damaged_member(file):
        raise ValueError(_DIFFERS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pickles that PyTorch itself would not write
        content = torch.load(file, map_location="cpu", weights_only=True)
    for nested in ("state_dict", "params", "model"):
        if isinstance(content, dict) and isinstance(content.get(nested), dict):
            content = content[nested]
    if not isinstance(content, dict):
        raise TypeError("expected a dictionary of tensors")
    tensors = {str(key): value for key, value in content.items() if isinstance(value, Tensor)}
    for key, value in tensors.items():
        if value.layout is not torch.strided or value.is_quantized:
            raise TypeError(f"{key} is a sparse or quantised tensor")
    if not tensors:
        raise TypeError(f"it holds no tensors, but {', '.join(map(str, content)) or 'nothing'}"[:200])
    return tensors


def _read_safetensors(file: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    from safetensors import safe_open

    with safe_open(file, framework="pt") as content:
        tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118 - it is no dictionary
        metadata = content.metadata() or {}
    expected = metadata.pop(_CHECKSUM, None)
    if expected not in (None, checksum(tensors, metadata)):
        raise ValueError(_DIFFERS)
    return tensors, metadata


def load_into(module: nn.Module, state: dict[str, Tensor], source: Path | str) -> None:
    """Load a state whose names and shapes must fit exactly.

    Raises:
        RunError: As `require_fit` does.
    """
    require_fit(module, state, source)
    module.load_state_dict(state)


def require_fit(module: nn.Module, state: dict[str, Tensor], source: Path | str) -> None:
    """Check a state's names, shapes and numbers, for a module that may lie on the meta device.

    Raises:
        RunError: Naming the tensors that are missing, unexpected, of another shape, or not finite.
    """
    own = module.state_dict()
    missing = sorted(own.keys() - state.keys())
    unexpected = sorted(state.keys() - own.keys())
    common = sorted(own.keys() & state.keys())
    fitting = [key for key in common if own[key].shape == state[key].shape]
    reshaped = [
        f"{key} {tuple(state[key].shape)} instead of {tuple(own[key].shape)}" for key in common if key not in fitting
    ]
    # Only those that fit: a small file may hold a tensor that is expanded to any size.
    infinite = [key for key in fitting if not state[key].to(own[key].dtype).isfinite().all()]
    faults = [
        f"{what}: {', '.join(keys[:4])}{f' and {len(keys) - 4} more' if len(keys) > 4 else ''}"
        for what, keys in (
            ("missing", missing),
            ("unexpected", unexpected),
            ("of another shape", reshaped),
            ("infinite or not a number", infinite),
        )
        if keys
    ]
    if faults:
        raise RunError(f"The weights in {source} do not fit this {type(module).__name__} ({'; '.join(faults)}).")

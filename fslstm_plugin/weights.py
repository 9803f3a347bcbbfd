"""Weights files: read without running code, loaded only where every tensor fits."""

from __future__ import annotations

import warnings
from pathlib import Path

from torch import Tensor, nn

from .errors import RunError, StorageError
from .files import replacing


def save_tensors(file: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file so that it is whole or absent.

    Args:
        file: Its place; the folder must exist.
        tensors: What to save, by name.
        metadata: Strings to keep with them.

    Raises:
        StorageError: If the file cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        with replacing(file) as temporary:
            temporary.touch()
            mode = temporary.stat().st_mode
            save_file(tensors, temporary, metadata)
            temporary.chmod(mode)  # safetensors makes its files readable for their owner alone
    except SafetensorError as error:
        raise StorageError(f"Cannot write {file}: {error}.") from error


def load_tensors(file: Path) -> dict[str, Tensor]:
    """Tensors of a safetensors file, or of a ``.pth``/``.ckpt`` file read without running any code in it.

    Args:
        file: The file.

    Raises:
        RunError: If the file is missing, damaged, or holds more than tensors and plain containers.
    """
    if not file.is_file():
        raise RunError(f"There are no weights at {file}. Train first, or name another run or file.")
    try:
        return _read_tensors(file)
    except Exception as error:  # every reader has its own errors for the many ways of being damaged
        raise RunError(
            f"Cannot read weights from {file}: it is damaged or not a weights file ({_reason(error)})."
        ) from error


def _reason(error: Exception) -> str:
    """What a reader says, without PyTorch's advice to read the file unprotected."""
    lines = str(error).splitlines() or [type(error).__name__]
    refused = [line.partition("WeightsUnpickler error: ")[2] for line in lines if "WeightsUnpickler error: " in line]
    return (refused or lines)[0].partition(" Please use")[0].rstrip(".")


def _read_tensors(file: Path) -> dict[str, Tensor]:
    import torch
    from safetensors.torch import load_file

    if file.suffix == ".safetensors":
        return load_file(file)
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


def load_into(module: nn.Module, state: dict[str, Tensor], source: Path | str) -> None:
    """Load a state whose names and shapes must fit exactly.

    Raises:
        RunError: Naming the tensors that are missing, unexpected, of another shape, or not finite.
    """
    own = module.state_dict()
    missing = sorted(own.keys() - state.keys())
    unexpected = sorted(state.keys() - own.keys())
    reshaped = sorted(
        f"{key} {tuple(state[key].shape)} instead of {tuple(own[key].shape)}"
        for key in own.keys() & state.keys()
        if own[key].shape != state[key].shape
    )
    infinite = sorted(key for key in own.keys() & state.keys() if not state[key].to(own[key].dtype).isfinite().all())
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
    module.load_state_dict(state)

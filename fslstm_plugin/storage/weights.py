"""Weights files: read without running code, loaded only where every tensor fits."""

from __future__ import annotations

import hashlib
import json
import warnings
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from ..errors import RunError, listed
from .damage import naming_damage
from .files import damaged_member, replacing, require_regular, saying_why

_CHECKSUM = "blake2b"
_DIFFERS = "its content does not fit its checksum"
# Where training scripts keep a network's tensors in a file, and the moving average of them, which generalises better.
_WRAPPERS = ("state_dict", "params", "model")
_AVERAGES = ("state_dict_ema", "model_ema", "params_ema", "ema")
# What wrappers of a network, or a model that it is a part of, put before the names of its tensors.
_PREFIXES = ("module.", "_orig_mod.", "model.", "emb_func.", "encoder.", "backbone.", "net.", "features.")


class NetworkState(NamedTuple):
    """The tensors of a network under its own names, out of a file that may hold more.

    Names of tensors beside the network are left out. The average is where in the file they are the moving average of
    weights that are in it too; None if they are not.
    """

    tensors: dict[str, Tensor]
    left_out: list[str]
    average: str | None = None

    def notes(self, source: Path) -> list[str]:
        """What a user should know of how the file was taken, as sentences."""
        found = []
        if self.average is not None:
            found.append(f"{source} holds weights and their moving average ({self.average}): the average is used.")
        if self.left_out:
            found.append(f"Left out of {source}: {listed(self.left_out, 10)}.")
        return found


def save_tensors(file: Path, tensors: dict[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file with a checksum of its content, and texts by name, so that it is whole or absent.

    The folder must exist.
    """
    metadata = metadata or {}
    content = _in_order(save(tensors, {**metadata, _CHECKSUM: checksum(tensors, metadata)}))
    with replacing(file) as temporary:  # safetensors' own writer would leave a partial file when killed
        temporary.write_bytes(content)


def _in_order(content: bytes) -> bytes:
    """A safetensors file with its texts by name: the library's random order would make equal files differ."""
    end = 8 + int.from_bytes(content[:8], "little")
    head = json.loads(content[8:end])
    head["__metadata__"] = dict(sorted(head["__metadata__"].items()))
    text = json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[end:]


def checksum(tensors: dict[str, Tensor], metadata: Mapping[str, str] | None = None) -> str:
    """Digest of names, types, shapes and numbers, and of texts by name; blake2b of 16 bytes in hexadecimal."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    for pair in sorted((metadata or {}).items()):
        digest.update(repr(pair).encode())
    return digest.hexdigest()


def load_tensors(file: Path) -> dict[str, Tensor]:
    """Tensors of a safetensors file, or of a ``.pth``/``.ckpt`` file read without running any code in it.

    Checksums are compared where the file has some, as all of `save_tensors` and nearly all of PyTorch have.

    Raises:
        RunError: If the file is missing, damaged, or holds more than tensors and plain containers.
    """
    return _read(file)[0]


def load_network(file: Path, names: Collection[str]) -> NetworkState:
    """The tensors of a network, by their names, from a file that another training may have written; see `load_tensors`.

    The moving average of the weights is preferred to the weights. What a wrapper (``DataParallel``, ``torch.compile``)
    or a larger model put before the names is taken off, as often as it is there, until some name is the network's.
    """
    tensors, average = _read(file)
    return unwrapped(tensors, names)._replace(average=average)


def unwrapped(tensors: dict[str, Tensor], names: Collection[str]) -> NetworkState:
    """The part of some tensors that is a network's, under its own names.

    Example:
        >>> import torch
        >>> state = {"module.encoder.weight": torch.ones(2), "module.head.bias": torch.ones(1)}
        >>> unwrapped(state, {"weight"})
        NetworkState(tensors={'weight': tensor([1., 1.])}, left_out=['module.head.bias'], average=None)
    """
    prefix = _prefix(list(tensors), frozenset(names))
    if prefix is None:  # No name is the network's: timm renames some later. What is before all of them is none's.
        prefix = ""
        while shared := next((each for each in _PREFIXES if _all_begin(tensors, prefix + each)), None):
            prefix += shared
    inside = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
    return NetworkState(inside, sorted(key for key in tensors if not key.startswith(prefix)))


def _all_begin(names: Collection[str], prefix: str) -> bool:
    return bool(names) and all(name.startswith(prefix) for name in names)


def _prefix(keys: list[str], names: frozenset[str]) -> str | None:
    """What to take off for some key to be one of the names; None if nothing known helps."""
    if not names.isdisjoint(keys):
        return ""
    for each in _PREFIXES:
        part = [key.removeprefix(each) for key in keys if key.startswith(each)]
        rest = _prefix(part, names) if part else None
        if rest is not None:
            return each + rest
    return None


def _read(file: Path) -> tuple[dict[str, Tensor], str | None]:
    """The tensors, and where they are if they are an average."""
    if not file.exists():
        raise RunError(f"There are no weights at {file}. Train first, or name another run or file.")
    require_regular(file)
    with saying_why(f"Cannot read {file}", RunError), naming_damage(file, "is damaged or not a weights file", RunError):
        return _read_tensors(file)


def load_described(file: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a file that `save_tensors` wrote, whatever its name ends with; it must exist.

    Raises:
        RunError: If it is damaged or not a safetensors file.
    """
    fault = "is damaged, or no file that fslstm wrote"
    with saying_why(f"Cannot read {file}", RunError), naming_damage(file, fault, RunError):
        return _read_safetensors(file)


def _read_tensors(file: Path) -> tuple[dict[str, Tensor], str | None]:
    if file.suffix == ".safetensors":
        return _read_safetensors(file)[0], None
    if zipfile.is_zipfile(file) and damaged_member(file):
        raise ValueError(_DIFFERS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pickles that PyTorch itself would not write
        content = torch.load(file, map_location="cpu", weights_only=True)
    inner, average = _inner(content)
    tensors = {str(key): value for key, value in inner.items() if isinstance(value, Tensor)}
    for key, value in tensors.items():
        if value.layout is not torch.strided or value.is_quantized:
            raise TypeError(f"{key} is a sparse or quantised tensor")
    if not tensors:
        raise TypeError(f"it holds no tensors, but {', '.join(map(str, inner)) or 'nothing'}"[:200])
    return tensors, average


def _inner(content: Any) -> tuple[dict[Any, Any], str | None]:
    """The dictionary of tensors within others, and where it is if it is an average."""
    if not isinstance(content, dict):
        raise TypeError("expected a dictionary of tensors")
    for key in _AVERAGES:
        if isinstance(content.get(key), dict):
            inner, _ = _inner(content[key])
            if any(isinstance(value, Tensor) for value in inner.values()):
                return inner, key
    wrapped = next((content[key] for key in _WRAPPERS if isinstance(content.get(key), dict)), None)
    return (content, None) if wrapped is None else _inner(wrapped)


def _read_safetensors(file: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    with file.open("rb"), safe_open(file, framework="pt") as content:  # which says of all it may not open: not found
        tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118 - it is no dictionary
        metadata = content.metadata() or {}
    expected = metadata.pop(_CHECKSUM, None)
    if expected not in (None, checksum(tensors, metadata)):
        raise ValueError(_DIFFERS)
    return tensors, metadata


def load_into(module: nn.Module, state: dict[str, Tensor], source: Path | str) -> None:
    """Load a state whose names and shapes must fit exactly, see `require_fit`."""
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
        f"{what}: {listed(keys, 4)}"
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

"""Batches of episodes as methods of very many steps work on them: a chunk at a time."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import torch
from torch import Tensor

_CACHE = 2**24  # Bytes. A chunk is read thousands of times, so it should stay in a processor's last cache.


def in_chunks(solve: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """Results ``(..., c, d)`` for so many episodes at a time as stay in the cache; on an accelerator for all of them.

    Args:
        solve: From one tensor ``(episodes, a, b)`` for each of the given ones to the result ``(episodes, c, d)``.
        *tensors: Each ``(..., a, b)`` with the same leading dimensions.
    """
    *leading, _, _ = tensors[0].shape
    episodes = prod(leading)
    flat = [tensor.reshape(episodes, *tensor.shape[-2:]) for tensor in tensors]
    size = episodes
    if flat[0].device.type == "cpu":
        size = max(1, _CACHE * episodes // max(tensor.nbytes for tensor in flat))
    # Half precision, also autocast's, loses the small differences between features that decide.
    with torch.autocast(flat[0].device.type, enabled=False):
        parts = zip(*(tensor.split(size) for tensor in flat), strict=True)
        result = torch.cat([solve(*part) for part in parts])
    return result.reshape(*leading, *result.shape[-2:])

"""A GPU's work on a batch, recorded once and replayed: Python hands it out more slowly than the GPU does it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn


class Replayable(pl.LightningModule):
    """A module in training whose passes a GPU may record."""

    def replay(self) -> None:
        """Have the GPU record the passes and replay them, where every batch takes the same operations."""


class Replayed:
    """A function of batches whose passes, forward and backward, a GPU replays as CUDA graphs.

    It takes tensors, then what is the same for all batches, and gives tensors, with the weights of the module in
    training, by the same operations for every batch and without waiting for the GPU. Its backward pass follows before
    it is called again. The passes are recorded at the first batch, and anew when its shapes, its other arguments or the
    weights that are trained change. The state of the module and of the random numbers is then as it was before.
    """

    def __init__(self, module: nn.Module, function: Callable[..., Any]) -> None:
        self.module, self.function = module, function
        self._kind: Hashable = None
        self._recorded: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        """What the function gives; tensors come first among the arguments."""
        tensors = [each for each in arguments if isinstance(each, Tensor)]
        fixed = arguments[len(tensors) :]
        trained = tuple(each.requires_grad for each in self.module.parameters())
        kind = *((each.shape, each.stride(), each.dtype) for each in tensors), fixed, trained
        if self._recorded is None or kind != self._kind:
            if self._recorded is not None:
                self._recorded = None
                gc.collect()  # Its memory first, which cycles of PyTorch's keep, and never while a GPU records.
            self._recorded = _record(self.module, lambda *given: self.function(*given, *fixed), tensors)
            self._kind = kind
        found = self._recorded(*tensors)
        # The recorded tensors are overwritten by the next batch.
        return found.clone() if isinstance(found, Tensor) else tuple(each.clone() for each in found)


class _Passes(nn.Module):
    """A module of the same weights that computes a function, with the autocast that is on when it is made."""

    def __init__(self, module: nn.Module, function: Callable[..., Any]) -> None:
        super().__init__()
        self.module, self.function = module, function
        # A graph holds no cast of a weight that was made before it.
        self.autocast = torch.autocast("cuda", enabled=torch.is_autocast_enabled("cuda"), cache_enabled=False)

    def forward(self, *tensors: Tensor) -> Any:
        with self.autocast:
            return self.function(*tensors)


def _record(module: nn.Module, function: Callable[..., Any], tensors: list[Tensor]) -> Callable[..., Any]:
    device = tensors[0].device
    state = [each.clone() for each in module.buffers()]
    randomness = torch.cuda.get_rng_state(device)
    passes = _Passes(module, function)
    library = torch.backends.cuda.preferred_linalg_library()
    torch.backends.cuda.preferred_linalg_library("cusolver")  # MAGMA's solvers cannot be recorded.
    try:
        with torch.autocast("cuda", enabled=False):  # as always for the backward pass
            recorded: Callable[..., Any] = torch.cuda.make_graphed_callables(
                passes, tuple(each.clone() for each in tensors), allow_unused_input=True
            )
    finally:
        torch.backends.cuda.preferred_linalg_library(library)
    for buffer, before in zip(module.buffers(), state, strict=True):
        buffer.copy_(before)
    torch.cuda.set_rng_state(randomness, device)
    return recorded

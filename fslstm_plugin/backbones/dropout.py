"""Weaker dropout than a backbone's own, for a training that is too short to need it."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.dropout import _DropoutNd


def scale_dropout(module: nn.Module, factor: float) -> None:
    """Multiply the rate of every dropout layer within a module; its state dict does not change.

    Args:
        module: Any module; DropBlock counts as dropout.
        factor: From 0, no dropout, to 1, the module's own.

    Example:
        >>> module = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
        >>> scale_dropout(module, 0.2)
        >>> module[1]
        Dropout(p=0.1, inplace=False)
    """
    for layer in module.modules():
        if isinstance(layer, _DropoutNd):
            layer.p *= factor

"""Batch normalisation folded into the convolution before it, for evaluation: fewer passes over the images."""

from __future__ import annotations

import copy
from typing import TypeGuard, TypeVar

from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from .convolution import Convolution

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def fold_batch_norm(module: nn.Module) -> nn.Module:
    """A copy in evaluation mode, in which each batch normalisation is part of the convolution before it.

    Its outputs are the same up to rounding. Only neighbours within an `nn.Sequential` are folded, since only there the
    order of the modules is that of the computation; everything else is copied as it is, others' subclasses and modules
    with hooks or parametrisations included, which may compute something else.

    Example:
        >>> import torch
        >>> module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        >>> fold_batch_norm(module)[1]
        Identity()
    """
    module = copy.deepcopy(module).eval()
    for part in list(module.modules()):
        if _is_plain(part, nn.Sequential):
            for place in range(len(part) - 1):
                first, second = part[place], part[place + 1]
                if (
                    _is_plain(first, nn.Conv2d, Convolution)
                    and _is_plain(second, nn.BatchNorm2d)
                    and second.track_running_stats
                ):
                    part[place], part[place + 1] = fuse_conv_bn_eval(first, second), nn.Identity()
    return module


def _is_plain(module: nn.Module, *kinds: type[ModuleT]) -> TypeGuard[ModuleT]:
    return type(module) in kinds and not (module._forward_hooks or module._forward_pre_hooks)

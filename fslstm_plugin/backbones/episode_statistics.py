"""The "+BN" rows of the paper: an episode's images share information through batch normalisation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


@contextmanager
def episode_statistics(model: nn.Module) -> Iterator[None]:
    """Inside the block, a model in evaluation mode normalises batches by the statistics of the images it is given.

    Give it the images of one episode at a time. The running statistics do not change, and dropout stays off.

    Example:
        >>> import torch
        >>> norm = nn.BatchNorm1d(1).eval()
        >>> with episode_statistics(norm):
        ...     out = norm(torch.tensor([[1.0], [3.0]]))
        >>> out.flatten().round(), norm.running_mean
        (tensor([-1.,  1.], grad_fn=<RoundBackward0>), tensor([0.]))

    Source: paper, table 1, rows "LSSVM+BN".
    """
    layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]
    saved = [(layer.running_mean, layer.running_var) for layer in layers]
    try:
        for layer in layers:
            layer.running_mean = layer.running_var = None
        yield
    finally:
        for layer, (mean, var) in zip(layers, saved, strict=True):
            layer.running_mean, layer.running_var = mean, var

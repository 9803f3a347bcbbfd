"""A GPU that is not there: PyTorch's fake tensors check where tensors are, the processor computes their values."""

from __future__ import annotations

from unittest import mock

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

CPU = torch.device("cpu")


class PretendedGPU(TorchDispatchMode):
    """Within it, tensors can be on ``cuda``, and an operation on tensors of two devices fails as on a GPU.

    Fake tensors have no values to decide by, as in ``if lost.any()``; so every operation is done on the processor too.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)
        self.values_known = mock.patch("torch._guards.detect_fake_mode", return_value=None)

    def __enter__(self) -> PretendedGPU:
        self.values_known.start()
        self.cudnn, torch.backends.cudnn.enabled = torch.backends.cudnn.enabled, False  # the processor has none
        self.fake.__enter__()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.fake.__exit__(*error)
        torch.backends.cudnn.enabled = self.cudnn
        self.values_known.stop()

    def __torch_dispatch__(self, operation, types, arguments=(), options=None):
        arguments, options = tree_map_only(Tensor, self._faked, (arguments, options or {}))
        with unset_fake_temporarily():
            values, value_options = tree_map(_on_processor, (arguments, options))
            value = operation(*values, **value_options)
        if operation is torch.ops.aten._local_scalar_dense.default:
            return value
        try:
            found = operation(*arguments, **options)
        except (DynamicOutputShapeException, DataDependentOutputException):
            device = next(leaf.device for leaf in tree_leaves((arguments, options)) if isinstance(leaf, Tensor))
            found = tree_map_only(Tensor, lambda each: torch.empty_like(each, device=device), value)
        for new, of_new in zip(tree_leaves(found), tree_leaves(value), strict=True):
            if isinstance(new, Tensor):
                new.pretended_value = of_new
        return found

    def _faked(self, tensor: Tensor) -> Tensor:
        if isinstance(tensor, FakeTensor):
            return tensor
        with unset_fake_temporarily():
            fake = self.fake.from_tensor(tensor)
            fake.pretended_value = tensor.detach()
        return fake


def value_of(tensor: Tensor) -> Tensor:
    """The values of a tensor, on the processor."""
    return tensor.pretended_value if isinstance(tensor, FakeTensor) else tensor.detach()


def _on_processor(leaf: object) -> object:
    if isinstance(leaf, Tensor):
        return value_of(leaf)
    return CPU if isinstance(leaf, torch.device) else leaf

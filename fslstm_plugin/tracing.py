"""Whether Python may read the values of tensors."""

from __future__ import annotations

import torch


def values_known() -> bool:
    """Whether tensors have values that Python may branch on.

    They have none while compiling or exporting, while a GPU's work is recorded, under the transforms of `torch.func`,
    and as fake tensors.

    Checks of values are left out where they have none; checks of shapes and types are not.

    Example:
        >>> values_known()
        True
        >>> _ = torch.func.vmap(lambda x: print(values_known()) or x)(torch.ones(2))
        False
    """
    if torch.compiler.is_compiling():  # first: torch 2.6 cannot compile what follows
        return False
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        return False
    return torch._C._functorch.maybe_current_level() is None and torch._guards.detect_fake_mode() is None

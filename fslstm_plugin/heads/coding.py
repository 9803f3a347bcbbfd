"""Coding matrices: how a problem of several classes becomes binary problems, one per column."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from ..checks import one_of
from ..errors import UsageError
from .validation import require_tensor

_MOST_EXHAUSTIVE_WAYS = 7  # 63 columns; each further class doubles them.


def coding_matrix(coding: str, ways: int, device: torch.device | None = None) -> Tensor:
    """The coding matrix with a name.

    Args:
        coding: ``"one-vs-all"`` (a column per class), ``"one-vs-one"`` (a column per pair, the other classes 0),
            or ``"ecoc"``: `exhaustive_code` up to 7 ways, `random_code` beyond, where the exhaustive one explodes.
        ways: Number of classes.
        device: Where to make it. Default the CPU.

    Returns:
        ``(ways, columns)`` with entries -1, 0 and 1, float64.

    Raises:
        UsageError: If no coding has that name, or it is not a name.

    Example:
        >>> coding_matrix("one-vs-one", 3)
        tensor([[ 1.,  1.,  0.],
                [-1.,  0.,  1.],
                [ 0., -1., -1.]], dtype=torch.float64)
    """
    if not isinstance(coding, str):
        raise UsageError(
            f"The coding must be a name ({', '.join(_CODINGS)}) or a matrix, torch.Tensor (ways, columns) of -1, 0 and "
            f"1, but got an object of type {type(coding).__name__}."
        )
    return _CODINGS[one_of("coding", coding, _CODINGS)](ways, device)


def one_vs_all(ways: int, device: torch.device | None = None) -> Tensor:
    """Each class against all others: 1 on the diagonal, -1 elsewhere."""
    return 2 * torch.eye(ways, dtype=torch.float64, device=device) - 1


def one_vs_one(ways: int, device: torch.device | None = None) -> Tensor:
    """Each pair of classes, the other classes left out by a 0."""
    first, second = torch.triu_indices(ways, ways, offset=1, device=device)
    columns = torch.arange(len(first), device=device)
    code = torch.zeros(ways, len(first), dtype=torch.float64, device=device)
    code[first, columns] = 1
    code[second, columns] = -1
    return code


def exhaustive_code(ways: int, device: torch.device | None = None) -> Tensor:
    """Every way to split the classes in two, once: ``2^(ways - 1) - 1`` columns, the first row all 1.

    Source: Dietterich and Bakiri, "Solving multiclass learning problems via error-correcting output
    codes", 1995.

    Args:
        ways: Number of classes, at least 2.
        device: Where to make it. Default the CPU.

    Returns:
        ``(ways, 2^(ways - 1) - 1)``, float64.

    Example:
        >>> exhaustive_code(3)
        tensor([[ 1.,  1.,  1.],
                [-1.,  1., -1.],
                [-1., -1.,  1.]], dtype=torch.float64)
    """
    splits = torch.arange(2 ** (ways - 1) - 1, device=device)
    bits = torch.arange(ways - 1, device=device)
    rest = 2 * ((splits.unsqueeze(0) >> bits.unsqueeze(1)) & 1) - 1
    return torch.cat([torch.ones_like(splits).unsqueeze(0), rest]).double()


def random_code(ways: int, seed: int = 0) -> Tensor:
    """A dense random code of ``10 log2(ways)`` columns of -1 and 1, the same on every machine.

    Source: Allwein, Schapire and Singer, "Reducing multiclass to binary", 2000.

    Args:
        ways: Number of classes, at least 3.
        seed: Seed of the draw; default 0.

    Returns:
        ``(ways, ceil(10 log2(ways)))``, float64, no column constant and no two rows alike.

    Raises:
        UsageError: If there are fewer than 3 classes, which have no code of so many columns.

    Example:
        >>> random_code(10).shape
        torch.Size([10, 34])
    """
    if ways < 3:
        raise UsageError(f"A random code needs at least 3 ways, but got {ways}: use 'one-vs-all'.")
    generator = torch.Generator("cpu").manual_seed(seed)
    columns = math.ceil(10 * math.log2(ways))
    while True:
        code = 2.0 * torch.randint(2, (ways, columns), generator=generator, dtype=torch.float64, device="cpu") - 1
        if _fault(code) is None:
            return code


def check_coding(code: Tensor) -> Tensor:
    """A caller's own coding matrix ``(ways, columns)`` as float64, if it is one.

    Example:
        >>> check_coding(torch.tensor([[1, 1], [-1, 1]]))
        Traceback (most recent call last):
        ...
        fslstm_plugin.errors.UsageError: The coding matrix is useless: column 1 does not have both signs.
    """
    require_tensor("The coding matrix", code)
    fault = _fault(code)
    if fault is not None:
        raise UsageError(f"The coding matrix is useless: {fault}.")
    return code.detach().double()


def _fault(code: Tensor) -> str | None:
    """The fault of a coding matrix, or None."""
    if code.dim() != 2 or code.shape[0] < 2 or code.shape[1] < 1:
        return f"expected (ways >= 2, columns >= 1), but got shape {tuple(code.shape)}"
    if not torch.isin(code, torch.tensor([-1, 0, 1], dtype=code.dtype, device=code.device)).all():
        return "its entries must be -1, 0 or 1"
    one_sided = ~((code > 0).any(0) & (code < 0).any(0))
    if one_sided.any():
        return f"column {int(one_sided.nonzero()[0])} does not have both signs"
    if len(code.unique(dim=0)) < len(code):
        return "two classes have the same row"
    return None


def _ecoc(ways: int, device: torch.device | None = None) -> Tensor:
    return exhaustive_code(ways, device) if ways <= _MOST_EXHAUSTIVE_WAYS else _random_code(ways, device).clone()


@lru_cache(maxsize=32)
def _random_code(ways: int, device: torch.device | None) -> Tensor:
    """`random_code` there, kept: what a GPU records may copy nothing from the CPU."""
    with torch.inference_mode(False):
        return random_code(ways).to(device)


_CODINGS: dict[str, Callable[[int, torch.device | None], Tensor]] = {
    "one-vs-all": one_vs_all,
    "one-vs-one": one_vs_one,
    "ecoc": _ecoc,
}

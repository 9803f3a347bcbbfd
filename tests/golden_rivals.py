"""Reference numbers of the published rivals: weights, inputs and outputs by case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

FOLDER = Path(__file__).parent / "golden"


class Golden:
    """The arrays of one case of one method.

    Args:
        method: Name of the file.
        case: Name of the case.
    """

    def __init__(self, method: str, case: str) -> None:
        with np.load(FOLDER / f"{method}.npz") as arrays:
            found = {name.removeprefix(f"{case}/"): arrays[name] for name in arrays if name.startswith(f"{case}/")}
        self.settings: dict[str, Any] = json.loads(str(found.pop("settings")))
        self._arrays = {name: torch.from_numpy(array) for name, array in found.items()}

    def __getitem__(self, name: str) -> Tensor:
        return self._arrays[name]

    def under(self, prefix: str) -> dict[str, Tensor]:
        """The arrays whose names begin so, by the rest of their names."""
        return {name.removeprefix(prefix): array for name, array in self._arrays.items() if name.startswith(prefix)}


def assert_near(found: Tensor, expected: Tensor, share: float) -> None:
    """Check that nothing differs by more than this share of the largest entry."""
    difference, largest = (found.detach() - expected).abs().max().item(), expected.abs().max().item()
    assert difference <= share * largest, f"{difference / largest:.1e} of the largest entry"

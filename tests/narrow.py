"""A small backbone with all that the plugin's own have, for trainings that take seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from torch import nn

from fslstm_plugin.backbones import Conv4
from fslstm_plugin.registry import BACKBONES


class Narrow(Conv4):
    """Few channels, and no dropout."""

    widths = (16, 16, 32, 32)

    def __init__(self, image_size: int = 32) -> None:
        super().__init__(image_size)
        for layer in self.modules():
            if isinstance(layer, nn.Dropout2d):
                layer.p = 0.0


@pytest.fixture
def narrow() -> Iterator[str]:
    """Name of the small backbone."""
    BACKBONES.register("narrow", Narrow)
    yield "narrow"
    BACKBONES.forget("narrow")

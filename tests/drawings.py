"""Glyphs, fewer of each class than usual, which are drawn in less time."""

import pytest

from fslstm_plugin.data.sets import glyphs


def draw_few(patch: pytest.MonkeyPatch, each: int = 40) -> None:
    """Draw that many images of each class, as long as the patch lasts."""
    patch.setattr(glyphs, "IMAGES_PER_CLASS", each)
    patch.setattr(glyphs.Glyphs, "images_per_class", each)

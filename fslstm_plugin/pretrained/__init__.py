"""Frozen backbones for pictures of any size, opened by name; each brings its own preprocessing."""

from .backbone import PictureBackbone
from .embedded import DEFAULT
from .opening import open_backbone

__all__ = ["DEFAULT", "PictureBackbone", "open_backbone"]

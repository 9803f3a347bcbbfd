"""Convolutional backbones: batches of images to feature vectors."""

from ..normalization import Normalization
from .base import Backbone
from .conv4 import Conv4
from .dropout import drop_block
from .resnet12 import ResNet12

__all__ = ["Backbone", "Conv4", "Normalization", "ResNet12", "drop_block"]

"""The bridge to learn2learn: Lightning modules in its form, its tasksets, and the registration of both."""

from .few_shot import (
    LightningFewShot,
    LightningFSLSTM,
    LightningLSSVM,
    LightningPrototype,
    LightningRidge,
    LightningSVM,
)
from .rivals import LightningFEAT

__all__ = [
    "LightningFEAT",
    "LightningFSLSTM",
    "LightningFewShot",
    "LightningLSSVM",
    "LightningPrototype",
    "LightningRidge",
    "LightningSVM",
]

"""The bridge to learn2learn: Lightning modules in its form, its tasksets, and the registration of both."""

from .few_shot import (
    LightningFewShot,
    LightningFSLSTM,
    LightningLSSVM,
    LightningPrototype,
    LightningRidge,
    LightningSVM,
)
from .rivals import LightningRelationNet, LightningReptile, LightningTEAM, LightningTPN

__all__ = [
    "LightningFSLSTM",
    "LightningFewShot",
    "LightningLSSVM",
    "LightningPrototype",
    "LightningRelationNet",
    "LightningReptile",
    "LightningRidge",
    "LightningSVM",
    "LightningTEAM",
    "LightningTPN",
]

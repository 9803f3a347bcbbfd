"""The bridge to learn2learn: Lightning modules in its form, its tasksets, and the registration of both."""

from .few_shot import (
    LightningFewShot,
    LightningFSLSTM,
    LightningLSSVM,
    LightningPrototype,
    LightningRidge,
    LightningSVM,
)
from .rivals import (
    LightningDPGN,
    LightningFEAT,
    LightningRelationNet,
    LightningReptile,
    LightningSIB,
    LightningTEAM,
    LightningTPN,
)

__all__ = [
    "LightningDPGN",
    "LightningFEAT",
    "LightningFSLSTM",
    "LightningFewShot",
    "LightningLSSVM",
    "LightningPrototype",
    "LightningRelationNet",
    "LightningReptile",
    "LightningRidge",
    "LightningSIB",
    "LightningSVM",
    "LightningTEAM",
    "LightningTPN",
]

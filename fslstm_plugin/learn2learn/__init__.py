"""The bridge to learn2learn: Lightning modules in its form, its tasksets, and the registration of both.

Besides the names below there is a class for each registered method with weights, such as ``LightningFEAT``; see
`algorithms`.
"""

from .few_shot import (
    LightningFewShot,
    LightningFSLSTM,
    LightningLSSVM,
    LightningPrototype,
    LightningRidge,
    LightningSVM,
)
from .trained import LightningTrained, algorithms

__all__ = [
    "LightningFSLSTM",
    "LightningFewShot",
    "LightningLSSVM",
    "LightningPrototype",
    "LightningRidge",
    "LightningSVM",
    "LightningTrained",
    *(_algorithms := algorithms()),
]
globals().update(_algorithms)

"""Lightning modules in learn2learn's form: a backbone, the Inverse Attention Module if wanted, and a head."""

from .composition import Composition
from .few_shot import (
    LightningFewShot,
    LightningFSLSTM,
    LightningLSSVM,
    LightningPrototype,
    LightningRidge,
    LightningSVM,
)

__all__ = [
    "Composition",
    "LightningFSLSTM",
    "LightningFewShot",
    "LightningLSSVM",
    "LightningPrototype",
    "LightningRidge",
    "LightningSVM",
]

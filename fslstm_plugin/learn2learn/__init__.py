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


def register_all() -> None:
    """See `fslstm_plugin.register`."""
    import learn2learn as l2l
    import learn2learn.algorithms.lightning

    from .. import heads, transduction
    from .tasksets import register_tasksets

    mine = {name: globals()[name] for name in __all__}
    parts = {name: getattr(heads, name) for name in heads.__all__ if name.endswith("Classifier")}
    parts |= {name: getattr(transduction, name) for name in transduction.__all__}
    for target, found in ((l2l.algorithms, mine), (l2l.algorithms.lightning, mine), (l2l.nn, parts)):
        for name, part in found.items():
            if not hasattr(target, name):  # A name of its own is never replaced.
                setattr(target, name, part)
    register_tasksets()

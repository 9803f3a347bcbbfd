"""The plugin's heads in the form of learn2learn's algorithms."""

from __future__ import annotations

from ..errors import needs_extra
from ..training.episodic import EpisodicModule

with needs_extra("The bridge to learn2learn", "l2l"):
    from learn2learn.algorithms.lightning import LightningEpisodicModule


class LightningFewShot(EpisodicModule, LightningEpisodicModule):
    """A model trained on episodes, one of learn2learn's algorithms; see `EpisodicModule` for what it takes and does."""


class LightningPrototype(LightningFewShot):
    """Prototypical networks (Snell et al. 2017) with the plugin's head; see :class:`LightningFewShot`.

    Attributes:
        kernel: ``"linear"``, ``"rbf"``, ``"polynomial"``, ``"cosine"`` or a `Kernel`.
    """

    head_name = "nn"
    head_options = ("kernel",)
    kernel: str = "linear"


class LightningRidge(LightningFewShot):
    """Ridge regression (Bertinetto et al. 2019; Lee et al. 2019); see :class:`LightningFewShot`.

    Attributes:
        ridge: Weight lambda of the penalty.
        kernel: See :class:`LightningPrototype`.
    """

    head_name = "rr"
    head_options = ("ridge", "kernel")
    ridge: float = 50.0
    kernel: str = "linear"


class LightningSVM(LightningFewShot):
    """Crammer-Singer SVM (Lee et al. 2019); see :class:`LightningFewShot`.

    Attributes:
        C: Bound of the dual coefficients.
        kernel: See :class:`LightningPrototype`.
    """

    head_name = "svm"
    head_options = ("C", "kernel")
    C: float = 0.1
    kernel: str = "linear"


class LightningLSSVM(LightningFewShot):
    """The paper's multi-class LSSVM; see :class:`LightningFewShot`.

    Attributes:
        ridge: ``1 / gamma``.
        bias_weight: Number in the corner block of the paper's system.
        coding: ``"one-vs-all"``, ``"one-vs-one"`` or ``"ecoc"``.
        decoding: ``"soft"``, or ``"hamming"``, which has no gradient.
        kernel: See :class:`LightningPrototype`.
    """

    head_name = "lssvm"
    head_options = ("ridge", "bias_weight", "coding", "decoding", "kernel")
    ridge: float = 0.1
    bias_weight: float = 2.0
    coding: str = "one-vs-all"
    decoding: str = "soft"
    kernel: str = "linear"


class LightningFSLSTM(LightningLSSVM):
    """The paper's whole model: IAM and LSSVM, with PSM when testing; see :class:`LightningFewShot`."""

    iam = True
    psm_iterations = 10

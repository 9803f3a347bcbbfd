"""A trained model as evaluation needs it, from a run folder."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from ..algorithms.composition import Composition
from ..algorithms.few_shot import algorithm_for
from ..backbones.base import build_backbone
from ..heads import Head
from ..registry import HEADS
from ..runs import Run
from ..transduction import InverseAttentionModule
from ..weights import load_into


@dataclass(frozen=True)
class TrainedModel:
    """Backbone and Inverse Attention Module of a run.

    Args:
        backbone: In evaluation mode.
        attention: The Inverse Attention Module, in evaluation mode, if the run trained one.
        algorithm: What the run trained; None for a pretraining.
    """

    backbone: nn.Module
    attention: InverseAttentionModule | None
    algorithm: Composition | None

    @classmethod
    def from_run(cls, run: Run) -> TrainedModel:
        """Rebuild the run's model and load its chosen weights.

        Raises:
            RunError: If weights are missing, damaged, or of another model.
        """
        backbone = build_backbone(run.config["backbone"], run.config["image_size"])
        if run.config["kind"] == "pretrain":
            load_into(backbone, run.load_weights(), run.weights)
            return cls(backbone.eval(), None, None)
        algorithm = Composition.parse(run.config["algorithm"])
        module = algorithm_for(algorithm.head)(backbone, iam=algorithm.iam, iam_reduction=run.config["iam_reduction"])
        load_into(module, run.load_weights(), run.weights)
        return cls(module.features.eval(), module.attention.eval() if module.attention else None, algorithm)

    def head(self, name: str | None = None) -> Head:
        """The head that the run was trained with, or any registered one; LSSVM for a pretraining."""
        return HEADS.get(name or self.head_name)()

    @property
    def head_name(self) -> str:
        """Name of the head that the run was trained with; ``lssvm`` for a pretraining."""
        return self.algorithm.head if self.algorithm else "lssvm"

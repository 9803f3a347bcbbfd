"""A trained model as evaluation needs it, from a run folder."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from ..algorithms.composition import Composition
from ..algorithms.few_shot import algorithm_for
from ..algorithms.recipe import MetaRecipe
from ..backbones.base import build_backbone
from ..heads import Head
from ..registry import HEADS
from ..runs import Run
from ..transduction import InverseAttentionModule
from ..weights import load_into


@dataclass(frozen=True)
class TrainedModel:
    """Backbone, head and Inverse Attention Module of a run, in evaluation mode.

    Args:
        backbone: The backbone.
        head_name: Name of the head that the run was trained with; ``lssvm`` for a pretraining.
        trained_head: That head.
        attention: The Inverse Attention Module, if the run trained one.
    """

    backbone: nn.Module
    head_name: str
    trained_head: Head
    attention: InverseAttentionModule | None

    @classmethod
    def from_run(cls, run: Run) -> TrainedModel:
        """Rebuild the run's model and load its chosen weights.

        Raises:
            RunError: If weights are missing, damaged, or of another model.
        """
        backbone = build_backbone(run.config["backbone"], run.config["image_size"])
        if run.config["kind"] == "pretrain":
            load_into(backbone, run.load_weights(), run.weights)
            return cls(backbone.eval(), "lssvm", HEADS.get("lssvm")(), None)
        algorithm = Composition.parse(run.config["algorithm"])
        recipe = run.part("recipe", MetaRecipe)
        module = algorithm_for(algorithm.head)(backbone, iam=algorithm.iam, iam_reduction=recipe.iam_reduction)
        load_into(module, run.load_weights(), run.weights)
        module.eval()
        return cls(module.features, algorithm.head, module.head, module.attention)

    def head(self, name: str | None = None) -> Head:
        """The run's own head, or another registered one with its defaults."""
        return self.trained_head if name in (None, self.head_name) else HEADS.get(name)()

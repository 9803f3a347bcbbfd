"""An earlier network whose answers are learned beside the labels."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..backbones.base import build_backbone
from ..errors import RunError, UsageError
from ..runs.configuration import PretrainConfig
from ..runs.folder import Run
from ..storage.damage import naming_damage
from .classification import Classification

_TEMPERATURE = 4.0


class Teacher:
    """A trained classifier; a network of the same kind that learns its answers becomes better than it ("born again").

    Source: Furlanello et al., "Born-again neural networks", 2018; the temperature is that of Tian et al., "Rethinking
    few-shot image classification: a good embedding is all you need?", 2020.

    Args:
        network: From normalised images ``(batch, 3, H, W)`` to logits ``(batch, classes)``.

    Example:
        >>> teacher = Teacher(nn.Flatten())
        >>> images = torch.tensor([[1.0, 2.0]])
        >>> [round(teacher.divergence(images, logits).item(), 2) for logits in (images, -images)]
        [0.0, 0.5]
    """

    def __init__(self, network: nn.Module) -> None:
        self.network = network.eval().requires_grad_(False)

    @classmethod
    def of(cls, run: Run, config: PretrainConfig, classes: int) -> Teacher:
        """The classifier of a pretraining's run, from its checkpoint, for a training of this configuration.

        Raises:
            UsageError: If the run is of other images, or of another kind.
            RunError: If it has no checkpoint.
            DataError: If that is damaged.
        """
        theirs = run.config
        if not isinstance(theirs, PretrainConfig) or theirs.dataset != config.dataset:
            raise UsageError(f"The teacher {run.path} must be a pretraining on {config.dataset}: name another run.")
        if not run.checkpoint.is_file():
            raise RunError(
                f"The teacher {run.path} has no last.ckpt, in which its classifier is: pretrain one, and keep its "
                "folder."
            )
        network = Classification(build_backbone(theirs.backbone, theirs.image_size), classes, theirs.recipe, 1)
        with naming_damage(run.checkpoint):
            state = torch.load(run.checkpoint, map_location="cpu", weights_only=True)["state_dict"]
            network.load_state_dict(state)
        return cls(network.to(memory_format=torch.channels_last))

    def divergence(self, images: Tensor, logits: Tensor) -> Tensor:
        """How far answers are from the teacher's: the Kullback-Leibler divergence at temperature 4, times 16.

        The teacher sees the images ``(batch, 3, H, W)`` in full size, whatever the size that the logits
        ``(batch, classes)`` answer. The mean over the images is a scalar.
        """
        with torch.no_grad():
            wanted = self.network.to(images.device)(images).float() / _TEMPERATURE
        found = (logits.float() / _TEMPERATURE).log_softmax(-1)
        return F.kl_div(found, wanted.softmax(-1), reduction="batchmean") * _TEMPERATURE**2

"""A model: a backbone with its preprocessing, a method, and the scale of its logits."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch import Tensor, nn
from typing_extensions import Self

from .backbones.base import build_backbone, normalization_of, vectors_of
from .checks import require_kind
from .errors import RunError, UsageError
from .features import EpisodeFeatures
from .methods.base import Criterion, Method
from .methods.shared.logits import require_logits
from .naming import parse_method
from .runs.configuration import PretrainConfig
from .runs.folder import Run
from .storage.weights import load_into, require_fit


class FewShotModel(nn.Module):
    """What a run folder holds, what the Lightning modules train, and what evaluation loads.

    ``to(device)`` moves all of it: the backbone, and every part of the method that has tensors.

    Args:
        backbone: Any module from normalised images ``(batch, 3, H, W)`` to vectors ``(batch, d)``.
        method: The method that works on its features.

    Attributes:
        scale: Factor of the logits, learned in training; from 1.
        normalization: Of the pixels, as the backbone expects it.

    Raises:
        UsageError: If an argument is another kind of object, such as a name, which `from_backbone` takes.

    Example:
        >>> model = FewShotModel.from_backbone("conv4", "lssvm+psm", image_size=32).eval()
        >>> features = model.embed(torch.zeros(8, 3, 32, 32))
        >>> episode = EpisodeFeatures(features[:2], features[2:], torch.tensor([0, 1]))
        >>> model.logits(episode).shape
        torch.Size([6, 2])
    """

    def __init__(self, backbone: nn.Module, method: Method) -> None:
        super().__init__()
        require_kind("backbone", backbone, nn.Module)
        require_kind("method", method, Method)
        self.backbone, self.method = backbone, method
        self.scale = nn.Parameter(torch.ones(()))
        self.normalization = normalization_of(backbone)

    @classmethod
    def from_backbone(cls, backbone: str | nn.Module, method: str | Method = "lssvm", image_size: int = 84) -> Self:
        """A model with fresh weights for what has to be trained.

        Args:
            backbone: A registered name, or a module.
            method: The method, or its name.
            image_size: Side of the images in pixels, for a name; default 84.

        Raises:
            UsageError: If a name is wrong, or the method has weights and the backbone does not say ``out_features``.
        """
        if isinstance(backbone, str):
            backbone = build_backbone(backbone, image_size)
        if isinstance(method, str):
            method = parse_method(method, dim=feature_size(backbone), backbone=backbone)
        return cls(backbone, method)

    @classmethod
    def from_run(cls, run: Run | Path | str) -> Self:
        """The model of a run folder with its chosen weights, in evaluation mode.

        Args:
            run: The run, or its folder.

        Raises:
            RunError: If weights are missing, damaged, or of another model, or the configuration asks for what there is
                not, such as a part of a package that is not installed here.
        """
        run = run if isinstance(run, Run) else Run.open(Path(run))
        algorithm = "lssvm" if isinstance(run.config, PretrainConfig) else run.config.algorithm
        state = run.load_weights()
        try:
            backbone = build_backbone(run.config.backbone, run.config.image_size)
            if (feature_size(backbone) or 0) > 10_000:  # the plugin's own have at most 5,760
                # An untrusted configuration may ask for more memory than there is; where not, this is only slow.
                with torch.device("meta"):
                    require_fit(cls.from_backbone(backbone, algorithm), state, run.weights)
            model = cls.from_backbone(backbone, algorithm)
        except UsageError as error:
            raise RunError(f"No model can be built from {run.path / 'config.json'}: {error}") from error
        load_into(model, state, run.weights)
        return model.eval()

    def method_of(self, name: str) -> Method:
        """The method of a name, with this model's trained parts.

        Raises:
            UsageError: If the name is wrong, or needs weights that this model does not have; see `parse_method`.
        """
        return parse_method(name, dim=feature_size(self.backbone), learned=self.method, backbone=self.backbone)

    def embedding_of(self, method: Method) -> Embedding:
        """What makes the features that a method of this model works on."""
        return Embedding(self.backbone, method)

    def embed(self, images: Tensor) -> Tensor:
        """Features ``(batch, d)`` of normalised images ``(batch, 3, H, W)``, in single precision at least."""
        vectors = self.method.embed(self.backbone, images)
        return vectors.to(torch.promote_types(vectors.dtype, torch.float32))

    @property
    def map_shape(self) -> tuple[int, int, int] | None:
        """Shape (channels, height, width) of the maps that `embed` flattens, where the backbone says so."""
        return self.embedding_of(self.method).map_shape

    def logits(self, features: EpisodeFeatures) -> Tensor:
        """Scaled logits ``(..., m, ways)`` of the queries; in reduced precision only if the method follows autocast."""
        with self._precision():
            return self.scale * require_logits(self.method, self.method.logits(features), features)

    def loss(self, features: EpisodeFeatures, query_labels: Tensor, criterion: Criterion) -> tuple[Tensor, Tensor]:
        """The method's loss and logits, see `Method.loss`.

        Args:
            features: A batch of episodes.
            query_labels: int64 ``(..., m)``.
            criterion: Loss of scaled logits ``(n, ways)`` and labels ``(n,)``.
        """

        def of_scaled(logits: Tensor, labels: Tensor) -> Tensor:
            precision = torch.promote_types(self.scale.dtype, torch.float32)  # a criterion may have weights of its own
            return criterion((self.scale * logits).flatten(0, -2).to(precision), labels.flatten())

        with self._precision():
            loss, logits = self.method.loss(features, query_labels, of_scaled)
            require_logits(self.method, logits, features)
        # Where the loss is the method's own, several devices still wait for a gradient of the scale.
        return loss + 0 * self.scale, logits

    def _precision(self) -> AbstractContextManager[object]:
        if self.method.follows_autocast:
            return nullcontext()
        return torch.autocast(self.scale.device.type, enabled=False)


class Embedding(nn.Module):
    """From images to the features of a method: the backbone, and what the method has for each image alone.

    Attributes:
        name: The method's, where it embeds images in a way of its own; empty for the backbone's vectors.
        map_shape: Shape (channels, height, width) of the maps that the backbone flattens, where they are the features.
        normalization: Of the pixels.
    """

    def __init__(self, backbone: nn.Module, method: Method) -> None:
        super().__init__()
        self.backbone = backbone
        self.own = method if method.embeds else None
        self.name = str(method) if method.embeds else ""
        self.map_shape = None if method.embeds else getattr(backbone, "map_shape", None)
        self.normalization = normalization_of(backbone)

    def forward(self, images: Tensor) -> Tensor:
        """Features ``(batch, d)`` of normalised images ``(batch, 3, H, W)``."""
        return vectors_of(self.backbone, images) if self.own is None else self.own.embed(self.backbone, images)


def feature_size(backbone: nn.Module) -> int | None:
    """Length of a backbone's vectors, where it says so."""
    size = getattr(backbone, "out_features", None)
    if size is not None and not isinstance(size, int):
        raise UsageError(f"out_features of {type(backbone).__name__} must be a whole number, but is {size!r}.")
    return size

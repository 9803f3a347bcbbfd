"""Views of an image: what a frozen backbone gives for it and for its mirror image, as one feature vector."""

from __future__ import annotations

from typing import TypeVar

from torch import Tensor, nn

from ..checks import one_of
from .base import normalization_of

ModuleT = TypeVar("ModuleT", bound=nn.Module)


class Mirrored(nn.Module):
    """The mean of a backbone's features of each image and of its mirror image, in two passes.

    Example:
        >>> import torch
        >>> Mirrored(nn.Flatten())(torch.tensor([[[[1.0, 3.0]]]]))
        tensor([[2., 2.]])
    """

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.normalization = normalization_of(backbone)
        self.map_shape: tuple[int, int, int] | None = getattr(backbone, "map_shape", None)

    def forward(self, images: Tensor) -> Tensor:
        """Features ``(batch, d)`` of images ``(batch, 3, H, W)``."""
        return (self.backbone(images) + self.backbone(images.flip(-1))) / 2


def seeing(backbone: ModuleT, views: str | None) -> ModuleT | Mirrored:
    """A backbone that sees these views of an image: ``"flip"``, or None for the image alone."""
    require_known(views)
    return backbone if views is None else Mirrored(backbone)


def require_known(views: str | None) -> None:
    """Check the name of views."""
    if views is not None:
        one_of("view", views, ("flip",))


def on_views(views: str | None) -> list[str]:
    """What a table says of features of these views."""
    return [] if views is None else ["Features: the mean of those of each image and of its mirror image."]

"""A frozen network from pictures of any size to feature vectors, with the preprocessing that belongs to its weights."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor, nn
from typing_extensions import Self

from ..backbones.views import Mirrored, seeing
from ..data.reading.decode import shortened
from ..data.reading.preprocessing import Preprocessing
from ..errors import UsageError, is_out_of_memory
from ..storage.weights import checksum
from .preprocessing import Transform, described

# More than 4 take up to twice as long on a CPU, which asks the system for new memory in every layer.
_BATCH_ON_CPU, _BATCH = 4, 64


class PictureBackbone(nn.Module):
    """A frozen network in evaluation mode, for good: it computes features and is never trained.

    Args:
        network: From normalised images ``(batch, 3, H, W)`` to vectors ``(batch, d)``. It is frozen itself, not a copy.
        transform: From an RGB picture of any size to normalised pixels ``(3, H, W)``; called from several threads.
        name: Name by which `open_backbone` opens it again.
        image_size: Height and width (H, W) of the normalised images in pixels.
        weights: The file that the weights are from, where one was named. Default None.
        pooling: The pooling that was asked for. Default None: the network's own.
        imagenet: Whether its weights are known to be from ImageNet, or published as such weights are: ImageNet has
            the test classes of miniImageNet in it. Default False.
        notes: What a user should know of how the weights were taken from their file, as sentences. Default none.

    Raises:
        UsageError: If the network cannot take such images, or does not give a vector for each.

    Attributes:
        out_features: Length d of the vectors, found by trying.
        views: What it sees of a picture, see `seeing`; None, the picture alone, until `see` is called.

    Example:
        >>> from fslstm_plugin.backbones import Conv4
        >>> from fslstm_plugin.data.reading.preprocessing import centre_crop
        >>> network = Conv4(image_size=32)
        >>> backbone = PictureBackbone(network, centre_crop(32, network.normalization), "conv4", (32, 32))
        >>> picture = backbone.preprocess(Image.new("L", (300, 200)))
        >>> picture.shape, backbone(picture[None]).shape, backbone.out_features
        (torch.Size([3, 32, 32]), torch.Size([1, 2048]), 2048)
    """

    def __init__(
        self,
        network: nn.Module,
        transform: Transform,
        name: str,
        image_size: tuple[int, int],
        *,
        weights: Path | None = None,
        pooling: str | None = None,
        imagenet: bool = False,
        notes: Sequence[str] = (),
    ) -> None:
        super().__init__()
        # Twice as fast on a CPU, where the depthwise convolutions of small networks dominate.
        self.network = network.requires_grad_(False).eval().to(memory_format=torch.channels_last)
        self.transform, self.name, self.image_size = transform, name, image_size
        self.weights, self.pooling, self.imagenet, self.notes = weights, pooling, imagenet, tuple(notes)
        self.views: str | None = None
        self.eval()
        self.out_features = self._probe()

    def _probe(self) -> int:
        try:
            height, width = self.image_size
            found = self(self.preprocess(Image.new("RGB", (width, height)))[None].to(self.device))
        except Exception as error:  # of any network
            if is_out_of_memory(error):
                raise
            raise UsageError(
                f"The backbone {self.name} cannot take images of {self.image_size[0]} x {self.image_size[1]} pixels: "
                f"{error}"
            ) from error
        if found.ndim != 2 or len(found) != 1 or found.shape[1] == 0:
            raise UsageError(
                f"The backbone {self.name} must give a vector (batch, d) for each image, "
                f"but gave {tuple(found.shape)} for one."
            )
        return found.shape[1]

    def see(self, views: str) -> Self:
        """See these views of a picture from now on; returns the backbone.

        Raises:
            UnknownNameError: If there are no such views.
        """
        self.network, self.views = seeing(self.network, views), views
        return self

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode, whatever the model around it does."""
        return super().train(False)

    @property
    def device(self) -> torch.device:
        """Device of the network."""
        return next((tensor.device for tensor in self.network.state_dict().values()), torch.device("cpu"))

    @property
    def batch_size(self) -> int:
        """How many images to give it at a time."""
        return _BATCH_ON_CPU if self.device.type == "cpu" else _BATCH

    @property
    def licence(self) -> str | None:
        """Licence of the weights, as timm states it; None where it is not known."""
        stated = getattr(getattr(self.network, "backbone", self.network), "pretrained_cfg", None) or {}
        return stated.get("license") if self.weights is None else None

    @property
    def preprocessing(self) -> Preprocessing:
        """What `preprocess` does, as data.

        Raises:
            UsageError: If the transform is not one of timm, torchvision or this package.
        """
        return described(self.transform, self.name)

    def __repr__(self) -> str:
        height, width = self.image_size
        return f"PictureBackbone('{self.name}', {height} x {width} pixels to {self.out_features} features)"

    @cached_property
    def digest(self) -> str:
        """Digest of names, shapes and numbers of all the network's tensors, blake2b of 16 bytes in hexadecimal.

        It is computed when it is first asked for, and the same for all views, but of a sum of backbones.
        """
        network = self.network.backbone if isinstance(self.network, Mirrored) else self.network
        return checksum(network.state_dict())

    @cached_property
    def sees_the_centre_only(self) -> bool:
        """Whether the ends of a long picture are cut off, found by trying: some preprocessing squeezes it instead."""
        dark = Image.new("RGB", (256, 64))
        bright_ends = dark.copy()
        for left in (0, 224):
            bright_ends.paste("white", (left, 0, left + 32, 64))
        return torch.equal(self.preprocess(dark), self.preprocess(bright_ends))

    def preprocess(self, image: Image.Image) -> Tensor:
        """The network's input from a picture.

        Args:
            image: Upright, of any size and mode. Only the middle of one more than ten times as long as wide.

        Returns:
            Normalised pixels, float32 ``(3, H, W)``.
        """
        return torch.as_tensor(self.transform(shortened(image).convert("RGB")))

    def forward(self, images: Tensor) -> Tensor:
        """Features, float32 ``(batch, d)``, of normalised images ``(batch, 3, H, W)`` on the network's device."""
        return self.network(images.to(memory_format=torch.channels_last)).float()

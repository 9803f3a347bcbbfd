"""Which backbone made the features of a model file, and whether another is the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec

from ..errors import RunError, UnknownNameError
from ..pretrained import PictureBackbone, open_backbone
from ..pretrained.summed import JOINED
from ..registry import BACKBONES
from ..runs import builtin

Side = Annotated[int, msgspec.Meta(ge=1, le=2048)]  # Of an image in pixels; far more than any network takes.


class BackboneIdentity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which backbone made the features."""

    name: str  # By which it can be opened again.
    digest: str  # Of its weights.
    image_size: tuple[Side, Side]  # Height and width of what it sees.
    weights: str | None = None  # The file that its weights are from; None where they are the network's own.
    pooling: str | None = None  # That was asked for; None for the network's own.
    views: str | None = None  # What it sees of a picture; None for the picture alone.

    def moved(self, place: Callable[[str], str]) -> BackboneIdentity:
        """The same with other places of its run and its weights."""
        weights = None if self.weights is None else place(self.weights)
        names = JOINED.join(map(place, self.name.split(JOINED)))  # also of a sum
        return msgspec.structs.replace(self, name=names, weights=weights)

    @classmethod
    def of(cls, backbone: PictureBackbone) -> BackboneIdentity:
        """That of an open one."""
        return cls(
            name=backbone.name,
            digest=backbone.digest,
            image_size=backbone.image_size,
            weights=None if backbone.weights is None else str(backbone.weights),
            pooling=backbone.pooling,
            views=backbone.views,
        )

    def open(self, weights: str | Path | None = None) -> PictureBackbone:
        """Open the backbone; its weights, or the run that it is from, may have been moved."""
        if weights is not None and str(weights).startswith(builtin.PREFIX):
            return open_backbone(str(weights), views=self.views)
        if weights is not None and (weights := Path(weights).absolute()).is_dir():
            return open_backbone(weights, views=self.views)
        known = None if self.weights is None else Path(self.weights)
        try:
            return open_backbone(
                self.name,
                weights=weights or known,
                pooling=self.pooling,
                image_size=self.image_size[0] if self.name in BACKBONES.names() else None,
                views=self.views,
            )
        except UnknownNameError as error:
            raise RunError(f"The classifier's backbone cannot be opened here: {error}") from error
        except RunError as error:
            if weights is not None:
                raise
            raise RunError(f"{error} If they lie elsewhere now, give the file or the run as `weights`.") from error

    def require(self, backbone: PictureBackbone, file: Path) -> None:
        """Refuse another backbone, whose features mean something else than those of the model file."""
        if backbone.views != self.views:
            raise RunError(
                f"{file} was made with the views {self.views or 'none'} of each picture, but this backbone has "
                f"{backbone.views or 'none'}: open it with the same `views`, or fit again."
            )
        if backbone.digest != self.digest:
            raise RunError(
                f"{file} was made with the backbone {self.name} of other weights ({self.digest[:12]}) than those "
                f"of {backbone.name} here ({backbone.digest[:12]}): give the same weights, or fit again."
            )
        if backbone.image_size != self.image_size:
            mine, its = (" x ".join(map(str, each)) for each in (self.image_size, backbone.image_size))
            raise RunError(
                f"{file} was made with images of {mine} pixels, but {backbone.name} takes {its}: give the same "
                "backbone, or fit again."
            )

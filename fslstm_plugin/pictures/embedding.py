"""Features of any number of pictures in constant memory: threads decode while the backbone works."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import RunError
from ..pretrained.backbone import PictureBackbone
from .decoding import Remark, decoded
from .picture import Picture


class Batch(NamedTuple):
    """Pictures that could be read, with their features, float32 ``(b, d)`` on the CPU; and those that could not."""

    pictures: list[Picture]
    features: Tensor
    problems: list[Remark]
    remarks: Sequence[Remark] = ()

    @property
    def looked_at(self) -> int:
        """How many pictures these are."""
        return len(self.pictures) + len(self.problems)


def features_of(pictures: Iterable[Picture], backbone: PictureBackbone) -> Iterator[Batch]:
    """Features in the order of the pictures, in batches of `PictureBackbone.batch_size`.

    Args:
        pictures: The pictures; an iterator is read only a little ahead.
        backbone: On the device where it shall compute.

    Raises:
        RunError: If a feature is infinite or not a number.

    Example:
        >>> from pathlib import Path
        >>> from fslstm_plugin.pretrained import open_backbone
        >>> for batch in features_of([Picture(Path("missing.png"))], open_backbone()):
        ...     print(len(batch.pictures), tuple(batch.features.shape), batch.problems[0].text)
        0 (0, 1280) Cannot read the image missing.png: No such file or directory.
    """
    for found in decoded(pictures, backbone.preprocess, backbone.batch_size, backbone.sees_the_centre_only):
        features = torch.zeros(0, backbone.out_features)
        if found.pixels:
            features = backbone(torch.stack(found.pixels).to(backbone.device)).cpu()
        _require_finite(found.pictures, features, backbone.name)
        yield Batch(found.pictures, features, found.problems, found.remarks)


def _require_finite(pictures: Sequence[Picture], features: Tensor, backbone: str) -> None:
    finite = features.isfinite().all(-1)
    if not finite.all():
        raise RunError(
            f"Features of {pictures[finite.tolist().index(False)].path} are infinite or not numbers: the weights of "
            f"the backbone {backbone} are damaged, or its training diverged."
        )

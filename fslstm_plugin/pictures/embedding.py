"""Features of any number of pictures in constant memory: threads decode while the backbone works."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from ..errors import RunError
from ..pretrained.backbone import PictureBackbone
from .decoding import Batch, decoded
from .picture import Picture


def features_of(pictures: Iterable[Picture], backbone: PictureBackbone) -> Iterator[Batch[Tensor]]:
    """Features, float32 ``(b, d)`` on the CPU, in the order of the pictures, in batches of the backbone's size.

    Args:
        pictures: The pictures; an iterator is read only a little ahead.
        backbone: On the device where it shall compute.

    Raises:
        RunError: If a feature is infinite or not a number.

    Example:
        >>> from pathlib import Path
        >>> from fslstm_plugin.pretrained import open_backbone
        >>> for batch in features_of([Picture(Path("missing.png"))], open_backbone()):
        ...     print(len(batch.pictures), tuple(batch.values.shape), batch.problems[0].text)
        0 (0, 1280) Cannot read the image missing.png: No such file or directory.
    """
    for found in decoded(pictures, backbone.preprocess, backbone.batch_size, backbone.sees_the_centre_only):
        features = torch.zeros(0, backbone.out_features)
        if found.values:
            features = backbone(torch.stack(found.values).to(backbone.device)).cpu()
        _require_finite(found.pictures, features, backbone.name)
        yield Batch(found.pictures, features, found.problems, found.remarks)


def _require_finite(pictures: Sequence[Picture], features: Tensor, backbone: str) -> None:
    finite = features.isfinite().all(-1)
    if not finite.all():
        raise RunError(
            f"Features of {pictures[finite.tolist().index(False)].path} are infinite or not numbers: the weights of "
            f"the backbone {backbone} are damaged, or its training diverged."
        )

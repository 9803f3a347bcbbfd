"""Several runs as one: their features side by side, each of one length, so that their Gram matrices add."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from .feature_session import FeatureSession
from .session import RunSession, one_split


def summed(sessions: Sequence[RunSession]) -> FeatureSession:
    """Two runs or more on the same images as one.

    An image's features are those of all runs side by side, each brought to unit length, and all times one number: every
    inner product is the mean of the runs' cosines times the mean square of their features' lengths, for which the
    heads' constants are made. What the runs were trained for is not used.

    Raises:
        UsageError: If they are on different images.
    """
    first, split = sessions[0], one_split(sessions, "Features are joined image by image")
    features = torch.cat([F.normalize(session.features, dim=-1) for session in sessions], -1)
    squares = torch.stack([session.features.square().sum(-1).mean() for session in sessions])
    features *= (squares.mean() / len(sessions)).sqrt()
    return FeatureSession(
        features,
        split,
        "+".join(session.backbone for session in sessions),
        first.device,
        first.ranks,
        first.tell,
        notes=[*first.notes, "Features of several runs side by side, each brought to one length."],
        name="+".join(session.name for session in sessions),
    )

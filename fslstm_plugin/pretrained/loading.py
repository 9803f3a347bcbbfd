"""Where a meta-training starts: the backbone of a run folder, or of a weights file."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from ..errors import RunError
from ..runs.folder import Run
from ..storage.weights import NetworkState, load_into, load_network, unwrapped

_SCALE = "scale"  # of a model's logits; every training starts it afresh


def load_backbone(backbone: nn.Module, source: Path) -> NetworkState:
    """Load a backbone's weights from a run folder, or from a weights file, see `load_network`."""
    own = backbone.state_dict()
    if source.is_dir():
        run = Run.open(source)
        found, origin = unwrapped(run.load_weights(), own), run.weights
    elif source.exists():
        found, origin = load_network(source, own), source
    else:
        raise RunError(f"There is no run folder or weights file at {source}.")
    # DropBlock's progress belongs to a training, and is not a weight.
    passes = {key: value for key, value in own.items() if key.endswith(".passes")}
    load_into(backbone, {**found.tensors, **passes}, origin)
    return found._replace(left_out=[name for name in found.left_out if name != _SCALE])

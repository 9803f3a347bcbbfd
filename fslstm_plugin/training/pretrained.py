"""Where a meta-training starts: the backbone of a run folder, or of a weights file."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from ..errors import RunError
from ..runs import Run
from ..weights import load_into, load_tensors

_SCALE = "scale"  # of a model's logits; every training starts it afresh
_PREFIXES = ("features.", "backbone.", "encoder.", "module.")


def load_backbone(backbone: nn.Module, source: Path) -> list[str]:
    """Load a backbone's weights from a run folder or a weights file.

    Args:
        backbone: Where to load the weights.
        source: A run folder, or a ``.safetensors``, ``.pth`` or ``.ckpt`` file. Tensors of a classifier or other
            parts beside a backbone kept under ``features.``, ``backbone.``, ``encoder.`` or ``module.`` are left out.

    Returns:
        The names of the tensors that were left out.

    Raises:
        RunError: If there are no weights, or they do not fit.
    """
    if source.is_dir():
        run = Run.open(source)
        state, origin = run.load_weights(), run.weights
    elif source.is_file():
        state, origin = load_tensors(source), source
    else:
        raise RunError(f"There is no run folder or weights file at {source}.")
    prefix = next((prefix for prefix in _PREFIXES if any(key.startswith(prefix) for key in state)), "")
    part = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
    # DropBlock's progress belongs to a training, and is not a weight.
    passes = {key: value for key, value in backbone.state_dict().items() if key.endswith(".passes")}
    load_into(backbone, {**part, **passes}, origin)
    return sorted(key for key in state if not key.startswith(prefix) and key != _SCALE)

"""Backbone and head as one ONNX graph, which is checked against the classifier before it is kept."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from ..classifier.fitted import FittedMethod
from ..errors import RunError, UsageError, is_out_of_memory
from ..extras import needs_extra
from ..storage.files import replacing

if TYPE_CHECKING:
    from PIL import Image

    from ..classifier.estimator import FewShotClassifier

_OPSET = 17
_BATCH = 8
_TOLERANCE = 1e-3  # Of a probability.


class ClassifierGraph(nn.Module):
    """From normalised images to logits and probabilities, in single precision.

    Args:
        network: The backbone's.
        fitted: A head with a linear kernel.
        temperature: By which logits are divided.

    Raises:
        UsageError: If the method is not linear in its features.
    """

    weights: Tensor
    bias: Tensor

    def __init__(self, network: nn.Module, fitted: FittedMethod, temperature: float) -> None:
        super().__init__()
        self.network, self.temperature = network, temperature
        self._fitted = fitted
        weights, bias = fitted.linear()
        self.register_buffer("weights", weights.float())
        self.register_buffer("bias", bias.float())

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and probabilities ``(batch, ways)`` of images ``(batch, 3, H, W)``."""
        points = self._fitted.adapted(self.network(images).float()).float()
        logits = points @ self.weights + self.bias
        return logits, (logits / self.temperature).softmax(-1)


def export_onnx(classifier: FewShotClassifier, file: Path, pictures: Sequence[Image.Image]) -> float:
    """Write a classifier of pictures as an ONNX file, if it predicts the pictures as the classifier does.

    The graph takes ``images``, float32 ``(batch, 3, H, W)``; it gives ``logits`` and ``probabilities``
    ``(batch, ways)``. Its metadata: ``classes``, the names in that order, and ``preprocessing``, a `Preprocessing` of
    upright pictures on white, both in JSON; ``backbone``, ``method``, ``temperature``, and ``calibrated``, whether the
    probabilities are, in JSON.

    Args:
        classifier: A fitted one with a backbone, on the CPU.
        file: Its place; a file that is there is replaced.
        pictures: Pictures to check it with, at least one.

    Returns:
        The greatest difference of a probability.

    Raises:
        UsageError: If the method cannot be written as weights, the preprocessing not as data, or there are no pictures.
        MissingExtraError: If a package is not installed.
        RunError: If the graph cannot be made, or predicts something else.
        StorageError: If the file cannot be written.
    """
    require_packages()
    if not pictures:
        raise UsageError("There is no picture to check the graph with: name some with `check`.")
    backbone = classifier.open_backbone()
    graph = ClassifierGraph(backbone.network, classifier.fitted, classifier.temperature_ or 1.0).eval()
    images = torch.stack([backbone.preprocess(each) for each in pictures])
    with torch.inference_mode():
        features = torch.cat([backbone(part) for part in images.split(backbone.batch_size)])
    expected = classifier.predict_proba(features.numpy())
    described = {
        "classes": json.dumps([str(each) for each in classifier.classes_]),
        "preprocessing": msgspec.json.encode(backbone.preprocessing).decode(),
        "backbone": Path(backbone.name).name,  # of a run, not its place on this machine
        "method": str(classifier.method),
        "temperature": repr(classifier.temperature_),
        "calibrated": json.dumps(classifier.calibrated_),
    }
    with replacing(file) as temporary:
        _write(graph, images[:1], temporary, described)
        difference = float(np.abs(_run(temporary, images.numpy()) - expected).max())
        if not difference <= _TOLERANCE:
            raise RunError(
                f"The graph is not kept: on {len(pictures)} pictures its probabilities differ from the classifier's by "
                f"up to {difference:.2g}, more than {_TOLERANCE:g}."
            )
    return difference


def require_packages() -> None:
    """Check that the graph can be written and run.

    Raises:
        MissingExtraError: If a package is not installed.
    """
    with needs_extra("An ONNX graph", "onnx"):
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401


def _write(graph: ClassifierGraph, example: Tensor, file: Path, described: dict[str, str]) -> None:
    import onnx

    names = ["images", "logits", "probabilities"]
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # on sizes that are constants of the graph, as they should be
            torch.onnx.export(
                graph,
                (example,),
                str(file),
                input_names=names[:1],
                output_names=names[1:],
                dynamic_axes={name: {0: "batch"} for name in names},
                opset_version=_OPSET,
                dynamo=False,
            )
    except OSError:
        raise
    except Exception as error:  # of whatever the backbone has that ONNX has not
        if is_out_of_memory(error):
            raise
        raise RunError(f"This backbone cannot be written as an ONNX graph: {str(error).splitlines()[0]}") from error
    model = onnx.load(str(file))
    onnx.helper.set_model_props(model, described)
    onnx.save(model, str(file))


def _run(file: Path, images: np.ndarray) -> np.ndarray:
    """The graph's probabilities."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    parts = np.array_split(images, range(_BATCH, len(images), _BATCH))
    return np.concatenate([session.run(["probabilities"], {"images": part})[0] for part in parts])

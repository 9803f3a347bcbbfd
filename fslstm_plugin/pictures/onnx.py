"""Backbone and head as one ONNX graph, which is checked against the classifier before it is kept.

`fslstm_plugin.pictures.graph` runs it.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from ..classifier.classifier import Classifier
from ..classifier.fitted import FittedMethod
from ..confidence.familiarity import Ranking
from ..errors import RunError, UsageError, count_of, is_out_of_memory
from ..extras import needs_extra
from ..gram import EpisodeGram
from ..storage.files import replaceable, replacing
from .acceptance import acceptance
from .predictor import independent_counts, left_out

_OPSET = 17
_BATCH = 8
_TOLERANCE = 1e-3  # Of a probability.
_EQUAL = 1e-6  # Of squared distances from features in single precision: equal ones differ by rounding.


class ClassifierGraph(nn.Module):
    """From normalised images to logits, probabilities and familiarity, the first two in single precision.

    It has a backbone's network, a head with a linear kernel, and the temperature by which logits are divided.
    """

    def __init__(self, network: nn.Module, fitted: FittedMethod, temperature: float) -> None:
        super().__init__()
        self.network, self.temperature = network, temperature
        self._fitted = fitted
        weights, bias = fitted.linear()
        self.weights, self.bias = nn.Buffer(weights.float()), nn.Buffer(bias.float())
        known = fitted.representatives
        points = known.adapted(known.support)
        self._ranking = Ranking.among(EpisodeGram.from_points(points, len(points)), known.targets.double())
        self.support = nn.Buffer(F.normalize(points, dim=-1))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits and probabilities ``(batch, ways)`` and familiarity ``(batch,)`` of images ``(batch, 3, H, W)``."""
        features = self.network(images).float()
        points = self._fitted.adapted(features)
        logits = points.float() @ self.weights + self.bias
        cross = F.normalize(points.double(), dim=-1) @ self.support.T
        ranks = self._ranking.ranks(cross, torch.ones_like(cross[:, 0]), _EQUAL)
        return logits, (logits / self.temperature).softmax(-1), ranks.float()


def export_onnx(classifier: Classifier, file: Path, pictures: Sequence[Image.Image]) -> float:
    """Write a classifier of pictures as an ONNX file, if it predicts the pictures as the classifier does.

    The graph takes ``images``, float32 ``(batch, 3, H, W)``; it gives ``logits`` and ``probabilities``
    ``(batch, ways)`` and ``familiarity`` ``(batch,)``. Its metadata: ``classes``, the names in that order, and
    ``preprocessing``, a `Preprocessing` of upright pictures on white, both in JSON; ``backbone``, ``method``,
    ``temperature``; in JSON ``counts``, the labelled pictures of each class, ``left_out``, see `predictor.left_out`,
    ``calibrated``, whether the probabilities are, ``uncalibrated``, why they are not or null, and ``accept``, see
    `acceptance.acceptance`.

    Args:
        classifier: A fitted one with a backbone, on the CPU.
        file: Its place; a file that is there is replaced.
        pictures: Pictures to check it with, at least one.

    Returns:
        The greatest difference of a probability.
    """
    require_packages()
    place = replaceable(file)
    if not pictures:
        raise UsageError("There is no picture to check the graph with: name some with `check`.")
    backbone = classifier.open_backbone()
    preprocessing = backbone.preprocessing  # if there is none to describe, before anything is computed
    graph = ClassifierGraph(backbone.network, classifier.fitted, classifier.temperature_ or 1.0).eval()
    images = torch.stack([backbone.preprocess(each) for each in pictures])
    with torch.inference_mode():
        features = torch.cat([backbone(part) for part in images.split(backbone.batch_size)])
    expected = classifier.predict_proba(features.numpy())
    counts = independent_counts(classifier).tolist()
    described = {
        "classes": json.dumps([str(each) for each in classifier.classes_]),
        "counts": json.dumps(counts),
        "left_out": json.dumps((found := left_out(classifier)) and found._asdict()),
        "preprocessing": msgspec.json.encode(preprocessing).decode(),
        "backbone": Path(backbone.name).name,  # of a run, not its place on this machine
        "method": str(classifier.method),
        "temperature": repr(classifier.temperature_),
        "calibrated": json.dumps(classifier.calibrated_),
        "uncalibrated": json.dumps(classifier.why_uncalibrated),
        "accept": json.dumps(acceptance(counts)),
    }
    with replacing(place) as temporary:
        _write(graph, images[:1], temporary, described)
        difference = float(np.abs(_run(temporary, images.numpy()) - expected).max())
        if not difference <= _TOLERANCE:
            raise RunError(
                f"The graph is not kept: on {count_of(len(pictures), 'picture')} its probabilities differ from the "
                f"classifier's by up to {difference:.2g}, more than {_TOLERANCE:g}."
            )
    return difference


def require_packages() -> None:
    """Check that the packages are installed by which a graph is written and run."""
    with needs_extra("An ONNX graph", "onnx"):
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401


def _write(graph: ClassifierGraph, example: Tensor, file: Path, described: dict[str, str]) -> None:
    import onnx

    names = ["images", "logits", "probabilities", "familiarity"]
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
    model.producer_name = "fslstm"  # by which the command knows it as one that it may replace
    onnx.helper.set_model_props(model, described)
    onnx.save(model, str(file))


def _run(file: Path, images: np.ndarray) -> np.ndarray:
    """The graph's probabilities."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    parts = np.array_split(images, range(_BATCH, len(images), _BATCH))
    return np.concatenate([session.run(["probabilities"], {"images": part})[0] for part in parts])

"""Backbone and head as one ONNX graph, which is checked against the classifier before it is kept.

`fslstm_plugin.pictures.graph` runs it.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..classifier.fitted import FittedMethod
from ..errors import RunError, UsageError, count_of, is_out_of_memory
from ..extras import needs_extra
from ..storage.files import replaceable, replacing
from .acceptance import acceptance
from .predictor import independent_counts, left_out

if TYPE_CHECKING:
    from PIL import Image

    from ..classifier.classifier import Classifier

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
        self.familiarity = FamiliarityGraph(fitted.representatives)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits and probabilities ``(batch, ways)`` and familiarity ``(batch,)`` of images ``(batch, 3, H, W)``."""
        features = self.network(images).float()
        points = self._fitted.adapted(features)
        logits = points.float() @ self.weights + self.bias
        return logits, (logits / self.temperature).softmax(-1), self.familiarity(points.double()).float()


class FamiliarityGraph(nn.Module):
    """The rank of `familiarity_rank` in operations that ONNX has; what does not depend on the query is numbers."""

    def __init__(self, fitted: FittedMethod) -> None:
        super().__init__()
        support = F.normalize(fitted.adapted(fitted.support), dim=-1)
        targets, counts = fitted.targets.double(), fitted.targets.double().sum(0)
        inner = support @ support.mT @ targets
        squares = (targets * inner).sum(0)
        self.support = nn.Buffer(support)
        self.member = nn.Buffer(targets.mT.contiguous())  # (ways, n), as the others that are of a class
        self.counts = nn.Buffer(counts)
        self.inner = nn.Buffer(inner.mT.contiguous())
        self.squares = nn.Buffer(squares)
        self.elsewhere = nn.Buffer(_elsewhere(inner, squares, targets).mT.contiguous())
        self.several = nn.Buffer(counts[targets.argmax(-1)] > 1)

    def forward(self, points: Tensor) -> Tensor:
        """Ranks ``(batch,)`` of adapted features ``(batch, d)``."""
        points = F.normalize(points, dim=-1)
        cross = points @ self.support.T
        crossing = cross @ self.member.T
        distances = 1 - 2 * crossing / self.counts + self.squares / self.counts**2
        own, nearest = (-distances * self.counts / (self.counts + 1)).max(-1)
        member = self.member[nearest]
        with_sum, squares = self.inner[nearest], self.squares[nearest].unsqueeze(-1)
        counts = self.counts[nearest].unsqueeze(-1) + 1 - member
        sums = squares + 1 + 2 * crossing.gather(1, nearest.unsqueeze(-1)) + member * (1 - 2 * (with_sum + cross))
        joined = -(1 - 2 * (with_sum + cross - member) / counts + sums / counts**2) * counts / (counts + 1)
        usual = torch.maximum(self.elsewhere[nearest], joined)
        counted = (member > 0) | self.several
        lower = (usual <= own.unsqueeze(-1) + _EQUAL) & counted
        return (lower.double().sum(-1) + 1) / (counted.double().sum(-1) + 1)


def _elsewhere(inner: Tensor, squares: Tensor, targets: Tensor) -> Tensor:
    """For each point and class ``(n, ways)``, the greatest corrected logit of another class, the point left out."""
    counts, squares = targets.sum(0) - targets, squares - targets * (2 * inner - 1)
    distances = 1 - 2 * (inner - targets) / counts + squares / counts**2
    logits = torch.where(counts > 0, -distances * counts / (counts + 1), -torch.inf)
    best = logits.topk(2, -1)
    places = torch.arange(targets.shape[-1])
    return torch.where(best.indices[:, :1] == places, best.values[:, 1:], best.values[:, :1])


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
        "preprocessing": msgspec.json.encode(backbone.preprocessing).decode(),
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

"""An exported ONNX graph that predicts pictures, with ONNX Runtime, NumPy and Pillow alone: PyTorch is not imported."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from ..confidence.certainty import LeftOut, cautious
from ..data.reading.decode import fitted, resized_and_cropped, shortened
from ..errors import DataError, RunError, printable
from ..extras import needs_extra
from ..storage.damage import naming_damage
from ..storage.files import require_regular
from .acceptance import acceptance
from .decoding import Decoded, decoded
from .picture import Picture
from .predictions import NONE, Batch, Prediction, identity_of

if TYPE_CHECKING:
    from .likeness import Likeness
    from .predictor import Guarantee

_BATCH = 8
_ROUNDING = 1e-6  # Of a rank in single precision.
_RESAMPLING = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


class Graph:
    """A graph of `fslstm_plugin.pictures.onnx.export_onnx`.

    Args:
        file: Its place.
        accept: Share of the pictures of the classes that is accepted; 1 accepts all. Default None: that of the file.
    """

    together = False  # Whether predictions use the other pictures.
    sets: Guarantee | None = None  # The prediction sets.
    likeness: Likeness | None = None  # Tests the pictures that were predicted, where something is promised of them.

    def __init__(self, file: Path, accept: float | None = None) -> None:
        with needs_extra("An ONNX graph", "onnx"):
            import onnxruntime
        if not file.exists():
            raise RunError(f"There is no graph at {file}: make one with 'fslstm export', or name another.")
        with naming_damage(require_regular(file)):
            self._session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
            about = self._session.get_modelmeta().custom_metadata_map
            if not {"classes", "counts", "left_out", "preprocessing", "accept"} <= about.keys():
                raise DataError(f"{file} is not a graph that this version of 'fslstm export' wrote: export it again.")
            self.classes = [printable(each) for each in json.loads(about["classes"])]
            self.counts: list[int] = json.loads(about["counts"])  # Labelled pictures, or groups of them, of each class.
            left_out = json.loads(about["left_out"])
            self.left_out = None if left_out is None else LeftOut(**left_out)
            self.accepted = float(json.loads(about["accept"]))
            self.why_uncalibrated: str | None = json.loads(about["uncalibrated"])
            self._preprocessing: dict[str, Any] = json.loads(about["preprocessing"])
        if accept is not None:
            self.accepted = acceptance(self.counts, accept)
        self.labelled: dict[str, str] = {}  # Classes of the labelled pictures, by their names.
        self.identity = identity_of(file.read_bytes(), self.accepted)

    def predict(self, pictures: Sequence[Picture]) -> Iterator[Batch]:
        """Predictions in the order of the pictures, a batch at a time; threads decode while the graph works."""
        how = self._preprocessing
        centre_only = how["order"][0] == "crop" or isinstance(how["resize"], int)
        for found in decoded(pictures, partial(preprocess, how=how), _BATCH, centre_only):
            predictions = self._predictions(found) if found.pixels else []
            yield Batch(predictions, len(found.pictures) + len(found.problems), found.problems, found.remarks)

    def _predictions(self, found: Decoded[np.ndarray]) -> list[Prediction]:
        shares, ranks = self._session.run(["probabilities", "familiarity"], {"images": np.stack(found.pixels)})
        best, doubtful = shares.argmax(-1).tolist(), cautious(shares, np.array(self.counts))
        return [
            Prediction(
                path=picture.name,
                label=self.classes[best[place]] if ranks[place] > 1 - self.accepted + _ROUNDING else NONE,
                likeliest=self.classes[best[place]],
                probability=float(shares[place, best[place]]),
                cautious=float(doubtful[place, best[place]]),
                familiarity=float(ranks[place]),
                labels=None,
                nearest="",
                calibrated=self.why_uncalibrated is None,
                probabilities=tuple(shares[place].tolist()),
            )
            for place, picture in enumerate(found.pictures)
        ]


def preprocess(image: Image.Image, how: dict[str, Any]) -> np.ndarray:
    """What the graph sees of an upright RGB picture, float32 ``(3, H, W)``, by the fields of a `Preprocessing`.

    Example:
        >>> how = dict(size=[2, 2], order=["crop", "resize", "scale", "normalize"], resize=[2, 2], crop=None,
        ...     interpolation="bicubic", scale=1 / 255, mean=[0.5] * 3, std=[0.5] * 3, max_aspect_ratio=10)
        >>> preprocess(Image.new("RGB", (8, 6), "white"), how)[0]
        array([[1., 1.],
               [1., 1.]], dtype=float32)
    """
    resampling = _RESAMPLING[how["interpolation"]]
    image = shortened(image, how["max_aspect_ratio"])
    if how["order"][0] == "crop":
        image = fitted(image, tuple(reversed(how["resize"])), resampling)
    else:
        image = resized_and_cropped(image, how["resize"], how["crop"], resampling)
    pixels = np.asarray(image, dtype=np.float32).transpose(2, 0, 1) * np.float32(how["scale"])
    mean, std = (np.array(how[name], dtype=np.float32)[:, None, None] for name in ("mean", "std"))
    return (pixels - mean) / std

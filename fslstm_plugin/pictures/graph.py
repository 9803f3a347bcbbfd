"""An exported ONNX graph that predicts pictures, with ONNX Runtime, NumPy and Pillow alone: PyTorch is not imported."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ..confidence.certainty import LeftOut, cautious
from ..data.reading.preprocessing import Preprocessing
from ..errors import DataError, RunError, printable
from ..extras import needs_extra
from ..storage.damage import naming_damage
from ..storage.files import require_regular
from .acceptance import acceptance
from .decoding import Batch, decoded
from .picture import Picture
from .predictions import NONE, Prediction, identity_of

if TYPE_CHECKING:
    from .likeness import Likeness
    from .predictor import Guarantee

_BATCH = 8
_ROUNDING = 1e-6  # Of a rank in single precision.


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
            self._preprocess = msgspec.json.decode(about["preprocessing"], type=Preprocessing)
        if accept is not None:
            self.accepted = acceptance(self.counts, accept)
        self.labelled: dict[str, str] = {}  # Classes of the labelled pictures, by their names.
        self.identity = identity_of(file.read_bytes(), self.accepted)

    def predict(self, pictures: Sequence[Picture]) -> Iterator[Batch[Sequence[Prediction]]]:
        """Predictions in the order of the pictures, a batch at a time; threads decode while the graph works."""
        centre_only = self._preprocess.crop is None or isinstance(self._preprocess.resize, int)
        for found in decoded(pictures, self._preprocess, _BATCH, centre_only):
            predictions: Sequence[Prediction] = self._predictions(found) if found.values else ()
            yield Batch(found.pictures, predictions, found.problems, found.remarks)

    def _predictions(self, found: Batch[list[np.ndarray]]) -> list[Prediction]:
        shares, ranks = self._session.run(["probabilities", "familiarity"], {"images": np.stack(found.values)})
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

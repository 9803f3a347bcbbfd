"""Pages of one file: predictions to look at and to correct, and what to expect of a classifier."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from ..errors import DataError, printable
from ..extras import needs_extra
from ..pictures.picture import read_boxed
from ..pictures.predictions import NONE, Prediction
from ..storage.tables import path_beside, path_of

with needs_extra("A gallery", "pictures"):
    from .pages import filled

if TYPE_CHECKING:
    from ..pictures.expectations import Expectations

_MOST = 600  # Pictures whose thumbnails, of about 5 kB each, are in the page; others are shown from their files.
_SIDE = 160
_SHOWN_BY_BROWSERS = {".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp", ".avif"}


def gallery(
    predictions: Iterable[Prediction],
    classes: Sequence[str],
    title: str,
    lead: Sequence[str] = (),
    file: Path = Path("gallery.html"),
    labelled: Mapping[str, str] | None = None,
    model: str = "",
    most: int = _MOST,
) -> str:
    """Predictions, each beside the nearest labelled picture, as a page that needs no network.

    It lists all pictures. The least certain ones have thumbnails in the page; of the others, those that a browser can
    show are read from their files when they come into sight. The only program in it is its own, known by its digest.
    Below its title it has sentences, the lead. Keys choose classes in their order; labelled pictures have their classes
    by their paths. Pictures are named from the folder of the file, where the page will lie. What a user says in the
    page is kept under the name of the model, see `identity_of`.

    Example:
        >>> text = gallery([Prediction("/<b>.png", "owl", "owl", 0.5, 1, None, "")], ["owl"], "Birds & more")
        >>> "Birds &amp; more" in text, "<b>" in text, "u003cb>.png" in text
        (True, False, True)
    """
    ordered = sorted(predictions, key=lambda each: (each.is_corrected, each.probability))
    near = {name: place for place, name in enumerate(dict.fromkeys(each.nearest for each in ordered if each.nearest))}
    with ThreadPoolExecutor() as pool:
        thumbnails = pool.map(
            lambda each: _thumbnail(each[1].path) if each[0] < most or not _is_shown(each[1].path) else None,
            enumerate(ordered),
        )
        rows = [_row(each, image, near, file) for each, image in zip(ordered, thumbnails, strict=True)]
        near_images = list(pool.map(_thumbnail, near))
    labels = labelled or {}
    corrected = [each.label for each in ordered if each.is_corrected]
    data = {
        "model": model,
        "none": NONE,
        "classes": [printable(each) for each in dict.fromkeys([*classes, *corrected])],
        "near": [
            {"image": image, "name": _named(name), "label": printable(labels.get(name, ""))}
            for name, image in zip(near, near_images, strict=True)
        ],
        "rows": rows,
    }
    script = filled("gallery.js")
    return filled(
        "gallery.html",
        title=title,
        lead=lead,
        unsure=any(each.sure is not None for each in ordered),
        data=_in_html(data),
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def overview(expected: Expectations, title: str, lead: Sequence[str]) -> str:
    """What to expect of a classifier as a page that needs no network and no program, with sentences below its title.

    Example:
        >>> from fslstm_plugin import FewShotClassifier
        >>> from fslstm_plugin.pictures.expectations import expectations
        >>> X = [[0.0, 0.1], [0.2, 0.0], [1.0, 0.9], [0.8, 1.0]]
        >>> said = expectations(FewShotClassifier().fit(X, ["owl", "owl", "<wren>", "<wren>"]))
        >>> "&lt;wren&gt;" in overview(said, "Birds", ["Two classes."])
        True
    """
    return filled(
        "overview.html",
        title=title,
        lead=lead,
        classes={printable(name): count for name, count in expected.pictures.items()},
        confused=expected.confused,
        odd=[
            {
                "image": _thumbnail(each.picture) if each.picture else None,
                "name": _named(each.picture),
                "label": printable(each.label),
                "looks_like": printable(each.looks_like),
                "odds": f"{each.odds:.0f}",
            }
            for each in expected.odd
        ],
        alike=[[_named(one), _named(other)] for one, other in expected.alike],
    )


def _named(picture: str) -> str:
    return printable("/".join(Path(picture).parts[-2:]))


def _in_html(data: object) -> str:
    """JSON that no HTML can end, whatever names are in it."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c").replace("&", "\\u0026")


def _row(prediction: Prediction, image: str | None, near: Mapping[str, int], file: Path) -> dict[str, Any]:
    return {
        "path": path_beside(file, prediction.path),
        "name": printable(Path(prediction.path).name),
        "label": prediction.label,
        "likeliest": prediction.likeliest,
        "probability": round(prediction.probability, 4),
        "others": _other_labels(prediction),
        "why": _why_none(prediction),
        "sure": prediction.sure,
        "near": near.get(prediction.nearest),
        "image": image,
    }


def _other_labels(prediction: Prediction) -> str:
    """What else the prediction set has; nothing where the set is the likeliest label alone, or there are no sets."""
    labels, likeliest = prediction.labels, prediction.likeliest
    if labels is None or labels == (likeliest,):
        return ""
    return f"or {', '.join(each for each in labels if each != likeliest)}"


def _why_none(prediction: Prediction) -> str:
    if prediction.label != NONE:
        return ""
    share = 100 * (1 - prediction.familiarity)
    return f"{NONE}: less similar to every class than {share:.0f} % of the labelled pictures are to their own"


def _is_shown(path: str) -> bool:
    """Whether a browser shows the file itself."""
    return Path(path).suffix.lower() in _SHOWN_BY_BROWSERS


def _thumbnail(path: str) -> str | None:
    """A picture as a small JPEG in base64, by its path as predictions name it; None if it cannot be read any more."""
    try:
        image = read_boxed(Path(path_of(path)))
    except DataError:
        return None
    image.thumbnail((_SIDE, _SIDE), Image.Resampling.BICUBIC)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=80)
    return base64.b64encode(buffer.getvalue()).decode()

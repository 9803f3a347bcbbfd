"""Predictions to look at: a page of one file, by label, least sure first, the nearest labelled picture beside each."""

from __future__ import annotations

import base64
import heapq
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from PIL import Image

from .. import __version__
from ..data.reading.decode import read_picture
from ..errors import DataError, printable
from ..extras import needs_extra
from .predictions import NONE, Prediction, path_beside
from .tables import path_of

with needs_extra("A gallery", "pictures"):
    from jinja2 import Environment, PackageLoader, StrictUndefined

_MOST = 600  # Pictures on a page, of about 5 kB each.
_SIDE = 160


@dataclass
class _Group:
    """The least sure pictures of a label, and how many there are of it."""

    label: str
    count: int = 0
    kept: list[tuple[float, int, Prediction]] = field(default_factory=list)

    def add(self, prediction: Prediction, most: int) -> None:
        self.count += 1
        entry = (-prediction.probability, -self.count, prediction)  # the first of the heap is the surest
        if len(self.kept) < most:
            heapq.heappush(self.kept, entry)
        else:
            heapq.heappushpop(self.kept, entry)

    @property
    def shown(self) -> list[Prediction]:
        return [prediction for *_, prediction in sorted(self.kept, reverse=True)]


@dataclass(frozen=True)
class _Card:
    name: str
    path: str
    label: str
    percent: str
    other_labels: str
    image: str | None
    near: int | None
    near_name: str


def limit(counts: Mapping[str, int], most: int = _MOST) -> list[str]:
    """A sentence on how many pictures a page shows; none where it shows all.

    Args:
        counts: How many pictures each label has.
        most: How many the page may show. Default 600.

    Example:
        >>> limit({"owl": 900, "wren": 300, "tit": 34})
        ['It shows 600 of 1,234 pictures: of each label the 283 that are least sure.']
    """
    each, total = _each(counts, most), sum(counts.values())
    shown = sum(min(each, count) for count in counts.values())
    if shown == total:
        return []
    return [f"It shows {shown:,} of {total:,} pictures: of each label the {each:,} that are least sure."]


def _each(counts: Mapping[str, int], most: int) -> int:
    """How many pictures of each label there is room for, at least one."""
    room, labels = most, len(counts)
    for count in sorted(counts.values()):
        if count * labels > room:
            break
        room, labels = room - count, labels - 1
    return max(1, room // labels) if labels else most


def gallery(
    predictions: Iterable[Prediction],
    counts: Mapping[str, int],
    title: str,
    lead: Sequence[str] = (),
    file: Path = Path("gallery.html"),
    most: int = _MOST,
) -> str:
    """The page, in HTML, with nothing from the network and nothing that is run.

    It has the least sure pictures of each label, small, and says how many there are. The predictions are read once,
    and what is kept of them does not grow with their number.

    Args:
        predictions: The predictions.
        counts: How many predictions each label has, in the order of the page.
        title: Its heading.
        lead: Sentences below it.
        file: Where the page will lie, from whose folder pictures are named. Default: in the working folder.
        most: How many pictures it may show. Default 600.

    Example:
        >>> text = gallery([Prediction("/<b>.png", "owl", "owl", 0.5, 0.5, 1, None, "")], {"owl": 1}, "Birds")
        >>> "&lt;b&gt;.png" in text, "<b>" in text
        (True, False)
    """
    groups = {label: _Group(printable(label)) for label in (NONE, *counts)}
    each = _each(counts, most)
    for prediction in predictions:
        groups[prediction.label].add(prediction, each)
    shown = [group for group in groups.values() if group.count]
    wanted = [prediction for group in shown for prediction in group.shown]
    near = list(dict.fromkeys(prediction.nearest for prediction in wanted if prediction.nearest))
    with ThreadPoolExecutor() as pool:
        images = pool.map(_thumbnail, [each.path for each in wanted])
        near_images = list(pool.map(_thumbnail, near))
        cards = [(group, list(_cards(group, images, near, near_images, file))) for group in shown]
    environment = Environment(
        loader=PackageLoader("fslstm_plugin.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("gallery.html").render(
        title=title,
        lead=[*lead, *limit(counts, most)],
        groups=cards,
        near=near_images,
        none=NONE,
        version=__version__,
        date=date.today().isoformat(),
    )


def _cards(
    group: _Group, images: Iterator[str | None], near: Sequence[str], near_images: Sequence[str | None], file: Path
) -> Iterator[_Card]:
    numbers = {name: number for number, name in enumerate(near)}
    for prediction in group.shown:
        number = numbers.get(prediction.nearest)
        yield _Card(
            printable(Path(prediction.path).name),
            printable(path_beside(file, prediction.path)),
            printable(prediction.likeliest),
            f"{100 * prediction.probability:.0f} %",
            printable(_other_labels(prediction)),
            next(images),
            None if number is None or near_images[number] is None else number,
            printable("/".join(Path(prediction.nearest).parts[-2:])),
        )


def _other_labels(prediction: Prediction) -> str:
    """What stands below the likeliest label: nothing where the set is that label alone, or there are no sets."""
    labels, likeliest = prediction.labels, prediction.likeliest
    if labels is None or labels == (likeliest,):
        return ""
    return f"or {', '.join(each for each in labels if each != likeliest)}"


def _thumbnail(path: str) -> str | None:
    """A small JPEG in base64, None if the picture cannot be read any more."""
    try:
        image = read_picture(Path(path_of(path)))
    except DataError:
        return None
    image.thumbnail((_SIDE, _SIDE), Image.Resampling.BICUBIC)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=80)
    return base64.b64encode(buffer.getvalue()).decode()

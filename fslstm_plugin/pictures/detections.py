"""Boxes in the JSON of COCO, and in that of MegaDetector in both of its forms.

Source: COCO, "Data format", object detection; MegaDetector's "output format" of its batches, whose boxes are shares of
the picture, and "Output format" of its command line, whose boxes are corners in pixels.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any, NamedTuple

from ..storage.damage import text_of
from .picture import Box

_ANIMAL = "animal"  # MegaDetector also finds persons and vehicles.
_CONFIDENCE = 0.2  # MegaDetector's, where its file recommends none.


class Listed(NamedTuple):
    """A part of a picture, or all of it, as a file lists it."""

    picture: str  # From the folder of the list.
    box: Box | None
    label: str | None


Detections = tuple[list[Listed], str]  # With a sentence on boxes that are left out, or an empty text.


def detections(content: Any) -> Detections | None:
    """The boxes of a JSON file's content; None if it has another form.

    Boxes of COCO have the label of their category; those of crowds are left out. Boxes of MegaDetector have the name of
    the outermost folder that their picture is in as their label, as in a folder of class folders; what is less certain
    than the file recommends, or no animal where it finds animals, is left out. Damage raises errors of any type.

    Example:
        >>> content = {"detection_categories": {"1": "animal"}, "images": [
        ...     {"file": "owl/1.jpg", "detections": [{"category": "1", "conf": 0.9, "bbox": [0.5, 0, 0.25, 1]}]}]}
        >>> [each], _ = detections(content)
        >>> each.picture, str(each.box), each.label
        ('owl/1.jpg', 'xywh=percent:50,0,25,100', 'owl')
    """
    if isinstance(content, dict) and {"images", "annotations", "categories"} <= content.keys():
        return _of_coco(content)
    if isinstance(content, dict) and {"images", "detection_categories"} <= content.keys():
        return _of_batches(content)
    if isinstance(content, list) and content and isinstance(content[0], dict) and "detections" in content[0]:
        return _of_corners(content)
    return None


def _of_coco(content: dict[str, Any]) -> Detections:
    names = {each["id"]: text_of(each["name"], "the name of a category") for each in content["categories"]}
    files = {each["id"]: text_of(each["file_name"], "the file_name of an image") for each in content["images"]}
    single = [each for each in content["annotations"] if not each.get("iscrowd")]
    for each in single:
        for key, known, what in (("image_id", files, "images"), ("category_id", names, "categories")):
            if each[key] not in known:
                raise ValueError(f"the annotation {each.get('id')} has the {key} {each[key]}, which its {what} lack")
    listed = [
        Listed(files[each["image_id"]], _of_sides(each.get("bbox")), names[each["category_id"]]) for each in single
    ]
    crowds = len(content["annotations"]) - len(single)
    return listed, f"Boxes left out: {crowds:,}, of crowds." if crowds else ""


def _of_sides(numbers: list[float] | None) -> Box | None:
    if not numbers:  # as some programs write an empty list for a label of the whole picture
        return None
    x, y, width, height = map(float, numbers)
    return Box(x, y, width, height)


def _of_batches(content: dict[str, Any]) -> Detections:
    names = content["detection_categories"]
    found = content.get("info", {}).get("detector_metadata", {}).get("typical_detection_threshold", _CONFIDENCE)
    boxes = [
        (_file(image), names[each["category"]], each["conf"], _of_shares(*map(float, each["bbox"])))
        for image in content["images"]
        for each in image.get("detections") or ()
    ]
    return _of_animals(boxes, float(found), set(names.values()))


def _of_corners(content: list[dict[str, Any]]) -> Detections:
    boxes = [
        (_file(image), each["category"], each["confidence"], _of_pixels(*map(float, each["bbox"])))
        for image in content
        for each in image["detections"]
    ]
    return _of_animals(boxes, _CONFIDENCE, {category for _, category, *_ in boxes})


def _file(image: dict[str, Any]) -> str:
    return text_of(image["file"], "the file of an image")


def _of_shares(x: float, y: float, width: float, height: float) -> Box:
    return Box(100 * x, 100 * y, 100 * width, 100 * height, percent=True)


def _of_pixels(left: float, upper: float, right: float, lower: float) -> Box:
    return Box(left, upper, right - left, lower - upper)


def _of_animals(boxes: list[tuple[str, str, float, Box]], least: float, categories: set[str]) -> Detections:
    """Of each box the picture, the category, the confidence and the place."""
    wanted = {_ANIMAL} if _ANIMAL in categories else categories
    kept = [(picture, box) for picture, category, sure, box in boxes if category in wanted and sure >= least]
    left = len(boxes) - len(kept)
    why = f"Boxes left out: {left:,}, of a confidence below {least:g} or of no animal." if left else ""
    return [Listed(picture, box, _folder_of(picture)) for picture, box in kept], why


def _folder_of(picture: str) -> str | None:
    """The outermost of the folders that a picture is in, if there is one."""
    path = PurePosixPath(picture.replace("\\", "/"))
    return path.parts[0] if len(path.parts) > 1 and not path.is_absolute() else None

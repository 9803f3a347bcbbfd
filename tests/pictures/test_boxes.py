"""Boxes of detectors and people: each is a picture of its own, from the list to the corrections."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import painted
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from test_xmp import keywords
from torch import nn

from fslstm_plugin.backbones import Normalization
from fslstm_plugin.data.reading.preprocessing import centre_crop
from fslstm_plugin.errors import DataError
from fslstm_plugin.pictures import Picture, decoding, labelled, pictures_in
from fslstm_plugin.pictures.embedding import features_of
from fslstm_plugin.pictures.picture import Box, boxed, cropped, read_boxed, unboxed
from fslstm_plugin.pretrained import PictureBackbone

numbers = st.floats(0, 1000).map(lambda each: float(f"{each:.6g}"))
HALVES = {"left": (0, 0, 40, 40), "right": (60, 0, 40, 40)}  # of a picture of 100 x 40 pixels


def halves(left: str, right: str, number: int = 0) -> Image.Image:
    """A picture of one colour on the left and of another on the right; each number gives another."""
    image = Image.new("RGB", (100, 40))
    for colour, (x, y, width, height) in zip((left, right), HALVES.values(), strict=True):
        image.paste(painted.picture(colour, 100 * number + x).resize((width, height)), (x, y))
    return image


def names(pictures: list[Picture]) -> list[tuple[str, str | None]]:
    return [(each.path.name, each.label) for each in pictures]


@given(st.tuples(numbers, numbers, numbers, numbers), st.booleans())
def test_a_name_tells_the_file_and_the_box(sides: tuple[float, float, float, float], percent: bool) -> None:
    box = Box(*sides, percent=percent)  # type: ignore[misc]
    assert unboxed(boxed(Path("a/b c.jpg"), box)) == (Path("a/b c.jpg"), box)


@given(st.integers(1, 60), st.integers(1, 60), st.data())
def test_a_crop_is_the_square_around_the_box_as_far_as_the_picture_goes(width: int, height: int, data: Any) -> None:
    x, y = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    box = Box(x, y, data.draw(st.integers(1, width - x)), data.draw(st.integers(1, height - y)))
    places = np.zeros((height, width, 3), np.uint8)
    places[..., 0], places[..., 1] = np.arange(width), np.arange(height)[:, None]
    found = np.asarray(cropped(Image.fromarray(places), box, Path("a.png")))
    side = max(box.width, box.height)
    assert found.shape[:2] == (min(side, height), min(side, width))
    for channel, begin, length in ((0, x, box.width), (1, y, box.height)):
        assert found[..., channel].min() <= begin
        assert found[..., channel].max() >= begin + length - 1


@pytest.mark.parametrize("sides", [(100, 0, 5, 5), (0, -5, 5, 5), (0, 0, 0, 5), (-50, 0, 20, 5)])
def test_a_box_outside_the_picture_is_named(sides: tuple[float, float, float, float], tmp_path: Path) -> None:
    halves("red", "blue").save(tmp_path / "a.png")
    with pytest.raises(DataError, match=r"empty, or not in .*a\.png, which has 100 x 40 pixels"):
        read_boxed(boxed(tmp_path / "a.png", Box(*sides)))


def test_a_file_of_such_a_name_is_a_whole_picture(tmp_path: Path) -> None:
    halves("red", "blue").save(tmp_path / "a.png")
    (tmp_path / "a.png").rename(tmp_path / "a.png#xywh=0,0,10,10")
    assert read_boxed(tmp_path / "a.png#xywh=0,0,10,10").size == (100, 40)


@pytest.mark.parametrize("head", ["x,y,width,height", "X;Y;Width;Height", "xmin,ymin,xmax,ymax"])
def test_boxes_in_a_csv_file(head: str, tmp_path: Path) -> None:
    separator = ";" if ";" in head else ","
    cells = "60,0,100,40" if "max" in head else "60,0,40,40"
    rows = [f"label,path,{head}", f"red,a.png,{cells}", "blue,a.png,,,,"]
    (tmp_path / "a.csv").write_text("\n".join(rows).replace(",", separator))
    assert names(labelled(tmp_path / "a.csv")) == [("a.png#xywh=60,0,40,40", "red"), ("a.png", "blue")]
    assert names(pictures_in(tmp_path / "a.csv")) == [("a.png#xywh=60,0,40,40", None), ("a.png", None)]


@pytest.mark.parametrize("cells", ["1,2,3,", "1,2,3,wide", "1,2,3,nan", "1,2,inf,4"])
def test_half_a_box_in_a_csv_file_is_refused(cells: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"path,x,y,width,height\na.png,{cells}\n")
    with pytest.raises(DataError, match=r"Line 2 of .*a\.csv must have"):
        pictures_in(tmp_path / "a.csv")


@pytest.mark.parametrize("head", ["x,y,width,height,x", "xmin,ymin,xmax,ymax,Xmin"])
def test_a_side_of_a_box_that_is_there_twice_is_refused(head: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"path,{head}\na.png,1,2,3,4,5\n")
    with pytest.raises(DataError, match=f"has the column {head.split(',')[0]} twice"):
        pictures_in(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("xmn,ymin,xmax,ymax", "xmin (did you mean that by xmn?): a box needs xmin, ymin, xmax, ymax"),
        ("X_min,Y_min,X_max,Y_max", "xmin, ymin, xmax, ymax (did you mean that by X_min, Y_min, X_max, Y_max?)"),
        ("x,y,w,h", "width, height (did you mean that by w, h?): a box needs x, y, width, height"),
        ("x,y,widht,note", "width, height (did you mean that by widht?)"),
        ("x,y,width,note", "height: a box needs"),
        ("xmin,ymin,width,height", "xmax, ymax: a box needs xmin, ymin, xmax, ymax"),
        ("x1,y1,x2,y2", "a box needs xmin, ymin, xmax, ymax"),
        ("left,top,width,height", "x, y: a box needs x, y, width, height"),
        ("x_min,y_min,width,height", "a box needs x, y, width, height"),
        ("x_center,y_center,w,h", "a box needs"),
    ],
)
def test_columns_that_are_nearly_those_of_boxes_are_refused(head: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"path,{head}\na.png,1,2,3,4\n")
    with pytest.raises(DataError, match=re.escape(words)):
        pictures_in(tmp_path / "a.csv")


@pytest.mark.parametrize(
    "head", ["x,y,place,note", "width,note,Width,place", "width,height,min,max", "min,max,mean,median"]
)
def test_other_columns_are_ignored(head: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"path,{head}\na.png,1,2,3,4\n")
    assert names(pictures_in(tmp_path / "a.csv")) == [("a.png", None)]


def coco(boxes: list[tuple[str, str, tuple[float, ...]]]) -> dict[str, Any]:
    """COCO's annotations of boxes: picture, category, box."""
    files, kinds = sorted({each[0] for each in boxes}), sorted({each[1] for each in boxes})
    return {
        "images": [{"id": 7 + place, "file_name": name} for place, name in enumerate(files)],
        "categories": [{"id": 3 * place, "name": name} for place, name in enumerate(kinds)],
        "annotations": [
            {"id": place, "image_id": 7 + files.index(file), "category_id": 3 * kinds.index(kind), "bbox": list(box)}
            for place, (file, kind, box) in enumerate(boxes)
        ],
    }


def test_coco(tmp_path: Path) -> None:
    content = coco([("a.png", "owl", (1, 2, 3, 4)), ("b.png", "wren", (5, 6, 7, 8))])
    content["annotations"] += [
        {"id": 8, "image_id": 7, "category_id": 0, "bbox": [0, 0, 1, 1], "iscrowd": 1},
        {"id": 9, "image_id": 8, "category_id": 3},
        {"id": 10, "image_id": 7, "category_id": 0, "bbox": []},
    ]
    (tmp_path / "a.json").write_text(json.dumps(content))
    said: list[str] = []
    expected = [("a.png#xywh=1,2,3,4", "owl"), ("b.png#xywh=5,6,7,8", "wren"), ("b.png", "wren"), ("a.png", "owl")]
    assert names(labelled(tmp_path / "a.json", said.append)) == expected
    assert said == ["Boxes left out: 1, of crowds."]


def batches(files: dict[Any, list[tuple[str, float, tuple[float, ...]]]]) -> dict[str, Any]:
    """MegaDetector's output of a batch: category, confidence, box."""
    images: list[dict[str, Any]] = [
        {"file": file, "detections": [{"category": kind, "conf": conf, "bbox": box} for kind, conf, box in boxes]}
        for file, boxes in files.items()
    ]
    return {
        "info": {"format_version": "1.5", "detector_metadata": {"typical_detection_threshold": 0.3}},
        "detection_categories": {"1": "animal", "2": "person", "3": "vehicle"},
        "images": [*images, {"file": "broken.jpg", "failure": "Failure image access", "detections": None}],
    }


def test_both_forms_of_megadetector(tmp_path: Path) -> None:
    boxes = [("1", 0.9, (0.5, 0, 0.25, 1)), ("1", 0.29, (0, 0, 1, 1)), ("2", 0.9, (0, 0, 1, 1))]
    (tmp_path / "a.json").write_text(json.dumps(batches({"owl/night/a.png": boxes, "wren\\b.png": boxes[:1]})))
    (tmp_path / "wren").mkdir()
    (tmp_path / "wren" / "b.png").touch()
    said: list[str] = []
    found = labelled(tmp_path / "a.json", said.append)
    assert names(found) == [("a.png#xywh=percent:50,0,25,100", "owl"), ("b.png#xywh=percent:50,0,25,100", "wren")]
    assert found[1].path.parent == tmp_path / "wren"
    assert said == ["Boxes left out: 2, of a confidence below 0.3 or of no animal."]
    corners = [{"category": kind, "confidence": 0.9, "bbox": [50, 0, 75, 40]} for kind in ("animal", "person")]
    (tmp_path / "b.json").write_text(json.dumps([{"file": "a.png", "detections": corners}]))
    assert names(pictures_in(tmp_path / "b.json", said.append)) == [("a.png#xywh=50,0,25,40", None)]
    with pytest.raises(DataError, match=r"does not say what .*a\.png.* shows: put its pictures into a folder"):
        labelled(tmp_path / "b.json", said.append)


def test_a_list_may_have_names_that_are_no_text_as_python_writes_them(tmp_path: Path) -> None:
    content = {**batches({"caf\udce9.png": [("1", 0.9, (0, 0, 0.5, 1))]}), "note": "half a pair \ud800"}
    (tmp_path / "a.json").write_text(json.dumps(content))
    assert names(pictures_in(tmp_path / "a.json")) == [("caf\udce9.png#xywh=percent:0,0,50,100", None)]


BOXES = [{"category": "animal", "confidence": 0.9, "bbox": [0, 0, 9, 9]}]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"images": [], "annotations": [], "categories": []}, "There are no pictures in"),
        ({"images": [], "annotations": [{"image_id": 1}], "categories": []}, "the image_id 1, which its images lack"),
        ({"images": [{"detections": [{}]}], "detection_categories": {}}, "is damaged or has an unexpected format"),
        ([{"file": "a", "detections": [{"category": "animal"}]}], "is damaged or has an unexpected format"),
        ({"images": []}, "must be Label Studio's export, COCO's annotations or MegaDetector's output"),
        ({**coco([("https://a/b.png", "a", (1, 1, 1, 1))])}, "web address"),
        (coco([(None, "a", (1, 1, 1, 1))]), "the file_name of an image must be text, but is None"),
        (coco([("", "a", (1, 1, 1, 1))]), "the file_name of an image must be text, but is ''"),
        (coco([("a.png", None, (1, 1, 1, 1))]), "the name of a category must be text, but is None"),
        (batches({None: [("1", 0.9, (0, 0, 1, 1))]}), "the file of an image must be text, but is None"),
        ([{"file": ["a"], "detections": BOXES}], r"the file of an image must be text, but is \['a'\]"),
    ],
)
def test_damaged_lists_are_named(content: Any, words: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=words):
        pictures_in(tmp_path / "a.json")


def test_a_file_is_decoded_once_for_all_its_boxes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = PictureBackbone(nn.Flatten(), centre_crop(8, Normalization((0.0,) * 3, (1.0,) * 3)), "pixels", (8, 8))
    halves("red", "blue").save(tmp_path / "a.png")
    halves("green", "red").save(tmp_path / "b.png")
    wanted = [boxed(tmp_path / name, Box(*box)) for name in ("a.png", "b.png") for box in HALVES.values()]
    one_by_one = [next(features_of([Picture(each)], backbone)).values for each in wanted]
    read: list[Path] = []
    decode = decoding.read_picture
    monkeypatch.setattr(decoding, "read_picture", lambda file, report: [read.append(file), decode(file, report)][1])
    outside = boxed(tmp_path / "a.png", Box(500, 0, 10, 10))
    found = list(features_of(map(Picture, [outside, *wanted, tmp_path / "a.png"]), backbone))
    assert sorted(read) == [tmp_path / "a.png", tmp_path / "a.png", tmp_path / "b.png"]
    assert [problem.picture.path for batch in found for problem in batch.problems] == [outside]
    assert torch.equal(torch.cat([batch.values for batch in found])[:4], torch.cat(one_by_one))


def test_boxes_from_the_list_to_the_corrections(fslstm, succeed, tmp_path: Path) -> None:
    """Two colours in a picture: only boxes tell them apart."""
    pairs = [("red", "blue"), ("blue", "green"), ("green", "red")] * 3
    for number, pair in enumerate(pairs):
        halves(*pair, number).save(tmp_path / f"{number}.png")
    known = [
        (f"{place}.png", colour, box)
        for place, pair in enumerate(pairs[:6])
        for colour, box in zip(pair, HALVES.values(), strict=True)
    ]
    (tmp_path / "known.json").write_text(json.dumps(coco(known)))
    shares = [
        ("1", 0.9, tuple(side / whole for side, whole in zip(box, (100, 40) * 2, strict=True)))
        for box in HALVES.values()
    ]
    (tmp_path / "new.json").write_text(json.dumps(batches({f"{place}.png": shares for place in (6, 7, 8)})))
    model, table = tmp_path / "m.fslstm", tmp_path / "out.csv"
    succeed("fit", tmp_path / "known.json", "-o", model, *painted.backbone(tmp_path))
    succeed("predict", model, tmp_path / "new.json", "--accept", 1, "--csv", table, "--json",
                  tmp_path / "out.json", "--html", tmp_path / "page.html", "--sort-into", tmp_path / "sorted",
                  "--xmp")  # fmt: skip
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert [each["path"] for each in rows[:2]] == ["6.png#xywh=percent:0,0,40,100", "6.png#xywh=percent:60,0,40,100"]
    assert [each["label"] for each in rows] == [colour for pair in pairs[6:] for colour in pair]
    assert keywords(tmp_path / "7.png.xmp") == ["blue", "green"]
    assert sorted(each.name for each in (tmp_path / "sorted" / "green").iterdir()) == ["7.png", "8.png"]
    assert (tmp_path / "page.html").read_text().count('"image":"/9j/') >= 6
    table.write_text(table.read_text().replace('40,100",red', '40,100",blue'))
    done = succeed("update", model, "--add", table)
    assert "18 pictures" in done.out
    done = fslstm("predict", model, tmp_path / "new.json", "--label-studio", tmp_path / "tasks.json")
    assert (done.code, done.err.strip()) == (
        2,
        "fslstm: --label-studio writes labels of whole pictures, but these have boxes: leave it out.",
    )

"""``fslstm fit``."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import painted
import pytest
from PIL import Image

from fslstm_plugin import FewShotClassifier
from fslstm_plugin.errors import UsageError
from fslstm_plugin.runs.folder import Run


def test_a_folder_becomes_a_classifier(succeed, tmp_path: Path, small) -> None:
    done = succeed("fit", painted.labelled(tmp_path / "in"), "-o", tmp_path / "c.fslstm", *small)
    assert "15 pictures, 3 classes.\n" in done.out
    assert "chosen by leaving out each picture in turn" in done.out
    assert "95 % interval" in done.out
    classifier = FewShotClassifier.load(tmp_path / "c.fslstm")
    assert classifier.classes_.tolist() == ["blue", "green", "red"]
    new = painted.unlabelled(tmp_path / "new")
    assert classifier.predict([new / "red-0.png", new / "green-1.png"]).tolist() == ["red", "green"]
    assert all(Path(name).is_file() for name in classifier.pictures_)


def test_a_table_of_pictures_and_a_method(succeed, tmp_path: Path, small) -> None:
    painted.labelled(tmp_path / "in", each=2)
    rows = [f"in/{colour}/{number}.png,{colour}" for colour in ("red", "blue") for number in range(2)]
    (tmp_path / "labels.csv").write_text("\n".join(["path,label", *rows]))
    done = succeed("fit", tmp_path / "labels.csv", "-o", tmp_path / "c.fslstm", "--method", "nn", *small)
    assert "Method: nn.\n" in done.out
    assert FewShotClassifier.load(tmp_path / "c.fslstm").classes_.tolist() == ["blue", "red"]


def test_a_picture_that_is_too_large_is_told_in_the_words_of_the_command(succeed, tmp_path: Path, small, monkeypatch):
    folder = painted.labelled(tmp_path / "in", each=2)
    Image.new("RGB", (300, 300)).save(folder / "red" / "large.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 299 * 300)
    done = succeed("fit", folder, "-o", tmp_path / "c.fslstm", "--json", tmp_path / "c.json", *small)
    assert "raise the limit with --max-pixels." in done.err
    (unreadable,) = json.loads((tmp_path / "c.json").read_text())["unreadable"]
    assert unreadable["reason"].endswith("raise the limit with --max-pixels.")


def test_what_is_odd_is_told(succeed, tmp_path: Path, small) -> None:
    folder = painted.labelled(tmp_path / "in")
    (folder / "red" / "broken.png").write_bytes(b"no picture")
    copies = [f"copy-{number}.png" for number in range(6)]
    for name in copies:
        shutil.copy(folder / "red" / "0.png", folder / "red" / name)
    painted.picture("green", 50).save(folder / "blue" / "wrong.png")
    done = succeed("fit", folder, "-o", tmp_path / "c.fslstm", "--json", tmp_path / "c.json", *small)
    assert f"Left out: The image {folder}/red/broken.png is damaged, or not an image" in done.err
    assert "16 pictures, 3 classes; 1 picture could not be read." in done.out
    assert f"Identical to the backbone, used once: {folder}/red/0.png, " in done.out
    assert "copy-3.png and 2 more." in done.out
    assert "wrong.png is labelled blue but looks like green" in done.out
    content = json.loads((tmp_path / "c.json").read_text())
    assert [Path(each["picture"]).name for each in content["unreadable"]] == ["broken.png"]
    assert [[Path(each).name for each in group] for group in content["copies"]] == [["0.png", *copies]]
    assert [Path(each["picture"]).name for each in content["odd"]] == ["wrong.png"]
    assert content["pictures"] == {"blue": 6, "green": 5, "red": 5}


def test_classes_of_one_picture_say_what_is_offered(succeed, tmp_path: Path, small) -> None:
    folder = painted.labelled(tmp_path / "in", each=3)
    for number in (1, 2):
        (folder / "red" / f"{number}.png").unlink()
    done = succeed("fit", folder, "-o", tmp_path / "c.fslstm", *small)
    assert "Classes with one picture: red." in done.out
    assert "a coverage of up to 0.5 for each class, limited by the 1 picture of red; on average" in done.out
    assert "cannot be estimated from these pictures alone" in done.out
    (folder / "blue" / "1.png").unlink()
    (folder / "blue" / "2.png").unlink()
    done = succeed("fit", folder, "-o", tmp_path / "c.fslstm", *small)
    assert "for each class, limited by the 1 picture of each of blue, red; on average" in done.out


def test_one_picture_of_each_class(succeed, tmp_path: Path, small) -> None:
    done = succeed("fit", painted.labelled(tmp_path / "in", each=1), "-o", tmp_path / "c.fslstm", *small)
    assert "cannot be estimated from these pictures alone" in done.out
    assert "the usual one, since no class has a picture that can be left out." in done.out


def test_what_is_no_set_of_classes_is_refused(fslstm, tmp_path: Path, small) -> None:
    output = tmp_path / "c.fslstm"
    (tmp_path / "empty").mkdir()
    assert "must hold a folder of pictures for each class" in fslstm("fit", tmp_path / "empty", "-o", output).err
    folder = painted.labelled(tmp_path / "in", each=2)
    shutil.copy(folder / "red" / "0.png", folder / "green" / "9.png")
    done = fslstm("fit", folder, "-o", output, *small)
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "The same picture is in two classes" in done.err
    (tmp_path / "twice.csv").write_text("path,label,label\n1.png,a,b\n")
    assert "has the column label twice" in fslstm("fit", tmp_path / "twice.csv", "-o", output).err
    done = fslstm("fit", folder, "-o", tmp_path / os.fsdecode(b"\xff.fslstm"))
    assert (done.code, "is not valid UTF-8" in done.err) == (2, True)
    shutil.rmtree(folder / "green")
    (folder / "red").rename(folder / "none of these")
    assert '2 pictures of "none of these" left out' in fslstm("fit", folder, "-o", output).err
    shutil.rmtree(folder / "none of these")
    done = fslstm("fit", folder, "-o", output)
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "one class only, blue" in done.err
    assert not output.exists()


def test_a_class_that_cannot_be_read_is_told(succeed, tmp_path: Path, small) -> None:
    folder = painted.labelled(tmp_path / "in", each=2)
    for file in (folder / "red").iterdir():
        file.write_bytes(b"")
    done = succeed("fit", folder, "-o", tmp_path / "c.fslstm", *small)
    assert "Classes left out, since none of their pictures can be read: red." in done.err


def test_a_file_that_is_no_classifier_is_not_replaced(fslstm, succeed, tmp_path: Path, small) -> None:
    folder = painted.labelled(tmp_path / "in", each=2)
    photo = folder / "red" / "0.png"
    before = photo.read_bytes()
    done = fslstm("fit", folder, "-o", photo, *small)
    assert (done.code, photo.read_bytes()) == (2, before)
    assert "is not replaced" in done.err
    output = tmp_path / "c.fslstm"
    succeed("fit", folder, "-o", output, *small)
    succeed("fit", folder, "-o", output, "--method", "rr", *small)


def test_a_run_by_its_name_is_a_backbone(fslstm, succeed, tmp_path: Path) -> None:
    runs, folder = tmp_path / "runs", painted.labelled(tmp_path / "in", each=2)
    run = Run.find("builtin:cifar-fs-conv4", runs).path
    succeed("fit", folder, "-o", tmp_path / "c.fslstm", "--backbone", run.name, "--runs", runs)
    assert FewShotClassifier.load(tmp_path / "c.fslstm").open_backbone().name == str(run)
    missing = fslstm("fit", folder, "-o", tmp_path / "d.fslstm", "--backbone", "effecientnet-lite0")
    assert "Did you mean 'efficientnet-lite0'?" in missing.err


def test_a_classifier_on_a_model_of_the_package_goes_anywhere(fslstm, succeed, tmp_path: Path, monkeypatch) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    painted.labelled(here / "in", each=2)
    monkeypatch.chdir(here)
    succeed("fit", "in", "-o", "c.fslstm", "--backbone", "builtin:cifar-fs-conv4")
    there.mkdir()
    (here / "c.fslstm").rename(there / "c.fslstm")
    assert sorted(each.name for each in here.iterdir()) == ["in"]
    monkeypatch.chdir(there)
    succeed("predict", "c.fslstm", here / "in")
    assert "builtin:cifar-fs-conv4 (32 x 32 pixels)" in fslstm("show", "c.fslstm").out
    with pytest.raises(UsageError, match="has its own weights: leave out `weights`"):
        FewShotClassifier.load("c.fslstm", weights="nowhere")
    with pytest.raises(UsageError, match="leave out `weights` or `backbone`"):
        FewShotClassifier.load("c.fslstm", backbone="builtin:cifar-fs-conv4", weights="nowhere")


def test_a_run_that_is_gone_is_found_in_the_package(fslstm, succeed, tmp_path: Path) -> None:
    folder, file = painted.labelled(tmp_path / "in", each=2), tmp_path / "c.fslstm"
    run = Run.find("builtin:cifar-fs-conv4", tmp_path / "runs").path
    succeed("fit", folder, "-o", file, "--backbone", run)
    shutil.rmtree(run)
    assert fslstm("predict", file, folder).code == 1
    succeed("predict", file, folder, "--weights", "builtin:cifar-fs-conv4")
    other = fslstm("predict", file, folder, "--weights", "builtin:cifar-fs-conv4-gpu")
    assert (other.code, "of other weights" in other.err) == (1, True)
    nowhere = fslstm("predict", file, folder, "--weights", tmp_path / "nowhere")
    assert (nowhere.code, "There is no file or run at" in nowhere.err) == (2, True)


def test_what_is_read_otherwise_than_expected_is_said_once(succeed, tmp_path: Path, small) -> None:
    folder = painted.labelled(tmp_path / "in", each=2)
    for number in range(2):
        pages = [painted.picture("red", 50 + number), painted.picture("blue", 50)]
        pages[0].save(folder / "red" / f"pages-{number}.tif", save_all=True, append_images=pages[1:])
    painted.picture("red", 60).resize((400, 40)).save(folder / "red" / "long.png")
    deep = np.asarray(painted.picture("red", 61).convert("L")).astype(np.uint16) * 4
    Image.fromarray(deep).save(folder / "red" / "ten.png")
    (folder / "red" / "drawing.svg").touch()
    done = succeed("fit", folder, "-o", tmp_path / "c.fslstm", *small)
    red = folder / "red"
    assert done.err.splitlines() == [
        "Passed over: 1 .svg.",
        f"Of pictures more than twice as long as wide, only the centre square is seen: {red}/long.png.",
        f"Only the first page or frame is read: {red}/pages-0.tif and 1 more.",
        f"Stored with 16 bits per channel, but read as 8, 10, 12 or 14, which hold the greatest value: {red}/ten.png.",
    ]


def test_a_sample_is_drawn_once_and_classified(fslstm, succeed, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = succeed("fit", "--sample", "-o", "drawings.fslstm")
    assert "25 pictures, 5 classes." in done.out
    assert "Next: fslstm predict drawings.fslstm sample/new" in done.out
    drawn = {file: file.read_bytes() for file in Path("sample").rglob("*.png")}
    assert len(drawn) == 25 + 2 * 43
    Path("sample/mine.txt").touch()
    succeed("fit", "--sample", "-o", "drawings.fslstm")
    assert Path("sample/mine.txt").exists()
    succeed("score", "drawings.fslstm", "sample/known", "--json", "score.json")
    assert json.loads(Path("score.json").read_text())["accuracy"] > 0.9
    for arguments in (("fit", "-o", "m"), ("fit", "sample/labelled", "--sample", "-o", "m")):
        done = fslstm(*arguments)
        assert (done.code, "or give --sample" in done.err) == (2, True)


def _own(*names: str):
    """A user's own folder of that name."""
    return lambda path: [(path / name).mkdir(parents=True) for name in names]


@pytest.mark.parametrize(
    "make",
    [
        Path.touch,
        Path.mkdir,
        lambda path: path.symlink_to("nowhere"),
        painted.labelled,
        _own("new", "labelled/owl"),
        _own(*(f"labelled/{name}" for name in ("boat", "fish", "flower", "house", "tree"))),
    ],
)
def test_what_is_no_sample_is_not_taken_for_one(fslstm, tmp_path: Path, monkeypatch, make) -> None:
    monkeypatch.chdir(tmp_path)
    make(Path("sample"))
    before = sorted(tmp_path.rglob("*"))
    done = fslstm("fit", "--sample", "-o", "drawings.fslstm")
    assert done.code == 2
    assert done.err.startswith("fslstm: sample already exists and is not a sample of this command")
    assert sorted(tmp_path.rglob("*")) == before


def test_what_is_expected_of_a_head_without_its_transduction_says_so(succeed, tmp_path: Path, small) -> None:
    folder = painted.labelled(tmp_path / "in")
    for method, said in (("lssvm+psm", True), ("lssvm(bpa,ridge=1)", False), ("lssvm", False)):
        done = succeed("fit", folder, "-o", tmp_path / "m", "--method", method, *small)
        assert ("That is lssvm alone, without the other pictures." in done.out) == said


def test_the_page_shows_classes_confusions_and_doubtful_labels(succeed, tmp_path: Path) -> None:
    labelled = painted.labelled(tmp_path / "labelled")
    wrong = next((labelled / "red").iterdir())
    (labelled / "blue").rename(labelled / "<i>blue")
    wrong.rename(labelled / "green" / "x.png")
    page = tmp_path / "page.html"
    done = succeed("fit", labelled, "-o", tmp_path / "a.fslstm", "--html", page, *painted.backbone(tmp_path))
    text = page.read_text(encoding="utf-8")
    assert "Expect about" in text
    assert "<td>green</td>" in text
    assert "<i>" not in text
    assert str(tmp_path) not in text
    assert "://" not in text
    assert "Possibly mislabelled" in done.out
    assert "green/x.png is labelled <strong>green</strong> but looks like <strong>red</strong>" in text
    assert "data:image/jpeg;base64," in text


def test_a_page_in_place_of_another_file_is_refused(fslstm, tmp_path: Path) -> None:
    labelled = painted.labelled(tmp_path / "labelled")
    same = tmp_path / "a.fslstm"
    done = fslstm("fit", labelled, "-o", same, "--html", same, *painted.backbone(tmp_path))
    assert done.code == 2
    assert not same.exists()


def test_a_sum_of_backbones_moves_with_its_run(succeed, tmp_path: Path) -> None:
    folder = tmp_path / "before"
    painted.labelled(folder / "labelled")
    shutil.copytree(Run.find("builtin:cifar-fs-conv4", folder / "runs").path, folder / "runs" / "a+b")
    both = f"efficientnet-lite0+{folder}/runs/builtin-cifar-fs-conv4"
    succeed("fit", folder / "labelled", "-o", folder / "a.fslstm", "--backbone", both)
    succeed("fit", folder / "labelled", "-o", folder / "b.fslstm", "--backbone", "a+b", "--runs", folder / "runs")
    moved = folder.rename(tmp_path / "after")
    for name in ("a", "b"):
        succeed("predict", moved / f"{name}.fslstm", moved / "labelled")

"""``predict --xmp``: sidecars for programs for photographs."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fslstm_plugin.pictures.xmp import Sidecars, write_sidecars

KEYWORDS = ".//{http://purl.org/dc/elements/1.1/}subject//{http://www.w3.org/1999/02/22-rdf-syntax-ns#}li"


def keywords(sidecar: Path) -> list[str | None]:
    return [each.text for each in ElementTree.parse(sidecar).getroot().findall(KEYWORDS)]


@pytest.mark.parametrize("label", ["owl", "a & b", "<wren>", "Säger", '"q"', "日本"])
def test_the_label_is_the_keyword(label: str, tmp_path: Path) -> None:
    assert write_sidecars({tmp_path / "1.jpg": [label]}) == Sidecars(1, 0, [])
    assert keywords(tmp_path / "1.jpg.xmp") == [label]


def test_only_its_own_sidecars_are_replaced_or_removed(tmp_path: Path) -> None:
    pictures = [tmp_path / f"{name}.jpg" for name in ("own", "edited", "typed", "link", "folder")]
    write_sidecars({picture: ["owl"] for picture in pictures[:3]})
    edited, typed = tmp_path / "edited.jpg.xmp", tmp_path / "typed.jpg.xmp"
    for file, old, new in ((edited, "fslstm", "XMP Core 6.0"), (typed, "owl", "tawny owl")):
        file.write_text(file.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    other = tmp_path / "other.txt"
    other.write_text('x:xmptk="fslstm"')
    (tmp_path / "link.jpg.xmp").symlink_to(other)
    (tmp_path / "folder.jpg.xmp").mkdir()
    before = edited.read_bytes(), typed.read_bytes(), other.read_bytes()
    assert write_sidecars({picture: ["wren"] for picture in pictures}) == Sidecars(1, 4, [])
    assert keywords(tmp_path / "own.jpg.xmp") == ["wren"]
    assert write_sidecars({picture: [] for picture in pictures}) == Sidecars(0, 4, [])
    assert not (tmp_path / "own.jpg.xmp").exists()
    assert (edited.read_bytes(), typed.read_bytes(), other.read_bytes()) == before


def test_a_sidecar_that_cannot_be_written_is_named_and_stops_no_other(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    longest = tmp_path / f"{'a' * 247}.jpg"  # 255 bytes with the sidecar's ending
    done = write_sidecars(
        {tmp_path / "file" / "1.jpg": ["owl"], longest: ["owl"], longest.with_name("a" * 252): ["owl"]}
    )
    assert (done.written, done.left) == (1, 0)
    assert [each.rpartition("/")[2] for each in done.failed] == [
        "file: File exists.",
        f"{'a' * 252}.xmp: File name too long.",
    ]
    assert keywords(longest.with_name(f"{longest.name}.xmp")) == ["owl"]


def test_a_sidecar_that_cannot_be_read_is_left_and_stops_no_other(tmp_path: Path, monkeypatch) -> None:
    pictures = {tmp_path / f"{number}.jpg": ["owl"] for number in (1, 2)}
    write_sidecars(pictures)
    read = Path.read_bytes

    def refuse(file: Path) -> bytes:  # as the system does to another user; who may do all is refused nothing
        if file.name == "1.jpg.xmp":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file))
        return read(file)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert write_sidecars({picture: ["wren"] for picture in pictures}) == Sidecars(1, 1, [])
    assert keywords(tmp_path / "2.jpg.xmp") == ["wren"]


def test_predict_writes_those_of_sure_labels(fslstm, succeed, tmp_path: Path, model, new) -> None:
    pictures = sorted(new.iterdir())
    done = succeed("predict", model, new, "--xmp", "--accept", 1)
    assert "Written: 12 XMP sidecars." in done.out
    assert sorted(new.glob("*.xmp")) == [picture.with_name(f"{picture.name}.xmp") for picture in pictures]
    assert {keywords(each)[0] for each in new.glob("*.xmp")} <= {
        folder.name for folder in (tmp_path / "labelled").iterdir()
    }
    done = succeed("predict", model, new, "--xmp", "--above", 0.9999, "--accept", 1)
    sure = int(done.out.split("Sure: ")[1].split()[0])
    assert len(list(new.glob("*.xmp"))) == sure < 12
    pictures[0].rename(new / f"{'a' * 248}.png")
    done = fslstm("predict", model, new, "--xmp", "--accept", 1, "--sort-into", tmp_path / "sorted")
    assert done.code == 1
    assert done.err.strip().endswith(f"{'a' * 248}.png.xmp: File name too long.")
    assert "Written: 11 XMP sidecars." in done.out
    assert len(list((tmp_path / "sorted").rglob("*.png"))) == 12
    if Path("/dev/full").exists():  # a disk that is full
        shutil.rmtree(tmp_path / "sorted")
        files = ("--json", "/dev/full", "--xmp", "--sort-into", tmp_path / "sorted")
        done = fslstm("predict", model, new, "--accept", 1, *files)
        assert (done.code, done.err.splitlines()[-1].count("Cannot write")) == (1, 2), done.err
        assert len(list((tmp_path / "sorted").rglob("*.png"))) == 12


def test_a_folder_that_cannot_be_written_to_is_told_before_any_picture_is_looked_at(
    fslstm, tmp_path: Path, model, new, monkeypatch
) -> None:
    access = os.access
    monkeypatch.setattr(os, "access", lambda place, mode: access(place, mode) and (place, mode) != (new, os.W_OK))
    done = fslstm("predict", model, new, "--xmp", "--csv", tmp_path / "labels.csv")
    said = f"fslstm: --xmp writes beside the pictures, but the folder {new} cannot be written to: make it writable, or"
    assert (done.code, done.out, done.err.startswith(said)) == (2, "", True), done.err
    assert not (tmp_path / "labels.csv").exists()

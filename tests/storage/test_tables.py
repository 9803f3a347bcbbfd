"""CSV files: what spreadsheets and other systems write is read, what the product wrote comes back the same."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fslstm_plugin.errors import DataError
from fslstm_plugin.pictures import Picture, class_names, labelled, pictures_in
from fslstm_plugin.pictures.predictions import Asked, Prediction, PredictionTable
from fslstm_plugin.storage.tables import guarded, path_of, path_text, unguarded

NAMES = ["-1", "+1", "=x", "@home", "'tis", "''", "'-1", "cat"]


def predicted(path: Path, label: str) -> Prediction:
    return Prediction(path_text(path), label, label, 0.5, 1.0, (label,), "")


def test_class_names_come_back_from_the_own_table(tmp_path: Path) -> None:
    table = PredictionTable(tmp_path / "out.csv", "m")
    table.append([predicted(tmp_path / f"{number}.png", name) for number, name in enumerate(NAMES)])
    assert labelled(table.file) == [Picture(tmp_path / f"{number}.png", name) for number, name in enumerate(NAMES)]


@given(st.text())
def test_guarding_is_undone(text: str) -> None:
    assert unguarded(guarded(text)) == text


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lists_are_read_as_spreadsheets_write_them(tmp_path: Path, separator: str, mark: str, end: str) -> None:
    lines = [["Path", "Label", "note"], ["1.png", "cat", '"a,b;c\td"'], ["2.png", "'-1", ""]]
    content = mark + "".join(separator.join(line) + end for line in lines)
    (tmp_path / "labels.csv").write_bytes(content.encode())
    assert labelled(tmp_path / "labels.csv") == [
        Picture(tmp_path / "1.png", "cat"),
        Picture(tmp_path / "2.png", "-1"),
    ]
    assert len(pictures_in(tmp_path / "labels.csv")) == 2


@pytest.mark.parametrize("first", ["sep={}", '"sep={}"'])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_blank_rows_and_the_line_of_the_separator_are_passed_over(tmp_path: Path, separator: str, first: str) -> None:
    lines = ["", "path,label,x,y,width,height", ",,,,,", "1.png,cat", "", " , ,,,,,,,", "2.png,dog,,,,,,", ",,,,,"]
    text = "\r\n".join(lines).replace(",", separator)
    (tmp_path / "labels.csv").write_text(f"\ufeff{first.format(separator)}\r\n{text}\r\n", encoding="utf-8", newline="")
    expected = [Picture(tmp_path / "1.png", "cat"), Picture(tmp_path / "2.png", "dog")]
    assert labelled(tmp_path / "labels.csv") == expected
    with (tmp_path / "labels.csv").open("a") as file:
        file.write(f"3.png{separator}")
    with pytest.raises(DataError, match="Line 10 of .* has an empty cell"):
        labelled(tmp_path / "labels.csv")


def test_an_own_table_saved_by_a_spreadsheet_is_continued(tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    first, second = (predicted(tmp_path / f"{number}.png", "-1") for number in range(2))
    PredictionTable(file, "m").append([first])
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    table = PredictionTable(file, "m")
    assert table.done == {first.path}
    table.append([second])
    assert list(PredictionTable(file, "m")) == [first, second]
    file.write_bytes(file.read_bytes().replace(b",", b";").replace(b"0.5", b"0,5"))
    assert class_names(labelled(file)) == ["-1"]
    third = predicted(tmp_path / "3,3.png", "a,b")._replace(labels=("a,b", "c;d"))
    PredictionTable(file, "m").append([third])
    table = PredictionTable(file, "m")
    assert list(table) == [first, second, third]
    table.mark(Asked(table, table.done, sure=lambda each: True))
    assert [each.sure for each in PredictionTable(file, "m")] == [True] * 3
    assert file.read_bytes().startswith(b"path;label;")


def test_backslashes_of_windows_are_followed_where_nothing_has_the_name(tmp_path: Path) -> None:
    (tmp_path / "set" / "cat").mkdir(parents=True)
    (tmp_path / "set" / "cat" / "1.png").touch()
    (tmp_path / "set\\cat\\2.png").touch()
    (tmp_path / "set" / "cat" / "2.png").touch()
    rows = ["set\\cat\\1.png", "set\\cat\\2.png", "set\\cat\\3.png"]
    (tmp_path / "win.csv").write_text("\n".join(["path,label", *(f"{row},a" for row in rows)]))
    found = [str(each.path.relative_to(tmp_path)) for each in labelled(tmp_path / "win.csv")]
    assert found == ["set/cat/1.png", "set\\cat\\2.png", "set\\cat\\3.png"]


@pytest.mark.parametrize("address", ["https://example.org/1.png", "HTTP://example.org/1.png", "s3://bucket/1.png"])
def test_web_addresses_are_refused(tmp_path: Path, address: str) -> None:
    (tmp_path / "labels.csv").write_text(f"path,label\n1.png,a\n{address},b\n")
    with pytest.raises(DataError, match=r"Line 3 of .*labels\.csv is a web address, from which nothing is downloaded"):
        labelled(tmp_path / "labels.csv")
    for listing in (labelled, pictures_in):
        with pytest.raises(DataError, match=r"1\.png is a web address, from which nothing is downloaded"):
            listing(Path(address))


def test_lists_are_regular_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    os.mkfifo("pipe.png")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        for name, what in (("pipe", "pipe"), ("pipe.png", "pipe"), ("zeros", "device"), ("socket", "socket")):
            for listing in (labelled, pictures_in):
                with pytest.raises(DataError, match=f"{name} is a {what}, but a regular file was expected"):
                    listing(Path(name))


COLLIDING = [b"x\xff.png", b"x\\xff.png", b"x\\\\xff.png", b"x\xff\\xff.png", b"a\\b.png", "é\x1b\n.png".encode()]
COLLIDING += [b" x.png", b"x.png", b"x.png ", b"\\x20x.png"]


@given(st.lists(st.sampled_from([b"\\", b"x", b"\xff", b"f", b"\n", b"0", b" ", "é".encode()]), max_size=8))
def test_a_path_comes_back_from_its_text(parts: list[bytes]) -> None:
    path = os.fsdecode(b"".join(parts))
    text = path_text(path)
    assert path_of(text) == path
    assert "\n" not in text.encode().decode()
    assert text == text.strip()


def test_paths_of_one_text_stay_apart(tmp_path: Path) -> None:
    files = [Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)) for name in COLLIDING]
    for file in files:
        file.touch()
    table = PredictionTable(tmp_path / "out.csv", "m")
    table.append([predicted(file, "a") for file in files])
    assert len(PredictionTable(table.file, "m").done) == len(COLLIDING)
    assert [each.path for each in labelled(table.file)] == files


@pytest.mark.parametrize(
    "edited",
    [
        lambda text: text.replace("0.5", "50%").encode(),
        lambda text: text.encode("utf-16"),
        lambda text: text.replace("\n", "\r").encode(),
    ],
)
def test_a_table_that_a_spreadsheet_wrote_otherwise_is_refused(tmp_path: Path, edited) -> None:
    (tmp_path / "a.png").touch()
    table = PredictionTable(tmp_path / "out.csv", "m")
    table.append([predicted(tmp_path / "a.png", "a")])
    table.file.write_bytes(edited(table.file.read_bytes().decode().replace("\r\n", "\n")))
    with pytest.raises(DataError, match=r"out\.csv"):
        list(PredictionTable(table.file, "m"))

"""Untrusted archives: nothing leaves the folder, nothing fills the disk, damage is reported."""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
import zipfile
from collections import namedtuple
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fslstm_plugin.data.reading import archives
from fslstm_plugin.data.reading.archives import extract, opened
from fslstm_plugin.errors import DataError


def make_zip(path: Path, files: dict[str, bytes], mode: int = 0) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = mode << 16
            archive.writestr(info, content)
    return path


def make_tar(path: Path, files: dict[str, bytes], kind: bytes = tarfile.REGTYPE) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname = kind, len(content), "/etc/passwd"
            archive.addfile(info, io.BytesIO(content))
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "target").mkdir()
    return tmp_path / "target"


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_files_are_extracted(tmp_path: Path, target: Path, make) -> None:
    extract(make(tmp_path / "a", {"one.txt": b"1", "folder/two.txt": b"22"}), target, 100)
    assert (target / "one.txt").read_bytes() == b"1"
    assert (target / "folder" / "two.txt").read_bytes() == b"22"


@pytest.mark.parametrize("make", [make_zip, make_tar])
@pytest.mark.parametrize("name", ["../out", "/tmp/out", "a/../../out", "C:\\out", "..\\out"])
def test_names_that_lead_out_are_refused(tmp_path: Path, target: Path, make, name: str) -> None:
    with pytest.raises(DataError, match="leads out of the folder"):
        extract(make(tmp_path / "a", {name: b"x"}), target, 100)
    assert {path.name for path in tmp_path.rglob("*")} == {"a", "target"}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_tar_are_refused(tmp_path: Path, target: Path, kind: bytes) -> None:
    with pytest.raises(DataError, match=r"a\.tar holds a link or device \('x'\)"):
        extract(make_tar(tmp_path / "a.tar", {"x": b""}, kind), target, 100)


def test_links_in_zip_are_refused(tmp_path: Path, target: Path) -> None:
    with pytest.raises(DataError, match="holds a link or device"):
        extract(make_zip(tmp_path / "a.zip", {"x": b"/etc/passwd"}, 0o120777), target, 100)


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_bombs_are_refused(tmp_path: Path, target: Path, make, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="more than 1,000 bytes"):
        extract(make(tmp_path / "a", {"a": b"0" * 600, "b": b"0" * 600}), target, 1000)
    assert not (target / "b").exists()
    monkeypatch.setattr(archives, "MAX_MEMBERS", 3)
    with pytest.raises(DataError, match="or 3 files"):
        extract(make(tmp_path / "b", {str(number): b"" for number in range(5)}), target, 1000)


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_what_the_disk_cannot_hold_is_refused(tmp_path: Path, target: Path, make, monkeypatch) -> None:
    monkeypatch.setattr(archives.shutil, "disk_usage", lambda path: usage(1, 1, archives._SPARE + 1000))
    usage = namedtuple("usage", "total used free")
    extract(make(tmp_path / "small", {"a": b"0" * 600}), target, 10**6)
    with pytest.raises(DataError, match=r"large holds at least 1,200 bytes, but only .* are free in .*: make room"):
        extract(make(tmp_path / "large", {"b": b"0" * 600, "c": b"0" * 600}), target, 10**6)
    assert not (target / "c").exists()


def test_a_zip_file_is_refused_before_anything_is_written(tmp_path: Path, target: Path) -> None:
    with pytest.raises(DataError, match="more than 1,000 bytes"):
        extract(make_zip(tmp_path / "a", {"a": b"0" * 600, "b": b"0" * 600}), target, 1000)
    assert not any(target.iterdir())


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_untrusted_names_are_escaped(tmp_path: Path, target: Path, make) -> None:
    with pytest.raises(DataError) as failure:
        extract(make(tmp_path / "a", {"../\x1b[2J\u202e": b""}), target, 100)
    assert r"'../\x1b[2J\u202e'" in str(failure.value)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_headers_that_would_fill_the_memory_are_refused(tmp_path: Path, target: Path, kind: bytes) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        info = tarfile.TarInfo("x")
        info.type, info.size = kind, 1 << 33
        archive.fileobj.write(info.tobuf(tarfile.GNU_FORMAT))
        archive.fileobj.write(bytes(2000))
    with pytest.raises(DataError, match="a header of 8,589,934,592 bytes"):
        extract(tmp_path / "a.tar", target, 1000)


@pytest.mark.parametrize("make", [make_zip, make_tar])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_truncated_archives_are_named(tmp_path: Path, target: Path, make, share: float) -> None:
    noise = bytes(hash((number, "x")) % 256 for number in range(20_000))
    whole = make(tmp_path / "whole", {"a": noise, "b": noise}).read_bytes()
    (tmp_path / "cut").write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(DataError, match=r"cut is .*truncated"):
        extract(tmp_path / "cut", target, 10**6)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\n<!DOCTYPE html><html>sign in</html>", "is a web page"),
        (b"<html>not found</html>", "is a web page"),
        (b"\xef\xbb\xbf<!-- moved --><html></html>", "is a web page"),
        (b"", "is empty"),
        (b"something else altogether", "neither a zip nor a tar archive"),
    ],
)
def test_what_is_no_archive_is_named(tmp_path: Path, target: Path, content: bytes, words: str) -> None:
    (tmp_path / "cifar100.zip").write_bytes(content)
    with pytest.raises(DataError, match=rf"cifar100\.zip .*{words}|cifar100\.zip {words}"):
        extract(tmp_path / "cifar100.zip", target, 100)


def test_a_missing_archive_and_a_folder_are_named(tmp_path: Path, target: Path) -> None:
    with pytest.raises(DataError, match="is not there"):
        extract(tmp_path / "none.zip", target, 100)
    with pytest.raises(DataError, match="is a folder"):
        extract(tmp_path, target, 100)


def test_an_encrypted_zip_is_named(tmp_path: Path, target: Path) -> None:
    path = make_zip(tmp_path / "a.zip", {"a": b"x"})
    content = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # the flag bits of both headers
        content[content.index(signature) + offset] |= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="encrypted"):
        extract(path, target, 100)


def test_opened_extracts_for_a_while(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "a.zip", {"a": b"x"})
    with opened(archive, tmp_path / "scratch", 100) as folder:
        assert (folder / "a").read_bytes() == b"x"
    assert not (tmp_path / "scratch").exists()
    with opened(tmp_path, tmp_path / "scratch", 100) as folder:
        assert folder == tmp_path


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), make=st.sampled_from([make_zip, make_tar]))
def test_damaged_archives_never_raise_anything_else(tmp_path: Path, data: st.DataObject, make) -> None:
    content = bytearray(make(tmp_path / "whole", {"a/b": b"12345", "c": b"6" * 50}).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / "damaged").write_bytes(content)
    (tmp_path / "target").mkdir(exist_ok=True)
    # An OSError, such as that of a name that is too long, is named by Dataset.prepare.
    with contextlib.suppress(DataError, OSError), opened(tmp_path / "damaged", tmp_path / "scratch", 10**5):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {"whole", "damaged", "target"}


def test_a_directory_that_points_before_the_beginning_is_damage(tmp_path: Path, target: Path) -> None:
    """Which zipfile answers with an OSError that names no file."""
    file = make_zip(tmp_path / "a.zip", {"one.txt": b"1"})
    content = bytearray(file.read_bytes())
    content[-7] ^= 0x40  # of the directory's place
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"a.zip is truncated or damaged"):
        extract(file, target, 100)


def test_a_pipe_is_named(tmp_path: Path, target: Path) -> None:
    os.mkfifo(tmp_path / "pipe.zip")
    with pytest.raises(DataError, match=r"pipe.zip is a pipe, but a regular file was expected"):
        extract(tmp_path / "pipe.zip", target, 100)

"""Untrusted zip and tar archives: nothing leaves the target folder, and nothing fills the disk."""

from __future__ import annotations

import codecs
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, NamedTuple

from typing_extensions import Self

from ...errors import DataError
from ...storage.damage import naming_damage
from ...storage.files import require_regular
from ...storage.folders import scratch_folder

MAX_MEMBERS = 1_000_000
_SPARE = 64 << 20  # bytes of the disk that an archive must leave free
_MAX_HEADER = 1 << 20  # bytes; real ones have a few hundred
_IN_MEMORY = (
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
)


class _Member(NamedTuple):
    """One entry: its name, and its content, None for a folder."""

    name: str
    content: IO[bytes] | None


_Check = Callable[[int, int], None]


def extract(archive: Path, target: Path, max_bytes: int) -> None:
    """Extract regular files and folders, ``max_bytes`` at most, into a folder that the caller removes if this fails.

    The archive is a zip file, or a tar file with any of tar's compressions.

    Raises:
        DataError: If the archive is missing, no archive, truncated, too large for the data set or for the disk, or
            holds a link, a device or a name that leads out of the folder; the message names the archive.
    """
    check_file(archive)
    free = shutil.disk_usage(target).free

    def check(size: int, members: int) -> None:
        if size > max_bytes or members > MAX_MEMBERS:
            raise DataError(
                f"{archive} holds more than {max_bytes:,} bytes or {MAX_MEMBERS:,} files, "
                "which is more than this data set has."
            )
        if size > free - _SPARE:
            raise DataError(
                f"{archive} holds at least {size:,} bytes, but only {free:,} are free in {target.parent}: "
                "make room there."
            )

    with naming_damage(archive, "is truncated or damaged, and must be downloaded again"):
        for member in _members(archive, check):
            _write(member, target / _safe(member, archive))


@contextmanager
def opened(source: Path, scratch: Path, max_bytes: int) -> Iterator[Path]:
    """The folder or parquet file that a source is: itself, or, extracted into ``scratch`` for a while, an archive.

    The scratch is a path for `scratch_folder`; see also `extract`.
    """
    if source.is_dir() or source.suffix.lower() == ".parquet":
        yield source
        return
    with scratch_folder(scratch) as folder:
        extract(source, folder, max_bytes)
        yield folder


def find_file(folder: Path, name: str) -> Path | None:
    """The file of this name in the folder or one folder below, where archives often have it."""
    return next((path for path in (folder / name, *sorted(folder.glob(f"*/{name}"))) if path.is_file()), None)


def check_file(path: Path) -> None:
    """Refuse a path that is missing, not a file, empty, or a web page saved in place of the file."""
    if not path.exists():
        raise DataError(f"{path} is not there.")
    require_regular(path)
    with path.open("rb") as file:
        start = file.read(256).removeprefix(codecs.BOM_UTF8).lstrip().lower()
    if not start:
        raise DataError(f"{path} is empty: download it again.")
    if start.startswith((b"<!doctype", b"<!--", b"<html", b"<?xml", b"<head")):
        raise DataError(f"{path} is a web page (HTML) in place of the data: download it again.")


def _members(archive: Path, check: _Check) -> Iterator[_Member]:
    """The entries; ``check`` gets the bytes and the number of those to come, as far ahead as they are known."""
    if zipfile.is_zipfile(archive):
        return _zip_members(archive, check)
    with archive.open("rb") as file:
        if file.read(4) == b"PK\x03\x04":  # begins as a zip file, but its directory at the end is missing
            raise DataError(f"{archive} is a truncated zip file: download it again.")
    try:
        tarfile.open(archive, tarinfo=_Header).close()
    except tarfile.TarError as error:
        raise DataError(f"{archive} is neither a zip nor a tar archive, or it is truncated.") from error
    return _tar_members(archive, check)


def _zip_members(archive: Path, check: _Check) -> Iterator[_Member]:
    with zipfile.ZipFile(archive) as file:
        entries = file.infolist()
        check(sum(info.file_size for info in entries), len(entries))
        for info in entries:
            if info.filename.endswith("/"):
                yield _Member(info.filename, None)
                continue
            if (info.external_attr >> 28) not in (0, 8):  # the upper bits of the Unix mode: 8 is a regular file
                raise _forbidden(archive, info.filename)
            with file.open(info) as content:
                yield _Member(info.filename, content)


class _OversizedHeader(Exception):
    """Not one of tarfile's own errors, after which it would try the next compression."""


class _Header(tarfile.TarInfo):
    """A header of a tar file whose long names and attributes, which are read into memory, are bounded."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Read a block of 512 bytes."""
        header = super().frombuf(buf, encoding, errors)
        if header.type in _IN_MEMORY and header.size > _MAX_HEADER:
            raise _OversizedHeader(f"a header of {header.size:,} bytes")
        return header


def _tar_members(archive: Path, check: _Check) -> Iterator[_Member]:
    size = 0
    with tarfile.open(archive, tarinfo=_Header) as file:
        for number, info in enumerate(file, start=1):
            if not info.isdir() and not info.isreg():
                raise _forbidden(archive, info.name)
            size += info.size
            check(size, number)
            yield _Member(info.name, file.extractfile(info))


def _forbidden(archive: Path, name: str) -> DataError:
    return DataError(f"{archive} holds a link or device ('{name}'): only files and folders are extracted.")


def _safe(member: _Member, archive: Path) -> PurePosixPath:
    name = member.name
    path, windows = PurePosixPath(name), PureWindowsPath(name)
    if member.content is not None and not path.parts:
        raise DataError(f"{archive} holds a file without a name: not extracted.")
    if path.is_absolute() or windows.drive or ".." in windows.parts or "\0" in name:
        raise DataError(f"{archive} holds the name '{name}', which leads out of the folder: not extracted.")
    return path


def _write(member: _Member, path: Path) -> None:
    if member.content is None:
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        shutil.copyfileobj(member.content, file)

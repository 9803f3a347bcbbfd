"""Files that are whole or absent: written beside their place, flushed, then renamed."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import secrets
import shutil
import stat
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock, Timeout

from ..errors import DataError, FSLSTMError, RunError, StorageError, UsageError, reason

# Answers of a file system without locks; the last, of one that locks only files that may be written.
_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EBADF}

_DAY = 24 * 60 * 60.0

_NOT_REGULAR = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))


@contextmanager
def saying_why(what: str, kind: Callable[[str], FSLSTMError] = StorageError) -> Iterator[None]:
    """Make what the operating system refuses in the block an error that says what could not be done, and why.

    Example:
        >>> with saying_why("Cannot read a.txt"):
        ...     Path("no/a.txt").read_text()
        Traceback (most recent call last):
        ...
        fslstm_plugin.errors.StorageError: Cannot read a.txt: No such file or directory.
    """
    try:
        yield
    except OSError as error:
        raise kind(f"{what}: {reason(error)}.") from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path to write to; on success it takes the place of ``path``, on failure it is removed.

    The folder must exist. A link at ``path`` is replaced, not followed; an existing file's mode is kept, and the
    temporary file is no more open to others.

    Raises:
        UsageError: If a pipe, a device or a folder is there.
        StorageError: If the operating system refuses (a full disk, a read-only folder); the old file is intact.
        RunError: If the folder was `held` and no longer is; the file there is left alone.

    Example:
        >>> import tempfile
        >>> target = Path(tempfile.mkdtemp()) / "a.txt"
        >>> with replacing(target) as temporary:
        ...     _ = temporary.write_text("whole")
        >>> target.read_text()
        'whole'
    """
    linked = os.path.islink(path)
    if not linked:
        replaceable(path)
    # Not the number of the process, which two containers on one volume may share, nor a name that may be too long.
    temporary = path.parent / f".{secrets.token_hex(8)}.tmp"
    try:
        with saying_why(f"Cannot write {path}"):
            if not linked:
                with suppress(FileNotFoundError):  # no file is there
                    make_alike(path, temporary)
            yield temporary
            sync(temporary)
            if not linked:
                with suppress(OSError):  # no file is there, or the file system has no modes
                    shutil.copymode(path, temporary)
            _require_held(path.parent)
            os.replace(temporary, path)
            sync_folder(path.parent)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def make_alike(file: Path, new: Path) -> None:
    """Make an empty file with the mode of another, less the umask, which its owner may read and write in any case."""
    new.touch(file.stat().st_mode & 0o777 | 0o600, exist_ok=False)


def replaceable(path: Path) -> Path:
    """The file that a user's name leads to through links, for `replacing`; it need not be there yet.

    Raises:
        UsageError: If a pipe, a device or a folder is there, or no file can have the name.
        StorageError: If the operating system refuses the name, as one that is too long.

    Example:
        >>> replaceable(Path("/dev/null"))
        Traceback (most recent call last):
        ...
        fslstm_plugin.errors.UsageError: /dev/null is no regular file, and is not replaced: name another file.
    """
    if "\0" in str(path):
        raise UsageError(f"{path} has a null character in its name, which no file can have: name another file.")
    with saying_why(f"Cannot write {path}"):
        place = Path(os.path.realpath(path))
        taken = path.exists() and not path.is_file()  # not the place: that of /dev/stdout is none if it is a pipe
    if taken:
        raise UsageError(f"{path} is no regular file, and is not replaced: name another file.")
    return place


@dataclass(frozen=True)
class Lock:
    """A lock that this process holds, or would if the file system supported locks: its place, and that file, open."""

    file: Path
    handle: BinaryIO

    def still_held(self) -> bool:
        """Whether the file at its place is still the locked one; if not, another process may hold the new one."""
        try:
            return os.path.samestat(os.fstat(self.handle.fileno()), self.file.stat())
        except FileNotFoundError:
            return False


@contextmanager
def locked(file: Path, seconds: float, busy: FSLSTMError) -> Iterator[Lock]:
    """Hold a lock that ends with the process, waiting ``seconds`` for it; if another process still holds it, `busy`.

    Where the file system has no locks, go on without. The file stays: if it were removed, a process that waits for it
    and a later one could both hold the lock.

    Raises:
        FSLSTMError: ``busy``.
        OSError: If the file cannot be made.
    """
    lock = FileLock(file, fallback_to_soft=False)  # a soft one would outlive its process
    try:
        lock.acquire(timeout=seconds)
    except Timeout:
        raise busy from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    try:
        with file.open("ab") as handle:
            yield Lock(file, handle)
    finally:
        lock.release()


@contextmanager
def exclusive(folder: Path, seconds: float = 3600) -> Iterator[None]:
    """Hold the right to write ``folder``, which need not exist, with a lock beside it; waits for another that holds it.

    Raises:
        StorageError: If another process still holds it.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    file = folder.parent / f".{folder.name}.lock"
    busy = StorageError(
        f"Another process has been writing to {folder} for more than {seconds:g} s: wait for its end, or "
        f"remove {file} if no such process runs on any machine that shares the folder."
    )
    with locked(file, seconds, busy):
        yield


@contextmanager
def claimed(file: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Keep a file from other processes that claim it, from reading it until it is written; waits for one that has it.

    The file itself is locked, so that nothing is left beside it, and the lock ends with the process. It may be replaced
    meanwhile, as by `replacing`: who waited then claims the new file. There is nothing to claim where no regular
    file is. Through a link it is the file that it leads to. ``waiting`` is called once if another process has it.

    Raises:
        StorageError: If it cannot be opened.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "count"
        >>> _ = file.write_text("1")
        >>> with claimed(file, waiting=lambda: print("Waiting.")):
        ...     write_text(file, str(int(file.read_text()) + 1))
    """
    place = Path(os.path.realpath(file))
    with ExitStack() as stack:
        if sys.platform == "win32":  # where an open file cannot be replaced
            stack.enter_context(exclusive(place))
        else:
            with saying_why(f"Cannot open {file}"), suppress(FileNotFoundError):
                stack.enter_context(_locked_itself(place, waiting))
        yield


def _locked_itself(place: Path, waiting: Callable[[], None]) -> BinaryIO:
    """The file, open and locked until it is closed; `FileNotFoundError` if no regular file is there."""
    import fcntl

    told = False
    while place.is_file():
        handle = place.open("rb+" if os.access(place, os.W_OK) else "rb")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not told:
                waiting()
            told = True
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        if Lock(place, handle).still_held():
            return handle
        handle.close()  # it was replaced while it was waited for
    raise FileNotFoundError(place)


# The locks of the folders that this process holds.
_held: dict[Path, Lock] = {}


@contextmanager
def held(folder: Path, seconds: float, busy: FSLSTMError) -> Iterator[Lock]:
    """Hold the right to write ``folder``, made if needed, with a lock in it; leftovers of a killed holder are removed.

    Until the block ends, `replacing` writes to the folder only while it is still the one that was locked.

    Raises:
        FSLSTMError: ``busy``, if another process still holds it.
        OSError: If the folder cannot be made or written.

    Example:
        >>> import tempfile
        >>> with held(Path(tempfile.mkdtemp()) / "run", 1, RunError("It is held.")) as lock:
        ...     lock.file.unlink()
        ...     lock.still_held()
        False
    """
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock", seconds, busy) as lock:
        for rest in folder.glob(".*.tmp"):
            rest.unlink(missing_ok=True)
        _held[folder.absolute()] = lock
        try:
            yield lock
        finally:
            del _held[folder.absolute()]


def _require_held(folder: Path) -> None:
    lock = _held.get(folder.absolute())
    if lock and not lock.still_held():
        raise RunError(
            f"{folder} was removed or replaced while this process wrote to it, and may be another one's now: "
            "nothing more is written there. Start again under another name."
        )


def prune(folder: Path, keep: Path, pattern: str) -> None:
    """Remove the files of a pattern but the new one, and what a killed process left half written a day ago or earlier.

    A file that cannot be removed stays.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> for name in ("a-1", "a-2", "b-1"):
        ...     (folder / name).touch()
        >>> prune(folder, keep=folder / "a-2", pattern="a-*")
        >>> sorted(file.name for file in folder.iterdir())
        ['a-2', 'b-1']
    """
    for file in [*folder.glob(pattern), *folder.glob(".*.tmp")]:
        with suppress(OSError):
            if file != keep and (file.suffix != ".tmp" or file.lstat().st_mtime < time.time() - _DAY):
                file.unlink()


def subfolder(folder: Path, name: str) -> Path:
    """A folder within a folder, made if needed; refused if it is a link, which would lead elsewhere.

    The outer folder must exist: one that was removed meanwhile, such as a run's, does not come back.

    Example:
        >>> import tempfile
        >>> subfolder(Path(tempfile.mkdtemp()), "cache").is_dir()
        True
    """
    inner = folder / name
    if inner.is_symlink():
        raise StorageError(f"{inner} is a link, and nothing is written through it: put a folder in its place.")
    with saying_why(f"Cannot make the folder {inner}"):
        inner.mkdir(exist_ok=True)
    return inner


def sync(path: Path) -> None:
    """Flush a file's content to the disk before going on."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Flush a folder's entries to the disk, where the system supports it (Windows and some networks do not)."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_text(path: Path, text: str | Iterable[str], follow_links: bool = True) -> None:
    """Write a text, or its parts as they come, so that the file is whole or absent, making its folder if needed.

    With ``follow_links`` a link stays a link to the file that is replaced, and a device or a pipe is written to, as is
    right where a user names the file. Otherwise the file takes the place of whatever is there.

    Raises:
        UsageError: If a folder is there, or no file can have the name.
        StorageError: If it cannot be written.
    """
    parts = [text] if isinstance(text, str) else text
    if follow_links and path.exists() and not path.is_file() and not path.is_dir():
        with saying_why(f"Cannot write {path}"):
            _write(path, parts)
        return
    if follow_links:
        path = replaceable(path)
    make_folder(path.parent)
    with replacing(path) as temporary:
        _write(temporary, parts)


def _write(path: Path, parts: Iterable[str]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(parts)


def make_folder(folder: Path) -> None:
    """Make a folder, and those around it, if needed; a `StorageError` if the operating system refuses."""
    with saying_why(f"Cannot make the folder {folder}"):
        folder.mkdir(parents=True, exist_ok=True)


def write_json(path: Path, content: Any, follow_links: bool = True) -> None:
    """Write a JSON file so that it is whole or absent, as `write_text` does."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n", follow_links)


def csv_lines(rows: Sequence[Mapping[str, Any]]) -> str:
    r"""Rows as CSV: all have all columns, empty where a row has no such cell; an empty text without rows.

    Example:
        >>> csv_lines([{"a": 1}, {"b": 2}]), csv_lines([])
        ('a,b\n1,\n,2\n', '')
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, dict.fromkeys(name for row in rows for name in row), lineterminator="\n")
    if rows:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def damaged_member(file: Path) -> str | None:
    """Name of the first member of a zip file whose content does not fit its checksum, None if there is none.

    PyTorch's files are such archives, but it does not compare the checksums when it reads them. It can also be told to
    write none; the members of such a file are trusted.

    Raises:
        zipfile.BadZipFile: If it is no whole archive, or has compressed members, which could be of any size.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if any(member.compress_type != zipfile.ZIP_STORED for member in members):
                raise zipfile.BadZipFile("it is compressed, as PyTorch's files are not")
            return archive.testzip() if any(member.CRC for member in members) else None
    except OSError as error:
        if error.errno == errno.EINVAL:  # its directory names a position before the beginning
            raise zipfile.BadZipFile("File is not a zip file") from error
        raise


def require_regular(file: Path) -> Path:
    """The file, unless opening it could wait for ever, as a pipe's does, or reading it never end, as a device's does.

    Links are followed.

    Raises:
        DataError: If it is a folder, a pipe, a socket or a device.
        OSError: If it is missing, or cannot be asked.

    Example:
        >>> require_regular(Path(os.devnull))
        Traceback (most recent call last):
        ...
        fslstm_plugin.errors.DataError: /dev/null is a device, but a regular file was expected: copy its content to one.
    """
    mode = file.stat().st_mode
    if not stat.S_ISREG(mode):
        what = next((name for is_one, name in _NOT_REGULAR if is_one(mode)), "a device")
        advice = "name a file" if what == "a folder" else "copy its content to one"
        raise DataError(f"{file} is {what}, but a regular file was expected: {advice}.")
    return file

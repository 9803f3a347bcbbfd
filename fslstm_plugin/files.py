"""Files that are whole or absent: written beside their place, flushed, then renamed."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from filelock import FileLock, Timeout

from .errors import DataError, StorageError

# What a file system answers that has no locks.
_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path to write to; on success it takes the place of ``path``, on failure it is removed.

    Args:
        path: Final place of the file; its folder must exist.

    Raises:
        StorageError: If the operating system refuses (a full disk, a read-only folder); the old file is intact.

    Example:
        >>> import tempfile
        >>> target = Path(tempfile.mkdtemp()) / "a.txt"
        >>> with replacing(target) as temporary:
        ...     _ = temporary.write_text("whole")
        >>> target.read_text()
        'whole'
    """
    temporary = path.parent / f".{path.name}.{os.getpid()}.tmp"
    try:
        yield temporary
        sync(temporary)
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        raise StorageError(f"Cannot write {path}: {error.strerror or error}.") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def locked(file: Path, seconds: float = -1) -> Iterator[None]:
    """Hold a lock that ends with the process; where the file system knows no locks, go on without.

    The file stays: were it removed, a process that waits for it and one that comes later could both hold the lock.

    Args:
        file: The lock; its folder must exist.
        seconds: How long to wait for it; for ever by default.

    Raises:
        filelock.Timeout: If another process still holds it.
        OSError: If the file cannot be made.
    """
    lock = FileLock(file)
    try:
        lock.acquire(timeout=seconds)
    except OSError as error:
        if isinstance(error, Timeout) or error.errno not in _NO_LOCKS:
            raise
    try:
        yield
    finally:
        lock.release()


@contextmanager
def exclusive(folder: Path, seconds: float = -1) -> Iterator[None]:
    """Hold the right to write ``folder``, with a lock beside it; waits for another process, see :func:`locked`."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.parent / f".{folder.name}.lock", seconds):
        yield


def require_writable(folder: Path) -> None:
    """Refuse before long work a folder that could not hold its results.

    Raises:
        StorageError: If the folder cannot be written.
    """
    if not os.access(folder, os.W_OK):
        raise StorageError(f"Cannot write to {folder}: it is read-only, or not there.")


def sync(path: Path) -> None:
    """Have a file's content written to the disk before going on."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Have a folder's entries written to the disk, where the system knows how (Windows and some networks do not)."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Write a text file so that it is whole or absent, making its folder if needed.

    A link stays a link to the file that is replaced; a device or a pipe is written to.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise StorageError(f"Cannot write {path}: {error.strerror or error}.") from error
        return
    path = Path(os.path.realpath(path))  # resolve() fails on a link to itself
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"Cannot make the folder {path.parent}: {error.strerror or error}.") from error
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file so that it is whole or absent."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def read_json(file: Path) -> Any:
    """Content of a JSON file, whose numbers are all finite.

    Raises:
        DataError: If it is missing or damaged.
    """
    try:
        return json.loads(file.read_text(encoding="utf-8"), parse_constant=_refuse)
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"Cannot read {file}: {error}.") from error


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")

"""Files that are whole or absent: written beside their place, flushed, then renamed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import FSLSTMError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path to write to; on success it takes the place of ``path``, on failure it is removed.

    Args:
        path: Final place of the file; its folder must exist.

    Raises:
        FSLSTMError: If the operating system refuses (a full disk, a read-only folder); the old file is intact.

    Example:
        >>> import tempfile
        >>> target = Path(tempfile.mkdtemp()) / "a.txt"
        >>> with replacing(target) as temporary:
        ...     _ = temporary.write_text("whole")
        >>> target.read_text()
        'whole'
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise FSLSTMError(f"Cannot write {path}: {error.strerror or error}.") from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file so that it is whole or absent, making its folder if needed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FSLSTMError(f"Cannot make the folder {path.parent}: {error.strerror or error}.") from error
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file so that it is whole or absent."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")

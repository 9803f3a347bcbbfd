"""Folders that are whole or absent, and scratch folders of which nothing stays."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .files import sync_folder


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """An empty folder that is removed afterwards, see `remove_folder`.

    The caller holds `files.exclusive`, so the name can be fixed: what a killed process left under it is
    removed by the next one.
    """
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        remove_folder(path)


def remove_folder(path: Path) -> None:
    """Remove a folder and what is in it, and the folder around it if that is empty then."""
    shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):  # an empty <root>/cifarfs would keep learn2learn from downloading
        path.parent.rmdir()


def partial_folder(folder: Path) -> Path:
    """Where a folder is filled before it gets its final name."""
    return folder.with_name(f".{folder.name}.partial")


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A `scratch_folder` to fill, which becomes ``folder`` only if the block succeeds, and then replaces it."""
    with scratch_folder(partial_folder(folder)) as partial:
        yield partial
        sync_folder(partial)
        if folder.exists():
            shutil.rmtree(folder)
        partial.rename(folder)
        sync_folder(folder.parent)

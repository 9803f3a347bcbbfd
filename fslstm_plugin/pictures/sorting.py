"""Pictures sorted into a folder for each label: copied or linked, never moved, and no file is ever replaced."""

from __future__ import annotations

import filecmp
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, takewhile
from pathlib import Path

from ..errors import StorageError, listed, reason
from ..storage.files import make_alike, make_folder, subfolder

_LONGEST = 255  # Bytes of a name that file systems take.
_LONGEST_FOLDER = 200  # With a number at its end it stays below that.
_NOT_IN_NAMES = re.compile(r'[\\/:*?"<>|]')


def sort_into(folder: Path, found: Iterable[tuple[Path, str]], groups: Sequence[str], link: bool = False) -> list[str]:
    """Copy pictures, or link them, into a folder for each of the groups, made if needed, which is never a link.

    A picture keeps its name; where another one has it, a number is added. One that is there already, byte by byte, is
    not copied again, so that a sorting that was stopped can be repeated.

    Returns:
        Sentences on pictures that no longer exist, and on those that lie in the folder of another group too, as after
        an earlier sorting: they may have been put there by hand, and stay.

    Example:
        >>> import tempfile
        >>> root = Path(tempfile.mkdtemp())
        >>> _ = (root / "1.png").write_bytes(b"pixels")
        >>> sort_into(root / "sorted", [(root / "1.png", "wren")] * 2, ["wren"])
        []
        >>> [str(file.relative_to(root)) for file in sorted(root.rglob("*.png"))]
        ['1.png', 'sorted/wren/1.png']
    """
    names = folder_names(groups)
    said: list[str] = []
    placed: dict[Path, set[str]] = {}
    make_folder(folder)
    for picture, group in found:
        inner = subfolder(folder, names[group])
        if not picture.is_file():
            said.append(f"Not sorted, since it no longer exists: {picture}")
            continue
        _place(picture, inner, link)
        placed.setdefault(picture, set()).add(names[group])
    elsewhere = [
        place
        for picture, mine in placed.items()
        for name in names.values()
        if name not in mine
        for place in takewhile(os.path.lexists, _places(picture, folder / name))
        if _is_copy(place, picture)
    ]
    if elsewhere:
        said.append(
            f"An earlier sorting left these pictures in another label's folder of {folder}: "
            f"{listed(each.relative_to(folder) for each in elsewhere)}. Remove them, or sort into an empty folder."
        )
    return said


def _places(picture: Path, folder: Path) -> Iterator[Path]:
    """The names that it may have in a folder, one after the other; a long one is cut where a number follows."""
    yield folder / picture.name
    for number in count(2):
        stem, end = picture.stem, f"-{number}{picture.suffix}"
        while stem and len(os.fsencode(stem + end)) > _LONGEST:
            stem = stem[:-1]
        yield folder / (stem + end)


def folder_names(groups: Sequence[str]) -> dict[str, str]:
    """A folder's name for each group, which every system takes, and each another.

    Example:
        >>> folder_names(["wren", "Wren", "../owl", ".."])
        {'wren': 'wren', 'Wren': 'Wren-2', '../owl': '_owl', '..': '_'}
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    for group in groups:
        plain = _NOT_IN_NAMES.sub("_", group).encode()[:_LONGEST_FOLDER].decode(errors="ignore").strip(" .") or "_"
        candidates = (plain if number == 1 else f"{plain}-{number}" for number in count(1))
        names[group] = next(name for name in candidates if name.casefold() not in taken)
        taken.add(names[group].casefold())
    return names


def _place(picture: Path, folder: Path, link: bool) -> None:
    """A copy or link under the first name that is free, unless it is there."""
    for target in _places(picture, folder):
        try:
            if not os.path.lexists(target):
                if link:
                    target.symlink_to(picture.absolute())
                else:
                    _copy(picture, target)
                return
            if os.path.samefile(target, picture) if link else _is_copy(target, picture):
                return
        except FileExistsError:  # another process was faster
            continue
        except FileNotFoundError as error:
            if not os.path.lexists(target):  # or else a link that leads nowhere has the name
                raise StorageError(f"{picture} or the folder {folder} is gone: try again.") from error
        except OSError as error:
            what = "link" if link else "copy"
            raise StorageError(f"Cannot {what} {picture} to {target}: {reason(error)}.") from error


def _is_copy(target: Path, picture: Path) -> bool:
    return target.is_file() and filecmp.cmp(target, picture, shallow=False)


def _copy(picture: Path, target: Path) -> None:
    """A copy that is whole or absent, in the place of no other file."""
    temporary = target.parent / f".{secrets.token_hex(6)}.tmp"
    try:
        make_alike(picture, temporary)  # or others could read a private picture until it is whole
        shutil.copy2(picture, temporary)
        try:
            os.link(temporary, target)
        except FileExistsError:
            raise
        except OSError:  # a file system without links, where nothing else refuses to replace a file
            if os.path.lexists(target):
                raise FileExistsError from None
            os.rename(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)

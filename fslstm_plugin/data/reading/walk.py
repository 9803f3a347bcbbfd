"""Folders of pictures: what in them is a picture, which class it is of, and what is passed over."""

from __future__ import annotations

import os
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import DataError, count_of, listed, printable
from ...storage.files import saying_why
from .decode import picture_suffixes

Report = Callable[[str], None]

# What NAS, systems, archivers and editors leave in folders; in lower case.
_SYSTEM = frozenset(
    {
        *("@eadir", "#recycle", "#snapshot", "@recycle", "@recently-snapshot", "@tmp", ".@__thumb", "@__thumb"),
        *("$recycle.bin", "recycler", "system volume information", "found.000", "lost+found", "lost.dir"),
        *("thumbs.db", "ehthumbs.db", "ehthumbs_vista.db", "desktop.ini", ".thumbnails", ".picasaoriginals"),
        *("__macosx", ".appledouble", ".ds_store", ".localized", "icon\r", ".spotlight-v100", ".trashes", ".fseventsd"),
        *(".temporaryitems", "network trash folder", "temporary items", ".trash-1000"),
        *("__pycache__", ".ipynb_checkpoints", ".git", ".svn", ".hg", ".idea", ".vscode"),
    }
)
_COMPANION = "._"  # Begins the file that macOS puts beside another one on foreign file systems.

# Pictures of the web's formats often have another ending, or none. RAW files begin as TIFF files do, and are not read.
_BEGINNINGS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF87a", b"GIF89a")
_NOT_OPENED = (".bak", ".orig", ".tmp", ".part", ".crdownload", ".thm", "_original", "~")  # old or unfinished copies

SPLIT_OF = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
_MOST_NAMED = 10


def class_name(text: str) -> str:
    r"""The name of a class as it is kept, wherever it is from: in Unicode's form NFC, without spaces around it.

    Characters that a terminal could obey, or that no text file can hold, are escaped.

    Example:
        >>> class_name("Ka\u0308fer ") == "Käfer"
        True
    """
    return printable(unicodedata.normalize("NFC", text).strip() or text)


def on_case(names: Iterable[str]) -> list[str]:
    """A sentence on the classes whose names differ only by case, which stay different classes.

    Example:
        >>> on_case(["fox", "owl", "Fox"])
        ['Two classes differ only by case: Fox and fox. If they are one, rename one of them.']
    """
    groups: dict[str, set[str]] = defaultdict(set)
    for name in names:
        groups[name.casefold()].add(name)
    return [
        f"{'Two' if len(group) == 2 else len(group)} classes differ only by case: {' and '.join(sorted(group))}. If "
        "they are one, rename one of them."
        for group in groups.values()
        if len(group) > 1
    ]


@dataclass
class PassedOver:
    """What is in folders and was not taken for a picture.

    Example:
        >>> print(PassedOver(Counter({".cr2": 3, "": 2, ".svg": 1}), systems=Counter({"@eaDir": 4})))
        Passed over: 3 .cr2, 2 without a suffix, 1 .svg, 4 system folders (@eaDir).
    """

    # How many files of each ending, in lower case; ``""`` is none.
    suffixes: Counter[str] = field(default_factory=Counter)
    hidden: int = 0  # Hidden pictures and folders.
    beside: int = 0  # Pictures beside the folders of the classes.
    systems: Counter[str] = field(default_factory=Counter)  # How many folders of each name are a system's own.

    def add(self, entry: os.DirEntry[str]) -> None:
        """Count a file that is no picture."""
        self.suffixes[_suffix(entry) if _is_file(entry) else "pipe or device"] += 1

    def __str__(self) -> str:
        """The sentence; empty if nothing was passed over."""
        counts = sorted(self.suffixes.items(), key=lambda item: (-item[1], item[0]))
        parts = [f"{number:,} {suffix or 'without a suffix'}" for suffix, number in counts[:_MOST_NAMED]]
        rest = sum(number for _, number in counts[_MOST_NAMED:])
        parts += [f"{rest:,} of {len(counts) - _MOST_NAMED} other suffixes"] if rest else []
        parts += [f"{self.beside:,} beside the class folders"] if self.beside else []
        parts += [f"{self.hidden:,} hidden"] if self.hidden else []
        systems = count_of(self.systems.total(), "system folder")
        parts += [f"{systems} ({', '.join(sorted(self.systems))})"] if self.systems else []
        return printable(f"Passed over: {', '.join(parts)}.") if parts else ""


def is_picture(file: Path | os.DirEntry[str]) -> bool:
    """Whether a file is one by its ending or, where the ending is unknown, a JPEG, PNG, GIF or WebP by its content.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "photo.jpg_large"
        >>> _ = file.write_bytes(bytes.fromhex("ffd8ffe0"))
        >>> is_picture(file)
        True
    """
    if _suffix(file) in picture_suffixes():
        # A link that leads nowhere is one too, which is told when it is read, but no pipe or device.
        return _is_file(file) or not os.path.exists(file)
    if file.name.lower().endswith(_NOT_OPENED) or not _is_file(file):
        return False
    try:
        with open(file, "rb") as content:
            begins = content.read(12)
    except OSError:
        return False
    return begins.startswith(_BEGINNINGS) or (begins[:4], begins[8:]) == (b"RIFF", b"WEBP")


def _suffix(file: Path | os.DirEntry[str]) -> str:
    return os.path.splitext(file.name)[1].lower()


# An entry of a folder knows what it is, where asking for each of a million files takes minutes on a network; but for a
# link to itself it raises an error.


def _is_file(file: Path | os.DirEntry[str]) -> bool:
    known = isinstance(file, os.DirEntry) and not file.is_symlink()
    return file.is_file() if known else os.path.isfile(file)


def _is_dir(entry: os.DirEntry[str]) -> bool:
    return os.path.isdir(entry) if entry.is_symlink() else entry.is_dir()


def walk(folder: Path, passed: PassedOver, seen: Iterable[tuple[int, int]] = ()) -> Iterator[Path]:
    """The pictures in a folder and those within it, in the order of their names; the rest is counted as passed over.

    Each folder is entered once, so that links in a circle end, and those seen before, by `identity`, are not.
    """
    entered = set(seen)
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        if (found := identity(here)) in entered:
            continue
        entered.add(found)
        folders = []
        for entry in entries(here, passed):
            if _is_dir(entry):
                folders.append(Path(entry.path))
            elif is_picture(entry):
                yield Path(entry.path)
            else:
                passed.add(entry)
        waiting += reversed(folders)


def class_folders(source: Path, report: Report, only: Container[str] | None = None) -> dict[str, list[Path]]:
    """The pictures of each class folder in a folder, at least one, by the names of the classes, in their order.

    Pictures in folders within a class folder are of its class, too. Folders whose names are one `class_name` are one
    class. A sentence reports what a user may not expect: what is passed over, and which folders are taken together.
    With ``only`` the folders of other classes are not entered.

    Raises:
        DataError: If a folder cannot be read, a class folder holds no pictures, or the folders are the parts of a
            split, each with the classes in it.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> for name in ("dog", "cat"):
        ...     (folder / name).mkdir()
        ...     (folder / name / "1.png").touch()
        >>> [(name, len(pictures)) for name, pictures in class_folders(folder, print).items()]
        [('cat', 1), ('dog', 1)]
    """
    passed = PassedOver()
    folders: dict[str, list[Path]] = defaultdict(list)
    for entry in entries(source, passed):
        if _is_dir(entry):
            if only is None or class_name(entry.name) in only:
                folders[class_name(entry.name)].append(Path(entry.path))
        elif is_picture(entry):
            passed.beside += 1
        else:
            passed.add(entry)
    outside = [identity(source)] if folders else []
    found = {
        name: [picture for folder in folders[name] for picture in walk(folder, passed, outside)]
        for name in sorted(folders)
    }
    if empty := [name for name, pictures in found.items() if not pictures]:
        folder = folders[empty[0]][0]
        raise DataError(f"The class folder {folder} holds no pictures: add some, or remove it. {passed}".rstrip())
    _refuse_splits(source, found)
    top = {folder for same in folders.values() for folder in same}
    within = {each.parent for pictures in found.values() for each in pictures} - top
    inner = sorted(str(each.relative_to(source)) for each in within)
    for sentence in (
        str(passed),
        *(f"{len(same)} folders are the one class {name}." for name, same in folders.items() if len(same) > 1),
        inner and f"Folders within a class folder belong to its class: {listed(inner, _MOST_NAMED)}.",
        *on_case(found),
    ):
        if sentence:
            report(printable(sentence))
    return found


def _refuse_splits(source: Path, found: dict[str, list[Path]]) -> None:
    """Refuse folders such as train and test in which the classes are folders."""
    splits = {name: pictures for name, pictures in found.items() if name.casefold() in {*SPLIT_OF, "eval"}}
    # The first part of a path from the source is the split; the second is a folder in it, or the picture.
    inner = [{each.relative_to(source).parts[1:-1][:1] for each in pictures} for pictures in splits.values()]
    same = len(splits) > 1 and set.intersection(*inner) - {()}
    if same or (inner and len(splits) == len(found) and () not in set.union(*inner)):
        raise DataError(
            f"{source} holds {', '.join(splits)}, in which the folders are the classes: name one of these folders, "
            f"such as {source / max(splits, key=lambda name: len(splits[name]))}."
        )


def entries(folder: Path, passed: PassedOver) -> list[os.DirEntry[str]]:
    """What is in a folder, but for hidden and system files, in the same order on every system.

    What is passed over is counted. A folder that cannot be read is a `DataError`.
    """
    with saying_why(f"Cannot read the folder {folder}", DataError), os.scandir(folder) as found:
        everything = sorted(found, key=lambda entry: entry.name)
    kept = []
    for entry in everything:
        if entry.name.lower() in _SYSTEM:
            passed.systems.update([entry.name] * _is_dir(entry))
        elif not entry.name.startswith("."):
            kept.append(entry)
        elif not entry.name.startswith(_COMPANION):
            passed.hidden += _is_dir(entry) or is_picture(entry)
    return kept


def identity(folder: Path) -> tuple[int, int]:
    """Device and number of a folder, which all links to it share."""
    with saying_why(f"Cannot read the folder {folder}", DataError):
        status = folder.stat()
    return status.st_dev, status.st_ino

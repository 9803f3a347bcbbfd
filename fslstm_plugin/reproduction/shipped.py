"""The reproductions that are shipped with the package, read-only: found, not listed by hand."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from ..errors import UsageError


def folder() -> Path:
    """Where they are."""
    return Path(str(files("fslstm_reproductions")))  # the folder ``reproductions`` of the repository


def names(within: Path | None = None) -> list[str]:
    """Their names, or those of the reproductions within another folder, sorted."""
    return sorted(file.parent.name for file in (within or folder()).glob("*/specification.json"))


def refuse_to_overwrite(output: Path) -> None:
    """Keep a user's results apart from those that are shipped."""
    if output.resolve().is_relative_to(folder().resolve()):
        raise UsageError(
            f"{output} holds the measurements that are shipped with the package, which are only compared with: name "
            "another folder with `output`."
        )

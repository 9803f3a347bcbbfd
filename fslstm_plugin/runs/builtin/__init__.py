"""Trained models that come with the package, by the name ``builtin:NAME``."""

from __future__ import annotations

import os
from pathlib import Path

from ...checks import one_of
from ...errors import RunError
from ...storage.files import make_folder, replacing, require_regular, subfolder

PREFIX = "builtin:"

_HERE = Path(__file__).parent
_FILES = ("model.safetensors", "config.json")  # the configuration last: it turns a folder into a run


def names() -> tuple[str, ...]:
    """Names of the models, without the prefix."""
    return tuple(sorted(file.parent.name for file in _HERE.glob("*/config.json")))


def packaged(name: str) -> Path:
    """The folder of ``builtin:NAME`` in the package, a run to read only; an `UnknownNameError` if there is none."""
    return _HERE / one_of("packaged model", name.removeprefix(PREFIX), names())


def place(name: str, runs: Path) -> Path:
    """The run folder of ``builtin:NAME``, ``runs/builtin-NAME``, copied there the first time.

    It is a run like any other then: features and evaluations are kept in it.

    Raises:
        UnknownNameError: If there is no such model.
        RunError: If the folder is there and holds something else.
        StorageError: If it cannot be written.

    Example:
        >>> import tempfile
        >>> place("builtin:cifar-fs-conv4", Path(tempfile.mkdtemp())).name
        'builtin-cifar-fs-conv4'
    """
    original = packaged(name)
    make_folder(runs)
    folder = subfolder(runs, f"builtin-{original.name}")
    for file in _FILES:
        content, copy = (original / file).read_bytes(), folder / file
        if not copy.exists():
            with replacing(copy) as temporary:
                temporary.write_bytes(content)
                os.utime(temporary, (0, 0))  # a run that was trained here is always newer
        elif require_regular(copy).read_bytes() != content:
            raise RunError(f"{copy} is not that of {name} in this version: remove {folder}; it is then copied again.")
    return folder

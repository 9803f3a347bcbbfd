"""Where the data is, and how a split of any data set is opened."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import UsageError
from ..registry import DATASETS
from .base import Split

VARIABLE = "FSLSTM_DATA_ROOT"
LEARN2LEARN_ROOT = "~/data"


def data_root(option: Path | None = None) -> Path:
    """The folder that holds the data sets, which need not exist.

    It is what the user asked for, or else the environment variable ``FSLSTM_DATA_ROOT``, or else learn2learn's
    ``~/data``. Where there is no home folder for it, it is a `UsageError`.

    Example:
        >>> data_root(Path("/data")).as_posix()
        '/data'
    """
    folder = Path(option or os.environ.get(VARIABLE) or LEARN2LEARN_ROOT)
    try:
        return folder.expanduser()
    except RuntimeError as error:
        raise UsageError(
            f"There is no home folder for {folder}: name the folder of the data with `data_root` or {VARIABLE}."
        ) from error


def load_split(dataset: str, split: str, root: Path | None = None) -> Split:
    """Open one split, ``"train"``, ``"val"`` or ``"test"``, of a registered data set; ``glyphs`` is made on first use.

    Raises:
        UnknownNameError: If there is no such data set or split.
        DataError: If the data set is not prepared; the message has the command that fixes it.

    Example:
        >>> load_split("glyfs", "train")
        Traceback (most recent call last):
        ...
        fslstm_plugin.errors.UnknownNameError: There is no data set 'glyfs'. Did you mean 'glyphs'? ...
    """
    return DATASETS.get(dataset).load(data_root(root), split)

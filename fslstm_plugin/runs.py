"""Run folders: configuration, weights, checkpoint, metrics and evaluations of one training."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

from filelock import Timeout
from torch import Tensor, nn

from .errors import RunError, UsageError
from .files import exclusive, held, subfolder, write_json
from .plain import from_plain
from .weights import load_tensors, save_tensors

T = TypeVar("T")

FORMAT = 1

MAX_IMAGE_SIZE = 1024  # far more than any backbone here is for; a damaged configuration may say anything

# The processes that decode images hold the lock too, and need up to 5 seconds to see that their training was killed.
_LOCK_SECONDS = 8.0

_TEXT, _NUMBER, _MAYBE_TEXT, _MAYBE_NUMBER = (str,), (int,), (str, NoneType), (int, NoneType)
_COMMON = {
    "backbone": _TEXT, "image_size": _NUMBER, "recipe": (dict,), "max_steps": _MAYBE_NUMBER, "seed": _NUMBER,
    "precision": _TEXT,
}  # fmt: skip
_FIELDS: dict[str, dict[str, tuple[type, ...]]] = {
    "pretrain": {**_COMMON, "dataset": _MAYBE_TEXT, "places": _MAYBE_TEXT, "folder": _MAYBE_TEXT},
    "train": {**_COMMON, "dataset": _TEXT, "algorithm": _TEXT, "validation": (dict,), "pretrained": _MAYBE_TEXT},
}


@dataclass(frozen=True)
class Run:
    """One training's folder.

    ``config.json`` holds everything that the training was asked for, ``model.safetensors`` the chosen weights,
    ``last.ckpt`` the state to continue from, ``metrics.csv`` the logged numbers and ``evaluations/`` later results.

    Args:
        path: The folder.
        config: Content of ``config.json``; nothing is written before :meth:`create`.
    """

    path: Path
    config: dict[str, Any]

    def create(self) -> None:
        """Make the folder with its configuration.

        Raises:
            RunError: If a run is there already, or the folder cannot be made.
        """
        if (self.path / "config.json").exists():
            raise RunError(
                f"{self.path} already holds a run. Continue it with --resume, or choose another name with --name."
            )
        write_json(self.path / "config.json", {"format": FORMAT, **self.config}, follow_links=False)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other trainings out of the folder, which is made if needed; the lock ends with the process.

        Where the file system knows no locks there is none.

        Raises:
            RunError: If another training holds the folder.
            OSError: If the folder cannot be made or written.
        """
        try:
            with held(self.path, _LOCK_SECONDS):
                yield
        except Timeout:
            raise RunError(
                f"Another training is running in {self.path}: wait for its end, or choose another name with --name. "
                f"If none runs on any machine that shares the folder, remove {self.path / '.lock'}."
            ) from None

    @classmethod
    def open(cls, path: Path) -> Run:
        """Open an existing run folder.

        Raises:
            RunError: If there is none, or its configuration cannot be read.
        """
        file = path / "config.json"
        if not file.is_file():
            raise RunError(f"There is no run at {path}: {file} is missing.")
        try:
            config = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise RunError(f"Cannot read {file}: {error}.") from error
        if not isinstance(config, dict) or config.get("format") != FORMAT:
            raise RunError(f"{file} is not a run configuration of format {FORMAT}.")
        fault = _fault(config)
        if fault:
            raise RunError(f"{file} is damaged: {fault}.")
        return cls(path, config)

    def part(self, name: str, kind: type[T]) -> T:
        """A part of the configuration as the dataclass that it was made from.

        Args:
            name: Its name in the configuration, for example ``"recipe"``.
            kind: The dataclass.

        Raises:
            RunError: If it is damaged.
        """
        try:
            return from_plain(kind, self.config[name])
        except UsageError as error:
            raise RunError(f"{self.path / 'config.json'} is damaged in '{name}': {error}") from error

    @classmethod
    def newest(cls, folder: Path) -> Run:
        """The run with weights in ``folder`` that was trained last.

        Args:
            folder: Folder of run folders, ``runs`` by default on the command line.

        Raises:
            RunError: If there is none; the message says how to get one.
        """
        weights = sorted(folder.glob("*/model.safetensors"), key=lambda file: file.stat().st_mtime, reverse=True)
        if weights:
            return cls.open(weights[0].parent)
        raise RunError(
            f"There is no trained model in {folder}. Get one with 'fslstm demo', or with "
            "'fslstm pretrain --dataset NAME' and then 'fslstm train --dataset NAME --pretrained RUN'."
        )

    @classmethod
    def to_resume(cls, folder: Path, name: str | None, kind: str) -> Run:
        """The run of this name, or the one of this kind with the newest checkpoint.

        Args:
            folder: Folder of run folders.
            name: Name of the run, or None.
            kind: ``"pretrain"`` or ``"train"``.

        Raises:
            RunError: If there is none, or it is of another kind.
        """
        if name is None:
            checkpoints = sorted(folder.glob("*/last.ckpt"), key=lambda file: file.stat().st_mtime, reverse=True)
            runs = [run for run in map(cls.open, (file.parent for file in checkpoints)) if run.config["kind"] == kind]
            if not runs:
                raise RunError(f"There is no {kind} run to resume in {folder}.")
            return runs[0]
        run = cls.open(folder / name)
        if run.config["kind"] != kind:
            raise RunError(f"{run.path} is a {run.config['kind']} run: resume it with 'fslstm {run.config['kind']}'.")
        return run

    @classmethod
    def find(cls, wanted: str | None, folder: Path) -> Run:
        """The run that an option names: a path, a name in ``folder``, or the newest with weights.

        Raises:
            RunError: If there is none; the message says how to get one.
        """
        if wanted is None:
            return cls.newest(folder)
        return cls.open(Path(wanted) if Path(wanted).is_dir() else folder / wanted)

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.path.name

    @property
    def resume_command(self) -> str:
        """What to type to continue this run."""
        words = ["fslstm", self.config["kind"], "--resume", "--runs", str(self.path.parent), "--name", self.name]
        return shlex.join(words)

    @property
    def checkpoint(self) -> Path:
        """The state to continue from."""
        return self.path / "last.ckpt"

    @property
    def weights(self) -> Path:
        """The chosen model's weights."""
        return self.path / "model.safetensors"

    def save_weights(self, module: nn.Module) -> None:
        """Write the module's state as safetensors, whole or not at all."""
        save_tensors(
            self.weights, {key: value.detach().cpu().contiguous() for key, value in module.state_dict().items()}
        )

    def save_evaluation(self, command: str, rows: Sequence[Any]) -> Path:
        """Keep the rows of an evaluation in the run folder, beside earlier ones.

        Args:
            command: Which command made them.
            rows: Rows of :mod:`fslstm_plugin.evaluation.experiment`.

        Returns:
            The new file ``evaluations/<command>-<number>.json``.
        """
        folder = subfolder(self.path, "evaluations")
        with exclusive(folder, seconds=60):  # another evaluation of this run may end just now
            numbers = [file.stem.removeprefix(f"{command}-") for file in folder.glob(f"{command}-*.json")]
            taken = [int(number) for number in numbers if number.isdecimal()]
            file = folder / f"{command}-{max(taken, default=0) + 1}.json"
            write_json(file, {"rows": [row.as_dict() for row in rows]}, follow_links=False)
        return file

    def load_weights(self) -> dict[str, Tensor]:
        """The saved tensors by name.

        Raises:
            RunError: If the file is missing or damaged.
        """
        return load_tensors(self.weights)


def _fault(config: dict[str, Any]) -> str | None:
    """What is wrong with a configuration, if anything."""
    fields = _FIELDS.get(str(config.get("kind")))
    if fields is None:
        return f"its kind must be one of {', '.join(_FIELDS)}"
    for name, types in fields.items():
        if name not in config or type(config[name]) not in types:
            return f"'{name}' must be of type {' or '.join(kind.__name__ for kind in types)}"
    if config["kind"] == "pretrain" and sum(bool(config[name]) for name in ("dataset", "places", "folder")) != 1:
        return "it must name one of 'dataset', 'places' and 'folder'"
    if not 16 <= config["image_size"] <= MAX_IMAGE_SIZE:
        return f"'image_size' must be between 16 and {MAX_IMAGE_SIZE}"
    return None


def new_run_folder(folder: Path, name: str | None, default: str) -> Path:
    """Where a new run goes: under its name, or under the default with the first free number."""
    if name is not None:
        if not name or Path(name).name != name or name.startswith("."):
            raise UsageError(f"A run's name must be a plain folder name, but got '{name}'.")
        return folder / name
    path, number = folder / default, 1
    while path.exists():
        number += 1
        path = folder / f"{default}-{number}"
    return path

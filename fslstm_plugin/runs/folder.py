"""Run folders: configuration, weights, checkpoint, metrics and evaluations of one training."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..data.base import Split
from ..data.root import load_split
from ..errors import RunError, UnknownNameError, UsageError
from ..registry import DATASETS
from ..storage.files import exclusive, held, subfolder, write_json
from ..storage.plain import read_plain, to_plain
from ..storage.weights import load_tensors, save_tensors
from . import builtin
from .configuration import Config

# The processes that decode images hold the lock too, and take up to 5 seconds to notice that their training was killed.
_LOCK_SECONDS = 8.0

_BEGIN = "A training that was stopped so early begins again by its first command, without `resume=True`."

_CHOSEN = "FSLSTM_RUN_NAME"  # for the processes that this one starts


@dataclass(frozen=True)
class Run:
    """The folder of one training; nothing is written before `create`.

    ``config.json`` holds the complete configuration of the training, ``model.safetensors`` the chosen weights,
    ``last.ckpt`` the state to continue from, ``metrics.csv`` the logged numbers and ``evaluations/`` later results.
    """

    path: Path
    config: Config

    def create(self) -> None:
        """Make the folder with its configuration; a `RunError` if a run is there already."""
        if (self.path / "config.json").exists():
            raise RunError(
                f"{self.path} already holds a run. Continue it with `resume=True`, or choose another `name`."
            )
        write_json(self.path / "config.json", to_plain(self.config), follow_links=False)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other trainings out of the folder, which is created if needed; the lock ends with the process.

        Where the file system has no locks there is none. If another training holds the folder, it is a `RunError`.
        """
        busy = RunError(
            f"Another training is running in {self.path}: wait for its end, or choose another `name`. "
            f"If none runs on any machine that shares the folder, remove {self.path / '.lock'}."
        )
        with held(self.path, _LOCK_SECONDS, busy):
            yield

    def split(self, name: str, root: Path | None = None) -> Split:
        """A split of the data set of its configuration, see `load_split`; a `RunError` if there is no such data set."""
        dataset = self.config.dataset or ""
        try:
            DATASETS.get(dataset)
        except UnknownNameError as error:
            raise RunError(f"The images of {self.path / 'config.json'} are not known here: {error}") from error
        return load_split(dataset, name, root)

    @classmethod
    def open(cls, path: Path) -> Run:
        """Open an existing run folder; a `RunError` if there is none, or its configuration cannot be read."""
        file = path / "config.json"
        if not os.path.lexists(file):  # what is no file is named for what it is
            raise RunError(f"There is no run at {path}: {file} is missing.")
        return cls(path, read_plain(file, Config))

    @classmethod
    def newest(cls, folder: Path) -> Run:
        """The run with weights in a folder that was trained last; a `RunError` says how to get one if there is none."""
        weights = sorted(folder.glob("*/model.safetensors"), key=lambda file: file.stat().st_mtime, reverse=True)
        if weights:
            return cls.open(weights[0].parent)
        raise RunError(
            f"There is no trained model in {folder}. Get one with 'fslstm demo', or with "
            "'fslstm pretrain --dataset NAME' and then 'fslstm train --dataset NAME --pretrained RUN'; or name one "
            f"of the package: {', '.join(f'{builtin.PREFIX}{name}' for name in builtin.names())}."
        )

    @classmethod
    def to_resume(cls, folder: Path, name: str | None, kind: str) -> Run:
        """The run of this name, or the one of this kind, ``"pretrain"`` or ``"train"``, with the newest checkpoint.

        Raises:
            RunError: If there is none, or it is of another kind.
        """
        if name is None:
            checkpoints = sorted(folder.glob("*/last.ckpt"), key=lambda file: file.stat().st_mtime, reverse=True)
            for file in checkpoints:
                with suppress(RunError):  # a damaged run beside it is not the wanted one
                    run = cls.open(file.parent)
                    if run.config.kind == kind:
                        return run
            raise RunError(f"There is no {kind} run to resume in {folder}. {_BEGIN}")
        file = folder / name / "config.json"
        if not os.path.lexists(file):
            raise RunError(f"There is no run to resume at {file.parent}: {file} is missing. {_BEGIN}")
        run = cls.open(folder / name)
        if run.config.kind != kind:
            raise RunError(f"{run.path} is a {run.config.kind} run: resume it with 'fslstm {run.config.kind}'.")
        return run

    @classmethod
    def find(cls, wanted: str | None, folder: Path) -> Run:
        """The run that an option names: a path, a name in ``folder``, ``builtin:NAME``, or the newest with weights.

        If there is none, a `RunError` says how to get one; if the package has no such model, it is an
        `UnknownNameError`.
        """
        if wanted is None:
            return cls.newest(folder)
        if not wanted:
            raise UsageError("A run's name is empty: name a run, or leave the option out for the newest.")
        parts = wanted.split("+")
        if not _is_place(wanted, folder) and all(_is_place(each, folder) for each in parts):
            raise UsageError(f"{wanted} is a sum of runs, which only 'eval' and 'compare' take: name one run.")
        if wanted.startswith(builtin.PREFIX):
            return cls.open(builtin.place(wanted, folder))
        return cls.open(Path(wanted) if Path(wanted).is_dir() else folder / wanted)

    @classmethod
    def find_each(cls, wanted: Iterable[str], folder: Path) -> list[Run]:
        """The runs that several options name, each once; see `find`."""
        found = (cls.find(each, folder) for each in wanted)
        return list({os.path.realpath(run.path): run for run in found}.values())

    @classmethod
    def find_sum(cls, wanted: str, folder: Path) -> list[Run]:
        """The run that an option names, or several whose names it joins by ``+``; see `find`."""
        words = wanted.split("+")  # of which a name may hold some
        found: list[Run] = []
        while words:
            ends = range(len(words), 0, -1)
            end = next((end for end in ends if _is_place("+".join(words[:end]), folder)), 1 if found else len(words))
            found.append(cls.find("+".join(words[:end]), folder))
            words = words[end:]
        return found

    @property
    def name(self) -> str:
        """Name of the folder."""
        return os.path.basename(os.path.abspath(self.path))  # of "." too

    @property
    def resume_command(self) -> str:
        """The command that continues this run."""
        words = ["fslstm", self.config.kind, "--resume", "--runs", str(self.path.parent), "--name", self.name]
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

    def save_evaluation(self, command: str, content: Any) -> Path:
        """Keep plain data as the new ``evaluations/<command>-<number>.json``, beside those of earlier evaluations."""
        folder = subfolder(self.path, "evaluations")
        with exclusive(folder, seconds=60):  # another evaluation of this run may end at the same time
            self.require_kept()
            numbers = [file.stem.removeprefix(f"{command}-") for file in folder.glob(f"{command}-*.json")]
            taken = [int(number) for number in numbers if number.isdecimal()]
            file = folder / f"{command}-{max(taken, default=0) + 1}.json"
            write_json(file, content, follow_links=False)
        return file

    def require_kept(self) -> None:
        """A `RunError` if another run took the folder since this one was opened: what was found is not that one's."""
        if Run.open(self.path).config != self.config:
            raise RunError(f"{self.path} was replaced by another run meanwhile.")

    def has_weights(self) -> bool:
        """Whether the weights are there, and undamaged."""
        with suppress(RunError):
            return self.weights.is_file() and bool(self.load_weights())
        return False

    def load_weights(self) -> dict[str, Tensor]:
        """The saved tensors by name; see `load_tensors`."""
        return load_tensors(self.weights)


def _is_place(wanted: str, folder: Path) -> bool:
    """Whether an option can name a run so, even a damaged one."""
    if wanted.startswith(builtin.PREFIX):
        return wanted.removeprefix(builtin.PREFIX) in builtin.names()
    return bool(wanted) and (Path(wanted).is_dir() or (folder / wanted).is_dir())


def new_run_folder(folder: Path, name: str | None, default: str) -> Path:
    """Where a new run goes: under its name, or under the default with the first free number.

    The processes that Lightning starts for further devices run the same command after the folder was made: they take
    the name that the first one chose.
    """
    if name is not None:
        if not name or Path(name).name != name or name.startswith("."):
            raise UsageError(f"A run's name must be a plain folder name, but got '{name}'.")
        return folder / name
    if os.environ.get("LOCAL_RANK", "0") != "0" and _CHOSEN in os.environ:
        return folder / os.environ[_CHOSEN]
    path, number = folder / default, 1
    while path.exists():
        number += 1
        path = folder / f"{default}-{number}"
    os.environ[_CHOSEN] = path.name
    return path

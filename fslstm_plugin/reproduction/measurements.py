"""What was measured for a reproduction, each number with where it comes from."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import torch
from msgspec import Meta, Struct
from msgspec.structs import asdict

from ..errors import DataError
from ..evaluation.rows import Row
from ..reporting.provenance import made_now
from ..storage.files import exclusive, write_json
from ..storage.plain import read_plain, to_plain


class Provenance(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where numbers come from."""

    command: str  # What was typed.
    commit: str  # Of this code, with a mark if it was changed since.
    date: str
    hardware: str  # Processor and GPU.
    version: str  # Of this package.
    scale: str  # How much was trained; ``"given run"`` if nothing was.

    @classmethod
    def now(cls, scale: str) -> Provenance:
        """Of what is measured now."""
        return cls(**made_now(), commit=_commit(), hardware=hardware(), scale=scale)


class _Trained(Row, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row with the training of its model."""

    algorithm: str  # What the model was trained with: a method, or ``"pretrain"``.
    training: str  # The same with how much of it, see `describe`.
    steps: int  # Steps in the run's checkpoint.
    # Time from the images to the features of all episodes; None where it was not measured.
    backbone_seconds: float | None = None
    # Training of the model that the reference was measured on, if that is another one.
    reference_training: str | None = None


class _Stored(_Trained, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """As it stands in a file, the provenance as its number in the list there."""

    provenance: Annotated[int, Meta(ge=0)]


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    provenance: list[Provenance]
    measurements: list[_Stored]


class Measurement(_Trained, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row with the training of its model and where it comes from."""

    provenance: Provenance

    @property
    def key(self) -> tuple[str | int, ...]:
        """What tells it from others."""
        model = self.dataset, self.split, self.backbone, self.method, self.training
        return *model, self.ways, self.shots, self.queries, self.query_balance, self.interval, self.seed


def hardware() -> str:
    """The processor, the number of its cores that may be used, and the GPU if there is one."""
    model = platform.processor() or platform.machine()
    file = Path("/proc/cpuinfo")
    if file.is_file():
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("model name")]
        model = lines[0].partition(":")[2].strip() if lines else model
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{os.cpu_count()} cores of {model}{gpu}"


def _commit() -> str:
    """The last commit that changed this code, with a mark if it was changed since; "unknown" outside a repository."""
    package = Path(__file__).resolve().parents[1]
    places = [str(package), str(package.parent / "cli")]

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(package), *arguments, "--", *places], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no")
        return (git("log", "-1", "--abbrev=12", "--format=%h") or "unknown") + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def read(folder: Path) -> list[Measurement]:
    """The measurements of a reproduction; none if there are none."""
    file = folder / "measured.json"
    if not os.path.lexists(file):  # what is no file is named for what it is
        return []
    content: _File = read_plain(file, _File, DataError)
    found = []
    for each in content.measurements:
        if each.provenance >= len(content.provenance):
            raise DataError(f"{file} is damaged: it has no provenance {each.provenance}.")
        found.append(Measurement(**{**asdict(each), "provenance": content.provenance[each.provenance]}))
    return found


def add(folder: Path, new: Iterable[Measurement]) -> None:
    """Keep measurements in the reproduction's ``measured.json``, in place of earlier ones of the same thing."""
    with exclusive(folder):  # another measurement for the same reproduction may end just now
        write(folder, list({each.key: each for each in (*read(folder), *new)}.values()))


def write(folder: Path, measurements: Sequence[Measurement]) -> None:
    """Write them as the reproduction's ``measured.json``."""
    sources = list(dict.fromkeys(each.provenance for each in measurements))
    stored = [_Stored(**{**asdict(each), "provenance": sources.index(each.provenance)}) for each in measurements]
    write_json(folder / "measured.json", to_plain(_File(sources, stored)), follow_links=False)

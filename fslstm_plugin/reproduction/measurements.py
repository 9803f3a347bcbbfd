"""What was measured for a reproduction, each number with where it comes from."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import torch

from .. import __version__
from ..errors import naming_damage
from ..evaluation.experiment import Row
from ..files import exclusive, read_json, write_json

_KEY = ("dataset", "backbone", "split", "method", "shots", "queries", "query_balance", "interval", "ways", "training")


def provenance(scale: str) -> dict[str, str]:
    """Command, commit, date, hardware, version and scale of what is measured now."""
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    return {
        "command": command.encode("utf-8", "backslashreplace").decode(),  # a name of a file may be no text
        "commit": _commit(),
        "date": date.today().isoformat(),
        "hardware": hardware(),
        "version": __version__,
        "scale": scale,
    }


def hardware() -> str:
    """The processor, the number of its cores that may be used, and the GPU if there is one."""
    model = platform.processor() or platform.machine()
    file = Path("/proc/cpuinfo")
    if file.is_file():
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("model name")]
        model = lines[0].partition(":")[2].strip() if lines else model
    words = [f"{os.cpu_count()} cores of {model}"]
    if torch.cuda.is_available():
        words.append(torch.cuda.get_device_name())
    return ", ".join(words)


def _commit() -> str:
    """The commit of this code, with a mark if it was changed since; "unknown" outside a repository."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(here), *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", str(here), str(here.parent / "cli"))
        return git("rev-parse", "--short=12", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def measurement(row: Row, training: str, run: str, weight_steps: int, **more: Any) -> dict[str, Any]:
    """A row with the training of its model, as plain data.

    Args:
        row: What was measured.
        training: See :func:`~fslstm_plugin.reproduction.trainings.describe`.
        run: Name of the run folder.
        weight_steps: Steps in the run's checkpoint.
        **more: Further numbers, such as times.
    """
    return {"method": row.method, **row.as_dict(), "training": training, "run": run, "steps": weight_steps, **more}


def read(folder: Path) -> list[dict[str, Any]]:
    """The measurements of a reproduction, each with its ``provenance``; none if there are none.

    Raises:
        DataError: If the file is damaged.
    """
    file = folder / "measured.json"
    if not file.is_file():
        return []
    content = read_json(file)
    with naming_damage(file):
        found = [{**each, "provenance": content["provenance"][each["provenance"]]} for each in content["measurements"]]
        set(map(key_of, found))
    return found


def add(folder: Path, new: Iterable[dict[str, Any]], where: dict[str, str]) -> None:
    """Keep measurements in the reproduction's ``measured.json``, in place of earlier ones of the same thing.

    Args:
        folder: The reproduction's.
        new: See :func:`measurement`.
        where: Their provenance.
    """
    # Another measurement for the same reproduction may end just now. A number that is too large for JSON is seen
    # only when it is written again.
    with exclusive(folder), naming_damage(folder / "measured.json"):
        kept = {key_of(each): each for each in read(folder)}
        kept.update({key_of(each): {**each, "provenance": where} for each in new})
        _write(folder, list(kept.values()))


def _write(folder: Path, measurements: Sequence[dict[str, Any]]) -> None:
    sources: list[dict[str, str]] = []
    for each in measurements:
        if each["provenance"] not in sources:
            sources.append(each["provenance"])
    numbered = [{**each, "provenance": sources.index(each["provenance"])} for each in measurements]
    write_json(folder / "measured.json", {"provenance": sources, "measurements": numbered})


def key_of(each: dict[str, Any]) -> tuple[Any, ...]:
    """What tells two measurements apart."""
    return tuple(each[name] for name in _KEY)

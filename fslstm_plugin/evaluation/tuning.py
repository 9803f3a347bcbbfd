"""Arguments of methods chosen on validation episodes, kept in the run with all results."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from ..errors import RunError
from ..grammar import parse
from ..registry import TRANSDUCTION
from ..runs.folder import Run
from ..storage.files import exclusive, subfolder, write_json
from ..storage.plain import read_plain, to_plain
from .rows import Row

SPLIT = "val"


class Tuning(Struct, frozen=True, forbid_unknown_fields=True):
    """Content of a run's ``tuned.json``: of each data set the choice for each method, and every candidate's results."""

    choices: dict[str, dict[str, str]]
    rows: list[Row]
    format: Literal[3] = 3


def choose(families: Mapping[str, Sequence[str]], rows: Iterable[Row]) -> dict[str, str]:
    """The candidate of each method with the best accuracy in the rows, averaged over the numbers of shots."""
    reached: dict[str, float] = {}
    for row in rows:
        reached[row.method] = reached.get(row.method, 0.0) + row.accuracy
    return {name: max(mine, key=reached.__getitem__) for name, mine in families.items()}


def evidence(choices: Mapping[str, str], rows: Sequence[Row]) -> list[str]:
    """Each choice with its accuracy and that of the method as it was named."""

    def reached(name: str) -> str:
        mine = [row for row in rows if row.method == name]
        return ", ".join(f"{row.accuracy:.2f} ± {row.ci95:.2f} ({row.shots}-shot)" for row in mine)

    return [
        f"{name}: {chosen} has {reached(chosen)}" + ("." if chosen == name else f"; {name} itself has {reached(name)}.")
        for name, chosen in choices.items()
    ]


def save_choices(run: Run, choices: dict[str, str], rows: list[Row]) -> None:
    """Keep the choices and the rows that led to them, all of one data set, in ``tuned.json`` beside earlier ones.

    Raises:
        RunError: If what is there is damaged, or another run is.
    """
    with exclusive(subfolder(run.path, "evaluations"), seconds=60):  # another tuning of this run may end just now
        run.require_kept()
        earlier = load_tuning(run)
        tried = {(row.dataset, row.method) for row in rows}
        kept = [row for row in earlier.rows if (row.dataset, row.method) not in tried]
        dataset = rows[0].dataset
        mine = {**earlier.choices.get(dataset, {}), **choices}
        together = Tuning({**earlier.choices, dataset: mine}, [*kept, *rows])
        write_json(run.path / "tuned.json", to_plain(together), follow_links=False)


def load_tuning(run: Run) -> Tuning:
    """What was tuned for a run; nothing if it never was.

    Raises:
        RunError: If the file is damaged.
    """
    file = run.path / "tuned.json"
    if not os.path.lexists(file):  # what is no file is named for what it is
        return Tuning({}, [])
    try:
        return read_plain(file, Tuning)
    except RunError as error:
        raise RunError(f"{str(error).rstrip('.')}: remove it and run 'fslstm tune' again.") from error


def tuned_name(choices: Mapping[str, str], name: str, own: str = "") -> str:
    """The choice for a method, which may have transductive modules after it; else the name itself.

    What is named with arguments stays as it is, unless they are those of the run's own method.

    Example:
        >>> [tuned_name({"rr": "rr(ridge=1)"}, name) for name in ("rr+psm", "rr+iam", "rr(ridge=9)")]
        ['rr(ridge=1)+psm', 'rr+iam', 'rr(ridge=9)']
    """
    first = parse(name)[0]
    if first.arguments and not (own and first == parse(own)[0]):
        return name
    for known in sorted(choices, key=len, reverse=True):
        if name == known or (name.startswith(f"{known}+") and _only_refits(name.removeprefix(f"{known}+"))):
            return choices[known] + name.removeprefix(known)
    return name


def _only_refits(modules: str) -> bool:
    """Whether what follows a method are transductive modules, and no weights that were trained without the choice."""
    return all(part.name in TRANSDUCTION.names() for part in parse(modules))

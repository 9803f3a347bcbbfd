"""Arguments of heads chosen on validation episodes, kept in the run with their evidence."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any

from ..errors import RunError
from ..files import write_json
from ..registry import HEADS
from ..runs import Run
from .experiment import Row
from .methods import HeadName

SPLIT = "val"
_FORMAT = 1


def candidates(head: str) -> list[HeadName]:
    """What a head is tuned over: its search space, each with and without normalised features; its defaults first.

    Example:
        >>> [str(name) for name in candidates("nn")]
        ['nn', 'nn(normalize)']
    """
    part = HEADS.get(head)
    space: Mapping[str, Sequence[Any]] = getattr(part, "search_space", {})
    default = part()
    combinations = [dict(zip(space, values, strict=True)) for values in product(*space.values())]
    changed = [
        options for options in combinations if any(value != getattr(default, key) for key, value in options.items())
    ]
    return [HeadName(head, options, normalize) for options in ({}, *changed) for normalize in (False, True)]


def choose(rows: Iterable[Row]) -> dict[str, HeadName]:
    """The candidate of each head with the best accuracy, averaged over the numbers of shots.

    Args:
        rows: What the candidates reached, for every number of shots.

    Returns:
        Choices by head, with ``+iam`` where the candidates had it.
    """
    scores: dict[str, dict[str, float]] = {}
    for row in rows:
        of_head = scores.setdefault(_key(row.head, row.modules), {})
        name = str(HeadName(row.head, row.options, row.normalize))
        of_head[name] = of_head.get(name, 0.0) + row.accuracy
    return {key: HeadName.parse(max(of_head, key=of_head.__getitem__)) for key, of_head in scores.items()}


def evidence(choices: Mapping[str, HeadName], rows: Iterable[Row]) -> list[str]:
    """Each choice with the accuracy that it reached and that of the head's defaults."""
    reached: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        place = _key(row.head, row.modules), str(HeadName(row.head, row.options, row.normalize))
        reached.setdefault(place, []).append(f"{row.accuracy:.2f} ± {row.ci95:.2f} ({row.shots}-shot)")
    sentences = []
    for key, name in choices.items():
        default = ", ".join(reached[key, name.head])
        sentences.append(f"{key}: {name} has {', '.join(reached[key, str(name)])}; the defaults have {default}.")
    return sentences


def save_choices(run: Run, choices: Mapping[str, HeadName], rows: Sequence[Row]) -> None:
    """Keep the choices and the rows that led to them as ``tuned.json`` of the run."""
    content = {
        "format": _FORMAT,
        "choices": {key: asdict(name) for key, name in choices.items()},
        "rows": [row.as_dict() for row in rows],
    }
    write_json(run.path / "tuned.json", content, follow_links=False)


def load_choices(run: Run) -> dict[str, HeadName]:
    """What was chosen for a run; nothing if it was never tuned.

    Raises:
        RunError: If the file is damaged.
    """
    file = run.path / "tuned.json"
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if content["format"] != _FORMAT:
            raise RunError(f"{file} is not of format {_FORMAT}: run 'fslstm tune' again.")
        return {
            key: HeadName.parse(str(HeadName(name["head"], name["options"], bool(name["normalize"]))))
            for key, name in content["choices"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(f"{file} is damaged ({error}): run 'fslstm tune' again, or use --no-tuned.") from error


def tuned_name(choices: Mapping[str, HeadName], name: HeadName, iam: bool = False) -> HeadName:
    """The choice for a head that is asked for with its defaults; else the name as it is."""
    untouched = not name.options and not name.normalize
    return choices.get(_key(name.head, ["iam"] if iam else []), name) if untouched else name


def _key(head: str, modules: Sequence[str]) -> str:
    return f"{head}+iam" if "iam" in modules else head

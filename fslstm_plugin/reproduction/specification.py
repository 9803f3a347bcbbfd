"""What a reproduction trains, evaluates and shows, and what was published, read from its folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import DataError, UnknownNameError, UsageError
from ..files import read_json
from ..plain import from_plain

PRETRAINING = "pretrain"  # A training that is the pretraining alone.
SHOWS = ("table", "iterations", "queries", "ridge", "support", "unbalanced")
OWN = "own"  # The training of a method's own head, with IAM if the method has it.


@dataclass(frozen=True)
class Specification:
    """One table or figure.

    Args:
        folder: Where it is read from and its results go.
        title: What it shows.
        shows: ``"table"``, or the name of a figure of :mod:`fslstm_plugin.reporting.figures`.
        trainings: Algorithms whose trained models every method is evaluated on; ``"pretrain"`` for the pretrained
            backbone alone, ``"own"`` for a method's own head.
        pretrained: Whether the paper's trainings begin from a pretrained backbone.
        methods: Names of methods, see :func:`~fslstm_plugin.evaluation.methods.parse_method`.
        datasets: Names of data sets.
        backbones: Names of backbones.
        shots: Support images a class.
        queries: Query images a class.
        query_balances: How the queries are shared among the classes.
        split: Where the episodes come from.
        timed: Backbone whose time from images to answers is measured too, on its pretraining alone: a meta-training
            changes the numbers in the weights, not how many there are.
    """

    folder: Path
    title: str
    shows: str
    trainings: tuple[str, ...]
    pretrained: bool
    methods: tuple[str, ...]
    datasets: tuple[str, ...]
    backbones: tuple[str, ...]
    shots: tuple[int, ...] = (1, 5)
    queries: tuple[int, ...] = (15,)
    query_balances: tuple[str, ...] = ("uniform",)
    split: str = "test"
    timed: str | None = None

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.folder.name

    def trainings_for(self, backbone: str) -> tuple[str, ...]:
        """The trainings on a backbone."""
        return (PRETRAINING,) if backbone == self.timed else self.trainings

    @classmethod
    def read(cls, folder: Path) -> Specification:
        """Read ``specification.json`` of a reproduction's folder.

        Raises:
            DataError: If it is missing or not as it should be.
        """
        file = folder / "specification.json"
        content = read_json(file)
        try:
            if isinstance(content, dict):
                content["folder"] = str(folder)
            specification = from_plain(cls, content)
            if specification.shows not in SHOWS:
                raise UnknownNameError("table or figure", specification.shows, SHOWS)
            if not (specification.shots and specification.methods):
                raise UsageError("It has no shots or no methods.")
            if specification.timed is not None and specification.timed not in specification.backbones:
                raise UnknownNameError("timed backbone", specification.timed, specification.backbones)
        except UsageError as error:
            raise DataError(f"{file} is no specification: {error}") from error
        return specification

    def published(self) -> dict[str, Any]:
        """What ``published.json`` holds: ``source``, ``training`` and ``values``; no values if there is none."""
        file = self.folder / "published.json"
        return read_json(file) if file.is_file() else {"values": []}


def names(folder: Path) -> list[str]:
    """The reproductions in a folder.

    Raises:
        UsageError: If there are none.
    """
    found = sorted(file.parent.name for file in folder.glob("*/specification.json"))
    if not found:
        raise UsageError(
            f"There are no reproductions in '{folder}': run this in a clone of the repository, or name its folder "
            "of reproductions with --folder."
        )
    return found


def find(name: str, folder: Path) -> list[Specification]:
    """The reproduction of that name, or all of them.

    Raises:
        UnknownNameError: If there is none of that name.
    """
    known = names(folder)
    if name == "all":
        return [Specification.read(folder / each) for each in known]
    if name not in known:
        raise UnknownNameError("reproduction", name, [*known, "all"])
    return [Specification.read(folder / name)]

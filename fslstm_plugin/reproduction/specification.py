"""What a reproduction trains, evaluates and shows, and what was published, read from its folder."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from ..checks import one_of
from ..errors import DataError
from ..reporting import figures
from ..storage.files import write_json
from ..storage.plain import read_plain, to_plain
from . import shipped

PRETRAINING = "pretrain"  # A training that is the pretraining alone.
OWN = "own"  # The training of a method's own head, with IAM if the method has it.
TABLE = "table"

Count = Annotated[int, Meta(ge=1, le=10_000)]


class Specification(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table or figure."""

    title: str  # What it shows.
    shows: str  # ``"table"``, or the name of a figure of `fslstm_plugin.reporting.figures`.
    # Algorithms whose trained models every method is evaluated on; ``"pretrain"`` for the pretrained backbone alone,
    # ``"own"`` for a method's own head.
    trainings: Annotated[tuple[str, ...], Meta(min_length=1)]
    pretrained: bool  # Whether the paper's trainings begin from a pretrained backbone.
    methods: Annotated[tuple[str, ...], Meta(min_length=1)]
    # Other papers' methods with weights, each with the name of its published row. Each is trained by its own recipe, on
    # as many images as LSSVM+IAM, and evaluated on that training alone.
    rivals: dict[str, str] = {}
    datasets: Annotated[tuple[str, ...], Meta(min_length=1)]
    backbones: Annotated[tuple[str, ...], Meta(min_length=1)]
    shots: Annotated[tuple[Count, ...], Meta(min_length=1)] = (1, 5)  # Support images per class.
    queries: Annotated[tuple[Count, ...], Meta(min_length=1)] = (15,)  # Query images per class.
    query_balances: Annotated[tuple[str, ...], Meta(min_length=1)] = ("uniform",)
    split: str = "test"  # Where the episodes come from.
    # Backbone whose time from images to answers is measured too, on its pretraining alone: a meta-training changes the
    # numbers in the weights, not how many there are.
    timed: str | None = None

    def __post_init__(self) -> None:
        one_of("table or figure", self.shows, (TABLE, *figures.names()))
        if self.timed is not None:
            one_of("timed backbone", self.timed, self.backbones)

    @property
    def shows_tasks(self) -> bool:
        """Whether it shows single tasks in place of measurements."""
        return self.shows == "support"


class PublishedValue(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A number of the paper, or of another."""

    method: str  # As the paper names it.
    dataset: str
    backbone: str
    shots: Count
    accuracy: Annotated[float, Meta(ge=0, le=100)] | None  # In percent; None if only the time was published.
    ci95: Annotated[float, Meta(ge=0)] | None  # Half width of its 95 % interval; None if none was reported.
    # For 10,000 tasks, from images to answers; None if it was not published.
    seconds: Annotated[float, Meta(ge=0)] | None = None
    query_balance: str = "uniform"  # How the queries are shared among the classes.
    source: str = ""  # Where it was read, if the values are of several papers.


class Published(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``published.json`` holds."""

    source: str = ""  # Where the values were published.
    training: str = ""  # What their models were trained with.
    values: tuple[PublishedValue, ...] = ()


@dataclass(frozen=True)
class Reproduction:
    """A table or figure with its folder, where its results are."""

    folder: Path
    specification: Specification
    published: Published  # The paper's numbers; none for a figure.

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.folder.name

    @classmethod
    def read(cls, folder: Path) -> Reproduction:
        """Read ``specification.json`` and, where there is one, ``published.json``."""
        specification: Specification = read_plain(folder / "specification.json", Specification, DataError)
        file = folder / "published.json"
        published: Published = read_plain(file, Published, DataError) if os.path.lexists(file) else Published()
        return cls(folder, specification, published)

    def within(self, output: Path) -> Reproduction:
        """The same in a folder for results, where nothing is written yet."""
        return replace(self, folder=output / self.name)

    def put_into(self, output: Path) -> Reproduction:
        """The same in a folder of its own in one for results, drawn again and reported without the package's data."""
        shipped.refuse_to_overwrite(output)
        there = self.within(output)
        write_json(there.folder / "specification.json", to_plain(self.specification), follow_links=False)
        if self.published.values:
            write_json(there.folder / "published.json", to_plain(self.published), follow_links=False)
        return there


def find(name: str, folder: Path) -> list[Reproduction]:
    """The reproduction of that name in a folder, or all that are there."""
    known = shipped.names(folder)
    if not known:
        raise DataError(f"There are no reproductions in {folder}: measure one with 'fslstm reproduce NAME'.")
    if name == "all":
        return [Reproduction.read(folder / each) for each in known]
    return [Reproduction.read(folder / one_of("reproduction", name, [*known, "all"]))]

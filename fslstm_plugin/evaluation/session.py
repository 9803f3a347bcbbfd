"""Features of one split, methods by name, and their outcomes: of a run, or of another source of features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import torch
from torch import Tensor

from ..backbones.views import on_views, require_known, seeing
from ..data.base import Split, silent
from ..errors import UsageError
from ..methods.base import Method
from ..model import FewShotModel
from ..runs.folder import Run
from .features import FeatureStore, Progress
from .ranks import ALONE, Ranks
from .rows import Measured, Row, rows_of
from .runner import Outcome, run_methods
from .setting import Setting
from .source import FeatureSource, from_images, indexed

PassReport = Callable[[Sequence[str], int, Sequence[float]], None]
Tell = Callable[[str, int], AbstractContextManager[Callable[[int, int], None]]]


def quiet(title: str, total: int) -> AbstractContextManager[Callable[[int, int], None]]:
    """Show nothing."""
    return nullcontext(silent)


class Session(ABC):
    """Features of the images of a split, and the methods that are evaluated on them."""

    name: str  # What distinguishes the rows of a table, where there are several sessions.
    split: Split  # The images, which may be empty, and their classes.
    backbone: str  # Name of what made the features.
    method: Method  # That the backbone was trained for; ``lssvm`` if for none.
    device: torch.device  # Where to compute.
    run: Run | None  # Whose backbone made the features, and which keeps the evaluations; None without a run.
    ranks: Ranks  # The processes that evaluate together.
    tell: Tell  # Shows how far a long computation is: from a title and a total to a context with a function of both.
    notes: Sequence[str] = ()  # What readers of a table must know about the features, in sentences.

    @abstractmethod
    def methods(self, names: Iterable[str]) -> list[Method]:
        """Methods by name, each once, on the device.

        Raises:
            UsageError: If a name is wrong, or needs something missing, such as trained weights.
        """

    @abstractmethod
    def source(self, methods: Sequence[Method]) -> FeatureSource:
        """Where the features of one pass come from."""

    def measure(
        self,
        methods: Sequence[Method],
        setting: Setting,
        batch_episodes: int | None = None,
        report: PassReport = silent,
        episodes: range | None = None,
        prefix: str = "",
    ) -> list[Measured]:
        """Outcomes of methods in the episodes of a setting, in one pass per kind of features.

        Args:
            methods: Of this session.
            setting: The episodes.
            batch_episodes: See `run_methods`.
            report: Called in each pass with its methods' names, the episodes done, and the mean accuracies in them.
            episodes: Some of the setting's that follow one another; all if None.
            prefix: What the names begin with.
        """
        sampler = setting.sampler(self.split)
        wanted = range(setting.episodes) if episodes is None else episodes
        found: dict[int, Outcome] = {}
        for mine in self.by_pass(methods):
            tell = partial(report, [f"{prefix}{method}" for method in mine])
            source, first = self.source(mine), wanted.start
            outcomes = run_methods(
                source, sampler, mine, len(wanted), self.device, batch_episodes, tell, ranks=self.ranks, first=first
            )
            found |= {id(outcome.method): outcome for outcome in outcomes}
        return [Measured(self.name, self.backbone, found[id(method)]) for method in methods]

    @staticmethod
    def by_pass(methods: Sequence[Method]) -> list[list[Method]]:
        """Methods that work on the same features, the backbone's, an episode's own, or those of one method.

        Those that need each base class are apart from those that need the mean of all its images at most.
        """
        passes: dict[tuple[bool, str, bool], list[Method]] = {}
        for method in methods:
            key = method.episode_statistics, str(method) if method.embeds else "", method.needs_base_classes
            passes.setdefault(key, []).append(method)
        return [passes[key] for key in sorted(passes)]


@dataclass(eq=False)
class RunSession(Session):
    """A trained model and the images that its methods are evaluated on; see also `Session`."""

    run: Run
    split: Split
    device: torch.device
    precision: str = "32"  # Of the backbone, ``"32"`` or ``"bf16"``.
    data_root: Path | None = None  # Where the data sets are; the default root if None.
    cache: bool = True  # Whether features are kept beside the run, and taken from there.
    ranks: Ranks = ALONE
    tell: Tell = quiet
    note: Callable[[str], None] = silent  # Called with a sentence on what could not be saved.
    views: str | None = None  # See `seeing`; default the images alone.
    model: FewShotModel = field(init=False)  # The run's, on the device.
    _embedded: dict[str, Tensor] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        require_known(self.views)
        size, expected = self.split.images.shape[1], self.run.config.image_size
        if size != expected:
            raise UsageError(
                f"The run {self.run.name} is for images of {expected} pixels, but those of {self.split.dataset} "
                f"have {size}."
            )
        self.model = FewShotModel.from_run(self.run).to(self.device)
        self.name, self.backbone, self.method = self.run.name, self.run.config.backbone, self.model.method
        self.notes = on_views(self.views)

    def methods(self, names: Iterable[str]) -> list[Method]:
        """Methods by name, each once, with the run's trained parts, on the device.

        Raises:
            UsageError: If a name is wrong, or needs weights that the run does not have, or base classes, which a folder
                of images is none of.
            DataError: If the base classes are needed and not prepared.
        """
        methods = {str(method): method for method in map(self.model.method_of, names)}
        for name, method in methods.items():
            if method.needs_base_mean and self.run.config.dataset is None:
                raise UsageError(
                    f"{name} needs the mean feature of base classes, but the run {self.run.name} was pretrained on a "
                    "folder of images: use center=episode, or neither center nor stretch."
                )
        if any(method.needs_base_mean for method in methods.values()):
            _ = self._base  # which is missed now, not after minutes of work
        return [method.to(self.device) for method in methods.values()]

    @cached_property
    def features(self) -> Tensor:
        """The backbone's features ``(N, d)`` of the split on the device."""
        return self._computed(self.split, self._store().features)

    @cached_property
    def base_mean(self) -> Tensor:
        """Mean feature ``(d,)`` of the base classes, on the device."""
        return self._computed(self._base, self._store().mean)

    @cached_property
    def base_classes(self) -> Tensor:
        """Mean feature of each base class ``(classes, d)``, on the device."""
        return self._computed(self._base, self._store().class_means)

    @cached_property
    def _base(self) -> Split:
        """The base classes; `methods` refuses what needs them where there are none."""
        return self.run.split("train", self.data_root)

    def _store(self, method: Method | None = None) -> FeatureStore:
        """Of the backbone's features, or of a method's own."""
        folder = self.run.path if self.cache else None
        embedding = self.model.backbone if method is None else self.model.embedding_of(method)
        kind = [] if method is None else [method.family]
        kind += [] if self.views is None else [self.views]
        return FeatureStore(seeing(embedding, self.views), folder, self.device, self.precision, tuple(kind), self.note)

    def _computed(self, split: Split, compute: Callable[[Split, Progress], Tensor]) -> Tensor:
        with self.ranks.first_alone(), self.tell(f"Features of {split.dataset} {split.name}", len(split.labels)) as say:
            return compute(split, say).to(self.device)

    def source(self, methods: Sequence[Method]) -> FeatureSource:
        """Where the features of one pass come from."""
        method = methods[0]
        if method.episode_statistics:
            embedding = seeing(self.model.embedding_of(method), self.views)
            return from_images(embedding, self.split, self.device, self._mean_for(methods), self.precision == "bf16")
        if method.embeds:
            if str(method) not in self._embedded:  # computed with the other processes, and used by the first again
                self._embedded[str(method)] = self._computed(self.split, self._store(method).features)
            return indexed(self._embedded[str(method)])
        return indexed(self.features, getattr(self.model.backbone, "map_shape", None), self._mean_for(methods))

    def _mean_for(self, methods: Sequence[Method]) -> Tensor | None:
        if any(method.needs_base_classes for method in methods):
            return self.base_classes
        return self.base_mean if any(method.needs_base_mean for method in methods) else None


def one_split(sessions: Sequence[Session], why: str) -> Split:
    """The images that all sessions are on; a `UsageError`, which says why, if they are on different ones."""
    first = sessions[0].split
    for session in sessions:
        if (session.split.dataset, session.split.name) != (first.dataset, first.name):
            raise UsageError(
                f"{why}, but {sessions[0].name} is of {first.dataset} and {session.name} of {session.split.dataset}: "
                "name runs of one data set, or give a `dataset`."
            )
    return first


def measure_together(
    parts: Sequence[tuple[Session, Sequence[Method]]],
    setting: Setting,
    batch_episodes: int | None = None,
    report: PassReport = silent,
    tables: int = 1,
) -> list[Row]:
    """Rows of methods of several runs on the same episodes, so that all differences are paired.

    Each session has its methods; the names that the report gets begin with the run's if there are several. The other
    arguments are those of `Session.measure` and `rows_of`.

    Raises:
        UsageError: If the sessions are on different images.
    """
    split = one_split([session for session, _ in parts], "Methods are compared on the same images")
    measured = []
    for session, methods in parts:
        prefix = f"{session.name}: " if len(parts) > 1 else ""
        measured += session.measure(methods, setting, batch_episodes, report, prefix=prefix)
    return rows_of(measured, split, setting, tables)

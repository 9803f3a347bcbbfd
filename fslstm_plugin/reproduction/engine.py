"""From a specification to its measurements: plan, train what is missing, evaluate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from msgspec.structs import asdict
from rich.console import Console

from ..backbones.base import build_backbone
from ..data.base import Split
from ..data.root import data_root as default_root
from ..data.root import load_split
from ..errors import DataError, UsageError, count_of
from ..evaluation.rows import Measured, rows_of
from ..evaluation.session import RunSession, Tell, quiet
from ..evaluation.setting import Setting
from ..evaluation.timing import backbone_seconds
from ..grammar import BATCH_NORM, parse
from ..pretrained.opening import load_backbone
from ..registry import ADAPTERS, DATASETS
from ..reporting.words import listed
from ..runs.configuration import Config, TrainConfig
from ..runs.folder import Run
from ..training.saying import say
from . import measurements, trainings
from .measurements import Measurement, Provenance
from .outcomes import Found, OutcomeStore
from .specification import OWN, PRETRAINING, Reproduction, Specification
from .trainings import Scale, Training


class NothingToMeasureError(UsageError):
    """A reproduction has no such episodes, or there is no run that a method of it can be evaluated on."""


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

    scale: Scale
    runs: Path
    # Where to evaluate; and where it is the CPU, to train, instead of on all that Lightning finds.
    device: torch.device
    console: Console  # Where what is done is said.
    datasets: tuple[str, ...] = ()  # Only these; those of the specification that are prepared, if none.
    backbones: tuple[str, ...] = ()  # Only these; those of the specification, if none.
    # Only episodes with so many support images per class, and what is trained for them; all if none.
    shots: tuple[int, ...] = ()
    given: tuple[Run, ...] = ()  # Runs to evaluate, in place of trainings.
    weights: Path | None = None  # Run or weights file that trainings begin from, in place of base-class pretraining.
    episodes: int | None = None  # Number of episodes, in place of the scale's.
    seed: int = 0
    train: bool = True  # Whether trainings that are not finished are run; if not, only the finished ones are evaluated.
    resume: bool = False  # Whether what was interrupted may be continued: trainings, and measurements by the same code.
    data_root: Path | None = None  # Where the data sets are; the default root if None.
    batch_episodes: int | None = None  # Episodes at a time; by their size if None.
    tell: Tell = quiet  # Shows how far the features of a split are.


@dataclass(frozen=True)
class Part:
    """Methods to evaluate on one trained model."""

    specification: Specification
    source: Run | Training  # The run, or the training that makes it.
    methods: tuple[str, ...]
    shots: tuple[int, ...]

    @property
    def config(self) -> Config:
        """Configuration of the run."""
        return self.source.config

    def split(self, request: Request) -> Split:
        """Where its episodes come from."""
        name = self.specification.split
        if isinstance(self.source, Run):
            return self.source.split(name, request.data_root)
        return load_split(self.config.dataset or "", name, request.data_root)


def plan(reproduction: Reproduction, request: Request) -> list[Part]:
    """What to evaluate on what, of which there must be something."""
    shots = _shots(reproduction, request)
    if request.given:
        return _given_parts(reproduction, request.given, shots)
    parts = _planned_parts(reproduction.specification, request, shots)
    if request.weights is not None:
        _require_fit(request.weights, parts)
    return parts if request.train else _finished(parts, reproduction.name, request)


def _require_fit(weights: Path, parts: Sequence[Part]) -> None:
    """Refuse weights that are damaged, or of another backbone than one of those to be trained, before any is."""
    configs = [part.config for part in parts if isinstance(part.config, TrainConfig)]
    for backbone, size in dict.fromkeys((config.backbone, config.image_size) for config in configs):
        load_backbone(build_backbone(backbone, size), weights)


def _given_parts(reproduction: Reproduction, runs: Sequence[Run], shots: tuple[int, ...]) -> list[Part]:
    """The runs, with the methods that suit each."""
    specification = reproduction.specification
    for run in runs:
        if run.config.dataset is None:
            raise UsageError(f"{run.path} was pretrained on a folder of images, which has no test classes.")
    _require_told_apart(runs)
    parts = [Part(specification, run, _suiting(specification, run.config), shots) for run in runs]
    parts = [part for part in parts if part.methods]
    if not parts:
        own = _algorithms(specification.methods, specification.trainings)
        needed = " or ".join([*(algorithm for algorithm, _ in own), *specification.rivals])
        raise NothingToMeasureError(f"No method of {reproduction.name} suits the given runs: it needs one of {needed}.")
    return parts


def _planned_parts(specification: Specification, request: Request, test_shots: Iterable[int]) -> list[Part]:
    """The trainings, with the methods that are evaluated on each; those that are one for several shots are merged."""
    merged: dict[tuple[trainings.Identity, tuple[str, ...]], Part] = {}
    for dataset in _datasets(specification, request):
        for backbone in request.backbones or specification.backbones:
            wanted = (PRETRAINING,) if backbone == specification.timed else specification.trainings
            own = _algorithms(specification.methods, wanted)
            for algorithm, methods in [*own, *((rival, (rival,)) for rival in specification.rivals)]:
                for shots in test_shots:
                    training = trainings.wanted_training(
                        algorithm,
                        dataset,
                        backbone,
                        request.scale,
                        request.seed,
                        pretrained=specification.pretrained,
                        weights=request.weights,
                        test_shots=shots,
                        rival=algorithm in specification.rivals,
                        accelerator="cpu" if request.device.type == "cpu" else "auto",
                    )
                    # Only on miniImageNet does the training depend on the shots of the test.
                    key = trainings.wanted_identity(training), methods
                    earlier = merged[key].shots if key in merged else ()
                    merged[key] = Part(specification, training, methods, (*earlier, shots))
    return list(merged.values())


def _require_told_apart(runs: Sequence[Run]) -> None:
    """Refuse runs whose measurements have one key, so that the last one's would be kept alone."""
    seen: dict[tuple[str | None, str, str], Run] = {}
    for run in runs:
        config = run.config
        other = seen.setdefault((config.dataset, config.backbone, trainings.describe(config)), run)
        if other is not run:
            raise UsageError(
                f"{other.path} and {run.path} would be one line of the table ({trainings.describe(config)}): measure "
                "each into an `output` of its own, or compare them with 'fslstm compare'."
            )


def _finished(parts: Sequence[Part], name: str, request: Request) -> list[Part]:
    """The parts whose training is finished, with the run in its place."""
    runs = [trainings.finished(part.source, request.runs, request.data_root) for part in parts]
    found = [replace(part, source=run) for part, run in zip(parts, runs, strict=True) if run is not None]
    if not found:
        raise NothingToMeasureError(f"No training of {name} is finished in {request.runs}: leave out `no_train`.")
    return found


def _shots(reproduction: Reproduction, request: Request) -> tuple[int, ...]:
    has = reproduction.specification.shots
    wanted = tuple(shots for shots in has if shots in request.shots or not request.shots)
    if not wanted:
        asked, there = (listed([f"{shots}-shot" for shots in each]) for each in (request.shots, has))
        raise NothingToMeasureError(f"{reproduction.name} has {there} episodes only, not {asked}.")
    return wanted


def _datasets(specification: Specification, request: Request) -> tuple[str, ...]:
    if request.datasets:
        return request.datasets
    root = default_root(request.data_root)
    prepared = tuple(name for name in specification.datasets if DATASETS.get(name).is_prepared(root))
    if not prepared:
        first = specification.datasets[0]
        raise DataError(f"None of {', '.join(specification.datasets)} is prepared: {DATASETS.get(first).remedy(root)}")
    return prepared


def _algorithms(methods: Sequence[str], wanted: Iterable[str]) -> list[tuple[str, tuple[str, ...]]]:
    """What is trained, with the methods that are evaluated on it."""
    pairs: list[tuple[str, tuple[str, ...]]] = []
    for training in wanted:
        if training == OWN:
            for head, weights in dict.fromkeys(map(_trained_parts, methods)):
                own = tuple(method for method in methods if _trained_parts(method) == (head, weights))
                pairs.append(("+".join([head, *weights]), own))
        else:
            pairs.append((training, tuple(method for method in methods if _fits(method, training))))
    return [(algorithm, fitting) for algorithm, fitting in pairs if fitting]


def _suiting(specification: Specification, config: Config) -> tuple[str, ...]:
    """The methods to evaluate on a given run: where each has a training of its own, those that it was trained for."""
    trained = trainings.algorithm_of(config)
    rivals = tuple(rival for rival in specification.rivals if _trained_parts(rival) == _trained_parts(trained))
    if rivals:
        return rivals
    if OWN in specification.trainings and trained != PRETRAINING:
        return tuple(method for method in specification.methods if _trained_parts(method) == _trained_parts(trained))
    return tuple(method for method in specification.methods if _fits(method, trained))


def _fits(method: str, algorithm: str) -> bool:
    """Whether the adapters with weights that a method has, such as IAM, are those of a training."""
    head, weights = _trained_parts(method)
    return not weights or (head, weights) == _trained_parts(algorithm)


def _trained_parts(method: str) -> tuple[str, tuple[str, ...]]:
    """A method's head, and its adapters with weights, without their arguments."""
    head, *rest = (part.name for part in parse(method))
    return head, tuple(name for name in rest if name in ADAPTERS.names())


def settings(part: Part, request: Request) -> list[Setting]:
    """The episodes of every column of a part's results."""
    specification = part.specification
    known = {"iam", BATCH_NORM, *(parse(rival)[0].name for rival in specification.rivals)}
    slow = any(known & {each.name for each in parse(method)} for method in part.methods)
    episodes = request.episodes or (request.scale.episodes if slow else request.scale.episodes_without_iam)
    return [
        Setting(shots=shots, queries=queries, episodes=episodes, seed=request.seed, query_balance=balance)
        for shots in part.shots
        for queries in specification.queries
        for balance in specification.query_balances
    ]


@dataclass(frozen=True)
class Model:
    """A trained model on its images, and what it was trained with."""

    session: RunSession
    training: str  # See `describe`.
    steps: int  # Steps in the run's checkpoint.

    @classmethod
    def of(cls, part: Part, request: Request) -> Model:
        """The model of a part, trained now if it has to be."""
        run = part.source
        if isinstance(run, Training):
            run = trainings.ensure(run, request.runs, request.data_root, request.resume, request.console)
        split, note = part.split(request), partial(say, request.console)
        session = RunSession(run, split, request.device, data_root=request.data_root, note=note, tell=request.tell)
        return cls(session, trainings.describe(run.config), trainings.steps_done(run))


@dataclass(frozen=True)
class Answers:
    """What the methods of a part answered in the episodes of a setting."""

    model: Model
    found: Mapping[str, Found]  # By the methods' names in the specification what each did, and where that was measured.
    backbone_seconds: float | None  # From the images to the features of all episodes; None where nothing is timed.


def measure(reproduction: Reproduction, parts: Sequence[Part], request: Request) -> None:
    """Train what is missing, evaluate, and keep the measurements, those of a setting as soon as they are there."""
    where = provenance(request)
    answers: dict[tuple[str, str, Setting], list[Answers]] = {}
    for part in parts:
        model = Model.of(part, request)
        session, backbone = model.session, part.config.backbone
        store = OutcomeStore(session.run, session.model, session.split, request.device, where, session.note)
        methods = dict(zip(part.methods, session.methods(part.methods), strict=True))
        for setting in settings(part, request):
            known = request.resume and all(store.answered(name, setting) == setting.episodes for name in methods)
            seconds = None
            if backbone == reproduction.specification.timed:
                each = backbone_seconds(session.model.backbone, session.split, setting, request.device)
                seconds = each * setting.episodes
            same = answers.setdefault((session.split.dataset, backbone, setting), [])
            found = store.measure(session, methods, setting, request.batch_episodes, request.resume)
            same.append(Answers(model, found, seconds))
            measurements.add(reproduction.folder, _measurements(same, setting))
            done = "measured already" if known else listed(part.methods)
            say(request.console, f"{describe(setting)}: {done} on {session.run.name}.")


def provenance(request: Request) -> Provenance:
    """Where what is measured for a request comes from."""
    return Provenance.now("given run" if request.given else request.scale.name)


def _measurements(answers: Sequence[Answers], setting: Setting) -> list[Measurement]:
    """Measurements of several models on the same episodes, so that all differences are paired.

    Where each method is on one model only, having a training of its own, they are compared as those of one model are.
    """
    every = [(answer, name, *found) for answer in answers for name, found in answer.found.items()]
    apart = len({str(outcome.method) for _, _, outcome, _ in every}) == len(every)
    compared = [
        Measured("" if apart else answer.model.session.name, answer.model.session.backbone, outcome)
        for answer, _, outcome, _ in every
    ]
    owners = {(each.run, str(each.method)): owner for each, owner in zip(compared, every, strict=True)}
    rows = rows_of(compared, answers[0].model.session.split, setting, gains_alone=True)
    measured = []
    for (answer, name, _, where), row in zip(every, rows, strict=True):
        model, reference, over = answer.model, None, None
        if row.reference is not None:  # by its name in the specification, and its model
            other, reference, *_ = owners[row.reference_run or "", row.reference]
            over = other.model
        changes = {
            "method": name,  # As the specification has it; the run may have added the size of its IAM.
            "run": model.session.name,
            # What else the machine did meanwhile matters to a time that is shown.
            "seconds": None if answer.backbone_seconds is None else row.seconds,
            "reference": reference,
            "reference_run": over and over.session.name,
            "reference_training": None if over is None or over is model else over.training,
        }
        measured.append(
            Measurement(
                **{**asdict(row), **changes},
                algorithm=trainings.algorithm_of(model.session.run.config),
                training=model.training,
                steps=model.steps,
                backbone_seconds=answer.backbone_seconds,
                provenance=where,
            )
        )
    return measured


def describe(setting: Setting) -> str:
    """The episodes of a setting, in words."""
    queries = count_of(setting.queries, "query")
    return f"{setting.shots}-shot, {queries}, {setting.query_balance}, {setting.episodes:,} episodes"

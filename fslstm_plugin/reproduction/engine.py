"""From a specification to its measurements: plan, train what is missing, evaluate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from ..algorithms.composition import Composition
from ..data.base import Split
from ..data.root import data_root as default_root
from ..data.root import load_split
from ..errors import DataError, UsageError, naming_damage
from ..evaluation.engine import Outcome, run_methods
from ..evaluation.experiment import Setting, cached_source, episode_statistics_source, rows_of
from ..evaluation.features import cached_features
from ..evaluation.methods import build_methods, parse_method
from ..evaluation.model import TrainedModel
from ..evaluation.timing import backbone_seconds
from ..registry import DATASETS, HEADS
from ..runs import Run
from . import measurements, trainings
from .specification import OWN, PRETRAINING, Specification
from .trainings import Scale, Training


@dataclass(frozen=True)
class Request:
    """What the user asked for.

    Args:
        scale: How much is trained and evaluated.
        runs: Folder of the runs.
        device: Where to evaluate.
        datasets: Only these; those of the specification that are prepared, if none.
        backbones: Only these; those of the specification, if none.
        given: Runs to evaluate, in place of trainings.
        weights: Run or weights file that trainings begin from, in place of base-class pretraining.
        episodes: Number of episodes, in place of the scale's.
        seed: What every random choice follows from.
        resume: Whether interrupted trainings may be continued.
        data_root: Where the data sets are; the default root if None.
        batch_episodes: Episodes at a time.
    """

    scale: Scale
    runs: Path
    device: torch.device
    datasets: tuple[str, ...] = ()
    backbones: tuple[str, ...] = ()
    given: tuple[Run, ...] = ()
    weights: Path | None = None
    episodes: int | None = None
    seed: int = 0
    resume: bool = False
    data_root: Path | None = None
    batch_episodes: int = 128


@dataclass(frozen=True)
class Part:
    """Methods to evaluate on one trained model.

    Args:
        source: The run, or the training that makes it.
        methods: Names of methods.
        shots: Support images a class.
    """

    source: Run | Training
    methods: tuple[str, ...]
    shots: tuple[int, ...]

    @property
    def config(self) -> dict[str, Any]:
        """Configuration of the run."""
        return self.source.config


def plan(specification: Specification, request: Request) -> list[Part]:
    """What to evaluate on what.

    Raises:
        DataError: If none of the data sets is prepared.
        UsageError: If no method suits the given runs, or one has no data set.
    """
    if request.given:
        for run in request.given:
            if run.config["dataset"] is None:
                raise UsageError(f"{run.path} was pretrained on a folder of images, which has no test classes.")
        parts = [Part(run, _suiting(specification, run), specification.shots) for run in request.given]
        parts = [part for part in parts if part.methods]
        if not parts:
            own = _algorithms(specification.methods, specification.trainings)
            wanted = " or ".join(algorithm for algorithm, _ in own)
            raise UsageError(f"No method of {specification.name} suits the given runs: it needs one of {wanted}.")
        return parts
    merged: dict[tuple[str, tuple[str, ...]], Part] = {}
    for dataset in _datasets(specification, request):
        for backbone in request.backbones or specification.backbones:
            for algorithm, methods in _algorithms(specification.methods, specification.trainings_for(backbone)):
                for shots in specification.shots:
                    training = trainings.wanted_training(
                        algorithm,
                        dataset,
                        backbone,
                        request.scale,
                        request.seed,
                        pretrained=specification.pretrained,
                        weights=request.weights,
                        test_shots=shots,
                    )
                    # Only on miniImageNet does the training depend on the shots of the test.
                    key = str(trainings.wanted_identity(training)), methods
                    earlier = merged[key].shots if key in merged else ()
                    merged[key] = Part(training, methods, (*earlier, shots))
    return list(merged.values())


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
            own = [(_own_algorithm(method), method) for method in methods]
            for algorithm in dict.fromkeys(algorithm for algorithm, _ in own):
                pairs.append((algorithm, tuple(method for mine, method in own if mine == algorithm)))
        else:
            composition = Composition(HEADS.names()[0]) if training == PRETRAINING else Composition.parse(training)
            pairs.append((training, _fitting(methods, composition)))
    return [(algorithm, fitting) for algorithm, fitting in pairs if fitting]


def _own_algorithm(method: str) -> str:
    name, modules = parse_method(method)
    return str(Composition(name.head, "iam" in modules))


def _suiting(specification: Specification, run: Run) -> tuple[str, ...]:
    """The methods to evaluate on a given run: where each has a training of its own, those that it was trained for."""
    if run.config["kind"] == PRETRAINING:
        return _fitting(specification.methods, Composition(""))
    trained = Composition.parse(run.config["algorithm"])
    if OWN in specification.trainings:
        return tuple(method for method in specification.methods if _own_algorithm(method) == str(trained))
    return _fitting(specification.methods, trained)


def _fitting(methods: Iterable[str], trained: Composition) -> tuple[str, ...]:
    """The methods whose IAM, if they have one, was trained."""
    fitting = []
    for method in methods:
        name, modules = parse_method(method)
        if "iam" not in modules or (trained.iam and trained.head == name.head):
            fitting.append(method)
    return tuple(fitting)


def settings(specification: Specification, part: Part, request: Request) -> list[Setting]:
    """The episodes of every column of a part's results."""
    slow = any({"iam", "bn"} & set(parse_method(method)[1]) for method in part.methods)
    episodes = request.episodes or (request.scale.episodes if slow else request.scale.episodes_without_iam)
    return [
        Setting(shots=shots, queries=queries, episodes=episodes, seed=request.seed, query_balance=balance)
        for shots in part.shots
        for queries in specification.queries
        for balance in specification.query_balances
    ]


@dataclass(frozen=True)
class Answers:
    """What the methods of a part answered in the episodes of a setting.

    Args:
        outcomes: One a method.
        training: What the model was trained with, in words.
        run: Name of its run folder.
        steps: Steps in its checkpoint.
        times: Further measured times, by name.
    """

    outcomes: Sequence[Outcome]
    training: str
    run: str
    steps: int
    times: dict[str, float]


def measure(specification: Specification, parts: Iterable[Part], request: Request, console: Console) -> None:
    """Train what is missing, evaluate, and keep the measurements, those of a part as soon as they are there.

    Raises:
        RunError: If a run was interrupted, and must not be continued, or is damaged.
        DataError: If the data set is missing.
        UsageError: If an episode needs more classes or images than there are.
    """
    where = measurements.provenance("given run" if request.given else request.scale.name)
    answers: dict[tuple[str, str, Setting], list[Answers]] = {}
    for part in parts:
        run = part.source
        if isinstance(run, Training):
            run = trainings.ensure(run, request.runs, request.data_root, request.resume, console)
        model = TrainedModel.from_run(run)
        if model.attention is not None:
            model = replace(model, attention=model.attention.to(request.device))
        split = load_split(run.config["dataset"], specification.split, request.data_root)
        with naming_damage(run.path / "config.json"):
            training, steps = trainings.describe(run.config), trainings.steps_done(run)
        backbone = run.config["backbone"]
        timed = backbone == specification.timed
        for setting in settings(specification, part, request):
            times = {}
            if timed:
                each = backbone_seconds(model.backbone, split, setting, request.device)
                times = {"backbone_seconds": each * setting.episodes}
            outcomes = _evaluate(run, model, part.methods, split, setting, request)
            same = answers.setdefault((split.dataset, backbone, setting), [])
            same.append(Answers(outcomes, training, run.name, steps, times))
            found = _measured(same, split, backbone, setting)
            if not timed:  # what else the machine did meanwhile matters to them alone
                found = [{key: value for key, value in each.items() if key != "seconds"} for each in found]
            measurements.add(specification.folder, found, where)
            console.print(
                f"{describe(setting)}: {len(outcomes)} methods on {run.name}.", highlight=False, soft_wrap=True
            )


def _measured(answers: Sequence[Answers], split: Split, backbone: str, setting: Setting) -> list[dict[str, Any]]:
    """Measurements of the same episodes; those of several models are compared if each method is on one of them only."""
    labels = [outcome.method.label for each in answers for outcome in each.outcomes]
    comparable = len(set(labels)) == len(labels)
    found = []
    for group in [answers] if comparable else [[each] for each in answers]:
        sources = {outcome.method.label: each for each in group for outcome in each.outcomes}
        rows = rows_of([outcome for each in group for outcome in each.outcomes], split, backbone, setting)
        for row in rows:
            mine, theirs = sources[row.method], sources.get(row.reference or row.method)
            other = {"reference_training": theirs.training} if theirs is not None and theirs is not mine else {}
            found.append(measurements.measurement(row, mine.training, mine.run, mine.steps, **mine.times, **other))
    return found


def _evaluate(
    run: Run, model: TrainedModel, names: Sequence[str], split: Split, setting: Setting, request: Request
) -> list[Outcome]:
    """Answers of the methods; those with batch statistics of the episode see other features: a pass of their own."""
    methods = build_methods(names, model)
    sampler = setting.sampler(split)
    outcomes: list[Outcome] = []
    for statistics in (False, True):
        mine = [method for method in methods if ("bn" in method.modules) == statistics]
        if not mine:
            continue
        if statistics:
            source = episode_statistics_source(model, split, request.device)
        else:
            features = cached_features(run.path / "cache", model.backbone, split, request.device)
            source = cached_source(features.to(request.device))
        workers = 1 if statistics else None  # The backbone keeps an episode's statistics while it is in it.
        outcomes += run_methods(
            source, sampler, mine, setting.episodes, request.device, request.batch_episodes, workers=workers
        )
    return outcomes


def describe(setting: Setting) -> str:
    """The episodes of a setting, in words."""
    return f"{setting.shots}-shot, {setting.queries} queries, {setting.query_balance}, {setting.episodes:,} episodes"

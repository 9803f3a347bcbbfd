"""Runs that a reproduction needs: found by their configuration, continued, or trained."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch
from msgspec.structs import replace
from rich.console import Console
from torch.distributed import is_torchelastic_launched

from ..arguments import options
from ..checks import one_of
from ..data.root import load_split
from ..errors import RunError, StorageError, count_of
from ..grammar import Part, parse
from ..recipes import MetaRecipe, PretrainRecipe, base_class_pretraining
from ..registry import METHODS
from ..runs.configuration import Config, PretrainConfig, TrainConfig, Validation
from ..runs.folder import Run, new_run_folder
from ..storage.files import exclusive
from ..training.configuration import pretrain_config, train_config
from ..training.saying import say
from .specification import PRETRAINING

OURS = "lssvm+iam"  # Whose training images every rival gets.


@dataclass(frozen=True)
class Amount:
    """How much of the recipes is trained."""

    pretrain_epochs: int | None  # Epochs of the pretraining; None for its whole recipe.
    train_steps: int | None  # Steps of the meta-training; None for the paper's 60,000.


@dataclass(frozen=True)
class Scale:
    """How much of the paper's schedule is trained and evaluated."""

    name: str  # As typed.
    amount: Amount
    train_queries: int | None  # Query images per class in training; None for the paper's 6.
    # Whether what the paper trains from scratch, for all its 60,000 steps, begins from a pretraining too.
    always_pretrained: bool
    episodes: int  # Test episodes, the paper's being 1,000.
    episodes_without_iam: int  # The same where no method has IAM or episode batch norm, which need far more time.
    # How much instead, by name of backbone; a step of ResNet12 costs over five times as much as Conv4's.
    amounts: Mapping[str, Amount] = field(default_factory=dict)
    recipe: str = "cpu"  # Of the pretraining.


SCALES = {
    scale.name: scale
    for scale in (
        Scale("quick", Amount(1, 50), 2, True, 200, 200, {"resnet12": Amount(1, 20)}),
        Scale("cpu", Amount(None, 2000), 2, True, 2000, 10_000, {"resnet12": Amount(None, 300)}),
        Scale("gpu", Amount(None, None), None, False, 10_000, 10_000, recipe="gpu"),
        Scale("paper", Amount(None, None), None, False, 1000, 1000),
    )
}


def find_scale(name: str) -> Scale:
    """The scale of that name."""
    return SCALES[one_of("scale", name, SCALES)]


@dataclass(frozen=True)
class Training:
    """A run that is wanted."""

    config: Config  # What its ``config.json`` would hold; ``pretrained`` is known only when ``begins_from`` is there.
    name: str  # Name of its folder, if it has to be made.
    begins_from: Training | None = None  # The pretraining that it begins from.
    accelerator: str = "auto"  # Lightning's, on which it is trained.


def wanted_training(
    algorithm: str,
    dataset: str,
    backbone: str,
    scale: Scale,
    seed: int,
    *,
    pretrained: bool,
    weights: Path | None = None,
    test_shots: int = 5,
    rival: bool = False,
    accelerator: str = "auto",
) -> Training:
    """The training of an algorithm, or ``"pretrain"``, by the recipes, at a scale.

    It begins from weights, a run or a file, if there are any, else from a pretraining on the base classes, if wanted or
    at a scale that always has it. The shots of miniImageNet's training depend on those that will be tested. A rival,
    another paper's, is trained by its own recipe, but on no more images than LSSVM+IAM at this scale, and with a decay
    for so few steps.
    """
    stem = f"reproduce-{scale.name}-{dataset}-{backbone}"
    amount = scale.amounts.get(backbone, scale.amount)
    epochs = {"epochs": amount.pretrain_epochs} if amount.pretrain_epochs else {}
    pretraining = pretrain_config(
        backbone, dataset=dataset, seed=seed, accelerator=accelerator, recipe=scale.recipe, given=epochs
    )
    source = Training(pretraining, f"{stem}-pretrained", accelerator=accelerator)
    if algorithm == PRETRAINING:
        return source
    begins_from = source if weights is None and (pretrained or scale.always_pretrained) else None

    def config_of(algorithm: str, queries: int | None, validation: Validation) -> TrainConfig:
        return train_config(
            dataset,
            backbone,
            algorithm,
            pretrained=weights or (Path(source.name) if begins_from else None),
            max_steps=amount.train_steps,
            seed=seed,
            accelerator=accelerator,
            validation=validation,
            test_shots=test_shots,
            given={"queries": queries} if queries else {},
        )

    validation = Validation(min(2000, 2 * scale.episodes))
    config = config_of(OURS if rival else algorithm, scale.train_queries, validation)
    if rival:
        algorithm = _for_shots(algorithm, test_shots)
        config = _with_images_of(config, config_of(algorithm, None, replace(validation, shots=test_shots)))
    return Training(config, f"{stem}-{algorithm}", begins_from, accelerator)


def _for_shots(rival: str, shots: int) -> str:
    """The rival's name, with the shots where it is built for a number of them."""
    (part,) = parse(rival)
    known = options(METHODS.get(part.name))
    return str(Part(part.name, {**part.arguments, "shots": shots})) if "shots" in known else rival


def _with_images_of(ours: TrainConfig, rival: TrainConfig) -> TrainConfig:
    """A rival's training, validated with its own shots, on as many images as ours where that is cut short."""
    episodes = rival.validation.episodes
    if METHODS.get(parse(rival.algorithm)[0].name).episode_statistics is True:  # images each time: far slower
        episodes = max(2, episodes // 20)
    rival = replace(rival, validation=replace(rival.validation, episodes=episodes, shots=rival.recipe.shots))
    if ours.max_steps is None:
        return rival
    rival = replace(rival, recipe=_cut_short(rival.recipe, ours.recipe))
    return replace(rival, max_steps=max(1, ours.max_steps * images_per_step(ours) // images_per_step(rival)))


def _cut_short(recipe: MetaRecipe, ours: MetaRecipe) -> MetaRecipe:
    """A rival's recipe for a part of its steps: the rates fall linearly to zero, no step has more episodes than ours.

    The published decays are for 20,000 to 500,000 episodes. In the same shares of a few thousand they leave hardly a
    step to learn in: TPN's, halved twenty times, the sum of a tenth of the steps at the first rate, DPGN's of a sixth.
    Some published steps are large: DPGN's would be a few hundred. It is validated as often as ours.

    Source: Li, Yumer, Ramanan, "Budgeted training: rethinking deep neural network training under resource constraints",
    ICLR 2020: among decays for a budget of steps the linear one to zero is the best or close to it.
    """
    whole = recipe.epochs * recipe.steps_per_epoch
    return replace(
        recipe,
        schedule="linear",
        milestones=(),
        factors=(),
        episodes_per_step=min(recipe.episodes_per_step, ours.episodes_per_step),
        epochs=-(-whole // ours.steps_per_epoch),
        steps_per_epoch=ours.steps_per_epoch,
    )


# A configuration without its start, and that: a pretraining's own identity, or the path of a weights file.
Identity = tuple[Config, "Identity | str | None"]


def identity(config: Config, within: tuple[str, ...] = ()) -> Identity:
    """What tells two trainings apart: a configuration, with its pretraining's own in place of the folder's path.

    It is the pretraining of the folders that it is within; a damaged one may name itself.
    """
    if not isinstance(config, TrainConfig) or config.pretrained is None:
        return config, None
    own, source = replace(config, pretrained=None), config.pretrained
    if source not in within:
        with suppress(RunError):  # a weights file, or a folder that is gone or damaged
            return own, identity(Run.open(Path(source)).config, (*within, source))
    return own, source


def wanted_identity(training: Training) -> Identity:
    """What `identity` gives for the run of a training."""
    if training.begins_from is None:
        return identity(training.config)
    return replace(training.config, pretrained=None), wanted_identity(training.begins_from)


def existing(training: Training, runs: Path) -> Run | None:
    """The run with exactly this configuration, finished ones first; None if there is none."""
    wanted = wanted_identity(training)
    return max((run for run in _trained_here(runs) if identity(run.config) == wanted), key=steps_done, default=None)


def _trained_here(folder: Path) -> list[Run]:
    """Runs that can be continued or begun; not weights alone, such as a model of the package, to be trained over."""
    found = []
    for file in sorted(folder.glob("*/config.json")):
        with suppress(RunError):  # a damaged or foreign folder is not ours to mend, and not to be used
            found.append(Run.open(file.parent))
    return [run for run in found if run.checkpoint.is_file() or not run.weights.is_file()]


def steps_done(run: Run) -> int:
    """Optimiser steps in the run's checkpoint, 0 if it has none."""
    if not run.checkpoint.is_file():
        return 0
    try:
        return int(torch.load(run.checkpoint, map_location="cpu", weights_only=True, mmap=True)["global_step"])
    except Exception:  # torch and pickle have many errors for the many ways of being damaged
        return 0


def total_steps(config: Config, data_root: Path | None) -> int:
    """Optimiser steps of a training; a pretraining's depend on its number of images."""
    images = len(load_split(config.dataset or "", "train", data_root).labels)
    recipe = config.recipe
    each = recipe.steps_per_epoch(images) if isinstance(recipe, PretrainRecipe) else recipe.steps_per_epoch
    return min(recipe.epochs * each, config.max_steps or recipe.epochs * each)


def finished(source: Run | Training, runs: Path, data_root: Path | None) -> Run | None:
    """A run, or that of a training, if it has been trained to its end."""
    run = source if isinstance(source, Run) else existing(source, runs)
    return run if run is not None and steps_done(run) >= total_steps(run.config, data_root) else None


def ensure(training: Training, runs: Path, data_root: Path | None, resume: bool, console: Console) -> Run:
    """The trained run: an existing one with the same configuration, continued if allowed, or a new one.

    Where another process is at the same training, its end is waited for.
    """
    config = training.config
    if training.begins_from is not None:
        source = ensure(training.begins_from, runs, data_root, resume, console)
        config = replace(config, pretrained=str(source.path.resolve()))
    run = finished(training, runs, data_root)
    if run is None:
        with _alone(training, runs, console):
            run = finished(training, runs, data_root)  # by the process that was waited for
            if run is None:
                return _train(training, config, runs, data_root, resume, console)
    say(console, f"{run.path} has this configuration and is used.")
    return run


@contextmanager
def _alone(training: Training, runs: Path, console: Console) -> Iterator[None]:
    """Do something while no other process trains the same; those that train together are let in with the first."""
    from ..training.engine import is_first  # which imports Lightning

    if not is_first() or is_torchelastic_launched():
        yield
        return
    digest = hashlib.blake2b(repr(wanted_identity(training)).encode(), digest_size=8).hexdigest()
    place = runs / f"{training.name}-{digest}"  # the name alone is that of other seeds and shots too
    with ExitStack() as stack:
        try:
            stack.enter_context(exclusive(place, seconds=0))
        except StorageError:
            say(console, f"Waiting for another process that trains {training.name}.")
            stack.enter_context(exclusive(place, seconds=math.inf))
        yield


def _train(
    training: Training, config: Config, runs: Path, data_root: Path | None, resume: bool, console: Console
) -> Run:
    from ..training.engine import EngineOptions  # which imports Lightning, as the two below do
    from ..training.meta_training import train
    from ..training.pretraining import pretrain

    run = existing(training, runs)
    again = run is not None
    if run is None:
        with exclusive(runs / training.name):  # Trainings of one name, as with two seeds, may begin at the same time.
            run = Run(new_run_folder(runs, None, training.name), config)
            run.path.mkdir(parents=True, exist_ok=True)
    elif not resume:
        raise RunError(f"{run.path} has this configuration but is not finished: continue it with `resume=True`.")
    say(console, f"{'Continuing' if again else 'Training'} {run.path}: {describe(config)}.")
    work = pretrain if isinstance(config, PretrainConfig) else train
    try:
        work(run, EngineOptions(training.accelerator), data_root=data_root, resume=again, console=console)
    finally:
        with suppress(OSError):
            run.path.rmdir()  # It is empty if the training could not begin.
    return Run.open(run.path)


def algorithm_of(config: Config) -> str:
    """What a run was trained with: a method, or ``"pretrain"``."""
    return PRETRAINING if isinstance(config, PretrainConfig) else config.algorithm


def describe(config: Config) -> str:
    """What a run was trained with, in a few words to stand beside its numbers.

    Example:
        >>> describe(pretrain_config("conv4", dataset="cifar-fs", precision="32"))
        'base classes, 16 epochs'
        >>> describe(pretrain_config("conv4", dataset="cifar-fs", precision="32", given={"weight_decay": 5e-4}))
        'base classes, 16 epochs, weight decay 0.0005'
    """
    if isinstance(config, PretrainConfig):
        return _describe_pretraining(config)
    recipe, limit = config.recipe, config.max_steps
    whole = recipe.epochs * recipe.steps_per_epoch
    amount = f"{limit:,} of {whole:,}" if limit and limit < whole else f"{whole:,}"
    episodes = count_of(recipe.episodes_per_step, "episode")
    images = f"{recipe.shots} + {recipe.queries} images per class"
    own = f"{config.algorithm}, {count_of(amount, 'step')} of {episodes} with {images}"
    if not config.pretrained:
        return own
    folder = Path(config.pretrained)
    try:
        there = (folder / "config.json").is_file()
    except OSError:  # in a stranger's configuration it may be no path
        there = False
    return f"{describe(Run.open(folder).config) if there else f'weights {folder.name}'}; then {own}"


def _describe_pretraining(config: PretrainConfig) -> str:
    recipe, usual = config.recipe, base_class_pretraining(config.image_size)
    images = "base classes" if config.dataset else "Places365" if config.places else "a folder of images"
    epochs = count_of(recipe.epochs, "epoch")
    words = [images, f"at most {count_of(config.max_steps, 'step')}" if config.max_steps else epochs]
    if config.dataset and recipe.batch_size != usual.batch_size:
        words.append(f"batches of {recipe.batch_size}")
    if config.dataset and recipe.weight_decay != usual.weight_decay:
        words.append(f"weight decay {recipe.weight_decay:g}")
    if config.teacher:
        words.append("born again")
    return ", ".join(words)


def images_per_step(config: TrainConfig) -> int:
    """Images of a step of a meta-training."""
    recipe = config.recipe
    return recipe.episodes_per_step * recipe.ways * (recipe.shots + recipe.queries)

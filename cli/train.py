"""``fslstm train``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from fslstm_plugin.stopping import stoppable

from . import options

EXAMPLES = """
[bold]Examples[/bold]

fslstm train --dataset mini --backbone resnet12

fslstm train --dataset cifar-fs --backbone conv4 --pretrained runs/pretrain-cifar-fs-conv4 --max-steps 2000

fslstm train --dataset glyphs --algorithm rr --epochs 1 --steps-per-epoch 100

fslstm train --resume --name train-mini-resnet12-lssvm+iam

torchrun --nproc-per-node 4 -m fslstm_cli train --dataset mini --devices 4 --strategy ddp
"""

EPISODES = "Episodes (defaults: the paper's for this data set)"
VALIDATION = "Validation (chooses the best weights)"
RECIPE = "Recipe (defaults: the paper's for this data set and backbone)"

_recipe = partial(typer.Option, rich_help_panel=RECIPE, show_default=False)
_episode = partial(typer.Option, rich_help_panel=EPISODES, show_default=False)


@stoppable()
def train(
    context: typer.Context,
    dataset: options.Dataset = "mini",
    backbone: options.Backbone = "conv4",
    algorithm: Annotated[
        str, typer.Option(help="A head (nn, rr, svm, lssvm, or a registered one), with +iam if wanted.")
    ] = "lssvm+iam",
    pretrained: Annotated[
        Optional[Path],
        typer.Option(
            help="Run folder, its name in --runs, or weights file that the backbone begins from.", show_default=False
        ),
    ] = None,
    seed: options.Seed = 0,
    name: options.Name = None,
    runs: options.RunsFolder = Path("runs"),
    resume: options.Resume = False,
    data_root: options.DataRoot = None,
    ways: Annotated[
        Optional[int],
        _episode(min=2, help="Classes an episode."),
    ] = None,
    shots: Annotated[
        Optional[int],
        _episode(min=1, help="Support images a class."),
    ] = None,
    queries: Annotated[
        Optional[int],
        _episode(min=1, help="Query images a class."),
    ] = None,
    test_shots: Annotated[
        int,
        typer.Option(
            min=1,
            help="Shots that will be tested; the paper trains mini with 5 shots for 1, 15 for 5.",
            rich_help_panel=EPISODES,
        ),
    ] = 5,
    episodes_per_step: Annotated[
        Optional[int],
        _episode(min=1, help="Episodes an optimiser step."),
    ] = None,
    epochs: Annotated[Optional[int], _recipe(min=1)] = None,
    steps_per_epoch: Annotated[Optional[int], _recipe(min=1)] = None,
    max_steps: Annotated[
        Optional[int],
        _recipe(min=1, help="Stop after so many steps; the schedule fits them."),
    ] = None,
    lr: Annotated[Optional[float], _recipe(help="Of the backbone.")] = None,
    iam_lr: Annotated[
        Optional[float],
        _recipe(help="Of the Inverse Attention Module."),
    ] = None,
    scale_lr: Annotated[Optional[float], _recipe(help="Of the logit scale.")] = None,
    weight_decay: Annotated[Optional[float], _recipe(min=0)] = None,
    label_smoothing: Annotated[Optional[float], _recipe(min=0)] = None,
    iam_reduction: Annotated[
        Optional[int],
        _recipe(min=1, help="Reduction ratio r of the IAM; 16 on mini, 8 elsewhere."),
    ] = None,
    iam_dropout: Annotated[
        Optional[float],
        _recipe(min=0, max=0.99, help="Dropout of the IAM."),
    ] = None,
    momentum: Annotated[
        Optional[float],
        _recipe(min=0, max=0.9999, help="Nesterov momentum."),
    ] = None,
    milestone: Annotated[
        Optional[list[float]],
        _recipe(
            min=0, max=1, help="Share of the training after which the rates fall; repeat it, with a --factor for each."
        ),
    ] = None,
    factor: Annotated[
        Optional[list[float]],
        _recipe(min=0, help="What the initial rates are multiplied with after each milestone."),
    ] = None,
    padding: Annotated[
        Optional[int],
        _recipe(min=0, help="Pixels of padding before the random crop."),
    ] = None,
    jitter: Annotated[
        Optional[float],
        _recipe(min=0, max=1, help="Strength of the colour jitter."),
    ] = None,
    flip: Annotated[
        Optional[float],
        _recipe(min=0, max=1, help="Probability of a flip."),
    ] = None,
    val_episodes: Annotated[
        int, typer.Option(min=2, help="Episodes after each epoch.", rich_help_panel=VALIDATION)
    ] = 2000,
    val_ways: Annotated[int, typer.Option(min=2, help="Classes an episode.", rich_help_panel=VALIDATION)] = 5,
    val_shots: Annotated[int, typer.Option(min=1, help="Support images a class.", rich_help_panel=VALIDATION)] = 5,
    val_queries: Annotated[int, typer.Option(min=1, help="Query images a class.", rich_help_panel=VALIDATION)] = 15,
    accelerator: options.Accelerator = "auto",
    devices: options.Devices = "auto",
    num_nodes: options.NumNodes = 1,
    strategy: options.Strategy = "auto",
    precision: options.Precision = "auto",
    checkpoint_every: options.CheckpointEvery = 200,
) -> None:
    """Meta-train a backbone with a head, and the Inverse Attention Module if wanted."""
    if resume:
        options.refuse_with_resume(context)
    device_count = options.device_count(devices)

    from dataclasses import replace

    from pytorch_lightning.utilities.rank_zero import rank_zero_only
    from rich.console import Console

    from fslstm_plugin.algorithms.composition import Composition
    from fslstm_plugin.algorithms.recipe import meta_training
    from fslstm_plugin.registry import DATASETS
    from fslstm_plugin.runs import Run, new_run_folder
    from fslstm_plugin.training.engine import EngineOptions
    from fslstm_plugin.training.meta_training import Validation, train, train_config

    console = Console(stderr=True)
    engine = EngineOptions(accelerator, device_count, num_nodes, strategy, checkpoint_every)
    if resume:
        run = Run.to_resume(runs, name, "train")
    else:
        composition = Composition.parse(algorithm)
        size = DATASETS.get(dataset).image_size
        recipe = meta_training(dataset, backbone, size, pretrained is not None, test_shots)
        given: dict[str, Any] = {
            "ways": ways, "shots": shots, "queries": queries, "episodes_per_step": episodes_per_step,
            "epochs": epochs, "steps_per_epoch": steps_per_epoch, "lr": lr, "iam_lr": iam_lr, "scale_lr": scale_lr,
            "weight_decay": weight_decay, "label_smoothing": label_smoothing, "momentum": momentum,
            "iam_reduction": iam_reduction, "iam_dropout": iam_dropout,
            "milestones": tuple(milestone) if milestone else None, "factors": tuple(factor) if factor else None,
        }  # fmt: skip
        changes: dict[str, Any] = {"padding": padding, "jitter": jitter, "flip": flip}
        augmentation = replace(
            recipe.augmentation, **{key: value for key, value in changes.items() if value is not None}
        )
        recipe = replace(recipe, augmentation=augmentation, **options.only_given(given))
        validation = Validation(val_episodes, val_ways, val_shots, val_queries)
        start = options.find_pretrained(pretrained, runs)
        config = train_config(
            dataset, backbone, size, composition, recipe, validation, start, max_steps, seed, precision
        )
        run = Run(new_run_folder(runs, name, f"train-{dataset}-{backbone}-{composition}"), config)
    train(run, engine, data_root=data_root, resume=resume, console=console)
    rank_zero_only(print)(f"Saved the best model in {run.weights}.")

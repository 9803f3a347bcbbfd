"""``fslstm pretrain``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from fslstm_plugin.errors import UsageError
from fslstm_plugin.stopping import stoppable

from . import options

EXAMPLES = """
[bold]Examples[/bold]

fslstm pretrain --dataset cifar-fs --backbone conv4

fslstm pretrain --dataset mini --backbone resnet12 --epochs 30 --name mini-base

fslstm pretrain --places ~/data/places365 --backbone resnet12 --image-size 84

fslstm pretrain --resume --name mini-base
"""

RECIPE = "Recipe (defaults: 12 epochs for a benchmark, the published 90 for Places365 and folders)"

_recipe = partial(typer.Option, rich_help_panel=RECIPE, show_default=False)


@stoppable()
def pretrain(
    context: typer.Context,
    dataset: Annotated[
        Optional[str], typer.Option(help="Benchmark whose training classes are learned.", show_default=False)
    ] = None,
    places: Annotated[
        Optional[Path],
        typer.Option(help="Folder of Places365-standard, as torchvision has it.", show_default=False),
    ] = None,
    images: Annotated[
        Optional[Path],
        typer.Option(help="Any folder with a folder of images for each class.", show_default=False),
    ] = None,
    backbone: options.Backbone = "conv4",
    image_size: Annotated[
        Optional[int],
        typer.Option(min=16, help="Side of the crops from --places or --images; 84.", show_default=False),
    ] = None,
    seed: options.Seed = 0,
    name: options.Name = None,
    runs: options.RunsFolder = Path("runs"),
    resume: options.Resume = False,
    data_root: options.DataRoot = None,
    epochs: Annotated[Optional[int], _recipe(min=1)] = None,
    batch_size: Annotated[Optional[int], _recipe(min=2)] = None,
    lr: Annotated[
        Optional[float],
        _recipe(help="Highest learning rate."),
    ] = None,
    schedule: Annotated[
        Optional[str],
        _recipe(help="one-cycle, or steps: divided by 10 after each third."),
    ] = None,
    weight_decay: Annotated[Optional[float], _recipe(min=0)] = None,
    momentum: Annotated[
        Optional[float],
        _recipe(min=0, max=0.9999, help="Momentum of gradient descent."),
    ] = None,
    nesterov: Annotated[
        Optional[bool],
        _recipe("--nesterov/--no-nesterov", help="Nesterov's form of it."),
    ] = None,
    padding: Annotated[
        Optional[int],
        _recipe(min=0, help="Pixels of padding before the random crop of a benchmark's images."),
    ] = None,
    jitter: Annotated[
        Optional[float],
        _recipe(min=0, max=1, help="Strength of their colour jitter."),
    ] = None,
    flip: Annotated[
        Optional[float],
        _recipe(min=0, max=1, help="Probability of their flip."),
    ] = None,
    max_steps: Annotated[
        Optional[int],
        _recipe(min=1, help="Stop after so many steps; the schedule fits them."),
    ] = None,
    workers: Annotated[
        int,
        typer.Option(min=0, help="Processes that decode a folder's images.", rich_help_panel=options.ENGINE),
    ] = 2,
    accelerator: options.Accelerator = "auto",
    devices: options.Devices = "auto",
    num_nodes: options.NumNodes = 1,
    strategy: options.Strategy = "auto",
    precision: options.Precision = "auto",
    checkpoint_every: options.CheckpointEvery = 200,
) -> None:
    """Pretrain a backbone as a classifier."""
    if resume:
        options.refuse_with_resume(context)
    elif sum(value is not None for value in (dataset, places, images)) != 1:
        raise UsageError("Name what to pretrain on with one of --dataset, --places and --images.")
    elif dataset is not None and image_size:
        raise UsageError("--image-size is for --places and --images: a data set has its own size.")
    device_count = options.device_count(devices)

    from dataclasses import replace

    from pytorch_lightning.utilities.rank_zero import rank_zero_only
    from rich.console import Console

    from fslstm_plugin.registry import DATASETS
    from fslstm_plugin.runs import Run, new_run_folder
    from fslstm_plugin.training.engine import EngineOptions
    from fslstm_plugin.training.pretraining import PretrainSource, pretrain, pretrain_config
    from fslstm_plugin.training.recipes import base_class_pretraining, folder_pretraining

    console = Console(stderr=True)
    engine = EngineOptions(accelerator, device_count, num_nodes, strategy, checkpoint_every)
    if resume:
        run = Run.to_resume(runs, name, "pretrain")
    else:
        source = PretrainSource(dataset, places, images)
        size = DATASETS.get(dataset).image_size if dataset is not None else image_size or 84
        recipe = base_class_pretraining(size) if dataset is not None else folder_pretraining()
        given: dict[str, Any] = {
            "epochs": epochs, "batch_size": batch_size, "lr": lr, "schedule": schedule, "weight_decay": weight_decay,
            "momentum": momentum, "nesterov": nesterov,
        }  # fmt: skip
        changes: dict[str, Any] = {"padding": padding, "jitter": jitter, "flip": flip}
        if options.only_given(changes) and recipe.augmentation is None:
            raise UsageError("--padding, --jitter and --flip are for --dataset: a folder gets a random resized crop.")
        if recipe.augmentation is not None:
            recipe = replace(recipe, augmentation=replace(recipe.augmentation, **options.only_given(changes)))
        recipe = replace(recipe, **options.only_given(given))
        config = pretrain_config(source, backbone, size, recipe, max_steps, seed, precision)
        run = Run(new_run_folder(runs, name, f"pretrain-{dataset or 'images'}-{backbone}"), config)
    pretrain(run, engine, data_root=data_root, workers=workers, resume=resume, console=console)
    rank_zero_only(print)(f"Saved the backbone in {run.weights}.")

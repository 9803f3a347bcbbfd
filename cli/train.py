"""``fslstm train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

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
RECIPE = "Recipe (defaults: the paper's for this data set and backbone)"


def train(
    context: typer.Context,
    dataset: options.Dataset = "mini",
    backbone: options.Backbone = "conv4",
    algorithm: Annotated[
        str, typer.Option(help="A head (nn, rr, svm, lssvm, or a registered one), with +iam if wanted.")
    ] = "lssvm+iam",
    pretrained: Annotated[
        Optional[Path],
        typer.Option(help="Run folder or weights file that the backbone begins from.", show_default=False),
    ] = None,
    seed: options.Seed = 0,
    name: Annotated[Optional[str], typer.Option(help="Name of the run folder.", show_default=False)] = None,
    runs: options.RunsFolder = Path("runs"),
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run --name, or the newest.")] = False,
    data_root: options.DataRoot = None,
    ways: Annotated[
        Optional[int],
        typer.Option(min=2, help="Classes an episode.", rich_help_panel=EPISODES, show_default=False),
    ] = None,
    shots: Annotated[
        Optional[int],
        typer.Option(min=1, help="Support images a class.", rich_help_panel=EPISODES, show_default=False),
    ] = None,
    queries: Annotated[
        Optional[int],
        typer.Option(min=1, help="Query images a class.", rich_help_panel=EPISODES, show_default=False),
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
        typer.Option(min=1, help="Episodes an optimiser step.", rich_help_panel=EPISODES, show_default=False),
    ] = None,
    epochs: Annotated[Optional[int], typer.Option(min=1, rich_help_panel=RECIPE, show_default=False)] = None,
    steps_per_epoch: Annotated[Optional[int], typer.Option(min=1, rich_help_panel=RECIPE, show_default=False)] = None,
    max_steps: Annotated[
        Optional[int],
        typer.Option(
            min=1,
            help="Stop after so many steps; the schedule fits them.",
            rich_help_panel=RECIPE,
            show_default=False,
        ),
    ] = None,
    lr: Annotated[
        Optional[float], typer.Option(help="Of the backbone.", rich_help_panel=RECIPE, show_default=False)
    ] = None,
    iam_lr: Annotated[
        Optional[float],
        typer.Option(help="Of the Inverse Attention Module.", rich_help_panel=RECIPE, show_default=False),
    ] = None,
    scale_lr: Annotated[
        Optional[float], typer.Option(help="Of the logit scale.", rich_help_panel=RECIPE, show_default=False)
    ] = None,
    weight_decay: Annotated[Optional[float], typer.Option(min=0, rich_help_panel=RECIPE, show_default=False)] = None,
    label_smoothing: Annotated[Optional[float], typer.Option(min=0, rich_help_panel=RECIPE, show_default=False)] = None,
    iam_reduction: Annotated[
        Optional[int],
        typer.Option(
            min=1,
            help="Reduction ratio r of the IAM; 16 on mini, 8 elsewhere.",
            rich_help_panel=RECIPE,
            show_default=False,
        ),
    ] = None,
    val_episodes: Annotated[
        int, typer.Option(min=1, help="Validation episodes after each epoch.", rich_help_panel=RECIPE)
    ] = 2000,
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
    options.check_precision(precision)
    device_count = options.device_count(devices)

    from dataclasses import replace

    from rich.console import Console

    from fslstm_plugin.algorithms.composition import Composition
    from fslstm_plugin.algorithms.recipe import meta_training
    from fslstm_plugin.registry import DATASETS
    from fslstm_plugin.runs import Run, new_run_folder
    from fslstm_plugin.training.engine import EngineOptions
    from fslstm_plugin.training.meta_training import Validation, train, train_config

    console = Console(stderr=True)
    engine = EngineOptions(precision, accelerator, device_count, num_nodes, strategy, checkpoint_every)
    if resume:
        run = Run.to_resume(runs, name, "train")
    else:
        composition = Composition.parse(algorithm)
        size = DATASETS.get(dataset).image_size
        recipe = meta_training(dataset, backbone, size, pretrained is not None, test_shots)
        given: dict[str, Any] = {
            "ways": ways, "shots": shots, "queries": queries, "episodes_per_step": episodes_per_step,
            "epochs": epochs, "steps_per_epoch": steps_per_epoch, "lr": lr, "iam_lr": iam_lr, "scale_lr": scale_lr,
            "weight_decay": weight_decay, "label_smoothing": label_smoothing,
        }  # fmt: skip
        recipe = replace(recipe, **{key: value for key, value in given.items() if value is not None})
        reduction = iam_reduction or (16 if dataset == "mini" else 8)
        validation = Validation(episodes=val_episodes)
        config = train_config(
            dataset, backbone, size, composition, reduction, recipe, validation, pretrained, max_steps, seed
        )
        run = Run(new_run_folder(runs, name, f"train-{dataset}-{backbone}-{composition}"), config)
    train(run, engine, data_root=data_root, resume=resume, console=console)
    print(f"Saved the best model in {run.weights}.")

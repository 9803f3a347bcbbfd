"""``fslstm pretrain``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from fslstm_plugin.errors import UsageError
from fslstm_plugin.recipes import Augmentation, PretrainRecipe
from fslstm_plugin.registry import DATASETS
from fslstm_plugin.stopping import stoppable

from . import options, terminal
from .pictures import MaxPixels
from .signatures import only_given, split, with_fields, with_recipe

EXAMPLES = """
fslstm pretrain --dataset cifar-fs --backbone conv4
fslstm pretrain --dataset mini --backbone resnet12 --epochs 30 --name mini-base
fslstm pretrain --dataset cifar-fs --teacher pretrain-cifar-fs-conv4 --name born-again
fslstm pretrain --places ~/data/places365 --backbone resnet12 --image-size 84
fslstm pretrain --resume --name mini-base
"""

RECIPE = "Recipe (defaults: --recipe's; for --places and --images 90 epochs)"


@stoppable()
@with_fields(options.Engine, options.ENGINE)
@with_recipe(RECIPE, PretrainRecipe, Augmentation)
def pretrain(
    context: typer.Context,
    dataset: Annotated[
        Optional[str], typer.Option(help="Benchmark whose training classes are learned.", autocompletion=DATASETS.names)
    ] = None,
    places: Annotated[
        Optional[Path], typer.Option(help="Folder of Places365-standard, in torchvision's layout.", file_okay=False)
    ] = None,
    images: Annotated[
        Optional[Path], typer.Option(help="Any folder with one folder of images per class.", file_okay=False)
    ] = None,
    teacher: Annotated[
        Optional[Path],
        typer.Option(
            help="Run folder, or its name in --runs, of an earlier pretraining on --dataset, whose predictions are "
            "learned along with the labels; a network of the same kind then becomes better than its teacher."
        ),
    ] = None,
    backbone: options.Backbone = "conv4",
    recipe: Annotated[
        Optional[str],
        typer.Option(
            help="For a benchmark. cpu: 16 epochs in batches of 64; gpu: 90 or more in batches of 512. Default: gpu on "
            "a GPU, from 10,000 images on."
        ),
    ] = None,
    image_size: Annotated[
        Optional[int],
        typer.Option(min=16, max=1024, help="Side of the crops from --places or --images; 84 pixels if not given."),
    ] = None,
    max_pixels: MaxPixels = None,
    seed: options.Seed = 0,
    name: options.Name = None,
    runs: options.RunsFolder = Path("runs"),
    resume: options.Resume = False,
    data_root: options.DataRoot = None,
    max_steps: options.MaxSteps = None,
    workers: Annotated[
        int, typer.Option(min=0, help="Processes that decode a folder's images.", rich_help_panel=options.ENGINE)
    ] = 2,
    **more: Any,
) -> None:
    """Pretrain a backbone as a classifier."""
    if resume:
        options.refuse_with_resume(context)
    elif sum(value is not None for value in (dataset, places, images)) != 1:
        raise UsageError("Name what to pretrain on with just one of --dataset, --places and --images.")
    elif dataset is None and recipe is not None:
        raise UsageError("--recipe is for --dataset: --places and --images have the published one.")
    asked, values = split(options.Engine, more)
    engine = asked.for_training()

    from fslstm_plugin.runs.folder import Run, new_run_folder
    from fslstm_plugin.training.configuration import pretrain_config, recipe_for
    from fslstm_plugin.training.pretraining import pretrain

    if resume:
        run = Run.to_resume(runs, name, "pretrain")
    else:
        config = pretrain_config(
            backbone,
            dataset=dataset,
            places=places,
            folder=images,
            teacher=options.find_pretrained(teacher, runs),
            image_size=image_size,
            max_steps=max_steps,
            seed=seed,
            precision=asked.precision,
            accelerator=asked.accelerator,
            recipe=recipe or (recipe_for(dataset, asked.accelerator, data_root) if dataset else "cpu"),
            given=only_given(values),
        )
        run = Run(new_run_folder(runs, name, f"pretrain-{dataset or 'images'}-{backbone}"), config)
    if run.config.dataset is not None:
        useful = {*context.params} - {"max_pixels", "workers"}
        options.refuse_beside(context, "A data set", useful, "its images are decoded already")
    pretrain(run, engine, data_root=data_root, workers=workers, resume=resume, console=terminal.for_sentences())
    options.announce(f"The backbone is in {run.weights}.")

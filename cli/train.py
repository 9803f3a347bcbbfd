"""``fslstm train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from fslstm_plugin.errors import UsageError
from fslstm_plugin.recipes import Augmentation, MetaRecipe
from fslstm_plugin.registry import DATASETS
from fslstm_plugin.runs.configuration import Validation
from fslstm_plugin.stopping import stoppable
from fslstm_plugin.storage.plain import from_plain

from . import options, terminal
from .signatures import only_given, split, with_fields, with_recipe

EXAMPLES = """
fslstm train --dataset mini --backbone resnet12
fslstm train --dataset cifar-fs --backbone conv4 --pretrained runs/pretrain-cifar-fs-conv4 --max-steps 2000
fslstm train --dataset glyphs --algorithm "rr(ridge=10)+iam(dropout=0.3)" --epochs 1 --steps-per-epoch 100
fslstm train --resume --name train-mini-resnet12-lssvm+iam
torchrun --nproc-per-node 4 -m fslstm_cli train --dataset mini --devices 4 --strategy ddp
"""


@stoppable()
@with_fields(options.Engine, options.ENGINE)
@with_recipe("Recipe (defaults: the paper's for this data set and backbone)", MetaRecipe, Augmentation)
@with_recipe("Validation (chooses the best weights)", Validation, prefix="val_")
def train(
    context: typer.Context,
    dataset: Annotated[
        Optional[str], typer.Option(help="mini, cifar-fs, glyphs, or a registered one.", autocompletion=DATASETS.names)
    ] = None,
    backbone: options.Backbone = "conv4",
    algorithm: Annotated[
        str,
        typer.Option(
            help="A head (nn, rr, svm, lssvm, or a registered one), perhaps with +iam, or another method with weights."
        ),
    ] = "lssvm+iam",
    pretrained: Annotated[
        Optional[Path],
        typer.Option(
            help="Run folder, its name in --runs, builtin:NAME, or weights file that the backbone starts from."
        ),
    ] = None,
    seed: options.Seed = 0,
    name: options.Name = None,
    runs: options.RunsFolder = Path("runs"),
    resume: options.Resume = False,
    data_root: options.DataRoot = None,
    max_steps: options.MaxSteps = None,
    test_shots: Annotated[
        int,
        typer.Option(
            min=1,
            help="Shots of the later tests; on mini the paper trains with 5 shots for 1-shot tests, 15 for 5-shot.",
            rich_help_panel="Episodes",
        ),
    ] = 5,
    **more: Any,
) -> None:
    """Meta-train a backbone with a head, optionally with the Inverse Attention Module, or with another method."""
    if resume:
        options.refuse_with_resume(context)
    elif dataset is None:
        raise UsageError(
            "Name the data set with --dataset. 'fslstm train --dataset glyphs' needs no download; cifar-fs needs an "
            f"archive; mini needs files that are hard to get. Known: {', '.join(DATASETS.names())}; 'fslstm data list' "
            "shows which are prepared."
        )
    asked, given = split(options.Engine, only_given(more))
    engine = asked.for_training()

    from fslstm_plugin.runs.folder import Run, new_run_folder
    from fslstm_plugin.training.configuration import train_config
    from fslstm_plugin.training.meta_training import train

    if resume:
        run = Run.to_resume(runs, name, "train")
    else:
        validation = {name: given.pop(f"val_{name}") for name in Validation.__struct_fields__ if f"val_{name}" in given}
        config = train_config(
            dataset or "",
            backbone,
            algorithm,
            pretrained=options.find_pretrained(pretrained, runs),
            max_steps=max_steps,
            seed=seed,
            precision=asked.precision,
            accelerator=asked.accelerator,
            validation=from_plain(Validation, validation, prefix="val_"),
            test_shots=test_shots,
            given=given,
        )
        run = Run(new_run_folder(runs, name, f"train-{dataset}-{backbone}-{config.algorithm}"), config)
    train(run, engine, data_root=data_root, resume=resume, console=terminal.for_sentences())
    options.announce(f"The best model is in {run.weights}.")

"""``fslstm bench-accuracy``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fslstm_plugin.recipes import Augmentation, PretrainRecipe
from fslstm_plugin.registry import DATASETS
from fslstm_plugin.stopping import stoppable

from . import options, terminal
from .results import attempt, write_json
from .signatures import only_given, with_recipe

EXAMPLES = """
fslstm bench-accuracy --backbone conv4
fslstm bench-accuracy --mark 70 --epochs 20 --label-smoothing 0
"""


@with_recipe("Recipe (defaults: those of fslstm pretrain)", PretrainRecipe, Augmentation)
@stoppable()
def bench_accuracy(
    backbone: options.Backbone = "conv4",
    dataset: Annotated[str, typer.Option(help="The data set.", autocompletion=DATASETS.names)] = ("cifar-fs"),
    mark: Annotated[
        float, typer.Option(min=0, max=100, help="5-shot validation accuracy to reach, in percent.")
    ] = 68.0,
    max_steps: options.MaxSteps = None,
    data_root: options.DataRoot = None,
    seed: options.Seed = 0,
    json: options.Json = None,
    **recipe: Any,
) -> None:
    """Measure how long a pretraining takes until LSSVM reaches an accuracy on validation classes, on the CPU."""
    from fslstm_plugin.benchmarks import accuracy
    from fslstm_plugin.training.configuration import pretrain_config

    given = only_given(recipe)
    config = pretrain_config(backbone, dataset=dataset, max_steps=max_steps, seed=seed, accelerator="cpu", given=given)
    curve = accuracy.bench_accuracy(config, mark, data_root, terminal.say)
    terminal.for_tables().print(curve.table())
    attempt((json, lambda file: write_json(file, curve.as_dict(config))))

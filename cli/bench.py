"""``fslstm bench`` and ``fslstm bench-accuracy``."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from fslstm_plugin.checks import one_of, require
from fslstm_plugin.errors import UsageError, count_of
from fslstm_plugin.recipes import Augmentation, PretrainRecipe
from fslstm_plugin.registry import BACKBONES, DATASETS
from fslstm_plugin.stopping import stoppable

from . import evaluation, options
from .results import attempt, write_json
from .signatures import only_given, with_recipe
from .terminal import for_tables, say

if TYPE_CHECKING:
    import torch
    from torch import nn

    from fslstm_plugin.runs.folder import Run

BENCH_EXAMPLES = """
fslstm bench heads
fslstm bench transduction
fslstm bench sets
fslstm bench heads --run train-cifar-fs-conv4-lssvm+iam --table3-episodes 10000
fslstm bench train --backbone resnet12 --rounds 3
fslstm bench --json bench.json
"""

ACCURACY_EXAMPLES = """
fslstm bench-accuracy --backbone conv4
fslstm bench-accuracy --mark 70 --epochs 20 --label-smoothing 0
"""

GROUPS = ("heads", "transduction", "sets", "eval", "train")
_OF = {  # The benchmarks of options that not all have.
    "shots": ("heads", "transduction"),
    "features": ("heads", "transduction", "sets"),
    "table3_episodes": ("heads",),
    "episodes": ("eval",),
    "backbone": ("eval", "train"),
    "run": ("heads", "transduction", "eval"),
}


def bench(
    context: typer.Context,
    what: Annotated[
        str,
        typer.Argument(
            metavar="[BENCHMARK]",
            help="heads, transduction, sets, eval, train or all; eval and train read CIFAR-FS, the others no data.",
            autocompletion=lambda: [*GROUPS, "all"],
        ),
    ] = "all",
    rounds: Annotated[int, typer.Option(min=2, help="How often each side is timed; the sides alternate.")] = 5,
    shots: Annotated[int, typer.Option(min=1, help="heads and transduction: support images per class.")] = 5,
    features: Annotated[
        Optional[int],
        typer.Option(
            min=2,  # One, normalised, is 1 or -1: ties, which each side breaks in its own way.
            max=1_000_000,
            help="Length of the generated feature vectors; 2560 for heads, 640 for transduction and sets if not given.",
        ),
    ] = None,
    table3_episodes: Annotated[
        int, typer.Option(min=0, help="heads: episodes of the paper's Table 3, scaled to 10,000; 0 leaves it out.")
    ] = 500,
    episodes: Annotated[int, typer.Option(min=2, help="eval: episodes of our evaluation.")] = 10_000,
    backbone: Annotated[
        str,
        typer.Option(
            help="eval and train: the backbone, with random weights; for eval that of --run, if given.",
            autocompletion=BACKBONES.names,
        ),
    ] = "conv4",
    run: Annotated[
        Optional[list[str]],
        evaluation.one_run(
            "Run folder, or its name in --runs: heads and transduction use its test features, eval its backbone."
        ),
    ] = None,
    runs: options.RunsFolder = Path("runs"),
    data_root: options.DataRoot = None,
    seed: options.Seed = 0,
    json: options.Json = None,
) -> None:
    """Time heads, transductive methods, prediction sets, evaluation and training against the existing alternatives.

    Both sides run alternately in this process on the same data, and their predictions are compared: if one differs and
    is not a tie, the command fails. Prediction sets have no alternative. Runs on the CPU. The column Target says what
    we aim at; missing it is no failure.
    """
    groups = GROUPS if what == "all" else (one_of("benchmark", what, (*GROUPS, "all")),)
    useless = {name for name, of in _OF.items() if not set(of) & set(groups)}
    options.refuse_beside(context, f"bench {what}", {*context.params} - useless, "the option is for another benchmark")
    if run and "train" not in groups:
        options.refuse_beside(context, "--run", {*context.params} - {"backbone"}, "the run has a backbone of its own")

    from fslstm_plugin.benchmarks.report import Result, as_plain, tables
    from fslstm_plugin.data.root import data_root as resolve_root
    from fslstm_plugin.runs.folder import Run

    root = resolve_root(data_root)
    chosen = Run.find(run[0], runs) if run else None
    _require(groups, chosen, features, root)

    import pytorch_lightning as pl

    results: list[Result] = []
    for group in groups:
        pl.seed_everything(seed, verbose=False)
        dim = features or (2560 if group == "heads" else 640)
        if group == "heads":
            from fslstm_plugin.benchmarks.heads import bench_heads, bench_table3

            vectors, labels = _features(chosen, dim, shots, seed, data_root)
            if table3_episodes:
                say(f"heads: Table 3, {count_of(table3_episodes, 'episode')}")
                results += bench_table3(vectors, labels, table3_episodes, seed)
            results += bench_heads(vectors, labels, shots, rounds, seed, say)
        elif group == "transduction":
            from fslstm_plugin.benchmarks.transduction import bench_transduction

            vectors, labels = _features(chosen, dim, shots, seed, data_root)
            results += bench_transduction(vectors, labels, shots, rounds, seed, say)
        elif group == "sets":
            from fslstm_plugin.benchmarks.sets import bench_sets

            results += bench_sets(dim, rounds, seed, say)
        elif group == "eval":
            from fslstm_plugin.benchmarks.evaluation import bench_evaluation

            results += bench_evaluation(_backbone(chosen, backbone), root, episodes, rounds, seed, say)
        else:
            from fslstm_plugin.benchmarks.training import bench_training

            results += bench_training(backbone, root, rounds, seed, say)

    for table in tables(results):
        for_tables().print(table)
    attempt((json, lambda file: write_json(file, as_plain(results))))


def _require(groups: Collection[str], run: Run | None, features: int | None, root: Path) -> None:
    """Refuse what a benchmark cannot be measured with, before minutes of measuring."""
    from fslstm_plugin.benchmarks.references import require_references
    from fslstm_plugin.benchmarks.stock import require_cifarfs

    if {"heads", "eval", "train"} & {*groups}:
        require_references()
    if {"eval", "train"} & {*groups}:
        require_cifarfs(root)
    if features is not None and run is not None and "sets" not in groups:
        raise UsageError("--features is for generated features: leave out --features or --run.")
    if "eval" in groups and run is not None and run.config.image_size != 32:
        raise UsageError(f"bench eval needs a run for images of 32 pixels, but {run.name} is for others.")


def _features(
    run: Run | None, dim: int, shots: int, seed: int, data_root: Path | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Features and labels: of the run's test split, or generated; with images enough of each class for the shots."""
    from fslstm_plugin.benchmarks.heads import QUERIES

    if run is None:
        from fslstm_plugin.benchmarks.clusters import clusters

        vectors, labels = clusters(dim, seed)
    else:
        session = evaluation.Evaluation(device="cpu", data_root=data_root).session(run)
        vectors, labels = session.features, session.split.labels
    require("shots", shots, least=1, whole=True, most=int(labels.bincount().min()) - QUERIES)
    return vectors, labels


def _backbone(run: Run | None, name: str) -> nn.Module:
    """The run's backbone, or one with random weights."""
    if run is None:
        from fslstm_plugin.backbones.base import build_backbone

        return build_backbone(name, 32).eval()

    from fslstm_plugin.model import FewShotModel

    return FewShotModel.from_run(run).backbone


@with_recipe("Recipe (defaults: those of fslstm pretrain)", PretrainRecipe, Augmentation)
@stoppable()
def bench_accuracy(
    backbone: options.Backbone = "conv4",
    dataset: Annotated[str, typer.Option(help="The data set.", autocompletion=DATASETS.names)] = "cifar-fs",
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
    curve = accuracy.bench_accuracy(config, mark, data_root, say)
    for_tables().print(curve.table())
    attempt((json, lambda file: write_json(file, curve.as_dict(config))))

"""CIFAR-FS from the prepared data set to accuracies, against learn2learn's stock path."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn

from ..backbones.base import normalization_of
from ..data.root import load_split
from ..data.sampler import EpisodeSampler
from ..evaluation.features import cached_features, extract_features
from ..registry import HEADS
from . import references
from .agreement import compare, require_same_accuracies
from .ceiling import Work, flops_of, shares
from .ours import accuracies, accuracies_of, method, predictions
from .references import Reference
from .report import Comparison, Figure
from .stock import StockTasks, plain_transform, require_same_images
from .timing import Contender, clocked, race

WAYS, SHOTS, QUERIES = 5, 5, 15
STOCK_TASKS = 8
TASKS = 10_000
TARGET = 80

_ALTERNATIVES: tuple[tuple[str, str, Reference], ...] = (
    ("lssvm", "learn2learn's stock path, the paper's system", references.paper_lssvm),
    ("svm", "learn2learn's stock path, SVClassifier (qpth)", references.learn2learn_svm),
)


def bench_evaluation(
    backbone: nn.Module, root: Path, episodes: int, rounds: int, seed: int, report: Callable[[str], None]
) -> tuple[list[Comparison], list[Figure]]:
    """The whole evaluation of 5-way 5-shot episodes, of an episode of it, and of what it consists.

    Args:
        backbone: For images of 32 pixels, in evaluation mode.
        root: The data root; CIFAR-FS is there.
        episodes: Episodes of our evaluation; the stock path runs a few and is scaled.
        rounds: How often each is timed.
        seed: What the episodes follow from.
        report: Called with what comes next.

    Raises:
        Disagreement: If the two paths differ in an image or in a prediction.
    """
    split = load_split("cifar-fs", "test", root)
    normalization = normalization_of(backbone)
    stock = StockTasks.open(root, "test", plain_transform(normalization), WAYS, SHOTS, QUERIES)
    report("eval: the same images and predictions on both paths")
    features = extract_features(backbone, split)
    comparisons = []
    for name, against, reference in _ALTERNATIVES:
        head = HEADS.get(name)()
        tasks = [stock.draw() for _ in range(STOCK_TASKS)]
        for images, _, indices in tasks:
            require_same_images(images, indices, split, normalization)
        exact = references.exact(reference)
        with torch.no_grad():
            logits = torch.stack([stock.logits(backbone, exact, images, labels)[0] for images, labels, _ in tasks])
        drawn = stock.episodes([indices[stock.ordered(labels)] for _, labels, indices in tasks])
        predicted = predictions(features, drawn, head)
        case = f"eval, {name} against {against}"
        agreement = compare(case, predicted, logits[None])
        timed = accuracies(features, drawn, [method(name, head)], STOCK_TASKS)[0]
        require_same_accuracies(case, timed, accuracies_of(predicted[0], drawn), logits[None])
        report(f"eval: {name}, {episodes:,} episodes against {STOCK_TASKS} of {against}")
        ours = partial(_from_images, backbone, root, name, episodes, seed)
        theirs = partial(_stock, stock, backbone, reference)
        theirs()
        our_times, their_times = race(
            [Contender(case, clocked(ours), episodes), Contender(against, clocked(theirs), STOCK_TASKS)], rounds
        )
        comparisons.append(
            Comparison("eval", f"{name}, nothing cached", against, "episode", our_times, their_times, agreement, TARGET)
        )
    report("eval: features cached, data set opened, start of a process")
    whole = comparisons[0].ours.median * episodes
    figures = _parts(backbone, root, episodes, whole, rounds, seed)
    report("eval: share of the machine's ceiling")
    return comparisons, figures + shares("eval", [_forward(backbone, root)], rounds)


def _from_images(backbone: nn.Module, root: Path, head: str, episodes: int, seed: int) -> Tensor:
    """What ``fslstm eval`` does with nothing cached."""
    split = load_split("cifar-fs", "test", root)
    sampler = EpisodeSampler(split.labels, WAYS, SHOTS, QUERIES, seed, split.class_names)
    return accuracies(extract_features(backbone, split), sampler, [method(head, HEADS.get(head)())], episodes)


def _from_cache(cache: Path, backbone: nn.Module, root: Path, episodes: int, seed: int) -> Tensor:
    """The same with the features kept beside the run."""
    split = load_split("cifar-fs", "test", root)
    sampler = EpisodeSampler(split.labels, WAYS, SHOTS, QUERIES, seed, split.class_names)
    features = cached_features(cache, backbone, split)
    return accuracies(features, sampler, [method("lssvm", HEADS.get("lssvm")())], episodes)


def _stock(stock: StockTasks, backbone: nn.Module, head: Reference) -> list[float]:
    """A few tasks of the stock path, to the accuracy of each."""
    found = []
    with torch.no_grad():
        for _ in range(STOCK_TASKS):
            logits, labels = stock.logits(backbone, head, *stock.sample())
            found.append((logits.argmax(-1) == labels).float().mean().item())
    return found


def _parts(backbone: nn.Module, root: Path, episodes: int, whole: float, rounds: int, seed: int) -> list[Figure]:
    """Seconds of the parts, and of the whole command with the start of a process."""
    with TemporaryDirectory() as folder:
        cached = partial(_from_cache, Path(folder), backbone, root, episodes, seed)
        opened = partial(load_split, "cifar-fs", "test", root)
        cached()
        warm, opening = race([Contender("cached", clocked(cached)), Contender("open", clocked(opened))], rounds)
    start = clocked(_start)()
    of_all = episodes == TASKS
    what = f"{episodes:,} episodes of CIFAR-FS, LSSVM"
    return [
        Figure("eval", "start of a process: imports", start, "s"),
        Figure("eval", "CIFAR-FS opened", opening.median, "s", at_most=1),
        Figure("eval", f"{what}, nothing cached, with the start", start + whole, "s", 20 if of_all else None),
        Figure("eval", f"{what}, features cached, with the start", start + warm.median, "s", 10 if of_all else None),
    ]


def _start() -> None:
    """A process that imports what ``fslstm eval`` does."""
    modules = "fslstm_cli.main, fslstm_plugin.evaluation.experiment, fslstm_plugin.evaluation.model, learn2learn.data"
    subprocess.run([sys.executable, "-c", f"import {modules}"], check=True, capture_output=True)


def _forward(backbone: nn.Module, root: Path) -> Work:
    """The forward pass of a few batches of images, from their pixels."""
    split = load_split("cifar-fs", "test", root)
    some = replace(split, images=split.images[:512], labels=split.labels[:512])
    images = torch.zeros(len(some.labels), 3, *some.images.shape[1:3])
    with torch.no_grad():
        flops = flops_of(lambda: backbone(images))
    return Work("forward pass of the backbone", clocked(partial(extract_features, backbone, some)), flops)

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
from ..data.base import Split
from ..data.root import load_split
from ..data.sampler import EpisodeSampler
from ..evaluation.features import FeatureStore, extract_features
from ..evaluation.runner import indexed
from ..naming import parse_method
from . import references
from .agreement import Agreement, DrawnEpisodes, accuracies, agreed
from .references import Reference
from .report import Comparison, Figure, Result
from .stock import StockTasks, plain_transform, require_same_images
from .timing import Contender, Work, clocked, flops_of, race, shares

WAYS, SHOTS, QUERIES = 5, 5, 15
STOCK_TASKS = 8
TASKS = 10_000
TARGET = 80

_ALTERNATIVES: tuple[tuple[str, str, Reference], ...] = (
    ("lssvm", "learn2learn's path, the paper's dense system", references.paper_lssvm),
    ("svm", "learn2learn's path, SVClassifier (qpth)", references.learn2learn_svm),
)


def bench_evaluation(
    backbone: nn.Module, root: Path, episodes: int, rounds: int, seed: int, report: Callable[[str], None]
) -> list[Result]:
    """The whole evaluation of 5-way 5-shot episodes, by the episode, and its parts.

    The backbone is for images of 32 pixels, in evaluation mode. The stock path runs a few episodes and is scaled.

    Raises:
        Disagreement: If the two paths differ in an image or in a prediction.
    """
    paths = _Paths(backbone, root, episodes, seed)
    report("eval: features of the images")
    features = extract_features(backbone, paths.split)
    comparisons = []
    for head, against, reference in _ALTERNATIVES:
        report(f"eval: {head}, {episodes:,} episodes against {STOCK_TASKS} of {against}")
        agreement = paths.agreement(features, head, against, reference)
        ours = partial(paths.ours, partial(extract_features, backbone), head)
        theirs = partial(paths.theirs, reference)
        theirs()
        contenders = [Contender(clocked(ours), episodes), Contender(clocked(theirs), STOCK_TASKS)]
        our_times, their_times = race(contenders, rounds)
        case = f"{head}, nothing cached"
        comparisons.append(Comparison("eval", case, against, "episode", our_times, their_times, agreement, TARGET))
    report("eval: features cached, data set opened, start of a process")
    whole = comparisons[0].ours.median * episodes
    figures = _parts(paths, whole, rounds)
    report("eval: share of the machine's ceiling")
    return [*comparisons, *figures, *shares("eval", [_forward(backbone, paths.split)], rounds)]


class _Paths:
    """The same evaluation on the two paths, with the data set open in both layouts; see `bench_evaluation`."""

    def __init__(self, backbone: nn.Module, root: Path, episodes: int, seed: int) -> None:
        self.backbone, self.root, self.episodes, self.seed = backbone, root, episodes, seed
        transform = plain_transform(normalization_of(backbone))
        self.split = load_split("cifar-fs", "test", root)
        self.stock = StockTasks(root, "test", transform, WAYS, SHOTS, QUERIES)

    def ours(self, features: Callable[[Split], Tensor], head: str) -> Tensor:
        """Accuracies from the prepared data set, by what makes features of it."""
        split = load_split("cifar-fs", "test", self.root)
        sampler = EpisodeSampler(split.labels, WAYS, SHOTS, QUERIES, self.seed, split.class_names)
        return accuracies(indexed(features(split)), sampler, [parse_method(head)], self.episodes)

    def theirs(self, reference: Reference) -> list[float]:
        """A few tasks of the stock path, to the accuracy of each."""
        found = []
        with torch.no_grad():
            for _ in range(STOCK_TASKS):
                logits, labels = self.stock.logits(self.backbone, reference, *self.stock.sample())
                found.append((logits.argmax(-1) == labels).float().mean().item())
        return found

    def agreement(self, features: Tensor, head: str, against: str, reference: Reference) -> Agreement:
        """Compare our predictions with those on tasks that the stock path drew, decoded and embedded."""
        tasks = [self.stock.draw() for _ in range(STOCK_TASKS)]
        for images, _, indices in tasks:
            require_same_images(images, indices, self.split, normalization_of(self.backbone))
        exact = references.exact(reference)
        with torch.no_grad():
            logits = [self.stock.logits(self.backbone, exact, images, labels)[0] for images, labels, _ in tasks]
        theirs = torch.stack(logits).unsqueeze(0)
        drawn = torch.stack([indices[self.stock.ordered(labels)] for _, labels, indices in tasks])
        episodes = DrawnEpisodes(drawn, WAYS, SHOTS, QUERIES)
        return agreed(f"eval, {head} against {against}", indexed(features), episodes, [parse_method(head)], theirs)


def _parts(paths: _Paths, whole: float, rounds: int) -> list[Figure]:
    """Seconds of the parts, and of the whole command with the start of a process."""
    with TemporaryDirectory() as folder:
        cached = partial(paths.ours, FeatureStore(paths.backbone, Path(folder)).features, "lssvm")
        opened = partial(load_split, "cifar-fs", "test", paths.root)
        cached()
        warm, opening = race([Contender(clocked(cached)), Contender(clocked(opened))], rounds)
    modules = "fslstm_cli.main, fslstm_plugin.evaluation.session"  # What ``fslstm eval`` imports.
    process = partial(subprocess.run, [sys.executable, "-c", f"import {modules}"], check=True, capture_output=True)
    start = clocked(process)()
    of_all = paths.episodes == TASKS
    what = f"{paths.episodes:,} episodes of CIFAR-FS, LSSVM"
    return [
        Figure("eval", "start of a process: imports", start, "s"),
        Figure("eval", "CIFAR-FS opened", opening.median, "s", at_most=1),
        Figure("eval", f"{what}, nothing cached, with the start", start + whole, "s", 20 if of_all else None),
        Figure("eval", f"{what}, features cached, with the start", start + warm.median, "s", 10 if of_all else None),
    ]


def _forward(backbone: nn.Module, split: Split) -> Work:
    """The forward pass of a few batches of images, from their pixels."""
    some = replace(split, images=split.images[:512], labels=split.labels[:512])
    images = torch.zeros(len(some.labels), 3, *some.images.shape[1:3])
    with torch.no_grad():
        flops = flops_of(lambda: backbone(images))
    return Work("forward pass of the backbone", clocked(partial(extract_features, backbone, some)), flops)

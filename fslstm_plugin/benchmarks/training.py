"""A step of meta-training under Lightning, against a plain float32 step on learn2learn's stock tasks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytorch_lightning as pl
import torch
from rich.console import Console
from torch import Tensor, nn
from torch.utils.benchmark import timer

from ..backbones.base import build_backbone, normalization_of
from ..data.root import load_split
from ..episodes import Episodes
from ..recipes import MetaRecipe
from ..runs.configuration import TrainConfig
from ..runs.folder import Run
from ..training.configuration import train_config
from ..training.engine import EngineOptions, TrainingProgress, fit
from ..training.episodic import EpisodicModule
from ..training.meta_training import episode_stream, episodic_module
from .agreement import Agreement, Disagreement, compare
from .references import exact, paper_lssvm
from .report import Comparison, Figure, Result
from .stock import StockTasks, augmenting_transform
from .timing import Contender, Work, clocked, flops_of, race, shares

STEPS = 2
TARGET = 1.7
_SLACK = 1e-3  # Of loss and gradient, relative: the backbone's single precision.


def bench_training(backbone: str, root: Path, rounds: int, seed: int, report: Callable[[str], None]) -> list[Result]:
    """A step of the paper's recipe on CIFAR-FS, LSSVM without IAM, on the CPU, with fresh weights.

    Raises:
        Disagreement: If predictions, loss or gradient of the two sides differ on the same images and weights.
    """
    pl.seed_everything(seed, verbose=False)
    config = train_config("cifar-fs", backbone, "lssvm", max_steps=STEPS + 1, seed=seed, accelerator="cpu")
    recipe = config.recipe
    ours = _OurSteps(config, root)
    transform = augmenting_transform(normalization_of(ours.module.model.backbone))
    stock = StockTasks(root, "train", transform, recipe.ways, recipe.shots, recipe.queries)
    theirs = _StockSteps(build_backbone(backbone, config.image_size), recipe, stock)
    report("train: the same predictions, loss and gradient on both sides")
    agreement = _agreement(ours.module, stock, recipe.episodes_per_step)
    report(f"train: {backbone}, our step against a plain one")
    ours()
    theirs()
    alone = clocked(ours.backbone_alone)
    alone()
    against = "a plain float32 step on learn2learn's stock tasks"
    contenders = [Contender(ours, STEPS), Contender(clocked(theirs), STEPS), Contender(alone)]
    step, their_step, core = race(contenders, rounds)
    case = f"{backbone}, step of {recipe.episodes_per_step} episodes"
    target = TARGET if backbone == "conv4" else None
    comparison = Comparison("train", case, against, "step", step, their_step, agreement, target)
    report("train: share of the machine's ceiling")
    work = Work("forward and backward of the backbone", alone, flops_of(ours.backbone_alone))
    what = "the backbone's own forward and backward, of our step"
    return [
        comparison,
        Figure("train", "episodes of ours", recipe.episodes_per_step / step.median, "1/s"),
        Figure("train", what, 100 * core.median / step.median, "%", at_least=92),
        *shares("train", [work], rounds),
    ]


class _OurSteps(pl.Callback):
    """A few steps as ``fslstm train`` makes them; the first of them, which sets everything up, is not timed."""

    batch: Episodes  # The last one.

    def __init__(self, config: TrainConfig, root: Path) -> None:
        self.config = config
        self.module = episodic_module(config, build_backbone(config.backbone, config.image_size))
        self.ends: list[float] = []  # When each step ended.
        split = load_split(config.dataset, "train", root)
        self.stream = episode_stream(config, split, self.module, config.recipe.steps_per_epoch)

    def __call__(self) -> float:
        """Seconds of `STEPS` steps under Lightning's Trainer."""
        self.ends.clear()
        with TemporaryDirectory() as folder:
            fit(
                self.module,
                self.stream,
                Run(Path(folder) / "run", self.config),
                max_steps=STEPS + 1,
                options=EngineOptions(accelerator="cpu", devices=1),
                progress=TrainingProgress("episodes", self.config.recipe.episodes_per_step, Console(quiet=True)),
                callbacks=[self],
            )
        return self.ends[-1] - self.ends[0]

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Episodes, index: int
    ) -> None:
        """From one call to the next is a whole step: data, step, logging, the other callbacks."""
        self.ends.append(timer())
        self.batch = batch

    def backbone_alone(self) -> None:
        """Forward and backward of the backbone on the last batch, in the same precision; nothing else."""
        backbone = self.module.model.backbone.train()
        backbone.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.config.precision == "bf16"):
            vectors = backbone(self.batch.samples.flatten(0, 1))
        vectors.backward(torch.ones_like(vectors))


class _StockSteps:
    """Steps as commonly written with learn2learn's tasks: decode, augment and learn one task after the other."""

    def __init__(self, backbone: nn.Module, recipe: MetaRecipe, stock: StockTasks) -> None:
        self.backbone, self.recipe, self.stock = backbone.train(), recipe, stock
        self.scale = nn.Parameter(torch.ones(()))
        groups: list[dict[str, Any]] = [
            {"params": backbone.parameters()},
            {"params": [self.scale], "lr": recipe.scale_lr},
        ]
        self.optimizer = torch.optim.SGD(
            groups, lr=recipe.lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay, nesterov=True
        )
        self.loss = nn.CrossEntropyLoss(label_smoothing=recipe.label_smoothing)

    def __call__(self) -> None:
        """Make `STEPS` steps."""
        for _ in range(STEPS):
            self.optimizer.zero_grad()
            for _ in range(self.recipe.episodes_per_step):
                logits, labels = self.stock.logits(self.backbone, paper_lssvm, *self.stock.sample())
                (self.loss(self.scale * logits, labels) / self.recipe.episodes_per_step).backward()
            self.optimizer.step()


def _agreement(module: EpisodicModule, stock: StockTasks, episodes: int) -> Agreement:
    """Compare predictions, loss and gradient of one step on the same tasks and weights.

    In evaluation mode: in training ours takes batch statistics and dropout over all episodes together.
    """
    backbone = module.eval().model.backbone
    tasks = [stock.sample() for _ in range(episodes)]
    logits, labels = (
        torch.stack(parts)
        for parts in zip(*(stock.logits(backbone, exact(paper_lssvm), *task) for task in tasks), strict=True)
    )
    their_loss = module.criterion(logits.flatten(0, 1), labels.flatten())
    ordered = [(images[order], labels[order]) for images, labels in tasks for order in [stock.ordered(labels)]]
    batch = Episodes(
        torch.stack([images for images, _ in ordered]),
        torch.stack([labels for _, labels in ordered]),
        stock.ways * stock.shots,
        stock.ways,
    )
    our_logits = module(batch)
    our_loss, _ = module.learn(batch)
    agreement = compare("train", our_logits.argmax(-1)[None], logits.detach()[None])
    our_gradient, their_gradient = (_gradient(loss, backbone) for loss in (our_loss, their_loss))
    for what, mine, other in (("loss", our_loss, their_loss), ("gradient", our_gradient, their_gradient)):
        if (mine - other).norm() > _SLACK * other.norm():
            raise Disagreement(
                f"train: our {what} differs from the plain step's by more than {100 * _SLACK:.1f} % on the same tasks; "
                "the times mean nothing."
            )
    return agreement


def _gradient(loss: Tensor, backbone: nn.Module) -> Tensor:
    return torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(backbone.parameters()))])

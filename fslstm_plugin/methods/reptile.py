"""Reptile with batch norm over the query batch (Nichol et al. 2018): a start from which a few steps lead far."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import isqrt
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from msgspec.structs import replace
from torch import Tensor, nn
from torch.func import functional_call

from ..backbones.episode_statistics import episode_statistics
from ..checks import one_of, require
from ..errors import UsageError
from ..features import EpisodeFeatures
from ..recipes import Augmentation, MetaRecipe
from .base import Criterion, Method

_SECOND, _EPSILON = 0.999, 1e-8  # Adam's; its first moment is not averaged (beta1 = 0).
_CHANNELS = 3
_FROM_SCRATCH = 0.1  # Rate of the paper's backbones that begin from fresh weights.

Weights = dict[str, Tensor]


class Reptile(Method):
    """The whole network is trained anew on each episode's support, from a start made for that.

    A step of the training adapts the network to each task of the batch by a few steps on all its images, and moves
    the start towards the mean of where they lead, by the learning rate times the distance: rate 1 is the mean itself.
    So the gradient that `loss` gives is start minus mean, and optimiser and schedule are the recipe's. Adam's second
    moments and step count run on through all tasks and are part of the model; testing begins from them and leaves them.

    Batch normalisation always uses the statistics of the images at hand, and dropout is off. Running statistics are
    not kept up, so that other methods on a model trained so need ``+bn``.

    Use it where a whole network can be trained on each test episode, some 50 steps. It is no rival where the backbone
    is good already, or time is short.

    Args:
        backbone: The backbone; its length of features is asked for.
        ways: Classes that the network tells apart; episodes may have fewer. Default 5.
        steps: Steps on a task in training. Default 8.
        batch: Images in each of them. Default 10.
        test_steps: Steps on the support in testing. Default 50.
        test_batch: Images in each of them, at most the support. Default 15.
        rate: Learning rate of these steps; their loss is the sum over the images. Default 1e-3.
        optimizer: ``"adam"`` (default) without a first moment, or ``"sgd"``.
        queries: ``"together"`` (default): all queries of an episode in one batch, the published "transductive"; the
            published batch has one query per class. ``"alone"``: each one in a batch with the support.

    Raises:
        UsageError: If the backbone does not say ``out_features``, or an argument is out of its range.

    Example:
        >>> from fslstm_plugin.model import FewShotModel
        >>> model = FewShotModel.from_backbone("conv4", "reptile(test_steps=1)", image_size=16).eval()
        >>> images = model.embed(torch.rand(9, 3, 16, 16))
        >>> model.logits(EpisodeFeatures(images[:5], images[5:], torch.arange(5))).shape
        torch.Size([4, 5])

    Source: Nichol, Achiam, Schulman, "On First-Order Meta-Learning Algorithms", 2018. Ours are the backbone, its
    normalisation of pixels, and the batch of all queries.
    """

    episode_statistics = True
    follows_autocast = True
    search_space: ClassVar = {"test_steps": (10, 50), "rate": (3e-4, 1e-3, 3e-3)}

    sizes = ("backbone",)
    uses_criterion = False

    def __init__(
        self,
        backbone: nn.Module,
        ways: int = 5,
        steps: int = 8,
        batch: int = 10,
        test_steps: int = 50,
        test_batch: int = 15,
        rate: float = 1e-3,
        optimizer: Literal["adam", "sgd"] = "adam",
        queries: Literal["together", "alone"] = "together",
    ) -> None:
        super().__init__()
        self.ways = require("ways", ways, least=2, whole=True)
        self.steps = require("steps", steps, least=1, whole=True)
        self.batch = require("batch", batch, least=1, whole=True)
        self.test_steps = require("test_steps", test_steps, least=0, whole=True)
        self.test_batch = require("test_batch", test_batch, least=1, whole=True)
        self.rate = require("rate", rate, above=0)
        self.optimizer = one_of("optimizer of reptile", optimizer, ("adam", "sgd"))
        self.queries = one_of("way to treat queries", queries, ("together", "alone"))
        if getattr(backbone, "out_features", None) is None:
            raise UsageError(f"reptile needs the length of the features: give {type(backbone).__name__} out_features.")
        self.classifier = nn.Linear(backbone.out_features, ways)  # type: ignore[arg-type]
        nn.init.xavier_uniform_(self.classifier.weight)
        nn.init.zeros_(self.classifier.bias)
        self._network = (nn.Sequential(backbone, self.classifier),)  # in a tuple: the backbone is the model's
        size = sum(each.numel() for each in self._network[0].parameters())
        self.second_moment: Tensor
        self.steps_taken: Tensor
        self.register_buffer("second_moment", torch.zeros(size))
        self.register_buffer("steps_taken", torch.zeros((), dtype=torch.int64))

    @property
    def is_transductive(self) -> bool:  # type: ignore[override]
        """See `Method`: queries in one batch share its statistics."""
        return self.queries == "together"

    def why_not_shape(self, ways: int, num_support: int, num_query: int) -> str | None:
        """See `Method.why_not_shape`; fewer classes than it tells apart are no harm."""
        if ways > self.ways:
            return (
                f"reptile was built to tell {self.ways} classes apart, but the episodes have {ways}: train "
                f"reptile(ways={ways})."
            )
        return None

    def recipe(self, recipe: MetaRecipe, *, pretrained: bool, test_shots: int) -> MetaRecipe:
        """Published: 100,000 steps of 5 tasks with 15 images per class, whose split in two means nothing here.

        From pretrained weights the backbone moves slower by as much as in the recipe that is given (ours): Adam moves
        each weight by some 1e-3 per step whatever its use, so that at rate 1 a thousand tasks wash out what it knew.
        """
        return replace(
            recipe,
            augmentation=Augmentation(padding=0, jitter=0.0, flip=0.0),
            optimizer="sgd",
            lr=recipe.lr / _FROM_SCRATCH if pretrained else 1.0,
            method_lr=1.0,
            schedule="linear",
            momentum=0.0,
            weight_decay=0.0,
            clip_norm=0.0,
            label_smoothing=0.0,
            epochs=100,
            steps_per_epoch=1000,
            episodes_per_step=5,
            ways=self.ways,
            shots=5,
            queries=10,
        )

    def embed(self, backbone: nn.Module, images: Tensor) -> Tensor:
        """The images themselves, flattened."""
        return images.flatten(1)

    def loss(self, features: EpisodeFeatures, query_labels: Tensor, criterion: Criterion) -> tuple[Tensor, Tensor]:
        """What has the gradient start minus mean of the adapted networks.

        Its value is the criterion's, of the logits that each query got before the step that trained on it last; a query
        that no minibatch held has zeros.
        """
        self.require_shape(features)
        network = self._network[0]
        labels = torch.cat([features.labels, query_labels], -1)
        start = dict(network.named_parameters())
        total = {name: torch.zeros_like(weight) for name, weight in start.items()}
        logits = []
        for images, classes in zip(self._images(features.points), labels, strict=True):
            schedule = minibatches(len(classes), self.batch, self.steps)
            weights, seen = self._adapted(self.second_moment, images, classes, schedule)
            self.steps_taken += len(schedule)
            logits.append(seen[features.num_support :, : features.ways])
            for name, weight in weights.items():
                total[name] += weight
        answers = torch.stack(logits)
        moves = [(weight * (weight.detach() - total[name] / len(labels))).sum() for name, weight in start.items()]
        surrogate = torch.stack(moves).sum()
        return criterion(answers, query_labels).detach() + (surrogate - surrogate.detach()), answers

    def logits(self, features: EpisodeFeatures) -> Tensor:
        """See `Method.logits`; parameters and moments are left as they are."""
        self.require_shape(features)
        n = features.num_support
        # One order for all episodes, in which the results do not depend on what was computed before.
        order = torch.Generator("cpu").manual_seed(0)
        schedule = minibatches(n, min(self.test_batch, n), self.test_steps, order)
        *batch, total, size = features.points.shape
        images = self._images(features.points.reshape(-1, total, size))
        labels = features.labels.reshape(-1, n)
        # Lightning validates in inference mode, whose tensors have no gradients: the copies made here have.
        with torch.inference_mode(False), torch.no_grad():
            episodes = [self._answer(*each, schedule) for each in zip(images, labels, strict=True)]
        answers = torch.stack(episodes)[..., : features.ways]
        return answers.view(*batch, *answers.shape[1:])

    def _answer(self, images: Tensor, labels: Tensor, schedule: Tensor) -> Tensor:
        """Logits ``(m, ways)`` of the queries of one episode."""
        images, labels = images.clone(), labels.clone()
        support, query = images[: len(labels)], images[len(labels) :]
        weights, _ = self._adapted(self.second_moment.clone(), support, labels, schedule)
        with self._batch_mode() as network:
            if self.queries == "together":
                return functional_call(network, weights, (query,)).to(images)
            alone = (torch.cat([support, each.unsqueeze(0)]) for each in query)
            return torch.stack([functional_call(network, weights, (batch,))[-1] for batch in alone]).to(images)

    def _adapted(self, moment: Tensor, images: Tensor, labels: Tensor, schedule: Tensor) -> tuple[Weights, Tensor]:
        """The network's parameters after a step on each minibatch, and the last logits that images got on the way.

        One episode after the other: on a processor nearly twice as fast as several at once by `torch.func.vmap`, whose
        grouped convolutions cost more than they save.

        Args:
            moment: Adam's second moments; changed in place.
            images: ``(n, 3, H, W)``, which get logits ``(n, ways)``.
            labels: ``(n,)``.
            schedule: Images of each minibatch ``(steps, size)``.
        """
        moments, taken = self.moments(moment), int(self.steps_taken)
        seen = images.new_zeros(len(images), self.ways)
        with self._batch_mode() as network:
            weights = {
                name: weight.detach().to(images.dtype, copy=True).contiguous(memory_format=_format(weight))
                for name, weight in network.named_parameters()
            }
            leaves = [weight.requires_grad_() for weight in weights.values()]
            for count, chosen in enumerate(schedule.to(images.device), taken + 1):
                with torch.enable_grad():
                    logits = functional_call(network, weights, (images[chosen],)).to(images)
                    loss = F.cross_entropy(logits, labels[chosen], reduction="sum")
                seen[chosen] = logits.detach()
                slopes = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
                self._step(leaves, list(moments.values()), slopes, count)
                torch.clear_autocast_cache()  # It holds the weights in bfloat16 as they were before the step.
        return {name: weight.detach() for name, weight in weights.items()}, seen

    @torch.no_grad()
    def _step(self, weights: list[Tensor], moments: list[Tensor], slopes: tuple[Tensor, ...], count: int) -> None:
        """A step of the inner optimiser; ``count`` is its number, from 1."""
        if self.optimizer == "sgd":
            torch._foreach_add_(weights, slopes, alpha=-self.rate)
            return
        rate = self.rate * (1 - _SECOND**count) ** 0.5
        for weight, moment, slope in zip(weights, moments, slopes, strict=True):
            moment.mul_(_SECOND).addcmul_(slope, slope, value=1 - _SECOND)
            weight.addcdiv_(slope, moment.sqrt().add_(_EPSILON), value=-rate)

    def moments(self, flat: Tensor | None = None) -> Weights:
        """Adam's second moment of each parameter, as a part of the vector ``second_moment`` or of another like it."""
        named = dict(self._network[0].named_parameters())
        parts = (self.second_moment if flat is None else flat).split([weight.numel() for weight in named.values()])
        return {name: _shaped(part, weight) for (name, weight), part in zip(named.items(), parts, strict=True)}

    @contextmanager
    def _batch_mode(self) -> Iterator[nn.Module]:
        """The network without dropout, its batch normalisation by the batch at hand."""
        network = self._network[0]
        training = [module for module in network.modules() if module.training]
        network.eval()
        try:
            with episode_statistics(network):
                yield network
        finally:
            for module in training:
                module.training = True

    def _images(self, points: Tensor) -> Tensor:
        """The images ``(..., 3, H, W)``."""
        side = isqrt(points.shape[-1] // _CHANNELS)
        if _CHANNELS * side * side != points.shape[-1]:
            raise UsageError(
                f"reptile needs square images of {_CHANNELS} channels, but got {points.shape[-1]} numbers."
            )
        return points.unflatten(-1, (_CHANNELS, side, side))


def minibatches(images: int, size: int, steps: int, generator: torch.Generator | None = None) -> Tensor:
    """Which of the images make each minibatch, int64 ``(steps, size)``: shuffled, then dealt, again and again.

    The order comes from the generator; PyTorch's own if None.

    Example:
        >>> minibatches(5, 2, 5).flatten().bincount()
        tensor([2, 2, 2, 2, 2])
    """
    rounds = -(-steps * size // images)
    orders = [torch.randperm(images, generator=generator, device="cpu") for _ in range(rounds)]
    return torch.cat([torch.empty(0, dtype=torch.int64, device="cpu"), *orders])[: steps * size].view(steps, size)


def _format(weight: Tensor) -> torch.memory_format:
    """The layout in which convolutions are fastest."""
    return torch.channels_last if weight.ndim == 4 else torch.contiguous_format


def _shaped(part: Tensor, weight: Tensor) -> Tensor:
    """A part of a vector in the shape and layout of a weight."""
    if weight.ndim != 4:
        return part.view(weight.shape)
    out, channels, height, width = weight.shape
    return part.view(out, height, width, channels).permute(0, 3, 1, 2)

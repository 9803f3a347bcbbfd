"""Passes that a GPU records: what may be recorded, and that recording leaves no trace."""

from __future__ import annotations

import sys
import weakref
from collections import Counter

import pytest
import torch
from pretended import PretendedGPU
from torch import nn

from fslstm_plugin.backbones.base import build_backbone
from fslstm_plugin.episodes import Episodes
from fslstm_plugin.heads import LSSVMClassifier
from fslstm_plugin.methods.kernel import KernelMethod
from fslstm_plugin.model import FewShotModel
from fslstm_plugin.naming import parse_method
from fslstm_plugin.recipes import Augmentation, MetaRecipe, base_class_pretraining
from fslstm_plugin.registry import ADAPTERS, HEADS
from fslstm_plugin.training import replay
from fslstm_plugin.training.classification import Classification
from fslstm_plugin.training.episodic import EpisodicModule
from fslstm_plugin.training.replay import Replayed

RECIPE = MetaRecipe(augmentation=Augmentation.published(32), lr=0.1, method_lr=0.1)
LABELS = torch.tensor([[0, 1, 2] * 3])
NAMES = [
    *HEADS.names(),
    *(f"lssvm(coding={coding})" for coding in ("one-vs-one", "ecoc")),
    *(f"rr(kernel={kernel})" for kernel in ("rbf", "polynomial", "cosine")),
    *("lssvm(ridge=loo)", "lssvm+psm"),
    *(f"lssvm+{name}" if ADAPTERS.get(name).sizes else f"lssvm({name})" for name in ADAPTERS.names()),
]


class Flat(nn.Module):
    """A backbone of a few numbers for each image."""

    out_features = 8

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3 * 16 * 16, 8)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layer(images.flatten(1))


def of(backbone: nn.Module, method: str) -> EpisodicModule:
    return EpisodicModule(FewShotModel.from_backbone(backbone, method), nn.CrossEntropyLoss(), RECIPE).train()


def images(seed: int = 0, count: int = 9) -> torch.Tensor:
    return torch.rand(2, count, 3, 16, 16, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def unknown(monkeypatch):
    """Tensors have no values that Python may read, as while a GPU records."""
    for name, module in list(sys.modules.items()):
        if name.startswith("fslstm_plugin") and hasattr(module, "values_known"):
            monkeypatch.setattr(module, "values_known", lambda: False)


@pytest.mark.parametrize("ways", [3, 8])
@pytest.mark.parametrize("name", [name for name in NAMES if parse_method(name, dim=8).is_static])
def test_what_says_that_it_is_static_waits_for_nothing(name, ways, unknown):
    with PretendedGPU():
        module = of(Flat(), name).to("cuda")
        labels = torch.arange(ways).repeat(2, 3).to("cuda")

        def step(seed: int) -> tuple[Counter[str], int]:
            batch = images(seed, 3 * ways).to("cuda")
            PretendedGPU.counts = counts = type(PretendedGPU.counts)()
            module.learn(Episodes(batch, labels, ways, ways))[0].backward()
            return +counts.waits, counts.copies

        step(0)  # constants
        assert step(1) == (Counter(), 0)


def test_the_papers_model_and_its_rivals_heads_are_static():
    for name in ("nn", "rr", "lssvm", "lssvm+iam", "lssvm(normalize)"):
        assert parse_method(name, dim=8).is_static, name
    for name in ("svm", "lssvm(ridge=loo)", "lssvm+psm", "tim"):
        assert not parse_method(name, dim=8).is_static, name
    assert not KernelMethod(LSSVMClassifier(coding=2 * torch.eye(3) - 1)).is_static


class Recorder:
    """In place of CUDA graphs: warms up as they do, then calls what was recorded, and keeps its last results."""

    def __init__(self, monkeypatch) -> None:
        self.recorded, self.autocast, self.state = 0, [], torch.zeros(1)
        monkeypatch.setattr(torch.cuda, "make_graphed_callables", self.record)
        monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: torch.get_rng_state())
        monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: torch.set_rng_state(state))

    def record(self, passes, tensors, allow_unused_input):
        self.recorded += 1
        self.autocast.append(torch.is_autocast_enabled("cuda"))
        for _ in range(4):
            found = passes(*tensors)
            loss = found.sum() if isinstance(found, torch.Tensor) else found[0]
            torch.autograd.grad(loss, [each for each in passes.parameters() if each.requires_grad])
        return passes


@pytest.mark.parametrize("kind", ["episodes", "classes"])
def test_recording_changes_neither_state_nor_randomness(kind, monkeypatch):
    recorder = Recorder(monkeypatch)
    torch.manual_seed(0)
    backbone = build_backbone("conv4", 16)
    if kind == "episodes":
        module = of(backbone, "lssvm+iam")
        arguments = (images(), LABELS.expand(2, -1), 3, 3)
        plain, replayed = module._learn, lambda *given: module._learn(*given)
    else:
        module = Classification(backbone, 4, base_class_pretraining(16), 10).train()
        arguments = (images().flatten(0, 1),)
        plain, replayed = module.forward, lambda *given: module._pass(*given)
    before = {name: value.clone() for name, value in module.state_dict().items()}

    def outcome(function):
        module.load_state_dict(before)
        torch.manual_seed(1)
        found = function(*arguments)
        loss = found[0] if kind == "episodes" else found.square().sum()
        module.zero_grad()
        loss.backward()
        gradients = [each.grad.clone() for each in module.parameters()]
        return [loss.detach(), *gradients, *(value.clone() for value in module.state_dict().values())]

    expected = outcome(plain)
    module.replay()
    for _ in range(2):
        for found, wanted in zip(outcome(replayed), expected, strict=True):
            torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    assert recorder.recorded == 1


def test_each_change_of_shape_or_of_trained_weights_is_recorded(monkeypatch):
    recorder = Recorder(monkeypatch)
    layer = nn.Linear(2, 2)
    replayed = Replayed(layer, lambda points, factor: factor * layer(points))
    for points, factor in ((torch.ones(3, 2), 1), (torch.zeros(3, 2), 1), (torch.ones(4, 2), 1), (torch.ones(4, 2), 2)):
        torch.testing.assert_close(replayed(points, factor), factor * layer(points))
    assert recorder.recorded == 3
    layer.bias.requires_grad_(False)
    replayed(torch.ones(3, 2), 1)
    assert recorder.recorded == 4


def test_what_was_recorded_is_let_go_before_another_is_recorded(monkeypatch):
    held: list[weakref.ref[nn.Module]] = []

    def record(module, function, tensors):
        assert not [each for each in held if each()]
        passes = nn.Identity()
        passes.forward = lambda *given: passes.train() and given[0]  # A cycle, as PyTorch 2.11 makes one.
        held.append(weakref.ref(passes))
        return passes

    monkeypatch.setattr(replay, "_record", record)
    replayed = Replayed(nn.Linear(1, 1), lambda tensor: tensor)
    for size in (1, 2, 3):
        replayed(torch.ones(size))
    assert len(held) == 3


def test_what_is_given_stays_when_the_next_batch_overwrites_what_was_recorded(monkeypatch):
    replayed = Replayed(nn.Linear(1, 1), lambda tensor: tensor)
    kept = torch.zeros(1)
    monkeypatch.setattr(replay, "_record", lambda *_: kept.copy_)
    found = replayed(torch.ones(1))
    replayed(torch.full((1,), 2.0))
    assert (found, kept) == (1, 2)


def test_the_forward_pass_is_recorded_with_autocast_and_the_backward_pass_without(monkeypatch):
    recorder, forward = Recorder(monkeypatch), []
    monkeypatch.setattr(torch.amp.autocast_mode.torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
    layer = nn.Linear(2, 2)

    def function(points: torch.Tensor) -> torch.Tensor:
        forward.append((torch.is_autocast_enabled("cuda"), torch.is_autocast_cache_enabled()))
        return layer(points)

    with torch.autocast("cuda", torch.float16):
        Replayed(layer, function)(torch.ones(3, 2))
    assert recorder.autocast == [False]
    assert set(forward) == {(True, False)}

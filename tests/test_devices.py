"""Everything that computes, on a GPU that is not there; and which device a process takes."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from pretended import PretendedGPU, value_of
from torch import nn

from fslstm_plugin.adapters import InverseAttentionModule
from fslstm_plugin.backbones import Conv4, ResNet12
from fslstm_plugin.backbones.folding import fold_batch_norm
from fslstm_plugin.data.images import Augmentation, make_images
from fslstm_plugin.data.sampler import EpisodeSampler
from fslstm_plugin.episodes import Episodes
from fslstm_plugin.errors import UsageError
from fslstm_plugin.evaluation import features
from fslstm_plugin.evaluation.features import extract_features
from fslstm_plugin.evaluation.ranks import Ranks
from fslstm_plugin.evaluation.runner import indexed, run_methods
from fslstm_plugin.features import EpisodeFeatures
from fslstm_plugin.gram import EpisodeGram
from fslstm_plugin.grammar import needs_dim, options
from fslstm_plugin.heads import LSSVMClassifier
from fslstm_plugin.learn2learn import LightningFewShot
from fslstm_plugin.methods import KernelMethod, Method, parse_method
from fslstm_plugin.model import FewShotModel
from fslstm_plugin.registry import ADAPTERS, HEADS, METHODS, TRANSDUCTION
from fslstm_plugin.testing import SmallBackbone
from fslstm_plugin.transduction import TransductiveModule

DIM = 32
MAP = (8, 2, 2)
HEAD_NAMES = [
    *HEADS.names(),
    *(f"lssvm(coding={coding})" for coding in ("one-vs-one", "ecoc")),
    *(f"lssvm(coding={coding},decoding=hamming)" for coding in ("one-vs-all", "one-vs-one", "ecoc")),
    *(f"rr(kernel={kernel})" for kernel in ("rbf", "polynomial", "cosine")),
    "lssvm(ridge=loo)",
]
ADAPTER_NAMES = [
    *(f"lssvm+{name}" if needs_dim(ADAPTERS.get(name)) else f"lssvm({name})" for name in ADAPTERS.names()),
    "lssvm(power,center=episode,normalize)",
    "lssvm(power(negative=signed))",
]
MODULE_NAMES = [f"{head}+{module}" for head in ("lssvm", "svm") for module in TRANSDUCTION.names()]
TIED = {"dpgn": "dpgn(shots=2,width=16)", "sib": "sib(queries=3)"}  # To the shape of the episodes here.


def briefly(name: str) -> str:
    """A method with three of its steps or iterations."""
    counted = [option.name for option in options(METHODS.get(name)) if option.name in ("steps", "iterations")]
    return f"{name}({counted[0]}=3)" if counted else name


METHOD_NAMES = [
    briefly(name)
    for name in METHODS.names()
    if name not in {*TIED, "relation-net", "reptile"}  # whose maps are larger, and which needs a whole backbone
]
METHOD_NAMES += TIED.values()
METHOD_NAMES += ["tim(solver=gd,steps=3)"] if "tim" in METHODS.names() else []
NAMES = [*HEAD_NAMES, *ADAPTER_NAMES, *MODULE_NAMES, *METHOD_NAMES]


class Sizes(SmallBackbone):
    out_features, map_shape, map_channels = DIM, MAP, MAP[0]


@pytest.fixture(autouse=True)
def _nothing_to_wait_for(monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)


@pytest.fixture
def differentiable(monkeypatch):
    """A device for gradients: for tensors on cuda PyTorch would ask the driver. It has no autocast to switch off."""
    monkeypatch.setattr(torch, "autocast", lambda *arguments, **options: nullcontext())
    return "lazy:0"


def points(count, dim=DIM):
    """Features as after a ReLU, of five classes in turn."""
    return (torch.randn(3, count, dim) + 2 * torch.eye(dim)[torch.arange(count) % 5]).relu()


@pytest.mark.parametrize("name", NAMES)
def test_every_method_computes_on_the_gpu_what_it_computes_on_the_processor(name):
    method = parse_method(name, dim=DIM, backbone=Sizes()).eval()
    support, query, mean, labels = points(10), points(15), points(9).mean((0, 1)), torch.arange(10) % 5
    expected = method.logits(EpisodeFeatures(support, query, labels, base_mean=mean, map_shape=MAP)).detach()
    with PretendedGPU():
        method.to("cuda")
        parts = (part.to("cuda") for part in (support, query, labels))
        found = method.logits(EpisodeFeatures(*parts, base_mean=mean.to("cuda"), map_shape=MAP))
    assert found.device.type == "cuda"
    torch.testing.assert_close(value_of(found), expected)


@pytest.mark.parametrize("name", [name for name in HEAD_NAMES if "hamming" not in name])
def test_gradients_come_back_to_the_device(name, differentiable):
    with PretendedGPU():
        support = points(10).to(differentiable).requires_grad_()
        features = EpisodeFeatures(support, points(15).to(differentiable), torch.arange(10).to(differentiable) % 5)
        parse_method(name).logits(features).square().sum().backward()
    assert str(support.grad.device) == differentiable
    assert value_of(support.grad).abs().sum() > 0


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_gram_matrices_in_both_precisions(offset):
    support, query = points(10, 64) + offset, points(15, 64) + offset
    mix, chosen = torch.rand(3, 4, 15), torch.randint(15, (3, 2))

    def extended(support, query, mix, chosen):
        gram = EpisodeGram.from_features(support, query, transductive=True).normalized()
        return gram.append(mix).append_queries(chosen)

    expected = extended(support, query, mix, chosen)
    with PretendedGPU():
        found = extended(*(part.to("cuda") for part in (support, query, mix, chosen)))
    for name in ("support", "cross", "query_norms", "query"):
        assert getattr(found, name).device.type == "cuda"
        torch.testing.assert_close(value_of(getattr(found, name)), getattr(expected, name))


def test_methods_are_evaluated_on_the_gpu():
    vectors, labels = points(40).flatten(0, 1), torch.arange(120) % 40 % 5
    sampler = EpisodeSampler(labels, 5, 2, 3, seed=0)
    names = ["svm", "lssvm+psm", "lssvm(center=base)", "rr(normalize)+can"]
    mean = vectors.mean(0)
    expected = run_methods(indexed(vectors, None, mean), sampler, [parse_method(name) for name in names], 20)
    with PretendedGPU():
        methods = [parse_method(name).to("cuda") for name in names]
        source = indexed(vectors.to("cuda"), None, mean.to("cuda"))
        found = run_methods(source, sampler, methods, 20, "cuda", batch_episodes=8)
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(value_of(ours.accuracies), theirs.accuracies), str(ours.method)


@pytest.mark.parametrize("kind", [Conv4, ResNet12])
def test_features_are_extracted_on_the_gpu(kind, dots, monkeypatch):
    some = replace(dots, images=dots.images[:6], labels=dots.labels[:6])
    backbone = kind(image_size=32).eval()
    expected = extract_features(backbone, some)
    # Folded before, since PyTorch moves no module that was copied within the context.
    folded = fold_batch_norm(backbone)
    monkeypatch.setattr(features, "fold_batch_norm", lambda backbone: folded)
    with PretendedGPU():
        found = extract_features(backbone, some, "cuda", batch_size=4)
    assert found.device.type == "cpu"
    torch.testing.assert_close(value_of(found), expected)


@pytest.mark.parametrize("kind", [Conv4, ResNet12])
@pytest.mark.parametrize("method", ["lssvm+iam", "svm"])
def test_a_training_step_stays_on_its_device(kind, method, dots, differentiable):
    module = LightningFewShot(kind(image_size=32), method=method)
    with PretendedGPU():
        module.to(differentiable)
        images = make_images(
            dots.images[:8].to(differentiable),
            torch.arange(8, device=differentiable),
            module.model.normalization,
            Augmentation.published(32),
            [(0, 0)],
        )
        batch = Episodes(images[None].contiguous(), torch.tensor([[0, 1, 0, 1, 0, 0, 1, 1]]).to(differentiable), 4, 2)
        loss, accuracy = module.meta_learn(batch, 0, 2, 2, 2)
        loss.backward()
        torch.optim.SGD(module.parameters(), lr=0.1).step()
        predicted = module.eval().predict_step(batch)
    found = [loss, accuracy, predicted, *(parameter.grad for parameter in module.parameters())]
    assert {str(each.device) for each in found} == {differentiable}
    assert all(value_of(each).isfinite().all() for each in found)


class Weighted(LSSVMClassifier):
    """A head with a parameter."""

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.full((5,), 2.0))

    def solve(self, kernel, targets):
        dual = super().solve(kernel, targets)
        return dual._replace(alpha=dual.alpha * self.factor, bias=dual.bias * self.factor)


class Shifted(TransductiveModule):
    """A transductive module with a parameter and a buffer."""

    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.ones(5))
        self.register_buffer("factor", torch.ones(5))

    def refine(self, head, gram, targets):
        return head.predict(gram, targets) * self.factor + self.shift


def test_a_model_moves_with_all_its_parts():
    method = KernelMethod(Weighted(), [InverseAttentionModule(2048)], Shifted())
    model = FewShotModel(Conv4(image_size=32), method).eval()
    images = torch.rand(12, 3, 32, 32)
    with PretendedGPU():
        model.to("cuda")
        features = model.embed(images.to("cuda"))
        labels = torch.arange(5, device="cuda")
        logits = model.logits(EpisodeFeatures(features[:5], features[5:], labels))
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    assert {"method.head.factor", "method.transduction.factor", "method.adapters.0.norm.weight"} <= state.keys()
    assert {value.device.type for value in state.values()} | {logits.device.type} == {"cuda"}


class Forgetful(Method):
    """Makes its constants on the processor."""

    is_transductive = False

    def logits(self, features):
        return features.query @ features.support.mT @ torch.ones(features.num_support, features.ways)


def test_a_tensor_on_the_wrong_device_is_noticed():
    support, query, labels = points(10), points(15), torch.arange(10) % 5
    assert Forgetful().logits(EpisodeFeatures(support, query, labels)).shape == (3, 15, 5)
    with PretendedGPU():
        features = EpisodeFeatures(*(part.to("cuda") for part in (support, query, labels)))
        with pytest.raises(RuntimeError, match="cuda:0 and cpu"):
            Forgetful().logits(features)


@pytest.fixture
def two_gpus(monkeypatch):
    """As if the machine had two GPUs."""
    ones = torch.ones

    def allocated(*sizes, device):
        device = torch.device(device)
        if device.type == "cuda" and (device.index or 0) > 1:
            raise RuntimeError("CUDA error: invalid device ordinal")
        return ones(*sizes)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch, "ones", allocated)


def test_each_process_takes_a_gpu_of_its_own(two_gpus, monkeypatch):
    assert Ranks().device("cuda") == Ranks().device("auto") == torch.device("cuda:0")
    for local in (0, 1):
        monkeypatch.setenv("LOCAL_RANK", str(local))
        ranks = Ranks(rank=local + 2, size=4)  # the second of two machines
        assert ranks.device("cuda") == ranks.device("auto") == torch.device("cuda", local)
        assert ranks.device("cuda:1") == torch.device("cuda:1")
        assert ranks.device("cpu") == torch.device("cpu")


def test_a_process_without_a_gpu_is_told(two_gpus, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "2")
    message = "no device 'cuda:2' here: choose one of auto, cpu, cuda:0, cuda:1, and no more processes than GPUs"
    with pytest.raises(UsageError, match=message):
        Ranks(rank=2, size=3).device("cuda")
    with pytest.raises(UsageError, match="no device 'cuda:7' here: choose one of auto, cpu, cuda:0, cuda:1\\."):
        Ranks().device("cuda:7")


@pytest.mark.parametrize("name", ["meta", "nothing", "cuda:x", "cuda:99", ""])
def test_a_device_that_is_not_here_is_refused(name):
    with pytest.raises(UsageError, match=f"no device '{name}' here: choose one of auto, cpu"):
        Ranks().device(name)


def test_evaluation_imports_nothing_that_it_does_not_need():
    code = (
        "import sys, fslstm_plugin.evaluation.session, fslstm_plugin.evaluation.tuning\n"
        "slow = {'torchvision', 'learn2learn', 'pytorch_lightning', 'matplotlib', 'scipy', 'qpth', 'torch._dynamo'}\n"
        "assert not slow & sys.modules.keys(), slow & sys.modules.keys()\n"
        "assert not [name for name in sys.modules if name.startswith('fslstm_plugin.benchmarks')]"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr

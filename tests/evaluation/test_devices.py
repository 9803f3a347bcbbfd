"""Which device a process takes; and that the pretended GPU refuses what a real one refuses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from pretended import OnGPU, PretendedGPU
from torch import nn

from fslstm_plugin.adapters import InverseAttentionModule
from fslstm_plugin.backbones import Conv4
from fslstm_plugin.errors import UsageError
from fslstm_plugin.evaluation.ranks import Ranks
from fslstm_plugin.features import EpisodeFeatures
from fslstm_plugin.heads import LSSVMClassifier
from fslstm_plugin.methods.kernel import KernelMethod
from fslstm_plugin.model import FewShotModel
from fslstm_plugin.training import pretraining
from fslstm_plugin.transduction import TransductiveModule


@pytest.fixture
def on_gpu():
    """Six numbers, on the pretended GPU and on the CPU."""
    here = torch.arange(6.0).view(2, 3)
    with PretendedGPU():
        yield here.to("cuda"), here


REFUSED: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "sum": lambda gpu, cpu: gpu + cpu,
    "sum in place": lambda gpu, cpu: cpu.add_(gpu),
    "sum in place of a number": lambda gpu, cpu: cpu[0, 0].add_(gpu[0, 0]),
    "product": lambda gpu, cpu: gpu @ cpu.mT,
    "joined": lambda gpu, cpu: torch.cat([gpu, cpu]),
    "selected": lambda gpu, cpu: gpu.index_select(0, torch.tensor([1])),
    "gathered": lambda gpu, cpu: gpu.gather(1, torch.tensor([[0]])),
    "scattered": lambda gpu, cpu: gpu.scatter(1, torch.tensor([[0]]), 1.0),
    "masked": lambda gpu, cpu: gpu.masked_fill(cpu > 1, 0.0),
    "on the CPU by a mask on the GPU": lambda gpu, cpu: cpu[gpu > 1],
    "values from the CPU": lambda gpu, cpu: gpu.index_put_((torch.tensor([0]),), cpu[:1]),
    "to NumPy": lambda gpu, cpu: gpu.numpy(),
    "as an array": lambda gpu, cpu: np.asarray(gpu),
    "made by the CPU's generator": lambda gpu, cpu: torch.rand(2, device="cuda", generator=torch.Generator()),
    "to pinned memory": lambda gpu, cpu: gpu.pin_memory(),
    "eigenvectors of very many": lambda gpu, cpu: torch.linalg.eigh(gpu[:1, :1].expand(2**15, 1, 1)),
    "on a further GPU": lambda gpu, cpu: cpu.to("cuda:1"),
}
ALLOWED: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "number on the CPU": lambda gpu, cpu: gpu + torch.tensor(1.0),
    "choice of a number": lambda gpu, cpu: gpu.where(gpu > 2, torch.tensor(0.0)),
    "indexed from the CPU": lambda gpu, cpu: gpu[torch.tensor([1, 0])],
    "masked from the CPU": lambda gpu, cpu: gpu[cpu > 1],
    "copied": lambda gpu, cpu: torch.empty_like(gpu).copy_(cpu),
    "like another": lambda gpu, cpu: cpu.to(gpu),
    "made of numbers": lambda gpu, cpu: torch.tensor([1.0, 2.0], device=gpu.device),
    "made there": lambda gpu, cpu: torch.arange(3, device="cuda"),
}


@pytest.mark.parametrize("operation", REFUSED.values(), ids=REFUSED)
def test_what_a_gpu_refuses_is_refused(operation, on_gpu):
    words = "same device|can't convert cuda|generator|invalid device|cusolver|cannot pin"
    with pytest.raises((RuntimeError, TypeError), match=words):
        operation(*on_gpu)


@pytest.mark.parametrize("operation", ALLOWED.values(), ids=ALLOWED)
def test_what_a_gpu_allows_is_computed(operation, on_gpu):
    gpu, cpu = on_gpu
    found = operation(gpu, cpu)
    assert (type(found), str(found.device), found.is_cuda) == (OnGPU, "cuda:0", True)
    assert torch.equal(found.cpu(), operation(cpu, cpu).cpu())


WAITS: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "copied there": lambda gpu, cpu: cpu.to("cuda"),
    "copied there, not pinned": lambda gpu, cpu: cpu.to("cuda", non_blocking=True),
    "copied back": lambda gpu, cpu: gpu.cpu(),
    "read": lambda gpu, cpu: bool((gpu > 1).any()),
    "as a list": lambda gpu, cpu: gpu.tolist(),
    "as many as are above": lambda gpu, cpu: gpu[gpu > 1],
    "indexed from the CPU": lambda gpu, cpu: gpu[torch.tensor([1, 0])],
    "choice of a number on the CPU": lambda gpu, cpu: gpu.where(gpu > 2, torch.tensor(0.0)),
    "filled with a number that is there": lambda gpu, cpu: gpu.masked_fill(gpu > 1, gpu[0, 0]),
    "solved and checked": lambda gpu, cpu: torch.linalg.solve(gpu[:, :2], gpu),
    "compared": lambda gpu, cpu: torch.equal(gpu, gpu),
    "awaited": lambda gpu, cpu: torch.cuda.synchronize(),
}
GOES_ON: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "copied there": lambda gpu, cpu: cpu.pin_memory().to("cuda", non_blocking=True),
    "copied back": lambda gpu, cpu: gpu.to("cpu", non_blocking=True),
    "computed": lambda gpu, cpu: torch.where(gpu > 1, gpu @ gpu.mT @ gpu, 0).sum(-1),
    "filled": lambda gpu, cpu: gpu.masked_fill(gpu > 1, torch.tensor(0.0)),
    "factorised": lambda gpu, cpu: torch.linalg.cholesky_ex(gpu @ gpu.mT),
    "timed": lambda gpu, cpu: torch.cuda.Event(enable_timing=True).record(),
}


@pytest.mark.parametrize("operation", WAITS.values(), ids=WAITS)
def test_what_waits_for_a_gpu_is_counted(operation, on_gpu):
    PretendedGPU.counts.waits.clear()
    operation(*on_gpu)
    assert PretendedGPU.counts.waits.total() == 1, PretendedGPU.counts.waits


@pytest.mark.parametrize("operation", GOES_ON.values(), ids=GOES_ON)
def test_what_waits_for_no_gpu_is_not(operation, on_gpu):
    PretendedGPU.counts.waits.clear()
    operation(*on_gpu)
    assert not PretendedGPU.counts.waits


@pytest.mark.parametrize("part", ["query", "labels"])
def test_parts_of_an_episode_on_two_devices_are_named(part):
    parts = {"support": torch.eye(2), "query": torch.ones(3, 2), "labels": torch.arange(2)}
    with PretendedGPU():
        moved = {name: value if name == part else value.to("cuda") for name, value in parts.items()}
        words = f"Support and {part} must be on one device, but got support on cuda:0 and {part} on cpu."
        with pytest.raises(UsageError, match=words):
            EpisodeFeatures(**moved)


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


@pytest.mark.parametrize(("device", "asked"), [("cpu", ("cpu", "32")), ("auto", ("auto", "bf16"))])
def test_a_reproduction_trains_where_it_evaluates(device, asked, fslstm, monkeypatch, tmp_path):
    def pretrain(run, options, **_):
        raise UsageError(f"asked for {options.accelerator, run.config.precision}")

    monkeypatch.setattr(pretraining, "pretrain", pretrain)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    monkeypatch.chdir(tmp_path)
    of_dots = ("--dataset", "dots", "--backbone", "mapped", "--scale", "quick", "--device", device)
    with PretendedGPU():
        assert f"asked for {asked}" in fslstm("reproduce", "table3", *of_dots).err


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

"""Everything that computes, on a GPU: the pretended one, and with ``-m cuda`` a real one."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import painted
import pytest
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from narrow import narrow  # noqa: F401  # a fixture
from pretended import PretendedGPU, paused
from safetensors.torch import load_file

from fslstm_plugin import parse_method
from fslstm_plugin.arguments import options
from fslstm_plugin.backbones import Conv4, ResNet12
from fslstm_plugin.data.images import Augmentation, changes, make_images, uniform_draws
from fslstm_plugin.episodes import Episodes
from fslstm_plugin.evaluation.features import extract_features
from fslstm_plugin.features import EpisodeFeatures
from fslstm_plugin.gram import EpisodeGram
from fslstm_plugin.heads.linalg import eigh
from fslstm_plugin.learn2learn import LightningFewShot
from fslstm_plugin.learn2learn.tasksets import SplitImages
from fslstm_plugin.model import FewShotModel
from fslstm_plugin.recipes import MetaRecipe
from fslstm_plugin.registry import ADAPTERS, HEADS, METHODS, TRANSDUCTION
from fslstm_plugin.testing import SmallBackbone
from fslstm_plugin.training.engine import StepSeed
from fslstm_plugin.training.episodic import EpisodicModule

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
    *(f"lssvm+{name}" if ADAPTERS.get(name).sizes else f"lssvm({name})" for name in ADAPTERS.names()),
    "lssvm(power,center=episode,normalize)",
    "lssvm(power(negative=signed))",
]
MODULE_NAMES = [f"{head}+{module}" for head in ("lssvm", "svm") for module in TRANSDUCTION.names()]
TIED = {"dpgn": "dpgn(shots=2,width=16)", "sib": "sib(queries=3)"}  # To the shape of the episodes here.


def briefly(name: str) -> str:
    """A method with three of its steps or iterations."""
    counted = [option for option in options(METHODS.get(name)) if option in ("steps", "iterations")]
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


class Real:
    """A GPU, and whether it was used."""

    kind = "real"

    def __init__(self) -> None:
        torch.cuda.init()
        self.forget()

    def forget(self) -> None:
        self.before = self.allocations

    @property
    def allocations(self) -> int:
        return torch.cuda.memory_stats().get("allocated_bytes.all.allocated", 0)

    @property
    def used(self) -> bool:
        return self.allocations > self.before


@pytest.fixture(params=["pretended", pytest.param("real", marks=pytest.mark.cuda)])
def gpu(request) -> Iterator[Real | PretendedGPU]:
    """The GPU that commands take by default."""
    if request.param == "pretended":
        with PretendedGPU() as pretended:
            yield pretended
    elif torch.cuda.is_available():
        yield Real()
    else:
        pytest.skip("There is no GPU here, or it is hidden: run with -m cuda.")


def points(episodes: int, count: int, dim: int = DIM) -> torch.Tensor:
    """Features as after a ReLU, of five classes in turn."""
    return (torch.randn(episodes, count, dim) + 2 * torch.eye(dim)[torch.arange(count) % 5]).relu()


@pytest.mark.parametrize("name", NAMES)
def test_every_method_computes_on_the_gpu_what_it_computes_on_the_cpu(name, gpu):
    method = parse_method(name, dim=DIM, backbone=Sizes()).eval()
    episodes = 3 if gpu.kind == "pretended" else 100
    support, query, means = points(episodes, 10), points(episodes, 15), points(2, 5).mean(0)
    labels = torch.arange(10) % 5
    expected = method.logits(EpisodeFeatures(support, query, labels, base_mean=means, map_shape=MAP)).detach()
    method.to("cuda")
    parts = (part.to("cuda") for part in (support, query, labels))
    found = method.logits(EpisodeFeatures(*parts, base_mean=means.to("cuda"), map_shape=MAP)).detach()
    assert found.device.type == "cuda"
    assert_same_predictions(found.cpu(), expected)
    if gpu.kind == "pretended":  # which rounds as the CPU
        torch.testing.assert_close(found.cpu(), expected)


def assert_same_predictions(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Of at least 99.9 % of the queries, but for ties: convolutions of a GPU keep three digits.

    Hard labels show no ties, and one tie changes the rest of an episode of iLPC: rounding alone, of 1e-7, changed up to
    7 of 1,500 predictions on the CPU. So of these 99 %.
    """
    least = 0.99 if set(expected.unique().tolist()) <= {0, 1} else 0.999
    best, chosen = expected.amax(-1), expected.gather(-1, found.argmax(-1, keepdim=True)).squeeze(-1)
    finite = expected.masked_fill(expected.isinf(), 0)
    tied = best - chosen <= 1e-3 * (finite.amax() - finite.amin())
    assert ((found.argmax(-1) == expected.argmax(-1)) | tied).double().mean() >= least


@pytest.mark.parametrize("name", [name for name in HEAD_NAMES if "hamming" not in name])
def test_gradients_are_those_of_the_cpu(name, gpu):
    support, query, labels = points(3, 10), points(3, 15), torch.arange(10) % 5

    def gradient(device: str) -> torch.Tensor:
        leaf = support.to(device, copy=True).requires_grad_()
        features = EpisodeFeatures(leaf, query.to(device), labels.to(device))
        parse_method(name).to(device).logits(features).square().sum().backward()
        return leaf.grad

    found, expected = gradient("cuda"), gradient("cpu")
    assert found.device.type == "cuda"
    torch.testing.assert_close(found.cpu(), expected, atol=1e-4 * expected.abs().amax().item(), rtol=1e-3)


@pytest.mark.parametrize(("size", "episodes"), [(5, 3), (40, 3), (2, 2**14)])
def test_eigenvectors_and_their_gradients_are_those_of_the_cpu(size, episodes, gpu):
    points = torch.randn(episodes, 2, size, size, dtype=torch.float64)

    def decomposed(device: str) -> tuple[torch.Tensor, ...]:
        leaf = (points @ points.mT).to(device).requires_grad_()
        values, vectors = eigh(leaf)
        again = vectors * values.unsqueeze(-2) @ vectors.mT
        (values.square().sum() + again[..., 0].square().sum()).backward()
        return values.detach(), again.detach(), leaf.grad

    for found, expected in zip(decomposed("cuda"), decomposed("cpu"), strict=True):
        assert found.device.type == "cuda"
        torch.testing.assert_close(found.cpu(), expected)


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_gram_matrices_in_both_precisions(offset, gpu):
    support, query = points(3, 10, 64) + offset, points(3, 15, 64) + offset
    mix, chosen = torch.rand(3, 4, 15), torch.randint(15, (3, 2))

    def extended(support, query, mix, chosen):
        gram = EpisodeGram.from_features(support, query, transductive=True).normalized()
        return gram.append(mix).append_queries(chosen)

    expected = extended(support, query, mix, chosen)
    found = extended(*(part.to("cuda") for part in (support, query, mix, chosen)))
    for name in ("support", "cross", "query_norms", "query"):
        assert getattr(found, name).device.type == "cuda"
        rounding = 1e-7 if gpu.kind == "pretended" else 1e-4  # of the products in single precision
        torch.testing.assert_close(getattr(found, name).cpu(), getattr(expected, name), atol=rounding, rtol=rounding)


@pytest.mark.parametrize("kind", [Conv4, ResNet12])
def test_features_are_extracted_on_the_gpu(kind, dots, gpu):
    some = replace(dots, images=dots.images[:6], labels=dots.labels[:6])
    backbone = kind(image_size=32).eval()
    expected = extract_features(backbone, some)
    found = extract_features(backbone, some, "cuda", batch_size=4)
    assert found.device.type == "cpu"
    assert (found - expected).norm() <= (1e-6 if gpu.kind == "pretended" else 1e-2) * expected.norm()
    assert gpu.used


@pytest.mark.parametrize("kind", [Conv4, ResNet12])
@pytest.mark.parametrize("method", ["lssvm+iam", "svm"])
def test_a_training_step_stays_on_its_device(kind, method, dots, gpu):
    module = LightningFewShot(kind(image_size=32), method=method).to("cuda")
    moved = changes(Augmentation.published(32), uniform_draws([(0, 0)], 8).to("cuda"), 32, 32)
    indices = torch.arange(8, device="cuda")
    images = make_images(dots.images[:8].to("cuda"), indices, module.model.normalization, moved)
    batch = Episodes(images[None].contiguous(), torch.tensor([[0, 1, 0, 1, 0, 0, 1, 1]]).to("cuda"), 4, 2)
    loss, accuracy = module.meta_learn(batch, 0, 2, 2, 2)
    loss.backward()
    torch.optim.SGD(module.parameters(), lr=0.1).step()
    predicted = module.eval().predict_step(batch)
    found = [loss, accuracy, predicted, *(parameter.grad for parameter in module.parameters())]
    assert {each.device.type for each in found} == {"cuda"}
    assert all(each.isfinite().all() for each in found)


@pytest.mark.parametrize(
    ("kind", "method"),
    [*((Conv4, name) for name in ("nn", "rr", "lssvm+iam", "lssvm(normalize)")), (ResNet12, "lssvm+iam")],
)
def test_recorded_passes_give_the_gradients_of_the_others(kind, method, gpu):
    recipe = MetaRecipe(augmentation=Augmentation.published(32), lr=0.1, method_lr=0.1)
    module = EpisodicModule(
        FewShotModel(kind(32), parse_method(method, dim=kind(32).out_features)), F.cross_entropy, recipe
    )
    module.to("cuda").to(memory_format=torch.channels_last).train()
    module.replay()
    labels = torch.tensor([[0, 1, 0, 1, 0, 0, 1, 1]] * 2).to("cuda")
    before = {name: value.clone() for name, value in module.state_dict().items()}

    def learned(learn: Callable[..., tuple[torch.Tensor, torch.Tensor]], seed: int) -> list[torch.Tensor]:
        module.load_state_dict(before)
        module.zero_grad(set_to_none=True)
        torch.manual_seed(seed)
        images = torch.rand(2, 8, 3, 32, 32, device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss, _ = learn(images, labels, 4, 2)
        loss.backward()
        gradients = [each.grad.clone() for each in module.parameters() if each.grad is not None]
        return [loss.detach(), *gradients, *(value.double() for value in module.state_dict().values())]

    for seed in range(3):
        found, expected = learned(module._learn, seed), learned(module._learn_images, seed)
        rounding = 1e-6 * max(each.abs().amax().item() for each in expected[1:])  # Some gradients are 0 but for it.
        for mine, other in zip(found, expected, strict=True):
            torch.testing.assert_close(mine, other, rtol=0.01, atol=max(rounding, 1e-3 * other.abs().amax().item()))
    assert gpu.used


def test_learn2learns_tasks_are_learned_on_the_gpu(dots, gpu, tmp_path):
    data = pytest.importorskip("learn2learn.data")
    from learn2learn.data import transforms
    from learn2learn.utils.lightning import EpisodicBatcher

    images = data.MetaDataset(SplitImages(dots))
    steps = (transforms.FusedNWaysKShots(images, 4, 6), transforms.LoadData(images), transforms.RemapLabels(images))
    batches = EpisodicBatcher(*[data.Taskset(images, list(steps))] * 3, epoch_length=2)
    shape = {"train_ways": 4, "train_shots": 2, "train_queries": 4, "test_ways": 4, "test_shots": 2, "test_queries": 4}
    module = LightningFewShot(Conv4(32), method="lssvm+iam", **shape)
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = pl.Trainer(max_epochs=1, devices=1, default_root_dir=tmp_path, **quiet)
    trainer.fit(module, batches)
    assert trainer.test(module, batches, verbose=False)[0]["test_accuracy"] >= 0
    assert gpu.used


TRAIN = ("train", "--dataset", "dots", "--backbone", "tiny", "--episodes-per-step", 2, "--val-episodes", 10)
RATES = ("--lr", 0.1, "--method-lr", 0.1)  # Which this backbone does not have.
FEW = ("--ways", 4, "--shots", 2, "--queries", 4, "--episodes", 6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("gpu")


@pytest.fixture
def succeeds(fslstm, gpu, folder, monkeypatch) -> Callable[..., str]:
    """Calls a command in the folder of the GPU, which must do some of its work, and gives its output."""
    here = folder / gpu.kind
    here.mkdir(exist_ok=True)
    monkeypatch.chdir(here)

    def call(*arguments: object, on_gpu: bool = True) -> str:
        gpu.forget()
        done = fslstm(*arguments)
        assert done.code == 0, done.err
        assert gpu.used is on_gpu
        return done.out

    return call


@pytest.fixture
def trained(succeeds) -> None:
    """A pretrained run and one trained from it, made once by the commands."""
    if not Path("runs/trained/model.safetensors").exists():
        succeeds("pretrain", "--dataset", "dots", "--backbone", "tiny", "--max-steps", 2, "--name", "base")
        start = ("--pretrained", "base", *RATES, "--steps-per-epoch", 2, "--max-steps", 3, "--name", "trained")
        succeeds(*TRAIN, *start)


@pytest.fixture
def model(succeeds) -> Path:
    """A classifier of pictures, made once by the command."""
    if not Path("model.fslstm").exists():
        painted.unlabelled(Path("new"))
        succeeds("fit", painted.labelled(Path("labelled")), "-o", "model.fslstm", *painted.backbone(Path()))
    return Path("model.fslstm")


COMPARED = ("nn", "svm", "lssvm+psm", "lssvm+can", "rr(center,normalize)+psm", "lssvm(center=episode)")


@pytest.mark.parametrize(
    "command",
    [
        ("eval",),
        ("eval", "--bn"),
        ("eval", "--can", "--calibration", "--coverage", 0.5, "--open-ways", 1),
        ("eval", "--query-balance", "dirichlet:2", "--precision", "bf16", "--ways", 3, "--queries", 4),
        ("compare", "nn", "tim(bpa)", "proto-lp", "--shots", 1),
        ("compare", *COMPARED, "--interval", "classes", "--ways", 2, "--shots", 2),
        ("compare-heads",),
        ("tune", "lssvm", "nn"),
        ("reproduce", "table3", "--run", "base"),
    ],
    ids=lambda command: " ".join(map(str, command)),
)
def test_methods_are_evaluated_on_the_gpu(command, trained, succeeds):
    succeeds(*command, "--episodes", 6)


def test_accuracies_are_those_of_the_cpu(trained, succeeds):
    compare = ("compare", *COMPARED, "--run", "trained", "--no-cache", "--episodes", 20)
    succeeds(*compare, "--json", "gpu.json")
    succeeds(*compare, "--json", "cpu.json", "--device", "cpu", on_gpu=False)
    found, expected = (
        [row["accuracy"] for row in json.loads(Path(name).read_text())["rows"]] for name in ("gpu.json", "cpu.json")
    )
    assert found == pytest.approx(expected, abs=0.5)


def test_features_of_a_file_are_evaluated_on_the_gpu(succeeds):
    labels = np.arange(60) % 6
    features = np.random.default_rng(0).normal(size=(60, 16)) + 3 * np.eye(16)[labels]
    np.savez("some.npz", features=features.astype(np.float32), labels=labels, base_mean=np.ones(16))
    succeeds("compare", "lssvm(center)", "tim", "--features", "some.npz", *FEW)


def test_single_tasks_are_projected_on_the_gpu(trained, succeeds):
    succeeds("reproduce", "figure-support", "--run", "trained")


def test_the_time_of_a_reproduction_is_estimated_on_the_gpu(succeeds):
    asked = ("--dataset", "dots", "--backbone", "mapped", "--scale", "quick", "--shots", 1, "--dry-run")
    assert "in all: about" in succeeds("reproduce", "table3", *asked)


@pytest.mark.parametrize(
    "algorithm",
    [
        "feat",
        "tpn",
        "team",
        "relation-net",
        "sib(ways=4,queries=4)",
        "dpgn(ways=4,shots=2,queries=1,width=8,generations=2,loss_generations=2)",
        "reptile(steps=2,test_steps=2)",
    ],
)
def test_other_methods_are_trained_on_the_gpu(algorithm, narrow, succeeds):  # noqa: F811
    shape = ("--ways", 4, "--shots", 2, "--queries", 1 if algorithm.startswith("dpgn") else 4)
    tested = ("--val-ways", 4, "--val-shots", 2, "--val-queries", 4, "--val-episodes", 4)
    name = algorithm.partition("(")[0]
    start = ("train", "--dataset", "dots", "--backbone", narrow, "--algorithm", algorithm, "--episodes-per-step", 2)
    succeeds(*start, *shape, *tested, "--max-steps", 2, "--name", name)
    succeeds("compare", algorithm, "nn", "--run", name, *FEW)


def test_a_network_is_born_again_on_the_gpu(trained, succeeds):
    succeeds("pretrain", "--dataset", "dots", "--backbone", "tiny", "--max-steps", 2, "--teacher", "base")


def test_a_folder_of_images_is_pretrained_on_the_gpu(succeeds):
    images = ("--images", painted.labelled(Path("images"), each=8), "--image-size", 32)
    succeeds("pretrain", *images, "--backbone", "tiny", "--batch-size", 8, "--workers", 1, "--max-steps", 2)


def test_pictures_are_labelled_on_the_gpu(model, succeeds):
    assert succeeds("predict", model, "new").count("red") >= 4
    succeeds("predict", model, "new", "--coverage", 0.5, "--csv", "new.csv", "--html", "new.html")
    succeeds("predict", model, "new", "--transductive")
    succeeds("suggest", model, "new")
    succeeds("update", model, "--add", painted.labelled(Path("more"), each=6))
    few = ("--ways", 3, "--shots", 1, "--queries", 2, "--episodes", 6)
    succeeds("compare", "nn", "--pictures", "labelled", *few, *painted.backbone(Path()))


def test_a_graph_is_exported_on_the_cpu(model, succeeds, gpu, monkeypatch):
    pytest.importorskip("onnxruntime")
    if gpu.kind == "pretended":  # The tracer refuses its modes; what is traced is on the CPU.
        monkeypatch.setattr(torch.onnx, "export", paused()(torch.onnx.export))
    succeeds("export", model, "--onnx", "model.onnx", on_gpu=False)


def test_accuracy_is_timed_on_the_cpu(succeeds):
    bench = ("bench-accuracy", "--dataset", "dots", "--backbone", "tiny", "--batch-size", 48, "--epochs", 1)
    succeeds(*bench, on_gpu=False)


def interrupting_at(step: int, seed: Callable[..., None]) -> Callable[..., None]:
    """Ctrl-C in a step of a training."""

    def seed_and_interrupt(self, trainer, *others):
        seed(self, trainer, *others)
        if trainer.global_step == step:
            signal.raise_signal(signal.SIGINT)

    return seed_and_interrupt


@pytest.mark.parametrize("kind", ["train", "pretrain"])
def test_an_interrupted_training_is_continued(kind, succeeds, fslstm, gpu, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    start = (*TRAIN, "--steps-per-epoch", 2) if kind == "train" else ("pretrain", *TRAIN[1:5], "--batch-size", 32)
    start = (*start, "--max-steps", 5)
    succeeds(*start, "--name", f"whole-{kind}")
    with monkeypatch.context() as patch:
        patch.setattr(StepSeed, "on_train_batch_start", interrupting_at(3, StepSeed.on_train_batch_start))
        stopped = fslstm(*start, "--name", f"parts-{kind}")
        assert (stopped.code, "Stopped at step 3; everything is saved." in stopped.err) == (130, True), stopped.err
    succeeds(kind, "--resume", "--name", f"parts-{kind}")
    whole, parts = (load_file(f"runs/{name}-{kind}/model.safetensors") for name in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    exact = {"atol": 0, "rtol": 0} if gpu.kind == "pretended" else {}
    for name, value in whole.items():
        torch.testing.assert_close(parts[name], value, **exact)

"""The Lightning modules under learn2learn's own harness, and what they must not do."""

from __future__ import annotations

from argparse import ArgumentParser

import learn2learn as l2l
import pytest
import pytorch_lightning as pl
import torch
from fslstm_dots import TinyBackbone
from learn2learn.utils.lightning import EpisodicBatcher
from torch import nn

import fslstm_plugin
from fslstm_plugin.algorithms import (
    Composition,
    LightningFSLSTM,
    LightningLSSVM,
    LightningPrototype,
    LightningRidge,
    LightningSVM,
)
from fslstm_plugin.algorithms.batch_statistics import episode_statistics
from fslstm_plugin.algorithms.few_shot import algorithm_for
from fslstm_plugin.algorithms.recipe import meta_training
from fslstm_plugin.backbones import Conv4
from fslstm_plugin.episodes import Episodes
from fslstm_plugin.errors import FSLSTMError, UsageError
from fslstm_plugin.kernels import RBF

ALGORITHMS = [LightningPrototype, LightningRidge, LightningSVM, LightningLSSVM, LightningFSLSTM]


@pytest.fixture(scope="module")
def tasksets():
    """Learn2learn's stock tasks on a few coloured images: class c is bright in its own pattern."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.rand(8, 3, 32, 32, generator=generator)
    images = (patterns.repeat_interleave(12, 0) + 0.3 * torch.randn(96, 3, 32, 32, generator=generator)).clamp(0, 1)
    dataset = l2l.data.MetaDataset(torch.utils.data.TensorDataset(images, torch.arange(8).repeat_interleave(12)))
    transforms = [
        l2l.data.transforms.NWays(dataset, 4),
        l2l.data.transforms.KShots(dataset, 6),
        l2l.data.transforms.LoadData(dataset),
        l2l.data.transforms.RemapLabels(dataset),
    ]
    return l2l.data.Taskset(dataset, transforms)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_trains_under_a_plain_trainer_with_stock_tasks(algorithm, tasksets, tmp_path):
    pl.seed_everything(0, verbose=False)
    shape = {"train_ways": 4, "train_shots": 2, "train_queries": 4, "test_ways": 4, "test_shots": 2, "test_queries": 4}
    module = algorithm(TinyBackbone(32), lr=0.01, **shape)
    before = {name: value.clone() for name, value in module.named_parameters()}
    trainer = pl.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(module, EpisodicBatcher(tasksets, tasksets, tasksets, epoch_length=15))
    results = trainer.test(module, EpisodicBatcher(tasksets, epoch_length=20), verbose=False)[0]
    assert results["test_accuracy"] > 0.6, "chance is 0.25"
    changed = [name for name, value in module.named_parameters() if not torch.equal(value, before[name])]
    assert any(name.startswith("features.") for name in changed)
    assert any(name.startswith("attention.") for name in changed) == module.iam


def test_learn2learns_own_algorithm_trains_on_our_tasksets(tmp_path):
    fslstm_plugin.register()
    tasksets = l2l.vision.benchmarks.get_tasksets(
        "glyphs", train_ways=5, train_samples=4, test_ways=5, test_samples=4, root=tmp_path
    )
    module = l2l.algorithms.LightningPrototypicalNetworks(
        TinyBackbone(32), train_shots=2, train_queries=2, test_shots=2, test_queries=2
    )
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(module, EpisodicBatcher(tasksets.train, tasksets.validation, epoch_length=3))
    assert trainer.global_step == 3


def test_register_is_idempotent_and_replaces_nothing():
    own = l2l.nn.PrototypicalClassifier
    tasksets = dict(l2l.vision.benchmarks._TASKSETS)
    fslstm_plugin.register()
    fslstm_plugin.register()
    from learn2learn.algorithms import LightningFSLSTM as registered
    from learn2learn.algorithms.lightning import LightningSVM as registered_too
    from learn2learn.nn import LSSVMClassifier, PseudoSupportModule, SVClassifier  # noqa: F401

    assert registered is LightningFSLSTM
    assert registered_too is LightningSVM
    assert l2l.nn.PrototypicalClassifier is own
    now = l2l.vision.benchmarks._TASKSETS
    assert {name: now[name] for name in tasksets} == tasksets
    assert "glyphs" in l2l.vision.benchmarks.list_tasksets()


def test_options_come_from_class_keyword_or_parser():
    class Wide(LightningRidge):
        train_ways = 7
        ridge = 3.0

    assert (Wide(TinyBackbone(32)).train_ways, Wide(TinyBackbone(32)).head.ridge) == (7, 3.0)
    assert Wide(TinyBackbone(32), ridge=9.0).head.ridge == 9.0
    parsed = Wide.add_model_specific_args(ArgumentParser(add_help=False)).parse_args(["--train_shots", "4"])
    module = Wide(TinyBackbone(32), **vars(parsed))
    assert (module.train_ways, module.train_shots, module.head.ridge) == (7, 4, 3.0)
    chosen = LightningLSSVM(TinyBackbone(32), kernel="rbf", decoding="hamming").head
    assert (chosen.kernel, chosen.decoding) == (RBF(), "hamming")


def test_a_given_loss_is_used():
    module = LightningRidge(TinyBackbone(32), loss=lambda logits, labels: (logits * 0).sum() + 42)
    loss, _ = module.meta_learn((torch.rand(12, 3, 32, 32), torch.arange(4).repeat(3)), 0, ways=4, shots=1, queries=2)
    assert loss.item() == 42


def test_a_given_loss_may_have_weights():
    module = LightningRidge(TinyBackbone(32), loss=nn.CrossEntropyLoss(weight=torch.ones(4)))
    loss, _ = module.meta_learn((torch.rand(12, 3, 32, 32), torch.arange(4).repeat(3)), 0, ways=4, shots=1, queries=2)
    loss.backward()
    assert module.scale.grad.isfinite()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_batch_of_episodes_equals_one_at_a_time(algorithm):
    module = algorithm(TinyBackbone(32)).eval()
    labels = torch.tensor([0, 1, 2, 0, 0, 1, 1, 2, 2]).expand(3, -1)
    features = torch.randn(3, 9, 16)
    together = module.logits(Episodes(features, labels, 3, 3), psm=module.psm_iterations > 0)
    for index in range(3):
        one = Episodes(features[index : index + 1], labels[:1], 3, 3)
        torch.testing.assert_close(together[index], module.logits(one, psm=module.psm_iterations > 0)[0])


def test_iam_needs_to_know_the_feature_size():
    with pytest.raises(UsageError, match="pass feature_size="):
        LightningFSLSTM(nn.Flatten())
    assert LightningFSLSTM(nn.Flatten(), feature_size=48).attention.norm.normalized_shape == (48,)


@pytest.mark.parametrize("text", ["nn", "rr", "svm", "lssvm", "lssvm+iam", "nn+iam", "centroid"])
def test_compositions_are_read_and_written(text):
    composition = Composition.parse(text)
    assert str(composition) == text
    module = algorithm_for(composition.head)(TinyBackbone(32), iam=composition.iam)
    assert (module.attention is not None) == text.endswith("iam")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lsvm", "no head 'lsvm'. Did you mean 'lssvm'"),
        ("lssvm+iamm", "no module 'iamm'. Did you mean 'iam'"),
        ("lssvm+psm", "'psm' is not trained: name it to 'fslstm eval'"),
        ("lssvm+iam+iam", "twice"),
        ("", "no head ''"),
    ],
)
def test_wrong_compositions_are_refused(text, message):
    with pytest.raises(FSLSTMError, match=message.replace("(", r"\(")):
        Composition.parse(text)


def test_episode_statistics_are_the_batchs_own_and_leave_the_running_ones():
    model = Conv4(image_size=32).eval()
    images = torch.randn(12, 3, 32, 32)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    with episode_statistics(model), torch.no_grad():
        inside = model(images)
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name]), name
    training = Conv4(image_size=32).train()
    training.load_state_dict(state)
    for layer in training.modules():
        if isinstance(layer, nn.Dropout2d):
            layer.p = 0.0
    with torch.no_grad():
        torch.testing.assert_close(inside, training(images))
        assert not torch.allclose(inside, model(images), atol=1e-2)


def test_episode_statistics_are_undone_after_an_error():
    model = nn.BatchNorm1d(2).eval()
    with pytest.raises(RuntimeError), episode_statistics(model):
        raise RuntimeError
    assert model.running_mean is not None


def test_the_recipes_are_the_papers():
    conv = meta_training("cifar-fs", "conv4", 32, pretrained=True)
    assert (conv.epochs, conv.steps_per_epoch, conv.episodes_per_step, conv.ways, conv.queries) == (60, 1000, 8, 5, 6)
    assert (conv.lr, conv.iam_lr, conv.scale_lr, conv.shots) == (0.005, 0.01, 0.1, 5)
    resnet = meta_training("mini", "resnet12", 84, pretrained=True, test_shots=5)
    assert (resnet.lr, resnet.iam_lr, resnet.shots, resnet.augmentation.padding) == (0.0005, 0.005, 15, 8)
    assert meta_training("mini", "resnet12", 84, pretrained=True, test_shots=1).shots == 5
    assert meta_training("mini", "resnet12", 84, pretrained=False).lr == 0.1


def test_the_recipes_optimizer_has_a_rate_for_each_part_and_follows_the_schedule(tmp_path):
    recipe = meta_training("cifar-fs", "conv4", 32, pretrained=True)
    module = LightningFSLSTM(TinyBackbone(32), recipe=recipe)
    module.trainer = pl.Trainer(max_steps=60, accelerator="cpu", logger=False, default_root_dir=tmp_path)
    plan = module.configure_optimizers()
    optimizer, schedule = plan["optimizer"], plan["lr_scheduler"]["scheduler"]
    assert [group["lr"] for group in optimizer.param_groups] == [0.005, 0.1, 0.01]
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(list(module.parameters()))
    rates = []
    for _ in range(60):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert [round(rates[epoch] / 0.005, 6) for epoch in (0, 19, 20, 39, 40, 49, 50, 59)] == [
        1, 1, 0.06, 0.06, 0.012, 0.012, 0.0024, 0.0024,
    ]  # fmt: skip

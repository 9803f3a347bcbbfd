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
from fslstm_plugin.backbones import Conv4, ResNet12
from fslstm_plugin.backbones.episode_statistics import episode_statistics
from fslstm_plugin.episodes import Episodes
from fslstm_plugin.errors import UnknownNameError, UsageError
from fslstm_plugin.kernels import RBF
from fslstm_plugin.learn2learn import (
    LightningFEAT,
    LightningFewShot,
    LightningFSLSTM,
    LightningLSSVM,
    LightningPrototype,
    LightningReptile,
    LightningRidge,
    LightningSVM,
    LightningTPN,
)
from fslstm_plugin.naming import parse_method
from fslstm_plugin.recipes import meta_training
from fslstm_plugin.registry import DATASETS

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
    assert {"train_accuracy", "valid_accuracy"} <= trainer.progress_bar_metrics.keys()
    results = trainer.test(module, EpisodicBatcher(tasksets, epoch_length=20), verbose=False)[0]
    assert results["test_accuracy"] > 0.6, "chance is 0.25"
    changed = [name for name, value in module.named_parameters() if not torch.equal(value, before[name])]
    assert any(name.startswith("model.backbone.") for name in changed)
    assert "model.scale" in changed
    assert any(name.startswith("model.method.adapters.0.") for name in changed) == module.iam


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

    assert (Wide(TinyBackbone(32)).train_ways, Wide(TinyBackbone(32)).model.method.head.ridge) == (7, 3.0)
    assert Wide(TinyBackbone(32), ridge=9.0).model.method.head.ridge == 9.0
    parsed = Wide.add_model_specific_args(ArgumentParser(add_help=False)).parse_args(["--train_shots", "4"])
    module = Wide(TinyBackbone(32), **vars(parsed))
    assert (module.train_ways, module.train_shots, module.model.method.head.ridge) == (7, 4, 3.0)
    by_itself = LightningLSSVM.add_model_specific_args(ArgumentParser(add_help=False)).parse_args(["--ridge", "loo"])
    assert LightningLSSVM(TinyBackbone(32), **vars(by_itself)).model.method.head.ridge == "loo"
    chosen = LightningLSSVM(TinyBackbone(32), kernel="rbf", decoding="hamming").model.method.head
    assert (chosen.kernel, chosen.decoding) == (RBF(), "hamming")


@pytest.mark.parametrize("algorithm", [LightningReptile, LightningFEAT, LightningTPN])
def test_a_rivals_own_parser_gives_its_published_recipe(algorithm):
    class Mine(algorithm):
        lr, label_smoothing = 0.5, 0.3

    def made(kind, **options):
        model = kind(Conv4(image_size=32), **options)
        return model.recipe, model.label_smoothing, model.lr

    parsed = vars(algorithm.add_model_specific_args(ArgumentParser(add_help=False)).parse_args([]))
    assert made(algorithm, **parsed) == made(algorithm)
    recipe, smoothing, lr = made(Mine)
    assert (recipe.lr, recipe.method_lr, smoothing, lr) == (0.5, 0.5, 0.3, 0.5)
    assert made(algorithm, lr=0.5, label_smoothing=0.3) == (recipe, smoothing, lr)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        *((f"{stage}_ways", (1, 2.5, "a")) for stage in ("train", "test")),
        *((f"{stage}_{what}", (0, -1, 1.5, "a")) for stage in ("train", "test") for what in ("shots", "queries")),
        ("lr", (0, -1, float("nan"), "a")),
        ("scheduler_step", (0, -1, 1.5)),
        ("scheduler_decay", (-1, "a")),
        ("label_smoothing", (-1, 2, float("nan"))),
        ("iam", ("yes", 1)),
        ("iam_reduction", (0, 2.5)),
        ("iam_dropout", (-1, 1)),
        ("psm_iterations", (-1, 2.5)),
        ("feature_size", (0, "a")),
        ("recipe", ("x",)),
        ("loss", ("x",)),
        ("method", (3,)),
        ("features", (None, "conv4")),
    ],
)
def test_options_out_of_their_range_are_refused(name, values):
    for algorithm in (LightningPrototype, LightningFEAT):
        for value in values:
            with pytest.raises(UsageError, match=rf"(`{name}`|feat: dim) must be "):
                algorithm(**{"features": TinyBackbone(32), name: value})


@pytest.mark.parametrize("batch", [None, 3, (torch.zeros(8, 3, 32, 32),) * 3, (torch.zeros(8, 3, 32, 32), [0, 1] * 4)])
def test_what_is_no_batch_is_refused(batch):
    module = LightningPrototype(TinyBackbone(32), train_ways=2)
    for step in (module.training_step, module.validation_step, module.predict_step):
        with pytest.raises(UsageError, match="A (batch|task) must be .* but "):
            step(batch, 0)


def test_a_given_loss_is_used():
    module = LightningRidge(TinyBackbone(32), loss=lambda logits, labels: (logits * 0).sum() + 42)
    loss, _ = module.meta_learn((torch.rand(12, 3, 32, 32), torch.arange(4).repeat(3)), 0, ways=4, shots=1, queries=2)
    assert loss.item() == 42


def test_a_given_loss_may_have_weights():
    module = LightningRidge(TinyBackbone(32), loss=nn.CrossEntropyLoss(weight=torch.ones(4)))
    loss, _ = module.meta_learn((torch.rand(12, 3, 32, 32), torch.arange(4).repeat(3)), 0, ways=4, shots=1, queries=2)
    loss.backward()
    assert module.model.scale.grad.isfinite()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_batch_of_episodes_equals_one_at_a_time(algorithm):
    module = algorithm(TinyBackbone(32)).eval()
    labels = torch.tensor([0, 1, 2, 0, 0, 1, 1, 2, 2]).expand(3, -1)
    images = torch.rand(3, 9, 3, 32, 32)
    together, refined = (
        each(Episodes(images, labels, num_support=3, ways=3)) for each in (module.forward, module.predict_step)
    )
    for index in range(3):
        one = Episodes(images[index : index + 1], labels[:1], num_support=3, ways=3)
        torch.testing.assert_close(together[index], module(one)[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(refined[index], module.predict_step(one)[0], rtol=1e-4, atol=1e-5)


def test_prediction_is_refined_as_testing_is_and_the_forward_pass_is_not():
    module = LightningFSLSTM(TinyBackbone(32), psm_iterations=2, test_ways=4, test_shots=1).eval()
    module.model.scale.data.fill_(3.0)
    task = torch.rand(12, 3, 32, 32), torch.arange(4).repeat(3)
    features = module.features(Episodes.from_task(*task, ways=4, shots=1))
    method, trained = parse_method("lssvm+iam+psm(iterations=2)", learned=module.model.method), module.model.method
    torch.testing.assert_close(module.predict_step(task), 3 * method.logits(features))
    torch.testing.assert_close(module(task), 3 * trained.logits(features))
    assert not torch.allclose(module(task), module.predict_step(task))


def test_iam_needs_to_know_the_feature_size():
    with pytest.raises(UsageError, match="pass feature_size="):
        LightningFSLSTM(nn.Flatten())
    (iam,) = LightningFSLSTM(nn.Flatten(), feature_size=48).model.method.adapters
    assert iam.norm.normalized_shape == (48,)


@pytest.mark.parametrize("text", ["nn", "rr(ridge=1,normalize)", "lssvm+iam", "svm+iam(reduction=4)", "centroid"])
def test_any_method_can_be_trained(text):
    module = LightningFewShot(TinyBackbone(32), method=text)
    assert str(module.model.method) == text
    names = {name.split(".")[1] for name, _ in module.named_parameters()}
    assert names == {"backbone", "scale"} | ({"method"} if "iam" in text else set())


def test_every_argument_of_a_head_acts():
    assert LightningLSSVM(TinyBackbone(32), gamma=0.1).model.method.head.ridge == 10
    assert LightningSVM(TinyBackbone(32), tolerance=0.5, max_iterations=3).model.method.head.tolerance == 0.5
    parser = LightningLSSVM.add_model_specific_args(ArgumentParser(add_help=False))
    assert LightningLSSVM(TinyBackbone(32), **vars(parser.parse_args(["--gamma", "4"]))).model.method.head.ridge == 0.25
    assert LightningFSLSTM(TinyBackbone(32), **vars(parser.parse_args([]))).model.method.head.ridge == 0.1


def test_a_subclass_with_another_head_has_that_heads_defaults():
    class Other(LightningLSSVM):
        head_name = "rr"

    class Own(LightningLSSVM):
        head_name, ridge = "rr", 3.0

    assert Other(TinyBackbone(32)).model.method.head.ridge == LightningRidge.ridge == 50
    assert Own(TinyBackbone(32)).model.method.head.ridge == 3


def test_batch_statistics_of_episodes_are_not_trained_with():
    with pytest.raises(UsageError, match=r"\+bn in lssvm\+bn is for evaluation"):
        LightningFewShot(TinyBackbone(32), method="lssvm+bn")


def test_a_misspelt_option_is_named_and_learn2learns_others_are_let_through():
    with pytest.raises(UnknownNameError, match="LightningRidge has no option 'train_shot'. Did you mean 'train_shots'"):
        LightningRidge(TinyBackbone(32), train_shot=1)
    LightningRidge(TinyBackbone(32), meta_batch_size=16, accelerator="cpu")


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
    cifar, mini = DATASETS.get("cifar-fs"), DATASETS.get("mini")
    conv = meta_training(cifar, Conv4, pretrained=True)
    assert (conv.epochs, conv.steps_per_epoch, conv.episodes_per_step, conv.ways, conv.queries) == (60, 1000, 8, 5, 6)
    assert (conv.lr, conv.method_lr, conv.scale_lr, conv.shots) == (0.005, 0.01, 0.1, 5)
    resnet = meta_training(mini, ResNet12, pretrained=True, test_shots=5)
    assert (resnet.lr, resnet.method_lr, resnet.shots, resnet.augmentation.padding) == (0.0005, 0.005, 15, 8)
    assert meta_training(mini, ResNet12, pretrained=True, test_shots=1).shots == 5
    assert meta_training(mini, ResNet12, pretrained=False).lr == 0.1
    assert (cifar.recipe.iam_reduction, mini.recipe.iam_reduction) == (8, 16)


def test_the_recipes_optimizer_has_a_rate_for_each_part_and_follows_the_schedule(tmp_path):
    recipe = meta_training(DATASETS.get("cifar-fs"), Conv4, pretrained=True)
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

"""Reptile: the released code's numbers, the outer update by an ordinary optimiser, and what testing leaves alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fslstm_plugin.errors import UsageError
from fslstm_plugin.features import EpisodeFeatures
from fslstm_plugin.heads import one_hot
from fslstm_plugin.learn2learn import LightningReptile
from fslstm_plugin.methods import reptile
from fslstm_plugin.methods.reptile import Reptile, minibatches
from fslstm_plugin.model import FewShotModel
from fslstm_plugin.naming import parse_method
from fslstm_plugin.recipes import Augmentation, MetaRecipe
from fslstm_plugin.runs.folder import Run

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "reptile.npz"


class PublishedNetwork(nn.Module):
    """The released network without its classifier, on the reference numbers' small images."""

    def __init__(self, filters: int = 8, image_size: int = 20, classes_eps: float = 1e-3) -> None:
        super().__init__()
        for place in range(1, 5):
            self.add_module(f"conv{place}", nn.Conv2d(3 if place == 1 else filters, filters, 3, padding=1))
            self.add_module(f"bn{place}", nn.BatchNorm2d(filters, eps=classes_eps))
        self.out_features = filters * (-(-image_size // 16)) ** 2

    def forward(self, images: Tensor) -> Tensor:
        for place in range(1, 5):
            images = self.get_submodule(f"bn{place}")(self.get_submodule(f"conv{place}")(images))
            images = nn.functional.max_pool2d(images, 2, ceil_mode=True).relu()
        return images.flatten(1)


class Case:
    """A model of the reference numbers, and the numbers, in double precision.

    In single precision rounding decides, on each processor in its own way, which of two pixels a pooling takes: in the
    first outer step some are 1e-8 apart, which moves the weights by up to 3 % of their way, in the second 5e-6. In
    double precision all processors take the same, in the first step not always what the released code took.
    """

    share = (2e-2, 1e-4)  # of the distance moved, to be within in the first and the second outer step

    def __init__(self, name: str, arrays: dict[str, np.ndarray]) -> None:
        own = {key.removeprefix(f"{name}/"): each for key, each in arrays.items() if key.startswith(f"{name}/")}
        self.settings = json.loads(str(own.pop("settings")))
        self.arrays = {key: _double(torch.from_numpy(each)) for key, each in own.items()}
        self.method = Reptile(
            PublishedNetwork(),
            steps=self.settings["inner_steps"],
            test_steps=self.settings["test_steps"],
            rate=self.settings["learning_rate"],
            optimizer=name,
        ).double()
        self.method._network[0].double()
        self.begin(0)

    def begin(self, iteration: int) -> str:
        """Take the state after so many outer steps; the name of its parameters."""
        prefix = f"outer{iteration}" if iteration else "weight"
        for name, weight in self.parameters().items():
            weight.data = self.arrays[f"{prefix}/{name}"].clone()
        if iteration:
            for name, moment in self.moments().items():
                moment.copy_(self.arrays[f"second_moment{iteration}/{name}"])
            self.method.steps_taken.fill_(iteration * self.arrays["train_index"][0, ..., 0].numel())
        return prefix

    def moments(self) -> dict[str, Tensor]:
        """Adam's second moments; gradient descent has none."""
        if self.method.optimizer == "sgd":
            return {}
        return {_plain(name): moment for name, moment in self.method.moments().items()}

    def parameters(self) -> dict[str, nn.Parameter]:
        return {_plain(name): weight for name, weight in self.method._network[0].named_parameters()}

    def assert_moved_to(self, found: dict[str, Tensor], prefix: str, since: str, share: float) -> None:
        """Within a share of the distance moved; a bias before batch norm is moved by rounding alone."""
        expected = {name: self.arrays[f"{prefix}/{name}"] for name in found if not _is_free(name)}
        moved = torch.cat([(expected[name] - self.arrays[f"{since}/{name}"]).flatten() for name in expected]).norm()
        apart = torch.cat([(found[name].detach() - expected[name]).flatten() for name in expected]).norm()
        assert moved > 0
        assert apart / moved < share


def _double(array: Tensor) -> Tensor:
    return array.double() if array.is_floating_point() else array


def _plain(name: str) -> str:
    return name.removeprefix("0.").replace("1.", "classifier.", 1) if name.startswith("1.") else name.removeprefix("0.")


def _is_free(name: str) -> bool:
    return name.startswith("conv") and name.endswith("bias")


@pytest.fixture(scope="module")
def arrays() -> dict[str, np.ndarray]:
    with np.load(GOLDEN) as found:
        return dict(found)


@pytest.fixture(params=["adam", "sgd"])
def case(request, arrays) -> Case:
    return Case(request.param, arrays)


@pytest.fixture
def given_minibatches(monkeypatch):
    """Takes minibatches from a list in place of drawing them."""

    def give(schedules: Iterator[Tensor]) -> None:
        monkeypatch.setattr(reptile, "minibatches", lambda *_: next(schedules))

    return give


def _tasks(case: Case, iteration: int) -> tuple[EpisodeFeatures, Tensor]:
    """The tasks of an outer step: all images, those that are drawn with their labels."""
    tasks = case.settings["tasks_per_outer_step"]
    points = case.arrays["images"].flatten(1).expand(tasks, -1, -1)
    labels = torch.zeros(points.shape[:2], dtype=torch.int64)
    for task in range(tasks):
        labels[task, case.arrays["train_index"][iteration, task].flatten()] = case.arrays["train_label"][
            iteration, task
        ].flatten()
    return EpisodeFeatures.from_points(points, one_hot(labels[:, :5], 5).double()), labels[:, 5:]


@pytest.mark.parametrize("iteration", [0, 1])
def test_an_outer_step_is_the_published_one(case: Case, iteration: int, given_minibatches) -> None:
    # Each from the published state, so that the second does without the ties of the first.
    since = case.begin(iteration)
    given_minibatches(iter(case.arrays["train_index"][iteration]))
    parameters = case.parameters()
    outer = torch.optim.SGD(parameters.values(), lr=case.arrays[f"step_size{iteration + 1}"].item())
    loss, _ = case.method.loss(*_tasks(case, iteration), _cross_entropy)
    loss.backward()
    outer.step()
    case.assert_moved_to(dict(parameters), f"outer{iteration + 1}", since, case.share[iteration])
    for name, moment in case.moments().items():
        if not _is_free(name):
            expected = case.arrays[f"second_moment{iteration + 1}/{name}"]
            assert (moment - expected).norm() <= case.share[iteration] * expected.norm()


def test_a_task_leads_where_the_published_one_does(case: Case) -> None:
    labels = torch.zeros(len(case.arrays["images"]), dtype=torch.int64)
    labels[case.arrays["train_index"][0, 0].flatten()] = case.arrays["train_label"][0, 0].flatten()
    moment = case.method.second_moment
    weights, _ = case.method._adapted(moment, case.arrays["images"], labels, case.arrays["train_index"][0, 0])
    found = {_plain(name): each for name, each in weights.items()}
    case.assert_moved_to(found, "after_first_task", "weight", case.share[0])


@pytest.mark.parametrize("queries", ["together", "alone"])
def test_test_logits_are_the_published_ones(case: Case, queries: str, given_minibatches) -> None:
    case.begin(2)
    case.method.queries = queries
    support, query = case.arrays["test/support_index"], case.arrays["test/query_index"]
    places = {int(index): place for place, index in enumerate(support)}
    given_minibatches(iter([case.arrays["test/train_index"].clone().apply_(places.__getitem__)]))
    points = case.arrays["images"].flatten(1)
    features = EpisodeFeatures(points[support], points[query], case.arrays["test/support_label"], 5)
    expected = case.arrays["test/logits_transductive" if queries == "together" else "test/logits_inductive"]
    found = case.method.logits(features)
    assert (found - expected).abs().max() <= 1e-4 * expected.abs().max()


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())


# Properties


class Tiny(nn.Module):
    """Two layers, batch norm and dropout."""

    out_features = 6

    def __init__(self, image_size: int = 4) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout2d(0.5), nn.AdaptiveAvgPool2d(1)
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images).flatten(1)


@pytest.fixture
def model() -> FewShotModel:
    torch.manual_seed(0)
    backbone = Tiny()
    return FewShotModel(backbone, Reptile(backbone, ways=3, steps=3, batch=4, test_steps=5, test_batch=4))


def _episodes(ways: int = 3, shots: int = 2, queries: int = 4, batch: tuple[int, ...] = (2,), dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    points = torch.rand(*batch, ways * (shots + queries), 48, generator=generator, dtype=dtype)
    targets = one_hot(torch.arange(ways).repeat(shots), ways).to(dtype).expand(*batch, -1, -1)
    labels = torch.arange(ways).repeat(queries).expand(*batch, -1)
    return EpisodeFeatures.from_points(points, targets), labels


def _stepped(model: FewShotModel, rate: float, batch: int = 2, seed: int = 7) -> dict[str, Tensor]:
    """Distance that an outer step moves each parameter."""
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    features, labels = _episodes(batch=(batch,))
    torch.manual_seed(seed)
    loss, logits = model.train().loss(features, labels, _cross_entropy)
    assert logits.shape == (batch, 12, 3)
    loss.backward()
    optimizer.step()
    return {name: weight.detach() - before[name] for name, weight in model.named_parameters()}


def test_rate_0_moves_nothing_and_leaves_no_running_statistics(model: FewShotModel) -> None:
    buffers = {name: each.clone() for name, each in model.backbone.named_buffers()}
    assert all(move.abs().max() == 0 for move in _stepped(model, 0.0).values())
    assert all(torch.equal(each, buffers[name]) for name, each in model.backbone.named_buffers())
    assert model.backbone.training
    assert model.method.steps_taken == 6


def test_one_task_at_rate_1_leads_to_the_adapted_network(model: FewShotModel) -> None:
    features, labels = _episodes(batch=(1,))
    torch.manual_seed(7)
    every = torch.cat([features.labels, labels], -1)[0]
    schedule = minibatches(len(every), 4, 3)
    images = features.points[0].unflatten(-1, (3, 4, 4))
    adapted, _ = model.method._adapted(model.method.second_moment.clone(), images, every, schedule)
    _stepped(model, 1.0, batch=1)
    for name, weight in model.method._network[0].named_parameters():
        torch.testing.assert_close(weight.detach(), adapted[name], rtol=0, atol=1e-6)


def test_steps_in_bfloat16_are_near_and_see_the_step_before() -> None:
    # 0.06 apart; 0.8 where the weights of the first step are kept in bfloat16.
    torch.manual_seed(0)
    backbone = Tiny()
    model = FewShotModel(backbone, Reptile(backbone, ways=3, steps=8, batch=6, rate=0.05, optimizer="sgd"))
    state = deepcopy(model.state_dict())
    whole = _stepped(model, 1.0)
    model.load_state_dict(state)
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        reduced = _stepped(model, 1.0)
    moved = torch.cat([move.flatten() for move in whole.values()])
    apart = torch.cat([move.flatten() for move in reduced.values()]) - moved
    assert 0 < apart.norm() < 0.15 * moved.norm()


def test_one_step_of_gradient_descent_moves_by_the_mean_gradient() -> None:
    backbone = Tiny()
    method = Reptile(backbone, ways=3, steps=1, batch=18, rate=0.01, optimizer="sgd")
    model = FewShotModel(backbone, method)
    features, labels = _episodes()
    every = torch.cat([features.labels, labels], -1)
    with method._batch_mode() as network:
        images = features.points.unflatten(-1, (3, 4, 4))
        losses = [
            nn.functional.cross_entropy(network(each), of, reduction="sum")
            for each, of in zip(images, every, strict=True)
        ]
        slopes = torch.autograd.grad(sum(losses) / 2, list(network.parameters()))
    moves = _stepped(model, 0.5)
    moves = [moves[f"backbone.{name}"] for name, _ in backbone.named_parameters()] + [
        moves[f"method.classifier.{name}"] for name, _ in method.classifier.named_parameters()
    ]
    for move, slope in zip(moves, slopes, strict=True):
        torch.testing.assert_close(move, -0.5 * 0.01 * slope, rtol=1e-3, atol=1e-6)


def test_backbone_and_classifier_get_a_gradient_and_the_scale_one_of_zero(model: FewShotModel) -> None:
    _stepped(model, 1.0)
    assert model.scale.grad == 0, "several devices wait for one"
    assert all(weight.grad.abs().max() > 0 for weight in model.method._network[0].parameters())


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_testing_leaves_everything_bit_identical(model: FewShotModel, mode) -> None:
    _stepped(model, 1.0)
    before = {name: each.clone() for name, each in model.state_dict().items()}
    with mode():
        features, _ = _episodes()
        found = model.eval().logits(features)
    after = model.state_dict()
    assert all(torch.equal(after[name], each) for name, each in before.items())
    assert all(weight.requires_grad for weight in model.parameters())
    assert torch.equal(found.detach(), model.logits(_episodes()[0]).detach())


def test_moments_of_the_training_matter_in_testing(model: FewShotModel) -> None:
    first = model.eval().logits(_episodes()[0])
    model.method.second_moment += 1
    assert not torch.allclose(first, model.logits(_episodes()[0]), rtol=1e-2)


def test_an_episode_of_a_batch_gets_what_it_gets_alone(model: FewShotModel) -> None:
    features, _ = _episodes(batch=(2, 2))
    together = model.eval().logits(features)
    assert together.shape == (2, 2, 12, 3)
    alone = EpisodeFeatures.from_points(features.points[1, 0], features.targets[1, 0])
    assert torch.equal(model.logits(alone), together[1, 0])


def test_double_precision_is_kept_and_near(model: FewShotModel) -> None:
    single, double = model.eval().logits(_episodes()[0]), None
    points, targets = _episodes()[0].points, _episodes()[0].targets
    double = model.method.logits(EpisodeFeatures.from_points(points.double(), targets.double()))
    assert double.dtype == torch.float64
    torch.testing.assert_close(single.double(), double, rtol=1e-2, atol=1e-2)


def test_queries_together_follow_their_order_and_one_another(model: FewShotModel) -> None:
    features, _ = _episodes()
    model.eval()
    found = model.logits(features)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    moved = torch.cat([features.support, features.query[:, order]], 1)
    torch.testing.assert_close(model.logits(_with(features, moved)), found[:, order], rtol=1e-4, atol=1e-5)
    assert model.method.is_transductive
    assert (model.logits(_with(features, _one_replaced(features))) - found)[:, 1:].abs().max() > 1e-4


def test_queries_alone_do_not_depend_on_one_another(model: FewShotModel) -> None:
    features, _ = _episodes()
    model.eval()
    model.method.queries = "alone"
    assert not model.method.is_transductive
    found = model.logits(features)
    changed = model.logits(_with(features, _one_replaced(features)))
    assert torch.equal(found[:, 1:], changed[:, 1:])
    assert not torch.equal(found[:, :1], changed[:, :1])


def _with(features: EpisodeFeatures, points: Tensor) -> EpisodeFeatures:
    return EpisodeFeatures.from_points(points, features.targets)


def _one_replaced(features: EpisodeFeatures) -> Tensor:
    points = features.points.clone()
    points[:, features.num_support] = 0
    return points


def test_minibatches_deal_all_before_any_again() -> None:
    schedule = minibatches(75, 10, 8, torch.Generator().manual_seed(0))
    assert schedule.shape == (8, 10)
    assert schedule.flatten()[:75].unique().numel() == 75
    assert schedule.flatten()[75:].unique().numel() == 5
    assert minibatches(5, 5, 0).shape == (0, 5)


# Refusals


def test_more_classes_than_it_was_trained_for_are_refused(model: FewShotModel) -> None:
    features, _ = _episodes(ways=4)
    with pytest.raises(
        UsageError, match=r"built to tell 3 classes apart, but the episodes have 4: train reptile\(ways=4\)"
    ):
        model.logits(features)


def test_fewer_classes_are_told_apart(model: FewShotModel) -> None:
    features, _ = _episodes(ways=2)
    assert model.eval().logits(features).shape == (2, 8, 2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"ways": 1}, "`ways` must be a whole number of at least 2 and at most 1,000,000, but got 1"),
        ({"steps": 0}, "`steps` must be a whole number of at least 1 and at most 1,000,000, but got 0"),
        ({"rate": 0.0}, "`rate` must be a finite number above 0, but got 0.0"),
        ({"rate": float("nan")}, "`rate` must be a finite number above 0, but got nan"),
        ({"optimizer": "lion"}, "There is no optimizer of reptile 'lion'"),
        ({"queries": "all"}, "There is no way to treat queries 'all'"),
    ],
)
def test_arguments_out_of_range_are_named(arguments, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Reptile(Tiny(), **arguments)


def test_what_are_no_images_are_refused(model: FewShotModel) -> None:
    features = EpisodeFeatures(torch.rand(3, 12 * 3 + 1), torch.rand(2, 12 * 3 + 1), torch.arange(3))
    with pytest.raises(UsageError, match="needs square images of 3 channels, but got 37 numbers"):
        model.logits(features)


def test_a_backbone_without_a_length_of_features_is_refused() -> None:
    with pytest.raises(UsageError, match="needs the length of the features: give Sequential out_features"):
        Reptile(nn.Sequential(nn.Flatten()))


def test_the_recipe_is_the_outer_update() -> None:
    recipe = LightningReptile(Tiny()).recipe
    assert (recipe.optimizer, recipe.lr, recipe.method_lr, recipe.momentum, recipe.weight_decay) == ("sgd", 1, 1, 0, 0)
    assert [recipe.factor(share) for share in (0, 0.25, 1)] == [1, 0.75, 0]
    given = MetaRecipe(augmentation=Augmentation.published(32), lr=0.005, method_lr=0.01)
    begun = LightningReptile(Tiny()).model.method.recipe(given, pretrained=True, test_shots=1)
    assert (begun.lr, begun.method_lr) == (pytest.approx(0.05), 1)
    assert (recipe.episodes_per_step, recipe.ways * (recipe.shots + recipe.queries)) == (5, 75)


# By the command

ALGORITHM = "reptile(steps=2,test_steps=2)"
FEW = ("--episodes", 6, "--ways", 4, "--shots", 2, "--queries", 3)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def _training(runs: Path, name: str, precision: str = "32") -> tuple[object, ...]:
    return (
        "train", "--dataset", "dots", "--backbone", "tiny", "--algorithm", ALGORITHM, "--max-steps", 4,
        "--checkpoint-every", 2, "--val-episodes", 4, "--val-queries", 3, "--precision", precision,
        "--runs", runs, "--name", name,
    )  # fmt: skip


@pytest.fixture
def trained(runs: Path, fslstm) -> Run:
    """A training by the command, once."""
    if not (runs / "whole" / "model.safetensors").exists():
        result = fslstm(*_training(runs, "whole"))
        assert result.code == 0, result.err
    return Run.open(runs / "whole")


def test_a_training_is_continued_to_the_same_weights_and_moments(
    trained: Run, fslstm, stopped_in_the_fourth_step, runs: Path
) -> None:
    assert stopped_in_the_fourth_step(*_training(runs, "stopped")).code != 0
    result = fslstm("train", "--resume", "--runs", runs, "--name", "stopped")
    assert result.code == 0, result.err
    mine, whole = Run.open(runs / "stopped").load_weights(), trained.load_weights()
    assert mine.keys() == whole.keys()
    assert all(torch.equal(mine[key], whole[key]) for key in whole)
    assert whole["method.steps_taken"] == 4 * 5 * 2
    assert whole["method.second_moment"].max() > 0


def test_a_training_in_bfloat16_adapts_in_it_and_keeps_weights_in_single(trained: Run, fslstm, runs: Path) -> None:
    assert fslstm(*_training(runs, "bf16", "bf16")).code == 0
    mine, whole = Run.open(runs / "bf16").load_weights(), trained.load_weights()
    assert {each.dtype for each in mine.values()} == {each.dtype for each in whole.values()}
    moments = mine["method.second_moment"], whole["method.second_moment"]
    assert not torch.equal(*moments)
    assert (moments[0] - moments[1]).norm() < 0.1 * moments[1].norm()


def test_evaluation_in_bfloat16_passes_images_in_it(trained: Run, fslstm, runs: Path, tmp_path, monkeypatch) -> None:
    seen = []
    forward = torch.nn.functional.batch_norm

    def look(images: Tensor, *args, **kwargs) -> Tensor:
        seen.append(images.dtype)
        return forward(images, *args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "batch_norm", look)
    for method in ("reptile(test_steps=2)", "nn+bn"):
        for precision, dtype in (("32", torch.float32), ("bf16", torch.bfloat16)):
            seen.clear()
            asked = ("compare", method, "--run", "whole", "--runs", runs, *FEW, "--precision", precision)
            assert fslstm(*asked).code == 0
            assert set(seen) == {dtype}, (method, precision)


def test_it_is_compared_through_images_and_leaves_none_behind(trained: Run, fslstm, runs: Path, tmp_path) -> None:
    names = (ALGORITHM, "reptile(test_steps=5)", "reptile(queries=alone)", "nn+bn")
    file = tmp_path / "rows.json"
    result = fslstm("compare", *names, "--run", "whole", "--runs", runs, *FEW, "--json", file)
    assert result.code == 0, result.err
    rows = json.loads(file.read_text())["rows"]
    assert [row["transductive"] for row in rows] == [True, True, False, True]
    assert "reptile(steps=2,test_steps=5)" in [row["method"] for row in rows], "the other arguments are the training's"
    assert not list(runs.glob("whole/cache/*")), "images are there already"
    again = fslstm(
        "compare", *names, "--run", "whole", "--runs", runs, *FEW, "--batch-episodes", 4, "--json", tmp_path / "r.json"
    )
    assert again.code == 0, again.err
    by_batches = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert [row["accuracy"] for row in by_batches] == [row["accuracy"] for row in rows]


def test_more_ways_than_trained_for_are_refused(trained: Run, fslstm, runs: Path) -> None:
    result = fslstm("eval", "--run", "whole", "--runs", runs, "--ways", 6, "--episodes", 4, "--shots", 1)
    assert (result.code, result.out) == (2, "")
    assert "reptile was built to tell 5 classes apart, but the episodes have 6" in " ".join(result.err.split())
    result = fslstm(*_training(runs, "ways"), "--ways", 6)
    assert result.code == 2
    assert not (runs / "ways").exists()


def test_a_short_training_beats_the_untrained_start_and_its_prototypes() -> None:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)

    def tasks(count: int) -> tuple[EpisodeFeatures, Tensor]:
        """Three patterns under much noise."""
        patterns = torch.linspace(0, 1, 3 * 8 * 8).mul(torch.tensor([[3.0], [7.0], [13.0]]) * 6.28).sin()
        labels = torch.arange(3).repeat(5).expand(count, -1)
        points = patterns[labels] + 1.5 * torch.randn(count, 15, 192, generator=generator)
        targets = one_hot(labels[:, :3], 3).float()
        return EpisodeFeatures.from_points(points, targets), labels[:, 3:]

    backbone = Tiny()
    model = FewShotModel(backbone, Reptile(backbone, ways=3, steps=6, batch=5, test_steps=5))
    features, labels = tasks(40)

    def correct() -> Tensor:
        return (model.eval().logits(features).argmax(-1) == labels).float().mean(-1)

    before = correct()
    with torch.no_grad():
        vectors = backbone.eval()(features.points.view(-1, 3, 8, 8)).view(40, 15, -1)
    of_prototypes = parse_method("nn").logits(EpisodeFeatures.from_points(vectors, features.targets.double()))
    prototypes = (of_prototypes.argmax(-1) == labels).float().mean(-1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for step in range(60):
        for group in optimizer.param_groups:
            group["lr"] = 1 - step / 60
        loss, _ = model.train().loss(*tasks(3), _cross_entropy)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    after = correct()
    for gain in (after - before, after - prototypes):
        assert gain.mean() - 1.96 * gain.std() / len(gain) ** 0.5 > 0.05

"""DPGN: the published network's numbers, its limits, how queries become graphs, and the shape that it is tied to."""

from __future__ import annotations

from math import log

import pytest
import torch
import torch.nn.functional as F
from golden_rivals import Golden, assert_near
from torch import Tensor, nn

from fslstm_plugin.backbones import Conv4, ResNet12
from fslstm_plugin.errors import UsageError
from fslstm_plugin.features import EpisodeFeatures
from fslstm_plugin.heads import one_hot
from fslstm_plugin.methods.dpgn import DPGN
from fslstm_plugin.naming import parse_method
from fslstm_plugin.recipes import Augmentation
from fslstm_plugin.runs.configuration import Validation
from fslstm_plugin.testing import SmallBackbone, Tied, check_method
from fslstm_plugin.training.configuration import train_config

CASES = ("one_shot", "five_shot")
RELEASED = {"node_weight": 0.1, "distribution_weight": 0.1, "node_loss": "as-released"}


def published(golden: Golden, **options: object) -> DPGN:
    """The module with the published weights, dropout off."""
    settings = golden.settings
    method = DPGN(
        SmallBackbone(),
        settings["ways"],
        settings["shots"],
        settings["queries_per_class"],
        width=settings["dim"],
        generations=settings["generations"],
        metric=settings["metric"],
        loss_generations=settings["loss_generations"],
        generation_weight=settings["generation_weight"],
        dropout=0.0,
        **{**RELEASED, **options},
    )
    unused = f"generation{settings['generations'] - 1}.point_node."
    weights = {name: value for name, value in golden.under("weight/").items() if not name.startswith(unused)}
    counts = {name: value for name, value in method.network.state_dict().items() if name.endswith("batches_tracked")}
    method.network.load_state_dict(weights | counts)
    return method


def points(golden: Golden) -> Tensor:
    return torch.cat([golden["last_features"], golden["middle_features"]], -1)


def episodes(golden: Golden) -> EpisodeFeatures:
    n = len(golden["support_labels"])
    return EpisodeFeatures(points(golden)[:, :n], points(golden)[:, n:], golden["support_labels"])


def members(golden: Golden) -> Tensor:
    """One-hot labels of the support of all graphs."""
    labels = golden["support_labels"].expand(golden.settings["tasks"], -1)
    return one_hot(labels, golden.settings["ways"]).float()


def loss_of(golden: Golden, method: DPGN, features: EpisodeFeatures) -> tuple[Tensor, Tensor]:
    return method.train().loss(features, golden["query_labels"].expand(len(features.query), -1), criterion)


def criterion(logits, labels):
    raise AssertionError("DPGN's loss is its own")


@pytest.mark.parametrize("case", CASES)
def test_the_network_computes_what_the_published_one_does(case: str) -> None:
    golden = Golden("dpgn", case)
    method = published(golden).eval()
    found = method.propagate(points(golden), members(golden))
    n = len(golden["support_labels"])
    for number, generation in enumerate(found):
        assert_near(generation.point_edges[:, n:, :n] @ members(golden), golden[f"eval/scores{number}"], 1e-4)
    last = len(found) - 1
    assert_near(found[-1].point_edges, golden[f"eval/point_edge{last}"], 1e-4)
    assert_near(found[-1].distribution_edges, golden[f"eval/distribution_edge{last}"], 1e-4)
    assert_near(method.logits(episodes(golden)), golden[f"eval/scores{last}"], 1e-4)


def test_large_graphs_are_the_published_ones() -> None:
    golden = Golden("dpgn", "many_queries")
    logits = published(golden, node_loss="classes").eval().logits(episodes(golden))
    assert_near(logits, golden[f"eval/scores{golden.settings['generations'] - 1}"], 1e-4)


@pytest.fixture
def rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The published code takes the cross entropy of what is left to 1, whose rounding moves small gradients by 2e-3."""
    exact = F.binary_cross_entropy
    monkeypatch.setattr(F, "binary_cross_entropy", lambda p, y, **options: exact(1 - p, 1 - y, **options))


@pytest.mark.usefixtures("rounded")
@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradients_are_the_published_ones(case: str) -> None:
    golden = Golden("dpgn", case)
    method, last = published(golden), golden.settings["generations"] - 1
    for name in ("last_features", "middle_features"):
        golden[name].requires_grad_()
    loss, logits = loss_of(golden, method, episodes(golden))
    assert_near(logits, golden[f"train/scores{last}"], 1e-4)
    assert_near(loss, golden["train/loss"], 1e-3)
    loss.backward()
    found = {name: each.grad for name, each in method.network.named_parameters()}
    found |= {name: golden[name].grad for name in ("last_features", "middle_features")}
    norms = golden.under("train/grad_norm/")
    assert norms.keys() == found.keys()
    for name, norm in norms.items():
        assert_near(found[name].norm(), norm, 1e-3)


@pytest.mark.parametrize("case", CASES)
def test_edge_losses_of_all_generations_are_the_published_ones(case: str) -> None:
    golden = Golden("dpgn", case)
    method = published(golden).train()
    labels = golden["query_labels"].expand(golden.settings["tasks"], -1)
    generations = method.propagate(points(golden), members(golden))
    losses = [method.edge_loss(generation, members(golden), labels) for generation in generations]
    assert_near(torch.stack(losses), golden["train/edge_loss"], 1e-3)


@pytest.mark.parametrize("case", CASES)
def test_terms_left_out_are_the_released_ones_but_for_their_constants(case: str) -> None:
    golden = Golden("dpgn", case)
    many, weight = golden.settings["loss_generations"], golden.settings["generation_weight"]
    mean_weight = (weight * (many - 1) + 1) / many
    queries = len(golden["query_labels"])
    loss, _ = loss_of(golden, published(golden, distribution_weight=0.0), episodes(golden))
    assert_near(loss + 0.1 * 100 * mean_weight, golden["train/loss_indicator_110"], 1e-5)
    loss, _ = loss_of(golden, published(golden, distribution_weight=0.0, node_weight=0.0), episodes(golden))
    constants = (0.1 * 100 + 0.1 * log(queries)) * mean_weight
    assert_near(loss + constants, golden["train/loss_indicator_100"], 1e-5)


def test_it_keeps_the_contract_within_its_shape() -> None:
    # A distribution loss, without which the last layers of the distribution graph would learn nothing.
    for options in ({"shots": 1}, {"shots": 1, "queries": 2, "metric": "l2", "generations": 2, "loss_generations": 1}):
        tied = Tied((1, 1, 1), 6)
        check_method(
            lambda given=options: DPGN(SmallBackbone(), 3, width=6, distribution_weight=0.1, **given), tied=tied
        )


def test_edges_share_what_each_point_has_to_give() -> None:
    golden = Golden("dpgn", "one_shot")
    for number, generation in enumerate(published(golden).eval().propagate(points(golden), members(golden))):
        for edges in (generation.point_edges, generation.distribution_edges):
            torch.testing.assert_close(edges.sum(-1), torch.ones(4, 10))
        others = 1 - generation.point_edges.diagonal(dim1=-2, dim2=-1)[:, 5:]
        torch.testing.assert_close(others, torch.full((4, 5), 1 / (number + 3)), atol=1e-3, rtol=0)
    assert not torch.allclose(generation.point_edges, generation.point_edges.mT)


def test_support_in_any_order_of_classes_gives_the_same_logits() -> None:
    golden = Golden("dpgn", "five_shot")
    method, features = published(golden).eval(), episodes(golden)
    mixed = torch.arange(25).view(5, 5).T.flatten()  # the classes in turn, each's images in their order
    moved = EpisodeFeatures(features.support[:, mixed], features.query, features.labels[:, mixed])
    torch.testing.assert_close(method.logits(moved), method.logits(features))


def test_many_queries_are_dealt_out_by_what_they_are() -> None:
    golden = Golden("dpgn", "one_shot")
    method, support = published(golden).eval(), points(golden)[:1, :5]
    query = torch.rand(1, 15, 64)
    query[0, :, 0] += torch.arange(15) * 64  # of mean features 0, 1, 2 and so on
    whole = method.logits(EpisodeFeatures(support, query, torch.arange(5)))
    for number in range(3):
        graph = method.logits(EpisodeFeatures(support, query[:, number::3], torch.arange(5)))
        torch.testing.assert_close(whole[:, number::3], graph)


def test_chunks_change_nothing(monkeypatch) -> None:
    golden = Golden("dpgn", "one_shot")
    method, features = published(golden).eval(), episodes(golden)
    expected = method.logits(features)
    monkeypatch.setattr("fslstm_plugin.methods.dpgn._GRID_NUMBERS", 1)
    torch.testing.assert_close(method.logits(features), expected)


def test_it_takes_the_maps_of_two_stages() -> None:
    images = torch.rand(3, 3, 84, 84)
    backbone = Conv4(image_size=84).eval()
    method = DPGN(backbone, shots=1).eval()
    assert [layers[0].in_features for layers in (method.middle_vector, method.last_vector)] == [6400, 12800]  # released
    vectors = method.embed(backbone, images)
    assert vectors.shape == (3, 256)
    last = method.last_vector(backbone.feature_map(images).flatten(1))
    torch.testing.assert_close(vectors[:, :128], last)


def test_settings_are_the_released_ones_of_backbone_images_and_shots() -> None:
    found = {
        (kind.__name__, size, shots): DPGN(kind(size), shots=shots, width=8).settings[:6]
        for kind in (Conv4, ResNet12)
        for size in (32, 84)
        for shots in (1, 5)
    }
    assert found["Conv4", 32, 1] == found["Conv4", 84, 1] == (5, "l1", 3, 0.5, 0.1, 0)
    assert found["Conv4", 84, 5] == (5, "l1", 3, 0.5, 0, 0)
    assert found["Conv4", 32, 5] == (6, "l1", 6, 0.2, 0.1, 0.1)
    assert found["ResNet12", 84, 1] == (6, "l2", 3, 0.2, 0.1, 0)
    assert found["ResNet12", 32, 5] == (6, "l2", 6, 0.2, 0.1, 0.1)


def test_its_recipe_is_the_released_one(tmp_path) -> None:
    one_shot = {"precision": "32", "validation": Validation(shots=1)}
    recipe = train_config("cifar-fs", "conv4", "dpgn(shots=1)", **one_shot).recipe
    assert (recipe.optimizer, recipe.lr, recipe.method_lr, recipe.weight_decay) == ("adam", 1e-3, 1e-3, 1e-6)
    assert (recipe.epochs * recipe.steps_per_epoch, recipe.episodes_per_step) == (100_000, 60)
    assert (recipe.ways, recipe.shots, recipe.queries) == (5, 1, 1)
    assert recipe.augmentation == Augmentation(padding=2, jitter=0.1)
    assert [recipe.factor(step / 100_000) for step in (14_999, 15_000, 99_999)] == [1, 0.5, 0.5**6]
    reduced = train_config("cifar-fs", "conv4", "dpgn(shots=1)", pretrained=tmp_path, **one_shot).recipe
    assert (reduced.lr, reduced.method_lr) == (pytest.approx(1e-3 / 20), 1e-3)


def test_another_shape_is_refused_in_one_sentence() -> None:
    method = DPGN(SmallBackbone(), shots=1, width=6)
    for ways, shots, queries, message in (
        (10, 1, 10, r"built for 5-way 1-shot episodes, but got 10-way 1-shot ones: .* train dpgn\(ways=10,shots=1\)"),
        (5, 2, 10, r"built for 5-way 1-shot episodes, but got 5-way 2-shot ones: .* train dpgn\(ways=5,shots=2\)"),
        (5, 1, 12, "built for graphs of 5 queries, but got 12 in an episode: take a multiple of 5"),
    ):
        support, labels = torch.rand(ways * shots, 12), torch.arange(ways).repeat(shots)
        with pytest.raises(UsageError, match=message):
            method.logits(EpisodeFeatures(support, torch.rand(queries, 12), labels))
    features = EpisodeFeatures(torch.rand(4, 12), torch.rand(2, 12), torch.tensor([0, 1, 0, 0]))
    with pytest.raises(UsageError, match="dpgn needs 2 support images of every class, but their numbers differ"):
        DPGN(SmallBackbone(), ways=2, shots=2, width=6).logits(features)
    with pytest.raises(
        UsageError, match=r"Validation \(`val_ways`, .*\): dpgn was built for 5-way 1-shot .* 5-shot ones"
    ):
        train_config("cifar-fs", "conv4", "dpgn(shots=1)", precision="32")  # which validates with 5 shots


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dpgn(metric=l3)", "no metric 'l3'"),
        ("dpgn(generations=2)", r"more generations in the loss \([36]\) than in all \(2\)"),
        ("dpgn(dropout=-1)", r"dropout must be a finite number of at least 0 and below 1, but got -1"),
        ("dpgn(dropout=1)", r"dropout must be a finite number of at least 0 and below 1, but got 1"),
        ("dpgn(node_loss=x)", "no node loss 'x'"),
        ("dpgn(node_loss=as-released,queries=2)", "one query per class in a graph, but got 2"),
        ("dpgn(shots=x)", "shots must be a whole number"),
    ],
)
def test_what_is_out_of_range_is_named(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_method(text, dim=12, backbone=SmallBackbone())


def test_a_backbone_without_stages_is_refused() -> None:
    with pytest.raises(UsageError, match="last two stages, but Flatten has no stages: use conv4 or resnet12"):
        parse_method("dpgn", dim=12, backbone=nn.Flatten())
    with pytest.raises(UsageError, match="TinyBackbone has no stages"):
        train_config("dots", "tiny", "dpgn", precision="32")


def test_the_released_node_loss_needs_one_query_of_each_class() -> None:
    method = DPGN(SmallBackbone(), 3, 1, width=6, node_loss="as-released")
    features = EpisodeFeatures(torch.rand(3, 12), torch.rand(6, 12), torch.arange(3))
    with pytest.raises(UsageError, match="one query per class: train with `queries=1`"):
        method.loss(features, torch.arange(6) % 3, criterion)

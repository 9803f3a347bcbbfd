"""Relation networks: the published numbers, what must not matter, training by the command, and what it learns."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fslstm_plugin.backbones import Conv4, ResNet12
from fslstm_plugin.errors import UsageError
from fslstm_plugin.features import EpisodeFeatures
from fslstm_plugin.methods.relation_net import RelationNet
from fslstm_plugin.naming import parse_method
from fslstm_plugin.recipes import Augmentation, MetaRecipe
from fslstm_plugin.testing import check_method

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "relation_net.npz"


def golden(case: str) -> dict[str, Tensor]:
    arrays = np.load(GOLDEN)
    return {
        name.removeprefix(f"{case}/"): torch.from_numpy(arrays[name])
        for name in arrays.files
        if name.startswith(f"{case}/") and not name.endswith("settings")
    }


def backbone_of(channels: int, side: int) -> SimpleNamespace:
    """What is asked of a backbone with maps of this size."""
    return SimpleNamespace(wide_map=None, map_channels=channels, image_size=4 * side)


def published(case: dict[str, Tensor], **options: object) -> RelationNet:
    """The module with the published weights."""
    _, channels, side, _ = case["query"].shape
    method = RelationNet(backbone_of(channels, side), channels=channels, **options)
    weights = {name.removeprefix("weight/"): value for name, value in case.items() if name.startswith("weight/")}
    left = method.load_state_dict(weights, strict=False)
    assert not left.unexpected_keys
    assert {name.split(".")[0] for name in left.missing_keys if "num_batches" not in name} == {"reduction"}
    return method


def episode(case: dict[str, Tensor]) -> EpisodeFeatures:
    return EpisodeFeatures(case["support"].flatten(1), case["query"].flatten(1), case["support_labels"])


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-4) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance * expected.abs().max().item())


@pytest.mark.parametrize("name", ["published_1shot", "small_32"])
def test_scores_are_the_published_ones(name: str) -> None:
    case = golden(name)
    method = published(case).eval()
    close(method.logits(episode(case)).sigmoid(), case["eval/scores"])


def test_training_is_the_published_one() -> None:
    case = golden("small_32")
    method = published(case, momentum=1.0).train()
    support, query = case["support"].requires_grad_(), case["query"].requires_grad_()
    loss, logits = method.loss(episode(case), case["query_labels"], F.cross_entropy)
    close(logits.sigmoid(), case["train/scores"])
    close(loss, case["train/loss"], 1e-3)
    loss.backward()
    found = dict(method.named_parameters()) | {"support": support, "query": query}
    for name in (name.removeprefix("train/grad_norm/") for name in case if name.startswith("train/grad_norm/")):
        if name not in ("conv1.bias", "conv2.bias"):  # before a normalisation: nothing but rounding
            close(found[name].grad.norm(), case[f"train/grad_norm/{name}"], 1e-3)
    for name in (name.removeprefix("train/after/") for name in case if name.startswith("train/after/")):
        close(method.state_dict()[name], case[f"train/after/{name}"])


def test_shapes_are_the_published_ones() -> None:
    method = RelationNet(backbone_of(64, 19))
    del method.reduction  # ours
    assert sum(value.numel() for value in method.parameters()) == 115_601
    assert method.fc1.in_features == 9 * 64
    assert RelationNet(backbone_of(512, 21)).fc1.in_features == 9 * 64  # 84 pixels
    assert RelationNet(backbone_of(512, 8)).fc1.in_features == 4 * 64  # 32 pixels


class Enlarged(RelationNet):
    """On features of 12 numbers, made maps that are large enough for two poolings."""

    def __init__(self, **options: object) -> None:
        super().__init__(backbone_of(3, 4), channels=3, **options)
        self.reduction.requires_grad_(False)  # for images, not for features

    def logits(self, features: EpisodeFeatures) -> Tensor:
        def enlarged(points: Tensor) -> Tensor:
            return points.unflatten(-1, (3, 2, 2)).repeat_interleave(2, -1).repeat_interleave(2, -2).flatten(-3)

        return super().logits(features.derived(enlarged))


@pytest.mark.parametrize("batch_statistics", [False, True])
def test_it_keeps_the_contract(batch_statistics: bool) -> None:
    check_method(lambda: Enlarged(batch_statistics=batch_statistics))


def test_its_name_says_what_it_does() -> None:
    backbone = backbone_of(32, 8)
    name = "relation-net(channels=16,hidden=4,padding=2,momentum=0.5,batch_statistics=true)"
    method = parse_method(name, backbone=backbone)
    assert str(method) == name
    assert (method.bn1.momentum, method.is_transductive, method.episode_statistics) == (0.5, True, True)
    assert method.fc1.weight.shape == (4, 16 * 3 * 3)
    plain = parse_method("relation-net", backbone=backbone)
    assert (str(plain), plain.is_transductive, plain.episode_statistics) == ("relation-net", False, False)


def test_equal_scores_cost_a_quarter() -> None:
    method = RelationNet(backbone_of(8, 8), channels=8).eval()
    for value in method.fc2.parameters():
        torch.nn.init.zeros_(value)
    features = EpisodeFeatures(torch.randn(3, 512), torch.randn(6, 512), torch.arange(3))
    loss, _ = method.loss(features, torch.arange(6) % 3, F.cross_entropy)
    assert loss.item() == 0.25


def test_shots_are_summed() -> None:
    method = RelationNet(backbone_of(8, 8), channels=8).eval()
    support, query = torch.randn(3, 512), torch.randn(6, 512)
    once = EpisodeFeatures(2 * support, query, torch.arange(3))
    twice = EpisodeFeatures(support.repeat(2, 1), query, torch.arange(3).repeat(2))
    torch.testing.assert_close(method.logits(once), method.logits(twice))


def test_batch_statistics_leave_the_running_ones_as_they_are() -> None:
    method = RelationNet(backbone_of(8, 8), channels=8, batch_statistics=True).eval()
    before = {name: value.clone() for name, value in method.state_dict().items()}
    support, query = torch.randn(2, 3, 512), torch.randn(2, 6, 512)
    logits = method.logits(EpisodeFeatures(support, query, torch.arange(3)))
    assert all(torch.equal(value, before[name]) for name, value in method.state_dict().items())
    trained = method.train().logits(EpisodeFeatures(support[:1], query[:1], torch.arange(3)))
    torch.testing.assert_close(trained[0], logits[0], msg="one episode is normalised as in training")


@pytest.mark.parametrize(("backbone", "size"), [(Conv4(32), 8), (Conv4(84), 21), (ResNet12(32), 8)])
def test_images_become_wide_maps(backbone: Conv4 | ResNet12, size: int) -> None:
    method = RelationNet(backbone).eval()
    images = torch.randn(2, 3, backbone.image_size, backbone.image_size)
    vectors = method.embed(backbone.eval(), images)
    assert vectors.shape == (2, 64 * size * size)
    expected = F.conv2d(backbone.wide_map(images), method.reduction.weight, method.reduction.bias)
    torch.testing.assert_close(vectors.unflatten(1, (64, size, size)), expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("padding=0", "padding=0 leaves nothing of maps of 8 x 8: use padding=1."),
        ("padding=-1", "padding must be a whole number of at least 0 and at most 1,000,000, but got -1."),
        ("momentum=0", "momentum must be a finite number above 0 and at most 1, but got 0."),
        ("hidden=0", "hidden must be a whole number of at least 1 and at most 1,000,000, but got 0."),
        ("channels=none", "channels must be a whole number of at least 1 and at most 1,000,000, but got None."),
        ("batch_statistics=1", "must be true or false, but got 1."),
    ],
)
def test_what_is_refused(options: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_method(f"relation-net({options})", backbone=backbone_of(8, 8))


def test_the_recipe_is_the_published_one() -> None:
    standard = MetaRecipe(augmentation=Augmentation.published(84), lr=0.1, method_lr=0.1)
    method = RelationNet(backbone_of(8, 8))
    one, five = (method.recipe(standard, pretrained=False, test_shots=shots) for shots in (1, 5))
    assert one.epochs * one.steps_per_epoch * one.episodes_per_step == 500_000
    assert [(each.shots, each.queries) for each in (one, five)] == [(1, 15), (5, 10)]
    assert (one.optimizer, one.lr, one.method_lr, one.clip_norm) == ("adam", 1e-3, 1e-3, 0.5)
    assert [one.factor(episodes / 500_000) for episodes in (99_999, 100_000, 499_999)] == [1, 0.5, 0.5**4]
    assert method.recipe(standard, pretrained=True, test_shots=1).lr == 1e-4

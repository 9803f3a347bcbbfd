"""FEAT: the published module's numbers, its limits, and what it takes of the backbone."""

from __future__ import annotations

import pytest
import torch
from golden_rivals import Golden, assert_near
from torch import nn

from fslstm_plugin.backbones import Conv4, ResNet12
from fslstm_plugin.errors import UsageError
from fslstm_plugin.features import EpisodeFeatures
from fslstm_plugin.methods.feat import FEAT
from fslstm_plugin.naming import parse_method
from fslstm_plugin.recipes import Augmentation
from fslstm_plugin.testing import SmallBackbone, check_method
from fslstm_plugin.training.configuration import train_config

CASES = ("conv4_1shot", "conv4_5shot", "sharp_3shot")
KEYS = {"inductive": "", "semi": "semi_feat/", "semi-proto": "semi_protofeat/"}


def published(golden: Golden, variant: str = "inductive") -> FEAT:
    """The module with the published weights, dropout off."""
    settings = golden.settings
    method = FEAT(
        settings["dim"],
        nn.Identity(),
        variant,
        temperature=settings["temperature"],
        balance=settings["balance"],
        aux_temperature=settings["temperature2"],
        attention_dropout=0.0,
        dropout=0.0,
    )
    method.load_state_dict(golden.under("weight/"))
    return method


def episode(golden: Golden) -> EpisodeFeatures:
    return EpisodeFeatures(golden["support"], golden["query"], golden["support_labels"])


def criterion(logits, labels):
    raise AssertionError("FEAT's loss is its own")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("variant", KEYS)
def test_logits_and_loss_are_the_published_ones(case: str, variant: str) -> None:
    golden = Golden("feat", case)
    method, features = published(golden, variant), episode(golden)
    assert_near(method.eval().logits(features), golden[f"{KEYS[variant]}eval/logits"], 1e-4)
    loss, _ = method.train().loss(features, golden["query_labels"], criterion)
    assert_near(loss, golden[f"{KEYS[variant]}train/loss"], 1e-3)


@pytest.mark.parametrize("case", CASES)
def test_contrast_and_gradients_are_the_published_ones(case: str) -> None:
    golden = Golden("feat", case)
    method = published(golden).train()
    support, query = golden["support"].requires_grad_(), golden["query"].requires_grad_()
    features = EpisodeFeatures(support, query, golden["support_labels"])
    labels = torch.cat([golden["support_labels"], golden["query_labels"]])
    aux_logits = method.contrast(torch.cat([support, query]), labels, features)
    assert_near(aux_logits, golden["train/aux_logits"], 1e-4)
    loss, logits = method.loss(features, golden["query_labels"], criterion)
    assert_near(logits, golden["train/logits"], 1e-4)
    loss.backward()
    found = {name: each.grad for name, each in method.named_parameters()} | {
        "support": support.grad,
        "query": query.grad,
    }
    norms = golden.under("train/grad_norm/")
    assert norms.keys() == found.keys()
    for name, norm in norms.items():
        assert_near(found[name].norm(), norm, 1e-3)


@pytest.mark.parametrize("variant", KEYS)
def test_it_keeps_the_contract(variant: str) -> None:
    check_method(lambda: FEAT(12, SmallBackbone(), variant))


def test_without_output_map_prototypes_are_normalised_only() -> None:
    golden = Golden("feat", "conv4_1shot")
    method = published(golden)
    nn.init.zeros_(method.output_map.weight)
    nn.init.zeros_(method.output_map.bias)
    prototypes = golden["support"][golden["support_labels"].argsort()]
    expected = -torch.cdist(golden["query"], method.norm(prototypes)).square() / golden.settings["temperature"]
    assert_near(method.logits(episode(golden)), expected.detach(), 1e-5)


def test_without_queries_semi_is_inductive() -> None:
    golden = Golden("feat", "conv4_5shot")
    prototypes, none = torch.randn(5, 64), torch.empty(0, 64)
    method = published(golden, "semi")
    torch.testing.assert_close(
        method.adapt(prototypes, torch.cat([prototypes, none])), method.adapt(prototypes, prototypes)
    )


def test_maps_are_averaged_over_the_image() -> None:
    backbone = Conv4(image_size=84)
    method = FEAT(backbone.out_features, backbone).eval()
    assert method.query_map.weight.shape == (512, 512)
    support, query, labels = torch.rand(5, 512, 3, 3), torch.rand(7, 512, 3, 3), torch.arange(5)
    maps = EpisodeFeatures(support.flatten(1), query.flatten(1), labels, map_shape=backbone.map_shape)
    vectors = EpisodeFeatures(support.mean((-2, -1)), query.mean((-2, -1)), labels)
    torch.testing.assert_close(method.logits(maps), method.logits(vectors))


def test_constants_are_the_published_ones_of_backbone_and_shots() -> None:
    def constants(backbone: nn.Module, shots: int, **given: float) -> tuple[float, ...]:
        support, labels = torch.rand(2 * shots, 4), torch.arange(2).repeat(shots)
        return FEAT(4, backbone, **given).constants(EpisodeFeatures(support, torch.rand(3, 4), labels))

    assert constants(nn.Identity(), 1) == (1, 64, 16)
    assert constants(Conv4(32), 5) == (0.1, 32, 64)
    assert constants(ResNet12(32), 1) == (0.01, 64, 64)
    assert constants(ResNet12(32), 5, temperature=7.0) == (0.1, 7, 32)


@pytest.mark.parametrize(
    ("backbone", "optimizer", "lr", "milestones"),
    [("conv4", "adam", 1e-4, 9), ("resnet12", "sgd", 2e-4, 4)],
)
def test_its_recipe_from_pretrained_weights_is_the_published_one(tmp_path, backbone, optimizer, lr, milestones) -> None:
    recipe = train_config("cifar-fs", backbone, "feat", pretrained=tmp_path, test_shots=1, precision="32").recipe
    assert (recipe.optimizer, recipe.lr, recipe.method_lr) == (optimizer, lr, pytest.approx(10 * lr))
    assert (recipe.epochs * recipe.steps_per_epoch, recipe.episodes_per_step) == (20_000, 1)
    assert (recipe.ways, recipe.shots, recipe.queries) == (5, 1, 15)
    assert recipe.augmentation == Augmentation(0, 0, 0)
    assert len(recipe.milestones) == milestones
    assert recipe.dropout == (0 if backbone == "conv4" else 1)
    assert recipe.factor(0.99) == 0.5**milestones


def test_what_is_out_of_range_is_named() -> None:
    for text, message in (
        ("feat(variant=x)", "no variant 'x'"),
        ("feat(temperature=0)", "temperature must be a finite number above 0"),
        ("feat(dropout=2)", "dropout must be a finite number of at least 0 and below 1, but got 2"),
        ("feat(attention_dropout=much)", "attention_dropout must be a finite number of at least 0"),
    ):
        with pytest.raises(UsageError, match=message):
            parse_method(text, dim=12, backbone=SmallBackbone())

"""TPN: the published numbers, and what holds of label propagation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fslstm_plugin.backbones import Conv4, ResNet12
from fslstm_plugin.errors import UsageError
from fslstm_plugin.features import EpisodeFeatures
from fslstm_plugin.methods.tpn import TPN, normalized, similarities, with_neighbours
from fslstm_plugin.naming import parse_method
from fslstm_plugin.recipes import Augmentation, MetaRecipe
from fslstm_plugin.testing import check_method, small_episodes

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "tpn.npz"
CASES = {"published_1shot": 20, "small_32": 10}  # neighbours
every_case = pytest.mark.parametrize("name", CASES)


class Maps(nn.Module):
    """What is asked of a backbone."""

    def __init__(self, *map_shape: int) -> None:
        super().__init__()
        self.map_shape = map_shape


def golden(case: str) -> dict[str, Tensor]:
    arrays = np.load(GOLDEN)
    return {
        name.removeprefix(f"{case}/"): torch.from_numpy(arrays[name])
        for name in arrays.files
        if name.startswith(f"{case}/") and not name.endswith("settings")
    }


def published(name: str, case: dict[str, Tensor]) -> TPN:
    """The module with the published weights."""
    method = TPN(Maps(*case["query"].shape[1:]), k=CASES[name])
    weights = {name.removeprefix("weight/"): value for name, value in case.items() if name.startswith("weight/")}
    left = method.load_state_dict(weights, strict=False)
    assert not left.unexpected_keys
    assert all("num_batches" in name for name in left.missing_keys)
    return method


def episode(case: dict[str, Tensor]) -> EpisodeFeatures:
    return EpisodeFeatures(case["support"].flatten(1), case["query"].flatten(1), case["support_labels"])


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-4) -> None:
    atol = tolerance * expected.abs().max().item()
    torch.testing.assert_close(actual, expected.to(actual), rtol=0, atol=atol)


@every_case
def test_every_step_is_the_published_one(name: str) -> None:
    case = golden(name)
    method, features = published(name, case).eval(), episode(case)
    widths = method.widths(features.points)
    close(widths, case["eval/sigma"])
    weights = similarities(features.points.double(), widths.double())
    close(weights, case["eval/weights_dense"])
    close(normalized(with_neighbours(weights, method.k)), case["eval/propagation"])
    close(method.scores(features), case["eval/scores"])
    loss, logits = method.loss(features, case["query_labels"], F.cross_entropy)
    close(loss, case["eval/loss"], 1e-3)
    close(logits, case["eval/scores"][features.num_support :])


@every_case
def test_training_is_the_published_one(name: str) -> None:
    case = golden(name)
    method = published(name, case).train()
    support, query = case["support"].requires_grad_(), case["query"].requires_grad_()
    loss, logits = method.loss(episode(case), case["query_labels"], F.cross_entropy)
    close(logits, case["train/scores"][len(support) :])
    close(loss, case["train/loss"], 1e-3)
    loss.backward()
    found = dict(method.named_parameters()) | {"support": support, "query": query}
    for key in (key.removeprefix("train/grad_norm/") for key in case if key.startswith("train/grad_norm/")):
        if key not in ("conv1.bias", "conv2.bias"):  # before a normalisation: nothing but rounding
            close(found[key].grad.norm(), case[f"train/grad_norm/{key}"], 1e-3)


def test_the_published_module_has_so_many_weights() -> None:
    assert sum(value.numel() for value in TPN(Maps(64, 5, 5)).parameters()) == 37_684
    for backbone in (Conv4(32), Conv4(84), ResNet12(32)):
        assert TPN(backbone).fc1.in_features == 4


@pytest.mark.parametrize("options", ["", "(k=4,alpha=0.5)", "(channels=2)"])
def test_it_keeps_the_contract(options: str) -> None:
    maps = Maps(3, 2, 2)

    def make() -> TPN:
        method = parse_method(f"tpn{options}", dim=12, backbone=maps)
        torch.nn.init.uniform_(method.fc2.weight, 0, 0.2)  # as after training
        return method

    check_method(make, backbone=maps)


@pytest.fixture
def features() -> EpisodeFeatures:
    return EpisodeFeatures(*(small_episodes(3)[place] for place in (0, 2, 1)))


def test_propagation(features: EpisodeFeatures) -> None:
    method = TPN(Maps(3, 2, 2), k=5).double().eval()
    widths = method.widths(features.points)
    dense = similarities(features.points, widths)
    torch.testing.assert_close(similarities(features.points, -widths), dense)
    torch.testing.assert_close(dense.diagonal(), torch.ones_like(widths))
    weights = with_neighbours(dense, 5)
    assert ((weights > 0).sum(-1) >= 5).all()
    assert (weights == 0).any()
    propagation = normalized(weights)
    torch.testing.assert_close(propagation, propagation.mT)
    roots = weights.sum(-1).sqrt()
    torch.testing.assert_close(propagation @ roots, roots)
    assert torch.linalg.eigvalsh(propagation).abs().max() < 1 + 1e-9
    scores, labels = method.scores(features), F.pad(features.targets, (0, 0, 0, features.num_query))
    assert (scores > -1e-12).all()
    torch.testing.assert_close(roots @ scores, roots @ labels / (1 - 0.99))


def test_alpha_zero_moves_no_label(features: EpisodeFeatures) -> None:
    scores = TPN(Maps(3, 2, 2), alpha=0.0).double().eval().scores(features)
    torch.testing.assert_close(scores, F.pad(features.targets, (0, 0, 0, features.num_query)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("(alpha=1)", "alpha must be a finite number of at least 0 and below 1, but got 1."),
        ("(alpha=-1)", "alpha must be a finite number of at least 0 and below 1, but got -1."),
        ("(width=0)", "width must be a finite number above 0, but got 0."),
        ("(k=0)", "k must be a whole number of at least 1 and at most 1,000,000, but got 0."),
        ("(channels=0.5)", "channels must be a whole number of at least 1 and at most 1,000,000, but got 0.5."),
    ],
)
def test_what_is_refused(options: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_method(f"tpn{options}", backbone=Maps(3, 2, 2))


def test_all_widths_begin_as_asked() -> None:
    points = torch.randn(20, 12)
    torch.testing.assert_close(TPN(Maps(3, 2, 2), width=2.0).widths(points), torch.full((20,), 2.0))


def test_a_backbone_without_maps_is_named() -> None:
    with pytest.raises(
        UsageError, match="tpn needs feature maps, but Linear has no map_shape: use a backbone that has"
    ):
        TPN(nn.Linear(2, 2))


def test_the_recipe_is_the_published_one() -> None:
    standard = MetaRecipe(augmentation=Augmentation.published(84), lr=0.1, method_lr=0.1)
    recipe = TPN(Maps(3, 2, 2)).recipe(standard, pretrained=False, test_shots=1)
    assert recipe.epochs * recipe.steps_per_epoch * recipe.episodes_per_step == 210_000
    assert (recipe.shots, recipe.queries, recipe.lr, recipe.method_lr) == (1, 15, 1e-3, 1e-3)
    halved = [recipe.factor(episodes / 210_000) for episodes in (0, 9_999, 10_000, 50_000, 209_999)]
    assert halved == [1, 1, 0.5, 0.5**5, 0.5**20]
    assert TPN(Maps(3, 2, 2)).recipe(standard, pretrained=True, test_shots=5).lr == 1e-4

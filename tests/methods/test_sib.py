"""SIB: the published module's numbers, its closed form, its limits, and the shape that it is tied to."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from golden_rivals import Golden, assert_near

from fslstm_plugin.errors import UsageError
from fslstm_plugin.features import EpisodeFeatures
from fslstm_plugin.methods.sib import SIB
from fslstm_plugin.naming import parse_method
from fslstm_plugin.recipes import Augmentation
from fslstm_plugin.runs.configuration import Validation
from fslstm_plugin.testing import Tied, check_method
from fslstm_plugin.training.configuration import train_config

CASES = ("published_1shot", "published_5shot", "large_steps")


def published(golden: Golden, steps: int = 3) -> SIB:
    """The module with the published weights."""
    method = SIB(golden.settings["dim"], steps=steps, step_size=golden.settings["inner_learning_rate"])
    method.load_state_dict(golden.under("weight/"))
    return method.eval()


def episode(golden: Golden) -> EpisodeFeatures:
    return EpisodeFeatures(golden["support"], golden["query"], golden["support_labels"])


def criterion(logits, labels):
    raise AssertionError("SIB's loss is its own")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_it_computes_what_the_published_module_does(case: str, steps: int) -> None:
    golden = Golden("sib", case)
    method, features = published(golden, steps), episode(golden)
    expected = golden.under(f"steps{steps}/")
    assert_near(method.classifier(features, F.normalize(features.query, dim=-1)), expected["classifier"], 1e-4)
    loss, logits = method.loss(features, golden["query_labels"], criterion)
    assert_near(logits, expected["logits"], 1e-4)
    assert_near(loss, expected["loss"], 1e-3)


@pytest.mark.parametrize("case", CASES)
def test_gradients_through_the_steps_are_the_published_ones(case: str) -> None:
    golden = Golden("sib", case)
    method = published(golden).train()
    method.loss(episode(golden), golden["query_labels"], criterion)[0].backward()
    found = {name: each.grad for name, each in method.named_parameters()}
    norms = golden.under("steps3/grad_norm/")
    assert norms.keys() == found.keys()
    for name, norm in norms.items():
        assert_near(found[name].norm(), norm, 1e-3)


def test_it_keeps_the_contract_within_its_shape() -> None:
    tied = Tied(shots=(2, 1, 3), queries=6)
    check_method(lambda: SIB(12, ways=3, queries=2, step_size=0.1), tied=tied)
    check_method(lambda: parse_method("sib(ways=3,queries=2,steps=1)", dim=12), tied=tied)


def test_a_step_is_the_derivative_of_the_logits_by_the_classifier() -> None:
    golden = Golden("sib", "large_steps")
    method, features = published(golden, steps=1).double(), episode(golden)
    features = EpisodeFeatures(features.support.double(), features.query.double(), features.labels)
    query = F.normalize(features.query, dim=-1)
    begun, moved = (published(golden, steps).double().classifier(features, query) for steps in (0, 1))
    leaf = begun.detach().requires_grad_()
    logits = method.classify(query, leaf)
    (expected,) = torch.autograd.grad(logits, leaf, method.gradient_net(logits).detach())
    torch.testing.assert_close(moved, begun - method.step_size * expected)


def test_steps_are_across_the_classifier() -> None:
    golden = Golden("sib", "large_steps")
    query = F.normalize(golden["query"], dim=-1)
    begun, moved = (published(golden, steps).classifier(episode(golden), query) for steps in (0, 1))
    step = moved - begun
    torch.testing.assert_close((begun * step).sum(-1), torch.zeros(5), atol=1e-5, rtol=0)
    torch.testing.assert_close(moved.square().sum(-1), begun.square().sum(-1) + step.square().sum(-1))


@pytest.mark.parametrize("still", [{"steps": 0}, {"step_size": 0.0}])
def test_without_steps_it_is_the_nearest_prototype_by_cosine(still: dict) -> None:
    support, query, labels = torch.rand(10, 6), torch.rand(75, 6), torch.arange(10) % 5
    unit = F.normalize(support, dim=-1)
    prototypes = torch.stack([unit[labels == label].mean(0) for label in range(5)])
    expected = 10 * F.normalize(query, dim=-1) @ F.normalize(prototypes, dim=-1).T
    torch.testing.assert_close(SIB(6, **still).logits(EpisodeFeatures(support, query, labels)), expected)


def test_a_class_without_direction_keeps_none() -> None:
    support = torch.eye(3, 4)
    support[0] = 0
    support.requires_grad_()
    logits = SIB(4, ways=3, queries=1).logits(EpisodeFeatures(support, torch.rand(3, 4), torch.arange(3)))
    assert (logits[:, 0] == 0).all()
    logits.sum().backward()
    assert logits.isfinite().all()
    assert support.grad.isfinite().all()


def test_episodes_of_a_batch_share_nothing_in_training() -> None:
    method = SIB(6, ways=3, queries=4, step_size=0.1).train()
    support, query, labels = torch.rand(4, 3, 6), torch.rand(4, 12, 6), torch.arange(3)
    together = method.logits(EpisodeFeatures(support, query, labels))
    alone = torch.stack([method.logits(EpisodeFeatures(*each, labels)) for each in zip(support, query, strict=True)])
    torch.testing.assert_close(together, alone)


def test_another_shape_is_refused_in_one_sentence() -> None:
    method = SIB(6)
    for ways, queries, message in (
        (10, 150, r"built for 5-way episodes, but got 10-way ones: .* or train sib\(ways=10\)"),
        (5, 40, r"steps over 75 queries per episode.*but got 40: .* or name sib\(queries=8\)"),
        (5, 1, r"steps over 75 queries per episode.*but got 1: use the same number in .*testing\."),
    ):
        with pytest.raises(UsageError, match=message):
            method.logits(EpisodeFeatures(torch.rand(ways, 6), torch.rand(queries, 6), torch.arange(ways)))
    for given in ({"ways": 3}, {"queries": 6}):
        with pytest.raises(UsageError, match="sib (was built for|sums its steps over)"):
            train_config("cifar-fs", "conv4", "sib", given=given, precision="32")


def test_a_length_that_is_no_number_is_refused() -> None:
    with pytest.raises(UsageError, match="`dim` must be a whole number"):
        SIB("8")  # type: ignore[arg-type]


def test_it_takes_another_number_of_queries_when_told() -> None:
    golden = Golden("sib", "published_1shot")
    trained = published(golden)
    fewer = parse_method(f"sib(queries=3,step_size={trained.step_size})", dim=64, learned=trained)
    assert fewer.logits(EpisodeFeatures(golden["support"], golden["query"][:15], golden["support_labels"])).shape == (
        15,
        5,
    )


def test_its_recipe_is_the_published_one(tmp_path) -> None:
    recipe = train_config("cifar-fs", "conv4", "sib", pretrained=tmp_path, test_shots=1, precision="32").recipe
    assert (recipe.optimizer, recipe.frozen_backbone, recipe.method_lr, recipe.weight_decay) == (
        "sgd",
        True,
        1e-3,
        5e-4,
    )
    assert (recipe.epochs * recipe.steps_per_epoch, recipe.episodes_per_step) == (50_000, 1)
    assert (recipe.ways, recipe.shots, recipe.queries) == (5, 1, 15)
    assert recipe.factor(0.99) == 1
    assert recipe.augmentation == Augmentation(padding=4)
    four = Validation(ways=4)
    scratch = train_config("cifar-fs", "conv4", "sib(ways=4)", precision="32", validation=four).recipe
    assert (scratch.frozen_backbone, scratch.ways) == (False, 4)
    with pytest.raises(UsageError, match="built for 4-way episodes, but got 5-way ones"):  # told before the training
        train_config("cifar-fs", "conv4", "sib(ways=4)", precision="32")

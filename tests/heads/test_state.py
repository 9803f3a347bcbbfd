"""A fitted head as a module: it moves, is saved and loaded, and leaves no episode in a model's weights."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

from fslstm_plugin.errors import UsageError
from fslstm_plugin.gram import EpisodeGram
from fslstm_plugin.heads import Dual, Head, LSSVMClassifier, RidgeClassifier, one_hot


class Scaled(Head):
    """A head with a parameter, as a third party's may have."""

    def __init__(self, support=None, labels=None, ways=None, *, kernel="linear") -> None:
        super().__init__(support, labels, ways, kernel=kernel)
        self.weight = nn.Parameter(torch.ones(()))

    def solve(self, kernel: Tensor, targets: Tensor) -> Dual:
        return Dual(self.weight * targets, torch.zeros_like(targets[..., 0, :]))


@pytest.fixture
def episode() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(2, 6, 8), torch.tensor([0, 1, 2, 0, 1, 2]), torch.randn(2, 4, 8)


def test_a_fit_is_saved_and_loaded_into_a_head_that_is_not_fitted(episode) -> None:
    support, labels, query = episode
    fitted, loaded = LSSVMClassifier(support, labels), LSSVMClassifier()
    loaded.load_state_dict(fitted.state_dict())
    assert torch.equal(loaded(query), fitted(query))
    assert loaded.fitted_support is not fitted.fitted_support


def test_loading_makes_the_head_what_was_saved(episode) -> None:
    support, labels, query = episode
    head = RidgeClassifier(support, labels)
    head.load_state_dict(RidgeClassifier(support[:, :4, :3], labels[:4]).state_dict())
    assert head(query[..., :3]).shape == (2, 4, 3)
    head.load_state_dict(RidgeClassifier().state_dict())
    with pytest.raises(UsageError, match="is not fitted"):
        head(query)


def test_a_fit_does_not_change_with_the_callers_tensors(episode) -> None:
    support, labels, query = episode
    head = RidgeClassifier(support, labels)
    expected = head(query)
    support.zero_()
    labels.fill_(1)
    assert torch.equal(head(query), expected)


def test_a_fit_moves_with_the_head(episode) -> None:
    support, labels, query = episode
    head = RidgeClassifier(support, labels)
    expected = head(query)
    assert head.double()(query.double()).dtype == torch.float64
    torch.testing.assert_close(head.bfloat16()(query.bfloat16()).float(), expected, rtol=0.1, atol=0.05)
    assert {tensor.device.type for tensor in head.to("meta").buffers()} == {"meta"}


def test_a_head_fitted_to_features_with_a_gradient_is_copied_without_it(episode) -> None:
    support, labels, query = episode
    model = nn.ModuleDict({"backbone": nn.Linear(8, 8), "head": LSSVMClassifier()})
    fitted = model["head"].fit_(model["backbone"](support), labels)
    for copied in (copy.deepcopy(model)["head"], pickle.loads(pickle.dumps(model))["head"]):
        assert torch.equal(copied(query), fitted(query))
        assert not copied.fitted_support.requires_grad
    fitted(query).square().sum().backward()
    assert model["backbone"].weight.grad.abs().sum() > 0


def test_predicting_leaves_no_episode_in_the_weights_of_a_model(episode) -> None:
    support, labels, query = episode
    model = nn.ModuleDict({"backbone": nn.Linear(8, 8), "head": LSSVMClassifier()})
    names = set(model.state_dict())
    gram = EpisodeGram.from_features(model["backbone"](support), model["backbone"](query))
    model["head"].predict(gram, one_hot(labels, 3).expand(2, -1, -1))
    assert set(model.state_dict()) == names == {"backbone.weight", "backbone.bias"}


def test_parameters_of_a_head_are_trained_and_saved_beside_its_fit(episode) -> None:
    support, labels, query = episode
    head = Scaled(support, labels)
    head(query).square().sum().backward()
    assert head.weight.grad != 0
    loaded = Scaled()
    with torch.no_grad():
        head.weight.fill_(3.0)
    loaded.load_state_dict(head.state_dict())
    assert torch.equal(loaded(query), head(query))
    assert Scaled().load_state_dict(Scaled().state_dict()).missing_keys == []

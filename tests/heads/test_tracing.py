"""Heads under vmap, compile and export, and on a device that only pretends to exist."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from fslstm_plugin.errors import UsageError
from fslstm_plugin.gram import EpisodeGram
from fslstm_plugin.heads import Head, LSSVMClassifier, PrototypeClassifier, RidgeClassifier, SVMClassifier, one_hot

HEADS: dict[str, Callable[[], Head]] = {
    "prototype": PrototypeClassifier,
    "ridge": RidgeClassifier,
    "lssvm": LSSVMClassifier,
    "lssvm_pairs": lambda: LSSVMClassifier(coding="one-vs-one"),
    "lssvm_leave_one_out": lambda: LSSVMClassifier(ridge="loo", kernel="rbf"),
}
every_head = pytest.mark.parametrize("make", HEADS.values(), ids=HEADS)
TORCH_2_6 = torch.__version__.startswith("2.6.")
LABELS = torch.tensor([[0, 1, 2, 0, 1, 2], [2, 2, 1, 0, 0, 2]])


class Fitting(nn.Module):
    """Fits and answers in one call."""

    def __init__(self, head: Head) -> None:
        super().__init__()
        self.head = head

    def forward(self, support: Tensor, labels: Tensor, query: Tensor) -> Tensor:
        return self.head.fit_(support, labels, ways=3)(query)


class Predicting(Fitting):
    """The same below the checks."""

    def forward(self, support: Tensor, labels: Tensor, query: Tensor) -> Tensor:
        return self.head.predict(EpisodeGram.from_features(support, query), one_hot(labels, 3))


both_ways = pytest.mark.parametrize("kind", [Fitting, Predicting])


@pytest.fixture
def episodes() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(2, 6, 20), LABELS, torch.randn(2, 5, 20)


def close(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got.to(expected), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [*HEADS.values(), SVMClassifier], ids=[*HEADS, "svm"])
@both_ways
def test_mapping_over_episodes_is_the_batch(make: Callable[[], Head], kind: type[Fitting], episodes) -> None:
    expected = Fitting(make())(*episodes)
    close(torch.func.vmap(kind(make()))(*episodes), expected)


def test_mapping_over_one_of_several_dimensions_and_its_gradient() -> None:
    torch.manual_seed(0)
    support, query = torch.randn(2, 4, 6, 20).double(), torch.randn(2, 4, 5, 20).double()
    for make in (*HEADS.values(), lambda: SVMClassifier(tolerance=1e-12)):
        fitting = Fitting(make())
        expected = fitting(support, LABELS[0], query)
        mapped = torch.func.vmap(lambda s, q, fitting=fitting: fitting(s, LABELS[0], q), in_dims=1, out_dims=1)
        close(mapped(support, query), expected)
    for make in (RidgeClassifier, lambda: SVMClassifier(tolerance=1e-12)):

        def loss(s, q, make=make):
            return Fitting(make())(s, LABELS[0], q).square().sum()

        leaf = support[0].clone().requires_grad_()
        loss(leaf, query[0]).backward()
        close(torch.func.vmap(torch.func.grad(loss))(support[0], query[0]), leaf.grad)
        close(torch.func.grad(lambda s, loss=loss: torch.func.vmap(loss)(s, query[0]).sum())(support[0]), leaf.grad)
        close(torch.func.jacrev(loss)(support[0, 0], query[0, 0]), leaf.grad[0])


def test_the_gradient_of_an_svm_is_not_differentiated() -> None:
    def loss(support: Tensor) -> Tensor:
        return Fitting(SVMClassifier())(support, LABELS[0], support[:1]).pow(3).sum()

    support = torch.rand(6, 20)
    with pytest.raises(UsageError, match="cannot be differentiated again"):
        torch.func.grad(lambda s: torch.func.grad(loss)(s).sum())(support)
    (slope,) = torch.autograd.grad(loss(support.requires_grad_()), support, create_graph=True)
    with pytest.raises(UsageError, match="cannot be differentiated again"):
        slope.sum().backward()


def test_the_jacobian_of_an_svm_is_mapped_over_its_answers() -> None:
    torch.manual_seed(0)
    support, query = torch.randn(6, 20).double().requires_grad_(), torch.randn(2, 20).double()
    answers = Fitting(SVMClassifier(tolerance=1e-12))(support, LABELS[0], query)
    rows = [torch.autograd.grad(answer, support, retain_graph=True)[0] for answer in answers.flatten()]
    at_once = torch.func.jacrev(lambda s: Fitting(SVMClassifier(tolerance=1e-12))(s, LABELS[0], query))
    close(at_once(support.detach()).flatten(0, 1), torch.stack(rows))


@every_head
@both_ways
@pytest.mark.parametrize("strict", [False, True])
def test_exported_heads_answer_alike(make: Callable[[], Head], kind: type[Fitting], strict: bool, episodes) -> None:
    if TORCH_2_6 and strict and kind is Fitting:
        pytest.skip("torch 2.6 exports nothing strictly that sets attributes, as fitting does")
    exported = torch.export.export(kind(make()), episodes, strict=strict).module()
    other = [torch.randn_like(episodes[0]), LABELS.flip(0), torch.randn_like(episodes[2])]
    close(exported(*other), Fitting(make())(*other))


@every_head
def test_a_fitted_head_is_exported_with_its_fit(make: Callable[[], Head], episodes) -> None:
    support, labels, query = episodes
    head = make().fit_(support, labels, 3)
    close(torch.export.export(head, (query,)).module()(query), head(query))


@every_head
@both_ways
def test_heads_compile_into_one_graph(make: Callable[[], Head], kind: type[Fitting], episodes) -> None:
    torch.compiler.reset()
    compiled = torch.compile(kind(make()), fullgraph=True, backend="aot_eager")
    close(compiled(*episodes), Fitting(make())(*episodes))


@pytest.mark.skipif(TORCH_2_6 and not torch.cuda.is_available(), reason="torch 2.6 needs a GPU to pretend one")
@every_head
@both_ways
def test_every_tensor_is_on_the_device_of_the_features(make: Callable[[], Head], kind: type[Fitting]) -> None:
    with FakeTensorMode():
        support, query = torch.empty(2, 6, 20, device="cuda"), torch.empty(2, 5, 20, device="cuda")
        labels = torch.zeros(2, 6, dtype=torch.int64, device="cuda")
        assert kind(make())(support, labels, query).device.type == "cuda"


def test_what_can_be_checked_without_values_is_checked(episodes) -> None:
    support, labels, query = episodes
    head = RidgeClassifier()
    with pytest.raises(UsageError, match="Give ways"):
        torch.func.vmap(lambda s, y: head.fit_(s, y)(s))(support, labels)
    with pytest.raises(UsageError, match="same number of features"):
        torch.func.vmap(lambda s, y, q: head.fit_(s, y, 3)(q))(support, labels, query[..., 1:])

"""The four heads: the published numbers, closed forms, the contract of every head, precision, wrong input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from fslstm_plugin.errors import UnknownNameError, UsageError
from fslstm_plugin.heads import Head, LSSVMClassifier, PrototypeClassifier, RidgeClassifier, SVMClassifier
from fslstm_plugin.kernels import RBF
from fslstm_plugin.testing import check_head

GOLDEN = np.load(Path(__file__).resolve().parents[1] / "golden" / "heads.npz")
PUBLISHED: dict[str, Callable[[], Head]] = {
    "prototype": PrototypeClassifier,
    "ridge": RidgeClassifier,
    "svm": SVMClassifier,
    "lssvm_one_vs_all": LSSVMClassifier,
    "lssvm_one_vs_one": lambda: LSSVMClassifier(coding="one-vs-one"),
    "lssvm_ecoc": lambda: LSSVMClassifier(coding="ecoc"),
}
HEADS: dict[str, Callable[[], Head]] = {
    **PUBLISHED,
    # A difference quotient needs the solution to more digits than its answer.
    "svm": lambda: SVMClassifier(tolerance=1e-12),
    "svm_rbf": lambda: SVMClassifier(kernel="rbf", tolerance=1e-12),
    "lssvm_leave_one_out": lambda: LSSVMClassifier(ridge="loo"),
    "lssvm_polynomial": lambda: LSSVMClassifier(kernel="polynomial"),
    "prototype_cosine": lambda: PrototypeClassifier(kernel="cosine"),
    "ridge_rbf": lambda: RidgeClassifier(ridge=0.1, kernel=RBF(scale=0.05)),
}
every_head = pytest.mark.parametrize("make", HEADS.values(), ids=HEADS)


def episode(
    seed: int, shots: tuple[int, ...] = (3, 1, 2), dim: int = 12, batch: tuple[int, ...] = ()
) -> tuple[Tensor, Tensor, Tensor]:
    """Random classes of unequal shots, labels in no order: support, labels, query (float64)."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*batch, *shape, generator=generator, dtype=torch.float64)

    labels = torch.repeat_interleave(torch.arange(len(shots)), torch.tensor(shots))
    labels = labels[torch.randperm(len(labels), generator=generator)]
    centres = normal(len(shots), dim)
    return centres[..., labels, :] + normal(len(labels), dim), labels, 2 * normal(7, dim)


def close(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    """Equal to a share of the logits' scale."""
    scale = expected.abs().max().item()
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("case", ["way5_shot1", "way5_shot5"])
def test_published_logits(case: str, name: str) -> None:
    support, labels, query, expected = (
        torch.from_numpy(GOLDEN[f"{case}/{key}"]) for key in ("support", "labels", "query", name)
    )
    close(PUBLISHED[name]().fit_(support, labels, ways=5)(query), expected, 1e-4)


def test_prototypes_are_class_means() -> None:
    support, labels, query = episode(0)
    means = torch.stack([support[labels == c].mean(0) for c in range(3)])
    expected = -(torch.cdist(query, means) ** 2) / support.shape[-1]
    torch.testing.assert_close(PrototypeClassifier(support, labels)(query), expected)


@pytest.mark.parametrize("ridge", [0.1, 50.0])
def test_ridge_is_ridge_regression_on_features(ridge: float) -> None:
    support, labels, query = episode(1)
    regularised = support.mT @ support + ridge * torch.eye(12)
    weights = torch.linalg.solve(regularised, support.mT @ torch.nn.functional.one_hot(labels).double())
    torch.testing.assert_close(RidgeClassifier(support, labels, ridge=ridge)(query), 2 * query @ weights)


@every_head
def test_every_head_keeps_the_contract(make: Callable[[], Head]) -> None:
    check_head(make)


@every_head
@pytest.mark.parametrize("scale", [1e-2, 1.0, 1e2])
@pytest.mark.parametrize("dim", [4, 64])
def test_single_precision(make: Callable[[], Head], dim: int, scale: float) -> None:
    """Of any scale, in more and in fewer dimensions than points, and with points given twice."""
    support, labels, query = (t * scale if t.is_floating_point() else t for t in episode(4, (4, 5, 6), dim))
    support, labels = torch.cat([support, support]).float(), torch.cat([labels, labels])
    query = query.float()
    logits = make().fit_(support, labels)(query)
    assert logits.dtype == torch.float32
    exact = make().fit_(support.double(), labels)(query.double())
    close(logits, exact.float(), 1e-3)


@every_head
def test_constructing_is_fitting(make: Callable[[], Head]) -> None:
    support, labels, query = episode(6)
    head = make()
    constructed = type(head)(support, labels, 3, kernel=head.kernel)
    refitted = type(head)(kernel=head.kernel)
    torch.testing.assert_close(constructed(query), refitted.fit_(support, labels, 3)(query))


def test_a_head_that_is_not_fitted_says_so() -> None:
    with pytest.raises(UsageError, match=r"RidgeClassifier is not fitted: call fit_\(support, labels\)"):
        RidgeClassifier()(torch.zeros(1, 2))


S, Y, Q = episode(7)
NAN, INFINITE = S.clone(), Q.clone()
NAN[0, 0], INFINITE[0, 0] = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("support", "labels", "query", "ways", "message"),
    [
        (NAN, Y, Q, 3, "support features hold 1 NaN or infinite value out of 72"),
        (S, Y, INFINITE, 3, "query features hold 1 NaN or infinite"),
        (1e200 * S, Y, Q, 3, "support features are so large that their products overflow"),
        (S, Y, 1e160 * Q, 3, "query features are so large"),
        (1e-160 * S, Y, Q, 3, "support features are so small that their products vanish: scale them up"),
        (1e25 * S.float(), Y, Q, 3, "support features are so large that their products overflow"),
        (1e-25 * S.float(), Y, Q, 3, "support features are so small that their products vanish: scale them up"),
        (S.to_sparse(), Y, Q, 3, "support features must be a dense tensor, but got one of layout torch.sparse_coo"),
        (S, Y.to_sparse(), Q, 3, "labels must be a dense tensor"),
        (torch.nested.nested_tensor([S, S[1:]]), Y, Q, 3, "support features must be a dense tensor, but got a nested"),
        (S.to("meta"), Y.to("meta"), Q.to("meta"), 3, "support features must hold values, but got a tensor on the dev"),
        (S, Y, Q, 4, "Each of the 4 classes needs a support point, but class 3 has none"),
        (S, Y, Q, 2, r"\[0, 2\) for 2 ways, but got 2\."),
        (S, Y - 1, Q, 3, r"\[0, 3\) for 3 ways, but got -1\."),
        (S, 0 * Y, Q, None, "at least 2 ways, but got 1"),
        (S, Y, Q, 2.5, "`ways` must be a whole number of at least 2 and at most 1,000,000, but got 2.5"),
        (S.numpy(), Y, Q, 3, "support features must be a torch.Tensor, but got a ndarray"),
        (S, Y.tolist(), Q, 3, "labels must be a torch.Tensor, but got a list"),
        (S, Y.double(), Q, 3, "integers such as torch.int64, but got torch.float64"),
        (S, Y > 0, Q, 2, "but got torch.bool"),
        (S, Y[1:], Q, 3, r"point, \(6,\) for support \(6, 12\), but got labels \(5,\)"),
        (S.expand(2, 6, 12), Y.expand(3, 6), Q, 3, r"\(2, 6\) or \(6,\).* but got labels \(3, 6\)"),
        (S.long(), Y, Q, 3, "floating-point tensor .* but got torch.int64"),
        (S[0], Y, Q, 3, r"but got torch.float64 \(12,\)"),
        (S[:0], Y[:0], Q, 3, "support set is empty"),
        (S[:, :0], Y, Q, 3, "has no features"),
        (S, Y, Q[:, 1:], 3, r"same number of features, but got support \(6, 12\) and query \(7, 11\)"),
        (S, Y, Q.expand(2, 7, 12), 3, r"same leading dimensions .* query \(2, 7, 12\)"),
    ],
)
def test_wrong_input_is_named(support: Tensor, labels: Tensor, query: Tensor, ways: int | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        RidgeClassifier().fit_(support, labels, ways)(query)


def test_a_class_missing_in_one_episode_of_a_batch_is_located() -> None:
    labels = torch.stack([Y, torch.where(Y == 1, 0, Y)])
    with pytest.raises(UsageError, match=r"class 1 has none in episode \(1,\)"):
        RidgeClassifier().fit_(S.expand(2, 6, 12), labels)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RidgeClassifier(ridge=0.0), "`ridge` must be a finite number above 0, but got 0.0"),
        (lambda: RidgeClassifier(ridge="0.1"), "`ridge` must be a finite number above 0, but got '0.1'"),  # type: ignore
        (lambda: RidgeClassifier(ridge=torch.tensor(0.1)), r"but got tensor\(0.1000\)"),  # type: ignore
        (lambda: SVMClassifier(C=-1.0), "`C` must be a finite number above 0"),
        (lambda: LSSVMClassifier(bias_weight=float("nan")), "`bias_weight` must be a finite number above 0"),
        (lambda: LSSVMClassifier(ridge=1.0, gamma=0.1), "give one of them, not ridge=1.0 and gamma=0.1"),
        (lambda: LSSVMClassifier(gamma=0.0), "`gamma` must be"),
        (lambda: RidgeClassifier(S), "only one of them"),
    ],
)
def test_wrong_options_are_named(make: Callable[[], Head], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("number", [np.float16(0.5), np.float32(0.5), np.float64(0.5), np.int32(2)])
def test_numbers_of_numpy_are_numbers(number: np.number) -> None:
    head = RidgeClassifier(ridge=number)
    assert type(head.ridge) in (int, float)
    assert head.ridge == number


@pytest.mark.parametrize("value", [np.array([1.0, 2.0]), torch.tensor([1.0, 2.0]), [1], {}, None])
@pytest.mark.parametrize("option", ["ridge", "decoding", "coding", "bias_weight"])
def test_options_of_a_wrong_type_are_refused(option: str, value: object) -> None:
    with pytest.raises(UsageError):
        LSSVMClassifier(**{option: value})


@pytest.mark.parametrize("option", [{"coding": "one-vs-al"}, {"decoding": "sotf"}, {"kernel": "liner"}])
def test_misspelt_options_get_a_suggestion(option: dict[str, str]) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean"):
        LSSVMClassifier(**option)


def test_a_kernel_matrix_that_is_not_positive_is_an_error_not_nan() -> None:
    with pytest.raises(UsageError, match="A kernel matrix is not positive definite"):
        RidgeClassifier().solve(torch.stack([torch.eye(3), -100 * torch.eye(3)]).double(), torch.eye(3).double())
    with pytest.raises(UsageError, match="A kernel matrix is not positive definite"):  # but infinite
        LSSVMClassifier(ridge="loo", kernel="polynomial").fit_(1e110 * S, Y)(1e110 * Q)


def test_rounding_that_outweighs_the_ridge_is_mended() -> None:
    """Two copies of a point whose single-precision products differ by rounding: eigenvalues -1 and 2e8."""
    kernel = torch.tensor([[1e8, 1e8 + 1], [1e8 + 1, 1e8]], dtype=torch.float64)
    targets = torch.tensor([[1.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    dual = RidgeClassifier(ridge=0.1).solve(kernel, targets)
    torch.testing.assert_close(kernel @ dual.alpha, 2 * targets, rtol=1e-5, atol=1e-5)

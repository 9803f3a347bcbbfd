"""The LSSVM head against the paper's large system, and its coding matrices."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fslstm_plugin.errors import UsageError
from fslstm_plugin.heads import LSSVMClassifier, coding_matrix, exhaustive_code, random_code
from fslstm_plugin.heads.linalg import solve_smoother


def episode(seed: int, ways: int, points: int = 9, dim: int = 7) -> tuple[Tensor, Tensor, Tensor]:
    """Support of every class, labels in no order, queries (float64)."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(points) % ways
    labels = labels[torch.randperm(points, generator=generator)]
    features = torch.randn(points + 5, dim, generator=generator, dtype=torch.float64)
    return features[:points], labels, features[points:]


def paper(support: Tensor, labels: Tensor, query: Tensor, code: Tensor, ridge: float, corner: float) -> np.ndarray:
    """The binary scores from the paper's system of L(n + 1) unknowns (equation solve1), solved densely."""
    points, columns = len(support), code.shape[1]
    kernel = (support @ support.mT).numpy()
    signs = code[labels].numpy()
    big = np.zeros((columns * (points + 1),) * 2)
    big[:columns, :columns] = -corner * np.eye(columns)
    for column in range(columns):
        y = signs[:, column]
        block = slice(columns + column * points, columns + (column + 1) * points)
        big[column, block] = big[block, column] = y
        big[block, block] = np.outer(y, y) * kernel + ridge * np.eye(points)
    right = np.r_[np.zeros(columns), np.ones(columns * points)]
    solution = np.linalg.solve(big, right)
    bias, alpha = solution[:columns], solution[columns:].reshape(columns, points).T
    return (query @ support.mT).numpy() @ (alpha * signs) + bias


@pytest.mark.parametrize("coding", ["one-vs-all", "one-vs-one", "ecoc"])
@pytest.mark.parametrize(("ridge", "corner"), [(0.1, 2.0), (10.0, 1.0)])
def test_the_small_system_has_the_papers_solution(coding: str, ridge: float, corner: float) -> None:
    support, labels, query = episode(0, ways=4)
    code = coding_matrix(coding, 4)
    scores = paper(support, labels, query, code, ridge, corner)
    options = {"ridge": ridge, "bias_weight": corner, "coding": coding}
    soft = LSSVMClassifier(support, labels, **options)(query)
    np.testing.assert_allclose(soft, scores @ code.numpy().T, atol=1e-8)
    hamming = LSSVMClassifier(support, labels, decoding="hamming", **options)(query)
    np.testing.assert_allclose(hamming, np.sign(scores) @ code.numpy().T, rtol=0, atol=1.01e-3)


@pytest.mark.parametrize("code", [coding_matrix("one-vs-one", 4), [[1, 0], [-1, 1], [0, 1], [-1, -1]]])
def test_a_column_solves_the_points_of_its_own_classes_alone(code, monkeypatch: pytest.MonkeyPatch) -> None:
    """Systems of all points would need 31 GB at 20-way 20-shot."""
    from fslstm_plugin.heads import smoother

    solved = []
    monkeypatch.setattr(
        smoother, "solve_smoother", lambda kernel, *args: solved.append(kernel) or solve_smoother(kernel, *args)
    )
    support, labels, query = episode(3, ways=4, points=13)  # three points per class, but four of class 0
    code = torch.as_tensor(code)
    head = LSSVMClassifier(support, labels, coding=code, decoding="soft")
    head(query)
    most = int((code[labels] != 0).sum(0).max())
    assert [matrix.shape for matrix in solved] == [(code.shape[1], most, most)]
    expected = paper(support, labels, query, code.double(), 0.1, 2.0) @ code.numpy().T
    np.testing.assert_allclose(head(query), expected, atol=1e-8)


def test_gamma_is_the_inverse_ridge() -> None:
    support, labels, query = episode(1, ways=3)
    expected = LSSVMClassifier(support, labels, ridge=10.0)(query)
    torch.testing.assert_close(LSSVMClassifier(support, labels, gamma=0.1)(query), expected)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), ways=st.integers(2, 6))
def test_exhaustive_codes_and_one_vs_all_predict_alike(seed: int, ways: int) -> None:
    """With all codes in {-1, 1} the solution is linear in them."""
    support, labels, query = episode(seed, ways)
    one_vs_all = LSSVMClassifier(support, labels, ways)(query)
    ecoc = LSSVMClassifier(support, labels, ways, coding="ecoc")(query)
    assert torch.equal(one_vs_all.argmax(-1), ecoc.argmax(-1))


def test_a_matrix_of_the_callers_is_used_as_given() -> None:
    support, labels, query = episode(2, ways=4)
    named = LSSVMClassifier(support, labels, coding="one-vs-one")(query)
    own = LSSVMClassifier(support, labels, coding=coding_matrix("one-vs-one", 4).int())(query)
    torch.testing.assert_close(own, named)
    with pytest.raises(UsageError, match="coding matrix is for 4 ways, but the episode has 3"):
        LSSVMClassifier(*episode(2, ways=3)[:2], coding=coding_matrix("ecoc", 4))(query)


@pytest.mark.parametrize("ways", [2, 3, 5, 7, 8, 20])
def test_ecoc_separates_all_classes_in_every_column_differently(ways: int) -> None:
    code = coding_matrix("ecoc", ways)
    assert set(code.unique().tolist()) == {-1.0, 1.0}
    assert code.sum(0).abs().max() < ways
    assert len(code.unique(dim=0)) == ways
    if ways <= 7:
        assert code.shape == (ways, 2 ** (ways - 1) - 1)
        assert (code[0] == 1).all()
        assert len(code.unique(dim=1).T) == code.shape[1]


def test_random_codes_follow_their_seed() -> None:
    assert torch.equal(random_code(10, 3), random_code(10, 3))
    assert not torch.equal(random_code(10, 3), random_code(10, 4))
    with pytest.raises(UsageError, match="at least 3 ways"):
        random_code(2)


def test_codes_without_values_one_by_one_are_refused() -> None:
    code = 2 * torch.eye(3) - 1
    for other, message in ((code.to("meta"), "matrix must hold values"), (code.to_sparse(), "must be a dense tensor")):
        with pytest.raises(UsageError, match=message):
            LSSVMClassifier(coding=other)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ([[1, 2], [-1, -1]], "entries must be -1, 0 or 1"),
        ([[1, 0], [-1, 1]], "column 1 does not have both signs"),
        ([[1, -1], [1, -1], [-1, 1]], "two classes have the same row"),
        ([1, -1], r"expected \(ways >= 2, columns >= 1\), but got shape \(2,\)"),
    ],
)
def test_useless_codes_are_refused(code: list, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        LSSVMClassifier(coding=torch.tensor(code))
    with pytest.raises(UsageError, match=r"a matrix, torch.Tensor \(ways, columns\) of -1, 0 and 1, but got .* list"):
        LSSVMClassifier(coding=code)


def test_exhaustive_code_of_five_ways_has_the_published_size() -> None:
    assert exhaustive_code(5).shape == (5, 15)


@pytest.mark.parametrize("scale", [1e-4, 1e-2, 1.0])
@pytest.mark.parametrize("coding", ["one-vs-all", "one-vs-one", "ecoc"])
def test_hamming_decoding_does_not_give_every_tie_to_the_first_class(scale: float, coding: str) -> None:
    """Scores of small features are all negative: every class has as many votes."""
    support, labels, query = episode(0, ways=4, points=12)
    support, query = scale * support.double(), scale * query.double()
    soft = LSSVMClassifier(support, labels, coding=coding)(query)
    hamming = LSSVMClassifier(support, labels, coding=coding, decoding="hamming")(query)
    if scale < 1 and coding == "one-vs-all":
        np.testing.assert_array_equal(hamming.argmax(-1), soft.argmax(-1))
    assert len(hamming.argmax(-1).unique()) > 1

"""The Crammer-Singer solver: against a general solver, at all scales, with absent points, and its warning."""

from __future__ import annotations

import warnings

import pytest
import torch
from qpth.qp import QPFunction
from torch import Tensor

from fslstm_plugin.errors import SingularError
from fslstm_plugin.heads import ConvergenceWarning, SVMClassifier, one_hot, solve_crammer_singer, svm_duality_gap
from fslstm_plugin.heads.crammer_singer import _interior_point


def problems(seed: int, batch: int, ways: int, shots: int, dim: int, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """Kernel matrices and targets of episodes whose features, like a network's, are above 0."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(ways).repeat(shots)
    centres = torch.randn(batch, ways, dim, generator=generator, dtype=torch.float64)
    noise = torch.randn(batch, ways * shots, dim, generator=generator, dtype=torch.float64)
    features = scale * (centres[:, labels] / 2 + noise).relu()
    return features @ features.mT, one_hot(labels, ways).expand(batch, -1, -1)


def by_qpth(kernel: Tensor, targets: Tensor, C: float) -> Tensor:
    """The same problem, handed to qpth as one quadratic programme of n x ways unknowns."""
    points, ways = targets.shape
    eye = torch.eye(points * ways, dtype=torch.float64)
    quadratic = torch.kron(kernel + torch.eye(points), torch.eye(ways))
    sums = torch.kron(torch.eye(points), torch.ones(1, ways)).double()
    solve = QPFunction(verbose=-1, maxIter=60, check_Q_spd=False)
    zeros = torch.zeros(points, dtype=torch.float64)
    return solve(quadratic, -targets.flatten(), eye, C * targets.flatten(), sums, zeros).view(points, ways)


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("C", [0.1, 1.0])
def test_qpth_agrees(scale: float, C: float) -> None:
    kernel, targets = problems(0, 3, ways=3, shots=4, dim=20, scale=scale)
    alpha = solve_crammer_singer(kernel, targets, C)
    for one, label, solution in zip(kernel, targets, alpha, strict=True):
        expected = by_qpth(one, label, C)
        torch.testing.assert_close(solution, expected, rtol=0, atol=1e-5 * expected.abs().max().item())


@pytest.mark.parametrize("scale", [1e-2, 1e-1, 1.0, 1e1, 1e2])
@pytest.mark.parametrize("dim", [1, 4, 10, 48, 640])
def test_optimal_at_every_scale(dim: int, scale: float) -> None:
    """Also with fewer features than points, where the kernel matrix is singular."""
    kernel, targets = problems(1, 6, ways=5, shots=5, dim=dim, scale=scale)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alpha = solve_crammer_singer(kernel, targets, 0.1)
    assert alpha.sum(-1).abs().max() < 1e-12
    assert (alpha <= 0.1 * targets + 1e-12).all()
    assert svm_duality_gap(kernel, targets, alpha, 0.1).max() < 1e-6


def test_stationary_and_complementary() -> None:
    """The optimality conditions themselves: no gradient along free coefficients, no wish to leave a bound."""
    kernel, targets = problems(2, 20, ways=5, shots=3, dim=30)
    alpha = solve_crammer_singer(kernel, targets, 0.1, tolerance=1e-12)
    gradient = kernel @ alpha + alpha - targets
    multiplier = gradient.amax(-1, keepdim=True) - gradient
    assert (multiplier * (0.1 * targets - alpha)).abs().max() < 1e-10


def test_the_interior_point_method_alone() -> None:
    """The last resort, on problems that do not need it, too."""
    for dim, scale in [(3, 1e2), (10, 1e1), (100, 1.0)]:
        kernel, targets = problems(3, 5, ways=4, shots=4, dim=dim, scale=scale)
        alpha, gap, _ = _interior_point(kernel, targets, 0.1, targets > 0, 1e-6, 60)
        assert gap.max() < 1e-6
        expected = solve_crammer_singer(kernel, targets, 0.1, tolerance=1e-10)
        logits = kernel @ expected
        torch.testing.assert_close(kernel @ alpha, logits, rtol=0, atol=1e-4 * logits.abs().max().item())


@pytest.mark.parametrize(("dim", "scale"), [(3, 1e2), (60, 1.0)])
def test_absent_points_change_nothing(dim: int, scale: float) -> None:
    kernel, targets = problems(4, 4, ways=3, shots=3, dim=dim, scale=scale)
    alpha = solve_crammer_singer(kernel, targets, 0.1, tolerance=1e-10)
    padded = torch.nn.functional.pad(kernel, (0, 2, 0, 2))
    extended = solve_crammer_singer(padded, torch.nn.functional.pad(targets, (0, 0, 0, 2)), 0.1, tolerance=1e-10)
    assert extended[:, 9:].abs().max() < 1e-12
    logits = kernel @ alpha
    torch.testing.assert_close(kernel @ extended[:, :9], logits, rtol=0, atol=1e-6 * logits.abs().max().item())


@pytest.mark.parametrize("scale", [1e2, 1e4, 1e6])
def test_singular_kernels_of_large_features_are_solved_or_warned_of(scale: float) -> None:
    """25 points in 3 dimensions: rounding of the kernel outweighs the identity that the problem adds to it."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(5).repeat(5)
    centres = torch.randn(4, 5, 3, generator=generator)
    basis = torch.randn(3, 640, generator=generator)
    support, query = (
        scale * (centres[:, wanted] + torch.randn(4, len(wanted), 3, generator=generator)) @ basis
        for wanted in (labels, labels.repeat(3))
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        logits = SVMClassifier(support, labels)(query)
    assert logits.isfinite().all()
    assert [each.category for each in caught] == [ConvergenceWarning] * (scale > 1e2)
    small = SVMClassifier(support / scale * 100, labels)(query / scale * 100)
    assert (logits.argmax(-1) == small.argmax(-1)).double().mean() > 0.75


def test_coefficients_of_huge_features_are_feasible_or_warned_of() -> None:
    """Rounding can make their gap negative, which is not a solution better than the best."""
    generator = torch.Generator().manual_seed(0)
    features = 1e6 * torch.randn(40, 4, 2, generator=generator, dtype=torch.float64)
    kernel, targets = features @ features.mT, one_hot(torch.tensor([0, 1, 0, 1]), 2)
    silent = 0
    for each in kernel:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            alpha = solve_crammer_singer(each, targets, 0.5)
        assert alpha.sum(-1).abs().max() < 1e-15  # Of coefficients up to 0.5.
        if not caught:
            silent += 1
            assert svm_duality_gap(each, targets, alpha, 0.5).abs() < 0.01  # Rounding moves it by so much here.
    assert 0 < silent < len(kernel)


def test_a_kernel_that_is_no_kernel_is_named() -> None:
    kernel, targets = problems(8, 1, ways=2, shots=2, dim=3)
    with pytest.raises(SingularError, match="not positive definite: check the features"):
        solve_crammer_singer(-100 * kernel, targets)


def test_an_episode_does_not_depend_on_its_batch() -> None:
    """Hard and easy ones together: each takes its own path through the solver."""
    kernels, targets = zip(
        *(problems(5, 3, 5, 3, dim, scale) for dim, scale in [(2, 1e2), (10, 1e1), (300, 1.0)]), strict=True
    )
    together = solve_crammer_singer(torch.cat(kernels), torch.cat(targets), 0.1)
    alone = torch.cat([solve_crammer_singer(k, t, 0.1) for k, t in zip(kernels, targets, strict=True)])
    torch.testing.assert_close(together, alone, rtol=1e-6, atol=1e-9)


def test_too_few_iterations_warn_with_count_and_gap() -> None:
    kernel, targets = problems(6, 4, ways=5, shots=5, dim=10, scale=10)
    with pytest.warns(ConvergenceWarning, match=r"not converge in 4 of 4 episodes: .* gap is up to \d"):
        solve_crammer_singer(kernel, targets, 0.1, max_iterations=1)


def test_the_head_passes_its_limits_on() -> None:
    kernel, targets = problems(7, 1, ways=5, shots=5, dim=10, scale=10)
    with pytest.warns(ConvergenceWarning):
        SVMClassifier(max_iterations=1).solve(kernel, targets)

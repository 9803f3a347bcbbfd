"""The existing alternatives to the heads, one episode at a time, with the Pseudo Support Module around them."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ..extras import MissingExtraError

Reference = Callable[[Tensor, Tensor, Tensor, int], Tensor]
"""From support ``(n, d)``, labels ``(n,)``, query ``(m, d)`` and the number of ways to logits ``(m, ways)``."""

LSSVM_RIDGE = 0.1
LSSVM_BIAS_WEIGHT = 2.0
RIDGE = 50.0


def exact(reference: Reference) -> Reference:
    """The reference in double precision: what answers are compared with, while the times are of single precision.

    In single precision qpth stops early: of 32 episodes, one had logits wrong by 9 % of their range.
    """

    def solve(support: Tensor, labels: Tensor, query: Tensor, ways: int) -> Tensor:
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)  # of which learn2learn's classifier makes its constants
        try:
            return reference(support.double(), labels, query.double(), ways)
        finally:
            torch.set_default_dtype(before)

    return solve


def paper_lssvm(support: Tensor, labels: Tensor, query: Tensor, ways: int) -> Tensor:
    """The paper's system of L (n + 1) unknowns for one-vs-all, built and solved as it stands.

    Source: paper, section "LSSVM Base Learner", the equations of the system and of the prediction; differentiable.
    """
    n = len(support)
    code = 2 * torch.eye(ways) - 1
    signs = code[labels]
    kernel = support @ support.mT
    omega = torch.block_diag(
        *(sign[:, None] * sign * kernel + LSSVM_RIDGE * torch.eye(n) for sign in signs.unbind(dim=1))
    )
    targets = torch.block_diag(*signs.mT.unsqueeze(-1))
    system = torch.cat(
        [
            torch.cat([-LSSVM_BIAS_WEIGHT * torch.eye(ways), targets.mT], 1),
            torch.cat([targets, omega], 1),
        ]
    )
    solution = torch.linalg.solve(system, torch.cat([torch.zeros(ways), torch.ones(ways * n)]))
    bias, alpha = solution[:ways], solution[ways:].view(ways, n)
    return ((query @ support.mT) @ (alpha.mT * signs) + bias) @ code.mT


def qpth_ridge(support: Tensor, labels: Tensor, query: Tensor, ways: int) -> Tensor:
    """Ridge regression as a quadratic programme per class, with a vacuous inequality, solved by qpth.

    Source: Lee et al., "Meta-learning with differentiable convex optimization", 2019, the ridge head of their code.
    """
    from qpth.qp import QPFunction

    n = len(support)
    kernel = (support @ support.mT + RIDGE * torch.eye(n)).expand(ways, -1, -1)
    linear = -2.0 * one_hot(labels, ways).mT.to(support)
    none = torch.empty(0)
    solve = QPFunction(verbose=-1)
    alpha = solve(kernel, linear, torch.zeros(ways, n, n), torch.zeros(ways, n), none, none)
    return (query @ support.mT) @ alpha.mT


def learn2learn_svm(support: Tensor, labels: Tensor, query: Tensor, ways: int) -> Tensor:
    """``learn2learn.nn.SVClassifier``, which calls qpth."""
    from learn2learn.nn import SVClassifier

    # qpth prints a page on stdout whenever its single-precision residual stays above 1.
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        return SVClassifier(support, labels, ways)(query)


def learn2learn_prototypes(support: Tensor, labels: Tensor, query: Tensor, ways: int) -> Tensor:
    """``learn2learn.nn.PrototypicalClassifier``."""
    from learn2learn.nn import PrototypicalClassifier

    return PrototypicalClassifier(support, labels)(query)


def sklearn_ridge(support: Tensor, labels: Tensor, query: Tensor, ways: int) -> Tensor:
    """``sklearn.kernel_ridge.KernelRidge`` on one-hot labels."""
    from sklearn.kernel_ridge import KernelRidge

    model = KernelRidge(alpha=RIDGE, kernel="linear").fit(support.numpy(), one_hot(labels, ways).to(support).numpy())
    return torch.from_numpy(model.predict(query.numpy()))


def sklearn_prototypes(support: Tensor, labels: Tensor, query: Tensor, ways: int) -> Tensor:
    """``sklearn.neighbors.NearestCentroid``, whose prediction is the least of these distances."""
    from sklearn.metrics.pairwise import euclidean_distances
    from sklearn.neighbors import NearestCentroid

    model = NearestCentroid().fit(support.numpy(), labels.numpy())
    return -torch.from_numpy(euclidean_distances(query.numpy(), model.centroids_, squared=True))


def require_references() -> None:
    """Check that learn2learn and qpth are there, before minutes of measuring."""
    for package in ("learn2learn", "qpth"):
        if find_spec(package) is None:
            raise MissingExtraError("This benchmark", package, "bench")


def refine(reference: Reference, support: Tensor, labels: Tensor, query: Tensor, ways: int, iterations: int) -> Tensor:
    """The Pseudo Support Module as the paper describes it: average features, append them, fit again from features.

    From support ``(n, d)``, labels ``(n,)``, query ``(m, d)`` and the number of refits to logits after each fit
    ``(iterations + 1, m, ways)``; without refits those of the plain head.

    Example:
        >>> support, query = torch.tensor([[0.0, 0.0], [2.0, 0.0]]), torch.tensor([[0.0, 2.0], [2.0, 2.0]])
        >>> refine(learn2learn_prototypes, support, torch.tensor([0, 1]), query, ways=2, iterations=1)[1]
        tensor([[-1., -5.],
                [-5., -1.]])
    """
    logits = [reference(support, labels, query, ways)]
    for _ in range(iterations):
        predicted = logits[-1].argmax(-1)
        found = predicted.unique()
        averages = [query[predicted == label].mean(0, keepdim=True) for label in found]
        support, labels = torch.cat([support, *averages]), torch.cat([labels, found])
        logits.append(reference(support, labels, query, ways))
    return torch.stack(logits)

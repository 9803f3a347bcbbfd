"""`check_head` tells heads that break the contract, in one way each, from heads that keep it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from fslstm_dots import CentroidHead
from torch import Tensor, nn

from fslstm_plugin.heads import Dual, Head, RidgeClassifier
from fslstm_plugin.testing import check_head


class Wrong(Head):
    """Right but for what its subclasses do: the logits are sums over the classes."""

    def solve(self, kernel: Tensor, targets: Tensor) -> Dual:
        return Dual(targets, -targets.sum(-2))


class FirstPoint(Wrong):
    def solve(self, kernel, targets):
        return Dual(targets * kernel[..., :1], targets[..., 0, :] * 0)


class FirstClass(Wrong):
    def solve(self, kernel, targets):
        return Dual(targets, torch.eye(targets.shape[-1])[0].to(targets).expand_as(targets[..., 0, :]))


class FirstQuery(Wrong):
    def decide(self, gram, targets, dual):
        logits = super().decide(gram, targets, dual)
        return logits + logits[..., :1, :]


class FirstEpisode(Wrong):
    def solve(self, kernel, targets):
        return Dual(targets * kernel.flatten()[0] if kernel.dim() > 2 else targets, -targets.sum(-2))


class Unweighted(Wrong):
    def solve(self, kernel, targets):
        return Dual((targets > 0).to(targets), -targets.sum(-2))


class Absent(Wrong):
    def solve(self, kernel, targets):
        return Dual(targets, torch.full_like(targets[..., 0, :], targets.shape[-2]))


class Nothing(Wrong):
    def solve(self, kernel, targets):
        return None


class Pair(Wrong):
    def solve(self, kernel, targets):
        return tuple(super().solve(kernel, targets))


class InPlace(Wrong):
    def solve(self, kernel, targets):
        torch.linalg.diagonal(kernel).add_(50)
        return Dual(torch.linalg.solve(kernel, 2 * targets), 0 * targets[..., 0, :])


class Detached(Wrong):
    def solve(self, kernel, targets):
        dual = RidgeClassifier().solve(kernel, targets)
        return Dual(dual.alpha.detach(), dual.bias)


class Imprecise(Wrong):
    def forward(self, query):
        return super().forward(query.bfloat16().to(query)) if query.dtype == torch.float32 else super().forward(query)


class Double(Wrong):
    def forward(self, query):
        return super().forward(query).double()


class Random(Wrong):
    def solve(self, kernel, targets):
        return Dual(targets + torch.rand_like(targets), -targets.sum(-2))


class Remembering(Wrong):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def solve(self, kernel, targets):
        self.seen += 1
        return super().solve(kernel, targets)


class Unsaved(Wrong):
    def __init__(self):
        super().__init__()
        self.register_buffer("factor", torch.rand(()), persistent=False)

    def solve(self, kernel, targets):
        return Dual(targets * self.factor, -targets.sum(-2))


class Trained(Wrong):
    """Right, with a parameter and a module."""

    def __init__(self):
        super().__init__()
        self.factor, self.bend = nn.Parameter(torch.rand(())), nn.Dropout(0.5)

    def solve(self, kernel, targets):
        return Dual(self.bend(targets * self.factor), -targets.sum(-2))


class Transposed(Wrong):
    def solve(self, kernel, targets):
        return Dual(targets.mT, -targets.sum(-2))


class OneBias(Wrong):
    def solve(self, kernel, targets):
        return Dual(targets, 0.0)


ONE = Wrong()
NO_MAKERS = (None, "lssvm", ONE)


@pytest.mark.parametrize("make", [Wrong, Trained, CentroidHead])
def test_a_head_that_keeps_the_contract_passes(make: Callable[[], Head]) -> None:
    check_head(make)


def test_a_default_device_changes_no_check(other_default_device) -> None:
    check_head(Trained)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (FirstPoint, "the order of the support points must not matter"),
        (FirstClass, "renumbered classes must get the same logits"),
        (FirstQuery, "queries in another order"),
        (FirstEpisode, "an episode of a batch must get the logits that it gets alone"),
        (Unweighted, "a support point of weight w must stand for w equal ones"),
        (Absent, "of weight 0 for none"),
        (Nothing, "solve must give a Dual, but gave a NoneType"),
        (Transposed, r"solve must give alpha of the shape \(6, 3\), but gave \(3, 6\)"),
        (OneBias, r"solve must give bias of the shape \(3,\), but gave float"),
        (Pair, "solve must give a Dual, but gave a tuple"),
        (InPlace, "solve must not change the kernel or the targets"),
        (Detached, "the gradient must be that of the logits"),
        (Imprecise, "torch.float32 features must get nearly the logits"),
        (Double, "logits of torch.float32 queries must be torch.float32, but got torch.float64"),
        (Random, "the same episode must get the same logits again"),
        (Remembering, "predict must not change the head's state"),
        (Unsaved, "a head that loads another's state must give its logits"),
        (nn.Identity, "must be a Head, but got a Identity"),
        *((what, f"must make a new Head, as its class does, but is a {type(what).__name__}") for what in NO_MAKERS),
        (lambda: ONE, "must make a new Head each time, but gave the same one again"),
    ],
)
def test_a_head_that_breaks_the_contract_is_told_how(make: Callable[[], Head], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_head(make)

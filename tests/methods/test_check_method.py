"""`check_method` passes every method of ours, and tells those that break the contract in one way each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from fslstm_plugin.adapters import FeatureAdapter
from fslstm_plugin.heads import PrototypeClassifier
from fslstm_plugin.methods.base import Method
from fslstm_plugin.methods.kernel import KernelMethod
from fslstm_plugin.naming import parse_method
from fslstm_plugin.registry import ADAPTERS, METHODS
from fslstm_plugin.testing import SmallBackbone, Tied, check_method
from fslstm_plugin.transduction import TransductiveModule

SHORTER = {  # The same with few steps.
    "alpha-tim": "alpha-tim(steps=30)",
    "ilpc": "ilpc(steps=50)",
    "proto-lp": "proto-lp(iterations=5)",
    "pt-map": "pt-map(iterations=5)",
    "tim": "tim(steps=30)",
}
TIED = {  # The same for episodes of another shape than theirs.
    "dpgn": ("dpgn(ways=3,shots=1,width=6,distribution_weight=0.1)", Tied((1, 1, 1), 6)),
    "sib": ("sib(ways=3,queries=2)", Tied((2, 1, 3), 6)),
}
KERNEL_METHODS = (
    "nn", "rr", "svm(C=1)", "lssvm(ridge=loo)", "lssvm(kernel=rbf)+psm(iterations=3)", "rr(center,normalize)+can",
    "lssvm(power=0.3,normalize)", "rr(center=episode)", "lssvm(coding=one-vs-one)+bn", "lssvm+iam", "rr+iam+psm",
    "centroid(clip)", "centroid(clip=0.5)+average", "centroid+rescale", "nn+rescale(start=2)+lean",
)  # fmt: skip


# These need a backbone with layers, and are checked with it in files of their own.
WITH_LAYERS = {"relation-net", "reptile", "tpn"}
ALL = [*sorted({*METHODS.names()} - WITH_LAYERS), "tim(solver=gd,steps=20)"]


@pytest.mark.parametrize("name", ALL)
def test_every_registered_method_keeps_the_contract(name: str) -> None:
    text, tied = TIED.get(name, (SHORTER.get(name, name), None))
    check_method(lambda: parse_method(text, dim=12, backbone=SmallBackbone()), tied=tied)


@pytest.mark.parametrize("name", KERNEL_METHODS)
def test_kernel_methods_keep_the_contract(name: str) -> None:
    check_method(lambda: parse_method(name, dim=12))


def test_a_default_device_changes_no_check(other_default_device) -> None:
    check_method(lambda: parse_method("lssvm+iam", dim=12))


class Wrong(Method):
    """Right but for what its subclasses do: sums of products with the support."""

    is_transductive = False

    def logits(self, features):
        return features.query @ features.support.mT @ features.targets.to(features.query)


class FirstPoint(Wrong):
    def logits(self, features):
        return super().logits(features) * features.support[..., :1, :1]


class FirstQuery(Wrong):
    def logits(self, features):
        logits = super().logits(features)
        return logits + logits[..., :1, :]


class FirstClass(Wrong):
    def logits(self, features):
        logits = super().logits(features)
        return logits + torch.eye(logits.shape[-1])[0]


class FirstEpisode(Wrong):
    def logits(self, features):
        return super().logits(features) * features.query.flatten()[0]


class WholeBatch(Wrong):
    def logits(self, features):
        logits = super().logits(features)
        return logits / logits.std(tuple(range(logits.dim() - 2)), keepdim=True) if logits.dim() > 2 else logits


class Peeking(Wrong):
    def logits(self, features):
        logits = super().logits(features)
        return logits - logits.mean(-2, keepdim=True)


class Alone(Wrong):
    is_transductive = True


class SingleQuery(Wrong):
    is_transductive = True

    def logits(self, features):
        logits = super().logits(features)
        return logits / logits.std(-2, keepdim=True)


class Changing(Wrong):
    def logits(self, features):
        features.support.sub_(1)
        return super().logits(features)


class ChangingByNumPy(Wrong):
    def logits(self, features):
        features.query.numpy()[:] += 1  # which PyTorch does not see
        return super().logits(features)


class ChangingTargets(TransductiveModule):
    def refine(self, head, gram, targets):
        return head.predict(gram, targets.mul_(2))


class ChangingGram(TransductiveModule):
    def refine(self, head, gram, targets):
        gram.query.zero_()
        return head.predict(gram, targets)


class ChangingPoints(FeatureAdapter):
    def adapt(self, features):
        return features.derived(lambda points: points.mul_(2))


class Infinite(Wrong):
    def logits(self, features):
        return super().logits(features) * torch.inf


class Unmade(Wrong):
    def __init__(self):
        self.steps = 3


class Random(Wrong):
    def logits(self, features):
        logits = super().logits(features)
        return logits + torch.rand_like(logits)


class Flat(Wrong):
    def logits(self, features):
        return super().logits(features).flatten(-2)


class Coarse(Wrong):
    def logits(self, features):
        logits = super().logits(features)
        return logits.bfloat16().to(logits) if logits.dtype == torch.float32 else logits


class Vertical(Wrong):
    """The derivative of a root at 0."""

    def logits(self, features):
        return (super().logits(features) * 0).sqrt() + super().logits(features)


class Weighted(Wrong):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def logits(self, features):
        return super().logits(features) * self.weight


class Unused(Weighted):
    def __init__(self):
        super().__init__()
        self.unused = nn.Parameter(torch.ones(()))


class Detached(Weighted):
    def logits(self, features):
        return super().logits(features).detach()


class Stateful(Wrong):
    """A weight that no state holds."""

    def __init__(self):
        super().__init__()
        self.weight = torch.rand(())

    def logits(self, features):
        return super().logits(features) * self.weight


class Nothing(Wrong):
    def logits(self, features):
        return None


class NoLoss(Weighted):
    def loss(self, features, query_labels, criterion):
        return None


class Undeclared(Weighted):
    uses_criterion = False


class PerQueryLoss(Weighted):
    def loss(self, features, query_labels, criterion):
        logits = self.logits(features)
        return logits.logsumexp(-1), logits


ONE = Wrong()
NO_MAKERS = (None, "lssvm", ONE)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (FirstPoint, "the order of the support points must not matter"),
        (FirstQuery, "queries in another order must get the same logits"),
        (FirstClass, "renumbered classes must get the same logits"),
        (FirstEpisode, "an episode of a batch must get the logits that it gets alone|queries in another order"),
        (WholeBatch, "an episode of a batch must get the logits that it gets alone"),
        (Peeking, "is_transductive is False, so a query's logits must not depend on the other queries"),
        (Alone, "is_transductive is True, but a query's logits do not depend"),
        (SingleQuery, "the logits of a single query must be finite"),
        (Changing, "the features must not be changed"),
        (ChangingByNumPy, "the features must not be changed"),
        (lambda: KernelMethod(PrototypeClassifier(), [ChangingPoints()]), "the features must not be changed"),
        (lambda: KernelMethod(PrototypeClassifier(), (), ChangingTargets()), "nor their targets"),
        (lambda: KernelMethod(PrototypeClassifier(), (), ChangingGram()), "and Gram matrices"),
        (Infinite, "logits must be finite"),
        (Unmade, r"Unmade: __init__ must call super\(\).__init__\(\) first"),
        (Random, "the same episode must get the same logits again"),
        (Flat, r"logits must have the shape \(7, 3\), but got \(21,\)"),
        (Coarse, "single precision must get nearly the logits"),
        (Vertical, "gradients with respect to the features must be finite"),
        (Unused, "the loss must have a gradient for unused"),
        (Detached, "the loss must have a gradient"),
        (Stateful, "a method that loads another's state must give its logits"),
        (PerQueryLoss, "the loss must be one number"),
        (Undeclared, "uses_criterion is False, but the loss has its gradient from the criterion"),
        (Nothing, "logits must be a tensor, but got a NoneType"),
        (NoLoss, "loss must give the loss and the logits, but gave a NoneType"),
        (nn.Identity, "must be a Method, but got a Identity"),
        *((what, f"must make a new Method, as its class does, but is a {type(what).__name__}") for what in NO_MAKERS),
        (lambda: ONE, "must make a new Method each time, but gave the same one again"),
    ],
)
def test_what_breaks_the_contract_is_named(make: Callable[[], Method], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_method(make)


class Forgetful(FeatureAdapter):
    """Its name says nothing of its argument, so that evaluation would use another method than was asked for."""

    def __init__(self, most=1.0):
        super().__init__()
        self.limit = most

    def adapt(self, features):
        return features.derived(lambda points: points.clamp(max=self.limit))


@pytest.fixture
def forgetful() -> Iterator[None]:
    ADAPTERS.register("forgetful", Forgetful)
    yield
    ADAPTERS.forget("forgetful")


@pytest.mark.usefixtures("forgetful")
def test_an_argument_that_is_not_kept_is_named() -> None:
    check_method(lambda: KernelMethod(PrototypeClassifier(), [Forgetful()]))
    with pytest.raises(AssertionError, match="each argument must be kept in an attribute of its name"):
        check_method(lambda: KernelMethod(PrototypeClassifier(), [Forgetful(most=0.3)]))


def test_exceptions_are_arguments() -> None:
    check_method(Coarse, single_precision=1e-2)
    check_method(Alone, transductive=False)
    check_method(lambda: parse_method("nn(center=episode)"), transductive=False)

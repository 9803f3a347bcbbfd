"""What every head shares: the form that learn2learn's heads have, and the solve on Gram matrices below it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from typing_extensions import Self

from ..arguments import SearchSpace, options_of
from ..errors import UsageError
from ..gram import EpisodeGram, small_matrix_dtype
from ..grammar import value_text
from ..kernels import Kernel, resolve_kernel
from .margins import WithQueries
from .validation import check_query, check_support

POWERS_OF_TEN = tuple(10.0**power for power in range(-3, 4))
_FIT = ("fitted_support", "fitted_targets")


class Dual(NamedTuple):
    """A fitted head: the logits of queries are ``K_query,support @ alpha + bias``.

    Attributes:
        alpha: ``(..., n, ways)``.
        bias: ``(..., ways)``.
    """

    alpha: Tensor
    bias: Tensor


class SolvedSystem(NamedTuple):
    """What a head's leave-one-out needs of the support alone."""

    inverse: Tensor  # Of the system's matrix ``(..., n, n)``.
    solution: Tensor  # ``(..., n, ways)``.


class Head(nn.Module, ABC):
    """A base learner; a subclass says in `solve` how the support determines the dual coefficients.

    A head that implements `solve` works with every transductive module, in training and in evaluation. Its class
    attribute ``search_space`` names the arguments that ``fslstm tune`` should choose, each with its candidates. A head
    may have parameters and modules of its own. It keeps each argument of its constructor in an attribute of the same
    name.

    The support that `fit_` takes is part of the head's state: it moves with ``to``, is saved by ``state_dict``, and
    loading makes the head fitted to the saved support, or not fitted where none was saved. `predict`, which models
    and evaluation call, neither uses nor changes it, so that weights of a model hold no episode.
    `fit_`, the forward pass and `predict` work under ``torch.func.vmap`` over episodes, ``torch.compile`` and
    ``torch.export``. Values cannot be read there, so that only shapes and types are checked and ``ways`` must be given;
    and a head fitted inside vmap is useless outside: fit it again there. `SVMClassifier` decides its steps by values,
    and so can be mapped and differentiated, but neither exported nor compiled as one graph.

    Args:
        support: Features ``(..., n, d)`` to fit at once. Default None: call `fit_` later.
        labels: int64 in [0, ways), any order, any number per class: ``(..., n)``, or ``(n,)`` for all episodes.
        ways: Number of classes; default the greatest label + 1.
        kernel: ``"linear"`` (default), ``"rbf"``, ``"polynomial"``, ``"cosine"`` or a `Kernel`.

    Raises:
        UsageError: If support or labels are not valid, or no kernel has that name.

    Example:
        >>> class Parzen(Head):
        ...     def solve(self, kernel, targets):
        ...         return Dual(targets, torch.zeros_like(targets[..., 0, :]))
        >>> head = Parzen(torch.eye(2), torch.tensor([0, 1]))
        >>> head(torch.tensor([[3.0, 1.0]]))
        tensor([[3., 1.]])
    """

    is_transductive: ClassVar[bool] = False
    is_static: bool = False  # see `Method`
    sizes: ClassVar[tuple[str, ...]] = ()  # see `FeatureAdapter`
    search_space: ClassVar[SearchSpace] = {}
    constant: ClassVar[tuple[str, str] | None] = None  # Argument that regularises, and its letter in figures.
    # Why `leave_one_out` has no closed form; None where it has one.
    why_no_leave_one_out: str | None = "its solution does not follow from one solution for all points"
    tunes_itself: bool = False  # Whether it chooses a constant by the support: fits to fewer points may choose another.

    def __init__(
        self,
        support: Tensor | None = None,
        labels: Tensor | None = None,
        ways: int | None = None,
        *,
        kernel: str | Kernel = "linear",
    ) -> None:
        super().__init__()
        self.kernel = resolve_kernel(kernel)
        self.fitted_support: Tensor | None
        self.fitted_targets: Tensor | None
        for name in _FIT:
            self.register_buffer(name, None)
        if support is not None and labels is not None:
            self.fit_(support, labels, ways)
        elif support is not None or labels is not None:
            raise UsageError("A head is fitted to support and labels together, but got only one of them.")

    def extra_repr(self) -> str:
        """The arguments that are not their defaults."""
        return ", ".join(f"{name}={value_text(value)}" for name, value in options_of(self).items())

    @abstractmethod
    def solve(self, kernel: Tensor, targets: Tensor) -> Dual:
        """The dual coefficients of a batch of episodes.

        Args:
            kernel: Support kernel matrices ``(..., n, n)`` in double precision.
            targets: Labels ``(..., n, ways)`` of the same type: one-hot rows times a weight. A point of weight w
                stands for w equal ones, and its coefficient is the sum of theirs. Usually every weight is 1;
                0 is an absent point: its row and column of the kernel are zero, and the solution must not
                depend on it.

        Returns:
            Coefficients and bias, differentiable with respect to the kernel.
        """

    def predict(self, gram: EpisodeGram, targets: Tensor) -> Tensor:
        """Logits of the queries of a batch of episodes, without any check of the input.

        Args:
            gram: The episodes' Gram matrices.
            targets: Labels ``(..., n, ways)`` in the Gram matrix's type, one-hot times a weight; see `solve`.

        Returns:
            Logits ``(..., m, ways)`` in the Gram matrix's type.
        """
        return self.decide(gram, targets, self.learn(gram, targets))

    def learn(self, gram: EpisodeGram, targets: Tensor, start: Dual | None = None) -> Dual:
        """The first half of `predict`: what `solve` makes of the support's kernel matrices.

        A head that iterates may begin at ``start``, the solution for the first of these points, perhaps with other
        weights. That changes the time, not the solution. Default None.
        """
        return self.solve(gram.support_kernel(self.kernel, targets), targets)

    def decide(self, gram: EpisodeGram, targets: Tensor, dual: Dual) -> Tensor:
        """The second half of `predict`: the logits of the queries, given what was learned."""
        return gram.cross_kernel(self.kernel, targets) @ dual.alpha + dual.bias.unsqueeze(-2)

    def reduced(self, gram: EpisodeGram, targets: Tensor) -> tuple[Head, EpisodeGram, Tensor]:
        """An equivalent problem that is quicker to solve repeatedly, each time with other points made of queries.

        The Gram matrices have the queries' own block.

        Returns:
            A head, Gram matrices and labels, by default these: whatever averages or copies of queries are appended to
            both, with whatever labels, the head predicts the same from either.
        """
        return self, gram, targets

    def require_leave_one_out(self) -> None:
        """Refuse where `leave_one_out` has no closed form, naming the reason."""
        if self.why_no_leave_one_out is not None:
            raise UsageError(f"{type(self).__name__} has no closed-form leave-one-out: {self.why_no_leave_one_out}.")

    def leave_one_out(self, gram: EpisodeGram, targets: Tensor, *, of_each_class: bool = False) -> Tensor:
        """The logits of each support point by the head fitted to the others, in closed form.

        A ridge that the support chose stays as it is. The logit of a class whose only point is left out is that of a
        class without points: minus infinity with `PrototypeClassifier`.

        Args:
            gram: See `predict`.
            targets: One-hot labels ``(..., n, ways)`` in the Gram matrix's type, every point present once.
            of_each_class: Whether one point of every other class is left out with it, see `one_of_each_class`, which
                estimates better how the head predicts a query. Default False.

        Returns:
            ``(..., n, ways)``.

        Raises:
            UsageError: If there is no closed form, see `why_no_leave_one_out`.
        """
        self.require_leave_one_out()
        raise NotImplementedError

    def solved_system(self, gram: EpisodeGram, targets: Tensor) -> SolvedSystem | None:
        """The solved system of the support, which all parts of its queries can share in `leave_one_out_with_queries`.

        Default None: there is no such system.
        """
        return None

    def leave_one_out_with_queries(
        self, gram: EpisodeGram, targets: Tensor, *, of_own_class: bool = False, system: SolvedSystem | None = None
    ) -> Iterator[WithQueries]:
        """Leave-one-out of the support joined by one query, for each query and each class that it may be of.

        Args:
            gram: See `leave_one_out`.
            targets: See `leave_one_out`.
            of_own_class: Whether the query is only taken for a point of the same class as the one that is left out,
                which costs ``ways`` times less with some heads. Default False.
            system: What `solved_system` gave for this support. Default None: it is solved.

        Returns:
            The margins of the points and of the query, for a few queries at a time, so that memory is bounded.
        """
        self.require_leave_one_out()
        raise NotImplementedError

    def fit_(self, support: Tensor, labels: Tensor, ways: int | None = None) -> Self:
        """Take a copy of a support set, see `Head`; the system is solved later, together with the queries.

        Returns:
            The head itself.

        Raises:
            UsageError: If a shape, type or value is wrong, or a class has no support point.
        """
        labels, ways = check_support(support, labels, ways)
        self.fitted_support, self.fitted_targets = support.clone(), one_hot(labels, ways)
        return self

    def forward(self, query: Tensor) -> Tensor:
        """Logits of queries of the fitted episodes.

        Args:
            query: Features ``(..., m, d)``; leading dimensions as the support's.

        Returns:
            Logits ``(..., m, ways)`` in the queries' type, differentiable with respect to support and query.

        Raises:
            UsageError: If the head is not fitted, or the queries do not fit the support.
        """
        support, targets = self.fitted_support, self.fitted_targets
        if support is None or targets is None:
            raise UsageError(f"This {type(self).__name__} is not fitted: call fit_(support, labels) first.")
        check_query(support, query)
        gram = EpisodeGram.from_features(support, query)
        return self.predict(gram, targets.to(gram.support)).to(query.dtype)

    def __getstate__(self) -> dict[str, Any]:
        """What a copy keeps: the fit as numbers, without the graph that they came from, which cannot be copied."""
        fit = {name: None if each is None else each.detach() for name, each in self._buffers.items()}
        return self.__dict__ | {"_buffers": fit}

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        """Become what was saved, fitted or not; `nn.Module` alone would refuse a difference."""
        for name in _FIT:
            saved = state_dict.get(prefix + name)
            setattr(self, name, None if saved is None else torch.empty_like(saved))
        super()._load_from_state_dict(state_dict, prefix, *args)


def weight_roots(targets: Tensor) -> tuple[Tensor, Tensor]:
    """Square roots ``(..., n, 1)`` of the points' weights, and the one-hot rows times them ``(..., n, ways)``.

    They turn w equal points into one without any special case. With b the sum of w equal coefficients, ``K b + (ridge /
    w) b = y``. For ``b = sqrt(w) x`` that is ``(sqrt(w) K sqrt(w) + ridge) x = sqrt(w) y``: symmetric, and right for
    w = 0 as well.

    Example:
        >>> weight_roots(torch.tensor([[4.0, 0.0], [0.0, 0.0]]))
        (tensor([[2.],
                [0.]]), tensor([[2., 0.],
                [0., 0.]]))
    """
    roots = targets.sum(-1, keepdim=True).sqrt()
    return roots, targets.sqrt()


def one_hot(labels: Tensor, ways: int) -> Tensor:
    """One-hot targets ``(..., ways)`` of labels ``(...)`` in [0, ways), in the precision of the Gram matrices.

    Example:
        >>> one_hot(torch.tensor([1, 0]), 2)
        tensor([[0., 1.],
                [1., 0.]], dtype=torch.float64)
    """
    hits = labels.unsqueeze(-1) == torch.arange(ways, device=labels.device)
    return hits.to(small_matrix_dtype(labels.device))

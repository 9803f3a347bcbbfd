"""The paper's head: least-squares support vector machines on the columns of a coding matrix."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ..checks import one_of, require
from ..errors import UsageError
from ..gram import EpisodeGram
from ..kernels import Kernel
from ..tracing import values_known
from .base import POWERS_OF_TEN, Dual, weight_roots
from .coding import check_coding, coding_matrix
from .smoother import SmootherHead

_DEFAULT_RIDGE = 0.1
_LEAVE_ONE_OUT = "loo"
_OF_EQUAL_VOTES = 1e-3


class LSSVMClassifier(SmootherHead):
    """Least-squares SVM, several classes by a coding matrix M (ways x L).

    The paper solves one system of L(n + 1) unknowns. Signing the multipliers with the labels makes it, for
    codes without 0, the small ``(K + c 11^T + ridge I) B = M[labels]``, ``bias = c 1^T B`` with ``c = 1 /
    bias_weight``: the same solution, one n x n factorisation. A 0 in the code leaves its class out of that
    binary problem.

    Source: the paper's section on LSSVM and its equation of the large system (solve1). Two constants are
    those of its published implementation, which made its tables. Ridge: the text says gamma = 0.1, that is
    10, but the implementation adds 0.1 I. Bias weight: the objective halves b^2, which makes it 1, but
    equation and implementation have 2.

    For the other arguments see `Head`.

    Args:
        ridge: ``1 / gamma``, in units of a squared feature norm, above 0; default 0.1. The right value
            depends on the features' scale. ``"loo"`` chooses it for each episode (with a code that has 0, for each
            binary problem) by the leave-one-out error of the support, see `leave_one_out_errors`; gradients take the
            multiple of the mean diagonal that it chose as constant. Its candidates follow the features' scale; the
            bias does not, see `choose_ridge`. With one shot, leaving a point out leaves its class out, and the error
            prefers large ridges, with which long points win: normalise features whose common mean is large.
        bias_weight: The number in the system's corner block, above 0; default 2.
        coding: ``"one-vs-all"`` (default), ``"one-vs-one"``, ``"ecoc"``, or a matrix ``(ways, L)`` of
            -1, 0 and 1.
        decoding: From L binary scores f to the logits: ``"soft"`` (default), ``f M^T``, differentiable; or
            ``"hamming"``, ``sign(f) M^T``, whose gradient is zero, for evaluation only. Soft scores
            break its ties, such as among classes whose every score is negative, by 0.001 at most.
        gamma: The paper's weight of the squared errors, in place of the default ridge. Default None.

    Raises:
        UsageError: If an argument is outside its range, gamma and another ridge than the default or ``1 / gamma``
            are given, or as in `Head`.

    Example:
        >>> head = LSSVMClassifier(torch.eye(2), torch.tensor([0, 1]), ridge=1.0, coding="ecoc")
        >>> head(torch.tensor([[3.0, 1.0]]))
        tensor([[ 1., -1.]])
    """

    search_space: ClassVar = {"ridge": (*POWERS_OF_TEN, _LEAVE_ONE_OUT)}
    constant = ("ridge", "ρ")

    def __init__(
        self,
        support: Tensor | None = None,
        labels: Tensor | None = None,
        ways: int | None = None,
        *,
        ridge: float | str = _DEFAULT_RIDGE,
        bias_weight: float = 2.0,
        coding: str | Tensor = "one-vs-all",
        decoding: str = "soft",
        gamma: float | None = None,
        kernel: str | Kernel = "linear",
    ) -> None:
        super().__init__(support, labels, ways, kernel=kernel)
        self.decoding = one_of("decoding", decoding, ("soft", "hamming"))
        self.bias_weight = require("bias_weight", bias_weight, above=0)
        self.offset = 1 / bias_weight
        if gamma is not None:
            require("gamma", gamma, above=0)
            if ridge not in (_DEFAULT_RIDGE, 1 / gamma):
                raise UsageError(f"ridge is 1 / gamma: give one of them, not ridge={ridge} and gamma={gamma}.")
            ridge = 1 / gamma
        if isinstance(ridge, str) and ridge != _LEAVE_ONE_OUT:
            raise UsageError(f"The ridge must be a number above 0 or '{_LEAVE_ONE_OUT}', but got '{ridge}'.")
        self.ridge = ridge if isinstance(ridge, str) else require("ridge", ridge, above=0)
        self.tunes_itself = isinstance(ridge, str)
        # One is chosen by values, and a matrix goes to the device each time.
        self.is_static = not self.tunes_itself and isinstance(coding, str)
        self.coding = check_coding(coding) if isinstance(coding, Tensor) else coding
        if isinstance(coding, Tensor):
            self._leaves_out = bool((coding == 0).any())
        else:
            coding_matrix(coding, 3)  # An unknown name should fail here, not at the first episode.
            self._leaves_out = coding == "one-vs-one"
        if self._leaves_out:
            self.why_no_leave_one_out = "a coding that has 0 leaves other points out of each of its binary problems"
        elif decoding == "hamming":
            self.why_no_leave_one_out = "the signs that Hamming decoding takes are not linear"

    def code(self, ways: int, device: torch.device | None = None) -> Tensor:
        """The coding matrix ``(ways, L)`` for that many classes.

        Raises:
            UsageError: If a matrix was given, and is for another number of classes.
        """
        if isinstance(self.coding, str):
            return coding_matrix(self.coding, ways, device)
        if len(self.coding) != ways:
            raise UsageError(f"The coding matrix is for {len(self.coding)} ways, but the episode has {ways}.")
        return self.coding

    def codes(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """See `SmootherHead.codes`."""
        code = self.code(targets.shape[-1], targets.device).to(targets)
        return code, code.mT

    def solve(self, kernel: Tensor, targets: Tensor) -> Dual:
        """See `Head.solve`; for Hamming decoding the solutions of the L binary problems."""
        encode, decode = self.codes(targets)
        binary = self._solve_binary(kernel, targets, encode)
        return binary if self.decoding == "hamming" else Dual(binary.alpha @ decode, binary.bias @ decode)

    def decide(self, gram: EpisodeGram, targets: Tensor, dual: Dual) -> Tensor:
        """See `Head.decide`."""
        scores = super().decide(gram, targets, dual)
        if self.decoding != "hamming":
            return scores
        _, decode = self.codes(targets)
        soft = scores.detach() @ decode
        soft = soft - soft.mean(-1, keepdim=True)
        greatest = soft.abs().amax(-1, keepdim=True)
        return scores.sign() @ decode + _OF_EQUAL_VOTES * soft / torch.where(greatest > 0, greatest, 1)

    def _can_eliminate(self, gram: EpisodeGram) -> bool:
        """See `SmootherHead`; nor if each column has points of its own, or its signs are taken."""
        return not self._leaves_out and self.decoding == "soft" and super()._can_eliminate(gram)

    def _solve_binary(self, kernel: Tensor, targets: Tensor, code: Tensor) -> Dual:
        """The L binary problems: coefficients ``(..., n, L)`` and biases ``(..., L)``."""
        roots, scaled = weight_roots(targets)
        signs = scaled @ code
        return self._solve_columns(kernel, signs) if self._leaves_out else self._solution(kernel, roots, signs)

    def _solve_columns(self, kernel: Tensor, signs: Tensor) -> Dual:
        """Each column's own system, of those points alone that its code does not leave out."""
        points, columns = signs.shape[-2:]
        present = signs != 0
        size = int(present.sum(-2).max()) if values_known() else points
        # A column with fewer of them is filled up with points whose sign is 0: absent ones.
        order = present.to(torch.uint8).argsort(dim=-2, descending=True, stable=True)[..., :size, :].mT
        pairs = order.unsqueeze(-1) * points + order.unsqueeze(-2)
        # One system per column, along dimension -3: (..., L, size, size).
        systems = kernel.flatten(-2).gather(-1, pairs.flatten(-3)).unflatten(-1, (columns, size, size))
        column = signs.mT.gather(-1, order).unsqueeze(-1)
        alpha, bias = self._solution(systems, column.abs(), column)
        return Dual(torch.zeros_like(signs.mT).scatter(-1, order, alpha.squeeze(-1)).mT, bias.squeeze(-1))

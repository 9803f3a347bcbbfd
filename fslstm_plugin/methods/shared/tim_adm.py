"""TIM by alternating directions: assignments and prototypes in closed form, on the Gram matrix alone."""

from __future__ import annotations

import torch
from torch import Tensor

from .prototypes import class_means


def alternate(
    gram: Tensor,
    targets: Tensor,
    *,
    steps: int,
    temperature: float,
    support_weight: float,
    marginal_weight: float,
    conditional_weight: float,
) -> Tensor:
    """The logits after so many alternations.

    Prototypes are mixtures ``W = B X`` of the points, and all that is needed of them are their products with the points
    and with themselves. Both follow from one step to the next by one product with the Gram matrix.

    Args:
        gram: Inner products ``(episodes, n + m, n + m)``, the support first.
        targets: One-hot labels ``(episodes, n, ways)``.
        steps: Number of alternations.
        temperature: See `TIM`.
        support_weight: See `TIM`.
        marginal_weight: See `TIM`.
        conditional_weight: See `TIM`.

    Returns:
        Logits ``(episodes, m, ways)``, differentiable with respect to the Gram matrix.
    """
    # Classes before points: softmax and products are several times as fast over long rows.
    labels = targets.mT.to(gram.dtype)
    n, m = labels.shape[-1], gram.shape[-1] - labels.shape[-1]
    exponent, balance = 1 + conditional_weight, marginal_weight / (marginal_weight + 1)
    importance = gram.new_full((n + m,), n / max(m, 1))
    importance[:n] = support_weight / exponent

    mean = class_means(targets).to(gram)
    products = mean @ gram[..., :n, :]  # Of each prototype with each point, and with itself.
    norms = (mean * products[..., :n]).sum(-1, keepdim=True)
    for _ in range(steps):
        log_p = _logits(products, norms, temperature).log_softmax(-2)
        sharp = exponent * log_p[..., n:]
        # Each class's probabilities are divided by a power of their sum, which is what pulls to uniform.
        assigned = (sharp - balance * sharp.logsumexp(-1, keepdim=True)).softmax(-2)
        wanted, found = importance * torch.cat([labels, assigned], -1), importance * log_p.exp()
        move, keep, total = wanted - found, found.sum(-1, keepdim=True), wanted.sum(-1, keepdim=True)
        moved = move @ gram
        # w <- (sum_i move_i x_i + keep w) / total, and what this makes of w.x and w.w.
        norms = ((move * (moved + 2 * keep * products)).sum(-1, keepdim=True) + keep.square() * norms) / total.square()
        products = (moved + keep * products) / total
    own = gram.diagonal(dim1=-2, dim2=-1).unsqueeze(-2)
    return (_logits(products, norms, temperature) - temperature / 2 * own)[..., n:].mT


def _logits(products: Tensor, norms: Tensor, temperature: float) -> Tensor:
    """Logits ``(episodes, ways, points)`` less what all classes share, the point's squared norm."""
    return temperature * (products - norms / 2)

"""The Gram matrix of an episode: kernels and extension against explicit features."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fslstm_plugin.errors import UnknownNameError, UsageError
from fslstm_plugin.gram import EpisodeGram
from fslstm_plugin.heads import LSSVMClassifier
from fslstm_plugin.kernels import RBF, Cosine, Kernel, Linear, Polynomial, resolve_kernel
from fslstm_plugin.transduction import CandidateSelection, PseudoSupportModule, TransductiveModule


def explicit(kernel: Kernel, left: Tensor, right: Tensor) -> Tensor:
    """The kernel written out on features."""
    dim = left.shape[-1]
    if isinstance(kernel, RBF):
        return torch.exp(-(kernel.scale or 1 / dim) * torch.cdist(left, right) ** 2)
    if isinstance(kernel, Polynomial):
        return ((kernel.scale or 1 / dim) * left @ right.mT + kernel.offset) ** kernel.degree
    if isinstance(kernel, Cosine):
        return torch.cosine_similarity(left.unsqueeze(-2), right.unsqueeze(-3), dim=-1)
    return left @ right.mT


KERNELS = [Linear(), RBF(), RBF(scale=0.3), Polynomial(), Polynomial(2, 0.5, 0.1), Cosine()]


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_kernels_are_those_of_the_features(kernel: Kernel) -> None:
    torch.manual_seed(0)
    support, query = torch.randn(3, 6, 9, dtype=torch.float64), torch.randn(3, 4, 9, dtype=torch.float64)
    gram = EpisodeGram.from_features(support, query)
    present = torch.eye(6, dtype=torch.float64).expand(3, -1, -1)
    matrix, cross = gram.support_kernel(kernel, present), gram.cross_kernel(kernel, present)
    torch.testing.assert_close(matrix, explicit(kernel, support, support))
    torch.testing.assert_close(cross, explicit(kernel, query, support))
    own = explicit(kernel, query, query).diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(gram.query_self_kernel(kernel), own)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_appended_mixtures_are_those_of_the_features(kernel: Kernel) -> None:
    torch.manual_seed(1)
    support, query = torch.randn(2, 3, 8, dtype=torch.float64), torch.randn(2, 5, 8, dtype=torch.float64)
    mixes = torch.rand(2, 2, 4, 5, dtype=torch.float64)
    gram = EpisodeGram.from_features(support, query, transductive=True)
    for mix in mixes:
        gram = gram.append(mix)
    extended = torch.cat([support, mixes[0] @ query, mixes[1] @ query], -2)
    present = torch.eye(11, dtype=torch.float64).expand(2, -1, -1)
    matrix, cross = gram.support_kernel(kernel, present), gram.cross_kernel(kernel, present)
    torch.testing.assert_close(matrix, explicit(kernel, extended, extended))
    torch.testing.assert_close(cross, explicit(kernel, query, extended))


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_absent_points_have_no_kernel(kernel: Kernel) -> None:
    torch.manual_seed(2)
    gram = EpisodeGram.from_features(torch.randn(3, 8), torch.randn(5, 8), transductive=True)
    targets = torch.cat([torch.eye(3), torch.zeros(2, 3)]).double()
    longer = gram.append(torch.zeros(2, 5))
    matrix, cross = longer.support_kernel(kernel, targets), longer.cross_kernel(kernel, targets)
    alone, alone_cross = gram.support_kernel(kernel, targets[:3]), gram.cross_kernel(kernel, targets[:3])
    torch.testing.assert_close(matrix, torch.block_diag(alone, torch.zeros(2, 2).double()))
    torch.testing.assert_close(cross, torch.cat([alone_cross, torch.zeros(5, 2).double()], -1))


def test_rounding_leaves_the_matrix_symmetric_and_positive() -> None:
    """More points than features, in single precision: exact zeros among the eigenvalues."""
    torch.manual_seed(3)
    features = 100 * torch.randn(20, 30, 4)
    gram = EpisodeGram.from_features(features, features, transductive=True)
    assert torch.equal(gram.support, gram.support.mT)
    assert torch.linalg.eigvalsh(gram.support).min() > -1e-8


def test_half_precision_and_autocast_do_not_reach_the_gram_matrix() -> None:
    torch.manual_seed(4)
    support, query = torch.randn(4, 64).bfloat16(), torch.randn(6, 64).bfloat16()
    expected = EpisodeGram.from_features(support.double(), query.double())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        gram = EpisodeGram.from_features(support, query)
    torch.testing.assert_close(gram.cross, expected.cross, rtol=1e-5, atol=1e-5)


def test_a_gram_matrix_without_queries_says_how_to_get_them() -> None:
    gram = EpisodeGram.from_features(torch.eye(2), torch.eye(2))
    with pytest.raises(UsageError, match="transductive=True"):
        gram.append(torch.ones(1, 2))


def test_wrong_kernels_are_named() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'cosine'"):
        resolve_kernel("cosin")
    with pytest.raises(UsageError, match="`scale` must be a finite number above 0"):
        RBF(scale=0.0)
    for degree in (0, 2.5):
        with pytest.raises(UsageError, match="`degree` must be a whole number of at least 1"):
            Polynomial(degree=degree)
    with pytest.raises(UsageError, match="`offset` must be a finite number of at least 0"):
        Polynomial(offset=float("nan"))
    with pytest.raises(UsageError, match="`scale` must be a finite number above 0"):
        RBF(scale=float("inf"))


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_a_kernel_is_read_as_it_is_written(kernel: Kernel) -> None:
    assert resolve_kernel(str(kernel)) == kernel


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rbf(scael=1)", "Did you mean 'scale'"),
        ("rbf(scale=x)", "scale must be a finite number above 0, but got 'x'"),
        ("rbf(scale)", "'scale' in .* needs a value"),
        ("rbf(scale=1", "must be a name, or a name with arguments"),
        ("rbf(scale=-1)", "scale must be a finite number above 0"),
        ("polynomial(degree=1.5)", "degree must be a whole number"),
    ],
)
def test_arguments_of_a_kernel_that_are_wrong_say_why(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve_kernel(text)


def low_rank(rank: int, norm: float, ways: int, shots: int, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Single-precision episodes whose points, of about that norm, lie in a subspace."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(ways).repeat(shots)
    centres = torch.randn(10, ways, rank, generator=generator).repeat(1, shots + 3, 1)
    points = centres + torch.randn(centres.shape, generator=generator)
    features = points @ torch.linalg.qr(torch.randn(10, dim, rank, generator=generator)).Q.mT
    features = features * norm / features.norm(dim=-1).mean()
    return features[:, : len(labels)], labels, features[:, len(labels) :]


@pytest.mark.parametrize("module", [None, PseudoSupportModule(10), CandidateSelection()], ids=["plain", "psm", "can"])
@pytest.mark.parametrize("episodes", [(3, 289, 5, 5, 640), (24, 1e4, 5, 5, 640), (30, 50, 20, 5, 2560)], ids=str)
def test_features_of_low_rank_get_the_predictions_of_double_precision(
    episodes: tuple[int, float, int, int, int], module: TransductiveModule | None
) -> None:
    """Their Gram matrix is singular, so that a head divides its rounding by the ridge alone."""
    support, labels, query = low_rank(*episodes)

    def predictions(support: Tensor, query: Tensor) -> Tensor:
        head = LSSVMClassifier()
        logits = module(head, support, labels, query) if module else head.fit_(support, labels)(query)
        return logits.argmax(-1)

    assert torch.equal(predictions(support, query), predictions(support.double(), query.double()))


def test_an_episode_of_low_rank_leaves_the_others_in_single_precision() -> None:
    """Double precision costs several times as much, and ordinary features do not need it."""
    torch.manual_seed(0)
    points = torch.randn(6, 30, 640).relu()
    points[2, 4] = points[2, 3]
    got, wanted = EpisodeGram.from_points(points, 10), EpisodeGram.from_points(points.double(), 10)
    exact = [torch.equal(one, other) for one, other in zip(got.support, wanted.support, strict=True)]
    assert exact == [False, False, True, False, False, False]


def test_gradients_flow_through_both_precisions() -> None:
    torch.manual_seed(0)
    points = torch.randn(2, 8, 40)
    points[1, 1] = points[1, 0]
    points.requires_grad_()
    doubled = points.detach().double().requires_grad_()
    for leaf in (points, doubled):
        gram = EpisodeGram.from_points(leaf, 3)
        (gram.support.sin().sum() + gram.cross.sin().sum() + gram.query_norms.sin().sum()).backward()
    torch.testing.assert_close(points.grad.double(), doubled.grad, rtol=1e-3, atol=1e-3)


def test_digits_are_kept_where_pytorch_may_drop_them() -> None:
    points = torch.randn(2, 8, 64)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        got = EpisodeGram.from_points(points, 5).support
    finally:
        torch.set_float32_matmul_precision(before)
    torch.testing.assert_close(got, EpisodeGram.from_points(points.double(), 5).support, atol=0, rtol=1e-12)


@pytest.mark.parametrize("name", ["cuda", "mkldnn"])
def test_digits_are_kept_where_a_library_may_drop_them(name) -> None:
    library = getattr(getattr(torch.backends, name), "matmul", None)
    if not hasattr(library, "fp32_precision"):
        pytest.skip("this version of torch has no such setting for one library")
    points = torch.randn(2, 8, 64)
    before = library.fp32_precision
    library.fp32_precision = "tf32"
    try:
        got = EpisodeGram.from_points(points, 5).support
    finally:
        library.fp32_precision = before
    torch.testing.assert_close(got, EpisodeGram.from_points(points.double(), 5).support, atol=0, rtol=1e-12)


@pytest.mark.parametrize("transductive", [False, True])
def test_points_far_from_the_origin_keep_their_differences(transductive: bool) -> None:
    torch.manual_seed(0)
    points = torch.randn(4, 20, 64)
    points[1:3] += torch.tensor([1e2, 1e4])[:, None, None]
    got = EpisodeGram.from_points(points, 5, transductive)
    wanted = EpisodeGram.from_points(points.double(), 5, transductive)
    for name in ("support", "cross", "query_norms", "query")[: 4 if transductive else 3]:
        mine, exact = getattr(got, name), getattr(wanted, name)
        torch.testing.assert_close(mine[[0, 3]], exact[[0, 3]], atol=1e-3, rtol=0)
        torch.testing.assert_close(mine[1:3], exact[1:3], atol=0, rtol=1e-12)

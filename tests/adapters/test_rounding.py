"""What a mean leaves of equal points by rounding is nothing, and not a unit vector."""

from __future__ import annotations

import pytest
import torch

from fslstm_plugin import EpisodeFeatures, parse_method
from fslstm_plugin.kernels import FarAwayWarning


@pytest.mark.parametrize("mean", ["episode", "base"])
@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e6 / 7])
def test_constant_features_stay_zero(mean: str, precision: torch.dtype, value: float) -> None:
    points = torch.full((12, 37), value, dtype=precision)
    features = EpisodeFeatures(points[:5], points[5:], torch.arange(5), base_mean=points.mean(0))
    prepared = parse_method(f"nn(center={mean},normalize)").prepare(features)
    assert (prepared.points == 0).all()
    assert (prepared.gram.support == 0).all()
    assert (prepared.gram.cross == 0).all()


def test_small_differences_that_are_not_rounding_count() -> None:
    points = 1 + 1e-4 * torch.randn(8, 20, generator=torch.Generator().manual_seed(0))
    features = EpisodeFeatures(points[:3], points[3:], torch.arange(3))
    prepared = parse_method("nn(center=episode,normalize)").prepare(features)
    torch.testing.assert_close(torch.linalg.vector_norm(prepared.points, dim=-1), torch.ones(8))


def test_queries_that_a_kernel_says_nothing_about_are_pointed_out() -> None:
    """All logits are equal there, so that the first class would win without a word."""
    points = 1e3 * torch.randn(8, 20, generator=torch.Generator().manual_seed(0))
    features = EpisodeFeatures(points[:3], points[3:], torch.arange(3))
    with pytest.warns(FarAwayWarning, match="5 queries. .* normalise the features, or give a smaller scale"):
        parse_method("rr(kernel=rbf)").logits(features)

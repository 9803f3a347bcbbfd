"""Features of episodes that are looked up when they are needed, and only then."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fslstm_plugin.data.sampler import EpisodeSampler
from fslstm_plugin.evaluation.runner import FeatureSource, indexed, run_methods
from fslstm_plugin.evaluation.running import FEATURES_AT_A_TIME
from fslstm_plugin.features import EpisodeFeatures
from fslstm_plugin.heads import one_hot
from fslstm_plugin.naming import parse_method

LABELS = torch.arange(6).repeat_interleave(20)


@pytest.mark.parametrize("names", [["nn", "lssvm(normalize)+psm"], ["nn", "tim(solver=gd,steps=2)"]], ids="+".join)
def test_each_part_of_a_batch_is_looked_up_once(names: list[str]) -> None:
    source, seen = indexed(torch.randn(len(LABELS), 8)), []

    def points(indices: Tensor) -> Tensor:
        seen.append(len(indices))
        return source.points(indices)

    sampler, methods = EpisodeSampler(LABELS, 5, 1, 3, seed=0), [parse_method(name) for name in names]
    episodes = 2 * FEATURES_AT_A_TIME
    found = run_methods(FeatureSource(points), sampler, methods, episodes, batch_episodes=episodes, workers=1)
    assert seen == [1, FEATURES_AT_A_TIME, FEATURES_AT_A_TIME]  # the first to warm up
    expected = run_methods(source, sampler, methods, episodes, batch_episodes=7)
    assert all(torch.equal(one.accuracies, other.accuracies) for one, other in zip(found, expected, strict=True))


def test_what_was_released_is_made_again() -> None:
    points, times = torch.randn(2, 7, 4, dtype=torch.float64), []

    def look_up() -> Tensor:
        times.append(1)
        return points.clone()

    features = EpisodeFeatures.looked_up(look_up, 3, one_hot(torch.tensor([0, 1, 0, 1]), 2).expand(2, -1, -1))
    method = parse_method("lssvm(normalize)")
    adapted, gram = method.prepare(features), features.gram
    normalized = adapted.points
    assert (features.num_query, adapted.num_query, len(times)) == (3, 3, 1)
    features.release()
    assert features.gram is gram
    assert torch.equal(adapted.points, normalized)
    assert torch.equal(torch.cat([features.support, features.query], -2), points)
    assert len(times) == 2

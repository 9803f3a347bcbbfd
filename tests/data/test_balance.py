"""How queries are shared: by the Dirichlet distribution, however small its parameter."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fslstm_plugin.data.balance import QueryBalance
from fslstm_plugin.errors import UsageError


def shares(concentration: float, episodes: int = 4000, ways: int = 5, queries: int = 200) -> torch.Tensor:
    """Share of each class in each episode's queries."""
    balance = QueryBalance(concentration)
    counts = [balance.counts(ways, queries, seed=0, episode=episode) for episode in range(episodes)]
    return torch.tensor(counts).double() / (ways * queries)


@pytest.mark.parametrize("text", ["dirichlet", "dirichlet:x", "dirichlet:0", None, 2.0, np.ones(2)])
def test_another_balance_is_refused(text: object) -> None:
    with pytest.raises(UsageError):
        QueryBalance.parse(text)  # type: ignore[arg-type]


@pytest.mark.parametrize("concentration", [5e-324, 1e-300, 1e-12, 1e-6, 1e-4])
def test_one_class_takes_all_when_the_parameter_is_tiny(concentration: float) -> None:
    drawn = shares(concentration, queries=15)
    assert (drawn.max(1).values == 1).double().mean() > 0.99
    assert drawn.mean(0) == pytest.approx([0.2] * 5, abs=0.03)


@pytest.mark.parametrize("concentration", [1e-3, 0.01, 0.05, 0.099, 0.1, 0.5, 1, 2, 5, 50])
@pytest.mark.parametrize("ways", [2, 5])
def test_moments_are_those_of_the_dirichlet_distribution(concentration: float, ways: int) -> None:
    drawn = shares(concentration, ways=ways)
    variance = (ways - 1) / (ways**2 * (ways * concentration + 1))
    assert drawn.mean(0) == pytest.approx([1 / ways] * ways, abs=0.03)
    assert drawn.var(0).mean().item() == pytest.approx(variance, rel=0.06)


def test_the_draws_of_the_published_parameter_stay_as_they_are() -> None:
    counts = [QueryBalance(2.0).counts(5, 15, seed=0, episode=episode) for episode in range(3)]
    assert counts == [[9, 31, 22, 4, 9], [14, 16, 3, 5, 37], [6, 16, 2, 26, 25]]
    counts = [QueryBalance(0.5).counts(5, 15, seed=0, episode=episode) for episode in range(3)]
    assert counts == [[2, 45, 0, 28, 0], [12, 15, 47, 0, 1], [0, 11, 0, 34, 30]]

"""How many operations, copies and waits an evaluation adds to what its methods do on a GPU."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from pretended import Counts, PretendedGPU

from fslstm_plugin.data.balance import QueryBalance
from fslstm_plugin.data.sampler import EpisodeSampler
from fslstm_plugin.evaluation.runner import indexed, run_methods
from fslstm_plugin.methods.base import Method
from fslstm_plugin.naming import parse_method

LABELS = torch.arange(8).repeat_interleave(40)


class Free(Method):
    """Predicts the same without any operation."""

    is_transductive = False

    def __init__(self, episodes: int) -> None:
        super().__init__()
        self.answers = torch.zeros(episodes, 20, 4).to("cuda")

    def logits(self, features):
        return self.answers[: len(features.points)]


def counted(methods, episodes: int, batch_episodes: int | None, balance: str = "uniform") -> Counts:
    """Of evaluating so many episodes, less what is done once."""
    sampler = EpisodeSampler(LABELS, 4, 2, 5, seed=0, balance=QueryBalance.parse(balance))
    source = indexed(torch.randn(len(LABELS), 16).to("cuda"))
    found = []
    for number in (0, episodes):
        PretendedGPU.counts = Counts()
        run_methods(source, sampler, methods, number, "cuda", batch_episodes)
        found.append(PretendedGPU.counts)
    once, all_of_it = found
    all_of_it.operations.subtract(once.operations)
    all_of_it.waits.subtract(once.waits)
    all_of_it.copies -= once.copies
    return all_of_it


def kinds(found: Counts) -> Counter[str]:
    """The waits by what waits."""
    waits: Counter[str] = Counter()
    for place, number in (+found.waits).items():
        waits[place.partition(" ")[0]] += number
    return waits


@pytest.mark.parametrize("balance", ["uniform", "dirichlet:1"])
def test_a_batch_is_sent_at_once_and_waited_for_once(balance):
    with PretendedGPU():
        found = counted([Free(50), Free(50)], 100, 50, balance)
    assert found.copies == 2
    assert kinds(found) == {"event": 2}, "one for each batch, for its results"
    assert found.operations.total() <= 2 * (10 + 2 * 10), "for each batch and each method in it"


def test_methods_share_what_they_need():
    """Each head's own operations, and a product of the features once."""
    names = ["nn", "rr", "lssvm", "lssvm(normalize)"]
    with PretendedGPU():
        found = counted([parse_method(name).to("cuda") for name in names], 100, 100)
    assert found.operations["bmm"] <= 1 + 5 * len(names)
    assert found.operations.total() <= 200
    assert kinds(found) == {"event": 1, "_local_scalar_dense": 3}, "whether each system is accurate enough"


def test_all_episodes_go_together_where_memory_allows(monkeypatch):
    sizes = []

    class Noting(Free):
        def logits(self, features):
            sizes.append(len(features.points))
            return super().logits(features)

    def sizes_at(used: int, episodes: int) -> list[int]:
        sizes.clear()
        monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: used)
        run_methods(source, sampler, [Noting(5000)], episodes, "cuda")
        return sizes[2:]  # without the warming up, and the measurement

    sampler = EpisodeSampler(LABELS, 4, 2, 5, seed=0)
    with PretendedGPU():
        source = indexed(torch.randn(len(LABELS), 16).to("cuda"))
        assert sizes_at(0, 5000) == [2500, 2500]
        assert sizes_at(16 * 2**23, 1000) == [500, 500]
        assert sizes_at(16 * 2**40, 20) == [1] * 20

"""Episodes: which images they hold, and what that depends on."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fslstm_plugin.data.balance import QueryBalance
from fslstm_plugin.data.sampler import EpisodeSampler
from fslstm_plugin.episodes import Episodes
from fslstm_plugin.errors import UsageError

LABELS = torch.arange(12).repeat_interleave(25)


@settings(max_examples=40, deadline=None)
@given(ways=st.integers(2, 12), shots=st.integers(1, 10), queries=st.integers(1, 15), seed=st.integers(0, 2**31))
def test_an_episode_has_its_classes_and_no_image_twice(ways, shots, queries, seed):
    sampler = EpisodeSampler(LABELS, ways, shots, queries, seed)
    for indices in sampler.batch(0, 3):
        assert len(indices.unique()) == len(indices) == ways * (shots + queries)
        classes = LABELS[indices]
        for label in range(ways):
            assert len(classes[sampler.labels == label].unique()) == 1
        assert len(classes.unique()) == ways
    assert sampler.labels[: sampler.num_support].bincount().tolist() == [shots] * ways
    assert sampler.labels[sampler.num_support :].bincount().tolist() == [queries] * ways


def test_an_episode_depends_on_seed_and_number_alone():
    sampler = EpisodeSampler(LABELS, 5, 1, 3, seed=7)
    whole = sampler.batch(0, 10)
    random.seed(99)
    assert torch.equal(EpisodeSampler(LABELS, 5, 1, 3, seed=7).batch(4, 3), whole[4:7])
    assert not torch.equal(EpisodeSampler(LABELS, 5, 1, 3, seed=8).batch(0, 10), whole)
    assert len({tuple(row.tolist()) for row in whole}) == 10


def test_episodes_are_the_same_on_every_machine():
    sampler = EpisodeSampler(LABELS, 3, 1, 1, seed=0)
    assert sampler.batch(0, 2).tolist() == [[137, 199, 169, 143, 190, 150], [237, 175, 275, 233, 186, 277]]


def learn2learns_episodes(labels, ways, images, seed, count):
    """Indices of the tasks of learn2learn's own taskset."""
    from learn2learn.data import MetaDataset, Taskset
    from learn2learn.data.transforms import FusedNWaysKShots
    from torch.utils.data import TensorDataset

    members = {label: (labels == label).nonzero().flatten().tolist() for label in range(int(labels.max()) + 1)}
    dataset = MetaDataset(TensorDataset(labels), labels_to_indices=members)
    taskset = Taskset(dataset, [FusedNWaysKShots(dataset, n=ways, k=images)])
    episodes = []
    for episode in range(count):
        random.seed(f"{seed}/{episode}")
        episodes.append([description.index for description in taskset.sample_task_description()])
    return torch.tensor(episodes).view(count, ways, images)


@pytest.mark.parametrize("counts", [[600] * 20, [600] * 64, [120, 97, 300, 150, 98, 101]])
@pytest.mark.parametrize(("ways", "shots", "queries"), [(5, 1, 15), (5, 5, 15), (2, 1, 1), (6, 10, 6)])
@pytest.mark.parametrize("balance", [QueryBalance(), QueryBalance(2.0)])
def test_episodes_are_learn2learns_index_for_index(counts, ways, shots, queries, balance):
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))]
    for seed in (0, 2**32 - 1):
        sampler = EpisodeSampler(labels, ways, shots, queries, seed, balance=balance)
        images = shots + balance.most(ways, queries)
        expected = learn2learns_episodes(labels, ways, images, seed, 5)
        support, query = sampler.batch(0, 5).split([ways * shots, ways * queries], dim=1)
        assert torch.equal(support, expected[..., :shots].flatten(1))
        for episode, targets in enumerate(sampler.query_labels(0, 5)):
            first = [expected[episode, way, shots:][: int((targets == way).sum())] for way in range(ways)]
            assert torch.equal(query[episode], torch.cat(first))


def test_drawing_imports_neither_learn2learn_nor_lightning():
    code = (
        "import sys, torch; from fslstm_plugin.data.sampler import EpisodeSampler as E;"
        "E(torch.arange(5).repeat(9), 5, 1, 3, 0).batch(0, 2);"
        "print({'learn2learn', 'pytorch_lightning', 'lightning_fabric'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"


def test_pythons_global_generator_is_left_alone():
    sampler = EpisodeSampler(LABELS, 3, 1, 1, seed=0)
    random.seed(5)
    expected = random.random()
    random.seed(5)
    sampler.batch(0, 4)
    assert random.random() == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ways": 13}, "`ways=13` is not possible: the split has only 12 classes"),
        ({"ways": 1}, "`ways` must be a whole number of at least 2"),
        ({"shots": 0}, "`shots` must be a whole number of at least 1"),
        ({"queries": 0}, "`queries` must be a whole number of at least 1"),
        ({"shots": 20, "queries": 6}, "`shots=20` and `queries=6` need 26 images per class, but class '0' has 25"),
        ({"seed": -1}, "`seed` must be a whole number of at least 0"),
    ],
)
def test_impossible_episodes_are_refused(change, message):
    with pytest.raises(UsageError, match=message):
        EpisodeSampler(LABELS, **{"ways": 5, "shots": 1, "queries": 3, "seed": 0, **change})


def test_a_task_of_learn2learn_becomes_an_episode():
    labels = torch.tensor([7, 3, 7, 3, 3, 7, 7])
    data = torch.arange(7.0).unsqueeze(1)
    episodes = Episodes.from_task(data.unsqueeze(0), labels.unsqueeze(0), ways=2, shots=1)
    assert episodes.support.flatten().tolist() == [1, 0]
    assert episodes.support_labels.tolist() == [[0, 1]]
    assert episodes.query.flatten().tolist() == [3, 4, 2, 5, 6]
    assert episodes.query_labels.tolist() == [[0, 0, 1, 1, 1]]


def test_tasks_of_another_shape_are_refused():
    data, labels = torch.zeros(4, 1), torch.tensor([0, 0, 1, 1])
    with pytest.raises(UsageError, match="expected to have 3 classes, but it has 2"):
        Episodes.from_task(data, labels, ways=3, shots=1)
    with pytest.raises(UsageError, match="at least 3 samples, but one has 2"):
        Episodes.from_task(data, labels, ways=2, shots=2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": torch.arange(19) % 5}, r"one label for each sample, but got samples \(20, 1\) and labels \(19,\)"),
        ({"data": torch.zeros(19, 1)}, r"one label for each sample, but got samples \(19, 1\) and labels \(20,\)"),
        ({"labels": torch.zeros(2, 20)}, r"and labels \(2, 20\)"),
        ({"labels": torch.arange(20).cfloat()}, "must be integers such as torch.int64, but got torch.complex64"),
        ({"labels": (torch.arange(20) % 5).float()}, "must be integers such as torch.int64, but got torch.float32"),
        ({"labels": torch.arange(20) % 2 == 0, "ways": 2}, "must be integers such as torch.int64, but got torch.bool"),
        ({"labels": [0, 1] * 10}, "two tensors, samples and their labels, but got a Tensor and a list"),
        *(({"shots": shots}, "`shots` must be a whole number of at least 1") for shots in (0, -1, 1.5, "a", None)),
    ],
)
def test_what_is_no_task_is_refused(change, message):
    task = {"data": torch.zeros(20, 1), "labels": torch.arange(20) % 5, "ways": 5, "shots": 1}
    with pytest.raises(UsageError, match=message):
        Episodes.from_task(**task | change)


def test_embedding_is_one_pass_over_all_samples():
    calls = []

    def features(images):
        calls.append(images.shape)
        return images.flatten(1)

    episodes = Episodes(torch.randn(2, 6, 3, 4, 4), torch.zeros(2, 6, dtype=torch.long), 2, 2)
    embedded = episodes.embed(features)
    assert calls == [(12, 3, 4, 4)]
    assert torch.equal(embedded.samples, episodes.samples.flatten(2))

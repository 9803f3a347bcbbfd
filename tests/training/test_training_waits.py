"""How many operations, copies and waits a training on a GPU adds to the model's own."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest
from pretended import PretendedGPU

from fslstm_plugin.data.sampler import EpisodeSampler
from fslstm_plugin.normalization import Normalization
from fslstm_plugin.recipes import Augmentation, base_class_pretraining, changed
from fslstm_plugin.storage.plain import to_plain
from fslstm_plugin.training.classification import SplitBatches
from fslstm_plugin.training.streams import EpisodeStream

PLAIN = Normalization((0.5, 0.5, 0.5), (0.2, 0.2, 0.2))
RECIPE = changed(type(base_class_pretraining(32)), to_plain(base_class_pretraining(32)), {"batch_size": 2})
STEPS = 100


def episodes(split, module):
    sampler = EpisodeSampler(split.labels, 2, 1, 1, seed=0)
    return EpisodeStream(split, sampler, PLAIN, Augmentation.published(32), 2, STEPS, module)


def batches(split, module):
    made = SplitBatches(split, RECIPE, PLAIN, seed=0)
    made.module = module
    return made


@pytest.mark.parametrize("stream", [episodes, batches])
def test_images_are_made_without_waiting_and_sent_for_many_steps(stream, dots):
    with PretendedGPU():
        module = SimpleNamespace(device="cuda", trainer=SimpleNamespace(global_step=0, global_rank=0, world_size=1))
        made = stream(dots, module)
        next(iter(made))  # The images themselves, and constants.
        PretendedGPU.counts = type(PretendedGPU.counts)()
        for number, _ in enumerate(made, 1):
            if number == STEPS:
                break
        counts = PretendedGPU.counts
    assert number == STEPS
    assert counts.copies <= 2 * -(-STEPS // 64) + 1
    assert +counts.waits == Counter()
    assert counts.operations.total() <= 40 * STEPS

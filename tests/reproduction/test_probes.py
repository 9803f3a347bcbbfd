"""What an estimate is made of: each part measured as it would run, once."""

from __future__ import annotations

import pytest
import torch
from msgspec import structs

from fslstm_plugin.backbones.conv4 import Conv4
from fslstm_plugin.reproduction import probes
from fslstm_plugin.reproduction.estimate import duration
from fslstm_plugin.training.configuration import pretrain_config, train_config
from fslstm_plugin.training.episodic import EpisodicModule


def test_times_of_a_busy_machine_and_of_an_idle_one_are_the_same(monkeypatch):
    clock = iter([0.0, 5.0, 5.0, 7.0, 7.0, 10.0])
    monkeypatch.setattr(probes.time, "process_time", lambda: next(clock))
    monkeypatch.setattr(probes.torch, "get_num_threads", lambda: 2)
    assert probes._seconds(lambda: None, torch.device("cpu")) == 1.0, "the shortest, by the threads' own time"
    assert duration(61 * 60) == duration(55 * 60) == "about 1 h"


@pytest.mark.parametrize("precision", ["32", "bf16"])
@pytest.mark.parametrize("algorithm", ["lssvm+iam", "sib", "reptile(steps=1)"])
def test_a_training_is_estimated_by_steps_of_its_own(algorithm, precision, monkeypatch):
    seen = []
    learn = EpisodicModule.learn

    def noted(module, episodes):
        seen.append(
            (
                torch.is_autocast_enabled("cpu"),
                module.model.backbone.training,
                tuple(episodes.samples.flatten(0, 1).shape),
            )
        )
        return learn(module, episodes)

    def worked(work, *_):
        work()
        return 2.0

    monkeypatch.setattr(EpisodicModule, "learn", noted)
    monkeypatch.setattr(probes, "_seconds", worked)
    config = train_config("cifar-fs", "conv4", algorithm, precision=precision, seed=7)
    recipe = config.recipe
    images = recipe.ways * (recipe.shots + recipe.queries)
    assert probes.seconds_per_step(config, torch.device("cpu")) == 2.0 * recipe.episodes_per_step
    assert seen == [(precision == "bf16", not recipe.frozen_backbone, (images, 3, 32, 32))]
    again = structs.replace(config, seed=8, max_steps=9, pretrained="base")
    assert probes.seconds_per_step(again, torch.device("cpu")) == 2.0 * recipe.episodes_per_step
    assert len(seen) == 1, "measured once"


@pytest.mark.parametrize(("precision", "kind"), [("32", torch.float32), ("bf16", torch.bfloat16)])
def test_a_pretraining_is_estimated_in_its_precision(precision, kind, monkeypatch):
    seen = []
    forward = Conv4.forward

    def noted(backbone, images):
        features = forward(backbone, images)
        seen.append((features.dtype, backbone.training))
        return features

    def worked(work, *_):
        work()
        return 32 * 3.0

    monkeypatch.setattr(Conv4, "forward", noted)
    monkeypatch.setattr(probes, "_seconds", worked)
    given = {"batch_size": 10, "sizes": (0.5, 1.0), "shares": (0.5, 0.5), "lr": 0.123}
    config = pretrain_config("conv4", dataset="cifar-fs", precision=precision, given=given)
    assert probes.seconds_per_step(config, torch.device("cpu")) == 3.0 * 10 * (0.25 + 1) / 2
    assert seen == [(kind, True)]

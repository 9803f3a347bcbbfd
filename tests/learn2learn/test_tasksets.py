"""The prepared data sets as learn2learn tasksets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from fslstm_plugin.data.root import VARIABLE, load_split
from fslstm_plugin.data.sets import glyphs
from fslstm_plugin.errors import DataError
from fslstm_plugin.learn2learn.tasksets import register_tasksets, tasksets

benchmarks = pytest.importorskip("learn2learn.vision.benchmarks")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data root with a few glyphs of each class."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(glyphs, "IMAGES_PER_CLASS", 6)
        patch.setattr(glyphs.Glyphs, "images_per_class", 6)
        yield tmp_path_factory.mktemp("data")


def test_registering_adds_names_and_replaces_none() -> None:
    before = dict(benchmarks._TASKSETS)
    register_tasksets()
    after = dict(benchmarks._TASKSETS)
    register_tasksets()
    assert dict(benchmarks._TASKSETS) == after
    assert before.items() <= after.items()
    assert {"glyphs", "cifar-fs", "mini", "cifarfs", "fc100"} <= after.keys()


@pytest.mark.parametrize("device", [None, "cpu"])
def test_learn2learn_draws_tasks_from_our_images(root: Path, device: str | None) -> None:
    register_tasksets()
    sets = benchmarks.get_tasksets(
        "glyphs", train_ways=5, train_samples=4, test_ways=3, test_samples=2, root=str(root), device=device
    )
    for taskset, split, ways, samples in (
        (sets.train, "train", 5, 4),
        (sets.validation, "val", 3, 2),
        (sets.test, "test", 3, 2),
    ):
        images, labels = taskset.sample()
        assert images.shape == (ways * samples, 3, 32, 32)
        assert images.dtype == torch.float32
        assert torch.bincount(labels).tolist() == [samples] * ways
        assert 0 <= images.min() < 0.1
        assert 0.5 < images.max() <= 1
        known = {tuple(image.flatten().tolist()) for image in load_split("glyphs", split, root).images}
        for image in images:
            assert tuple((image * 255).round().byte().permute(1, 2, 0).flatten().tolist()) in known


def test_the_variable_decides_unless_a_root_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(ask: Callable[..., object], **options: str) -> str:
        with pytest.raises(DataError) as failure:
            ask("mini", **options)
        return str(failure.value).split("--data-root ")[1].split("`")[0]

    register_tasksets()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(VARIABLE, "/from/variable")
    assert asked(benchmarks.get_tasksets) == "/from/variable"  # learn2learn passes its own default, ~/data
    assert asked(benchmarks.get_tasksets, root="~/data") == "/from/variable"
    assert asked(tasksets) == "/from/variable"
    assert asked(benchmarks.get_tasksets, root="~/given") == str(tmp_path / "given")
    assert asked(tasksets, root="~/given") == str(tmp_path / "given")
    monkeypatch.delenv(VARIABLE)
    assert asked(benchmarks.get_tasksets) == asked(tasksets) == str(tmp_path / "data")


def test_missing_data_says_the_command(tmp_path: Path) -> None:
    register_tasksets()
    with pytest.raises(DataError, match="fslstm data prepare mini --from DIR"):
        benchmarks.get_tasksets("mini", root=str(tmp_path))

"""Rivals that learn metrics and graphs: trained, continued, evaluated and compared by the command; what they learn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import pytorch_lightning as pl
import torch
from drawings import draw_few
from learn2learn.utils.lightning import EpisodicBatcher
from narrow import Narrow, narrow  # noqa: F401  # a fixture
from rich.console import Console

from fslstm_plugin.backbones.episode_statistics import episode_statistics
from fslstm_plugin.data.images import make_images
from fslstm_plugin.data.root import load_split
from fslstm_plugin.evaluation.features import extract_features
from fslstm_plugin.evaluation.runner import indexed, run_methods
from fslstm_plugin.evaluation.setting import Setting
from fslstm_plugin.evaluation.statistics import Estimate, estimate
from fslstm_plugin.learn2learn import LightningRelationNet, LightningTEAM, LightningTPN
from fslstm_plugin.model import FewShotModel
from fslstm_plugin.runs.configuration import Validation
from fslstm_plugin.runs.folder import Run
from fslstm_plugin.training.configuration import train_config
from fslstm_plugin.training.engine import EngineOptions
from fslstm_plugin.training.meta_training import train

RIVALS = {  # What each one learns beside the backbone.
    "relation-net": "method.conv1.weight",
    "tpn": "method.conv1.weight",
    "team": "method.log_temperature",
}
every_rival = pytest.mark.parametrize("rival", RIVALS)

SMALL = ("--val-episodes", 5, "--val-shots", 2, "--val-queries", 3, "--shots", 2, "--queries", 3, "--precision", "32")
FEW = ("--episodes", 10, "--shots", 2, "--queries", 4)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def training(runs: Path, rival: str, name: str, backbone: str = "narrow") -> tuple[object, ...]:
    return (
        "train", "--dataset", "dots", "--backbone", backbone, "--algorithm", rival, *SMALL, "--max-steps", 4,
        "--checkpoint-every", 2, "--runs", runs, "--name", name,
    )  # fmt: skip


@pytest.fixture
def trained(runs, fslstm, narrow):  # noqa: F811
    """Trains a rival by the command, once."""

    def run_of(rival: str) -> Run:
        if not (runs / rival / "model.safetensors").exists():
            result = fslstm(*training(runs, rival, rival))
            assert result.code == 0, result.err
        return Run.open(runs / rival)

    return run_of


@every_rival
def test_it_is_trained_by_its_recipe(rival: str, trained) -> None:
    run = trained(rival)
    recipe = run.config.recipe
    assert (recipe.optimizer, recipe.lr, recipe.weight_decay, recipe.episodes_per_step) == ("adam", 1e-3, 0.0, 1)
    assert recipe.factor(0.999) < recipe.factor(0.5) < recipe.factor(0) == 1
    assert recipe.dropout == 0, "as in the published backbones"
    torch.manual_seed(0)
    begun = FewShotModel.from_backbone(run.config.backbone, rival, 32).state_dict()
    assert (FewShotModel.from_run(run).state_dict()[RIVALS[rival]] - begun[RIVALS[rival]]).abs().max() > 0


@every_rival
def test_it_is_continued_to_the_same_weights(
    rival: str, trained, fslstm, stopped_in_the_fourth_step, runs: Path
) -> None:
    run, name = trained(rival), f"{rival}-stopped"
    assert stopped_in_the_fourth_step(*training(runs, rival, name)).code != 0
    assert Run.open(runs / name).checkpoint.is_file()
    result = fslstm("train", "--resume", "--runs", runs, "--name", name)
    assert result.code == 0, result.err
    mine, whole = Run.open(runs / name).load_weights(), run.load_weights()
    assert mine.keys() == whole.keys()
    assert all(torch.equal(mine[key], whole[key]) for key in whole)


def test_a_run_is_not_continued_as_another_algorithm(trained, fslstm, runs: Path) -> None:
    result = fslstm("train", "--resume", "--runs", runs, "--name", trained("tpn").name, "--algorithm", "team")
    assert (result.code, result.out) == (2, "")
    assert "--resume and --algorithm cannot be used together: the run keeps its own configuration." in result.err


@every_rival
def test_it_is_evaluated_and_compared(rival: str, trained, fslstm, runs: Path, tmp_path: Path) -> None:
    run, file = trained(rival), tmp_path / "rows.json"
    result = fslstm("eval", "--run", run.name, "--runs", runs, *FEW, "--json", file)
    assert result.code == 0, result.err
    assert json.loads(file.read_text())["rows"][0]["method"] == rival
    result = fslstm("compare", rival, "nn", "--run", run.name, "--runs", runs, *FEW, "--json", file)
    assert result.code == 0, result.err
    rows = {row["method"]: row for row in json.loads(file.read_text())["rows"]}
    method = FewShotModel.from_run(run).method
    assert rows.keys() == {rival, "nn"}
    assert (rows[rival]["transductive"], rows[rival]["reference"]) == (method.is_transductive, "nn")
    other = ("--episodes", 5, "--ways", 3, "--shots", 1, "--queries", 2)
    assert fslstm("eval", "--run", run.name, "--runs", runs, *other).code == 0


def test_rivals_are_compared_on_the_same_episodes(trained, fslstm, runs: Path, tmp_path: Path) -> None:
    chosen = [word for rival in RIVALS for word in ("--run", trained(rival).name)]
    result = fslstm("compare", *chosen, "--runs", runs, *FEW, "--json", tmp_path / "rows.json")
    assert result.code == 0, result.err
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [row["method"] for row in rows] == list(RIVALS)


@every_rival
def test_another_run_has_not_its_weights(rival: str, trained, fslstm, runs: Path) -> None:
    other = next(each for each in RIVALS if each != rival)
    result = fslstm("compare", rival, "--run", trained(other).name, "--runs", runs, *FEW)
    assert result.code == 2
    assert f"needs weights, which the run does not have: train one with 'fslstm train --algorithm {rival}" in result.err


def test_a_backbone_without_wide_maps_is_named(fslstm, runs: Path) -> None:
    result = fslstm(*training(runs, "relation-net", "no-maps", "tiny"))
    assert result.code == 2
    assert "TinyBackbone has no wide_map: use a backbone that has one, such as conv4 or resnet12." in result.err
    assert not (runs / "no-maps").exists()


def test_two_processes_measure_further_tables_too(fslstm, spawn, tmp_path: Path) -> None:
    assert fslstm(*training(tmp_path, "relation-net", "two", "conv4"), "--max-steps", 1).code == 0
    process = spawn("eval", "--run", "two", "--runs", tmp_path, *FEW, "--calibration", processes=2)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert out.count("ECE: expected calibration error") == 1


def test_two_processes_train_as_one(spawn, tmp_path: Path) -> None:
    process = spawn(
        "train", "--dataset", "dots", "--backbone", "mapped", "--algorithm", "tpn", *SMALL, "--max-steps", 2,
        "--episodes-per-step", 2, "--accelerator", "cpu", "--devices", 2, "--strategy", "ddp", "--runs", tmp_path,
        "--name", "two",
    )  # fmt: skip
    _, err = process.communicate(timeout=240)
    assert process.returncode == 0, err


@pytest.mark.parametrize("algorithm", [LightningRelationNet, LightningTPN, LightningTEAM])
def test_trains_under_a_plain_trainer(algorithm, tmp_path: Path) -> None:
    shape = {f"{stage}_{what}": 2 for stage in ("train", "test") for what in ("ways", "shots", "queries")}
    module = algorithm(Narrow(32), lr=0.005, **shape)
    before = {name: value.clone() for name, value in module.named_parameters()}
    labels = torch.arange(8) % 2
    tasks = SimpleNamespace(sample=lambda: (torch.rand(8, 3, 32, 32) + labels[:, None, None, None], labels))
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(module, EpisodicBatcher(tasks, tasks, tasks, epoch_length=3))
    assert {group["lr"] for group in trainer.optimizers[0].param_groups} >= {0.005 * module.recipe.factor(1)}
    changed = {name for name, value in module.named_parameters() if not torch.equal(value, before[name])}
    assert "model.scale" not in changed, "the loss is the method's own"
    for part in ("model.backbone.", "model.method."):
        assert any(name.startswith(part) for name in changed)


def test_batch_statistics_are_those_of_the_published_testing(trained, fslstm, runs: Path, tmp_path: Path) -> None:
    run, name = trained("relation-net"), "relation-net(batch_statistics=true)"
    result = fslstm(
        "compare", "relation-net", name, "--run", run.name, "--runs", runs, *FEW, "--json", tmp_path / "r.json"
    )
    assert result.code == 0, result.err
    rows = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert {row["method"]: row["transductive"] for row in rows} == {"relation-net": False, name: True}


# Learning


@pytest.fixture(scope="module")
def few_glyphs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data root with some glyphs of each class."""
    with pytest.MonkeyPatch.context() as patch:
        draw_few(patch)
        yield tmp_path_factory.mktemp("glyphs")


def gain(rival: str, steps: int, folder: Path, root: Path) -> Estimate:
    """Points of accuracy over the prototypes of the rival's own backbone before training, on the same test episodes.

    The untrained backbone normalises by the statistics of the test images, which is to its advantage.
    """
    given = {"steps_per_epoch": steps // 2, "shots": 5, "queries": 5, "milestones": (0.7,), "factors": (0.2,)}
    validation = Validation(episodes=20, shots=5, queries=5)
    config = train_config(
        "glyphs", "narrow", rival, max_steps=steps, precision="32", validation=validation, given=given
    )
    run, options = Run(folder, config), EngineOptions(accelerator="cpu", checkpoint_every=10**6)
    train(run, options, data_root=root, console=Console(quiet=True))
    split = load_split("glyphs", "test", root)
    sampler = Setting(shots=5, queries=15).sampler(split)
    torch.manual_seed(config.seed)
    untrained, model = FewShotModel.from_backbone("narrow", "nn", 32), FewShotModel.from_run(run)
    with torch.no_grad(), episode_statistics(untrained.eval()):
        images = make_images(split.images, torch.arange(len(split.images)), untrained.normalization)
        begun = indexed(untrained.embed(images))
    features = indexed(extract_features(model.embedding_of(model.method), split), model.map_shape)
    (mine,) = run_methods(features, sampler, [model.method], 200)
    (prototypes,) = run_methods(begun, sampler, [untrained.method], 200)
    return estimate(mine.accuracies - prototypes.accuracies)


@pytest.mark.parametrize(("rival", "steps"), [("relation-net", 150), ("tpn", 100), ("team", 40)])
def test_it_learns(rival: str, steps: int, narrow: str, tmp_path: Path, few_glyphs: Path) -> None:  # noqa: F811
    found = gain(rival, steps, tmp_path / "run", few_glyphs)
    assert found.mean - found.ci95 > 5, found


@pytest.mark.slow
@every_rival
def test_it_learns_more(rival: str, narrow: str, tmp_path: Path, few_glyphs: Path) -> None:  # noqa: F811
    found = gain(rival, 1000, tmp_path / "run", few_glyphs)
    assert found.mean - found.ci95 > 20, found

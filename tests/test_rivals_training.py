"""Rivals that learn metrics and graphs: trained, continued, evaluated and compared by the command; what they learn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from narrow import narrow  # noqa: F401  # a fixture

from fslstm_plugin.learn2learn import LightningFewShot
from fslstm_plugin.model import FewShotModel
from fslstm_plugin.runs import Run

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
    torch.manual_seed(0)
    begun = FewShotModel.from_backbone(run.config.backbone, rival, 32).state_dict()
    assert (FewShotModel.from_run(run).state_dict()[RIVALS[rival]] - begun[RIVALS[rival]]).abs().max() > 0


@every_rival
def test_it_is_continued_to_the_same_weights(rival: str, trained, fslstm, runs: Path) -> None:
    run, name = trained(rival), f"{rival}-stopped"
    step = LightningFewShot.training_step

    def failing(self, batch, batch_idx):
        if self.trainer.global_step == 3:
            raise KeyboardInterrupt
        return step(self, batch, batch_idx)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LightningFewShot, "training_step", failing)
        assert fslstm(*training(runs, rival, name)).code != 0
    assert Run.open(runs / name).checkpoint.is_file()
    result = fslstm("train", "--resume", "--runs", runs, "--name", name)
    assert result.code == 0, result.err
    mine, whole = Run.open(runs / name).load_weights(), run.load_weights()
    assert mine.keys() == whole.keys()
    assert all(torch.equal(mine[key], whole[key]) for key in whole)


def test_a_run_is_not_continued_as_another_algorithm(trained, fslstm, runs: Path) -> None:
    result = fslstm("train", "--resume", "--runs", runs, "--name", trained("tpn").name, "--algorithm", "team")
    assert (result.code, result.out) == (2, "")
    assert "--algorithm cannot be used with --resume: the run keeps its own configuration." in result.err


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
    assert f"the run was trained with {other}: train with --algorithm {rival}" in result.err


def test_a_backbone_without_wide_maps_is_named(fslstm, runs: Path) -> None:
    result = fslstm(*training(runs, "relation-net", "no-maps", "tiny"))
    assert result.code == 2
    assert "TinyBackbone has no wide_map: use a backbone that has one, such as conv4 or resnet12." in result.err
    assert not (runs / "no-maps").exists()


def test_batch_statistics_are_those_of_the_published_testing(trained, fslstm, runs: Path, tmp_path: Path) -> None:
    run, name = trained("relation-net"), "relation-net(batch_statistics=true)"
    result = fslstm(
        "compare", "relation-net", name, "--run", run.name, "--runs", runs, *FEW, "--json", tmp_path / "r.json"
    )
    assert result.code == 0, result.err
    rows = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert {row["method"]: row["transductive"] for row in rows} == {"relation-net": False, name: True}

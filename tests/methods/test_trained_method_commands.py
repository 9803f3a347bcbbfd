"""Rivals by the real commands: trained, continued, evaluated, compared; and that they learn."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from narrow import Narrow, narrow  # noqa: F401  # a fixture

from fslstm_plugin.learn2learn import LightningDPGN, LightningFEAT, LightningSIB
from fslstm_plugin.model import FewShotModel
from fslstm_plugin.runs.folder import Run

EPISODES = ("--episodes", 20, "--ways", 4, "--shots", 2, "--queries", 4)
SHAPE = (
    "--ways", 4, "--shots", 2, "--episodes-per-step", 2, "--val-ways", 4, "--val-shots", 2, "--val-queries", 4,
    "--val-episodes", 10, "--precision", "32",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A small training.

    Args:
        algorithm: The rival, for episodes of 4 ways, 2 shots and 4 queries per class.
        transductive: Whether it is.
        others: What else its run can be asked for, beside methods without weights.
        refused: Another shape of episodes, and what is said of it; none where it takes any.
    """

    algorithm: str
    transductive: bool
    others: tuple[str, ...]
    refused: tuple[tuple[object, ...], str] | None = None


CASES = {
    "feat": Case("feat", False, ("feat(variant=semi)", "feat(variant=semi-proto)")),
    "sib": Case(
        "sib(ways=4,queries=4)", True, ("sib(ways=4,queries=4,steps=0)",),
        (("--queries", 3), r"sib sums its steps over 16 queries per episode, but got 12"),
    ),
    "dpgn": Case(
        "dpgn(ways=4,shots=2,width=8,generations=2,loss_generations=2)", True, (),
        (("--shots", 1), "dpgn was built for 4-way 2-shot episodes, but got 4-way 1-shot ones"),
    ),
}  # fmt: skip
every_case = pytest.mark.parametrize("name", CASES)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def trained(runs: Path, fslstm, narrow: str):  # noqa: F811
    """Trains a case by the command, once."""

    def run_of(name: str) -> Run:
        if not (runs / name / "model.safetensors").exists():
            result = fslstm(*training(name, runs, name))
            assert result.code == 0, result.err
        return Run.open(runs / name)

    return run_of


def training(name: str, runs: Path, run: str) -> tuple[object, ...]:
    case = CASES[name]
    return (
        "train", "--dataset", "dots", "--backbone", "narrow", "--algorithm", case.algorithm, *SHAPE,
        "--queries", 1 if name == "dpgn" else 4, "--max-steps", 4, "--checkpoint-every", 2,
        "--runs", runs, "--name", run,
    )  # fmt: skip


@every_case
def test_it_is_trained(name: str, trained) -> None:
    run = trained(name)
    assert run.config.algorithm == CASES[name].algorithm
    assert str(FewShotModel.from_run(run).method) == CASES[name].algorithm


@every_case
def test_it_is_continued_to_the_same_weights(
    name: str, trained, fslstm, stopped_in_the_fourth_step, runs: Path
) -> None:
    run, stopped = trained(name), f"{name}-stopped"
    assert stopped_in_the_fourth_step(*training(name, runs, stopped)).code != 0
    result = fslstm("train", "--resume", "--runs", runs, "--name", stopped)
    assert result.code == 0, result.err
    mine, whole = Run.open(runs / stopped).load_weights(), run.load_weights()
    assert all(torch.equal(mine[key], whole[key]) for key in whole)


@every_case
def test_it_is_evaluated_and_compared(name: str, trained, fslstm, runs: Path, tmp_path: Path) -> None:
    case, run = CASES[name], trained(name)
    result = fslstm("eval", "--run", run.name, "--runs", runs, *EPISODES, "--json", tmp_path / "eval.json")
    assert result.code == 0, result.err
    assert [row["method"] for row in json.loads((tmp_path / "eval.json").read_text())["rows"]] == [case.algorithm]
    names = [case.algorithm, *case.others, "nn"]
    result = fslstm("compare", *names, "--run", run.name, "--runs", runs, *EPISODES, "--json", tmp_path / "r.json")
    assert result.code == 0, result.err
    rows = {row["method"]: row["transductive"] for row in json.loads((tmp_path / "r.json").read_text())["rows"]}
    assert rows.keys() == set(names)
    assert rows[case.algorithm] is case.transductive
    if case.refused is not None:
        shape, message = case.refused
        result = fslstm("eval", "--run", run.name, "--runs", runs, *EPISODES, *shape)
        assert (result.code, result.out) == (2, "")
        assert message in result.err


def test_rivals_of_different_runs_are_compared_on_the_same_episodes(trained, fslstm, runs: Path, tmp_path) -> None:
    chosen = [word for name in CASES for word in ("--run", trained(name).name)]
    result = fslstm("compare", *chosen, "--runs", runs, *EPISODES, "--json", tmp_path / "r.json")
    assert result.code == 0, result.err
    rows = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert [row["method"] for row in rows] == [case.algorithm for case in CASES.values()]


def test_runs_of_different_data_sets_are_not_compared(trained, fslstm, runs: Path) -> None:
    other = runs / "of-wide-dots"
    shutil.copytree(trained("feat").path, other)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "dataset": "wide-dots", "image_size": 48}))
    result = fslstm("compare", "--run", "feat", "--run", other.name, "--runs", runs, *EPISODES)
    shutil.rmtree(other)
    assert (result.code, result.out) == (2, "")
    assert "of-wide-dots of wide-dots: name runs of one data set, or give a --dataset." in result.err


def test_a_rival_with_nothing_to_tune_is_named(trained, fslstm, runs: Path) -> None:
    options = ("--run", trained("feat").name, "--runs", runs, *EPISODES)
    result = fslstm("tune", "feat", *options)
    assert (result.code, result.out) == (2, "")
    assert "There is nothing to tune in feat: compare values that you name with 'fslstm compare'." in result.err
    assert not (trained("feat").path / "tuned.json").exists()
    result = fslstm("tune", "nn", "feat", *options)
    assert result.code == 0, result.err
    assert "There is nothing to tune in feat:" in result.err
    assert "feat" not in result.out.replace("/feat/", "")
    (trained("feat").path / "tuned.json").unlink()


def test_a_rival_is_not_fitted_to_pictures(fslstm, tmp_path: Path) -> None:
    result = fslstm("fit", tmp_path, "-o", tmp_path / "classifier.fslstm", "--method", "feat")
    assert (result.code, result.out) == (2, "")
    assert "feat has weights that are trained on episodes: choose a method without any, such as lssvm." in result.err


def test_a_whole_method_takes_no_module(trained, fslstm, runs: Path) -> None:
    evaluate = ("eval", "--run", trained("feat").name, "--runs", runs, *EPISODES)
    for options in (["--can"], ["--psm-iters", 3], ["--iam"]):
        result = fslstm(*evaluate, *options)
        assert (result.code, result.out) == (2, "")
        assert "nor a transductive module" in result.err
    assert fslstm(*evaluate, "--psm-iters", 0).code == 0


def test_weights_of_another_rival_are_refused(trained, fslstm, runs: Path) -> None:
    result = fslstm("eval", "--run", trained("feat").name, "--runs", runs, *EPISODES, "sib")
    assert (result.code, result.out) == (2, "")
    assert "needs weights, which the run does not have: train one with 'fslstm train --algorithm sib'" in result.err


def test_it_is_frozen_from_pretrained_weights(trained, fslstm, runs: Path) -> None:
    first = trained("feat")
    result = fslstm(*training("sib", runs, "frozen"), "--pretrained", first.name)
    assert result.code == 0, result.err
    begun, found = first.load_weights(), Run.open(runs / "frozen").load_weights()
    backbone = [key for key in begun if key.startswith("backbone.")]
    assert all(torch.equal(begun[key], found[key]) for key in backbone)


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        (LightningFEAT, None),
        (LightningSIB, "sib(ways=3,queries=4)"),
        (LightningDPGN, "dpgn(ways=3,shots=2,width=8,generations=2,loss_generations=2)"),
    ],
)
def test_it_trains_as_a_module_of_learn2learn(kind, method) -> None:
    backbone = Narrow()
    module = kind(backbone, method=method, train_ways=3, train_shots=2, train_queries=4)
    images, labels = torch.rand(18, 3, 32, 32), torch.arange(3).repeat(6)
    loss, accuracy = module.meta_learn((images, labels), 0, 3, 2, 4)
    loss.backward()
    assert loss.isfinite()
    assert 0 <= accuracy <= 1
    assert all(each.grad is not None for each in backbone.parameters())

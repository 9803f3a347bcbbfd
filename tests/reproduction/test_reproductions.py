"""Reproductions through the command line: published beside measured, runs found again, pages and pictures."""

from __future__ import annotations

import csv
import io
import json
import multiprocessing
import re
import shutil
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, TimeoutError
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from fslstm_dots import TinyBackbone
from msgspec import structs
from narrow import narrow  # noqa: F401  # a fixture
from rich.console import Console

from fslstm_plugin.errors import UsageError
from fslstm_plugin.evaluation.features import FeatureStore
from fslstm_plugin.evaluation.session import RunSession
from fslstm_plugin.model import FewShotModel
from fslstm_plugin.recipes import BackboneRecipe
from fslstm_plugin.reporting.figures import iterations
from fslstm_plugin.reporting.figures.lines import Lines, Point, draw
from fslstm_plugin.reporting.html import svg_element
from fslstm_plugin.reproduction import engine, estimate, measurements, outcomes, outputs, rendering, shipped, trainings
from fslstm_plugin.reproduction.beside import pairs
from fslstm_plugin.reproduction.comparison import compare
from fslstm_plugin.reproduction.measurements import Measurement, Provenance
from fslstm_plugin.reproduction.specification import Published, Reproduction, find
from fslstm_plugin.reproduction.titles import model_titles
from fslstm_plugin.runs.configuration import TrainConfig
from fslstm_plugin.runs.folder import Run, new_run_folder
from fslstm_plugin.stopping import Interrupted
from fslstm_plugin.storage.files import exclusive
from fslstm_plugin.storage.plain import from_plain
from fslstm_plugin.storage.weights import save_tensors
from fslstm_plugin.training.configuration import pretrain_config, train_config
from fslstm_plugin.training.saying import say

REPRODUCTIONS = Path(__file__).resolve().parents[2] / "reproductions"
SMALL = ("--dataset", "dots", "--backbone", "tiny", "--scale", "quick", "--episodes", 20)


@pytest.fixture(autouse=True)
def recipe(monkeypatch):
    """The small backbone's rates from pretrained weights."""
    monkeypatch.setattr(TinyBackbone, "recipe", BackboneRecipe(lr=0.1, method_lr=0.1), raising=False)


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The shipped specifications without their measurements, small enough for the small data set."""
    here = tmp_path / "shipped"
    for source in REPRODUCTIONS.glob("*/specification.json"):
        content = json.loads(source.read_text())
        content.pop("rivals", None)  # which ask much of a backbone, and minutes
        content["queries"] = [4, 2] if len(content.get("queries", [])) > 1 else [4]
        if "query_balances" in content:
            content["query_balances"] = ["uniform", "dirichlet:2"]
        if source.parent.name in ("ridge", "unbalanced", "queries"):
            content["methods"] = [method for method in content["methods"] if not method.startswith("svm")]
        (here / source.parent.name).mkdir(parents=True)
        (here / source.parent.name / "specification.json").write_text(json.dumps(content))
        if (source.parent / "published.json").is_file():
            shutil.copy(source.parent / "published.json", here / source.parent.name)
    monkeypatch.setattr(shipped, "folder", lambda: here)
    return here


@pytest.fixture
def output(tmp_path):
    """Where the results of a test go."""
    return tmp_path / "reproduced"


@pytest.fixture
def reproduce(fslstm, runs, folder, output):
    """Calls the command with the folders of the test."""

    def call(*arguments: object, output: Path = output):
        return fslstm("reproduce", "--runs", runs, "--output", output, *arguments)  # Of two values the last counts.

    return call


@pytest.fixture
def trained(runs, reproduce, tmp_path):
    """The runs that table 1 needs, trained by it once."""
    if not list(runs.glob("*/model.safetensors")):
        result = reproduce("table1", *SMALL, output=tmp_path / "first")
        assert result.code == 0, result.err
    return runs


def test_a_table_trains_what_it_needs_once_and_shows_both_numbers(trained, reproduce, output):
    expected = [f"reproduce-quick-dots-tiny-{name}" for name in ("lssvm", "lssvm+iam", "pretrained")]
    assert sorted(run.name for run in trained.glob("[!.]*")) == expected
    again = reproduce("table1", *SMALL)
    assert again.code == 0, again.err
    assert again.err.count("has this configuration and is used") == 4, "two trainings, each from the one pretraining"
    assert "Training " not in again.err
    assert len(list(trained.glob("[!.]*"))) == 3

    measured = json.loads((output / "table1" / "measured.json").read_text())
    assert {(each["method"], each["shots"]) for each in measured["measurements"]} == {
        (method, shots) for method in ("lssvm", "lssvm+bn", "lssvm+iam", "lssvm+iam+psm") for shots in (1, 5)
    }
    (source,) = measured["provenance"]
    assert source["command"].startswith("fslstm reproduce ")
    assert " table1 --dataset dots" in source["command"]
    assert source["scale"] == "quick"
    assert re.fullmatch(r"[0-9a-f]{12}(\+changes)?|unknown", source["commit"])

    with (output / "table1" / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    ours = [row for row in rows if row["dataset"] == "dots"]
    assert len(ours) == 8
    assert all("base classes, 1 epoch; then lssvm" in row["training"] for row in ours)
    assert all(row["ours"] == "" for row in rows if row["dataset"] != "dots")
    markdown = (output / "table1" / "table.md").read_text()
    assert markdown.index("## Dots, TinyBackbone\n") < markdown.index("## CIFAR-FS, Conv4 (not run)"), (
        "what was measured first"
    )
    assert "| LSSVM+IAM+PSM | 78.18 ± 0.70 | 86.41 ± 0.50 |" in markdown
    assert "| method | training | 1-shot ours | 5-shot ours |\n| --- | --- | ---: | ---: |" in markdown
    assert re.search(r"\| LSSVM \| A \| \d+\.\d\d( ± \d+\.\d\d)? \| \d", markdown)
    assert "* A: base classes, 1 epoch; then lssvm, 50 of" in markdown
    assert re.search(r"\* 1-shot: (warning: )?LSSVM\+BN (and|beats|is behind) LSSVM ", markdown), (
        "paired over two passes"
    )
    assert r"$86.41 \pm 0.50$" in (output / "table1" / "table.tex").read_text()


def test_rivals_are_trained_like_ours_and_stand_in_their_published_rows(trained, reproduce, folder, output):
    file = folder / "table1" / "specification.json"
    rivals = {"reptile(steps=1,test_steps=1)": "Reptile+BN", "similarity": "Relation Net"}
    file.write_text(json.dumps({**json.loads(file.read_text()), "rivals": rivals}))
    result = reproduce("table1", *SMALL)
    assert result.code == 0, result.err
    begun = [Run.open(path.parent).config for path in trained.glob("*/config.json")]
    meta = {config.algorithm: config for config in begun if isinstance(config, TrainConfig)}
    mine, *others = (meta.pop("lssvm+iam"), *(meta[name] for name in rivals))
    images = mine.max_steps * trainings.images_per_step(mine)
    for config in others:
        assert config.pretrained == mine.pretrained
        assert 0 <= images - config.max_steps * trainings.images_per_step(config) < trainings.images_per_step(config)
        assert config.validation.shots == config.recipe.shots
    measured = json.loads((output / "table1" / "measured.json").read_text())["measurements"]
    gains = {(each["method"], each["shots"]): each["reference"] for each in measured if each["method"] in rivals}
    assert gains == {(rival, shots): "lssvm" for rival in rivals for shots in (1, 5)}, "on the same episodes"
    markdown = (output / "table1" / "table.md").read_text()
    ours = markdown.partition("## Dots, TinyBackbone\n")[2].partition("\n## ")[0]
    assert re.search(r"^\| Reptile\+BN \| [A-Z] \| \d", ours, re.MULTILINE)
    assert re.search(r"^\| Relation Net \| [A-Z] \| \d", ours, re.MULTILINE)
    shutil.rmtree(trained / "reproduce-quick-dots-tiny-similarity")
    shutil.rmtree(trained / "reproduce-quick-dots-tiny-reptile(steps=1,test_steps=1)")


def test_a_table_in_two_commands_is_the_same_as_in_one(trained, reproduce, folder, output, tmp_path):
    file = folder / "table1" / "specification.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "rivals": {"similarity": "Relation Net"}}))
    halves = tmp_path / "halves"
    for shots, others in ((5, 1), (1, 5)):
        planned = reproduce("table1", *SMALL, "--shots", shots, "--dry-run")
        assert f"{shots}-shot, " in planned.out
        assert f"{others}-shot, " not in planned.out
        assert planned.out.count("evaluate similarity") == 1
        result = reproduce("table1", *SMALL, "--shots", shots, output=halves)
        assert result.code == 0, result.err
        assert {each.shots for each in measurements.read(halves / "table1")} == {5, shots}
    assert reproduce("table1", *SMALL).code == 0
    half, whole = (
        {each.key: structs.replace(each, provenance=None) for each in measurements.read(place / "table1")}
        for place in (halves, output)
    )
    assert half == whole
    assert len(whole) == 10
    for run in trained.glob("reproduce-quick-dots-tiny-similarity*"):
        shutil.rmtree(run)


def test_what_would_be_done_tells_a_rivals_trainings_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(trainings, "total_steps", lambda *_: 10)
    wanted = engine.Request(
        scale=trainings.find_scale("cpu"), runs=tmp_path, device=torch.device("cpu"), console=Console(quiet=True),
        datasets=("cifar-fs",), backbones=("conv4",),
    )  # fmt: skip
    steps = list(
        estimate.planned_steps(engine.plan(Reproduction.read(REPRODUCTIONS / "table1"), wanted), wanted, set())
    )
    lines = [line for step in steps for line in step.lines]
    assert "train reproduce-cpu-cifar-fs-conv4-tpn (tpn, 1-shot), 10 steps" in lines
    assert len(lines) == len(set(lines))
    assert len(steps) == len({step.name for step in steps})


def test_rivals_that_are_trained_for_other_shots_are_left_out(tmp_path):
    wanted = engine.Request(
        scale=trainings.find_scale("cpu"), runs=tmp_path, device=torch.device("cpu"), console=Console(quiet=True),
        datasets=("cifar-fs",), backbones=("conv4",), shots=(1,),
    )  # fmt: skip
    parts = engine.plan(Reproduction.read(REPRODUCTIONS / "table1"), wanted)
    trained = {part.config.algorithm: part.config.recipe.shots for part in parts}
    assert len(parts) == len(trained) == 9
    assert {name: shots for name, shots in trained.items() if shots != 1} == {"lssvm": 5, "lssvm+iam": 5, "reptile": 5}
    assert {part.shots for part in parts} == {(1,)}


def test_two_processes_train_what_both_need_once(tmp_path, monkeypatch, data_root):
    arguments = ("pretrain", "dots", "tiny", trainings.find_scale("quick"))
    first, other = (trainings.wanted_training(*arguments, seed, pretrained=True) for seed in (0, 1))
    waiting = f"Waiting for another process that trains {first.name}."
    said = [tmp_path / name for name in ("a", "b", "other")]

    def until_one_waits(run, options, *, data_root, resume, console):
        with run.held():
            run.create()
            end = time.monotonic() + 60
            while run.config == first.config and not any(waiting in words(file) for file in said):
                assert time.monotonic() < end
                time.sleep(0.05)
            torch.save({"global_step": 10**9}, run.checkpoint)

    def slowly(*arguments):
        folder = new_run_folder(*arguments)
        time.sleep(0.5)  # in which the others would choose it too
        return folder

    monkeypatch.setattr("fslstm_plugin.training.pretraining.pretrain", until_one_waits)
    monkeypatch.setattr(trainings, "new_run_folder", slowly)

    def words(file):
        return " ".join(file.read_text().split()) if file.exists() else ""

    def ensure(training, output):
        torch.set_num_threads(1)  # OpenMP's other threads do not survive the fork
        with output.open("w") as file:
            trainings.ensure(training, tmp_path / "runs", data_root, False, Console(file=file))

    processes = [
        multiprocessing.get_context("fork").Process(target=ensure, args=each)
        for each in zip((first, first, other), said, strict=True)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    texts = [words(file) for file in said]
    assert sorted(text.count(waiting) for text in texts[:2]) == [0, 1]
    assert sorted(text.count("has this configuration and is used") for text in texts[:2]) == [0, 1]
    assert waiting not in texts[2], "another seed is another training"
    assert len(list((tmp_path / "runs").glob("*/config.json"))) == 2


@pytest.mark.slow
def test_every_rival_of_table_1_is_trained_and_measured(narrow, fslstm, tmp_path, monkeypatch):  # noqa: F811
    little = replace(trainings.find_scale("quick"), amount=trainings.Amount(1, 10), episodes=10)
    monkeypatch.setitem(trainings.SCALES, "quick", little)
    arguments = ("--dataset", "dots", "--backbone", narrow, "--scale", "quick", "--episodes", 4, "--output", tmp_path)
    result = fslstm("reproduce", "table1", *arguments, "--runs", tmp_path / "runs")
    assert result.code == 0, result.err
    reproduction = Reproduction.read(tmp_path / "table1")
    measured = {(each.method, each.shots) for each in measurements.read(reproduction.folder)}
    wanted = (*reproduction.specification.methods, *reproduction.specification.rivals)
    assert measured == {(method, shots) for method in wanted for shots in (1, 5)}


def rival_training(scale, backbone, algorithm, shots):
    return trainings.wanted_training(
        algorithm, "cifar-fs", backbone, trainings.find_scale(scale), 0, pretrained=True, test_shots=shots, rival=True
    ).config


@pytest.mark.parametrize(
    ("algorithm", "shots", "trained_as"),
    [("dpgn", 1, "dpgn(shots=1)"), ("dpgn", 5, "dpgn"), ("reptile", 1, "reptile"), ("feat", 1, "feat")],
)
def test_a_rival_that_is_built_for_some_shots_is_trained_for_those_tested(algorithm, shots, trained_as):
    assert rival_training("cpu", "conv4", algorithm, shots).algorithm == trained_as


@pytest.mark.parametrize(("backbone", "shots"), [("conv4", 1), ("resnet12", 5)])
@pytest.mark.parametrize("rival", Reproduction.read(REPRODUCTIONS / "table1").specification.rivals)
def test_a_rival_is_trained_as_published_or_in_few_steps_that_all_count(rival, backbone, shots):
    published = rival_training("paper", backbone, rival, shots)
    assert published.max_steps is None, "the recipe's own length"
    whole = train_config(
        "cifar-fs", backbone, published.algorithm, pretrained=Path("weights"), test_shots=shots,
        validation=published.validation,
    )  # fmt: skip
    assert published.recipe == whole.recipe
    cpu = trainings.find_scale("cpu")
    ours = trainings.wanted_training("lssvm+iam", "cifar-fs", backbone, cpu, 0, pretrained=True).config
    short = rival_training("cpu", backbone, rival, shots)
    images, each = ours.max_steps * trainings.images_per_step(ours), trainings.images_per_step(short)
    assert 0 <= images - short.max_steps * each < each, "as many images as ours"
    assert short.recipe.episodes_per_step <= ours.recipe.episodes_per_step, "in no few large steps"
    rates = [short.recipe.factor(step / short.max_steps) for step in range(short.max_steps)]
    assert rates[0] == 1
    assert rates[-1] == pytest.approx(1 / short.max_steps)
    assert sum(rates) / short.max_steps == pytest.approx(0.5, abs=0.01)
    decay = {"schedule", "milestones", "factors", "epochs", "steps_per_epoch", "episodes_per_step"}
    kept = set(short.recipe.__struct_fields__) - decay
    assert all(getattr(short.recipe, name) == getattr(published.recipe, name) for name in kept)


def test_methods_with_trainings_of_their_own_are_compared_in_pairs_in_any_order(trained, reproduce, output):
    runs = {name: f"reproduce-quick-dots-tiny-{name}" for name in ("pretrained", "lssvm", "lssvm+iam")}

    def measured(*given):
        (output / "table1" / "measured.json").unlink(missing_ok=True)
        result = reproduce("table1", *(f"--run={runs[name]}" for name in given), "--episodes", 20)
        assert result.code == 0, result.err
        return json.loads((output / "table1" / "measured.json").read_text())["measurements"]

    for given in (("lssvm", "lssvm+iam"), ("lssvm+iam", "lssvm")):
        found = {(each["method"], each["shots"]): each for each in measured(*given)}
        for shots in (1, 5):
            plain, iam, psm = (found[method, shots] for method in ("lssvm", "lssvm+iam", "lssvm+iam+psm"))
            assert (iam["reference"], iam["reference_training"]) == ("lssvm", plain["training"])
            assert iam["gain"] == pytest.approx(iam["accuracy"] - plain["accuracy"])
            assert 0 < iam["gain_ci95"] <= iam["ci95"] + plain["ci95"] + 1e-9
            assert psm["reference"] == "lssvm+iam", "on the same model"
            assert psm["reference_training"] is None
        between = (output / "table1" / "table.md").read_text().partition(", Dots, TinyBackbone: between trainings\n")[2]
        assert len(re.findall(r"^\* [15]-shot: .*LSSVM\+IAM \(B\).* LSSVM \(A\)", between, re.MULTILINE)) == 2

    twice = measured("pretrained", "lssvm")
    ours = [each for each in twice if each["algorithm"] == "lssvm" and each["method"] == "lssvm"]
    assert {(each["reference"], each["reference_run"]) for each in ours} == {("lssvm", runs["pretrained"])}, (
        "a method that two models have is compared with itself on the first"
    )
    assert {each["reference_training"] for each in ours} == {"base classes, 1 epoch"}


def test_without_training_what_is_trained_is_evaluated_and_the_rest_not_run(trained, fslstm, folder, tmp_path):
    name = "reproduce-quick-dots-tiny-lssvm"
    shutil.copytree(trained / name, tmp_path / "runs" / name)

    def table(*arguments: object):
        there = ("--runs", tmp_path / "runs", "--output", tmp_path / "new")
        return fslstm("reproduce", *arguments, *SMALL, "--no-train", *there)

    result = table("table1")
    assert result.code == 0, result.err
    assert [run.name for run in (tmp_path / "runs").iterdir()] == [name], "nothing is trained"
    measured = json.loads((tmp_path / "new" / "table1" / "measured.json").read_text())
    assert {each["method"] for each in measured["measurements"]} == {"lssvm", "lssvm+bn"}
    assert {each["scale"] for each in measured["provenance"]} == {"quick"}
    planned = table("table1", "--dry-run")
    assert "evaluate lssvm" in planned.out
    assert "train " not in planned.out

    checkpoint = tmp_path / "runs" / name / "last.ckpt"
    checkpoint.unlink()  # as if it had not come so far
    none = table("table1")
    assert none.code == 2
    assert none.err == (f"fslstm: No training of table1 is finished in {tmp_path / 'runs'}: leave out --no-train.\n")


def test_a_run_of_another_configuration_is_never_used(trained, reproduce, tmp_path):
    before = {run.name for run in trained.iterdir()}
    result = reproduce("table1", *SMALL, "--seed", 1, "--dry-run")
    assert result.code == 0, result.err
    assert "use " not in result.out
    assert result.out.count("train reproduce-quick-dots-tiny-pretrained (pretrain), 3 steps") == 1, (
        "trained once, planned once"
    )
    same = reproduce("table1", *SMALL, "--dry-run")
    assert same.out.count("  use ") == 3
    assert re.search(r"evaluation of reproduce-quick-dots-tiny-lssvm \(lssvm, 5-shot\): about \d+ s", same.out)
    assert re.search(r"^in all: about \d+ s$", same.out, re.MULTILINE)
    assert {run.name for run in trained.iterdir()} == before


def test_a_message_shows_brackets_as_they_are():
    console = Console(file=io.StringIO())
    say(console, "runs/my[old]run is used.")
    assert console.file.getvalue() == "runs/my[old]run is used.\n"


def test_a_class_with_a_bar_in_its_name_stays_in_its_cell(tmp_path, monkeypatch):
    shutil.copytree(shipped.folder() / "figure-support", tmp_path / "figure-support")
    measured = tmp_path / "figure-support" / "measured.json"
    measured.write_text(measured.read_text().replace('"rocket"', '"a|b"'))
    monkeypatch.setattr(outputs, "save", lambda *_: None)
    outputs.write(find("figure-support", tmp_path)[0])
    text = (tmp_path / "figure-support" / "table.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert "a&#124;b" in text
    assert {line.count("|") for line in rows} == {5}


def test_a_reproduction_that_is_stopped_in_a_training_says_how_it_continues(reproduce, monkeypatch):
    def stopped(*_, **__):
        raise Interrupted("Stopped at step 1. Continue with fslstm pretrain --resume.", signal.SIGTERM)

    monkeypatch.setattr("fslstm_plugin.training.pretraining.pretrain", stopped)
    result = reproduce("table1", *SMALL, "--seed", 2)
    assert result.code == 75
    assert result.err.endswith("fslstm: Stopped. Continue with the same command and --resume.\n")


def test_what_would_be_trained_is_said_before_any_time_is_measured(trained, reproduce, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(estimate, "seconds_per_step", stopped)
    result = reproduce("table1", *SMALL, "--seed", 1, "--dry-run")
    assert result.code == 130
    assert result.out.count("  train ") == 3
    assert "  evaluate " in result.out


def test_the_estimate_counts_the_images_of_each_episode_where_batch_norm_needs_them(trained, reproduce, monkeypatch):
    monkeypatch.setattr(estimate, "seconds_per_feature", lambda *_: 60.0)
    monkeypatch.setattr(estimate, "duration", lambda seconds: f"about {seconds / 60:.1f} images")
    result = reproduce("table1", *SMALL, "--dry-run")
    with_bn, without = map(float, re.findall(r"evaluation of .*: about ([\d.]+) images", result.out))
    images = 20 * 5 * (1 + 4) + 20 * 5 * (5 + 4)
    assert with_bn - without == pytest.approx(images, abs=1)
    total = float(re.search(r"in all: about ([\d.]+) images", result.out)[1])
    assert total == pytest.approx(with_bn + without, abs=0.2), "the total is the sum, not of rounded numbers"


@pytest.mark.parametrize(
    ("option", "other"),
    [
        ("--run=base", "--no-train"),
        ("--run=base", "--dataset=dots"),
        ("--redraw", "--resume"),
        ("--redraw", "--episodes=10"),
        ("--redraw", "--seed=7"),
    ],
)
def test_options_that_contradict_each_other_are_refused(option, other, reproduce):
    result = reproduce("table1", option, other)
    assert result.code == 2
    assert f"{option.partition('=')[0]} and {other.partition('=')[0]} cannot be used together" in result.err


def test_an_interrupted_run_is_continued_only_when_asked(trained, reproduce, tmp_path, fslstm, output):
    copy = tmp_path / "runs"
    pretrained = copy / "reproduce-quick-dots-tiny-pretrained"
    shutil.copytree(trained / pretrained.name, pretrained)
    for file in ("last.ckpt", "model.safetensors"):
        (pretrained / file).unlink()
    arguments = ("reproduce", "queries", *SMALL, "--runs", copy, "--output", output)
    refused = fslstm(*arguments)
    assert refused.code == 1
    assert "is not finished: continue it with --resume" in refused.err
    result = fslstm(*arguments, "--resume")
    assert result.code == 0, result.err
    assert f"Continuing {pretrained}" in result.err
    assert len(list(copy.glob("[!.]*"))) == 1


def test_weights_without_a_checkpoint_are_never_trained_over(trained, reproduce, tmp_path, fslstm, output):
    copy = tmp_path / "runs"
    packaged = copy / "builtin-dots-tiny"
    shutil.copytree(trained / "reproduce-quick-dots-tiny-pretrained", packaged)
    (packaged / "last.ckpt").unlink()
    weights = (packaged / "model.safetensors").read_bytes()
    result = fslstm("reproduce", "queries", *SMALL, "--runs", copy, "--output", output, "--resume")
    assert result.code == 0, result.err
    assert f"Training {copy / 'reproduce-quick-dots-tiny-pretrained'}" in result.err
    assert (packaged / "model.safetensors").read_bytes() == weights


@pytest.mark.parametrize("name", ["figure-iterations", "unbalanced", "queries", "ridge"])
def test_line_figures_show_what_was_measured(name, trained, reproduce, output):
    given = ("--run", "reproduce-quick-dots-tiny-lssvm+iam")
    result = reproduce(name, *given, "--episodes", 6)
    assert result.code == 0, result.err
    with (output / name / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    measured = json.loads((output / name / "measured.json").read_text())["measurements"]
    assert {each["split"] for each in measured} == {"val" if name == "ridge" else "test"}
    values = {(str(each["gain"]), str(each["accuracy"])) for each in measured}
    assert rows
    for row in rows:
        assert (row["gain"], row["accuracy"]) in values or (row["gain"], row["x"]) == ("0.0", "0")
    summary = (output / name / "table.md").read_text().partition("## In short")[2]
    assert bool(summary) is (name == "ridge")
    assert (output / name / "figure.png").read_bytes()[:4] == b"\x89PNG"
    before = (output / name / "figure.svg").read_bytes()
    assert reproduce(name, "--redraw").code == 0
    assert (output / name / "figure.svg").read_bytes() == before, "the same numbers give the same bytes"


def test_the_support_figure_has_four_tasks_and_true_accuracies(trained, reproduce, output, fslstm, tmp_path):
    result = reproduce("figure-support", "--run", "reproduce-quick-dots-tiny-lssvm+iam")
    assert result.code == 0, result.err
    tasks = json.loads((output / "figure-support" / "measured.json").read_text())["tasks"]
    assert len(tasks) == 4
    assert (output / "figure-support" / "figure.svg").read_text().count(">accuracy ") == 4, (
        "each panel says what it shows"
    )
    for task in tasks:
        assert (len(task["support"]), len(task["adjusted"]), len(task["query"])) == (5, 5, 75)
        assert len(set(task["classes"])) == 5
    evaluated = fslstm(
        "eval", "--run", "reproduce-quick-dots-tiny-lssvm+iam", "--runs", trained, "--shots", 1, "--episodes", 4,
        "--psm-iters", 0, "--json", tmp_path / "r.json",
    )  # fmt: skip
    assert evaluated.code == 0, evaluated.err
    (row,) = (row for row in json.loads((tmp_path / "r.json").read_text())["rows"] if row["modules"] == ["iam"])
    assert sum(task["after"] for task in tasks) / 4 == pytest.approx(row["accuracy"])
    planned = reproduce("figure-support", "--run", "reproduce-quick-dots-tiny-lssvm+iam", "--dry-run")
    assert "draw 4 tasks: about" in planned.out
    assert "episodes," not in planned.out
    for option in ("--episodes", "--batch-episodes"):
        counted = reproduce("figure-support", "--run", "reproduce-quick-dots-tiny-lssvm+iam", option, 20)
        assert counted.code == 2
        assert f"{option} cannot be used with figure-support" in counted.err
    without = reproduce("figure-support", "--run", "reproduce-quick-dots-tiny-pretrained")
    assert without.code == 2
    assert "needs one of lssvm+iam" in without.err


def test_a_model_its_images_and_features_are_loaded_once_for_all_tasks(trained, reproduce, monkeypatch):
    counts = Counter()

    def counted(owner, name):
        before = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args, **named: counts.update([name]) or before(*args, **named))

    counted(Run, "split")
    counted(FewShotModel, "from_run")
    counted(FeatureStore, "features")
    result = reproduce("figure-support", "--run", "reproduce-quick-dots-tiny-lssvm+iam")
    assert result.code == 0, result.err
    assert counts == {"split": 1, "from_run": 1, "features": 1}


def test_an_argument_that_is_no_text_is_kept_readable(monkeypatch):
    monkeypatch.setattr("sys.argv", ["fslstm", "reproduce", "\udcff"])
    assert Provenance.now("cpu").command == r"fslstm reproduce '\udcff'"


def test_of_all_reproductions_those_that_a_run_does_not_suit_are_named_and_left_out(trained, reproduce, output, folder):
    for name in shipped.names():
        if name not in ("table1", "table2", "figure-support"):
            shutil.rmtree(folder / name)
    given = ("all", "--run", "reproduce-quick-dots-tiny-lssvm+iam", "--episodes", 4)
    result = reproduce(*given)
    assert result.code == 0, result.err
    assert "No method of table2 suits the given runs: it needs one of nn or rr or svm or lssvm." in result.err
    assert sorted(each.parent.name for each in output.glob("*/table.md")) == ["figure-support", "table1"]
    planned = reproduce(*given, "--dry-run")
    assert planned.code == 0
    assert "table1: " in planned.out
    assert "table2: " not in planned.out
    for name in ("table1", "figure-support"):
        shutil.rmtree(folder / name)
    shutil.copytree(folder / "table2", folder / "table4")
    none = reproduce(*given)
    assert none.code == 1
    assert "There is nothing to measure for any of the reproductions" in none.err


def test_a_given_run_shows_only_what_it_was_trained_for(trained, reproduce, output):
    assert reproduce("table1", "--run", "reproduce-quick-dots-tiny-lssvm+iam", "--episodes", 6).code == 0
    measured = json.loads((output / "table1" / "measured.json").read_text())["measurements"]
    assert {each["method"] for each in measured} == {"lssvm+iam", "lssvm+iam+psm"}
    other = reproduce("table2", "--run", "reproduce-quick-dots-tiny-lssvm+iam")
    assert other.code == 2
    assert "needs one of nn or rr or svm or lssvm" in other.err


def test_time_is_measured_on_one_backbone_only_which_needs_no_meta_training(trained, reproduce, folder, output):
    untimed = reproduce("table2", *SMALL, "--dry-run")
    assert untimed.code == 0, untimed.err
    assert untimed.out.count("  train ") == 3, "NN, RR and SVM; LSSVM is there"
    assert reproduce("table2", "--run", "reproduce-quick-dots-tiny-lssvm", "--episodes", 6).code == 0
    measured = json.loads((output / "table2" / "measured.json").read_text())["measurements"]
    assert {(each["seconds"], each["backbone_seconds"]) for each in measured} == {(None, None)}
    (output / "table2" / "measured.json").unlink()
    specification = folder / "table2" / "specification.json"
    content = {**json.loads(specification.read_text()), "backbones": ["tiny"], "timed": "tiny"}
    specification.write_text(json.dumps(content))
    result = reproduce("table2", *SMALL)
    assert result.code == 0, result.err
    measured = json.loads((output / "table2" / "measured.json").read_text())["measurements"]
    assert {(each["run"], each["method"], each["shots"]) for each in measured} == {
        ("reproduce-quick-dots-tiny-pretrained", head, shots)
        for head in ("nn", "rr", "svm", "lssvm")
        for shots in (1, 5)
    }
    assert all(each["seconds"] > 0 and each["backbone_seconds"] > 0 for each in measured)
    assert "ours s / 10k" in (output / "table2" / "table.md").read_text()


WHERE = Provenance(command="x", commit="c", date="2026-01-01", hardware="h", version="0", scale="cpu")


def measurement(**changes: object) -> Measurement:
    values = {
        "dataset": "d", "split": "test", "backbone": "b", "run": "r", "method": "lssvm", "head": "lssvm", "modules": [],
        "options": {}, "adapters": [], "transductive": False, "iterations": None, "ways": 5, "shots": 5, "queries": 15,
        "episodes": 9, "seed": 0, "query_balance": "uniform", "interval": "episodes", "accuracy": 80.0, "ci95": 0.5,
        "seconds": None, "difference": 0.0, "difference_ci95": 0.0, "algorithm": "lssvm", "training": "t", "steps": 1,
        "provenance": WHERE,
    }  # fmt: skip
    return Measurement(**{**values, **changes})


def reproduction(*published: dict[str, object], **changes: object) -> Reproduction:
    wanted = Reproduction.read(REPRODUCTIONS / "table1").specification
    values: dict[str, object] = {"methods": ("lssvm",), "rivals": {}, **changes}
    said = {"dataset": "d", "backbone": "b", "shots": 5, "ci95": 0.5, "seconds": None}
    numbers = from_plain(Published, {"values": [{**said, **each} for each in published]})
    return Reproduction(Path("table1"), structs.replace(wanted, **values), numbers)


def test_published_and_ours_are_matched_and_judged():
    here = reproduction({"method": "LSSVM", "accuracy": 80.0}, {"method": "Rival", "accuracy": 81.0})
    for accuracy, within in ((80.4, True), (79.5, True), (80.7, True), (80.8, False)):
        rival, line = compare(here, [measurement(accuracy=accuracy)])
        assert (rival.method, rival.rival, rival.cells[5].ours) == ("Rival", True, None)
        assert line.cells[5].difference == pytest.approx(accuracy - 80)
        assert line.cells[5].within is within, "the interval of a difference is the root of the sum of squares: 0.707"
        letters = rendering.training_letters([rival, line])
        (block,) = rendering.comparisons([rival, line], letters)
        assert block.heading == "d, b"
        assert block.head == ["method", "training", "5-shot published", "5-shot ours", "5-shot difference"]
        difference = f"{accuracy - 80:+.2f}{' ✓' if within else ''}"
        assert block.rows[0] == ["Rival", "published only", "81.00 ± 0.50", "–", "–"]
        assert block.rows[1] == ["LSSVM", "A", "80.00 ± 0.50", f"{accuracy:.2f} ± 0.50", difference]


def test_a_table_takes_the_queries_balance_and_split_that_the_paper_has():
    others = [measurement(queries=50), measurement(query_balance="dirichlet:1"), measurement(split="val")]
    (line,) = compare(reproduction(), [*others, measurement(accuracy=70.0)])
    assert {shots: cell.ours.accuracy for shots, cell in line.cells.items()} == {5: 70.0}
    assert compare(reproduction(), others) == []


def test_a_rivals_models_for_different_shots_share_a_line():
    def of(training: str, shots: int, **changes: object) -> Measurement:
        return measurement(method="tpn", algorithm="tpn", training=training, shots=shots, **changes)

    here = reproduction(rivals={"tpn": "TPN"})
    found = [of("one", 1), of("one", 1, seed=1), of("more", 1), of("five", 5, episodes=3), of("five", 5, seed=1)]
    lines = compare(here, [measurement(), *found])
    assert [[each.training for each in line.trained] for line in lines] == [
        ["one", "five"],
        ["one", "five"],
        ["more"],
        ["t"],
    ]
    letters = rendering.training_letters(lines)
    (block,) = rendering.comparisons(lines, letters)
    assert [row[:2] for row in block.rows] == [["TPN", "A, B"], ["TPN", "C, D"], ["TPN", "E"], ["LSSVM", "F"]]
    assert [each["training"] for each in lines[0].as_dicts()] == ["one", "five"]
    few = compare(here, [measurement(), of("one", 5, episodes=3)])
    assert rendering.comparisons(few, rendering.training_letters(few))[0].rows[0][0] == "TPN, 3 episodes"
    assert "TPN, 3 episodes (A)" in rendering.latex(here, few)


def test_measurements_with_two_seeds_are_both_kept_and_shown(tmp_path):
    measurements.add(tmp_path, [measurement(accuracy=70.0)])
    measurements.add(tmp_path, [measurement(accuracy=71.0, seed=1)])
    measurements.add(tmp_path, [measurement(accuracy=72.0, seed=1)])
    found = measurements.read(tmp_path)
    assert [each.accuracy for each in found] == [70.0, 72.0]
    lines = compare(reproduction(), found)
    assert [line.cells[5].ours.accuracy for line in lines] == [70.0, 72.0]
    assert rendering.explained(rendering.training_letters(lines)) == [
        "A: t; test episodes of seed 0",
        "B: t; test episodes of seed 1",
    ]


def test_letters_go_on_after_z():
    lines = compare(reproduction(), [measurement(training=f"training {number}") for number in range(30)])
    letters = list(rendering.training_letters(lines).values())
    assert letters[24:29] == ["Y", "Z", "AA", "AB", "AC"]


def test_models_are_named_by_what_tells_them_apart():
    base = measurement(dataset="cifar-fs", backbone="conv4", algorithm="pretrain")
    other = structs.replace(base, algorithm="lssvm+iam", training="u")
    deeper = structs.replace(base, backbone="resnet12")
    assert model_titles([base, deeper]) == ["CIFAR-FS, Conv4", "CIFAR-FS, ResNet12"]
    assert model_titles([base, other, deeper]) == [
        "CIFAR-FS, Conv4, pretrained", "CIFAR-FS, Conv4, LSSVM+IAM", "CIFAR-FS, ResNet12",
    ]  # fmt: skip
    assert model_titles([base, structs.replace(base, seed=3)]) == ["CIFAR-FS, Conv4, seed 0", "CIFAR-FS, Conv4, seed 3"]
    assert model_titles([base, structs.replace(base, run="x")]) == ["CIFAR-FS, Conv4, r", "CIFAR-FS, Conv4, x"]
    assert model_titles([base, structs.replace(base, training="u")]) == ["CIFAR-FS, Conv4, t", "CIFAR-FS, Conv4, u"]


def test_what_is_shipped_is_compared_where_the_same_was_measured():
    mine = measurement(accuracy=81.0, ci95=0.4, run="mine", seed=7)
    same, further = measurement(accuracy=80.0, ci95=0.3), measurement(accuracy=10.0, training="further")
    (pair,) = pairs([mine], [further, same, measurement(shots=1), measurement(queries=1)])
    assert (pair.shipped, pair.difference, pair.ci95, pair.within) == (same, 1.0, pytest.approx(0.5), False)
    assert pair.same_training
    (pair,) = pairs([mine], [further])
    assert not pair.same_training
    assert pairs([mine], [structs.replace(same, algorithm="rr")]) == []
    assert pairs([same], [same, further]) == [], "what is shipped itself"


def test_the_shipped_measurements_are_never_written_to(trained, reproduce, fslstm, folder, output):
    run = ("--run", "reproduce-quick-dots-tiny-lssvm", "--runs", trained, "--episodes", 6)
    first = fslstm("reproduce", "table3", *run, "--output", output)
    assert first.code == 0, first.err
    assert "The package ships no measurements of these" in first.out
    shutil.copy(output / "table3" / "measured.json", folder / "table3")
    before = {file: file.read_bytes() for file in folder.rglob("*.*")}
    for place in (folder, folder / "x", folder / "table3" / ".." / "y"):
        refused = fslstm("reproduce", "table3", *run, "--output", place)
        assert refused.code == 2
        assert (
            "shipped with the package, which are only compared with: name another folder with --output" in refused.err
        )
    again = fslstm("reproduce", "table3", *run, "--seed", 5, "--output", output)
    assert again.code == 0, again.err
    assert re.search(r"within their 95 % interval: \d of 6[.;]", again.out)
    table = (output / "table3" / "table.md").read_text()
    assert "## Beside what is shipped with the package" in table
    assert "| method | shots | measured here | shipped with the package | difference |" in table
    assert {file: file.read_bytes() for file in folder.rglob("*.*")} == before


def test_results_are_drawn_again_and_reported_without_the_package(trained, reproduce, fslstm, folder, output, tmp_path):
    assert reproduce("table3", "--run", "reproduce-quick-dots-tiny-lssvm", "--episodes", 6).code == 0
    table = (output / "table3" / "table.md").read_text()
    shutil.rmtree(folder)
    (output / "table3" / "table.md").unlink()
    result = reproduce("all", "--redraw")
    assert result.code == 0, result.err
    assert (output / "table3" / "table.md").read_text() == table
    assert fslstm("report", output / "table3", "--output", tmp_path / "r.html").code == 0


def test_each_panel_of_one_and_five_shots_has_a_scale_of_its_own():
    def gained(shots: int, gain: float) -> Measurement:
        psm = {"method": "lssvm+psm", "modules": ["psm"], "iterations": 10, "reference": "lssvm"}
        return measurement(shots=shots, gain=gain, gain_ci95=0.1, **psm)

    rows = [("m", each) for each in (gained(1, 9.0), gained(5, 1.0), measurement(shots=1), measurement(shots=5))]
    left, right = draw(iterations.lines(rows)).axes
    assert left.get_ylim()[1] > 5 > 2 > right.get_ylim()[1]


def test_figures_say_against_what_the_gain_is_and_fit_a_page():
    points = [Point(f"row {row}", "c", "s", x, 1.0, 0.1, 50.0, 1.0) for row in range(12) for x in (1, 2)]
    figure = draw(Lines("x", "the head alone", points))
    assert figure.get_supylabel() == "gain in points over the head alone"
    assert figure.get_figheight() <= 9.5


def test_a_line_that_one_panel_has_is_in_the_legend_and_a_panel_without_lines_is_empty():
    places = [("upper", "left", "a"), ("upper", "right", "b"), ("lower", "left", "a"), ("lower", "left", "c")]
    points = [Point(row, column, series, "∞", 1.0, 0.1, 50.0, 1.0) for row, column, series in places]
    upper_left, upper_right, lower_left, empty = draw(Lines("x", "the head alone", points)).axes
    legends = [[text.get_text() for text in panel.get_legend().get_texts()] for panel in (lower_left, empty)]
    assert legends == [["a", "c"], ["b"]]
    assert [panel.axison for panel in (upper_left, upper_right, lower_left, empty)] == [True, True, True, False]
    assert not empty.lines
    assert [panel.get_xlabel() for panel in (upper_left, upper_right, lower_left, empty)] == ["", "x", "x", ""]


def test_the_papers_numbers_are_complete():
    tables = {name: Reproduction.read(REPRODUCTIONS / name).published.values for name in ("table1", "table2", "table3")}
    own = [value for value in tables["table1"] if value.method.startswith("LSSVM")]
    assert len(own) == 4 * 2 * 2 * 2
    assert len([value for value in tables["table2"] if value.seconds]) == 4 * 4
    assert len(tables["table3"]) == 12 * 4
    best = max((value for value in own if value.shots == 1), key=lambda value: value.accuracy)
    assert (best.method, best.dataset, best.backbone, best.accuracy) == (
        "LSSVM+IAM+PSM", "cifar-fs", "resnet12", 86.88,
    )  # fmt: skip
    assert set(shipped.names()) >= {
        "table1", "table2", "table3", "figure-support", "figure-iterations", "unbalanced", "queries", "ridge",
    }  # fmt: skip


class Page(HTMLParser):
    """Notes what a page refers to, and whether its elements close."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.links, self.ids = [], [], []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "br", "wbr", "use", "path", "rect", "img"):
            self.open.append(tag)
        values = dict(attrs)
        self.links += [values[name] for name in ("href", "src", "xlink:href") if name in values]
        self.ids += [values["id"]] if "id" in values else []

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag in self.open:
            assert self.open.pop() == tag


def test_a_report_is_one_page_that_needs_nothing_else(trained, reproduce, fslstm, output, tmp_path):
    for name in ("table1", "queries"):
        assert reproduce(name, "--run", "reproduce-quick-dots-tiny-lssvm+iam", "--episodes", 6).code == 0
    assert fslstm("eval", "--run", "reproduce-quick-dots-tiny-lssvm+iam", "--runs", trained, "--episodes", 6).code == 0
    written = tmp_path / "report.html"
    result = fslstm(
        "report", output / "table1", output / "queries", "reproduce-quick-dots-tiny-lssvm+iam", "--runs", trained,
        "--output", written,
    )  # fmt: skip
    assert result.code == 0, result.err
    text = written.read_text()
    parsed = Page()
    parsed.feed(text)
    assert parsed.open == []
    assert parsed.links
    assert all(link.startswith("#") for link in parsed.links), "nothing outside the page"
    assert len(set(parsed.ids)) == len(parsed.ids), "identifiers of two figures do not meet"
    assert {link[1:] for link in parsed.links} <= set(parsed.ids)
    for expected in ("86.41 ± 0.50", "recipe.<wbr>shots", "prefers-color-scheme", "then lssvm+iam, 50 of"):
        assert expected in text
    assert "PSM: at 1 shot" in text, "the verdict of the evaluation"
    order = [text.index(heading) for heading in (">eval-1<", "Learning curves", ">Configuration<")]
    assert order == sorted(order), "results before settings"
    assert "url(http" not in text


def test_what_was_not_measured_says_so(fslstm, folder, tmp_path):
    result = fslstm("report", folder / "queries", folder / "table3", "--output", tmp_path / "r.html")
    assert result.code == 0, result.err
    text = (tmp_path / "r.html").read_text()
    assert "Not measured yet: fslstm reproduce queries does." in text
    assert "CIFAR-FS, ResNet12 (not run)" in text
    assert '<th scope="col">5-shot ours</th>' not in text, "no columns without a number"


def test_hostile_names_are_shown_not_obeyed(trained, fslstm, tmp_path):
    name = "<script>alert('a')&$\\frac"
    shutil.copytree(trained / "reproduce-quick-dots-tiny-lssvm+iam", tmp_path / "runs" / name)
    place = shutil.copytree(REPRODUCTIONS / "figure-support", tmp_path / "figure-support")
    content = json.loads((place / "measured.json").read_text())
    for task in content["tasks"]:
        task["classes"] = [name] * 5
    (place / "measured.json").write_text(json.dumps(content))
    (place / "figure.svg").write_text("<svg><script>alert(1)</script></svg>")
    output = tmp_path / "r.html"
    result = fslstm("report", name, place, "--runs", tmp_path / "runs", "--output", output)
    assert result.code == 0, result.err
    text = output.read_text()
    assert "<script" not in text
    assert text.count("&lt;script&gt;alert(") >= 4 * 5, "in the headings and in the figure"


def test_a_figure_takes_the_colours_of_its_page():
    element = svg_element(draw(Lines("x", "y", [Point("a", "b", "s", x, 1.0, 0.1, 50.0, 1.0) for x in (1, 2)])), "c d")
    assert element.startswith('<svg style="--points: 248"')
    assert "currentColor" in element
    assert not re.search("#000000|#ffffff|<style|<metadata|xlink:href", element)
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', element)) <= set(re.findall(r'\bid="(c-d-[^"]+)"', element))


def test_a_figure_has_a_panel_for_each_row_and_column():
    places = [(row, column, x) for row in "ab" for column in "cde" for x in (1, 2, None)]
    points = [Point(row, column, f"{x is None}", x, 1.0, 0.1, 50.0, 1.0) for row, column, x in places]
    assert len(draw(Lines("x", "y", points)).axes) == 6


def test_panels_share_the_order_of_balances_whatever_was_measured_first():
    places = [*(("a", x) for x in ("2", "∞", "10")), *(("b", x) for x in ("0.5", "∞"))]
    points = [Point(row, "c", "s", x, float(len(x)), 0.1, 50.0, 1.0) for row, x in places]
    first, second = draw(Lines("x", "y", points)).axes
    assert [tick.get_text() for tick in second.get_xticklabels()] == ["∞", "10", "2", "0.5"]
    (upper,) = (line for line in first.lines if line.get_label() == "s")
    (lower,) = (line for line in second.lines if line.get_label() == "s")
    assert (list(upper.get_xdata()), list(upper.get_ydata())) == ([0, 1, 2], [1, 2, 1])
    assert (list(lower.get_xdata()), list(lower.get_ydata())) == ([0, 3], [1, 3])
    assert rendering.grid(points, "x", lambda point: point.row)[0] == ["x", "c, s"]
    assert [row[0] for row in rendering.grid(points, "x", lambda point: point.row)[1]] == ["∞", "10", "2", "0.5"]


def test_panels_share_the_ticks_of_a_logarithmic_axis():
    places = [*(("a", x) for x in (1, 10, 100)), ("b", 10)]
    points = [Point(row, "c", "s", x, 1.0, 0.1, 50.0, 1.0) for row, x in places]
    _, lowest = draw(Lines("x", "y", points, logarithmic=True)).axes
    assert [tick.get_text() for tick in lowest.get_xticklabels()] == ["1", "10", "100"]


def test_a_grid_puts_the_longer_side_down():
    points = [Point("r", "c", series, x, 1.0, 0.0, x, 0.5) for series in "st" for x in (3, 1, 2)]
    assert rendering.grid(points, "k", lambda point: f"{point.series}{point.x}") == (
        ["k", "c, s", "c, t"],
        [["1", "s1", "t1"], ["2", "s2", "t2"], ["3", "s3", "t3"]],
    )
    block, _ = rendering.grids(Lines("k", "y", [*points, replace(points[0], series="u", x=None)]))
    assert block.heading == "Gain in points: r"
    assert block.head == ["k", "c, s", "c, t", "c, u"]
    assert block.rows[-1] == ["any", "–", "–", "+1.00"]


@pytest.mark.parametrize("name", sorted(file.parent.name for file in REPRODUCTIONS.glob("*/table.md")))
def test_what_is_committed_is_what_the_code_makes_of_the_measurements(name, tmp_path):
    copy = shutil.copytree(REPRODUCTIONS / name, tmp_path / name)
    outputs.write(Reproduction.read(copy))
    for file in sorted(copy.glob("table.*")):
        assert file.read_text() == (REPRODUCTIONS / name / file.name).read_text(), "see reproductions/README.md"


def test_a_table_is_drawn_from_what_another_process_keeps_meanwhile_and_through_no_link(tmp_path):
    copy, elsewhere = shutil.copytree(REPRODUCTIONS / "table2", tmp_path / "table2"), tmp_path / "elsewhere"
    expected, content = (copy / "table.md").read_text(), (copy / "measured.json").read_bytes()
    elsewhere.write_text("of another program")
    (copy / "table.md").unlink()
    (copy / "table.md").symlink_to(elsewhere)
    measurements.write(copy, [])
    pool = ThreadPoolExecutor(1)
    with exclusive(copy):
        drawn = pool.submit(outputs.write, Reproduction.read(copy))
        with pytest.raises(TimeoutError):
            drawn.result(timeout=0.5)
        (copy / "measured.json").write_bytes(content)
    drawn.result()
    assert (copy / "table.md").read_text() == expected
    assert elsewhere.read_text() == "of another program"


@pytest.mark.parametrize("file", sorted(REPRODUCTIONS.glob("*/table.tex")), ids=lambda file: file.parent.name)
def test_latex_tables_have_cells_for_their_columns(file):
    text = file.read_text()
    tables = re.findall(r"\\begin\{tabular\}\{(\w+)\}\n(.*?)\\end\{tabular\}", text, flags=re.DOTALL)
    assert tables
    for columns, body in tables:
        lines = [line for line in body.splitlines() if not re.match(r"\\(top|mid|bottom|cmid)rule", line)]
        for line in lines:
            cells, end, _ = line.partition(" \\\\")
            assert end, line
            spans = [int(span) for span in re.findall(r"\\multicolumn\{(\d)\}", cells)]
            assert cells.count(" & ") + 1 - len(spans) + sum(spans) == len(columns), line
            assert cells.isascii(), line


WRONG = [
    (("table9",), 2, "no reproduction 'table9'. Did you mean 'table"),
    (("table1", "--scale", "huge"), 2, "no scale 'huge'"),
    (("figure-support", "--shots", "5"), 2, "figure-support has 1-shot episodes only, not 5-shot"),
    (("table1", "--run", "nope"), 1, "There is no run at"),
    (("table1", "--pretrained", "nope"), 2, "no run folder or weights file at nope"),
    (("table1",), 1, "None of mini, cifar-fs is prepared"),
    (("table1", "--dataset", "dotz"), 2, "Did you mean 'dots'"),
]


@pytest.mark.parametrize(("arguments", "code", "message"), WRONG)
def test_what_cannot_be_reproduced_says_why(arguments, code, message, reproduce):
    result = reproduce(*arguments)
    assert result.code == code
    assert message in " ".join(result.err.split())
    assert "Traceback" not in result.err


def test_damaged_or_absent_folders_are_named(fslstm, tmp_path, folder, output):
    result = fslstm("reproduce", "all", "--redraw", "--output", tmp_path / "none")
    assert result.code == 1
    assert "There are no reproductions in" in result.err
    (folder / "table1" / "specification.json").write_text('{"titel": "x"}')
    result = fslstm("reproduce", "table1", "--output", output)
    assert result.code == 1
    assert "specification.json is damaged" in result.err
    assert not output.exists()
    result = fslstm("report", tmp_path / "none", "--output", tmp_path / "r.html")
    assert result.code == 1
    assert "There is no run or reproduction at" in result.err
    assert not (tmp_path / "r.html").exists()


def test_a_report_shows_a_model_of_the_package(fslstm, tmp_path):
    result = fslstm("report", "builtin:cifar-fs-conv4", "--runs", tmp_path, "--output", tmp_path / "r.html")
    assert result.code == 0, result.err
    assert "builtin-cifar-fs-conv4" in (tmp_path / "r.html").read_text()


VALUE = {"method": "LSSVM", "dataset": "mini", "backbone": "conv4", "shots": 1, "accuracy": 1.0, "ci95": None}
DAMAGED = [
    ("measured.json", "[" * 100_000, "is damaged"),
    ("measured.json", "[1]", "measured.json is damaged"),
    ("measured.json", '{"provenance": [{}], "measurements": [{"accuracy": NaN}]}', "measured.json is damaged"),
    ("measured.json", '{"provenance": [], "measurements": [{"provenance": 0}]}', "measured.json is damaged"),
    ("measured.json", None, "it has no provenance 1"),
    ("specification.json", "[]", "is damaged"),
    ("specification.json", '{"title": 1}', "title must be text, but got a whole number"),
    ("specification.json", {"shows": "tabel"}, "Did you mean 'table'"),
    ("specification.json", {"shots": []}, "shots: expected 'array' of length >= 1"),
    ("specification.json", {"timed": "conv5"}, "There is no timed backbone 'conv5'"),
    ("specification.json", {"timed": True}, "timed must be text or null"),
    ("published.json", '{"values": [{"dataset": "mini"}]}', "values[0]: object missing required field 'method'"),
    ("published.json", {"values": [{**VALUE, "shots": 0}]}, "values[0].shots must be a whole number >= 1"),
]


@pytest.mark.parametrize(("file", "content", "message"), DAMAGED)
def test_damaged_files_are_named_before_anything_is_trained(
    file, content, message, reproduce, folder, output, fslstm, tmp_path
):
    place = Reproduction.read(folder / "table3").put_into(output).folder
    if content is None:
        measurements.write(place, [measurement()])
        content = (place / file).read_text().replace('"provenance": 0', '"provenance": 1')
    for path in (place / file, *([] if file == "measured.json" else [folder / "table3" / file])):
        if isinstance(content, dict):
            content = json.dumps({**json.loads(path.read_text()), **content})
        path.write_text(content)
    for result in (
        reproduce("table3", *SMALL, "--runs", tmp_path / "runs"),
        reproduce("table3", "--redraw"),
        fslstm("report", place, "--output", tmp_path / "r.html"),
    ):
        assert result.code == 1
        assert message in result.err
        assert "Traceback" not in result.err
    assert path.read_text() == content
    assert not (tmp_path / "runs").exists()
    assert not (tmp_path / "r.html").exists()


def test_a_folder_that_cannot_be_written_is_named_before_anything_is_trained(reproduce, output, tmp_path):
    output.write_text("a file")
    result = reproduce("table3", *SMALL, "--runs", tmp_path / "runs")
    assert result.code == 1
    assert "Cannot make the folder" in result.err
    assert not (tmp_path / "runs").exists()


def test_measurements_of_several_processes_are_all_kept(tmp_path):
    folder = tmp_path / "table"
    folder.mkdir()
    processes = [
        multiprocessing.get_context("fork").Process(
            target=lambda first=first: [
                measurements.add(folder, [measurement(training=f"training {first + each}")]) for each in range(10)
            ]
        )
        for first in (0, 10, 20)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert {each.training for each in measurements.read(folder)} == {f"training {n}" for n in range(30)}


def test_a_run_that_names_itself_as_its_pretraining_is_none_that_is_wanted(trained, tmp_path):
    from fslstm_plugin.reproduction.trainings import identity

    runs = tmp_path / "runs"
    shutil.copytree(trained / "reproduce-quick-dots-tiny-lssvm", runs / "a")
    config = json.loads((runs / "a" / "config.json").read_text())
    config["pretrained"] = str(runs / "a")
    (runs / "a" / "config.json").write_text(json.dumps(config))
    own = structs.replace(Run.open(runs / "a").config, pretrained=None)
    assert identity(Run.open(runs / "a").config) == (own, (own, str(runs / "a")))
    assert identity(structs.replace(own, pretrained=str(runs / "gone"))) == (own, str(runs / "gone"))


def test_a_run_without_a_data_set_is_refused(trained, reproduce, tmp_path):
    run = tmp_path / "places"
    shutil.copytree(trained / "reproduce-quick-dots-tiny-pretrained", run)
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "dataset": None, "places": "/data/places"}))
    result = reproduce("table3", "--run", run)
    assert result.code == 2
    assert "was pretrained on a folder of images" in result.err


@pytest.mark.parametrize("file", ["measured.json", "published.json"])
def test_what_is_no_file_is_named_and_not_taken_for_absent(file, reproduce, folder, output):
    place = Reproduction.read(folder / "table3").put_into(output).folder
    (place / file).unlink(missing_ok=True)
    (place / file).mkdir()
    result = reproduce("table3", "--redraw")
    assert result.code == 1
    assert f"{file} is a folder" in result.err


def test_what_was_not_measured_is_not_said_to_be_drawn(reproduce, folder, output):
    for name in ("unbalanced", "figure-support"):
        place = Reproduction.read(folder / name).put_into(output).folder
        result = reproduce(name, "--redraw")
        assert (result.code, result.out) == (0, f"{name}: nothing is measured yet.\n")
        assert [file.name for file in place.iterdir()] == ["specification.json"]


def test_pretrained_weights_that_nothing_begins_from_are_refused(trained, reproduce):
    result = reproduce("unbalanced", *SMALL, "--pretrained", "reproduce-quick-dots-tiny-pretrained", "--dry-run")
    assert result.code == 2
    assert "--pretrained cannot be used with unbalanced here" in result.err


def test_pretrained_weights_that_do_not_fit_are_named_before_anything_is_trained(trained, reproduce, tmp_path):
    weights = trained / "reproduce-quick-dots-tiny-pretrained"
    result = reproduce("table1", *SMALL, "--backbone", "conv4", "--pretrained", weights, "--runs", tmp_path / "runs")
    assert result.code == 1
    assert "do not fit this Conv4" in result.err
    assert not (tmp_path / "runs").exists()


def test_a_training_that_cannot_begin_leaves_no_folder(reproduce, tmp_path, monkeypatch):
    def fails(run: Run, *_: object, **__: object):
        assert run.path.is_dir()
        raise UsageError("It cannot begin.")

    monkeypatch.setattr("fslstm_plugin.training.pretraining.pretrain", fails)
    assert reproduce("table1", *SMALL, "--runs", tmp_path / "runs").code == 2
    assert [file for file in (tmp_path / "runs").iterdir() if file.is_dir()] == []


def test_runs_that_would_be_one_line_are_refused_and_one_run_is_measured_once(trained, reproduce, output, tmp_path):
    base = trained / "reproduce-quick-dots-tiny-pretrained"
    shutil.copytree(base, tmp_path / "again")
    result = reproduce("table3", "--run", base, "--run", tmp_path / "again", "--episodes", 10)
    assert (result.code, result.out) == (2, "")
    assert "again would be one line of the table (" in result.err
    assert not (output / "table3").exists()
    options = ("--shots", 1, "--episodes", 10, "--dry-run")
    once, twice = (reproduce("table3", *(["--run", base] * number), "--run", base.name, *options) for number in (0, 1))
    assert once.out.count("evaluate") == twice.out.count("evaluate") > 0


def test_runs_are_told_apart_by_their_pretraining_too(trained):
    from fslstm_plugin.reproduction.trainings import describe, identity

    run = Run.open(trained / "reproduce-quick-dots-tiny-lssvm")
    _, (inner, start) = identity(run.config)
    assert (inner.kind, start) == ("pretrain", None)
    training = "lssvm, 50 of 60,000 steps of 8 episodes with 5 + 2 images per class"
    assert describe(run.config) == f"base classes, 1 epoch; then {training}"


@pytest.mark.parametrize(
    ("backbone", "epochs", "steps", "lr"), [("conv4", 16, 2000, 0.005), ("resnet12", 16, 300, 0.0005)]
)
def test_the_cpu_scale_fits_the_backbone_and_always_begins_from_a_pretraining(backbone, epochs, steps, lr):
    training = trainings.wanted_training("rr", "cifar-fs", backbone, trainings.SCALES["cpu"], 0, pretrained=False)
    assert training.begins_from.config.recipe.epochs == epochs
    assert training.begins_from.config == pretrain_config(backbone, dataset="cifar-fs"), "as `fslstm pretrain` does"
    assert training.config.max_steps == steps
    assert training.config.recipe.lr == lr
    assert training.config.recipe.queries == 2


def test_the_gpu_scale_is_the_papers_after_the_pretraining_for_a_gpu():
    training = trainings.wanted_training(
        "lssvm+iam", "cifar-fs", "conv4", trainings.find_scale("gpu"), 0, pretrained=True, accelerator="cpu"
    )
    recipe = training.begins_from.config.recipe
    assert recipe == pretrain_config("conv4", dataset="cifar-fs", recipe="gpu").recipe
    assert (training.config.max_steps, training.config.recipe.queries) == (None, 6)
    assert trainings.describe(training.begins_from.config) == "base classes, 120 epochs, batches of 512"


def test_the_papers_scale_begins_from_scratch_where_the_paper_does_unless_weights_are_given(tmp_path):
    def at_paper_scale(**options):
        return trainings.wanted_training("rr", "cifar-fs", "conv4", trainings.SCALES["paper"], 0, **options)

    scratch = at_paper_scale(pretrained=False)
    assert (scratch.begins_from, scratch.config.pretrained, scratch.config.max_steps) == (None, None, None)
    assert (scratch.config.recipe.lr, scratch.config.recipe.queries) == (0.1, 6)
    assert at_paper_scale(pretrained=True).begins_from.config.recipe.epochs == 16
    given = at_paper_scale(pretrained=False, weights=tmp_path / "places.safetensors")
    assert (given.begins_from, given.config.recipe.lr) == (None, 0.005)
    assert given.config.pretrained == str(tmp_path / "places.safetensors")


def test_paired_differences_are_told_apart_by_backbone_and_name_the_letters_of_the_table():
    gain = {"method": "rr", "reference": "lssvm", "shots": 1, "gain": 2.0, "gain_ci95": 0.5, "dataset": "mini"}
    both = [measurement(**gain, backbone=name) for name in ("conv4", "resnet12")]
    headings = [block.heading.partition(", ")[2] for block in rendering.paired_differences(both, {})]
    assert headings == ["miniImageNet, Conv4: t", "miniImageNet, ResNet12: t"]
    # One training may have been measured at several scales, and with several seeds.
    other = structs.replace(WHERE, scale="given run")
    lines = compare(
        reproduction(methods=("lssvm", "rr")),
        [
            measurement(training="u"),
            measurement(training="u", seed=1),
            measurement(training="u", provenance=other, backbone="c"),
            measurement(method="rr"),
        ],
    )
    letters = rendering.training_letters(lines)
    assert list(letters.values()) == ["A", "B", "C"]
    between = structs.replace(both[0], reference_training="u")
    (found,) = rendering.paired_differences([between], letters)
    assert found.heading.endswith(", miniImageNet, Conv4: between trainings")
    assert found.sentences == ["1-shot: RR (C) beats LSSVM (A) by 2.00 ± 0.50 points."]


def test_the_iam_of_miniimagenet_is_smaller_where_the_name_does_not_say():
    def algorithm(dataset: str, name: str) -> str:
        return train_config(dataset, "conv4", name, precision="32").algorithm

    assert algorithm("mini", "lssvm+iam") == "lssvm+iam(reduction=16)"
    assert algorithm("mini", "lssvm+iam(reduction=4)") == "lssvm+iam(reduction=4)"
    assert algorithm("cifar-fs", "lssvm+iam") == "lssvm+iam"
    training = trainings.wanted_training("lssvm+iam", "mini", "conv4", trainings.SCALES["paper"], 0, pretrained=True)
    assert training.config.algorithm == "lssvm+iam(reduction=16)"
    assert training.name == "reproduce-paper-mini-conv4-lssvm+iam"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pretrain_config("conv4", folder=Path("x"), image_size=1100), "image_size"),
        (lambda: pretrain_config("conv4"), "must name one of"),
        (lambda: pretrain_config("conv4", dataset="cifar-fs", image_size=84), "a data set has its own"),
        (lambda: pretrain_config("conv4", dataset="cifar-fs", given={"padding": 40}), "`padding` must be less"),
        (lambda: train_config("cifar-fs", "conv4", "lssvm", given={"padding": 40}), "`padding` must be less"),
        (lambda: train_config("cifar-fs", "conv4", "lssvm", seed=-1), "seed"),
        (lambda: train_config("cifar-fs", "conv4", "lssvm", precision="64"), "must be auto, 32 or bf16"),
        (lambda: train_config("cifar-fs", "conv4", "lssvm+iam(reduction=0)"), "reduction"),
    ],
)
def test_a_training_that_a_run_folder_would_refuse_is_refused_before_it_begins(call, message):
    with pytest.raises(UsageError, match=message):
        call()


# Transduction: measurements that go on, and what others published.


TRANSDUCTION = ("transduction", "--run", "reproduce-quick-dots-tiny-pretrained")


@pytest.fixture
def few_methods(folder):
    """The transduction's specification with few methods."""
    file = folder / "transduction" / "specification.json"
    content = json.loads(file.read_text())
    content["methods"] = ["nn", "nn+psm", "bd-cspn", "tim(steps=3)"]
    file.write_text(json.dumps(content))
    return file


def measured_in(output):
    content = json.loads((output / "transduction" / "measured.json").read_text())["measurements"]
    return {(each["method"], each["shots"], each["query_balance"]): each for each in content}


@pytest.fixture
def evaluated(monkeypatch):
    """The methods of each pass over episodes that a reproduction makes; the third is stopped while `stop` is set."""
    passes = []
    measure = RunSession.measure

    def counting(session, methods, *more, **options):
        if len(passes) == 2 and passes.stop:
            raise KeyboardInterrupt
        passes.append([str(method) for method in methods])
        return measure(session, methods, *more, **options)

    class Passes(list):
        stop = False

    passes = Passes()
    monkeypatch.setattr(RunSession, "measure", counting)
    return passes


def test_a_measurement_that_was_stopped_is_continued(
    trained, reproduce, few_methods, output, monkeypatch, evaluated, tmp_path
):
    asked = (*TRANSDUCTION, "--episodes", 10, "--seed", 7)
    evaluated.stop = True
    result = reproduce(*asked)
    assert result.code == 130
    assert "Stopped. Continue with the same command and --resume." in result.err
    assert len(measured_in(output)) == 4 * 2, "each setting is kept as soon as it is measured"
    first = (output / "transduction" / "measured.json").read_bytes()
    planned, left = (reproduce(*asked, "--dry-run", *more).out.count("evaluate ") for more in ((), ("--resume",)))
    assert (planned, left) == (4, 2)
    evaluated.stop = False
    result = reproduce(*asked, "--resume")
    assert result.code == 0, result.err
    assert (result.err.count("measured already"), len(evaluated)) == (2, 4)
    assert "everything is measured already" in reproduce(*asked, "--dry-run", "--resume").out
    kept = json.loads(first)["measurements"]
    now = (output / "transduction" / "measured.json").read_bytes()
    assert [each for each in json.loads(now)["measurements"] if each in kept] == kept
    assert len(measured_in(output)) == 4 * 4
    assert (output / "transduction" / "figure.png").is_file()
    evaluated.clear()
    result = reproduce(*asked, "--resume", output=tmp_path / "other")
    assert (result.code, len(evaluated)) == (0, 0), "outcomes are the run's, wherever they are shown"
    assert (tmp_path / "other" / "transduction" / "measured.json").read_bytes() == now
    for further in ((), ("--resume", "--episodes", 9), ("--resume", "--seed", 8)):
        evaluated.clear()
        assert reproduce(*asked, *further).code == 0
        assert len(evaluated) == 4, "all without --resume; what has other episodes with it"
    monkeypatch.setattr(outcomes, "_code", lambda: "other code")
    evaluated.clear()
    assert reproduce(*asked, "--resume").code == 0
    assert len(evaluated) == 4, "what other code measured is not mixed with this code's"


def test_a_measurement_that_was_stopped_between_two_episodes_is_continued_there(
    trained, reproduce, few_methods, output, monkeypatch, evaluated, tmp_path
):
    asked = (*TRANSDUCTION, "--episodes", 20, "--seed", 9)
    cache = trained / TRANSDUCTION[-1] / "cache"
    for file in cache.glob("*-outcome-*.safetensors"):  # of other tests
        file.unlink()
    assert reproduce(*asked, output=tmp_path / "at once").code == 0
    for file in cache.glob("*-outcome-*.safetensors"):  # as if other code had measured them
        file.rename(file.with_name(f"{file.stem.rpartition('-')[0]}-other.safetensors"))
    of_other_code = list(cache.glob("*-other.safetensors"))
    assert of_other_code
    monkeypatch.setattr(outcomes, "_EPISODES", 6)
    monkeypatch.setattr(outcomes, "_SECONDS", 0.0)
    evaluated.clear()
    evaluated.stop = True
    result = reproduce(*asked)
    assert result.code == 130
    assert "nn, nn+psm, bd-cspn and tim(steps=3): 12 of 20 episodes." in result.err
    assert all(file.exists() for file in of_other_code), "until these episodes are measured anew, all of them"
    assert not (output / "transduction" / "measured.json").exists(), "no row of a part of the episodes"
    left = reproduce(*asked, "--dry-run", "--resume").out
    assert "evaluate nn, nn+psm, bd-cspn and tim(steps=3): 1-shot, 4 queries, uniform, 8 episodes" in left
    evaluated.stop = False
    evaluated.clear()
    assert reproduce(*asked, "--resume").code == 0
    assert len(evaluated) == 2 + 3 * 4, "the 8 left of the first setting, then 20 in each other, at most 6 at a time"
    assert not any(file.exists() for file in of_other_code)
    whole, continued = (
        json.loads((folder / "transduction" / "measured.json").read_text())["measurements"]
        for folder in (tmp_path / "at once", output)
    )
    same = [{**each, "provenance": None, "seconds": None} for each in whole]
    assert [{**each, "provenance": None, "seconds": None} for each in continued] == same


def test_models_that_are_compared_are_evaluated_again_only_where_they_are_new(trained, reproduce, output, evaluated):
    asked = ("table1", *SMALL, "--seed", 0, "--episodes", 12)

    def said():
        content = json.loads((output / "table1" / "measured.json").read_text())["measurements"]
        return [{**each, "provenance": None, "seconds": None} for each in content]

    run = Run.open(trained / "reproduce-quick-dots-tiny-lssvm")
    for file in (run.path / "cache").glob("*-outcome-*.safetensors"):  # of other tests
        file.unlink()
    assert reproduce(*asked).code == 0
    first = said()
    damaged = next((run.path / "cache").glob("*-outcome-*.safetensors"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    evaluated.clear()
    result = reproduce(*asked, "--resume")
    assert (result.code, len(evaluated)) == (0, 1), "a damaged file is replaced"
    assert said() == first, "differences between models are those of before"
    weights = run.load_weights()
    try:
        save_tensors(run.weights, {**weights, "scale": weights["scale"] * 2})
        evaluated.clear()
        assert reproduce(*asked, "--resume").code == 0
        assert len(evaluated) == 4, "two passes at two numbers of shots, on the weights that are new"
    finally:
        save_tensors(run.weights, weights)


def test_weights_that_a_training_writes_meanwhile_get_no_outcomes_of_the_earlier_ones(
    trained, reproduce, few_methods, tmp_path, monkeypatch, evaluated
):
    run = tmp_path / "run"
    shutil.copytree(trained / TRANSDUCTION[-1], run)
    asked = ("transduction", "--run", run, "--episodes", 10, "--shots", 5)
    measure, weights = RunSession.measure, Run.open(run).load_weights()

    def meanwhile(session, *more, **options):
        save_tensors(run / "model.safetensors", {name: value * 0.5 for name, value in weights.items()})
        return measure(session, *more, **options)

    with monkeypatch.context() as changed:
        changed.setattr(RunSession, "measure", meanwhile)
        assert reproduce(*asked).code == 0
    evaluated.clear()
    assert reproduce(*asked, "--resume").code == 0
    assert evaluated, "the weights that are there now were not measured"


def test_a_run_that_is_removed_while_it_is_evaluated_does_not_come_back(
    trained, reproduce, few_methods, output, tmp_path, monkeypatch
):
    run = tmp_path / "run"
    shutil.copytree(trained / TRANSDUCTION[-1], run)
    measure = RunSession.measure

    def removing(session, *more, **options):
        shutil.rmtree(run, ignore_errors=True)
        return measure(session, *more, **options)

    monkeypatch.setattr(RunSession, "measure", removing)
    result = reproduce("transduction", "--run", run, "--episodes", 10, "--shots", 5)
    assert result.code == 0, result.err
    assert "The outcome of nn is not kept" in result.err
    assert not run.exists()
    assert measured_in(output)


def test_what_others_published_stands_beside_ours_with_its_source(
    trained, reproduce, few_methods, output, fslstm, tmp_path
):
    assert reproduce(*TRANSDUCTION, "--episodes", 10).code == 0
    page = (output / "transduction" / "table.md").read_text().partition("## Beside what was published")[2]
    assert "| TIM | miniImageNet, WRN | uniform | 77.50 | 87.20 | published: the authors' README |" in page
    assert "| ALPHA-TIM | CUB, ResNet-18 | dirichlet:2 | 75.70 | – | published: " in page
    ours = measured_in(output)["bd-cspn", 1, "dirichlet:2"]
    assert f"| BD-CSPN | Dots, TinyBackbone | dirichlet:2 | {ours['accuracy']:.2f} ± " in page
    assert "measured here: base classes, 1 epoch, 10 episodes |" in page
    assert "NN+PSM" not in page, "nobody published it"
    latex = (output / "transduction" / "table.tex").read_text().partition("% Beside what was published")[2]
    assert "TIM & miniImageNet, WRN & uniform & $77.50$ & $87.20$ & published: the authors' README \\\\" in latex
    assert fslstm("report", output / "transduction", "--output", tmp_path / "r.html").code == 0
    assert "published: the authors&#39; README" in (tmp_path / "r.html").read_text()


def test_a_number_from_memory_is_not_called_published():
    values = Reproduction.read(REPRODUCTIONS / "transduction").published.values
    assert all(value.source and value.accuracy is not None for value in values)
    methods = {value.method for value in values}
    assert "PROTO-LP" not in methods
    assert methods >= {"SIMPLESHOT", "BD-CSPN", "LAPLACIAN-SHOT", "TIM", "ALPHA-TIM", "PT-MAP", "PADDLE", "ILPC"}


def test_columns_that_share_no_line_have_legends_of_their_own():
    points = [
        Point("r", column, column + name, x, 1.0, 0.1, 50.0, 1.0) for column in "ab" for name in "cd" for x in (1, 2)
    ]
    figure = draw(Lines("x", "y", points))
    assert [[text.get_text() for text in panel.get_legend().get_texts()] for panel in figure.axes] == [
        ["ac", "ad"], ["bc", "bd"],
    ]  # fmt: skip
    assert figure.legends == []
    shared = [replace(point, series=point.series[-1]) for point in points]
    figure = draw(Lines("x", "y", shared))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["c", "d"]

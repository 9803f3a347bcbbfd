"""The command line through its entry point: the usual path of a user, and wrong turns."""

from __future__ import annotations

import csv
import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest
import typer
from drawings import draw_few
from fslstm_cli.main import app

from fslstm_plugin import __version__
from fslstm_plugin.stopping import Interrupted

TRAIN = (
    "train", "--dataset", "dots", "--backbone", "tiny", "--shots", 2, "--queries", 3, "--episodes-per-step", 2,
    "--lr", 0.1, "--method-lr", 0.1,
)  # fmt: skip
FEW = ("--episodes", 40, "--shots", 1, "--shots", 2, "--queries", 5, "--ways", 4)
COMMANDS = {(name,): command for name, command in typer.main.get_command(app).commands.items()}
COMMANDS |= {("data", name): command for name, command in COMMANDS["data",].commands.items()}
CONTRACT = {
    "dataset", "split", "backbone", "head", "modules", "ways", "shots", "queries", "episodes", "seed", "accuracy",
    "ci95", "seconds",
}  # fmt: skip


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def trained(runs, fslstm):
    """A folder with a pretrained and a meta-trained run, made once by the commands."""
    if not (runs / "fslstm" / "model.safetensors").exists():
        pretrained = fslstm(
            "pretrain", "--dataset", "dots", "--backbone", "tiny", "--max-steps", 3, "--batch-size", 32,
            "--runs", runs, "--name", "base",
        )  # fmt: skip
        assert pretrained.code == 0, pretrained.err
        result = fslstm(
            *TRAIN, "--pretrained", runs / "base", "--max-steps", 3, "--val-episodes", 10, "--runs", runs,
            "--name", "fslstm",
        )  # fmt: skip
        assert result.code == 0, result.err
        assert "model.safetensors" in result.out
    return runs


def rows_of(file):
    rows = json.loads(file.read_text())["rows"]
    assert all(row.keys() >= CONTRACT for row in rows)
    assert all(0 <= row["accuracy"] <= 100 and row["seconds"] > 0 for row in rows)
    return rows


def test_eval_gives_a_row_for_each_module_and_shot(trained, fslstm, tmp_path):
    result = fslstm("eval", "--runs", trained, *FEW, "--psm-iters", 2, "--can", "--json", tmp_path / "r.json")
    assert result.code == 0, result.err
    rows = rows_of(tmp_path / "r.json")
    modules = [[], ["iam"], ["iam", "psm"], ["iam", "can"]]
    assert [(row["shots"], row["modules"]) for row in rows] == [(s, m) for s in (1, 2) for m in modules]
    assert rows[0]["accuracy"] > 40, "chance is 25"
    for word in ("LSSVM+IAM+PSM", "LSSVM+IAM+CAN", "best", f"{rows[0]['accuracy']:.2f}"):
        assert word in result.out
    content = json.loads((tmp_path / "r.json").read_text())
    assert json.loads((trained / "fslstm" / "evaluations" / "eval-1.json").read_text()) == content
    assert content["command"].startswith("fslstm eval --runs")
    assert content["version"] == __version__
    assert datetime.date.fromisoformat(content["date"]) <= datetime.date.today()
    assert {row["run"] for row in rows} == {"fslstm"}
    assert "fslstm:" in result.out, "the run is named"


def test_eval_without_iam_and_with_batch_statistics(trained, fslstm, tmp_path):
    for options, modules in ((("--no-iam",), []), (("--iam", "--bn"), ["bn", "iam"])):
        result = fslstm("eval", "--runs", trained, *FEW, "--psm-iters", 0, *options, "--json", tmp_path / "r.json")
        assert result.code == 0, result.err
        assert [row["modules"] for row in rows_of(tmp_path / "r.json")] == [modules, modules]


def test_results_do_not_depend_on_the_batch_or_the_cache(trained, fslstm, tmp_path):
    accuracies = []
    for batch in (1, 7, 64):
        for file in (trained / "fslstm").glob("cache/*"):
            if batch == 64:
                file.write_bytes(file.read_bytes()[:-50])  # a damaged cache is noticed, never believed
        result = fslstm(
            "compare-heads", "--runs", trained, *FEW, "--batch-episodes", batch, "--json", tmp_path / "r.json"
        )
        assert result.code == 0, result.err
        accuracies.append([(row["accuracy"], row["ci95"]) for row in rows_of(tmp_path / "r.json")])
    assert accuracies[0] == accuracies[1] == accuracies[2]


def test_several_processes_give_the_rows_of_one(trained, fslstm, spawn, tmp_path):
    options = ("--runs", trained, *FEW, "--episodes", 13, "--psm-iters", 2)
    assert fslstm("eval", *options, "--json", tmp_path / "one.json").code == 0
    together = spawn("eval", *options, "--json", tmp_path / "two.json", processes=2)
    out, err = together.communicate()
    assert together.returncode == 0, err
    one, two = (rows_of(tmp_path / f"{name}.json") for name in ("one", "two"))
    for name in ("accuracy", "share_error"):
        assert [row[name] for row in one] == [row[name] for row in two]
    assert out.count("13 episodes") == 1, "one process prints the table"


def test_runs_and_shots_that_are_named_twice_are_measured_once(trained, fslstm, tmp_path):
    runs = ("--run", "base", "--run", trained / "base" / ".." / "base")
    result = fslstm(
        "compare",
        "nn",
        "lssvm",
        *runs,
        "--runs",
        trained,
        *FEW,
        "--shots",
        1,
        "--shots",
        1,
        "--json",
        tmp_path / "r.json",
    )
    assert result.code == 0, result.err
    assert [(row["run"], row["method"], row["shots"]) for row in rows_of(tmp_path / "r.json")] == [
        (run, method, shots) for shots in (1, 2) for run, method in (("base", "nn"), ("base", "lssvm"))
    ]


def test_two_runs_of_one_name_are_refused(trained, fslstm, tmp_path):
    shutil.copytree(trained / "base", tmp_path / "base")
    result = fslstm("compare", "nn", "--run", "base", "--run", tmp_path / "base", "--runs", trained, *FEW)
    assert (result.code, result.out) == (2, "")
    assert "Two runs are called base, so their rows cannot be told apart" in result.err


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ({"dataset": None, "places": "/data/places"}, "bd-cspn needs the mean feature of base classes"),
        ({"dataset": "mini"}, "miniImageNet is not prepared"),
    ],
)
def test_a_run_is_compared_without_base_classes(trained, fslstm, tmp_path, source, reason):
    run = tmp_path / "folder"
    shutil.copytree(trained / "base", run)
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, **source}))
    result = fslstm("compare", "--run", run, *FEW, "--dataset", "dots", "--json", tmp_path / "r.json")
    assert result.code == 0, result.err
    assert f"Left out: bd-cspn, laplacian-shot, simpleshot. {reason}" in result.err
    assert "simpleshot" not in {row["method"] for row in rows_of(tmp_path / "r.json")}
    assert fslstm("tune", "nn", "--run", run, *FEW, "--dataset", "dots").code == 0


def test_what_was_tuned_without_weights_is_not_put_before_them(trained, fslstm, tmp_path):
    run = tmp_path / "fslstm"
    shutil.copytree(trained / "fslstm", run)
    assert fslstm("tune", "lssvm", "--run", run, *FEW).code == 0
    content = json.loads((run / "tuned.json").read_text())
    (run / "tuned.json").write_text(json.dumps({**content, "choices": {"dots": {"lssvm": "lssvm(ridge=7)"}}}))
    assert fslstm("eval", "--run", run, *FEW, "--can", "--json", tmp_path / "r.json").code == 0
    methods = {row["method"] for row in rows_of(tmp_path / "r.json")}
    assert methods == {"lssvm(ridge=7)", "lssvm+iam", "lssvm+iam+psm", "lssvm+iam+can"}


def test_a_damaged_choice_is_named_without_an_option_that_the_command_lacks(trained, fslstm, tmp_path):
    run = tmp_path / "fslstm"
    shutil.copytree(trained / "fslstm", run)
    (run / "tuned.json").write_text("{}")
    refused = fslstm("tune", "lssvm", "--run", run, *FEW)
    assert refused.code == 1
    assert refused.err.endswith("remove it and run 'fslstm tune' again.\n")
    (run / "tuned.json").unlink()
    (run / "tuned.json").mkdir()
    for command in ("eval", "compare", "compare-heads"):
        refused = fslstm(command, "--run", run, *FEW)
        assert refused.code == 1
        assert "tuned.json" in refused.err
        assert refused.err.endswith("remove it and run 'fslstm tune' again; or give --no-tuned.\n")
    assert fslstm("eval", "--run", run, *FEW, "--no-tuned").code == 0


def test_a_module_of_another_package_is_named_with_the_method(trained, succeed, tmp_path):
    succeed("eval", "lssvm+iam+average", "--runs", trained, *FEW, "--json", tmp_path / "r.json")
    assert {tuple(row["modules"]) for row in rows_of(tmp_path / "r.json")} == {("iam", "average")}


def test_compare_heads_compares_all_on_the_same_episodes(trained, fslstm, tmp_path):
    files = {kind: tmp_path / f"r.{kind}" for kind in ("json", "csv", "latex")}
    options = [word for kind, file in files.items() for word in (f"--{kind}", file)]
    result = fslstm("compare-heads", "--run", "base", "--runs", trained, *FEW, *options)
    assert result.code == 0, result.err
    rows = rows_of(files["json"])
    assert [(row["head"], *row["modules"]) for row in rows[:12]] == [
        (head, *module) for head in ("nn", "rr", "svm", "lssvm") for module in ([], ["can"], ["psm"])
    ]
    assert [row["transductive"] for row in rows] == [False, True, True] * 8
    assert [row["iterations"] for row in rows] == [None, 2, 10] * 8
    assert "2 iterations of CAN, 10 iterations of PSM" in " ".join(result.out.split())
    for shots in (1, 2):
        group = [row for row in rows if row["shots"] == shots]
        best = max(row["accuracy"] for row in group)
        for row in group:
            assert row["difference"] == pytest.approx(row["accuracy"] - best, abs=1e-9)
            assert (row["difference_ci95"] == 0) == (row["difference"] == 0 and row["accuracy"] == best) or (
                row["accuracy"] == best
            )
    with files["csv"].open() as file:
        assert [float(row["accuracy"]) for row in csv.DictReader(file)] == [row["accuracy"] for row in rows]
    latex = files["latex"].read_text()
    assert latex.count(r"\\") == 13
    assert latex.count("mathbf") >= 2
    assert r"\toprule" in latex


def test_heads_are_compared_on_several_runs(trained, succeed, tmp_path):
    runs = ("--run", "base", "--run", "fslstm", "--runs", trained)
    succeed("compare-heads", *runs, *FEW, "--head", "nn", "--json", tmp_path / "r.json")
    rows = [(row["run"], *row["modules"]) for row in rows_of(tmp_path / "r.json") if row["shots"] == 1]
    assert sorted(rows) == [(run, *modules) for run in ("base", "fslstm") for modules in ([], ["can"], ["psm"])]


def test_a_terminal_shows_the_accuracies_so_far(trained, fslstm, tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")  # Rich takes the captured stream for a terminal.
    options = ("--head", "nn", "--batch-episodes", 10, "--json", tmp_path / "r.json")
    result = fslstm("compare-heads", "--run", "base", "--runs", trained, *FEW, *options)
    assert result.code == 0, result.err
    last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", result.err).split("so far")[-1]
    table = [[cell.strip() for cell in line.split("│")] for line in last.splitlines() if "│" in line]
    shown = {line[1]: line[2:4] for line in table}
    means = {}
    for row in rows_of(tmp_path / "r.json"):
        means.setdefault("+".join([row["head"], *row["modules"]]).upper(), []).append(f"{row['accuracy']:.2f}")
    assert shown == means


def test_differences_are_said_in_words_and_counted_over_classes_too(trained, fslstm, tmp_path):
    widths = {}
    for interval in ("episodes", "classes"):
        file = tmp_path / f"{interval}.json"
        result = fslstm(
            "compare-heads", "--run", "base", "--runs", trained, *FEW, "--head", "nn", "--head", "lssvm",
            "--interval", interval, "--query-balance", "dirichlet:2", "--json", file,
        )  # fmt: skip
        assert result.code == 0, result.err
        rows = rows_of(file)
        widths[interval] = [row["ci95"] for row in rows]
        assert {row["reference"] for row in rows} == {None, "nn", "lssvm"}
        for row in rows:
            if row["reference"] == row["head"]:
                plain = next(
                    r for r in rows if (r["head"], r["shots"], r["modules"]) == (row["head"], row["shots"], [])
                )
                assert row["gain"] == pytest.approx(row["accuracy"] - plain["accuracy"])
        statements = json.loads(file.read_text())["statements"]
        assert len([line for line in statements if "points" in line]) >= 2 * 5
        assert len(result.out.splitlines()) < 6 + 6 + 12, "a short verdict below the table"
        assert "dirichlet:2" in result.out
    pairs = list(zip(*widths.values(), strict=True))
    assert all(classes >= episodes for episodes, classes in pairs)
    assert any(classes > episodes for episodes, classes in pairs), "equal only where no episode has an error"


def test_tuned_constants_are_kept_with_their_evidence_and_used(trained, fslstm, tmp_path):
    methods = ("lssvm", "lssvm+iam", "laplacian-shot")
    tune = ("tune", *methods, "--run", "fslstm", "--runs", trained, *FEW, "--json", tmp_path / "t.json")
    result = fslstm(*tune)
    assert result.code == 0, result.err
    rows = rows_of(tmp_path / "t.json")
    assert {row["split"] for row in rows} == {"val"}
    names = list(dict.fromkeys(row["method"] for row in rows))
    assert len(rows) == 2 * len(names), "each candidate once for each number of shots"
    assert {"lssvm", "lssvm(ridge=loo,center,normalize)", "laplacian-shot(weight=0.5)"} <= set(names)
    content = json.loads((trained / "fslstm" / "tuned.json").read_text())
    assert content["rows"] == rows
    for method in methods:
        mine = [name for name in names if name.split("(")[0].split("+")[0] == method.split("+")[0]]
        mine = [name for name in mine if name.endswith("+iam") == method.endswith("+iam")]
        means = {name: sum(row["accuracy"] for row in rows if row["method"] == name) for name in mine}
        assert means[content["choices"]["dots"][method]] == max(means.values())

    result = fslstm("tune", "nn", "--run", "fslstm", "--runs", trained, *FEW)
    assert result.code == 0, result.err
    again = json.loads((trained / "fslstm" / "tuned.json").read_text())
    before, after = content["choices"]["dots"], again["choices"]["dots"]
    assert after.keys() == {*before, "nn"}, "what was chosen earlier stays"
    assert after.items() >= before.items()
    assert [row for row in again["rows"] if row["head"] != "nn"] == rows

    evaluate = ("eval", "--run", "fslstm", "--runs", trained, *FEW, "--psm-iters", 0, "--json", tmp_path / "r.json")
    choice = before["lssvm+iam"]
    result = fslstm(*evaluate, "--iam")
    assert result.code == 0, result.err
    assert {row["method"] for row in rows_of(evaluate[-1])} == {choice}
    assert ("as tuned on validation episodes" in result.err) == (choice != "lssvm+iam")
    result = fslstm(*evaluate, "--iam", "--no-tuned", "--head", "lssvm(normalize)")
    assert {row["method"] for row in rows_of(evaluate[-1])} == {"lssvm(normalize)+iam"}
    result = fslstm(*evaluate, "--iam", "--head", "lssvm(ridge=loo)")
    assert {row["options"]["ridge"] for row in rows_of(evaluate[-1])} == {"loo"}
    assert "LSSVM(ridge=loo)+IAM" in result.out
    assert "Not used by" not in fslstm("tune", "nn", "--run", "fslstm", "--runs", trained, *FEW).out
    done = fslstm("tune", "rr(ridge=2)", "--run", "fslstm", "--runs", trained, *FEW)
    choice = json.loads((trained / "fslstm" / "tuned.json").read_text())["choices"]["dots"]["rr(ridge=2)"]
    told = "Not used by eval and compare, since named with arguments: rr(ridge=2)." in done.out
    assert told == (choice != "rr(ridge=2)")
    elsewhere = {**again, "choices": {"glyphs": {"lssvm": "lssvm(ridge=7)"}, "dots": {"rr(ridge=2)": "rr(ridge=3)"}}}
    (trained / "fslstm" / "tuned.json").write_text(json.dumps(elsewhere))
    result = fslstm("compare", "lssvm", "rr(ridge=2)", *evaluate[1:5], *FEW, "--json", tmp_path / "r.json")
    assert "as tuned" not in result.err, "of another data set, and a number that the user gave"
    assert {row["method"] for row in rows_of(tmp_path / "r.json")} == {"lssvm", "rr(ridge=2)"}

    (trained / "fslstm" / "tuned.json").write_text('{"format": 3, "choices": {"lssvm+iam": {"head": "lssvm"}}}')
    damaged = (trained / "fslstm" / "tuned.json").read_text()
    result = fslstm(*evaluate)
    assert result.code == 1
    again = fslstm("tune", "nn", "--run", "fslstm", "--runs", trained, *FEW)
    assert (again.code, again.out) == (1, "")
    assert "remove it and run 'fslstm tune' again" in again.err
    assert (trained / "fslstm" / "tuned.json").read_text() == damaged
    assert "run 'fslstm tune' again" in result.err
    (trained / "fslstm" / "tuned.json").unlink()


def test_a_registered_head_can_be_trained_and_compared(trained, fslstm):
    result = fslstm(*TRAIN, "--algorithm", "centroid+iam", "--max-steps", 1, "--val-episodes", 5, "--runs", trained)
    assert result.code == 0, result.err
    assert re.search(r"^1 step of \d+ episodes", result.err, re.MULTILINE), result.err
    assert (trained / "train-dots-tiny-centroid+iam" / "model.safetensors").is_file()
    result = fslstm("compare-heads", "--head", "centroid", "--run", "base", "--runs", trained, *FEW)
    assert result.code == 0, result.err
    assert "CENTROID+PSM" in result.out


def test_demo_runs_the_commands_that_it_shows(fslstm, tmp_path, monkeypatch):
    monkeypatch.setenv("FSLSTM_DATA_ROOT", str(tmp_path / "data"))
    draw_few(monkeypatch)
    result = fslstm("demo", "--runs", tmp_path / "runs", "--pretrain-steps", 2, "--train-steps", 1, "--episodes", 5)
    assert result.code == 0, result.err
    assert [line.split()[2] for line in result.out.splitlines() if line.startswith("$ fslstm")] == [
        "data", "pretrain", "train", "eval", "compare-heads", "report",
    ]  # fmt: skip
    (page,) = (tmp_path / "runs").glob("*.html")
    assert f"The report is {page}" in result.out
    assert "LSSVM+IAM+PSM" in result.out


def test_a_demo_that_is_stopped_says_that_it_begins_anew(fslstm, tmp_path, monkeypatch):
    def stopped(*_, **__):
        raise Interrupted("Stopped; continue with fslstm pretrain --resume.", signal.SIGINT)

    monkeypatch.setenv("FSLSTM_DATA_ROOT", str(tmp_path / "data"))
    draw_few(monkeypatch)
    monkeypatch.setattr("fslstm_plugin.training.pretraining.pretrain", stopped)
    result = fslstm("demo", "--runs", tmp_path / "runs")
    assert result.code == 130
    assert result.err.endswith("fslstm: Stopped. 'fslstm demo' cannot be resumed: it starts from the beginning.\n")


WRONG = [
    (("bench", "transduction", "--features", 1), 2, "Invalid value for '--features'"),
    (("train", "--dataset", "minni"), 2, "no data set 'minni'. Did you mean 'mini'"),
    (("train", "--dataset", "dots", "--backbone", "resnet21"), 2, "no backbone 'resnet21'. Did you mean 'resnet12'"),
    (("train", "--dataset", "mini", "--backbone", "conv5"), 2, "no backbone 'conv5'"),
    (("train", "--dataset", "dots", "--algorithm", "lssvm+imm"), 2, "Did you mean 'iam'"),
    (("train", "--dataset", "dots", "--algorithm", "lssvm+psm"), 2, "psm has no weights"),
    (("train", "--dataset", "dots", "--algorithm", "tim(solver=gd)"), 2, "tim(solver=gd) has no weights, and passes"),
    (("train", "--dataset", "dots", "--algorithm", "alpha-tim(steps=9)"), 2, "passes no gradients"),
    (("train", "--dataset", "dots", "--algorithm", "ilpc"), 2, "passes no gradients"),
    (("train", "--dataset", "dots", "--algorithm", "lssvm(decoding=hamming)"), 2, "passes no gradients"),
    ((*TRAIN, "--ways", 9), 2, "--ways 9 is not possible: the split has only 8 classes"),
    ((*TRAIN, "--val-ways", 8), 2, "--val-ways 8 is not possible: the split has only 6 classes"),
    ((*TRAIN, "--val-shots", 40), 2, "--val-shots 40 and --val-queries 15 need 55 images per class"),
    ((*TRAIN, "--shots", 28), 2, "has 30"),
    ((*TRAIN, "--lr", -1), 2, "--lr must be a number > 0"),
    ((*TRAIN, "--label-smoothing", 1.5), 2, "--label-smoothing must be a number < 1"),
    ((*TRAIN, "--precision", "16"), 2, "--precision must be auto, 32 or bf16"),
    ((*TRAIN, "--devices", "two"), 2, "--devices must be a number from 1 to 9999 or auto"),
    ((*TRAIN, "--devices", 0), 2, "--devices must be a number from 1 to 9999 or auto"),
    ((*TRAIN, "--devices", "9" * 20), 2, "--devices must be a number from 1 to 9999 or auto"),
    ((*TRAIN, "--accelerator", "tpuu"), 2, "tpuu"),
    ((*TRAIN, "--name", "../x"), 2, "plain folder name"),
    ((*TRAIN, "--max-steps", 0), 2, "--max-steps"),
    ((*TRAIN, "--seed", -1), 2, "--seed"),
    ((*TRAIN, "--pretrained", "nowhere"), 1, "no run folder or weights file at"),
    ((*TRAIN, "--episodes-per-step", 0), 2, "--episodes-per-step"),
    (("train", "--resume"), 1, "no train run to resume"),
    (("train", "--resume", "--name", "x"), 1, "x/config.json is missing. A training that was stopped so early"),
    (("pretrain", "--resume", "--name", "x"), 1, "begins again by its first command, without --resume."),
    (("train", "--resume", "--lr", 0.1), 2, "--resume and --lr cannot be used together"),
    (("train", "--dataset", "mini", "--backbone", "resnet12"), 1, "fslstm data prepare mini"),
    (("pretrain",), 2, "one of --dataset, --places and --images"),
    (("pretrain", "--dataset", "dots", "--images", "x"), 2, "one of --dataset, --places and --images"),
    (
        ("pretrain", "--dataset", "dots", "--image-size", 84),
        2,
        "--image-size is for a folder of images: a data set has its own.",
    ),
    (("pretrain", "--images", "nowhere", "--image-size", 1100), 2, "--image-size"),
    (("pretrain", "--images", "nowhere"), 1, "Cannot read the folder"),
    (("pretrain", "--images", __file__), 2, "is a file"),
    (("pretrain", "--places", __file__), 2, "is a file"),
    (("pretrain", "--places", "nowhere"), 1, "nowhere does not hold Places365"),
    (
        ("pretrain", "--dataset", "dots", "--backbone", "tiny", "--schedule", "linear"),
        2,
        "'linear' is not one of 'one-cycle', 'steps'",
    ),
    (
        ("pretrain", "--dataset", "dots", "--backbone", "tiny", "--batch-size", 500),
        2,
        "240 images cannot fill a batch of 500: give a smaller --batch-size",
    ),
    (("eval",), 1, "fslstm demo"),
    (("compare-heads",), 1, "fslstm demo"),
    (("eval", "--run", "nope"), 1, "There is no run at"),
    (("eval", "--device", "cuda:99"), 2, "no device 'cuda:99'"),
    (("eval", "--psm-iters", -1), 2, "--psm-iters"),
    (("pretrain", "--dataset", "dots", "--weight-decay", "inf"), 2, "--weight-decay must be a number <= 1000000"),
    (("train", "--dataset", "dots", "--lr", "inf"), 2, "--lr must be a number <= 1e+30"),
    ((*TRAIN, "--val-episodes", 10**7 + 1), 2, "--val-episodes must be a whole number <= 10000000"),
    ((*TRAIN, "--milestone", 0.5, "--factor", 1e9), 2, "--factor must be a number <= 1000000"),
    ((*TRAIN, "--milestone", 0.5), 2, "--milestone must ascend, with as many --factor, but got (0.5,)"),
    ((*TRAIN, "--optimizer", "adam", "--momentum", 0.5), 2, "--momentum has no effect with --optimizer adam: leave"),
    (
        (*TRAIN, "--schedule", "linear", "--milestone", 0.5, "--factor", 0.1),
        2,
        "--milestone has no effect with --schedule linear: leave it out.",
    ),
    *(
        (
            ("train", "--dataset", "glyphs", "--algorithm", name, option, 0.2),
            2,
            f"{option} has no effect with {name}, whi",
        )
        for name in ("dpgn", "feat", "relation-net", "reptile", "sib", "team", "tpn")
        for option in ("--label-smoothing", "--scale-lr")
    ),
    ((*TRAIN, "--frozen-backbone", "--dropout", 0.5), 2, "--dropout has no effect with --frozen-backbone"),
    (("pretrain", "--dataset", "dots", "--momentum", 0, "--nesterov"), 2, "--nesterov has no effect with --momentum"),
    (("pretrain", "--dataset", "dots", "--size", 1, "--share", 0), 2, "--share must be a number > 0"),
    (("pretrain", "--dataset", "dots", "--freeze", 0.5, "--freeze", 0.1), 2, "--freeze must ascend"),
    (("pretrain", "--dataset", ""), 2, "--dataset is empty"),
    (("eval", "--episodes", 2**63), 2, "at least 2 and at most 1,000,000,000, but got"),
    (("eval", "--shots", 0), 2, "--shots"),
    (("eval", "--json", "."), 2, "is a directory"),
    (("eval", "--json", "r.out", "--csv", "r.out"), 2, "r.out is named for two outputs"),
    (("eval", "--json", "no/such/r.json"), 2, "There is no folder no/such for r.json"),
    (("report", "--output", "no/such/r.html"), 2, "There is no folder no/such for r.html"),
    ((*TRAIN, "--padding", 32), 2, "--padding must be less than the images' 32 pixels, but got 32"),
    (("pretrain", "--dataset", "dots", "--backbone", "tiny", "--padding", 32), 2, "less than the images' 32 pixels"),
    (("report", "nowhere"), 1, "no run or reproduction at nowhere"),
    (("compare-head",), 2, "compare-head"),
    (("train",), 2, "Name the data set with --dataset. 'fslstm train --dataset glyphs' needs no download"),
    (("eval", "--run", "a", "--run", "b"), 2, "--run is for one run here, but got a, b: leave out all but one"),
    (("tune", "--run", "a", "--run", "b"), 2, "--run is for one run here"),
    (("bench", "heads", "--run", "a", "--run", "b"), 2, "--run is for one run here"),
    (("eval", "nn", "--can"), 2, "METHOD and --can cannot be used together: name the settings, as in"),
    (("eval", "nn", "--no-iam"), 2, "METHOD and --no-iam cannot be used together"),
    (("eval", "nn", "--psm-iters", 10), 2, "METHOD and --psm-iters cannot be used together"),
]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    WRONG,
    ids=lambda value: "-".join(map(str, value))[:60] if isinstance(value, tuple) else "",
)
def test_wrong_input_gets_one_clear_sentence_and_leaves_nothing(arguments, code, message, fslstm, tmp_path):
    command, *rest = arguments
    result = fslstm(command, *([] if command == "compare-head" else ["--runs", tmp_path / "runs"]), *rest)
    assert result.code == code, result.err
    assert message in " ".join(result.err.split())
    assert "Traceback" not in result.err
    assert result.out == ""
    assert not (tmp_path / "runs").exists()


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(fslstm, tmp_path):
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    if os.access(folder, os.W_OK):
        pytest.skip("this user may write anywhere")
    (tmp_path / "link.json").symlink_to(folder / "r.json")
    for file in (folder / "r.json", tmp_path / "link.json"):
        result = fslstm("eval", "--json", file)
        assert (result.code, result.out) == (2, "")
        assert f"The folder {folder} of r.json cannot be written to: name another" in " ".join(result.err.split())


@pytest.mark.parametrize("command", ["pretrain", "train", "eval", "compare-heads", "tune", "bench", "reproduce"])
def test_help_holds_no_picture_that_nobody_typed(command, fslstm):
    """Rich reads words between colons as emoji."""
    help_text = fslstm(command, "--help").out
    assert command in help_text
    assert all(ord(letter) < 0x1F000 for letter in help_text)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_on_a_narrow_terminal_cuts_no_word(words, fslstm, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    help_text = fslstm(*words, "--help").out
    assert "…" not in help_text
    titles = [line.strip("╭╮─") for line in help_text.splitlines() if line[:1] == "╭"]
    assert [title for title in titles if not title.endswith(" ")] == []
    names = {name for each in COMMANDS[words].params for name in (*each.opts, *each.secondary_opts) if name[0] == "-"}
    assert names <= {word for line in help_text.splitlines() if line[:1] == "│" for word in line.split()}


WRONG_ON_A_RUN = [
    (("eval", "--split", "tests"), 2, "no split 'tests'. Did you mean 'test'"),
    (("eval", "--ways", 7), 2, "--ways 7 is not possible: the split has only 6 classes"),
    (
        ("eval", "--shots", 20, "--queries", 15),
        2,
        "--shots 20 and --queries 15 need 35 images per class, but class 'test0' has 30",
    ),
    (("eval", "--head", "lsvm"), 2, "Did you mean 'lssvm'"),
    (("eval", "--run", "base", "--iam"), 2, "There is no IAM for lssvm in this run"),
    (("eval", "--dataset", "wide-dots"), 2, "is for images of 32 pixels, but those of wide-dots have 48"),
    (("eval", "--head", "tim"), 2, "There is no head 'tim'"),
    (("compare-heads", "--head", "tim"), 2, "There is no head 'tim'"),
    (("compare-heads", "--head", "nnn"), 2, "Did you mean 'nn'"),
    (("eval", "--head", ""), 2, "--head is empty"),
    (("compare-heads", "--head", "rr(ridge=0)"), 2, "a finite number above 0"),
    (("eval", "--query-balance", "dirichlet:-1"), 2, "above 0 and at most 1e6"),
    (("eval", "--query-balance", "dirichlet:1"), 2, "--queries 15 need up to 76 images per class"),
    (("eval", "--interval", "class"), 2, "Did you mean 'classes'"),
    (("eval", "--interval", "classes", "--ways", 6, "--queries", 5), 2, "more classes than ways"),
    (("eval", "--json", "/proc/r.json"), 1, "/proc/r.json"),
]


@pytest.mark.parametrize(("arguments", "code", "message"), WRONG_ON_A_RUN)
def test_wrong_evaluations_are_refused(arguments, code, message, trained, fslstm):
    result = fslstm(*arguments, "--runs", trained, "--episodes", 5)
    assert result.code == code, result.err
    assert message in " ".join(result.err.split())
    assert "Traceback" not in result.err


def test_weights_of_another_backbone_are_refused(trained, fslstm, tmp_path):
    result = fslstm(
        "train", "--dataset", "dots", "--backbone", "conv4", "--pretrained", trained / "base", "--runs", tmp_path / "r"
    )
    assert result.code == 1
    assert "do not fit this Conv4" in result.err
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("value", "message"),
    [(float("nan"), "infinite or not a number: backbone.net.0.weight"), (3e38, "Features of dots")],
)
def test_weights_that_give_no_numbers_are_never_evaluated(value, message, trained, fslstm, tmp_path):
    from safetensors.torch import load_file, save_file

    shutil.copytree(trained / "base", tmp_path / "run", ignore=shutil.ignore_patterns("cache", "evaluations"))
    tensors = load_file(tmp_path / "run" / "model.safetensors")
    tensors["backbone.net.0.weight"].fill_(value)
    save_file(tensors, tmp_path / "run" / "model.safetensors")  # another's, without our checksum
    for command in ("eval", "compare-heads", "tune"):
        result = fslstm(command, "--run", tmp_path / "run", *FEW)
        assert result.code == 1
        assert message in result.err
        assert result.out == ""
    assert not (tmp_path / "run" / "evaluations").exists()


@pytest.mark.parametrize("file", [".", "/"])
def test_a_folder_is_refused_as_a_file_at_once(file, trained, fslstm):
    for option in ("--json", "--csv", "--latex"):
        result = fslstm("compare-heads", "--run", "base", "--runs", trained, option, file)
        assert result.code == 2
        assert "is a directory" in result.err
    assert fslstm("report", "base", "--runs", trained, "--output", file).code == 2


def test_results_are_printed_before_a_file_is_refused(trained, fslstm):
    options = ("--run", "fslstm", "--runs", trained, *FEW, "--psm-iters", 0, "--no-tuned")
    result = fslstm("eval", *options, "--json", "/proc/r.json")
    assert result.code == 1
    assert result.err.startswith("fslstm: Cannot write")
    assert "LSSVM+IAM" in result.out


def test_a_terminal_without_the_sign_is_no_error(trained, monkeypatch, request):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    process = request.getfixturevalue("spawn")("eval", "--runs", trained, *FEW, "--psm-iters", 0)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert r"\xb1" in out


def test_features_of_another_type_are_not_believed(trained, fslstm, tmp_path):
    options = ("eval", "--run", "base", "--runs", trained, *FEW, "--psm-iters", 0, "--json")
    assert fslstm(*options, tmp_path / "before.json").code == 0
    (cache,) = (trained / "base" / "cache").glob("dots-test-*")
    content = cache.read_bytes()
    assert content.count(b'"F32"') == 1
    cache.write_bytes(content.replace(b'"F32"', b'"I32"'))
    assert fslstm(*options, tmp_path / "after.json").code == 0
    before, after = ([row["accuracy"] for row in rows_of(tmp_path / f"{name}.json")] for name in ("before", "after"))
    assert before == after
    assert cache.read_bytes() == content


def test_an_unwritable_run_folder_is_named(fslstm):
    result = fslstm(*TRAIN, "--runs", "/proc/runs", "--max-steps", 1)
    assert result.code == 1
    assert "/proc/runs" in result.err


def test_help_and_version_import_nothing_heavy():
    code = (
        "import sys; sys.argv = ['fslstm', *sys.argv[1:]]\n"
        "from fslstm_cli.main import run\n"
        "try: run()\n"
        "except SystemExit as stop: assert not stop.code\n"
        "heavy = {'torch', 'learn2learn', 'pytorch_lightning', 'numpy', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    for arguments in (["--help"], ["--version"], ["train", "--help"], ["eval", "--help"], ["data", "list", "--help"]):
        result = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        assert result.stdout


def test_every_command_has_examples(fslstm):
    for command in ("pretrain", "train", "eval", "compare-heads", "tune", "demo"):
        result = fslstm(command, "--help")
        assert result.code == 0
        assert f"fslstm {command}" in result.out.split("Examples")[1]


def test_a_closed_pipe_is_no_error_and_loses_no_file(trained, spawn, tmp_path):
    files = ("--json", tmp_path / "r.json", "--chart", tmp_path / "r.svg")
    process = spawn("compare-heads", "--runs", trained, *FEW, "--head", "nn", *files)
    process.stdout.close()
    _, err = process.communicate(timeout=120)
    assert "Traceback" not in err
    assert "BrokenPipe" not in err
    assert json.loads((tmp_path / "r.json").read_text())["rows"]
    assert (tmp_path / "r.svg").is_file()


def test_completion_offers_registered_names(spawn, monkeypatch):
    monkeypatch.setenv("_FSLSTM_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "fslstm train --backbone ")
    monkeypatch.setenv("COMP_CWORD", "3")
    code = "import sys; sys.argv = ['fslstm']; from fslstm_cli.main import app; app(prog_name='fslstm')"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stdout.split() == ["conv4", "resnet12"]


def test_a_head_that_is_named_twice_is_one(trained, fslstm, tmp_path):
    heads = ("--head", "nn", "--head", "nn", "--head", "nn(kernel=linear)")
    result = fslstm("compare-heads", "--run", "base", "--runs", trained, *FEW, *heads, "--json", tmp_path / "r.json")
    assert result.code == 0, result.err
    assert len(rows_of(tmp_path / "r.json")) == 6


def test_methods_of_several_runs_are_compared_on_the_same_episodes(trained, fslstm, tmp_path):
    options = ("--run", "base", "--run", "fslstm", "--runs", trained, *FEW, "--json", tmp_path / "r.json")
    assert fslstm("compare", "lssvm", "lssvm+iam", "tim(steps=5)", *options).code == 0
    rows = [row for row in rows_of(tmp_path / "r.json") if row["shots"] == 1]
    found = [(row["run"], row["method"]) for row in rows]
    assert found == [
        *(("base", "lssvm"), ("base", "tim(steps=5)")),
        *(("fslstm", "lssvm"), ("fslstm", "lssvm+iam"), ("fslstm", "tim(steps=5)")),
    ]
    other = next(row for row in rows if (row["run"], row["method"]) == ("fslstm", "lssvm"))
    assert (other["reference_run"], other["reference"]) == ("base", "lssvm")
    assert other["gain"] == pytest.approx(other["accuracy"] - rows[0]["accuracy"])
    result = fslstm("compare", "rr+iam", *options)
    assert result.code == 2
    assert "fslstm train --algorithm rr+iam" in result.err


def test_an_iam_of_another_head_is_never_used(trained, fslstm, tmp_path):
    evaluate = ("eval", "--run", "fslstm", "--runs", trained, *FEW, "--psm-iters", 0, "--head", "rr")
    assert fslstm(*evaluate, "--json", tmp_path / "r.json").code == 0
    assert {row["method"] for row in rows_of(tmp_path / "r.json")} == {"rr"}
    result = fslstm(*evaluate, "--iam")
    assert result.code == 2
    assert "There is no IAM for rr in this run: train with --algorithm rr+iam" in result.err


def test_what_cannot_be_kept_is_said_and_stops_nothing(trained, fslstm, tmp_path):
    shutil.copytree(trained / "base", tmp_path / "run", ignore=shutil.ignore_patterns("cache", "evaluations"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("cache", "evaluations"):
        (tmp_path / "run" / name).symlink_to(elsewhere)
    result = fslstm("eval", "--run", tmp_path / "run", *FEW, "--psm-iters", 0, "--json", tmp_path / "r.json")
    assert result.code == 0, result.err
    assert "The features are not kept" in result.err
    assert "The evaluation could not be saved" in result.err
    assert len(rows_of(tmp_path / "r.json")) == 2
    result = fslstm("tune", "nn", "--run", tmp_path / "run", *FEW, "--json", tmp_path / "t.json")
    assert (result.code, "is a link" in result.err) == (1, True), result.err
    assert result.out.startswith("nn: ")
    assert len(rows_of(tmp_path / "t.json")) == 2 * 4
    (tmp_path / "t.json").unlink()
    (tmp_path / "t.json").symlink_to("/dev/full")
    result = fslstm("tune", "nn", "--run", tmp_path / "run", *FEW, "--json", tmp_path / "t.json")
    assert (result.code, "is a link" in result.err, f"Cannot write {tmp_path}/t.json" in result.err) == (1, True, True)
    assert not list(elsewhere.iterdir())


def test_a_link_stays_a_link_and_a_pipe_a_pipe(trained, fslstm, tmp_path):
    (tmp_path / "target.json").write_text('{"command": "fslstm eval", "rows": []}')
    (tmp_path / "link.json").symlink_to(tmp_path / "target.json")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    os.mkfifo(tmp_path / "pipe")
    reader = subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE, text=True)
    files = ("--json", tmp_path / "link.json", "--csv", tmp_path / "pipe", "--latex", tmp_path / "loop")
    result = fslstm("compare-heads", "--run", "base", "--runs", trained, *FEW, "--head", "nn", *files)
    assert result.code == 0, result.err
    assert (tmp_path / "link.json").is_symlink()
    assert len(rows_of(tmp_path / "target.json")) == 6
    assert (tmp_path / "pipe").is_fifo()
    assert "tabular" in (tmp_path / "loop").read_text(), "a link to itself is no file to keep"
    assert reader.communicate(timeout=20)[0].count("\n") == 7


def test_results_may_go_to_standard_output(trained, request):
    options = ("--run", "base", "--runs", trained, *FEW, "--head", "nn", "--json", "/dev/stdout")
    out, err = (process := request.getfixturevalue("spawn")("compare-heads", *options)).communicate()
    assert process.returncode == 0, err
    assert len(json.loads(out[out.index('{\n  "command"') :])["rows"]) == 6

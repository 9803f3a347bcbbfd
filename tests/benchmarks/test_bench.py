"""The benchmark: its references are the published mathematics, it times in turns, and no wrong answer passes."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
import torch
from drawings import draw_few
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fslstm_plugin.benchmarks import (
    accuracy,
    agreement,
    clusters,
    evaluation,
    heads,
    published,
    references,
    sets,
    stock,
    timing,
    transduction,
)
from fslstm_plugin.data.sampler import EpisodeSampler
from fslstm_plugin.data.sets.cifarfs import CIFAR_FS, CIFARFS
from fslstm_plugin.errors import DataError
from fslstm_plugin.evaluation.runner import indexed
from fslstm_plugin.heads import Dual, LSSVMClassifier, RidgeClassifier, one_hot
from fslstm_plugin.methods.base import Method
from fslstm_plugin.naming import parse_method, whole_methods
from fslstm_plugin.normalization import IMAGENET_NORMALIZATION
from fslstm_plugin.registry import HEADS, METHODS
from fslstm_plugin.training.engine import FiniteLoss
from fslstm_plugin.transduction import PseudoSupportModule

GOLDEN = np.load(Path(__file__).resolve().parents[1] / "golden" / "heads.npz")
PUBLISHED = np.load(Path(__file__).resolve().parents[1] / "golden" / "published.npz")
FIELDS = {
    "group", "case", "against", "unit", "ours_ms", "ours_iqr_ms", "theirs_ms", "theirs_iqr_ms", "ratio", "target",
    "at_most_ms", "rounds", "predictions", "ties",
}  # fmt: skip
FEW = ("--features", 40, "--rounds", 2, "--table3-episodes", 4)


@pytest.fixture
def few_episodes(monkeypatch):
    """Every case on a handful of episodes, every ceiling on a small matrix."""
    monkeypatch.setattr(heads, "EPISODES", 6)
    monkeypatch.setattr(heads, "CASES", tuple(replace(case, episodes=2) for case in heads.CASES))
    monkeypatch.setattr(evaluation, "STOCK_TASKS", 3)
    monkeypatch.setattr(timing, "_MATRIX", 64)
    monkeypatch.setattr(timing, "_FLOATS", 1 << 10)


@pytest.fixture(scope="module")
def small_cifarfs(tmp_path_factory):
    """CIFAR-FS in learn2learn's layout and prepared, with 20 images per class of a colour of its own."""
    root = tmp_path_factory.mktemp("cifarfs")
    random = np.random.default_rng(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CIFARFS, "images_per_class", 20)
        for split in ("train", "val", "test"):
            for name in CIFAR_FS.split_classes(split):
                folder = root / "cifarfs" / "cifar100" / "data" / name
                folder.mkdir(parents=True)
                colour = random.uniform(60, 195, 3)
                for number in range(20):
                    pixels = random.normal(colour, 40, (32, 32, 3)).clip(0, 255).astype(np.uint8)
                    Image.fromarray(pixels).save(folder / f"{number:02}.png", compress_level=1)
            lists = root / "cifarfs" / "cifar100" / "splits" / "bertinetto"
            lists.mkdir(parents=True, exist_ok=True)
            (lists / f"{split}.txt").write_text("\n".join(CIFAR_FS.split_classes(split)))
        CIFAR_FS.prepare(root)
    return root


def rows_of(file):
    content = json.loads(file.read_text())
    assert content["machine"]["threads"] >= 1
    for row in content["rows"]:
        assert row.keys() == FIELDS
        assert row["ratio"] == pytest.approx(row["theirs_ms"] / row["ours_ms"])
        assert 0 <= row["ties"] < row["predictions"]
    assert all(figure["value"] > 0 for figure in content["figures"])
    return content["rows"], {figure["what"]: figure for figure in content["figures"]}


def test_contenders_take_turns():
    calls = []

    def contender(name, units):
        return timing.Contender(lambda: calls.append(name) or len(calls), units)

    fast, slow = timing.race([contender("a", 1), contender("b", 10)], rounds=3)
    assert calls == ["a", "b"] * 3
    assert fast.times == [1, 3, 5]
    assert fast.median == 3
    assert slow.times == pytest.approx([0.2, 0.4, 0.6])


@pytest.mark.parametrize("case", ["way5_shot1", "way5_shot5"])
@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("prototype", references.learn2learn_prototypes),
        ("ridge", references.qpth_ridge),
        ("svm", references.learn2learn_svm),
        ("lssvm_one_vs_all", references.paper_lssvm),
    ],
)
def test_references_are_the_published_heads(name, reference, case):
    support, labels, query, expected = (
        torch.from_numpy(GOLDEN[f"{case}/{key}"]) for key in ("support", "labels", "query", name)
    )
    factor = support.shape[-1] if name == "prototype" else 1  # learn2learn does not divide by the dimension
    for index in range(len(support)):
        episode = support[index], labels[index], query[index]
        single, double = (
            references.refine(head, *episode, 5, 0)[0] for head in (reference, references.exact(reference))
        )
        torch.testing.assert_close(single, factor * expected[index], rtol=2e-3, atol=2e-4)
        torch.testing.assert_close(double.float(), factor * expected[index], rtol=1e-3, atol=1e-4)
        assert double.dtype == torch.float64


def test_sklearn_references_are_the_same_heads():
    features, labels = clusters.clusters(dim=40, seed=1)
    support, query = features[::100], features[50::100]
    for other, reference in (
        (references.sklearn_ridge, references.qpth_ridge),
        (references.sklearn_prototypes, references.learn2learn_prototypes),
    ):
        predicted = [head(support, labels[::100], query, 20).argmax(-1) for head in (other, reference)]
        assert torch.equal(*predicted)


def test_refining_leaves_out_a_class_without_queries():
    support, labels = torch.tensor([[0.0, 0.0], [9.0, 0.0]]), torch.tensor([0, 1])
    query = torch.tensor([[0.0, 1.0], [0.0, 2.0]])
    logits = references.refine(references.learn2learn_prototypes, support, labels, query, 2, 2)
    torch.testing.assert_close(logits[2, :, 1], -torch.tensor([82.0, 85.0]))
    torch.testing.assert_close(logits[2, :, 0], -torch.tensor([0.0, 1.0]))


@settings(deadline=None)
@given(seed=st.integers(0, 1000), query=st.integers(0, 11), fit=st.integers(0, 2), gap=st.floats(1e-3, 0.5))
def test_one_wrong_prediction_is_caught(seed, query, fit, gap):
    logits = torch.rand(3, 2, 12, 4, generator=torch.Generator().manual_seed(seed))
    best = logits.argmax(-1)
    logits.scatter_(-1, best.unsqueeze(-1), 1 + gap)
    assert agreement.compare("case", best, logits) == agreement.Agreement(72, 0)
    wrong = best.clone()
    wrong[fit, 1, query] = (wrong[fit, 1, query] + 1) % 4
    with pytest.raises(agreement.Disagreement, match=r"case: 1 of .* episode 1, query"):
        agreement.compare("case", wrong, logits)


def test_a_tie_may_be_broken_either_way_and_parts_the_fits_after_it():
    logits = torch.tensor([1.0, 0.5, 0.0]).expand(3, 2, 4, 3).clone()
    logits[1, 0, 2, 1] = 1.0 - agreement.TIE / 4
    predicted = logits.argmax(-1)
    predicted[1, 0, 2] = 1
    predicted[2, 0] = 1
    assert agreement.compare("case", predicted, logits) == agreement.Agreement(predictions=20, ties=1)
    predicted[2, 1, 0] = 1
    with pytest.raises(agreement.Disagreement, match=r"1 of 20 predictions .* episode 1, query 0, fit 2"):
        agreement.compare("case", predicted, logits)


def test_a_solution_that_is_no_number_is_caught():
    logits = torch.full((1, 1, 2, 3), torch.nan)
    with pytest.raises(agreement.Disagreement):
        agreement.compare("case", torch.tensor([[[0, 1]]]), logits)


def test_predictions_are_the_modules_own():
    features, labels = clusters.clusters(dim=40, seed=0)
    drawn = EpisodeSampler(labels, 5, 2, 4, seed=3).batch(0, 5)
    episodes = agreement.DrawnEpisodes(drawn, 5, 2, 4)
    support, query = features[drawn].tensor_split([10], dim=1)
    case = heads.Case("rr", "", references.qpth_ridge, 5, psm_iterations=3)
    predicted = agreement.predictions(indexed(features), episodes, case.methods())
    for iterations in range(4):
        module = PseudoSupportModule(iterations)
        logits = module(RidgeClassifier(), support, episodes.labels[:10], query, ways=5)
        assert torch.equal(predicted[iterations], logits.argmax(-1))


@pytest.mark.parametrize(
    "case",
    [case for case in transduction.CASES if case.reference and case.method not in ("ilpc", "nn(bpa)")],
    ids=lambda case: case.method,
)
def test_published_computations_give_the_published_numbers(case):
    support, labels, query, mean = (
        torch.from_numpy(PUBLISHED[key]) for key in ("support", "support_labels", "query", "base_mean")
    )
    # The constant that these numbers were made with.
    solve = partial(case.reference, weight=0.7) if case.method == "laplacian-shot" else case.reference
    for index in range(len(labels)):
        episode = slice(index, index + 1)
        targets = one_hot(labels[episode], 5)
        scores = solve(support[episode].double(), targets, query[episode].double(), mean.double())
        torch.testing.assert_close(scores[0], torch.from_numpy(PUBLISHED[case.method][index]), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", ["5way1shot", "unbalanced"])
def test_published_label_cleaning_gives_the_published_predictions(case):
    folder = Path(__file__).resolve().parents[1] / "golden"
    inputs, expected = np.load(folder / "transductive.npz"), np.load(folder / "transductive_tim.npz")
    support, labels, query = (
        torch.from_numpy(inputs[f"{case}/{key}"][:1]) for key in ("support", "support_labels", "query")
    )
    targets = one_hot(labels.long(), 5).double()
    scores = published.ilpc(support.double(), targets, query.double(), torch.zeros(()))
    np.testing.assert_array_equal(scores.argmax(-1), expected[f"{case}/ilpc/prediction"][:1])
    assert not scores.requires_grad


def test_published_affinities_are_the_published_rows():
    golden = np.load(Path(__file__).resolve().parents[1] / "golden" / "bpa.npz")
    compared = 0
    for case in {key.partition("/")[0] for key in golden}:
        *_, reg, rounds, scaled = golden[f"{case}/settings"].tolist()
        if (rounds, scaled) == (10, 1):
            rows = published.balanced_affinities(torch.from_numpy(golden[f"{case}/points"]).double(), reg)
            torch.testing.assert_close(rows, torch.from_numpy(golden[f"{case}/rows"]), rtol=1e-9, atol=1e-12)
            compared += 1
    assert compared > 1


def test_clusters_are_as_hard_as_real_features():
    features, labels = clusters.clusters(dim=256, seed=0)
    sampler = EpisodeSampler(labels, 5, 5, 15, seed=0)
    accuracy = agreement.accuracies(indexed(features), sampler, [parse_method("lssvm")], 60).mean()
    assert 70 < accuracy < 80


def test_flops_of_forward_and_backward():
    left, right = torch.randn(3, 4, requires_grad=True), torch.randn(4, 5, requires_grad=True)
    assert timing.flops_of(lambda: (left @ right).sum().backward()) == 3 * 2 * 3 * 4 * 5


def test_heads_are_compared_and_timed(few_episodes, fslstm, tmp_path):
    result = fslstm("bench", "heads", *FEW, "--json", tmp_path / "r.json")
    assert result.code == 0, result.err
    rows, figures = rows_of(tmp_path / "r.json")
    names = [row["case"] for row in rows[:8]]
    assert names == ["nn", "rr", "svm", "lssvm", "nn+psm", "rr+psm", "svm+psm", "lssvm+psm"]
    assert [row["target"] for row in rows[:8]] == [2, 8, 25, 4, 6, 60, 120, 25]
    assert rows[3]["predictions"] == 2 * 75
    for word in ("lssvm+psm", "Ratio", f"{rows[0]['ratio']:.1f}x", "≥ 120"):
        assert word in result.out
    assert "heads: svm+psm against learn2learn's SVClassifier" in result.err
    assert any(what.startswith("Table 3, 12 methods") and "scaled from 4" in what for what in figures)
    assert figures["gathering their features"]["unit"] == "GB/s"
    assert next(iter(json.loads((tmp_path / "r.json").read_text()))) == "command", "or it could not be written again"


class Nearest(Method):
    """SimpleShot in coordinates, as its authors have it."""

    is_transductive = False
    needs_base_mean = True

    def logits(self, features):
        points = features.support, features.targets.float(), features.query, features.base_mean
        return published.simpleshot(*points)


class Raw(Nearest):
    """The base mean is forgotten."""

    def logits(self, features):
        mean = torch.zeros_like(features.base_mean)
        return published.simpleshot(features.support, features.targets.float(), features.query, mean)


@pytest.fixture
def as_simpleshot(monkeypatch):
    """Registers a class as the only methods: with a published computation, and without."""

    def register(kind):
        entries = {name: EntryPoint(name, f"{__name__}:{kind.__name__}", "") for name in ("simpleshot", "another")}
        monkeypatch.setattr(METHODS, "_builtin", {})
        monkeypatch.setattr(METHODS, "_others", entries)
        monkeypatch.setattr(transduction, "EPISODES", 6)

    return register


def test_registered_methods_are_compared_with_their_published_computation(as_simpleshot, fslstm, tmp_path):
    as_simpleshot(Nearest)
    result = fslstm("bench", "transduction", "--features", 24, "--rounds", 2, "--json", tmp_path / "r.json")
    assert result.code == 0, result.err
    (affinities, row), figures = rows_of(tmp_path / "r.json")
    assert (affinities["case"], affinities["against"]) == ("nn(bpa)", "published, batches of 64")
    assert (row["case"], row["against"], row["ties"]) == ("simpleshot", "published, one by one", 0)
    assert row["predictions"] == 6 * 75
    assert row["at_most_ms"] is None, "targets are for 640 features"
    assert figures["another, an episode"]["unit"] == "ms", "a method of another package is timed alone"


def test_a_method_that_predicts_otherwise_than_published_is_caught(as_simpleshot, fslstm, tmp_path):
    as_simpleshot(Raw)
    result = fslstm("bench", "transduction", "--features", 24, "--rounds", 2, "--json", tmp_path / "r.json")
    assert result.code == 1
    assert "transduction, simpleshot: " in result.err
    assert "the times mean nothing" in result.err
    assert not (tmp_path / "r.json").exists()


def test_built_in_methods_have_cases():
    known = {case.method.partition("(")[0] for case in transduction.CASES}
    assert set(METHODS._builtin) & set(whole_methods()) <= known


def test_memory_is_left_out_where_the_system_does_not_tell(monkeypatch):
    assert heads.peak_memory() > 2**20
    monkeypatch.setitem(sys.modules, "resource", None)  # as on Windows
    assert heads.peak_memory() is None
    features, labels = clusters.clusters(dim=24, seed=0)
    assert [figure.unit for figure in heads.bench_table3(features, labels, 2, 0)] == ["s"]


def test_nothing_else_imports_the_benchmarks():
    package = Path(transduction.__file__).parents[1]
    for file in package.rglob("*.py"):
        if file.parent.name != "benchmarks":
            assert not re.search(r"(from|import) (\.+|fslstm_plugin\.)benchmarks", file.read_text()), file


def pretrained(fslstm, folder, dataset):
    result = fslstm(
        "pretrain", "--dataset", dataset, "--backbone", "tiny", "--max-steps", 1, "--batch-size", 32, "--runs", folder,
        "--name", dataset,
    )  # fmt: skip
    assert result.code == 0, result.err


def test_heads_on_the_features_of_a_run_and_at_other_shots(few_episodes, fslstm, tmp_path):
    pretrained(fslstm, tmp_path, "dots")
    options = ("--run", "dots", "--runs", tmp_path, "--shots", 1)
    refused = fslstm("bench", "heads", *FEW, *options)
    assert (refused.code, "leave out --features or --run" in refused.err) == (2, True)
    result = fslstm("bench", "heads", *FEW[2:], *options, "--json", tmp_path / "r.json")
    assert result.code == 0, result.err
    rows, figures = rows_of(tmp_path / "r.json")
    assert all(row["target"] is None for row in rows), "of other shots there is none"
    assert (tmp_path / "dots" / "cache").is_dir(), "the features of the run, kept as fslstm eval keeps them"
    assert figures["greatest memory of this process"]["unit"] == "GiB"


def test_evaluation_needs_a_run_for_images_of_that_size(small_cifarfs, fslstm, tmp_path):
    pretrained(fslstm, tmp_path, "wide-dots")
    result = fslstm("bench", "eval", "--data-root", small_cifarfs, "--run", "wide-dots", "--runs", tmp_path)
    assert result.code == 2
    assert "needs a run for images of 32 pixels, but wide-dots is for others" in " ".join(result.err.split())


class Swapped(RidgeClassifier):
    """Two classes take each other's logits: wrong, and as fast as before."""

    def solve(self, kernel, targets):
        dual = super().solve(kernel, targets)
        return Dual(dual.alpha[..., [1, 0, 2, 3, 4]], dual.bias)


class Heavy(LSSVMClassifier):
    """The text's gamma instead of the published code's: only a few predictions change."""

    def __init__(self):
        super().__init__(gamma=0.1)


@pytest.mark.parametrize(("name", "wrong"), [("rr", Swapped), ("lssvm", Heavy)])
def test_a_fast_wrong_head_is_caught(name, wrong, few_episodes, fslstm, monkeypatch, tmp_path):
    monkeypatch.setattr(HEADS, "get", lambda wanted, get=HEADS.get: wrong if wanted == name else get(wanted))
    result = fslstm("bench", "heads", *FEW, "--json", tmp_path / "r.json")
    assert result.code == 1
    assert f"heads, {name} against" in result.err
    assert "predictions differ from the reference's" in result.err
    assert "Traceback" not in result.err
    assert not (tmp_path / "r.json").exists()


def test_a_fast_wrong_module_is_caught(few_episodes, fslstm, monkeypatch):
    refine = PseudoSupportModule.refine
    lazy = lambda self, head, gram, targets: refine(PseudoSupportModule(min(self.iterations, 1)), head, gram, targets)  # noqa: E731
    monkeypatch.setattr(PseudoSupportModule, "refine", lazy)
    result = fslstm("bench", "heads", *FEW)
    assert result.code == 1
    assert "+psm against" in result.err


def test_a_run_that_answers_otherwise_is_caught(few_episodes, fslstm, monkeypatch):
    accuracies = agreement.accuracies
    monkeypatch.setattr(agreement, "accuracies", lambda *arguments: accuracies(*arguments) - 4)
    result = fslstm("bench", "heads", *FEW)
    assert result.code == 1
    assert "a run of the engine gave" in result.err


def test_a_reference_that_fails_is_named(few_episodes, fslstm, monkeypatch):
    def fail(*_):
        raise RuntimeError("The factorization could not be completed.")

    case = replace(heads.CASES[0], reference=fail)
    monkeypatch.setattr(heads, "CASES", (case,))
    result = fslstm("bench", "heads", *FEW)
    assert result.code == 1
    assert "the alternative cannot solve an episode: The factorization could not" in result.err


def test_evaluation_against_the_stock_path(few_episodes, small_cifarfs, fslstm, tmp_path):
    result = fslstm(
        "bench", "eval", "--data-root", small_cifarfs, "--backbone", "tiny", "--episodes", 20, "--rounds", 2,
        "--json", tmp_path / "r.json",
    )  # fmt: skip
    assert result.code == 0, result.err
    rows, figures = rows_of(tmp_path / "r.json")
    assert [row["case"] for row in rows] == ["lssvm, nothing cached", "svm, nothing cached"]
    assert [row["predictions"] for row in rows] == [3 * 75] * 2
    assert figures["CIFAR-FS opened"]["value"] < 5
    assert "forward pass of the backbone: share of the product's rate" in figures
    assert not list(small_cifarfs.glob("*bookkeeping*")), "nothing is written beside the data"


def test_training_against_a_plain_step(few_episodes, small_cifarfs, fslstm, tmp_path):
    result = fslstm(
        "bench", "train", "--data-root", small_cifarfs, "--backbone", "tiny", "--rounds", 2,
        "--json", tmp_path / "r.json",
    )  # fmt: skip
    assert result.code == 0, result.err
    (row,), figures = rows_of(tmp_path / "r.json")
    assert row["case"] == "tiny, step of 8 episodes"
    assert row["predictions"] == 8 * 30
    assert figures["the backbone's own forward and backward, of our step"]["value"] < 100


def test_a_wrong_training_head_is_caught(few_episodes, small_cifarfs, fslstm, monkeypatch):
    monkeypatch.setattr(
        LSSVMClassifier, "solve", lambda self, kernel, targets: RidgeClassifier().solve(kernel, targets)
    )
    result = fslstm("bench", "train", "--data-root", small_cifarfs, "--backbone", "tiny", "--rounds", 2)
    assert result.code == 1
    assert "train: " in result.err
    assert "the times mean nothing" in result.err


def test_other_images_are_caught(small_cifarfs):
    split = CIFAR_FS.load(small_cifarfs, "test")
    transform = stock.plain_transform(IMAGENET_NORMALIZATION)
    tasks = stock.StockTasks(small_cifarfs, "test", transform, 5, 1, 2)
    images, labels, indices = tasks.draw()
    assert torch.equal(split.labels[indices].unique(return_inverse=True)[1].bincount(), torch.full((5,), 3))
    assert labels[tasks.ordered(labels)].tolist() == [0, 1, 2, 3, 4, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    stock.require_same_images(images, indices, split, IMAGENET_NORMALIZATION)
    with pytest.raises(agreement.Disagreement, match="not those of learn2learn's files"):
        stock.require_same_images(images, indices.flip(0), split, IMAGENET_NORMALIZATION)


@pytest.fixture
def few_glyphs(monkeypatch, tmp_path):
    """Twenty images per class, and temporary files where they can be counted."""
    draw_few(monkeypatch, each=20)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    # 1,280 images: 5 steps an epoch.
    return (
        "bench-accuracy", "--dataset", "glyphs", "--backbone", "tiny", "--batch-size", 256, "--epochs", 3,
        "--data-root", tmp_path / "data",
    )  # fmt: skip


def test_minutes_to_an_accuracy_are_of_training_alone(few_glyphs, fslstm, tmp_path, monkeypatch):
    minutes = itertools.count()
    monkeypatch.setattr(accuracy, "timer", lambda: 60.0 * next(minutes))  # each look at the clock is a minute later
    monkeypatch.setattr(accuracy, "SETTING", replace(accuracy.SETTING, episodes=50))
    result = fslstm(*few_glyphs, "--mark", 100, "--json", tmp_path / "r.json")
    assert result.code == 0, result.err
    found = json.loads((tmp_path / "r.json").read_text())
    assert [(point["step"], point["minutes"]) for point in found["rows"]] == [(5, 1), (10, 2), (15, 3)]
    assert found["passed"] is None
    best = max(point["accuracy"] for point in found["rows"])
    assert f"100 % is not passed: {best:.2f} % is the most." in result.out
    assert found["config"]["recipe"]["batch_size"] == 256
    assert not list((tmp_path / "temporary").iterdir())


def test_a_training_ends_where_it_passes_the_mark(few_glyphs, fslstm, tmp_path):
    result = fslstm(*few_glyphs, "--mark", 15, "--json", tmp_path / "r.json")
    assert result.code == 0, result.err
    found = json.loads((tmp_path / "r.json").read_text())
    (point,) = found["rows"]  # chance is 20 %
    assert found["passed"] == point
    assert "15 % is passed after" in result.out


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_a_stopped_training_to_an_accuracy_leaves_nothing(few_glyphs, fslstm, tmp_path, monkeypatch, number, code):
    look = FiniteLoss.on_train_batch_end

    def stop(self, trainer, *rest):
        look(self, trainer, *rest)
        if trainer.global_step == 7:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(FiniteLoss, "on_train_batch_end", stop)
    result = fslstm(*few_glyphs, "--mark", 100, "--json", tmp_path / "r.json")
    assert result.code == code
    lines = result.err.splitlines()
    assert lines[-2].startswith("step 5, 0.0 min: ")
    assert lines[-1] == "fslstm: Stopped; the training is not kept."
    assert not (tmp_path / "r.json").exists()
    assert not list((tmp_path / "temporary").iterdir())


def test_help_has_examples_and_imports_no_torch():
    code = (
        "import sys; sys.argv = ['fslstm', 'bench', '--help']\n"
        "from fslstm_cli.main import run\n"
        "try: run()\n"
        "except SystemExit as stop: assert not stop.code and 'torch' not in sys.modules"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "fslstm bench heads" in result.stdout.split("Examples")[1]


def test_prediction_sets_are_timed(fslstm, tmp_path, monkeypatch):
    monkeypatch.setattr(sets, "CASES", (("lssvm", 4, None), ("lssvm", 200, 5.0), ("lssvm(ridge=loo)", 3, None)))
    result = fslstm("bench", "sets", "--features", 8, "--rounds", 2, "--json", tmp_path / "r.json")
    assert result.code == 0, result.err
    rows, figures = rows_of(tmp_path / "r.json")
    assert rows == []
    assert [(each["what"], each["at_most"]) for each in figures.values()] == [
        ("lssvm, 4 classes of 5", None), ("lssvm, 200 classes of 5", 5), ("lssvm(ridge=loo), 3 classes of 5", None),
    ]  # fmt: skip


@pytest.mark.parametrize("what", ["all", "eval", "train"])
def test_missing_data_are_named_before_anything_runs(what, fslstm, monkeypatch):
    monkeypatch.setattr(heads, "bench_heads", None)
    result = fslstm("bench", what)
    assert result.code == 1
    assert "CIFAR-FS, which is not prepared in" in result.err
    assert "fslstm data prepare cifar-fs" in result.err
    assert "heads" not in result.err


def test_learn2learns_layout_is_needed_too(small_cifarfs, tmp_path):
    shutil.copytree(small_cifarfs / "fslstm", tmp_path / "fslstm")
    with pytest.raises(DataError, match="as learn2learn does too, but .*processed is missing"):
        stock.require_cifarfs(tmp_path)


@pytest.mark.parametrize(
    ("what", "option"),
    [
        ("transduction", "--table3-episodes=9"),
        ("sets", "--shots=1"),
        ("train", "--features=9"),
        ("train", "--run=base"),
        ("sets", "--backbone=conv4"),
    ],
)
def test_options_of_another_benchmark_are_refused(what: str, option: str, fslstm) -> None:
    result = fslstm("bench", what, option)
    assert (result.code, result.out) == (2, "")
    name = option.partition("=")[0]
    assert f"bench {what} and {name} cannot be used together: the option is for another benchmark." in result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("head",), "no benchmark 'head'. Did you mean 'heads'"),
        (("heads", "--run", "none"), "There is no run at"),
        (("heads", "--shots", 586), "--shots must be a whole number of at least 1 and at most 585, but got 586."),
        (
            ("transduction", "--shots", 586),
            "--shots must be a whole number of at least 1 and at most 585, but got 586.",
        ),
        (("eval", "--run", "none", "--backbone", "conv4"), "--run and --backbone cannot be used together"),
    ],
)
def test_wrong_use_is_refused(arguments, message, fslstm):
    result = fslstm("bench", *arguments)
    assert result.code == (1 if arguments[-1] == "none" else 2)
    assert message in " ".join(result.err.split())

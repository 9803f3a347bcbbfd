"""What another package adds is trained, continued, evaluated, compared, tuned and moved like what is ours.

The parts are those of `fslstm_dots`: a file, and a line of entry points each.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from fslstm_dots import PICTURES, CentroidHead, Lean, LearnedSimilarity, MapPeak, Rescale
from PIL import Image
from torch._subclasses.fake_tensor import FakeTensorMode

from fslstm_plugin.features import EpisodeFeatures
from fslstm_plugin.heads import one_hot
from fslstm_plugin.model import FewShotModel
from fslstm_plugin.naming import parse_method, whole_methods
from fslstm_plugin.registry import ADAPTERS, BACKBONES, DATASETS, HEADS, METHODS, TRANSDUCTION
from fslstm_plugin.runs.folder import Run
from fslstm_plugin.testing import check_head

FEW = ("--episodes", 20, "--shots", 2, "--queries", 4, "--ways", 4)
SMALL = (
    "--shots", 2, "--queries", 3, "--episodes-per-step", 2, "--val-episodes", 10, "--val-shots", 2, "--val-queries", 4,
    "--precision", "32",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A training of a method with someone else's parts.

    Args:
        algorithm: The method.
        learned: The part of the model's state that is the third party's.
        backbone: Registered name.
        others: What else the run can be asked for.
        refused: What it cannot.
    """

    algorithm: str
    learned: str | None
    backbone: str = "tiny"
    others: tuple[str, ...] = ()
    refused: str | None = None


CASES = {
    "head": Case("centroid", None, others=("centroid+psm", "centroid(clip=0.5)"), refused="centroid+rescale"),
    "adapter": Case(
        "centroid(clip=20)+rescale(start=0.5)", "method.adapters.0.factors",
        others=("centroid+rescale", "centroid(normalize)+rescale+psm", "nn"), refused="nn+rescale",
    ),
    "module": Case(
        "centroid+lean", "method.transduction.weight", others=("centroid", "centroid+average"), refused="nn+lean"
    ),
    "method": Case(
        "similarity(temperature=2)", "method.map.weight",
        others=("similarity", "similarity(temperature=0.5)", "lssvm+psm"), refused="map-peak",
    ),
    "embedding": Case(
        "projected(size=4)", "method.layer.weight", others=("projected", "lssvm+psm"), refused="similarity"
    ),
    "maps": Case("map-peak", "method.log_scale", "mapped", others=("lssvm",), refused="similarity"),
}  # fmt: skip
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def trained(runs, fslstm):
    """Trains a case by the command, once."""

    def run_of(case: Case) -> Run:
        name = next(name for name, each in CASES.items() if each is case)
        if not (runs / name / "model.safetensors").exists():
            result = fslstm(
                "train", "--dataset", "dots", "--backbone", case.backbone, "--algorithm", case.algorithm, *SMALL,
                "--max-steps", 4, "--checkpoint-every", 2, "--runs", runs, "--name", name,
            )  # fmt: skip
            assert result.code == 0, result.err
        return Run.open(runs / name)

    return run_of


def fresh(case: Case) -> FewShotModel:
    return FewShotModel.from_backbone(case.backbone, case.algorithm, 32)


@every_case
def test_it_is_trained(case: Case, trained) -> None:
    run = trained(case)
    assert run.config.algorithm == case.algorithm
    model, begun = FewShotModel.from_run(run), fresh(case)
    assert str(model.method) == case.algorithm
    if case.learned is not None:
        assert not torch.equal(model.state_dict()[case.learned], begun.state_dict()[case.learned])


@every_case
def test_it_is_continued_to_the_same_weights(
    case: Case, trained, fslstm, stopped_in_the_fourth_step, runs: Path
) -> None:
    run = trained(case)
    name = f"{run.name}-stopped"
    arguments = (
        "train", "--dataset", "dots", "--backbone", case.backbone, "--algorithm", case.algorithm, *SMALL,
        "--max-steps", 4, "--checkpoint-every", 2, "--runs", runs, "--name", name,
    )  # fmt: skip
    stopped = stopped_in_the_fourth_step(*arguments)
    assert stopped.code != 0
    assert Run.open(runs / name).checkpoint.is_file()
    result = fslstm("train", "--resume", "--runs", runs, "--name", name)
    assert result.code == 0, result.err
    mine, whole = Run.open(runs / name).load_weights(), run.load_weights()
    assert all(torch.equal(mine[key], whole[key]) for key in whole)


@every_case
def test_it_is_evaluated_and_compared(case: Case, trained, fslstm, runs: Path, tmp_path: Path) -> None:
    run = trained(case)
    result = fslstm("eval", "--run", run.name, "--runs", runs, *FEW, "--json", tmp_path / "eval.json")
    assert result.code == 0, result.err
    assert case.algorithm in [row["method"] for row in json.loads((tmp_path / "eval.json").read_text())["rows"]]
    names = [case.algorithm, *case.others]
    result = fslstm("compare", *names, "--run", run.name, "--runs", runs, *FEW, "--json", tmp_path / "r.json")
    assert result.code == 0, result.err
    rows = json.loads((tmp_path / "r.json").read_text())["rows"]
    model = FewShotModel.from_run(run)
    methods = {str(method): method.is_transductive for method in map(model.method_of, names)}
    assert {row["method"]: row["transductive"] for row in rows} == methods
    assert len(rows) == len(methods)
    result = fslstm("compare", case.refused, "--run", run.name, "--runs", runs, *FEW)
    assert (result.code, result.out) == (2, "")
    assert f"which the run does not have: train one with 'fslstm train --algorithm {case.refused}" in result.err


def test_runs_of_different_parts_are_compared_on_the_same_episodes(trained, fslstm, runs: Path, tmp_path) -> None:
    found = [trained(case) for case in CASES.values()]
    chosen = [word for run in found for word in ("--run", run.name)]
    result = fslstm("compare", *chosen, "--runs", runs, *FEW, "--json", tmp_path / "r.json")
    assert result.code == 0, result.err
    rows = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert [row["method"] for row in rows] == [case.algorithm for case in CASES.values()]


def test_it_is_tuned_over_its_own_search_space(trained, fslstm, runs: Path) -> None:
    run = trained(CASES["method"])
    arguments = ("--run", run.name, "--runs", runs, "--episodes", 20, "--shots", 2, "--queries", 4, "--ways", 4)
    result = fslstm("tune", "similarity", "nn", *arguments)
    assert result.code == 0, result.err
    tuned = json.loads((run.path / "tuned.json").read_text())
    tried = {row["method"] for row in tuned["rows"]}
    assert {f"similarity(temperature={value})" for value in (0.1, 2, 10)} <= tried
    assert tuned["choices"]["dots"].keys() == {"similarity(temperature=2)", "nn"}
    changed = {**tuned, "choices": {"dots": {"similarity(temperature=2)": "similarity(temperature=7)"}}}
    (run.path / "tuned.json").write_text(json.dumps(changed))
    result = fslstm("eval", *arguments)
    assert "similarity(temperature=7)" in result.err, "of the run's own method, which nobody named"
    (run.path / "tuned.json").unlink()


@every_case
def test_all_of_it_moves(case: Case) -> None:
    model = fresh(case).to("meta")
    assert {each.device.type for each in (*model.parameters(), *model.buffers())} == {"meta"}
    with FakeTensorMode():
        with torch.device("cuda"):
            model = fresh(case).eval()
        images = torch.empty(10, 3, 32, 32, device="cuda")
        points = model.embed(images).unflatten(0, (2, 5))
        targets = one_hot(torch.zeros(2, 2, dtype=torch.int64, device="cuda"), 2)
        features = EpisodeFeatures.from_points(points, targets, map_shape=model.map_shape)
        loss, logits = model.loss(features, torch.zeros(2, 3, dtype=torch.int64, device="cuda"), _cross_entropy)
        assert (logits.device.type, logits.shape, loss.device.type) == ("cuda", (2, 3, 2), "cuda")


def _cross_entropy(logits, labels):
    return torch.nn.functional.cross_entropy(logits, labels)


def test_bfloat16_features_reach_a_method_as_single_precision(fslstm, runs: Path) -> None:
    result = fslstm(
        "train", "--dataset", "dots", "--backbone", "tiny", "--algorithm", "similarity", *SMALL, "--precision", "bf16",
        "--max-steps", 2, "--runs", runs, "--name", "bf16",
    )  # fmt: skip
    assert result.code == 0, result.err


def test_a_methods_own_recipe_is_the_trainings(trained) -> None:
    assert trained(CASES["method"]).config.recipe.label_smoothing == 0
    assert trained(CASES["module"]).config.recipe.label_smoothing == 0.1
    recipe = trained(CASES["embedding"]).config.recipe
    assert (recipe.optimizer, recipe.method_lr, recipe.clip_norm, recipe.schedule) == ("adam", 0.01, 1, "linear")


def test_a_methods_own_embedding_is_computed_once_for_a_split(trained) -> None:
    run = trained(CASES["embedding"])
    assert FewShotModel.from_run(run).embed(torch.zeros(2, 3, 32, 32)).shape == (2, 4)
    assert list(run.path.glob("cache/*-projected-*.safetensors"))


@pytest.mark.parametrize("part", ["psm", "can", "average", "bn"])
def test_what_has_no_weights_is_not_trained(part: str, fslstm, runs: Path) -> None:
    result = fslstm(
        "train", "--dataset", "dots", "--backbone", "tiny", "--algorithm", f"lssvm+{part}", "--max-steps", 1,
        "--runs", runs, "--name", "untrained",
    )  # fmt: skip
    assert result.code == 2
    assert f"{part} has no weights: name it to 'fslstm eval', not in the algorithm." in " ".join(result.err.split())
    assert not (runs / "untrained").exists()


# Backbones


@pytest.fixture
def pretrained(runs: Path, fslstm):
    """Pretrains a backbone by the command, once."""

    def folder_of(backbone: str) -> Path:
        folder = runs / f"base-{backbone}"
        if not folder.exists():
            result = fslstm(
                "pretrain", "--dataset", "dots", "--backbone", backbone, "--max-steps", 2, "--batch-size", 32,
                "--runs", runs, "--name", folder.name,
            )  # fmt: skip
            assert result.code == 0, result.err
        return folder

    return folder_of


def test_a_backbone_brings_its_recipe(pretrained, fslstm, runs: Path) -> None:
    result = fslstm(
        "train", "--dataset", "dots", "--backbone", "mapped", "--algorithm", "lssvm", *SMALL, "--max-steps", 2,
        "--pretrained", pretrained("mapped"), "--runs", runs, "--name", "own-rates",
    )  # fmt: skip
    assert result.code == 0, result.err
    recipe = Run.open(runs / "own-rates").config.recipe
    assert (recipe.lr, recipe.method_lr) == (0.02, 0.03)


def test_a_backbone_without_recipe_does_not_get_anothers_rates(pretrained, fslstm, runs: Path) -> None:
    arguments = (
        "train", "--dataset", "dots", "--backbone", "plain", "--algorithm", "lssvm+iam", *SMALL, "--max-steps", 2,
        "--pretrained", pretrained("plain"), "--runs", runs, "--name", "given-rates",
    )  # fmt: skip
    for given, missing in (((), "--lr and --method-lr"), (("--lr", 0.01), "--method-lr")):
        result = fslstm(*arguments, *given)
        assert result.code == 2
        words = " ".join(result.err.split())
        assert f"PlainBackbone has no recipe for training from pretrained weights: give {missing}, or name a" in words
    assert not (runs / "given-rates").exists()
    result = fslstm(*arguments, "--lr", 0.01, "--method-lr", 0.02)
    assert result.code == 0, result.err
    recipe = Run.open(runs / "given-rates").config.recipe
    assert (recipe.lr, recipe.method_lr) == (0.01, 0.02)


def test_a_method_for_maps_says_so_of_a_backbone_without(fslstm, runs: Path) -> None:
    result = fslstm(
        "train", "--dataset", "dots", "--backbone", "tiny", "--algorithm", "map-peak", *SMALL, "--max-steps", 1,
        "--runs", runs, "--name", "no-maps",
    )  # fmt: skip
    assert result.code == 2
    assert "the method needs feature maps: use a backbone with a map_shape" in " ".join(result.err.split())


# A data set of class folders


def test_class_folders_are_prepared_trained_on_and_evaluated(fslstm, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    for split, classes in PICTURES.classes.items():
        for label in range(classes):
            folder = tmp_path / "source" / split / f"{split}-{label}"
            folder.mkdir(parents=True)
            for number in range(12):
                pixels = draw.normal(60 + 60 * label, 30, (36, 40, 3)).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.png")
    root = ("--data-root", tmp_path / "data")
    result = fslstm("data", "prepare", "pictures", "--from", tmp_path / "source", *root)
    assert result.code == 0, result.err
    runs = ("--runs", tmp_path / "runs")
    result = fslstm(
        "train", "--dataset", "pictures", "--backbone", "tiny", *SMALL, "--ways", 3, "--val-ways", 2,
        "--max-steps", 2, *root, *runs, "--name", "run",
    )  # fmt: skip
    assert result.code == 0, result.err
    result = fslstm("eval", *root, *runs, *FEW, "--ways", 3, "--json", tmp_path / "r.json")
    assert result.code == 0, result.err
    rows = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert {row["dataset"] for row in rows} == {"pictures"}
    assert max(row["accuracy"] for row in rows) > 60, "chance is 33"


# Names


def test_their_names_stand_beside_ours() -> None:
    for registry, names in {
        HEADS: {"centroid"}, ADAPTERS: {"clip", "rescale"}, TRANSDUCTION: {"average", "lean"},
        METHODS: {"similarity", "map-peak", "projected"}, BACKBONES: {"tiny", "plain", "mapped"},
        DATASETS: {"dots", "pictures"},
    }.items():  # fmt: skip
        assert names <= set(registry.names())
    assert not {"similarity", "map-peak"} & set(whole_methods()), "they need training"
    assert [parse_method(name, dim=4).family for name in ("similarity", "map-peak")] == ["similarity", "map-peak"]


def test_a_head_of_theirs_keeps_the_contract() -> None:
    check_head(CentroidHead)


def test_each_part_is_made_as_its_name_says() -> None:
    method = parse_method("centroid(clip=0.5)+rescale(start=2)+lean", dim=4)
    rescale, clip = method.adapters
    assert (type(method.head), type(rescale), type(method.transduction)) == (CentroidHead, Rescale, Lean)
    assert (rescale.factors.tolist(), clip.greatest) == ([2.0] * 4, 0.5)
    assert isinstance(parse_method("similarity", dim=4), LearnedSimilarity)
    assert isinstance(parse_method("map-peak"), MapPeak)

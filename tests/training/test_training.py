"""Pretraining and meta-training: continuing exactly, several processes, what a run folder keeps."""

from __future__ import annotations

import csv
import errno
import itertools
import json
import multiprocessing
import os
import re
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import pytorch_lightning as pl
import torch
from fslstm_dots import TinyBackbone
from PIL import Image
from rich.console import Console
from safetensors.torch import save_file

from fslstm_plugin.backbones import ResNet12
from fslstm_plugin.backbones.base import build_backbone
from fslstm_plugin.errors import DataError, FSLSTMError, RunError, StorageError, UsageError
from fslstm_plugin.evaluation.features import FeatureStore
from fslstm_plugin.evaluation.tuning import save_choices
from fslstm_plugin.model import FewShotModel
from fslstm_plugin.pretrained.opening import load_backbone
from fslstm_plugin.recipes import base_class_pretraining
from fslstm_plugin.runs.configuration import PretrainConfig, Validation
from fslstm_plugin.runs.folder import Run, new_run_folder
from fslstm_plugin.storage import files
from fslstm_plugin.storage.plain import from_plain, to_plain
from fslstm_plugin.storage.weights import load_described, load_tensors
from fslstm_plugin.training import classification, engine
from fslstm_plugin.training.classification import Classification
from fslstm_plugin.training.configuration import pretrain_config, recipe_for, resolve_precision, train_config
from fslstm_plugin.training.engine import EngineOptions, NonFiniteError
from fslstm_plugin.training.episodic import EpisodicModule
from fslstm_plugin.training.meta_training import train
from fslstm_plugin.training.pretraining import pretrain

QUIET = Console(quiet=True)
OPTIONS = EngineOptions(accelerator="cpu", checkpoint_every=3)


def meta_run(path, max_steps=8, algorithm="lssvm+iam(reduction=4)", pretrained=None, **changes):
    given = {
        **({"lr": 0.1, "method_lr": 0.1} if pretrained else {}),
        "steps_per_epoch": 5,
        "episodes_per_step": 2,
        "shots": 2,
        "queries": 3,
        **changes,
    }
    validation = Validation(episodes=20, shots=2, queries=5)
    config = train_config(
        "dots",
        "tiny",
        algorithm,
        pretrained=pretrained,
        max_steps=max_steps,
        seed=3,
        precision="32",
        validation=validation,
        given=given,
    )
    return Run(path, config)


def pretrain_run(path, max_steps=8, backbone="tiny", **changes):
    given = {"epochs": 3, "batch_size": 48, "lr": 0.05, "nesterov": False, "jitter": 0.4, **changes}
    config = pretrain_config(backbone, dataset="dots", max_steps=max_steps, seed=3, precision="32", given=given)
    return Run(path, config)


def metrics(run):
    with (run.path / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def test_a_run_stopped_before_its_first_checkpoint_begins_again(tmp_path, data_root):
    run = meta_run(tmp_path / "run", max_steps=2)
    run.create()
    train(run, OPTIONS, data_root=data_root, resume=True, console=QUIET)
    assert torch.load(run.checkpoint, weights_only=True)["global_step"] == 2


@pytest.mark.parametrize("group", ["recipe", "validation"])
def test_episodes_that_an_edited_configuration_asks_for_are_named_by_file_and_field(group, tmp_path, fslstm):
    run = meta_run(tmp_path / "run", max_steps=2)
    run.create()
    content = json.loads((run.path / "config.json").read_text())
    content[group]["ways"] = 300
    (run.path / "config.json").write_text(json.dumps(content))
    done = fslstm("train", "--resume", "--name", "run", "--runs", tmp_path)
    field = "ways" if group == "recipe" else "validation.ways"
    said = f"The episodes of {run.path / 'config.json'} cannot be drawn: '{field}=300' is not possible"
    assert (done.code, said in done.err) == (1, True), done.err


@pytest.mark.parametrize("content", [None, b"", b"half of"])
def test_weights_lost_after_the_end_are_written_again(content, tmp_path, data_root):
    said = Console(file=(tmp_path / "log").open("w"), width=200)
    for start, run in ((pretrain, pretrain_run(tmp_path / "base", 2)), (train, meta_run(tmp_path / "meta", 2))):
        start(run, OPTIONS, data_root=data_root, console=QUIET)
        weights = {name: value.clone() for name, value in run.load_weights().items()}  # the file is mapped
        run.weights.unlink() if content is None else run.weights.write_bytes(content)
        start(run, OPTIONS, data_root=data_root, resume=True, console=said)
        again = run.load_weights()
        assert all(again[name].equal(value) for name, value in weights.items())
    said.file.close()
    log = (tmp_path / "log").read_text()
    assert log.count("is fully trained: nothing was left to do") == 2
    assert log.count("the best weights so far are lost") == 1


def test_the_steps_are_told_as_they_are_and_the_last_one_with_its_loss(tmp_path, data_root):
    run = pretrain_run(tmp_path / "run", max_steps=2)
    with (tmp_path / "log").open("w") as file:
        pretrain(run, OPTIONS, data_root=data_root, console=Console(file=file, width=200))
    log = (tmp_path / "log").read_text()
    assert log.startswith("2 steps of 48 images, 0.4 epochs.\n")
    assert re.search(r"^step 2/2  loss \d\.\d{3}  accuracy \d+\.\d %  [\d.]+ images/s$", log, re.MULTILINE)
    assert metrics(run)[-1]["step"] == "2"


def test_a_backbone_that_gives_other_vectors_than_it_says_is_named() -> None:
    backbone = build_backbone("tiny", 32)
    backbone.out_features = 7
    module = Classification(backbone, 4, base_class_pretraining(32), 1)
    with pytest.raises(UsageError, match=r"must give vectors \(batch, 7\), as out_features says, but gave \(2, 16\)"):
        module(torch.ones(2, 3, 32, 32))


def test_a_pretraining_without_momentum_needs_no_other_option(tmp_path, data_root):
    config = pretrain_config("tiny", dataset="dots", max_steps=1, precision="32", given={"momentum": 0.0})
    assert config.recipe.nesterov
    run = Run(tmp_path / "run", config)
    pretrain(run, OPTIONS, data_root=data_root, console=QUIET)
    assert run.weights.is_file()


def test_a_second_run_never_overwrites_the_first(tmp_path, data_root):
    run = meta_run(tmp_path / "run", max_steps=1)
    train(run, OPTIONS, data_root=data_root, console=QUIET)
    with pytest.raises(RunError, match="already holds a run. Continue it with `resume=True`"):
        train(run, OPTIONS, data_root=data_root, console=QUIET)


def test_training_lowers_the_loss_and_keeps_the_best(tmp_path, data_root):
    run = meta_run(tmp_path / "run", max_steps=40, algorithm="rr", lr=0.05, steps_per_epoch=10)
    lines = Console(file=(tmp_path / "log").open("w"), width=200)
    train(run, OPTIONS, data_root=data_root, console=lines)
    lines.file.close()
    rows = metrics(run)
    losses = [float(row["train_loss"]) for row in rows if row["train_loss"]]
    accuracies = [float(row["valid_accuracy"]) for row in rows if row["valid_accuracy"]]
    assert losses[-1] < losses[0]
    assert len(accuracies) == 4
    best = torch.load(run.checkpoint, weights_only=True)["callbacks"]["KeepBest"]["best"]
    assert best == pytest.approx(100 * max(accuracies))
    assert "validation accuracy" in (tmp_path / "log").read_text()


def test_meta_training_begins_from_the_pretrained_backbone(tmp_path, data_root):
    first = pretrain_run(tmp_path / "first", max_steps=2)
    pretrain(first, OPTIONS, data_root=data_root, console=QUIET)
    backbone = TinyBackbone(32)
    load_backbone(backbone, first.path)
    saved = first.load_weights()
    assert all(torch.equal(value, saved[f"backbone.{name}"]) for name, value in backbone.state_dict().items())
    second = meta_run(tmp_path / "second", max_steps=1, pretrained=first.path, lr=1e-12)
    train(second, OPTIONS, data_root=data_root, console=QUIET)
    weights = second.load_weights()
    torch.testing.assert_close(weights["backbone.net.0.weight"], backbone.net[0].weight.data, atol=1e-6, rtol=0)


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_weights_of_another_backbone_are_refused_with_their_names(suffix, tmp_path):
    file = tmp_path / f"other{suffix}"
    state = {"net.0.weight": torch.zeros(16, 3, 3, 3), "extra": torch.zeros(1)}
    save_file(state, file) if suffix == ".safetensors" else torch.save({"state_dict": state}, file)
    with pytest.raises(RunError, match="do not fit this TinyBackbone") as error:
        load_backbone(TinyBackbone(32), file)
    for words in ("missing: net.0.bias", "unexpected: extra", "net.0.weight (16, 3, 3, 3) instead of (16, 3, 5, 5)"):
        assert words in str(error.value)


def test_a_pickle_that_would_run_code_does_not(tmp_path):
    class Attack:
        def __reduce__(self):
            return (exec, (f"open({str(tmp_path / 'pwned')!r}, 'w').close()",))

    torch.save({"state_dict": {"net.0.weight": Attack()}}, tmp_path / "evil.pth")
    with pytest.raises(RunError, match="damaged or not a weights file") as error:
        load_backbone(TinyBackbone(32), tmp_path / "evil.pth")
    assert "exec was not an allowed global" in str(error.value)
    assert "weights_only" not in str(error.value), "nobody is told to read it unprotected"
    assert not (tmp_path / "pwned").exists()


def test_a_file_that_is_no_weights_is_named_without_advice_to_run_it(fslstm, tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"\x08\x08graph")
    done = fslstm("train", "--dataset", "dots", "--runs", tmp_path, "--pretrained", tmp_path / "model.onnx")
    assert done.code == 1
    assert done.err.endswith("model.onnx is damaged or not a weights file (Unsupported operand 8).\n")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is damaged, or not an image (it has no known format)."),
        (Image.new("RGB", (11, 11)), "has more than 100 pixels"),
        (Image.new("F", (9, 9)), "has pixels of the mode F"),
    ],
)
def test_what_is_no_picture_of_a_folder_is_named_before_the_training(fslstm, tmp_path, monkeypatch, content, words):
    monkeypatch.setattr("PIL.Image.MAX_IMAGE_PIXELS", 100)
    for name in ("a/1.png", "a/2.png", "b/1.png", "b/2.png"):
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 9)).save(tmp_path / "images" / name)
    bad = tmp_path / "images" / "b" / "2.png"
    content.save(bad, "tiff") if isinstance(content, Image.Image) else bad.write_bytes(content)
    more = ("--image-size", 32, "--batch-size", 2, "--runs", tmp_path / "runs")
    done = fslstm("pretrain", "--images", tmp_path / "images", *more)
    assert (done.code, done.err.count("\n")) == (1, 1), done.err
    assert f"The image {bad} {words}" in done.err
    assert not (tmp_path / "runs").exists()


def test_a_bound_on_pixels_is_for_a_folder_and_can_be_raised(fslstm, tmp_path, monkeypatch):
    monkeypatch.setattr("PIL.Image.MAX_IMAGE_PIXELS", 1023)
    for name in ("a/1.png", "a/2.png", "b/1.png", "b/2.png"):
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (32, 32)).save(tmp_path / "images" / name)
    more = ("--image-size", 32, "--batch-size", 2, "--max-steps", 1, "--workers", 0, "--runs", tmp_path / "runs")
    done = fslstm("pretrain", "--images", tmp_path / "images", *more)
    assert (done.code, done.err.endswith("raise the limit with --max-pixels.\n")) == (1, True), done.err
    done = fslstm("pretrain", "--images", tmp_path / "images", "--max-pixels", 1024, *more)
    assert done.code == 0, done.err


@pytest.mark.parametrize("option", ["--max-pixels", "--workers"])
def test_a_data_set_is_not_decoded_neither_at_first_nor_when_continued(option, fslstm, tmp_path):
    config = pretrain_config("tiny", dataset="dots", precision="32")
    Run(tmp_path / "base", config).create()
    for begun in (("--dataset", "dots", "--backbone", "tiny"), ("--resume", "--name", "base")):
        done = fslstm("pretrain", *begun, option, 3, "--runs", tmp_path)
        sentence = f"fslstm: A data set and {option} cannot be used together: its images are decoded already.\n"
        assert (done.code, done.err) == (2, sentence)


def test_parts_beside_a_backbone_are_left_out_by_name(tmp_path):
    tensors = {f"encoder.{name}": value for name, value in TinyBackbone(32).state_dict().items()}
    torch.save({"params": {**tensors, "fc.weight": torch.zeros(1)}, "epoch": 3}, tmp_path / "a.pth")
    assert load_backbone(TinyBackbone(32), tmp_path / "a.pth").left_out == ["fc.weight"]


def test_drop_block_begins_its_schedule_anew(tmp_path):
    """As published, where the number of passes is no part of the saved weights."""
    trained, backbone = ResNet12(32), ResNet12(32)
    state = {key: value + 9 if key.endswith(".passes") else value for key, value in trained.state_dict().items()}
    without = {key: value for key, value in state.items() if not key.endswith(".passes")}
    for content in (state, without):
        torch.save(content, tmp_path / "w.pth")
        load_backbone(backbone, tmp_path / "w.pth")
        assert all(value.equal(trained.state_dict()[key]) for key, value in backbone.state_dict().items())


def test_a_file_without_tensors_says_what_it_holds(tmp_path):
    torch.save({"embedding": {"weight": torch.zeros(1)}, "epoch": 3}, tmp_path / "a.pth")
    with pytest.raises(RunError, match="it holds no tensors, but embedding, epoch"):
        load_backbone(TinyBackbone(32), tmp_path / "a.pth")


def test_tensors_that_are_not_dense_are_refused(tmp_path):
    torch.save({"params": {"weight": torch.eye(3).to_sparse()}}, tmp_path / "w.pth")
    with pytest.raises(RunError, match="weight is a sparse or quantised tensor"):
        load_tensors(tmp_path / "w.pth")


def test_weights_are_as_readable_as_other_files(tmp_path):
    run = Run(tmp_path, {})
    run.save_weights(TinyBackbone(32))
    (tmp_path / "other").touch()
    assert run.weights.stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", b"\x80\x04junk"])
def test_damaged_weights_are_named(content, tmp_path):
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    with pytest.raises(RunError, match="model.safetensors is damaged or not a weights file"):
        load_backbone(TinyBackbone(32), file)


def test_an_empty_checkpoint_is_named_and_what_its_reader_found(tmp_path):
    (tmp_path / "w.pth").touch()
    with pytest.raises(RunError, match=r"w.pth is damaged or not a weights file \(EOFError\)\.$"):
        load_tensors(tmp_path / "w.pth")


def test_weights_that_cannot_be_opened_are_not_called_damaged(tmp_path):
    with pytest.raises(RunError, match=r"^Cannot read .*gone.safetensors: No such file or directory\.$"):
        load_described(tmp_path / "gone.safetensors")


def test_a_damaged_checkpoint_is_named_and_left_alone(tmp_path, data_root):
    run = meta_run(tmp_path / "run", max_steps=2)
    train(run, OPTIONS, data_root=data_root, console=QUIET)
    whole = run.checkpoint.read_bytes()
    run.checkpoint.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RunError, match="last.ckpt, which is damaged or of another training"):
        train(run, OPTIONS, data_root=data_root, resume=True, console=QUIET)
    assert run.checkpoint.stat().st_size == len(whole) // 2


@pytest.mark.parametrize("name", ["last.ckpt", "model.safetensors", "metrics.csv"])
def test_a_folder_in_the_place_of_a_file_is_named_before_anything_is_trained(name, tmp_path, data_root):
    run = meta_run(tmp_path / "run", max_steps=2)
    run.create()
    (run.path / name).mkdir()
    with pytest.raises(RunError, match=f"{name} is no regular file, and is not replaced: move it away, or start a new"):
        train(run, OPTIONS, data_root=data_root, resume=True, console=QUIET)
    assert {file.name for file in run.path.iterdir()} <= {name, "config.json", ".lock"}


def test_a_loss_that_is_not_a_number_stops_with_advice(tmp_path, data_root):
    for algorithm, what in (("nn", "loss became"), ("lssvm", "features became too large")):
        run = meta_run(tmp_path / algorithm, max_steps=30, algorithm=algorithm, lr=1e30)
        advice = r"What was saved before is kept; try a smaller"  # perhaps nothing
        with pytest.raises(NonFiniteError, match=rf"{what}.* at step \d+ with learning rate 1e\+30. {advice}"):
            train(run, OPTIONS, data_root=data_root, console=QUIET)


def test_weights_that_are_no_numbers_are_never_saved(tmp_path, data_root, monkeypatch):
    """On a GPU the loss is not looked at after each step; the end of the epoch may come first."""
    monkeypatch.setattr(engine.FiniteLoss, "on_train_batch_end", lambda *_: None)
    run = meta_run(tmp_path / "run", max_steps=8, algorithm="nn")
    seed = engine.StepSeed.on_train_batch_start

    def on_train_batch_start(self, trainer, module, *rest):
        seed(self, trainer, module, *rest)
        if trainer.global_step == 6:
            module.model.backbone.net[0].weight.data.fill_(float("nan"))

    monkeypatch.setattr(engine.StepSeed, "on_train_batch_start", on_train_batch_start)
    with pytest.raises(NonFiniteError, match="The weights became infinite or not a number at step 8"):
        train(run, EngineOptions(accelerator="cpu", checkpoint_every=5), data_root=data_root, console=QUIET)
    assert torch.load(run.checkpoint, weights_only=True)["global_step"] == 5
    assert all(value.isfinite().all() for value in run.load_weights().values())


@pytest.mark.parametrize("key", ["state_dict", "optimizer_states", "loops", "callbacks", "lr_schedulers"])
def test_a_checkpoint_of_another_form_is_named(key, tmp_path, data_root):
    run = meta_run(tmp_path / "run", max_steps=2)
    train(run, OPTIONS, data_root=data_root, console=QUIET)
    state = torch.load(run.checkpoint, weights_only=True)
    state[key] = {"x": [1]} if key in ("state_dict", "loops") else [{"x": 1}]
    torch.save(state, run.checkpoint)
    before = run.checkpoint.read_bytes()
    with pytest.raises(RunError, match=r"cannot continue from .*last.ckpt, which is damaged or of another training"):
        train(run, OPTIONS, data_root=data_root, resume=True, console=QUIET)
    assert run.checkpoint.read_bytes() == before


def test_where_the_file_system_has_no_locks_training_goes_on(tmp_path, data_root, monkeypatch):
    def acquire(self, timeout):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("filelock.FileLock.acquire", acquire)
    run = meta_run(tmp_path / "run", max_steps=1)
    train(run, OPTIONS, data_root=data_root, console=QUIET)
    assert run.weights.exists()


def test_without_room_for_the_configuration_the_advice_is_to_start_again(tmp_path, data_root, monkeypatch):
    """There is nothing yet that --resume could continue."""

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "sync", full)
    run = meta_run(tmp_path / "run", max_steps=1)
    with pytest.raises(
        StorageError, match=r"config.json: No space left on device. Nothing was trained yet: fix"
    ) as told:
        train(run, OPTIONS, data_root=data_root, console=QUIET)
    assert "start again" in str(told.value)
    assert "resume" not in str(told.value)


class Line(pl.LightningModule):
    """A regression, to train in a moment."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, _):
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_other_images_are_refused_when_a_training_continues(tmp_path):
    run = meta_run(tmp_path / "run")

    def fit(steps, data_digest, resume):
        batches = torch.utils.data.DataLoader(torch.ones(4, 1), 2)
        engine.fit(
            Line(), batches, run, max_steps=steps, options=OPTIONS, resume=resume,
            progress=engine.TrainingProgress("points", 2, QUIET), data_digest=data_digest,
        )  # fmt: skip

    fit(2, "these", resume=False)
    with pytest.raises(RunError, match=r"last.ckpt: the images changed since it began. Undo that, or start a new run"):
        fit(4, "others", resume=True)
    assert torch.load(run.checkpoint, weights_only=True)["global_step"] == 2
    fit(4, "these", resume=True)
    assert torch.load(run.checkpoint, weights_only=True)["global_step"] == 4
    for content, reason in (
        ({"weight": torch.ones(2)}, r"\(no training of fslstm wrote it\)"),
        ({"origin": run.path}, r"\(Unsupported global: GLOBAL pathlib.* was not an allowed global by default\)"),
    ):
        torch.save(content, run.checkpoint)
        with pytest.raises(RunError, match=reason):
            fit(6, "these", resume=True)


DAMAGED_CONFIGS = [
    ({"kind": "test"}, "kind: invalid value 'test'"),
    ({"backbone": 5}, "backbone must be text, but got a whole number"),
    ({"image_size": True}, "image_size must be a whole number, but got true or false"),
    ({"image_size": 10**9}, "image_size must be a whole number <= 1024"),
    ({"seed": -1}, "seed must be a whole number >= 0"),
    ({"seed": 10**40}, "config.json is damaged"),
    ({"precision": "64"}, "precision: invalid enum value '64'"),
    ({"max_steps": 0}, "max_steps must be a whole number >= 1"),
    ({"pretrained": []}, "pretrained must be text or null, but got array"),
    ({"kind": "pretrain"}, "contains unknown field 'algorithm'"),
    ({"format": 1}, r"config.json is of another version of fslstm: [^\n]*anew\.$"),
]


@pytest.mark.parametrize(("change", "words"), DAMAGED_CONFIGS)
def test_a_damaged_configuration_is_named(change, words, tmp_path):
    run = meta_run(tmp_path)
    run.create()
    (tmp_path / "config.json").write_text(json.dumps({**to_plain(run.config), **change}))
    with pytest.raises(RunError, match=words):
        Run.open(tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lr": "high"}, "recipe.lr must be a number, but got text"),
        ({"lr": -1}, "recipe.lr must be a number > 0.0"),
        ({"epochs": 1.5}, "recipe.epochs must be a whole number, but got a number"),
        ({"episodes_per_step": 10**12}, "recipe.episodes_per_step must be a whole number <= 10000"),
        ({"more": 1}, "recipe: .*contains unknown field 'more'"),
        ({"augmentation": 3}, "recipe.augmentation must be a group of fields, but got a whole number"),
        ({"augmentation": {"padding": 4, "flop": 1}}, "recipe.augmentation: .*contains unknown field 'flop'"),
        ({"milestones": [0.1, None, 0.2]}, "recipe.milestones.* must be a number, but got null"),
        ({"milestones": [0.1]}, r"recipe: 'milestones' must ascend, with as many 'factors', but got .*[^.]\.$"),
    ],
)
def test_a_damaged_recipe_is_named(change, words, tmp_path):
    run = meta_run(tmp_path)
    run.create()
    content = to_plain(run.config)
    content["recipe"] |= change
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(RunError, match=f"config.json is damaged: .*{words}"):
        Run.open(tmp_path)


def test_evaluations_that_end_together_keep_their_own_files(tmp_path):
    run = meta_run(tmp_path)
    run.create()
    with ThreadPoolExecutor(8) as pool:
        files = list(pool.map(lambda _: run.save_evaluation("eval", {"rows": []}), range(24)))
    assert sorted(file.name for file in files) == sorted(f"eval-{number}.json" for number in range(1, 25))


def test_an_evaluation_is_not_kept_in_another_run_that_took_the_folder(tmp_path):
    run = meta_run(tmp_path)
    Run(run.path, pretrain_config("tiny", dataset="dots", precision="32")).create()
    with pytest.raises(RunError, match="was replaced by another run meanwhile"):
        run.save_evaluation("eval", {"rows": []})
    with pytest.raises(RunError, match="was replaced by another run meanwhile"):
        save_choices(run, {}, [])
    assert not list(run.path.glob("**/*.json*"))[1:], "the configuration alone"


def features_in_processes(folder, split, count):
    def work():
        torch.set_num_threads(1)
        backbone = TinyBackbone(32)
        backbone.load_state_dict(torch.load(folder / "weights", weights_only=True))
        torch.save(FeatureStore(backbone, folder).features(split), folder / f"{os.getpid()}.features")

    processes = [multiprocessing.get_context("fork").Process(target=work) for _ in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    return [torch.load(file, weights_only=True) for file in folder.glob("*.features")]


def test_processes_that_need_the_same_features_at_once_get_the_same(tmp_path, dots):
    torch.save(TinyBackbone(32).state_dict(), tmp_path / "weights")
    first, *others = features_in_processes(tmp_path, dots, 3)
    assert len(others) == 2
    assert all(torch.equal(first, other) for other in others)
    (file,) = (tmp_path / "cache").iterdir()
    content = bytearray(file.read_bytes())
    content[-30] ^= 1
    file.write_bytes(content)  # still a whole file
    assert all(torch.equal(first, again) for again in features_in_processes(tmp_path, dots, 2))
    assert file.read_bytes() != content


def test_two_processes_train_on_the_same_episodes_as_one(tmp_path, spawn):
    weights = tmp_path / "weights.pth"
    state = {f"encoder.{name}": value for name, value in build_backbone("plain", 32).state_dict().items()}
    torch.save({**state, "head.bias": torch.zeros(5)}, weights)
    common = [
        "train", "--dataset", "dots", "--backbone", "plain", "--algorithm", "rr", "--runs", tmp_path / "runs",
        "--max-steps", 3, "--episodes-per-step", 2, "--shots", 2, "--queries", 3, "--val-episodes", 10,
        "--accelerator", "cpu", "--precision", "32", "--pretrained", weights, "--lr", 0.05,
        "--method-lr", 0.05,
    ]  # fmt: skip
    for name, extra in (("two", ("--devices", 2, "--strategy", "ddp")), ("one", ("--devices", 1))):
        process = spawn(*common, "--name", name, *extra)
        out, err = process.communicate(timeout=240)
        assert process.returncode == 0, err
        assert out.count("The best model is in") == 1
        assert err.count(f"Left out of {weights}: head.bias.") == 1
    assert sorted(file.name for file in (tmp_path / "runs").iterdir()) == ["one", "two"]
    # Without batch normalisation, whose statistics each process takes of its own images, the weights agree too.
    two, one = (torch.load(tmp_path / "runs" / name / "last.ckpt", weights_only=True) for name in ("two", "one"))
    assert two["global_step"] == one["global_step"] == 3
    for name, value in one["state_dict"].items():
        torch.testing.assert_close(two["state_dict"][name], value, atol=1e-5, rtol=1e-5)


def test_ctrl_c_ends_cleanly_and_the_run_can_be_continued(tmp_path, spawn):
    common = ["--dataset", "dots", "--backbone", "tiny", "--runs", tmp_path, "--name", "run"]
    process = spawn("train", *common, "--algorithm", "nn", "--max-steps", 100_000, "--checkpoint-every", 1)
    checkpoint = tmp_path / "run" / "last.ckpt"
    deadline = time.monotonic() + 120
    while not checkpoint.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Stopped at step" in err
    assert "--resume" in err
    assert "Traceback" not in out + err
    assert torch.load(checkpoint, weights_only=True)["global_step"] >= 1


def test_run_folders_are_found_by_path_name_or_age(tmp_path):
    with pytest.raises(RunError, match="Get one with 'fslstm demo'"):
        Run.find(None, tmp_path)
    for name in ("a", "b"):
        run = meta_run(tmp_path / name)
        run.create()
        run.save_weights(TinyBackbone(32))
        time.sleep(0.02)
    assert Run.find(None, tmp_path).name == "b"
    assert Run.find("a", tmp_path).name == "a"
    assert Run.find(str(tmp_path / "a"), tmp_path / "elsewhere").name == "a"
    with pytest.raises(RunError, match="There is no run at"):
        Run.find("c", tmp_path)
    (tmp_path / "a" / "config.json").write_text("{half")
    with pytest.raises(RunError, match="config.json is damaged: JSON is malformed"):
        Run.find("a", tmp_path)
    (tmp_path / "a" / "config.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(RunError, match="damaged: object missing required field 'kind'"):
        Run.find("a", tmp_path)


def test_further_devices_take_the_name_that_the_first_chose(tmp_path, monkeypatch):
    chosen = new_run_folder(tmp_path, None, "train-dots")
    chosen.mkdir()
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert new_run_folder(tmp_path, None, "train-dots") == chosen
    monkeypatch.delenv("LOCAL_RANK")
    assert new_run_folder(tmp_path, None, "train-dots").name == "train-dots-2"


def test_a_damaged_neighbour_does_not_keep_a_training_from_continuing(tmp_path):
    run = meta_run(tmp_path / "mine")
    run.create()
    run.checkpoint.touch()
    time.sleep(0.02)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "config.json").write_text("{half")
    (tmp_path / "damaged" / "last.ckpt").touch()
    assert Run.to_resume(tmp_path, None, "train").path == run.path
    with pytest.raises(RunError, match="no pretrain run to resume"):
        Run.to_resume(tmp_path, None, "pretrain")


def test_names_of_new_runs(tmp_path):
    assert new_run_folder(tmp_path, None, "x").name == "x"
    (tmp_path / "x").mkdir()
    assert new_run_folder(tmp_path, None, "x").name == "x-2"
    for name in ("../x", "a/b", "", ".hidden"):
        with pytest.raises(UsageError, match="plain folder name"):
            new_run_folder(tmp_path, name, "x")


@pytest.mark.parametrize("bf16", [True, False])
@pytest.mark.parametrize(
    ("accelerator", "gpu", "asked"),
    [
        ("auto", True, "gpu"), ("gpu", True, "gpu"), ("cuda", True, "gpu"),
        ("cpu", True, "cpu"), ("auto", False, "cpu"), ("cpu", False, "cpu"),
    ],
)  # fmt: skip
def test_precision_auto_follows_the_accelerator(accelerator, gpu, asked, bf16, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: bf16 if asked == "gpu" else not bf16)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: bf16 if asked == "cpu" else not bf16)
    assert resolve_precision("auto", accelerator) == ("bf16" if bf16 else "32")
    assert resolve_precision("32", accelerator) == "32"


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_the_signal_handlers_are_given_back(tmp_path, data_root):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    train(meta_run(tmp_path / "run", max_steps=1), OPTIONS, data_root=data_root, console=QUIET)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_images_grow_during_a_pretraining_and_are_shrunk_evenly(tmp_path, data_root, monkeypatch):
    seen, forward = [], Classification.forward

    def look(self, images):
        if self.training:
            seen.append((self.global_step, images.shape[-1], images.mean().item()))
        return forward(self, images)

    monkeypatch.setattr(Classification, "forward", look)
    means = {}
    for name, parts in {"grown": {"sizes": [0.5, 0.75, 1], "shares": [0.25, 0.375, 0.375]}, "whole": {}}.items():
        seen.clear()
        pretrain(pretrain_run(tmp_path / name, **parts), OPTIONS, data_root=data_root, console=QUIET)
        assert [step for step, *_ in seen] == list(range(8))
        assert [side for _, side, _ in seen] == ([16, 16, 24, 24, 24, 32, 32, 32] if parts else [32] * 8)
        means[name] = [mean for *_, mean in seen]
    assert means["grown"] == pytest.approx(means["whole"], abs=0.02)  # the same images, in another size


def test_the_pretraining_recipe_reaches_loss_and_dropout(tmp_path, data_root, monkeypatch):
    heard, cross_entropy = [], torch.nn.functional.cross_entropy
    rates = []

    def listen(logits, labels, **options):
        heard.append(options)
        return cross_entropy(logits, labels, **options)

    def look(module, *_):
        rates.append([layer.p for layer in module.modules() if isinstance(layer, torch.nn.Dropout2d)])

    monkeypatch.setattr("fslstm_plugin.training.classification.F.cross_entropy", listen)
    monkeypatch.setattr(Classification, "on_train_start", look)
    changes = {"label_smoothing": 0.2, "dropout": 0.5, "batch_size": 8, "sizes": [0.5], "shares": [1]}
    run = pretrain_run(tmp_path / "run", max_steps=2, backbone="conv4", **changes)
    pretrain(run, OPTIONS, data_root=data_root, console=QUIET)
    assert heard == [{"label_smoothing": 0.2}] * 2
    assert rates == [[0.2, 0.25]]
    model = FewShotModel.from_run(run)
    assert [layer.p for layer in model.modules() if isinstance(layer, torch.nn.Dropout2d)] == [0.4, 0.5]


@pytest.mark.parametrize(
    ("algorithm", "given", "rates"),
    [("lssvm", {}, [0.4, 0.5]), ("lssvm", {"dropout": 0.5}, [0.2, 0.25]), ("tpn", {}, [0, 0])],
)
def test_meta_training_scales_the_backbones_dropout_and_rivals_published_without_have_none(
    algorithm, given, rates, tmp_path, data_root, monkeypatch
):
    seen = []

    def look(module):
        seen.append([layer.p for layer in module.modules() if isinstance(layer, torch.nn.Dropout2d)])

    monkeypatch.setattr(EpisodicModule, "on_train_start", look)
    few = {"steps_per_epoch": 1, "episodes_per_step": 1, "queries": 2, **given}
    config = train_config(
        "dots", "conv4", algorithm, max_steps=1, precision="32", validation=Validation(episodes=2), given=few
    )
    run = Run(tmp_path / "run", config)
    train(run, OPTIONS, data_root=data_root, console=QUIET)
    assert seen == [rates]
    model = FewShotModel.from_run(run)
    assert [layer.p for layer in model.modules() if isinstance(layer, torch.nn.Dropout2d)] == [0.4, 0.5]


def test_a_default_device_changes_no_configuration(other_default_device):
    train_config("dots", "conv4", "lssvm", precision="32")  # which looks for a gradient
    with pytest.raises(UsageError, match="passes no gradients"):
        train_config("dots", "conv4", "lssvm(decoding=hamming)", precision="32")


def test_a_recipe_written_before_sizes_and_smoothing_means_none(tmp_path):
    config = pretrain_config("conv4", dataset="dots", precision="32")
    plain = to_plain(config)
    for name in ("sizes", "shares", "label_smoothing", "dropout", "freeze"):
        del plain["recipe"][name]
    recipe = from_plain(PretrainConfig, plain).recipe
    assert recipe.sides(32) == (32,)
    assert (recipe.label_smoothing, recipe.dropout, recipe.freeze) == (0, 1, ())


def test_only_backbones_that_take_any_size_begin_with_small_images(tmp_path, data_root, monkeypatch):
    assert pretrain_config("conv4", dataset="dots", precision="32").recipe.sides(32) == (16, 24, 32)
    assert pretrain_config("tiny", dataset="dots", precision="32").recipe.sides(32) == (32,)

    def refuse(self, images):
        if images.shape[-1] != 32:
            raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")
        return self.net(images)

    monkeypatch.setattr("fslstm_dots.TinyBackbone.forward", refuse)
    pretrain(pretrain_run(tmp_path / "whole", max_steps=1), OPTIONS, data_root=data_root, console=QUIET)
    run = pretrain_run(tmp_path / "small", sizes=[0.5, 1], shares=[0.5, 0.5])
    with pytest.raises(UsageError, match="The backbone tiny cannot take images of 16 x 16 pixels: give `sizes=1`"):
        pretrain(run, OPTIONS, data_root=data_root, console=QUIET)
    assert not run.path.exists()


def test_the_recipe_for_a_gpu_has_large_batches_and_what_the_backbone_says():
    options = {"dataset": "cifar-fs", "precision": "32", "recipe": "gpu"}
    conv4, resnet12 = (pretrain_config(name, **options).recipe for name in ("conv4", "resnet12"))
    assert (conv4.epochs, conv4.batch_size, conv4.weight_decay, conv4.dropout) == (120, 512, 1e-3, 0.1)
    assert (resnet12.epochs, resnet12.batch_size, resnet12.weight_decay, resnet12.dropout) == (90, 512, 5e-4, 1.0)
    assert pretrain_config("conv4", **options, given={"epochs": 3}).recipe.epochs == 3
    with pytest.raises(UsageError, match="no recipe 'tpu'"):
        pretrain_config("conv4", dataset="cifar-fs", recipe="tpu")
    assert pretrain_config("tiny", **options).recipe.sizes == (1.0,)


@pytest.mark.parametrize(
    ("gpu", "accelerator", "many", "recipe"),
    [(True, "auto", 240, "gpu"), (True, "auto", 241, "cpu"), (True, "cpu", 240, "cpu"), (False, "auto", 240, "cpu")],
)
def test_a_gpu_has_its_recipe_where_there_are_many_images(monkeypatch, data_root, gpu, accelerator, many, recipe):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr("fslstm_plugin.training.configuration._MANY", many)
    assert recipe_for("dots", accelerator, data_root) == recipe


@pytest.mark.parametrize(
    ("sizes", "shares"), [([0.5, 1], [1]), ([0.5, 1], [0.5, 0.4]), ([], []), ([0], [1]), ([1.5], [1]), ([1], [-1])]
)
def test_sizes_without_their_shares_are_refused(tmp_path, sizes, shares):
    with pytest.raises(UsageError, match="sizes|shares"):
        pretrain_run(tmp_path / "run", sizes=sizes, shares=shares)


def test_frozen_blocks_learn_no_more_and_the_others_do(tmp_path, data_root, monkeypatch):
    seen = []

    def look(module, *_):
        first = module.backbone.blocks[0][1]
        weights = [block[0].weight.detach().clone() for block in module.backbone.blocks]
        seen.append((weights, first.running_mean.clone(), module.classifier.weight.detach().clone()))

    monkeypatch.setattr(Classification, "on_train_batch_start", look)
    run = pretrain_run(tmp_path / "run", backbone="conv4", batch_size=12, epochs=1, max_steps=8, freeze=[0.25, 0.5])
    pretrain(run, OPTIONS, data_root=data_root, console=QUIET)
    assert len(seen) == 8
    for step, (now, then) in enumerate(itertools.pairwise(seen)):
        same = [torch.equal(a, b) for a, b in zip(now[0], then[0], strict=True)]
        assert same == [step >= 2, step >= 4, False, False], "neither gradients, nor momentum, nor weight decay"
        assert not torch.equal(now[1], then[1]), "statistics for evaluation still follow"
        assert not torch.equal(now[2], then[2])


def test_what_cannot_be_frozen_is_refused(tmp_path, data_root):
    with pytest.raises(UsageError, match=r"frozen before the one below it, but got \(0.5, 0.25\)"):
        pretrain_run(tmp_path / "run", backbone="conv4", freeze=[0.5, 0.25])
    run = pretrain_run(tmp_path / "run", freeze=[0.5])
    with pytest.raises(UsageError, match="TinyBackbone has 0 blocks that can be frozen, but `freeze`"):
        pretrain(run, OPTIONS, data_root=data_root, console=QUIET)
    run = pretrain_run(tmp_path / "run", backbone="conv4", freeze=[0.5])
    for options in (EngineOptions("cpu", 2), EngineOptions("cpu", 1, num_nodes=2)):
        with pytest.raises(UsageError, match="`freeze` is for one device"):
            pretrain(run, options, data_root=data_root, console=QUIET)
    assert not run.path.exists()


def test_folders_of_images_can_be_pretrained_on(tmp_path, dots, data_root):
    from PIL import Image

    for label in range(3):
        folder = tmp_path / "images" / f"class{label}"
        folder.mkdir(parents=True)
        for number in range(8):
            Image.fromarray(dots.images[label * 30 + number].numpy()).save(folder / f"{number}.png")
    given = {"epochs": 2, "batch_size": 8, "lr": 0.05, "sizes": [0.5, 1], "shares": [0.5, 0.5]}
    config = pretrain_config("tiny", folder=tmp_path / "images", image_size=32, precision="32", given=given)
    run = Run(tmp_path / "run", config)
    pretrain(run, OPTIONS, workers=0, console=QUIET)
    assert torch.load(run.checkpoint, weights_only=True)["global_step"] == 6
    file = tmp_path / "images" / "class1" / "7.png"
    content, times = bytearray(file.read_bytes()), (file.stat().st_atime, file.stat().st_mtime)
    content[-1] ^= 1  # of equal name, size and times
    file.write_bytes(content)
    os.utime(file, times)
    with pytest.raises(RunError, match="the images"):
        pretrain(run, OPTIONS, workers=0, console=QUIET, resume=True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full to stand for a full disk")
def test_a_full_disk_is_named_and_the_last_checkpoint_stays(tmp_path, data_root, monkeypatch):
    run = meta_run(tmp_path / "run", max_steps=9)
    save = pl.Trainer.save_checkpoint

    def save_until_full(trainer, file):
        if trainer.global_step < 6:
            save(trainer, file)
            return
        with open("/dev/full", "w") as full:
            full.write("x" * 100_000)

    monkeypatch.setattr(pl.Trainer, "save_checkpoint", save_until_full)
    with pytest.raises(FSLSTMError, match="No space left on device"):
        train(run, OPTIONS, data_root=data_root, console=QUIET)
    assert torch.load(run.checkpoint, weights_only=True)["global_step"] == 3
    assert not list(run.path.glob("*.tmp")) + list(run.path.glob(".*.tmp"))


def test_places365_is_read_as_torchvision_lays_it_out(tmp_path, dots, monkeypatch):
    from PIL import Image
    from torchvision.datasets import Places365

    root = tmp_path / "places"
    names = ["/a/airfield", "/a/alley", "/b/beach"]
    (root / "data_256_standard").mkdir(parents=True)
    lines = []
    for label, name in enumerate(names):
        folder = root / "data_256_standard" / name[1:]
        folder.mkdir(parents=True)
        for number in range(5):
            Image.fromarray(dots.images[label * 30 + number].numpy()).resize((256, 256)).save(folder / f"{number}.jpg")
            lines.append(f"{name}/{number}.jpg {label}\n")
    (root / "categories_places365.txt").write_text("".join(f"{name} {i}\n" for i, name in enumerate(names)))
    (root / "places365_train_standard.txt").write_text("".join(lines))
    # The lists of three classes are not those whose checksums torchvision knows.
    monkeypatch.setattr(Places365, "_check_integrity", lambda *_: True)
    given = {"epochs": 1, "batch_size": 5, "lr": 0.05}
    config = pretrain_config("tiny", places=root, precision="32", given=given)
    run = Run(tmp_path / "run", config)
    pretrain(run, OPTIONS, workers=0, console=QUIET)
    state = torch.load(run.checkpoint, weights_only=True)
    assert state["global_step"] == 3
    assert state["state_dict"]["classifier.weight"].shape == (3, 16)


def test_a_damaged_image_of_a_folder_is_named(tmp_path):
    for label in range(2):
        folder = tmp_path / "images" / f"class{label}"
        folder.mkdir(parents=True)
        for number in range(4):
            (folder / f"{number}.png").write_bytes(b"not an image")
    given = {"epochs": 1, "batch_size": 4, "lr": 0.05}
    config = pretrain_config("tiny", folder=tmp_path / "images", image_size=32, precision="32", given=given)
    for workers in (0, 1):
        with pytest.raises(DataError, match=r"^The image \S*class\d/\d.png is damaged, or not an image [^\n]*$"):
            pretrain(Run(tmp_path / f"run{workers}", config), OPTIONS, workers=workers, console=QUIET)


def test_a_fault_of_writing_without_the_systems_words_is_told(tmp_path):
    run, checkpoints = SimpleNamespace(path=tmp_path), SimpleNamespace(started=False)
    told = pytest.raises(StorageError, match=r"Cannot write to \S*: broken\. Nothing was trained yet")
    with told, engine._explained(run, checkpoints, resume=False):
        raise OSError("broken")


def test_a_folder_of_one_class_is_refused(tmp_path, dots):
    from PIL import Image

    folder = tmp_path / "images" / "owl"
    folder.mkdir(parents=True)
    for number in range(4):
        Image.fromarray(dots.images[number].numpy()).save(folder / f"{number}.png")
    config = pretrain_config("tiny", folder=tmp_path / "images", image_size=32, precision="32", given={"batch_size": 4})
    with pytest.raises(DataError, match="at least two classes, but has owl"):
        pretrain(Run(tmp_path / "run", config), OPTIONS, workers=0, console=QUIET)
    assert not (tmp_path / "run").exists()


def test_episodes_that_devices_cannot_share_are_refused_before_a_folder_is_made(tmp_path, fslstm):
    result = fslstm(
        "train", "--dataset", "dots", "--backbone", "plain", "--episodes-per-step", 3, "--accelerator", "cpu",
        "--devices", 2, "--strategy", "ddp", "--runs", tmp_path / "runs",
    )  # fmt: skip
    assert result.code == 2
    assert "3 episodes per step cannot be shared equally by 2 devices" in result.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("seconds", "saved"), [(0, list(range(1, 9))), (3600, [8])])
def test_without_a_number_of_steps_checkpoints_are_apart_by_time(seconds, saved, monkeypatch, tmp_path, data_root):
    monkeypatch.setattr(engine, "SECONDS_BETWEEN_SAVES", seconds)
    steps, save = [], pl.Trainer.save_checkpoint

    def counted(trainer, *arguments, **options):
        steps.append(trainer.global_step)
        save(trainer, *arguments, **options)

    monkeypatch.setattr(pl.Trainer, "save_checkpoint", counted)
    train(meta_run(tmp_path / "a"), EngineOptions(accelerator="cpu"), data_root=data_root, console=QUIET)
    assert sorted(set(steps) - {0}) == saved


@pytest.mark.parametrize(("seconds", "epochs"), [(0, 3), (3600, 2)])
def test_weights_are_saved_at_first_at_last_and_a_minute_apart(seconds, epochs, monkeypatch, tmp_path, data_root):
    monkeypatch.setattr(classification, "SECONDS_BETWEEN_SAVES", seconds)
    saved, save = [], Run.save_weights
    monkeypatch.setattr(Run, "save_weights", lambda run, module: (saved.append(run), save(run, module)))
    config = pretrain_config("tiny", dataset="dots", given={"epochs": 3, "batch_size": 32})
    run = Run(tmp_path / "a", config)
    pretrain(run, EngineOptions(accelerator="cpu"), data_root=data_root, console=QUIET)
    assert len(saved) == epochs
    assert run.weights.is_file()

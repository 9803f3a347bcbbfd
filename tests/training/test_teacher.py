"""``fslstm pretrain --teacher``: an earlier network's answers are learned beside the labels."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fslstm_plugin.recipes import base_class_pretraining
from fslstm_plugin.runs.folder import Run
from fslstm_plugin.training.classification import Classification, Teacher

SHORT = ("--dataset", "dots", "--backbone", "tiny", "--batch-size", 16, "--accelerator", "cpu", "--precision", 32)


def test_the_divergence_is_that_of_the_probabilities_at_temperature_4() -> None:
    teacher, images, logits = Teacher(nn.Flatten()), torch.randn(5, 1, 1, 7), torch.randn(5, 7, requires_grad=True)
    wanted, found = ((each.flatten(1) / 4).softmax(-1) for each in (images, logits))
    expected = 16 * (wanted * (wanted.log() - found.log())).sum(-1).mean()
    divergence = teacher.divergence(images, logits)
    torch.testing.assert_close(divergence, expected)
    (gradient,) = torch.autograd.grad(divergence, logits)
    torch.testing.assert_close(gradient, 4 * (found - wanted) / 5)


def test_it_is_half_of_the_loss_and_no_part_of_the_module(monkeypatch) -> None:
    monkeypatch.setattr("fslstm_plugin.training.classification.is_logged", lambda *_: False)
    monkeypatch.setattr(Classification, "trainer", None)
    monkeypatch.setattr(Classification, "global_step", 0)
    monkeypatch.setattr("fslstm_plugin.recipes.PretrainRecipe.side", lambda recipe, size, progress: size)

    class Sums(nn.Module):
        out_features = 3

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images.mean((2, 3))

    teacher = Teacher(Classification(Sums(), 4, base_class_pretraining(32), 1))
    module = Classification(Sums(), 4, base_class_pretraining(32), 1, teacher.divergence)
    images, labels = torch.randn(6, 3, 8, 8), torch.arange(6) % 4
    logits = module(images)
    crossed = F.cross_entropy(logits, labels, label_smoothing=module.recipe.label_smoothing)
    expected = (crossed + teacher.divergence(images, logits)) / 2
    torch.testing.assert_close(module.training_step((images, labels), 0), expected)
    assert set(module.state_dict()) == {"classifier.weight", "classifier.bias"}
    assert not any(each.requires_grad for each in teacher.network.parameters())


def test_a_student_is_another_network_and_is_continued(fslstm, tmp_path: Path) -> None:
    options = (*SHORT, "--runs", tmp_path, "--max-steps", 3)
    assert fslstm("pretrain", *options, "--name", "first").code == 0
    for name, more in (("again", ("--teacher", "first")), ("alone", ())):
        done = fslstm("pretrain", *options, "--name", name, *more)
        assert done.code == 0, done.err
    first, again, alone = (Run.open(tmp_path / name) for name in ("first", "again", "alone"))
    assert again.config.teacher == str(first.path.absolute())
    assert all(torch.equal(one, other) for one, other in zip(*map(_weights, (first, alone)), strict=True))
    assert not all(torch.equal(one, other) for one, other in zip(*map(_weights, (first, again)), strict=True))
    kept = [torch.load(run.checkpoint, weights_only=True)["state_dict"].keys() for run in (again, first)]
    assert kept[0] == kept[1]
    assert fslstm("pretrain", "--resume", "--name", "again", "--runs", tmp_path).code == 0


def _weights(run: Run) -> list[torch.Tensor]:
    return list(run.load_weights().values())


@pytest.mark.parametrize(
    ("teacher", "more", "code", "words"),
    [
        ("nowhere", SHORT, 1, "nowhere"),
        ("builtin:cifar-fs-conv4", SHORT, 2, "must be a pretraining on dots"),
        ("bare", SHORT, 1, "has no last.ckpt"),
        ("torn", SHORT, 1, "is damaged"),
        ("first", ("--images", "pictures"), 2, "A --teacher is for a benchmark: leave it out, or name a --dataset."),
    ],
)
def test_what_cannot_teach_is_named(fslstm, tmp_path: Path, teacher, more, code, words) -> None:
    assert fslstm("pretrain", *SHORT, "--runs", tmp_path, "--max-steps", 1, "--name", "first").code == 0
    for name, content in (("bare", None), ("torn", b"torn")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_bytes((tmp_path / "first" / "config.json").read_bytes())
        if content is not None:
            (tmp_path / name / "last.ckpt").write_bytes(content)
    done = fslstm("pretrain", *more, "--runs", tmp_path, "--teacher", teacher, "--name", "again")
    assert (done.code, words in done.err, "Traceback" in done.err) == (code, True, False), done.err
    assert not (tmp_path / "again" / "model.safetensors").exists()

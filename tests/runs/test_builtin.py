"""The trained models that come with the package."""

import os
import shutil
from pathlib import Path

import pytest

from fslstm_plugin.data.root import data_root as root_of
from fslstm_plugin.errors import RunError
from fslstm_plugin.model import FewShotModel
from fslstm_plugin.registry import DATASETS
from fslstm_plugin.runs import builtin
from fslstm_plugin.runs.folder import Run

NAME = "builtin:cifar-fs-conv4"


def test_it_is_a_run_like_any_other_and_never_the_newest(tmp_path):
    run = Run.find(NAME, tmp_path)
    assert run.path == tmp_path / "builtin-cifar-fs-conv4"
    assert (run.config.dataset, run.config.backbone) == ("cifar-fs", "conv4")
    assert Run.newest(tmp_path) == run, "where there is no other"
    other = tmp_path / "other"
    other.mkdir()
    for file in ("config.json", "model.safetensors"):
        (other / file).write_bytes((run.path / file).read_bytes())
    os.utime(other / "model.safetensors", (1, 1))
    assert Run.find(NAME, tmp_path) == run
    assert Run.newest(tmp_path).path == other


def test_what_was_changed_is_never_taken_for_it(tmp_path):
    weights = Run.find(NAME, tmp_path).weights
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    with pytest.raises(RunError, match=r"model\.safetensors is not that of builtin:cifar-fs-conv4 in this version"):
        Run.find(NAME, tmp_path)
    weights.unlink()
    assert Run.find(NAME, tmp_path).load_weights(), "a copy that was stopped is completed"


def test_a_configuration_that_asks_for_what_there_is_not_is_named_by_its_file(tmp_path):
    run = Run.find(NAME, tmp_path)
    shutil.copytree(run.path, tmp_path / "other")
    file = tmp_path / "other" / "config.json"
    file.write_text(file.read_text().replace('"conv4"', '"conv5"'))
    with pytest.raises(
        RunError, match=rf"No model can be built from {file}: There is no backbone 'conv5'. Did you mean"
    ):
        FewShotModel.from_run(tmp_path / "other")


@pytest.mark.parametrize("words", [("eval", "nn"), ("tune", "lssvm"), ("reproduce", "ridge")])
def test_a_data_set_that_there_is_not_is_named_by_the_configuration(words, tmp_path, fslstm):
    shutil.copytree(Run.find(NAME, tmp_path).path, tmp_path / "other")
    file = tmp_path / "other" / "config.json"
    file.write_text(file.read_text().replace('"cifar-fs"', '"cifar-ft"'))
    done = fslstm(*words, "--run", tmp_path / "other")
    assert done.code == 1
    assert f"The images of {file} are not known here: There is no data set 'cifar-ft'. Did you mean" in done.err


def test_its_file_is_small_and_names_nothing_of_the_machine_that_made_it():
    for name in builtin.names():
        folder = Path(builtin.__file__).parent / name
        assert sum(file.stat().st_size for file in folder.iterdir()) < 6e6
        assert not Path(getattr(Run.open(folder).config, "pretrained", None) or "").is_absolute()


def test_commands_take_it_by_name(fslstm, succeed, tmp_path):
    unknown = fslstm("eval", "--run", "builtin:cifar-fs-conv", "--runs", tmp_path)
    assert unknown.code == 2
    assert "There is no packaged model 'cifar-fs-conv'. Did you mean 'cifar-fs-conv4'?" in unknown.err
    asked = ("--runs", tmp_path, "--dataset", "dots", "--episodes", 10, "--shots", 5)
    result = succeed("compare", "nn", "lssvm", "--run", NAME, *asked)
    assert "builtin-cifar-fs-conv4: Dots test, conv4" in result.out
    few = ("--epochs", 1, "--steps-per-epoch", 1, "--episodes-per-step", 1, "--queries", 1, "--val-episodes", 2)
    succeed("train", "--pretrained", NAME, "--dataset", "dots", "--runs", tmp_path, *few)


@pytest.mark.skipif(
    not DATASETS.get("cifar-fs").is_prepared(root_of(None)), reason="needs CIFAR-FS, prepared by 'fslstm data prepare'"
)
@pytest.mark.parametrize(("name", "least"), [(NAME, 76), (f"{NAME}-gpu", 78)])
def test_it_knows_classes_that_it_never_saw(monkeypatch, tmp_path, name, least):
    """On real images, where there are some; every other test is on drawings."""
    import json

    from fslstm_cli.main import run

    monkeypatch.setattr("sys.argv", ["fslstm", "compare", "lssvm", "--run", name, "--runs", str(tmp_path), "--episodes",
                                     "200", "--shots", "5", "--json", str(tmp_path / "rows.json")])  # fmt: skip
    with pytest.raises(SystemExit) as stop:
        run()
    assert not stop.value.code
    (row,) = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert row["accuracy"] > least

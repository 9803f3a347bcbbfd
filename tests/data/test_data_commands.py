"""``fslstm data``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fslstm_cli.data import app
from typer.testing import CliRunner

from fslstm_plugin.data.root import data_root
from fslstm_plugin.data.sets import glyphs
from fslstm_plugin.errors import DataError, UnknownNameError, UsageError


def call(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=True)


def test_prepare_and_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glyphs, "IMAGES_PER_CLASS", 6)
    monkeypatch.setattr(glyphs.Glyphs, "images_per_class", 6)
    prepared = call("prepare", "glyphs", "--data-root", tmp_path)
    assert prepared.exit_code == 0, prepared.output
    assert f"Glyphs is prepared in {tmp_path}" in prepared.stderr
    (tmp_path / "a\nb").symlink_to(tmp_path)
    assert "already prepared in " in (again := call("prepare", "glyphs", "--data-root", tmp_path / "a\nb").stderr)
    assert r"a\nb" in again
    assert again.count("\n") == 1
    listed = call("list", "--data-root", tmp_path, "--json", tmp_path / "rows.json")
    assert listed.exit_code == 0, listed.output
    assert "384" in listed.stdout
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [row["prepared"] for row in rows] == [True] * 3 + [False] * (len(rows) - 3)
    present = [row for row in rows if row["prepared"]]
    assert [(row["split"], row["classes"], row["images"]) for row in present] == [
        ("train", 64, 384),
        ("val", 16, 96),
        ("test", 20, 120),
    ]
    assert {row["path"] for row in present} == {str(tmp_path / "fslstm" / "glyphs")}
    assert {"cifar-fs", "mini", "fc100", "tiered"} <= {row["dataset"] for row in rows if not row["prepared"]}


def test_list_tells_what_is_damaged_and_removes_what_was_left(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(glyphs, "IMAGES_PER_CLASS", 1)
    monkeypatch.setattr(glyphs.Glyphs, "images_per_class", 1)
    call("prepare", "glyphs", "--data-root", tmp_path)
    (tmp_path / "fslstm" / "glyphs" / "index.json").write_text("{}")
    left = tmp_path / "cifarfs" / ".cifar100.partial"
    left.mkdir(parents=True)
    listed = call("list", "--data-root", tmp_path)
    assert listed.stdout.count("damaged or of") == 1
    assert not left.parent.exists()


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (["glyfs"], UnknownNameError, "Did you mean 'glyphs'"),
        (["mini", "--archive", "a", "--from", "b"], UsageError, "cannot be used together"),
        (["mini", "--from", "nowhere"], DataError, "The source nowhere of miniImageNet is not there"),
        (["glyphs", "--from", "."], UsageError, "take no archive or folder"),
        (["mini"], DataError, "fslstm data prepare mini --from DIR"),
    ],
)
def test_errors_name_what_is_wrong(tmp_path: Path, arguments: list[str], error: type[Exception], words: str) -> None:
    result = call("prepare", *arguments, "--data-root", tmp_path / "root")
    assert isinstance(result.exception, error)
    assert words in str(result.exception)


def test_help_imports_neither_torch_nor_learn2learn() -> None:
    code = "import sys, fslstm_cli.data; print(sorted({'torch', 'learn2learn', 'numpy'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
    for command in ("prepare", "list"):
        assert "Examples" in call(command, "--help").stdout


def test_a_home_folder_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FSLSTM_DATA_ROOT", raising=False)
    with pytest.raises(UsageError, match=r"no home folder for ~nobody-of-that-name.*`data_root`"):
        data_root(Path("~nobody-of-that-name/data"))

"""Files that commands write: an earlier one of the same kind is replaced, anything else stays."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fslstm_cli.summary import Summary

from fslstm_plugin.pictures.predictions import NONE, Prediction

CONFIG = json.dumps({"kind": "pretrain", "backbone": "conv4"})
COCO = json.dumps({"images": [], "annotations": []})
KINDS = {
    "--json": (CONFIG, COCO, "[]", "name: x"),
    "--csv": ("path,label\n",),
    "--latex": ("\\documentclass{article}",),
    "--chart": ("%PDF-1.4 a thesis",),
}


@pytest.fixture
def command(tmp_path):
    numbers = np.random.default_rng(0).normal(size=(60, 4)).astype("float32")
    np.savez(tmp_path / "f.npz", features=numbers, labels=np.repeat(np.arange(6), 10))
    return ("eval", "nn", "--features", tmp_path / "f.npz", "--episodes", 5, "--shots", 1, "--queries", 3)


@pytest.mark.parametrize("option", KINDS)
def test_only_an_earlier_file_of_the_same_kind_is_replaced(option, command, fslstm, tmp_path):
    file = tmp_path / "out.pdf"
    for _ in range(2):
        done = fslstm(*command, option, file)
        assert done.code == 0, done.err
    for content in KINDS[option]:
        file.write_text(content)
        done = fslstm(*command, option, file)
        assert (done.code, done.out) == (2, "")
        assert "already exists and is no" in done.err
        assert file.read_text() == content


def test_a_dash_is_no_file(command, fslstm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for option, advice in (("--json", "name one, or /dev/stdout."), ("--chart", "name one.")):
        done = fslstm(*command, option, "-")
        assert (done.code, done.out, Path("-").exists()) == (2, "", False)
        assert done.err.endswith(f"got -: {advice}\n")


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="a device of POSIX systems")
def test_a_pipe_as_the_standard_output_takes_one_file_and_is_not_replaced(command, tmp_path):
    arguments = [sys.executable, "-m", "fslstm_cli", *map(str, command)]
    for files, said in (
        (
            ("--json", "/dev/stdout", "--csv", "/dev/stdout"),
            "is named for two outputs, and one would replace the other",
        ),
        (("--chart", "/dev/stdout"), "is no regular file, and is not replaced"),
    ):
        done = subprocess.run([*arguments, *files], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert done.stderr == f"fslstm: /dev/stdout {said}: name another file.\n"
    nowhere = ("--json", os.devnull, "--csv", os.devnull)
    subprocess.run([*arguments, *nowhere], check=True, stdout=subprocess.DEVNULL)


def test_every_command_writes_json_that_it_may_write_again(command, fslstm, tmp_path, data_root):
    for arguments in (command, ("data", "list", "--data-root", data_root)):
        for _ in range(2):
            done = fslstm(*arguments, "--json", tmp_path / "r.json")
            assert done.code == 0, done.err
            assert done.out.endswith(f"Written: {tmp_path / 'r.json'}.\n")
        assert list(json.loads((tmp_path / "r.json").read_text()))[:3] == ["command", "version", "date"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_disk_under_what_is_printed_is_named():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "fslstm_cli", "data", "list"], stdout=full, stderr=subprocess.PIPE, text=True,
            check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "fslstm: The operating system refused: No space left on device (the standard output).\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_all_files_that_cannot_be_written_are_named(command, fslstm, tmp_path):
    (tmp_path / "link").symlink_to("/dev/full")
    done = fslstm(*command, "--json", "/dev/full", "--csv", tmp_path / "link", "--latex", tmp_path / "t.tex")
    full = [f"Cannot write {place}: No space left on device." for place in ("/dev/full", tmp_path / "link")]
    assert (done.code, done.err) == (1, f"fslstm: {' '.join(full)}\n")
    assert re.findall("Written: .*", done.out) == [f"Written: {tmp_path / 't.tex'}."]
    assert (tmp_path / "t.tex").exists()


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (("fit", "labelled"), "-o"), (("update", "m.fslstm", "--forget", "a"), "-o"), (("eval",), "--chart"),
        (("predict", "m.fslstm", "new"), "--csv"), (("export", "m.fslstm"), "--onnx"),
    ],
)  # fmt: skip
def test_what_takes_a_regular_file_only_says_so_at_once(command, option, fslstm, tmp_path):
    place = tmp_path / "place.svg"
    os.mkfifo(place)
    done = fslstm(*command, option, place)
    said = f"fslstm: {place} is no regular file, and is not replaced: name another file.\n"
    assert (done.code, done.out, done.err) == (2, "", said)
    assert place.is_fifo()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_files_are_written_although_nothing_can_be_printed(tmp_path):
    arguments = [sys.executable, "-m", "fslstm_cli"]
    printed = {"stdout": subprocess.DEVNULL, "check": True, "cwd": tmp_path}
    subprocess.run([*arguments, "fit", "--sample", "-o", "m.fslstm"], **printed)
    said = "No space left on device (the standard output).\n"
    for command, files in (
        (("predict", "m.fslstm", "sample/new"), {"--json": "p.json", "--html": "g.html", "--sort-into": "sorted"}),
        (("show", "m.fslstm"), {"--json": "s.json"}),
    ):
        options = [word for pair in files.items() for word in pair]
        for redirected in (">/dev/full", ">/dev/full 2>&1", "2>&1 | exec true"):
            line = f"set -o pipefail; {shlex.join([*arguments, *command, *options])} {redirected}"
            done = subprocess.run(["bash", "-c", line], cwd=tmp_path, stderr=subprocess.PIPE, text=True, check=False)
            assert (done.returncode, done.stderr.endswith(said)) == (1, redirected == ">/dev/full"), done.stderr
            for place in map(tmp_path.joinpath, files.values()):
                assert place.exists(), (redirected, place.name)
                shutil.rmtree(place) if place.is_dir() else place.unlink()


def test_data_sets_that_are_not_prepared_have_a_line_each(fslstm, tmp_path):
    listed = fslstm("data", "list", "--data-root", tmp_path)
    assert listed.code == 0, listed.err
    lines = [line for line in listed.out.splitlines() if "not prepared" in line]
    assert len(lines) == len({line.split()[1] for line in lines}) > 3
    for place in (tmp_path / "none", "/dev/null"):
        refused = fslstm("data", "list", "--data-root", place)
        assert (refused.code, refused.out) == (2, "")
        assert f"there is no folder {place}" in refused.err


def test_a_table_is_whole_on_the_narrowest_terminal(fslstm, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    shown = fslstm("data", "list").out
    assert "…" not in shown
    assert {"glyphs-84", "classes", "images", "size"} <= set(shown.split())


def test_no_mean_stands_beside_pictures_of_no_class(capsys) -> None:
    found = [
        Prediction(f"{place}.png", label, "a", 0.75, 0.5, None, "") for place, label in enumerate(["a", NONE] * 13)
    ]
    Summary.of(found, ["a"]).show(found, sets=False, sure=False, source=Path(), calibrated=True)
    means = re.findall(r"│ +(\S+) │$", capsys.readouterr().out, re.MULTILINE)
    assert means == ["75", "–"]

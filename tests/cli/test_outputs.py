"""Files that commands write: an earlier one of the same kind is replaced, anything else stays."""

from __future__ import annotations

import json

import numpy as np
import pytest

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


def test_every_command_writes_json_that_it_may_write_again(command, fslstm, tmp_path, data_root):
    for arguments in (command, ("data", "list", "--data-root", data_root)):
        for _ in range(2):
            done = fslstm(*arguments, "--json", tmp_path / "r.json")
            assert done.code == 0, done.err
        assert list(json.loads((tmp_path / "r.json").read_text()))[:2] == ["command", "version"]

"""Weights files: what is read is what was written, and killed writers leave nothing for good."""

from __future__ import annotations

import json
import os
import random
import signal
import struct

import pytest
import torch
from safetensors.torch import save_file

from fslstm_plugin.errors import RunError
from fslstm_plugin.storage.files import held
from fslstm_plugin.storage.weights import load_described, load_into, load_tensors, save_tensors

TENSORS = {
    "weight": torch.arange(40.0).reshape(8, 5),
    "half": torch.ones(3, dtype=torch.bfloat16),
    "count": torch.tensor(7),
    "none": torch.zeros(0, 2),
    "yes": torch.tensor([True, False]),
}


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert value.dtype == other[name].dtype
        assert torch.equal(value, other[name])


def test_tensors_come_back(tmp_path):
    save_tensors(tmp_path / "a.safetensors", TENSORS)
    assert_equal(load_tensors(tmp_path / "a.safetensors"), TENSORS)


def test_the_same_content_is_the_same_bytes(tmp_path):
    texts = {name: f"{name} ü" for name in "hgfedcba"}
    for number in range(4):
        save_tensors(tmp_path / str(number), TENSORS, texts)
    assert len({file.read_bytes() for file in tmp_path.iterdir()}) == 1
    tensors, found = load_described(tmp_path / "0")
    assert_equal(tensors, TENSORS)
    assert found == texts


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_flipped_bits_of_the_numbers_are_seen(suffix, tmp_path):
    file, marks = tmp_path / f"a{suffix}", torch.full((500,), 1.234)
    if suffix == ".safetensors":
        save_tensors(file, {"marks": marks})
    else:
        torch.save({"marks": marks}, file)
    whole, draw = file.read_bytes(), random.Random(0)
    begin = whole.index(marks.numpy().tobytes())
    for count in (1, 1, 1, 30):
        content = bytearray(whole)
        for place in draw.sample(range(begin, begin + 2000), count):
            content[place] ^= 1 << draw.randrange(8)
        file.write_bytes(content)
        with pytest.raises(RunError, match=r"is damaged or not a weights file \(its content does not fit its checksum"):
            load_tensors(file)


def test_a_changed_head_of_the_file_is_seen(tmp_path):
    """Two names, or a type, are exchanged without touching a number."""
    file = tmp_path / "a.safetensors"
    save_tensors(file, {"a": torch.zeros(4), "b": torch.ones(4)})
    content = file.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    head = json.loads(content[8 : 8 + length])
    exchanged = {**head, "a": head["b"], "b": head["a"]}
    retyped = {**head, "a": {**head["a"], "dtype": "I32"}}
    for changed in (exchanged, retyped):
        text = json.dumps(changed, separators=(",", ":")).encode().ljust(length)
        file.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])
        with pytest.raises(RunError, match="does not fit its checksum"):
            load_tensors(file)


def test_files_of_others_need_no_checksum(tmp_path):
    save_file(TENSORS, tmp_path / "a.safetensors")
    assert_equal(load_tensors(tmp_path / "a.safetensors"), TENSORS)
    for options in ({"_use_new_zipfile_serialization": False}, {}):
        torch.save(TENSORS, tmp_path / "a.pth", **options)
        assert_equal(load_tensors(tmp_path / "a.pth"), TENSORS)
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(TENSORS, tmp_path / "b.pth")
    finally:
        torch.serialization.set_crc32_options(True)
    assert_equal(load_tensors(tmp_path / "b.pth"), TENSORS)


def test_a_tensor_that_is_expanded_beyond_memory_is_refused_by_its_shape(tmp_path):
    file = tmp_path / "small.pth"
    torch.save({"weight": torch.zeros(1).expand(2**20, 2**16), "bias": torch.zeros(1).expand(2**36)}, file)
    assert file.stat().st_size < 10_000
    with pytest.raises(RunError, match=r"of another shape: bias \(68719476736,\) instead of \(2,\), weight"):
        load_into(torch.nn.Linear(3, 2), load_tensors(file), file)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_writer_that_is_killed_leaves_nothing_for_good(tmp_path):
    import resource

    process = os.fork()
    if not process:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))  # the system kills it in the middle of the file
        save_tensors(tmp_path / "model.safetensors", {"weight": torch.zeros(5000)})
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGXFSZ
    assert len(list(tmp_path.iterdir())) == 1
    with held(tmp_path, 1, RunError("Another process has it.")):
        assert [file.name for file in tmp_path.iterdir()] == [".lock"]

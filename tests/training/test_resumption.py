"""A training that is killed at any moment and continued ends bit for bit as if it had not been.

    pytest tests/training/test_resumption.py --kills 20

kills more often than the default of once for each kind of training and of moment.
"""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks, so that a training starts without imports")

COMMON = (
    "--dataset", "dots", "--backbone", "tiny", "--max-steps", 8, "--checkpoint-every", 3, "--seed", 3,
    "--accelerator", "cpu", "--devices", 1, "--precision", "32",
)  # fmt: skip
START = {
    "train": (
        "train", *COMMON, "--algorithm", "lssvm+iam(reduction=4)", "--steps-per-epoch", 5, "--episodes-per-step", 2,
        "--shots", 2, "--queries", 3, "--val-episodes", 10,
    ),
    # The images grow within an epoch, and a second time where another begins.
    "pretrain": (
        "pretrain", *COMMON, "--batch-size", 48, "--size", 0.5, "--share", 0.25, "--size", 0.75, "--share", 0.375,
        "--size", 1, "--share", 0.375,
    ),
    "pretrain-frozen": (
        "pretrain", *COMMON, "--backbone", "conv4", "--batch-size", 8, "--freeze", 0.3, "--freeze", 0.6,
    ),
    # Every epoch is a single step; images come from files, by way of worker processes.
    "pretrain-folder": (
        "pretrain", "--images", "IMAGES", *COMMON[2:], "--image-size", 32, "--batch-size", 20, "--epochs", 8,
        "--workers", 1,
    ),
}  # fmt: skip


class Moments:
    """Counts the function calls and returns, of Python and C alike, and sends a signal at one of them.

    Args:
        number: The signal.
        at: The event; none by default.
        writing: Whether to count only while a checkpoint, weights or metrics are being written.
    """

    def __init__(self, number: int = 0, at: int = -1, writing: bool = False) -> None:
        self.number, self.at, self.writing = number, at, writing
        self.count = self.depth = 0

    def __call__(self, frame, event, _) -> None:
        if frame.f_code.co_name in ("_save", "save_weights", "create"):
            self.depth += {"call": 1, "return": -1}.get(event, 0)
        if self.depth or not self.writing:
            self.count += 1
            if self.count == self.at:
                sys.setprofile(None)
                os.kill(os.getpid(), self.number)


def tear_writes(at: int) -> None:
    """The process dies in the middle of its n-th write of a file."""
    from fslstm_plugin.storage import files

    count = 0

    def sync(path: Path) -> None:
        nonlocal count
        count += 1
        if count == at:
            os.truncate(path, path.stat().st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    files.sync = sync


class Trainings:
    """Starts the command line in forked processes, where nothing has to be imported."""

    def __init__(self, runs: Path, data_root: Path, images: Path) -> None:
        self.logs = runs
        import fslstm_cli.main
        import learn2learn.data  # noqa: F401

        import fslstm_plugin.training.meta_training
        import fslstm_plugin.training.pretraining  # noqa: F401

        self.runs, self.data_root, self.images = runs, data_root, images
        self.entry = fslstm_cli.main.run

    def fork(self, kind: str, name: str, prepare=lambda: None, finish=lambda: None) -> int:
        """Start the training, or continue it once there is one: the process."""
        options = ("--runs", self.runs, "--name", name, "--data-root", self.data_root)
        if (self.runs / name / "config.json").exists():
            arguments = (START[kind][0], "--resume", *options, "--accelerator", "cpu", "--devices", 1)
            arguments += ("--checkpoint-every", 3)
        else:
            arguments = (*(self.images if word == "IMAGES" else word for word in START[kind]), *options)
        process = os.fork()
        if process:
            return process
        code = 99
        try:
            log = os.open(self.logs / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))  # not pytest's
            torch.set_num_threads(1)
            sys.argv = ["fslstm", *map(str, arguments)]
            prepare()
            try:
                self.entry()
            except SystemExit as end:
                code = int(end.code or 0)
            except BaseException:
                traceback.print_exc()
                raise
            finally:
                sys.setprofile(None)
                finish()
        finally:
            with suppress(OSError):
                sys.stderr.flush()
            os._exit(code)

    def wait(self, process: int) -> int:
        """Its exit code, negative for a signal."""
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

    def run(self, kind: str, name: str, moments: Moments | None = None) -> int:
        """Start or continue, and wait for the end."""
        return self.wait(self.fork(kind, name, lambda: sys.setprofile(moments) if moments else None))

    def finish(self, kind: str, name: str) -> None:
        """Continue to the end, and compare it with the training that nothing disturbed."""
        assert self.run(kind, name) == 0, self.log(name)
        assert_same_end(self.logs / kind, self.runs / name)

    def on(self, disk: Path) -> Trainings:
        """The same with the run folders on another disk."""
        other = copy.copy(self)
        other.runs = disk
        return other

    def log(self, name: str) -> str:
        return (self.logs / f"{name}.log").read_text()


def assert_same_end(whole: Path, other: Path) -> None:
    """Bit for bit the same state, weights and metrics."""
    states = [torch.load(folder / "last.ckpt", weights_only=True) for folder in (whole, other)]
    for state in states:
        del state["loops"]  # Lightning's counts of hooks, which differ; epoch and step are beside it
    assert_equal(*states)
    assert_equal(*(load_file(folder / "model.safetensors") for folder in (whole, other)))
    assert (whole / "metrics.csv").read_text() == (other / "metrics.csv").read_text()
    assert not list(other.glob(".*.tmp"))


def assert_equal(one, other, path="state"):
    assert type(one) is type(other), path
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype, path
        assert torch.equal(one, other), path
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for key in one:
            assert_equal(one[key], other[key], f"{path}.{key}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), path
        for number, (left, right) in enumerate(zip(one, other, strict=True)):
            assert_equal(left, right, f"{path}.{number}")
    else:
        assert one == other, path


@pytest.fixture(scope="module")
def trainings(tmp_path_factory, data_root) -> Trainings:
    from fslstm_dots import DOTS
    from PIL import Image

    images = tmp_path_factory.mktemp("images")
    split = DOTS.load(data_root, "train")
    for number in range(20):
        (images / f"class{number % 2}").mkdir(exist_ok=True)
        Image.fromarray(split.images[number * 10].numpy()).save(images / f"class{number % 2}" / f"{number}.png")
    return Trainings(tmp_path_factory.mktemp("runs"), data_root, images)


@pytest.fixture(scope="module")
def lengths(trainings) -> dict[str, dict[str, float]]:
    """The trainings that nothing disturbs, and how many moments and seconds each has."""
    found = {}
    for kind in START:
        everything, writing = Moments(), Moments(writing=True)
        counts = trainings.runs / f"{kind}.counts"

        def both(*event, counters=(everything, writing)):
            for counter in counters:
                counter(*event)

        def tell(counters=(everything, writing), counts=counts):
            counts.write_text(" ".join(str(counter.count) for counter in counters))

        began = time.monotonic()
        assert trainings.wait(trainings.fork(kind, kind, lambda both=both: sys.setprofile(both), tell)) == 0
        whole, writes = map(int, counts.read_text().split())
        assert whole > writes > 100
        found[kind] = {"any": whole, "writing": writes, "seconds": time.monotonic() - began}
    return found


def pytest_generate_tests(metafunc):
    if "kill" in metafunc.fixturenames:
        metafunc.parametrize("kill", range(metafunc.config.getoption("kills")))


@pytest.mark.parametrize("when", ["any", "writing", "torn", "clock"])
@pytest.mark.parametrize("kind", START)
def test_a_killed_training_continues_bit_for_bit(kind, when, kill, trainings, lengths):
    draw, name = random.Random(f"{kind}{when}{kill}"), f"{kind}-{when}-{kill}"
    for _ in range(draw.randint(1, 3)):  # killed, continued, killed again
        if when == "torn":
            code = trainings.wait(trainings.fork(kind, name, lambda: tear_writes(draw.randint(1, 8))))
        elif when == "clock":
            process = trainings.fork(kind, name)
            time.sleep(draw.uniform(0, lengths[kind]["seconds"]))
            os.kill(process, signal.SIGKILL)
            code = trainings.wait(process)
        else:
            at = draw.randrange(int(lengths[kind][when]))
            code = trainings.run(kind, name, Moments(signal.SIGKILL, at, when == "writing"))
        # The kill may have met a process that decodes images.
        assert code in (0, -signal.SIGKILL) or "decodes images was killed" in trainings.log(name), trainings.log(name)
    trainings.finish(kind, name)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("kind", ["train", "pretrain"])
def test_a_stopped_training_continues_bit_for_bit(kind, number, kill, trainings, lengths):
    draw, name = random.Random(f"{kind}{number}{kill}"), f"{kind}-{number.name}-{kill}"
    at = draw.randrange(int(lengths[kind]["any"]))
    code = trainings.run(kind, name, Moments(number, at))
    stopped = {signal.SIGINT: (130, 1), signal.SIGTERM: (75, 143, -signal.SIGTERM)}[number]
    assert code in (0, *stopped), trainings.log(name)  # the others before and after the command itself
    trainings.finish(kind, name)


def at_step(step: int, act: Callable[[], object]) -> None:
    """Do something within a step, as from outside."""
    from fslstm_plugin.training.engine import FiniteLoss

    look = FiniteLoss.on_train_batch_end

    def on_train_batch_end(self, trainer, *rest):
        look(self, trainer, *rest)
        if trainer.global_step == step:
            act()

    FiniteLoss.on_train_batch_end = on_train_batch_end


def stop_in(step: int, number: int, times: int = 1) -> None:
    """Send a signal within a step."""
    at_step(step, lambda: [os.kill(os.getpid(), number) for _ in range(times)])


@pytest.mark.parametrize(
    ("kind", "number", "step", "code"),
    [
        ("train", signal.SIGTERM, 4, 75),
        ("train", signal.SIGTERM, 5, 75),  # the end of an epoch
        ("train", signal.SIGINT, 8, 130),  # the last
        ("pretrain", signal.SIGTERM, 8, 75),
        ("pretrain", signal.SIGUSR1, 5, 75),
        ("pretrain-folder", signal.SIGINT, 7, 130),
    ],
)
def test_a_signal_saves_and_has_its_exit_code(kind, number, step, code, trainings, lengths):
    name = f"{kind}-{number.name}-at-{step}"
    assert trainings.wait(trainings.fork(kind, name, lambda: stop_in(step, number))) == code, trainings.log(name)
    advice = f"Continue with fslstm {kind.split('-')[0]} --resume --runs {trainings.runs} --name {name}."
    assert f"Stopped at step {step}; everything is saved. {advice}" in trainings.log(name)
    assert torch.load(trainings.runs / name / "last.ckpt", weights_only=True)["global_step"] == step
    trainings.finish(kind, name)


def test_a_second_ctrl_c_stops_at_once(trainings, lengths):
    process = trainings.fork("train", "twice", lambda: stop_in(5, signal.SIGINT, times=2))
    assert trainings.wait(process) == 130
    assert "Stopped at once. Continue from the last checkpoint with fslstm train --resume" in trainings.log("twice")
    assert "Traceback" not in trainings.log("twice")
    assert torch.load(trainings.runs / "twice" / "last.ckpt", weights_only=True)["global_step"] == 3
    trainings.finish("train", "twice")


def die_decoding() -> None:
    """From the next epoch on, the process that decodes images is killed at once."""
    from fslstm_plugin.training import image_folders

    image_folders.read_rgb = lambda _: os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_that_decodes_images_is_told(trainings, lengths):
    process = trainings.fork("pretrain-folder", "workers", lambda: at_step(5, die_decoding))
    assert trainings.wait(process) == 1, trainings.log("workers")
    assert "A process that decodes images was killed" in trainings.log("workers")
    assert "Traceback" not in trainings.log("workers")
    assert "continue with fslstm pretrain --resume" in trainings.log("workers")
    trainings.finish("pretrain-folder", "workers")


def test_a_finished_training_can_be_continued_to_the_same_end(trainings, lengths):
    before = (trainings.runs / "pretrain" / "metrics.csv").read_bytes()
    trainings.finish("pretrain", "pretrain")
    assert (trainings.runs / "pretrain" / "metrics.csv").read_bytes() == before


def test_a_second_training_in_the_same_folder_is_refused(trainings, lengths, monkeypatch):
    from fslstm_plugin.runs import folder as runs

    monkeypatch.setattr(runs, "_LOCK_SECONDS", 0.1)
    first = trainings.fork("train", "held", lambda: stop_in(6, signal.SIGSTOP))
    os.waitpid(first, os.WUNTRACED)
    for _ in range(2):  # a new one and a continued one
        assert trainings.run("train", "held") == 1
    assert trainings.log("held").count("Another training is running in") == 2
    os.kill(first, signal.SIGKILL)
    assert trainings.wait(first) == -signal.SIGKILL
    trainings.finish("train", "held")


def stopped_at_3(trainings: Trainings, kind: str, name: str) -> Path:
    """Folder of a training that can be continued."""
    assert trainings.wait(trainings.fork(kind, name, lambda: stop_in(3, signal.SIGTERM))) == 75, trainings.log(name)
    return trainings.runs / name


def assert_refused(trainings: Trainings, kind: str, name: str, reason: str) -> None:
    """In one sentence, and the folder is as it was."""
    before = {file.name: file.read_bytes() for file in (trainings.runs / name).iterdir() if file.is_file()}
    assert {"last.ckpt", "metrics.csv"} < before.keys()
    assert trainings.run(kind, name) == 1, trainings.log(name)
    last = trainings.log(name).splitlines()[-1]
    assert last.startswith(f"fslstm: The training cannot continue from {trainings.runs / name / 'last.ckpt'}")
    assert reason in last
    assert before == {file.name: file.read_bytes() for file in (trainings.runs / name).iterdir() if file.is_file()}


def test_one_flipped_bit_of_a_checkpoint_is_seen(trainings, lengths):
    """PyTorch itself reads such a file without a word."""
    folder = stopped_at_3(trainings, "pretrain", "flipped")
    whole = (folder / "last.ckpt").read_bytes()
    weights = torch.load(folder / "last.ckpt", weights_only=True)["state_dict"]["classifier.weight"]
    mantissa = whole.index(weights.numpy().tobytes())  # its lowest byte
    (folder / "last.ckpt").write_bytes(whole[:mantissa] + bytes([whole[mantissa] ^ 1]) + whole[mantissa + 1 :])
    torch.load(folder / "last.ckpt", weights_only=True)
    assert_refused(trainings, "pretrain", "flipped", "does not fit its checksum")
    (folder / "last.ckpt").write_bytes(whole)
    trainings.finish("pretrain", "flipped")


@pytest.mark.parametrize(("part", "value"), [("lr", 0.123), ("queries", 4)])
def test_a_configuration_that_changed_is_refused(part, value, trainings, lengths):
    name = f"changed-{part}"
    file = stopped_at_3(trainings, "train", name) / "config.json"
    config = json.loads(file.read_text())
    assert config["recipe"][part] != value
    file.write_text(json.dumps({**config, "recipe": {**config["recipe"], part: value}}))
    assert_refused(trainings, "train", name, "config.json changed since it began. Undo that, or start a new run.")
    file.write_text(json.dumps(dict(reversed(config.items()))))  # written differently, but it says the same
    trainings.finish("train", name)


@pytest.mark.parametrize("kind", ["train", "pretrain"])
def test_a_training_does_not_write_to_the_folder_of_another(kind, trainings, lengths):
    """Its own was deleted, and the name given to a new one."""
    name = f"{kind}-replaced"
    folder = trainings.runs / name

    def replace() -> None:
        shutil.rmtree(folder)
        folder.mkdir()
        (folder / ".lock").touch()

    assert trainings.wait(trainings.fork(kind, name, lambda: at_step(4, replace))) == 1
    assert trainings.log(name).splitlines()[-1].startswith(f"fslstm: {folder} was removed or replaced while this")
    assert "Traceback" not in trainings.log(name)
    assert [file.name for file in folder.iterdir()] == [".lock"]


@pytest.fixture
def disk(tmp_path):
    """A small file system of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder]
    if not sys.platform.startswith("linux") or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a file system")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def fill(disk: Path) -> None:
    with suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1000))


def remount(disk: Path, mode: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{mode}", disk], check=True)


def test_a_disk_that_fills_up_is_named_and_the_last_state_is_intact(trainings, lengths, disk):
    here = trainings.on(disk)
    assert here.wait(here.fork("train", "full", lambda: at_step(5, lambda: fill(disk)))) == 1
    assert_told(here, "full", "No space left on device")
    (disk / "filler").unlink()
    here.finish("train", "full")


def test_a_read_only_disk_is_named_and_the_last_state_is_intact(trainings, lengths, disk):
    here = trainings.on(disk)
    assert here.wait(here.fork("train", "read-only", lambda: stop_in(3, signal.SIGTERM))) == 75
    remount(disk, "ro")
    for name in ("read-only", "new"):
        assert here.run("train", name) == 1
        assert f"Cannot write to {disk / name}: Read-only file system" in here.log(name)
        assert "Traceback" not in here.log(name)
    assert torch.load(disk / "read-only" / "last.ckpt", weights_only=True)["global_step"] == 3
    remount(disk, "rw")
    here.finish("train", "read-only")


def limit_files() -> None:
    """No file may become longer than this, as on a full disk."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))


@pytest.mark.parametrize("fault", ["limit", "gone"])
@pytest.mark.parametrize("kind", ["train", "pretrain"])
def test_a_refused_write_is_named_and_the_last_state_is_intact(kind, fault, trainings, lengths):
    name = f"{kind}-{fault}"
    folder, elsewhere = trainings.runs / name, trainings.runs / f"{name}-elsewhere"
    fail = {"limit": limit_files, "gone": lambda: folder.rename(elsewhere)}[fault]
    assert trainings.wait(trainings.fork(kind, name, lambda: at_step(5, fail))) == 1
    if fault == "gone":
        assert not folder.exists()
        elsewhere.rename(folder)
    assert_told(trainings, name, {"limit": "File too large", "gone": "No such file or directory"}[fault])
    trainings.finish(kind, name)


def assert_told(trainings: Trainings, name: str, reason: str) -> None:
    """One sentence with the path, the reason and what to do; the last checkpoint is whole."""
    (line,) = (line for line in trainings.log(name).splitlines() if line.startswith("fslstm: "))
    kind = "pretrain" if name.startswith("pretrain") else "train"
    advice = f"continue with fslstm {kind} --resume --runs {trainings.runs} --name {name}"
    for words in (f"Cannot write {trainings.runs / name}", reason, advice):
        assert words in line
    assert "Traceback" not in trainings.log(name)
    state = torch.load(trainings.runs / name / "last.ckpt", weights_only=True)
    assert state["global_step"] == 3

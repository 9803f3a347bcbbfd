"""What the tests share: a small data set of a third party, and the command line through its entry point."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

if "PYTEST_XDIST_WORKER" in os.environ:  # each core has a worker of its own
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)

EXTENSION = Path(__file__).parent / "extension"


settings.register_profile("fuzz", max_examples=100_000, deadline=None, suppress_health_check=list(HealthCheck))


def pytest_configure(config):
    """One GPU for the tests of it, and none for the others, whose numbers are those of a CPU; before CUDA looks.

    Ctrl-C is listened for, which a shell ignores in what it runs in the background.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if "cuda" not in config.option.markexpr.replace("not cuda", ""):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")


def pytest_addoption(parser):
    parser.addoption("--kills", type=int, default=1, help="How often test_resumption.py kills each kind of training.")


@dataclass
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with the extension's data set prepared."""
    from fslstm_dots import DOTS, WIDE_DOTS

    root = tmp_path_factory.mktemp("data")
    DOTS.prepare(root)
    WIDE_DOTS.prepare(root)
    return root


@pytest.fixture
def dots(data_root):
    """The training split of the small data set."""
    from fslstm_dots import DOTS

    return DOTS.load(data_root, "train")


@pytest.fixture
def fslstm(monkeypatch, capsys, data_root):
    """Calls the command line in this process, through the entry point that a user calls."""
    from fslstm_cli import terminal
    from fslstm_cli.main import run

    monkeypatch.setenv("FSLSTM_DATA_ROOT", str(data_root))
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: object) -> Outcome:
        terminal.for_sentences.cache_clear()  # as in a process of its own
        monkeypatch.setattr("fslstm_plugin.data.reading.decode._allowed", [])
        monkeypatch.setattr(sys, "argv", ["fslstm", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            run()
        out, err = capsys.readouterr()
        return Outcome(int(stop.value.code or 0), out, err)

    return call


@pytest.fixture
def succeed(fslstm):
    """Calls the command line as `fslstm` does, which must do what it is asked."""

    def call(*arguments: object) -> Outcome:
        done = fslstm(*arguments)
        assert done.code == 0, done.err
        return done

    return call


@pytest.fixture
def stopped_in_the_fourth_step(fslstm):
    """Calls a training that is interrupted after three steps."""
    from fslstm_plugin.training.episodic import EpisodicModule

    step = EpisodicModule.training_step

    def failing(self, batch, batch_idx):
        if self.trainer.global_step == 3:
            raise KeyboardInterrupt
        return step(self, batch, batch_idx)

    def call(*arguments: object) -> Outcome:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(EpisodicModule, "training_step", failing)
            return fslstm(*arguments)

    return call


@pytest.fixture
def spawn(data_root):
    """Starts the command line as a process of its own."""
    environment = {
        **os.environ,
        "FSLSTM_DATA_ROOT": str(data_root),
        "PYTHONPATH": os.pathsep.join([str(EXTENSION), os.environ.get("PYTHONPATH", "")]),
        "COLUMNS": "200",
        "MPLBACKEND": "module://of_a_notebook_that_has_another_environment",
        "OMP_NUM_THREADS": "1",
    }

    def start(*arguments: object, processes: int = 1) -> subprocess.Popen[str]:
        torchrun = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "--no-python", "--")
        return subprocess.Popen(
            [
                sys.executable,
                *([*torchrun, sys.executable] if processes > 1 else []),
                "-m",
                "fslstm_cli",
                *map(str, arguments),
            ],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.fixture
def other_default_device():
    """Another default device than the CPU, as "cuda" is, which there need not be."""
    with torch.device("meta"):
        yield


@pytest.fixture(autouse=True)
def _fixed_seed():
    torch.manual_seed(0)

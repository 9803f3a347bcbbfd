"""A signal before the first step, while the command still imports and loads."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from contextlib import suppress

import pytest

from fslstm_plugin.stopping import STOP_SIGNALS, Interrupted, stoppable

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")

# A signal comes when this module is to be imported.
STOPPED = """
import signal, sys

class Finder:
    def find_spec(self, name, *_):
        if name == {module!r}:
            sys.meta_path.remove(self)
            signal.raise_signal({number})

sys.meta_path.insert(0, Finder())
sys.argv = ["fslstm", {command!r}, "--dataset", "glyphs", "--runs", {runs!r}]
from fslstm_cli.process import start
start()
"""


@pytest.mark.parametrize(
    ("command", "number", "module", "code"),
    [
        ("train", signal.SIGTERM, "torch", 75),
        ("pretrain", signal.SIGUSR1, "pytorch_lightning", 75),
        ("train", signal.SIGINT, "pytorch_lightning", 130),
    ],
)
def test_a_signal_while_modules_are_imported_has_its_exit_code(command, number, module, code, tmp_path):
    program = STOPPED.format(command=command, number=int(number), module=module, runs=str(tmp_path / "runs"))
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert process.returncode == code, process.stderr
    assert process.stderr.startswith("fslstm: Stopped while no step was being trained; nothing is lost.")
    assert len(process.stderr.splitlines()) == 1
    assert "Type the same command again" in process.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("number", "module", "code"),
    [
        (signal.SIGINT, "torch", 130),
        (signal.SIGTERM, "torch", 143),
        (signal.SIGINT, "fslstm_cli.bench", 130),
        (signal.SIGTERM, "fslstm_cli.bench", 143),
    ],
)
def test_a_command_without_a_training_says_that_it_was_stopped(number, module, code, tmp_path):
    program = STOPPED.format(command="compare", number=int(number), module=module, runs=str(tmp_path / "runs"))
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (process.returncode, process.stderr) == (code, "fslstm: Stopped; nothing was left half-written.\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_midst_of_pytorchs_import_waits_for_its_end(number):
    """An exception that meets C++ code there aborts the process; which import that is changes with PyTorch."""
    program = STOPPED.format(command="compare", number=int(number), module="torch.nn", runs="runs").replace(
        "start()", "try: start()\nfinally: print(sys.modules['torch'].__spec__._initializing)"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout) == (128 + number, "False\n"), process.stderr


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_that_waited_does_not_meet_an_ended_command(number):
    program = (
        "import signal, sys, types; from fslstm_plugin.stopping import stoppable\n"
        "sys.modules['torch'] = types.SimpleNamespace(__spec__=types.SimpleNamespace(_initializing=True))\n"
        f"with stoppable(): signal.raise_signal({int(number)})"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (process.returncode, process.stderr) == (0, "")


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_code_that_catches_every_exception_does_not_catch_it(number):
    before = [signal.getsignal(each) for each in STOP_SIGNALS]

    @stoppable()
    def command():
        with suppress(Exception):
            signal.raise_signal(number)

    with pytest.raises(Interrupted) as stopped:
        command()
    assert stopped.value.exit_code == (130 if number == signal.SIGINT else 75)
    assert [signal.getsignal(each) for each in STOP_SIGNALS] == before


def test_threads_get_no_signals_and_work_all_the_same():
    done = []

    def work():
        with stoppable():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done

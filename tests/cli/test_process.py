"""The end of the command line's process: its exit code, and all that has to be done before it."""

from __future__ import annotations

import subprocess
import sys

import pytest

# The command is replaced by one that leaves text in a buffer, a registered function, a thread, and a log, whose own
# function was registered while the command line was imported.
ENDING = """
import atexit, signal, sys, threading, time
import typer
from fslstm_cli.process import start

class Destructor:
    def __del__(self):
        print("the destructors came")

kept = Destructor()

def command(_):
    from logging import StreamHandler, getLogger
    from logging.handlers import MemoryHandler

    getLogger().addHandler(MemoryHandler(9, target=StreamHandler(sys.stdout)))
    getLogger().warning("the log is written")
    threading.Thread(target=lambda: (time.sleep(0.2), print("the thread ended"))).start()
    atexit.register(print, "what was registered is done")
    print("the command ended")
    {ending}

typer.Typer.__call__ = command
start()
"""


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("pass", 0),
        ("raise SystemExit", 0),
        ("raise SystemExit(2)", 2),
        ("raise SystemExit('a sentence')", 1),
        ("raise RuntimeError('nobody expects it')", 1),
        ("signal.raise_signal(signal.SIGINT)", 130),
        (
            "sys.stdout.flush = lambda: (delattr(sys.stdout, 'flush'), signal.raise_signal(signal.SIGTERM))\n"
            "    raise SystemExit",
            143,
        ),
        # While what is left is printed.
        (
            "sys.stdout.flush = lambda: (delattr(sys.stdout, 'flush'), signal.raise_signal(signal.SIGINT))\n"
            "    raise SystemExit",
            130,
        ),
    ],
)
def test_a_process_ends_with_its_code_once_all_is_written(ending, code):
    program = ENDING.format(ending=ending)
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert process.stdout.splitlines() == [
        "the command ended",
        "the thread ended",
        "what was registered is done",
        "the log is written",
    ]
    assert process.returncode == code
    assert ("RuntimeError: nobody expects it" in process.stderr) == ("RuntimeError" in ending)
    assert (process.stderr == "fslstm: Stopped; nothing was left half-written.\n") == (code > 128)


def test_the_process_of_a_command_has_its_exit_code(spawn, tmp_path):
    version = spawn("--version")
    assert version.communicate()[0].startswith("fslstm ")
    assert version.returncode == 0
    missing = spawn("show", tmp_path / "none.fslstm")
    assert missing.communicate()[0] == ""
    assert missing.returncode == 1


@pytest.mark.skipif(sys.platform == "win32", reason="a POSIX shell")
@pytest.mark.parametrize(("arguments", "code"), [(("show", "none.fslstm"), 1), (("show",), 2), (("data", "list"), 0)])
def test_what_is_said_on_a_closed_standard_error_goes_nowhere(arguments, code):
    closing = ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-m", "fslstm_cli", *arguments]
    process = subprocess.run(closing, stdout=subprocess.PIPE, text=True, check=False)
    assert process.returncode == code
    assert bool(process.stdout) == (code == 0)

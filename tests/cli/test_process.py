"""The end of the command line's process: its exit code, and all that has to be done before it."""

from __future__ import annotations

import subprocess
import sys

import pytest

# The command is replaced by one that leaves text in a buffer, a registered function and a thread.
ENDING = """
import atexit, sys, threading, time
from fslstm_cli import process

class Destructor:
    def __del__(self):
        print("the destructors came")

kept = Destructor()

def run():
    threading.Thread(target=lambda: (time.sleep(0.2), print("the thread ended"))).start()
    atexit.register(print, "what was registered is done")
    print("the command ended")
    {ending}

process.run = run
process.start()
"""


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("pass", 0),
        ("raise SystemExit", 0),
        ("raise SystemExit(2)", 2),
        ("raise SystemExit('a sentence')", 1),
        ("raise RuntimeError('nobody expects it')", 1),
    ],
)
def test_a_process_ends_with_its_code_once_all_is_written(ending, code):
    program = ENDING.format(ending=ending)
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert process.stdout.splitlines() == ["the command ended", "the thread ended", "what was registered is done"]
    assert process.returncode == code
    assert ("RuntimeError: nobody expects it" in process.stderr) == ("RuntimeError" in ending)


def test_the_process_of_a_command_has_its_exit_code(spawn, tmp_path):
    version = spawn("--version")
    assert version.communicate()[0].startswith("fslstm ")
    assert version.returncode == 0
    missing = spawn("show", tmp_path / "none.fslstm")
    assert missing.communicate()[0] == ""
    assert missing.returncode == 1

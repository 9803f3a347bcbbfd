"""What commands say of their progress where no terminal is attached."""

from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
import pytest
from fslstm_cli import options, terminal
from rich.console import Console
from rich.table import Table

from fslstm_plugin.training import saying


@pytest.fixture
def log(monkeypatch):
    """A stream that is no terminal, while each look at the clock finds ten seconds more."""
    times = iter(range(0, 10_000, 10))
    monkeypatch.setattr(terminal.time, "monotonic", lambda: next(times))
    console = Console(file=io.StringIO())
    monkeypatch.setattr(terminal, "for_sentences", lambda: console)
    return console.file


def test_a_log_has_a_line_of_progress_at_most_every_half_minute(log):
    with terminal.progress("Features of dots test", 12_000) as tell:
        for done in range(1000, 12_001, 1000):
            tell(done, 12_000)
    lines = log.getvalue().splitlines()
    assert lines[0] == "Features of dots test: 3,000 of 12,000"
    assert 3 <= len(lines) <= 4


def test_a_log_counts_the_episodes_of_all_passes(log):
    with terminal.running(400) as show:
        for shots in (1, 5):
            for done in (50, 100):
                for methods in (["nn", "rr"], ["simple-cnaps"]):
                    show(shots, methods, done, [50.0] * len(methods))
    assert log.getvalue().splitlines() == ["Episodes: 150 of 400", "Episodes: 300 of 400"]


def test_a_sentence_needs_no_torch():
    program = "import sys; from fslstm_cli import terminal; terminal.say('Said.'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stderr, done.stdout) == ("Said.\n", "False\n")


def test_no_sentence_is_obeyed_by_a_terminal(log, capsys):
    said = "In a\x1b[2J\nb."
    terminal.say(said)
    saying.say(terminal.for_sentences(), said)
    options.announce(said)
    assert log.getvalue() + capsys.readouterr().out == 3 * "In a\\x1b[2J\\nb.\n"


def test_a_name_between_colons_stays_as_it_is(capsys):
    terminal.for_sentences.cache_clear()
    terminal.say("Passed over: my:cat:.png.")
    table = Table()
    table.add_row("my:cat:.png")
    terminal.for_tables().print(table)
    out, err = capsys.readouterr()
    assert err == "Passed over: my:cat:.png.\n"
    assert "my:cat:.png" in out


def test_a_warning_is_a_sentence_without_its_place_in_the_code(spawn, tmp_path):
    points = 1e4 * np.random.default_rng(0).normal(size=(60, 4)).astype("float32")
    np.savez(tmp_path / "f.npz", features=points, labels=np.repeat(np.arange(6), 10))
    numbers = ("--episodes", 5, "--shots", 1, "--queries", 3)
    with spawn("eval", "rr(kernel=rbf)", "--features", tmp_path / "f.npz", *numbers) as process:
        _, err = process.communicate()
    assert process.returncode == 0
    assert all(line.startswith("Too far from every support point: ") for line in err.splitlines())
    assert err

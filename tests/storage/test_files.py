"""Files: whole or absent, written by one process at a time, inside the folder that they belong to."""

from __future__ import annotations

import errno
import os
import shutil
import signal as signals
import socket
import subprocess
import sys
import time
from functools import partial
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from fslstm_plugin import FewShotClassifier
from fslstm_plugin.errors import DataError, RunError, StorageError, UsageError
from fslstm_plugin.reporting.chart import save
from fslstm_plugin.runs.folder import Run
from fslstm_plugin.storage.files import (
    claimed,
    exclusive,
    held,
    locked,
    prune,
    replacing,
    require_regular,
    write_json,
    write_text,
)
from fslstm_plugin.storage.plain import read_plain

posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX file systems")
BUSY = RunError("Another process has it.")


def names(folder):
    return sorted(file.name for file in folder.iterdir())


def test_writers_with_the_same_process_number_do_not_meet(tmp_path):
    """As those of two containers on one volume may have."""
    with replacing(tmp_path / "a") as one:
        one.write_text("one")
        with replacing(tmp_path / "a") as two:
            two.write_text("two")
        assert (tmp_path / "a").read_text() == "two"
    assert (tmp_path / "a").read_text() == "one"
    assert names(tmp_path) == ["a"]


def test_what_a_killed_writer_left_is_removed_by_the_next_holder(tmp_path):
    writer = replacing(tmp_path / "a")
    writer.__enter__().write_text("half")  # and killed here
    assert len(names(tmp_path)) == 1
    with held(tmp_path, 1, BUSY):
        assert names(tmp_path) == [".lock"]


def removed(folder):
    shutil.rmtree(folder)
    folder.mkdir()


def renamed(folder):
    folder.rename(folder.with_name("elsewhere"))
    folder.mkdir()


def unlocked(folder):
    (folder / ".lock").unlink()


@posix
@pytest.mark.parametrize("change", [removed, renamed, unlocked])
@pytest.mark.parametrize("again", [False, True])
def test_nothing_is_written_to_a_folder_that_is_held_no_more(change, again, tmp_path):
    folder = tmp_path / "run"
    with held(folder, 1, BUSY) as lock:
        with replacing(folder / "a") as temporary:
            temporary.write_text("first")
        assert lock.still_held()
        change(folder)
        if again:  # another process has locked it since
            (folder / ".lock").touch()
        assert not lock.still_held()
        before = names(folder)
        with (
            pytest.raises(RunError, match=f"{folder} was removed or replaced while .* Start again under another name"),
            replacing(folder / "a") as temporary,
        ):
            temporary.write_text("second")
        assert names(folder) == before
    with replacing(folder / "a") as temporary:
        temporary.write_text("third")


def test_a_folder_has_one_holder(tmp_path):
    with held(tmp_path, 1, BUSY):
        other = held(tmp_path, 0.05, BUSY)
        with pytest.raises(RunError, match=str(BUSY)):
            other.__enter__()


def test_waiting_for_a_writer_ends_and_names_the_lock(tmp_path):
    with (
        exclusive(tmp_path / "data", seconds=1),
        pytest.raises(StorageError, match=r"Another process has been writing to .* remove .*/\.data\.lock if no such"),
        exclusive(tmp_path / "data", seconds=0.05),
    ):
        pass


@posix
@pytest.mark.parametrize("answer", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_without_locks_there_is_no_waiting(answer, tmp_path, monkeypatch):
    """Nor a file in their place that would outlive its process."""

    def flock(*_):
        raise OSError(answer, os.strerror(answer))

    monkeypatch.setattr("fcntl.flock", flock)
    with locked(tmp_path / ".lock", 1, BUSY) as one, locked(tmp_path / ".lock", 1, BUSY) as two:
        assert one.still_held()
        assert two.still_held()
        one.file.unlink()
        assert not one.still_held()


WAITING = """
import sys
from pathlib import Path
from fslstm_plugin.storage.files import claimed
file = Path(sys.argv[1])
with claimed(file, waiting=lambda: print("waiting", flush=True)):
    print(file.read_text())
"""


@posix
def test_who_waited_reads_what_took_the_files_place(tmp_path):
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("old")
    link.symlink_to(file)
    with claimed(file, waiting=lambda: pytest.fail("nothing else has it")):
        other = subprocess.Popen([sys.executable, "-c", WAITING, link], stdout=subprocess.PIPE, text=True)
        assert other.stdout.readline() == "waiting\n"
        write_text(file, "new")
    assert other.communicate()[0] == "new\n"
    assert names(tmp_path) == ["file", "link"]


@posix
@pytest.mark.parametrize("signal", ["SIGINT", "SIGKILL"])
def test_a_claim_ends_with_its_process(signal, tmp_path):
    file = tmp_path / "file"
    file.touch()
    code = f"{WAITING}    import time; time.sleep(60)"
    other = subprocess.Popen(
        [sys.executable, "-c", code, file], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert other.stdout.readline() == "\n"
    os.kill(other.pid, getattr(signals, signal))
    with claimed(file, waiting=lambda: None):
        other.wait()
    other.stdout.close()
    with claimed(file, waiting=lambda: pytest.fail("nothing else has it")):
        pass


def test_old_files_and_rests_give_way_to_a_new_file(tmp_path):
    for name in ("mini-test-old.safetensors", "mini-test-new.safetensors", "mini-val-old.safetensors", "notes.txt"):
        (tmp_path / name).touch()
    for name, age in ((".a.1.tmp", 90_000), (".b.2.tmp", 60)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    prune(tmp_path, tmp_path / "mini-test-new.safetensors", "mini-test-*.safetensors")
    assert names(tmp_path) == [".b.2.tmp", "mini-test-new.safetensors", "mini-val-old.safetensors", "notes.txt"]


@posix
@pytest.mark.parametrize("mode", [0o600, 0o664, 0o444])
def test_the_mode_of_a_file_is_kept(tmp_path, mode):
    write_text(tmp_path / "a", "old")
    (tmp_path / "a").chmod(mode)
    with replacing(tmp_path / "a") as temporary:
        temporary.write_text("new")
        assert temporary.stat().st_mode & 0o077 & ~mode == 0, "others may not read it before it is whole either"
    assert (tmp_path / "a").read_text() == "new"
    assert (tmp_path / "a").stat().st_mode & 0o777 == mode


@posix
def test_a_link_is_followed_only_where_asked(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    write_text(link, "named by the user")
    assert link.is_symlink()
    assert target.read_text() == "named by the user"
    write_json(link, {}, follow_links=False)
    assert not link.is_symlink()
    assert (link.read_text(), target.read_text()) == ("{}\n", "named by the user")


@pytest.mark.parametrize("name", ["a\0.svg", "a\0/b.svg"])
def test_a_null_character_in_a_name_is_told(tmp_path, name):
    fitted = FewShotClassifier(method="nn").fit(np.eye(2), [0, 1])
    for write in (fitted.save, lambda file: write_text(file, "text"), lambda file: save(Figure(), file, "chart")):
        with pytest.raises(UsageError, match="has a null character in its name, which no file can have: name another"):
            write(tmp_path / name)
    assert names(tmp_path) == []


@posix
def test_a_chart_follows_a_link_and_replaces_no_pipe(tmp_path):
    """As a graph, which no text is."""
    os.mkfifo(tmp_path / "pipe.svg")
    (tmp_path / "link.svg").symlink_to("chart.svg")
    save(Figure(), tmp_path / "link.svg", "chart")
    assert (tmp_path / "link.svg").is_symlink()
    assert (tmp_path / "chart.svg").is_file()
    with pytest.raises(UsageError, match=r"pipe\.svg is no regular file, and is not replaced: name another file"):
        save(Figure(), tmp_path / "pipe.svg", "chart")
    assert (tmp_path / "pipe.svg").is_fifo()


@posix
def test_a_link_to_a_device_gives_way_too(tmp_path):
    (tmp_path / "link").symlink_to("/dev/null")
    write_text(tmp_path / "link", "text", follow_links=False)
    assert (tmp_path / "link").read_text() == "text"


@posix
def test_nothing_of_a_run_is_written_elsewhere(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "evaluations").symlink_to(elsewhere)
    with pytest.raises(StorageError, match="evaluations is a link, and nothing is written through it: put a folder"):
        Run(tmp_path / "run", {}).save_evaluation("eval", [])
    assert not names(elsewhere)


@posix
def test_only_regular_files_are_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    os.mkfifo("pipe")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        kinds = {"pipe": "a pipe", "zeros": "a device", "link": "a pipe", "folder": "a folder", "socket": "a socket"}
        for name, what in kinds.items():
            for opening in (require_regular, partial(read_plain, kind=Any, fault=DataError)):
                with pytest.raises(DataError, match=f"{name} is {what}, but a regular file was expected"):
                    opening(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        require_regular(tmp_path / "missing")
    with pytest.raises(RunError, match=r"Cannot read .*missing: No such file or directory\.$"):
        read_plain(tmp_path / "missing", Any)
    (tmp_path / "whole").symlink_to("content")
    (tmp_path / "content").write_text("[1]")
    assert read_plain(require_regular(tmp_path / "whole"), Any) == [1]

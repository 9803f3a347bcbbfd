"""Trains and evaluates in a loop in one process, and watches its memory and open files.

    python tests/soak.py --minutes 120

Each round calls the command line through its entry point: a pretraining, a meta-training that begins from it, the
evaluations. After the warm-up (a tenth of the time) resident memory must stay within 2 % and the open files as many
as they were; else the exit code is 1. The numbers are appended to the log as CSV, a line per round. Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import gc
import io
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extension"))

TINY = ("--backbone", "tiny", "--dataset", "glyphs", "--devices", "1", "--accelerator", "cpu")
FEW = ("--episodes", "60", "--queries", "5", "--run", "b")
ROUND: tuple[tuple[str, ...], ...] = (
    ("pretrain", *TINY, "--max-steps", "20", "--batch-size", "32", "--checkpoint-every", "5", "--name", "a"),
    (
        *("train", *TINY, "--pretrained", "a", "--max-steps", "20", "--steps-per-epoch", "10", "--val-episodes", "20"),
        *("--episodes-per-step", "2", "--shots", "2", "--queries", "3", "--checkpoint-every", "5", "--name", "b"),
        *("--lr", "0.01", "--method-lr", "0.01"),
    ),
    ("eval", *FEW, "--can"),
    ("compare", "lssvm+iam+psm", "tim(steps=5)", "simpleshot", *FEW),
    ("compare-heads", *FEW),
)


def call(*arguments: str) -> None:
    """One command, quietly; anything but success ends the soak."""
    from fslstm_cli.main import run

    sys.argv = ["fslstm", *arguments]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            run()
        except SystemExit as end:
            code = end.code
    if code:
        raise SystemExit(f"fslstm {' '.join(arguments)} ended with {code}: {err.getvalue()}")


def resident_kib() -> int:
    """Resident memory after a collection of garbage."""
    gc.collect()
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def main() -> None:
    """Soak, then judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--log", type=Path, default=Path("soak.csv"))
    options = parser.parse_args()
    began = time.monotonic()
    rows = []
    with tempfile.TemporaryDirectory() as folder, options.log.open("w", newline="") as file:
        log = csv.writer(file)
        log.writerow(["seconds", "resident_kib", "open_files"])
        while (passed := time.monotonic() - began) < 60 * options.minutes:
            call("data", "prepare", "glyphs", "--data-root", folder)
            for command in ROUND:
                call(*command, "--runs", f"{folder}/runs", "--data-root", folder)
            shutil.rmtree(f"{folder}/runs")
            rows.append((round(passed), resident_kib(), len(os.listdir("/proc/self/fd"))))
            log.writerow(rows[-1])
            file.flush()
    warm = [row for row in rows if row[0] > 6 * options.minutes] or rows
    (_, first, files), (_, last, files_last) = warm[0], warm[-1]
    growth = 100 * (max(row[1] for row in warm) - first) / first
    print(
        f"{len(rows)} rounds in {rows[-1][0]} s. After the warm-up {first} KiB and {files} open files; at the end "
        f"{last} KiB and {files_last}; at most {growth:.2f} % more memory."
    )
    raise SystemExit(growth > 2 or files_last > files)


if __name__ == "__main__":
    main()

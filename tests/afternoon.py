"""An afternoon played through: a person labels some pictures, and corrects what is wrong until every label is right.

``python tests/afternoon.py FOLDER`` takes class folders of pictures, hides their labels, and prints how many labels the
person gives by hand: first some of each class, then one for each wrong label that turns up while all pictures are
looked at, in random order, with an update of the classifier by all that was looked at after each part. For comparison,
``--order least`` looks at the least certain first, and ``--keep wrong`` adds only what was wrong, or ``none`` nothing.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

Run = Callable[..., object]  # Runs fslstm with these arguments, or fails.


class Afternoon(NamedTuple):
    """What it took.

    Attributes:
        pictures: How many there were to label.
        first: Labels given before the first prediction.
        corrected: Wrong labels that were corrected afterwards.
        accuracy: Share of the first predictions that were right.
        sure: Pictures that ``--wrong-at-most`` then said need no look.
        wrong: Of these, how many were wrong.
    """

    pictures: int
    first: int
    corrected: int
    accuracy: float
    sure: int
    wrong: int


def play(
    run: Run, truth: dict[Path, str], place: Path, each: int = 5, part: int = 100, budget: float = 0.05, seed: int = 0,
    order: str = "random", keep: str = "all", options: Sequence[object] = (),
) -> Afternoon:  # fmt: skip
    """Play it through by the commands, in an empty folder.

    Args:
        run: See `Run`.
        truth: The label of each picture.
        place: Where files are written.
        each: Labels of each class that are given first.
        part: Pictures that are looked at before the classifier is updated.
        budget: Of ``--wrong-at-most``.
        seed: Of which pictures are labelled first.
        order: In which pictures are looked at: ``"random"`` or ``"least"``, the least certain first.
        keep: What is added: ``"all"`` that was looked at, what was ``"wrong"``, or ``"none"``.
        options: More options of ``fit``.
    """
    generator = random.Random(seed)
    first: list[Path] = []
    for label in sorted(set(truth.values())):
        first += generator.sample(sorted(path for path in truth if truth[path] == label), each)
    model, rest = place / "a.fslstm", [path for path in truth if path not in first]
    _write(place / "first.csv", {path: truth[path] for path in first})
    run("fit", place / "first.csv", "-o", model, *options)
    looked: set[Path] = set()
    corrected, number = 0, 0
    found: list[tuple[float, Path, str, bool]] = []
    start: list[tuple[float, Path, str, bool]] = []
    while len(looked) < len(rest):
        _write(place / "rest.csv", {path: None for path in rest if path not in looked})
        number += 1
        table = place / f"{number}.csv"
        run("predict", model, place / "rest.csv", "--csv", table, "--accept", 1, "--wrong-at-most", budget)
        found = sorted(_read(table))
        start = start or found
        now = found[:part] if order == "least" else generator.sample(found, min(part, len(found)))
        wrong = {path: truth[path] for _, path, label, _ in now if label != truth[path]}
        corrected += len(wrong)
        looked |= {path for _, path, _, _ in now}
        added = {"all": {path: truth[path] for _, path, _, _ in now}, "wrong": wrong, "none": {}}[keep]
        if added and len(looked) < len(rest):
            _write(place / "corrections.csv", added)
            run("update", model, "--add", place / "corrections.csv")
    sure = [label == truth[path] for _, path, label, is_sure in start if is_sure]
    right = sum(label == truth[path] for _, path, label, _ in start)
    return Afternoon(len(rest), len(first), corrected, right / len(start), len(sure), sure.count(False))


def _write(file: Path, rows: dict[Path, str] | dict[Path, None]) -> None:
    with file.open("w", newline="") as text:
        lines = csv.writer(text)
        lines.writerow(["path", "label"])
        lines.writerows([str(path), label or ""] for path, label in rows.items())


def _read(table: Path) -> list[tuple[float, Path, str, bool]]:
    with table.open(newline="") as text:
        return [
            (
                float(row["probability"]),
                Path(os.path.normpath(table.parent / row["path"])),
                row["label"],
                row["sure"] == "yes",
            )
            for row in csv.DictReader(text)
        ]


def _command(*arguments: object) -> None:
    subprocess.run(["fslstm", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main() -> None:
    """Play several, each of other classes and pictures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--classes", type=int, default=5)
    parser.add_argument("--pictures", type=int, default=500, help="to label after the first")
    parser.add_argument("--each", type=int, default=5)
    parser.add_argument("--part", type=int, default=100, help="looked at before the classifier is updated")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--order", choices=["random", "least"], default="random")
    parser.add_argument("--keep", choices=["all", "wrong", "none"], default="all")
    parser.add_argument("--options", nargs="*", default=[], help="of fit, without their dashes: backbone=NAME")
    given = parser.parse_args()
    more = [text for each in given.options for text in (f"--{each.partition('=')[0]}", each.partition("=")[2])]
    for seed in range(given.times):
        generator = random.Random(seed)
        classes = generator.sample(sorted(each.name for each in given.folder.iterdir()), given.classes)
        count = given.each + given.pictures // given.classes
        chosen = {name: generator.sample(sorted((given.folder / name).iterdir()), count) for name in classes}
        truth = {path.absolute(): name for name, paths in chosen.items() for path in paths}
        with tempfile.TemporaryDirectory() as place:
            done = play(
                _command, truth, Path(place), given.each, given.part, seed=seed, order=given.order, keep=given.keep,
                options=more,
            )  # fmt: skip
            print(done, flush=True)


if __name__ == "__main__":
    main()

"""What a report shows of a run: its best numbers and what they say, evaluations, learning curves, configuration."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..errors import DataError, naming_damage
from ..evaluation.rows import Row
from ..evaluation.tuning import load_choices
from ..plain import read_plain, to_plain
from ..runs import Run
from .figures.lines import COLOURS, STYLE
from .html import Best, Block, Section, svg_element
from .noise import by_shots, is_among_best
from .statements import verdict
from .tables import Results, by_method, notes, seconds_text, setting, to_best_text
from .words import NOTHING, display_name, full_name, method_name, number, signed

_DRAWABLE = 1e30  # Greater numbers overflow where axes are laid out.

Points = list[tuple[float, float]]


def run_section(run: Run, training: str) -> Section:
    """The section of a run.

    Args:
        run: The run.
        training: What it was trained with, in a few words.

    Raises:
        DataError: If its metrics or evaluations are damaged.
        RunError: If its tuned arguments are.
    """
    config = run.config
    place = f" on {config.dataset}" if config.dataset else ""
    lead = f"{config.backbone}{place}, {config.image_size} pixels, seed {config.seed}. Training: {training}."
    evaluations = _evaluations(run)
    newest = evaluations[-1].results.rows if evaluations else []
    blocks = []
    for each in reversed(evaluations):
        with naming_damage(each.file):
            blocks.append(each.block(verdict(each.results.rows) if each.results.rows is not newest else []))
    blocks += _learning_curves(run)
    settings = list(_flat(to_plain(config)))
    blocks.append(Block("Configuration", head=("setting", "value"), rows=settings, words=True))
    tuned = list(load_choices(run).items())
    if tuned:
        blocks.append(Block("Tuned on validation episodes", head=("method", "choice"), rows=tuned, words=True))
    rows = [row for each in evaluations for row in each.results.rows]
    return Section(
        f"Run {run.name}",
        [lead],
        blocks,
        [_headline(shots, group) for shots, group in by_shots(newest).items()],
        verdict(newest) if newest else [],
        notes(rows, "Marked", "†") if rows else [],
    )


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in config.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        elif value is not None:
            yield f"{prefix}{key}", ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


# Evaluations.


@dataclass(frozen=True)
class _Evaluation:
    """An evaluation that the run keeps."""

    file: Path
    results: Results

    def block(self, sentences: Sequence[str]) -> Block:
        """One line for each method, columns for each number of shots."""
        rows = self.results.rows
        groups = by_shots(rows)
        gains, times = any(row.reference for row in rows), any(row.seconds is not None for row in rows)
        names = ["accuracy", "to the best", *(["gain"] if gains else []), *(["s/10k"] if times else [])]
        head = ["method", *names * len(groups), *(["gain over"] if gains else [])]

        def cells(row: Row | None, group: Sequence[Row]) -> list[str]:
            if row is None:
                return [NOTHING] * len(names)
            mark = Best if len(group) > 1 and is_among_best(row, group) else str
            found = [mark(number(row.accuracy, row.ci95)), to_best_text(row, group)]
            found += [signed(row.gain, row.gain_ci95)] if gains else []
            return [*found, seconds_text(row)] if times else found

        lines = []
        for line in by_method(rows):
            first = next(iter(line.values()))
            name = full_name(first, rows) + ("†" if first.transductive else "")
            over = [display_name(first.reference) if first.reference else NOTHING] if gains else []
            numbers = [cell for shots, group in groups.items() for cell in cells(line.get(shots), group)]
            lines.append([name, *numbers, *over])
        over_head = [("", 1), *((f"{shots}-shot", len(names)) for shots in groups), *([("", 1)] if gains else [])]
        caption = f"{setting(rows)}; {self.results.date}."
        return Block(self.file.stem, caption, head, lines, sentences=sentences, over=over_head)


def _evaluations(run: Run) -> list[_Evaluation]:
    """All that are kept, the newest last."""
    found = [
        _Evaluation(file, read_plain(file, Results, DataError)) for file in (run.path / "evaluations").glob("*.json")
    ]
    return sorted(found, key=lambda each: (each.results.date, each.file.stat().st_mtime_ns))


def _headline(shots: int, group: Sequence[Row]) -> tuple[str, str]:
    best = max(group, key=lambda row: row.difference)
    return f"{number(best.accuracy, best.ci95)} %", f"{shots}-shot, {method_name(best)}"


# Learning curves.


@dataclass
class _Curves:
    """What was logged: points of each number by its name, and how many numbers cannot be drawn."""

    points: dict[str, Points] = field(default_factory=dict)
    left_out: int = 0


def _learning_curves(run: Run) -> list[Block]:
    """A figure of what was logged, if anything was."""
    file = run.path / "metrics.csv"
    if not file.is_file():
        return []
    with naming_damage(file):
        curves = _read_curves(file)
        if not curves.points and not curves.left_out:
            return []
        note = f"Left out, as too large to draw: {curves.left_out} of the logged numbers." if curves.left_out else ""
        figure = svg_element(_draw(curves.points), f"curves-{run.name}") if curves.points else ""
    return [Block("Learning curves", note, figure=figure)]


def _read_curves(file: Path) -> _Curves:
    curves = _Curves()
    with file.open(encoding="utf-8", newline="") as content:
        for row in csv.DictReader(content):
            for name, text in row.items():
                if text and name not in ("epoch", "step") and any(kind in name for kind in ("loss", "accuracy")):
                    step, value = float(row["step"]), float(text)
                    if all(math.isfinite(each) and abs(each) < _DRAWABLE for each in (step, value)):
                        curves.points.setdefault(name, []).append((step, value))
                    else:
                        curves.left_out += 1
    return curves


def _draw(values: Mapping[str, Points]) -> Figure:
    """Loss and accuracy against the step."""
    kinds = [kind for kind in ("loss", "accuracy") if any(kind in name for name in values)]
    with rc_context(STYLE):
        figure = Figure(figsize=(2.6 * len(kinds), 2.0), layout="constrained")
        for panel, kind in zip(figure.subplots(1, len(kinds), squeeze=False).flat, kinds, strict=True):
            _curve(panel, kind, {name: points for name, points in values.items() if kind in name})
        figure.legend(*panel.get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return figure


def _curve(panel: Axes, kind: str, values: Mapping[str, Points]) -> None:
    for colour, (name, points) in zip(COLOURS, values.items(), strict=False):
        steps, numbers = zip(*sorted(points), strict=True)
        share = kind == "accuracy" and max(numbers) <= 1
        validation = name.startswith("valid")
        panel.plot(
            steps, [number * 100 for number in numbers] if share else numbers, color=colour,
            label="validation" if validation else "training", marker="o" if validation else "",
            linewidth=1.2 if validation else 0.8, zorder=3 if validation else 2,
        )  # fmt: skip
    panel.set_xlabel("step")
    panel.set_ylabel("accuracy, %" if kind == "accuracy" else kind)
    panel.grid()

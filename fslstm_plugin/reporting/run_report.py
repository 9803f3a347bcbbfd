"""What a report shows of a run: its best numbers with a verdict, evaluations, learning curves, configuration."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import DataError, printable
from ..evaluation.rows import Row
from ..evaluation.tuning import load_tuning
from ..extras import needs_extra
from ..runs.folder import Run
from ..storage.damage import naming_damage
from ..storage.plain import read_plain, to_plain
from .captions import notes, seconds_text, setting, shares_text, shows_shares, to_best_text
from .chart import chart
from .figures.lines import COLOURS, STYLE
from .groups import are_compared, by_shots, is_among_best
from .html import Best, Block, Section, svg_element
from .results import Results
from .statements import verdict
from .words import NOTHING, full_name, method_name, number, reference_name, signed

with needs_extra("A report", "report"):
    from matplotlib import rc_context
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DRAWABLE = 1e30  # Greater numbers overflow in the layout of axes.

Points = list[tuple[float, float]]


def run_section(run: Run, training: str) -> Section:
    """The section of a run.

    Args:
        run: The run.
        training: How it was trained, in a few words.

    Raises:
        DataError: If its metrics or evaluations are damaged.
        RunError: If its tuned arguments are.
    """
    config = run.config
    place = f" on {config.dataset}" if config.dataset else ""
    lead = f"{config.backbone}{place}, {config.image_size} pixels, seed {config.seed}. Training: {training}."
    numbers, sentences, blocks = [], [], []
    evaluations = _evaluations(run)
    for each in evaluations:
        with naming_damage(each.file):
            numbers.append(_headlines(each.results.rows, run))
            sentences.append(verdict(each.results.rows))
            blocks += each.blocks(sentences[-1] if len(sentences) > 1 else [], run)  # those of the first are on top
    blocks += _learning_curves(run)
    settings = list(_flat(to_plain(config)))
    blocks.append(Block("Configuration", head=("setting", "value"), rows=settings, words=True))
    tuned = list(load_tuning(run).choices.items())
    if tuned:
        blocks.append(Block("Tuned on validation episodes", head=("method", "choice"), rows=tuned, words=True))
    rows = [row for each in evaluations for row in each.results.rows]
    return Section(
        f"Run {printable(run.name)}",
        [lead],
        blocks,
        numbers[0] if numbers else [],
        sentences[0] if sentences else [],
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

    def blocks(self, sentences: Sequence[str], run: Run) -> list[Block]:
        """The sentences, and what was measured for each number of shots."""
        rows = self.results.rows
        lead = Block(self.file.stem, f"{setting(rows)}; {self.results.date}.", sentences=sentences)
        return [lead, *(_block(group, rows, f"{run.name}-{self.file.stem}") for group in by_shots(rows).values())]


def _block(group: Sequence[Row], rows: Sequence[Row], salt: str) -> Block:
    """The rows of a number of shots in a table, and in a chart where there are several."""
    columns, lines, shots = _columns(rows), [], group[0].shots
    for row in group:
        over = reference_name(row, rows) if row.reference else NOTHING
        name = f"{full_name(row, rows)}{'†' if row.transductive else ''}"
        lines.append([name, *(text(row) for _, text in columns), over])
    figure = svg_element(chart(group), f"{salt}-{shots}") if len(group) > 1 else ""
    head = ["method", *(name for name, _ in columns), "gain over"]
    return Block(f"{shots}-shot", head=head, rows=lines, figure=figure)


def _columns(rows: Sequence[Row]) -> list[tuple[str, Callable[[Row], str]]]:
    """The columns of a table between the name and what the gain is over."""
    compared = are_compared(rows)

    def accuracy(row: Row) -> str:
        text = number(row.accuracy, row.ci95)
        return Best(text) if compared and is_among_best(row) else text

    columns: list[tuple[str, Callable[[Row], str]]] = [("accuracy", accuracy)]
    if compared:
        columns += [("to the best", to_best_text), ("gain", lambda row: signed(row.gain, row.gain_ci95))]
    if shows_shares(rows):
        columns.append(("shares", shares_text))
    if any(row.seconds is not None for row in rows):
        columns.append(("s/10k", seconds_text))
    return columns


def _evaluations(run: Run) -> list[_Evaluation]:
    """All that are kept, the newest first."""
    found = [
        _Evaluation(file, read_plain(file, Results, DataError)) for file in (run.path / "evaluations").glob("*.json")
    ]
    return sorted(found, key=lambda each: (each.results.date, each.file.stat().st_mtime_ns), reverse=True)


def _headlines(rows: Sequence[Row], run: Run) -> list[tuple[str, str]]:
    """The best accuracy of the run for each number of shots; the rows may be of several runs."""
    mine = [row for row in rows if row.run == run.name] or rows
    best = [max(group, key=lambda row: row.accuracy) for group in by_shots(mine).values()]
    return [(f"{number(row.accuracy, row.ci95)} %", f"{row.shots}-shot, {method_name(row)}") for row in best]


# Learning curves.


@dataclass
class _Curves:
    """What was logged: points of each metric by its name, and how many numbers cannot be drawn."""

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

"""What a report shows of a run: its best numbers with a verdict, evaluations, learning curves, configuration."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import DataError, printable
from ..evaluation.rows import Row
from ..evaluation.tuning import load_tuning
from ..extras import needs_extra
from ..runs.folder import Run
from ..storage.damage import naming_damage
from ..storage.plain import read_plain, to_plain
from .blocks import Best, Block, Section
from .captions import columns, notes, setting
from .chart import chart
from .figures.lines import COLOURS, STYLE
from .html import svg_element
from .results import Results
from .statements import verdict
from .words import by_shots, display_name, full_name, is_marked, number

with needs_extra("A report", "report"):
    from matplotlib import rc_context
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DRAWABLE = 1e30  # Greater numbers overflow in the layout of axes.

Points = list[tuple[float, float]]


def run_section(run: Run, training: str) -> Section:
    """The section of a run, which was trained as a few words say."""
    config = run.config
    place = f" on {config.dataset}" if config.dataset else ""
    lead = f"{config.backbone}{place}, {config.image_size} pixels, seed {config.seed}. Training: {training}."
    numbers, sentences, blocks = [], [], []
    evaluations = _evaluations(run)
    for file, results in evaluations:
        with naming_damage(file):
            numbers.append(_headlines(results.rows, run))
            sentences.append(verdict(results.rows))
            said = sentences[-1] if len(sentences) > 1 else []  # those of the first are on top
            blocks.append(Block(file.stem, f"{setting(results.rows)}; {results.date}.", sentences=said))
            for group in by_shots(results.rows).values():
                blocks.append(_block(group, results.rows, f"{run.name}-{file.stem}"))
    blocks += _learning_curves(run)
    settings = list(_flat(to_plain(config)))
    blocks.append(Block("Configuration", head=("setting", "value"), rows=settings, words=True))
    tuned = [(dataset, *pair) for dataset, mine in load_tuning(run).choices.items() for pair in mine.items()]
    if tuned:
        blocks.append(
            Block("Tuned on validation episodes", head=("data set", "method", "choice"), rows=tuned, words=True)
        )
    rows = [row for _, results in evaluations for row in results.rows]
    newest = [f"Newest evaluation: {setting(each.rows)}; {each.date}." for _, each in evaluations[:1]]
    return Section(
        f"Run {printable(run.name)}",
        [lead, *newest],
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


def _block(group: Sequence[Row], rows: Sequence[Row], salt: str) -> Block:
    """The rows of a number of shots in a table, and in a chart where there are several."""
    shown, lines, shots = columns(rows), [], group[0].shots
    for row in group:
        name = f"{full_name(row, rows)}{'†' if row.transductive else ''}"
        accuracy, *others = (text(row) for text in shown.values())
        lines.append([name, Best(accuracy) if is_marked(row, rows) else accuracy, *others])
    figure = svg_element(chart(group), f"{salt}-{shots}") if len(group) > 1 else ""
    return Block(f"{shots}-shot", head=["method", *shown], rows=lines, figure=figure)


def _evaluations(run: Run) -> list[tuple[Path, Results]]:
    """All that are kept, the newest first."""
    files = (run.path / "evaluations").glob("*.json")
    found: list[tuple[Path, Results]] = [(file, read_plain(file, Results, DataError)) for file in files]
    return sorted(found, key=lambda each: (each[1].date, each[0].stat().st_mtime_ns), reverse=True)


def _headlines(rows: Sequence[Row], run: Run) -> list[tuple[str, str]]:
    """The best accuracy of the run for each number of shots; the rows may be of several runs."""
    mine = [row for row in rows if row.run == run.name] or rows
    best = [max(group, key=lambda row: row.accuracy) for group in by_shots(mine).values()]
    return [(f"{number(row.accuracy, row.ci95)} %", f"{row.shots}-shot, {display_name(row.method)}") for row in best]


# Learning curves.


def _learning_curves(run: Run) -> list[Block]:
    """A figure of what was logged, if anything was."""
    file = run.path / "metrics.csv"
    if not file.is_file():
        return []
    with naming_damage(file):
        curves, left_out = _read_curves(file)
        if not curves and not left_out:
            return []
        note = f"Left out, as too large to draw: {left_out} of the logged numbers." if left_out else ""
        figure = svg_element(_draw(curves), f"curves-{run.name}") if curves else ""
    return [Block("Learning curves", note, figure=figure)]


def _read_curves(file: Path) -> tuple[dict[str, Points], int]:
    """What was logged: points of each metric by its name, and how many numbers cannot be drawn."""
    curves: dict[str, Points] = {}
    left_out = 0
    with file.open(encoding="utf-8", newline="") as content:
        for row in csv.DictReader(content):
            for name, text in row.items():
                if text and name not in ("epoch", "step") and any(kind in name for kind in ("loss", "accuracy")):
                    step, value = float(row["step"]), float(text)
                    if all(math.isfinite(each) and abs(each) < _DRAWABLE for each in (step, value)):
                        curves.setdefault(name, []).append((step, value))
                    else:
                        left_out += 1
    return curves, left_out


@rc_context(STYLE)
def _draw(values: Mapping[str, Points]) -> Figure:
    """Loss and accuracy against the step."""
    kinds = [kind for kind in ("loss", "accuracy") if any(kind in name for name in values)]
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

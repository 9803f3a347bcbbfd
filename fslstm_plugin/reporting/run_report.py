"""What a report shows of a run: configuration, learning curves, evaluations."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..errors import naming_damage
from ..evaluation.engine import method_label
from ..files import read_json
from ..runs import Run
from .figures.lines import COLOURS, STYLE
from .html import Block, Section, svg_element
from .statements import statement
from .tables import NOTHING, TASKS, display_name, iterations, number


def run_section(run: Run, training: str) -> Section:
    """The section of a run.

    Args:
        run: The run.
        training: What it was trained with, in a few words.

    Raises:
        DataError: If its metrics or evaluations are damaged.
    """
    config, blocks = run.config, []
    with naming_damage(run.path / "config.json"):
        place = f" on {config['dataset']}" if config["dataset"] else ""
        model = f"{config['backbone']}{place}, {config['image_size']} pixels, seed {config['seed']}"
        settings = list(_flat(config))
    with naming_damage(run.path / "metrics.csv"):
        curves = _curves(run)
    if curves is not None:
        blocks.append(Block("Learning curves", figure=svg_element(curves, f"curves-{run.name}")))
    for file in sorted((run.path / "evaluations").glob("*.json"), key=lambda file: file.stat().st_mtime):
        with naming_damage(file):
            blocks += _evaluation(file)
    tuned = run.path / "tuned.json"
    if tuned.is_file():
        with naming_damage(tuned):
            choices = read_json(tuned)["choices"]
            rows = [
                (key, ", ".join([*(f"{name} = {value}" for name, value in choice["options"].items()),
                                 *(["normalised features"] if choice["normalize"] else [])]) or "the head's defaults")
                for key, choice in choices.items()
            ]  # fmt: skip
        blocks.append(Block("Tuned on validation episodes", head=("method", "choice"), rows=rows, words=True))
    blocks.append(Block("Configuration", head=("setting", "value"), rows=settings, words=True, folded=True))
    return Section(f"Run {run.name}", [f"{model}. Training: {training}."], blocks)


def _flat(config: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in config.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        elif value is not None:
            yield f"{prefix}{key}", ", ".join(f"{each:g}" for each in value) if isinstance(value, list) else str(value)


def _evaluation(file: Path) -> list[Block]:
    """One line a method, in the order of the file, two columns for each number of shots; and the paired differences."""
    rows = read_json(file)["rows"]
    shots = list(dict.fromkeys(row["shots"] for row in rows))
    cells: dict[str, dict[int, tuple[str, str]]] = {}
    sentences = []
    for row in rows:
        # Files of earlier versions have neither options nor normalisation nor differences to a reference.
        label = method_label(row["head"], row["modules"], row.get("options", {}), row.get("normalize", False))
        name = display_name(label)
        seconds = row["seconds"] * TASKS / row["episodes"]
        cells.setdefault(name, {})[row["shots"]] = number(row["accuracy"], row["ci95"]), f"{seconds:.0f}"
        if row.get("reference") is not None:
            reference = display_name(row["reference"])
            sentences.append(statement(name, reference, row["shots"], row["gain"], row["gain_ci95"]))
    nothing = (NOTHING, NOTHING)
    lines = [
        [name, *(cell for count in shots for cell in of_shots.get(count, nothing))] for name, of_shots in cells.items()
    ]
    first = rows[0]
    balance = first.get("query_balance", "uniform")
    often = iterations((row["modules"], row.get("iterations")) for row in rows)
    caption = (
        f"{first['dataset']} {first['split']}, {first['ways']}-way, {first['queries']} queries a class"
        f"{'' if balance == 'uniform' else f' on average ({balance})'}, {first['episodes']:,} episodes, "
        f"seed {first['seed']}{often}: accuracy in percent with 95 % interval over "
        f"{first.get('interval', 'episodes')}, and seconds for {TASKS:,} tasks from features."
    )
    head = ["method", *(name for count in shots for name in (f"{count}-shot", "s / 10k"))]
    blocks = [Block(f"Evaluation {file.stem}", caption, head, lines)]
    if sentences:
        blocks.append(Block("Paired differences on the same episodes", sentences=sentences, folded=True))
    return blocks


def _curves(run: Run) -> Figure | None:
    """Loss and accuracy against the step; None if nothing was logged."""
    values: dict[str, list[tuple[float, float]]] = {}
    file = run.path / "metrics.csv"
    if file.is_file():
        with file.open(encoding="utf-8", newline="") as content:
            for row in csv.DictReader(content):
                for name, value in row.items():
                    if name not in ("epoch", "step") and not name.endswith("_epoch") and value:
                        values.setdefault(name.removesuffix("_step"), []).append((float(row["step"]), float(value)))
    if not values:
        return None
    kinds = [kind for kind in ("loss", "accuracy") if any(kind in name for name in values)]
    with rc_context(STYLE):
        figure = Figure(figsize=(2.6 * len(kinds), 2.0), layout="constrained")
        for panel, kind in zip(figure.subplots(1, len(kinds), squeeze=False).flat, kinds, strict=True):
            _curve(panel, kind, {name: points for name, points in values.items() if kind in name})
        figure.legend(*panel.get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return figure


def _curve(panel: Axes, kind: str, values: dict[str, list[tuple[float, float]]]) -> None:
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

"""What a report shows of a run: configuration, learning curves, evaluations."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from ..errors import DataError, naming_damage
from ..evaluation.engine import method_label
from ..runs import Run
from .figures.lines import COLOURS
from .html import Block, Section, svg_element
from .tables import TASKS, display_name


def run_section(run: Run) -> Section:
    """The section of a run.

    Raises:
        DataError: If its metrics or evaluations are damaged.
    """
    with naming_damage(run.path / "config.json"):
        blocks = [Block("Configuration", ("setting", "value"), list(_flat(run.config)), words=True)]
    with naming_damage(run.path / "metrics.csv"):
        curves = _curves(run)
    if curves is not None:
        blocks.append(Block("Learning curves", figure=svg_element(curves, f"curves-{run.name}")))
    tuned = run.path / "tuned.json"
    if tuned.is_file():
        with naming_damage(tuned):
            choices = _read(tuned)["choices"]
            rows = [
                (key, ", ".join([*(f"{name} = {value}" for name, value in choice["options"].items()),
                                 *(["normalised features"] if choice["normalize"] else [])]) or "the head's defaults")
                for key, choice in choices.items()
            ]  # fmt: skip
        blocks.append(Block("Tuned on validation episodes", ("method", "choice"), rows, words=True))
    for file in sorted((run.path / "evaluations").glob("*.json"), key=lambda file: file.stat().st_mtime):
        with naming_damage(file):
            blocks.append(_evaluation(file))
    return Section(f"Run {run.name}", blocks=blocks)


def _flat(config: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in config.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        elif value is not None:
            yield f"{prefix}{key}", ", ".join(f"{each:g}" for each in value) if isinstance(value, list) else str(value)


def _evaluation(file: Path) -> Block:
    """One line a method, in the order of the file, one column for each number of shots."""
    rows = _read(file)["rows"]
    shots = list(dict.fromkeys(row["shots"] for row in rows))
    cells: dict[str, dict[int, str]] = {}
    for row in rows:
        # Files of earlier versions have neither options nor normalisation.
        label = method_label(row["head"], row["modules"], row.get("options", {}), row.get("normalize", False))
        seconds = row["seconds"] * TASKS / row["episodes"]
        cells.setdefault(display_name(label), {})[row["shots"]] = (
            f"{row['accuracy']:.2f} ± {row['ci95']:.2f}  ({seconds:.0f} s)"
        )
    lines = [[name, *(of_shots.get(count, "–") for count in shots)] for name, of_shots in cells.items()]
    first = rows[0]
    caption = (
        f"{first['dataset']} {first['split']}, {first['ways']}-way, {first['queries']} queries a class, "
        f"{first['episodes']:,} episodes, seed {first['seed']}: accuracy in percent with 95 % interval over "
        f"{first.get('interval', 'episodes')}; in brackets the time for {TASKS:,} tasks from features"
    )
    return Block(f"Evaluation {file.stem}", ["method", *(f"{count}-shot" for count in shots)], lines, caption)


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"Cannot read {file}: {error}.") from error


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
    figure = Figure(figsize=(4.6 * len(kinds), 3.0), layout="constrained")
    for panel, kind in zip(figure.subplots(1, len(kinds), squeeze=False).flat, kinds, strict=True):
        for number, name in enumerate(name for name in values if kind in name):
            steps, numbers = zip(*sorted(values[name]), strict=True)
            share = kind == "accuracy" and max(numbers) <= 1
            label = "validation" if name.startswith("valid") else "training"
            panel.plot(
                steps, [number * 100 for number in numbers] if share else numbers, label=label,
                color=COLOURS[number], linewidth=1.2, marker="o" if label == "validation" else "", markersize=4,
            )  # fmt: skip
        panel.set_xlabel("step", fontsize=9)
        panel.set_ylabel(f"{kind}, %" if kind == "accuracy" else kind, fontsize=9)
        panel.tick_params(labelsize=8)
        panel.grid(alpha=0.3, linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
        panel.legend(fontsize=8, frameon=False)
    return figure

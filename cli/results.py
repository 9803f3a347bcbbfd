"""The rows of an evaluation: printed, kept in the runs, and written to files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .terminal import for_tables, join_ranks, say

if TYPE_CHECKING:
    from fslstm_plugin.evaluation.rows import Row
    from fslstm_plugin.runs.folder import Run


def give_out(
    runs: Sequence[Run],
    kind: str,
    rows: Sequence[Row],
    json: Path | None,
    csv: Path | None,
    latex: Path | None,
    chart: Path | None,
    verbose: bool,
    notes: Sequence[str],
    further: Mapping[str, Sequence[Any]],
) -> None:
    """Print the rows' table, keep the rows in the runs, and write the requested files.

    What cannot be written, as on a full disk, stops nothing else, and is reported in the end.
    """
    if join_ranks().rank > 0:
        return
    from rich.console import Console

    from fslstm_plugin.errors import StorageError
    from fslstm_plugin.reporting.further import TABLES
    from fslstm_plugin.reporting.latex import latex_text
    from fslstm_plugin.reporting.results import csv_text
    from fslstm_plugin.reporting.statements import statements, verdict
    from fslstm_plugin.reporting.terminal import ResultsTable
    from fslstm_plugin.storage.files import write_json, write_text

    console = for_tables()
    console.print(ResultsTable(rows, notes))
    for sentence in statements(rows) if verbose else verdict(rows):
        say(console, sentence)
    for name, mine in further.items():
        console.print(TABLES[name](mine))
    content = content_of(rows, notes, further)
    faults = []
    for file, write in (
        (json, lambda file: write_json(file, content)),
        (csv, lambda file: write_text(file, csv_text(rows))),
        (latex, lambda file: write_text(file, latex_text(rows, notes))),
        (chart, lambda file: _draw(rows, file)),
    ):
        try:
            if file is not None:
                write(file)
        except StorageError as error:
            faults.append(error)
    for run in runs:
        try:
            run.save_evaluation(kind, content)
        except (StorageError, OSError) as error:
            say(Console(stderr=True), f"The evaluation could not be saved in {run.path}: {error}")
    if faults:
        raise faults[0]


def _draw(rows: Sequence[Row], file: Path) -> None:
    from fslstm_plugin.reporting.captions import setting
    from fslstm_plugin.reporting.chart import chart, save

    save(chart(rows, setting(rows)), file, "chart")


def write_json(file: Path, content: Mapping[str, Any]) -> None:
    """What a command found, plain data, as JSON with the command, the version that made it, and the date."""
    from fslstm_plugin.reporting.provenance import made_now
    from fslstm_plugin.storage import files

    files.write_json(file, {**made_now(), **content})


def content_of(rows: Sequence[Row], notes: Sequence[str], further: Mapping[str, Any]) -> dict[str, Any]:
    """What a JSON file of the rows holds."""
    from fslstm_plugin.reporting.provenance import made_now
    from fslstm_plugin.reporting.results import json_content

    return json_content(rows, **made_now(), notes=notes, **further)

"""The rows of an evaluation: printed, kept in the runs, and written to files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from fslstm_plugin.errors import FSLSTMError, StorageError, printable, reason
from fslstm_plugin.reporting.provenance import made_now
from fslstm_plugin.storage import files
from fslstm_plugin.storage.plain import to_plain

from . import options
from .terminal import for_tables, join_ranks, say

if TYPE_CHECKING:
    from fslstm_plugin.evaluation.rows import Row
    from fslstm_plugin.runs.folder import Run


@dataclass(frozen=True)
class Output:
    """What becomes of the rows, as typed; by default they are only printed and kept."""

    verbose: Annotated[bool, typer.Option("--verbose", help="Print paired differences one by one in words.")] = False
    json: options.Json = None
    csv: Annotated[Optional[Path], options.output("Also write the rows to this CSV file.", "CSV file")] = None
    latex: Annotated[Optional[Path], options.output("Also write a booktabs table to this file.", "LaTeX table")] = None
    chart: Annotated[
        Optional[Path],
        options.output("Also draw the accuracies with their intervals into this file: .svg, .png or .pdf.", "chart"),
    ] = None

    def __post_init__(self) -> None:
        options.require_apart(self.json, self.csv, self.latex, self.chart)
        if self.chart is not None:
            from fslstm_plugin.reporting.chart import require_kind

            require_kind(self.chart)

    def give_out(
        self,
        runs: Sequence[Run],
        kind: str,
        rows: Sequence[Row],
        notes: Sequence[str],
        further: Mapping[str, Sequence[Any]],
    ) -> None:
        """Print the rows' table, keep the rows in the runs, and write the files.

        What cannot be written, as on a full disk, stops nothing else, and is reported in the end.
        """
        from fslstm_plugin.reporting.results import json_content

        if join_ranks().rank > 0:
            return
        self._show(rows, notes, further)
        content = json_content(rows, notes, **further)
        for run in runs:
            try:
                run.save_evaluation(kind, content)
            except (FSLSTMError, OSError) as error:
                say(f"The evaluation could not be saved in {run.path}: {reason(error).rstrip('.')}.")
        self._write(rows, notes, content)

    def _show(self, rows: Sequence[Row], notes: Sequence[str], further: Mapping[str, Sequence[Any]]) -> None:
        from fslstm_plugin.reporting.further import TABLES
        from fslstm_plugin.reporting.statements import statements, verdict
        from fslstm_plugin.reporting.terminal import ResultsTable

        console = for_tables()
        console.print(ResultsTable(rows, notes))
        for sentence in statements(rows) if self.verbose else verdict(rows):
            typer.echo(sentence)
        for name, measured in further.items():
            console.print(TABLES[name](measured))

    def _write(self, rows: Sequence[Row], notes: Sequence[str], content: Mapping[str, Any]) -> None:
        from fslstm_plugin.reporting.latex import latex_text
        from fslstm_plugin.reporting.results import csv_text

        attempt(
            (self.json, lambda file: files.write_json(file, content)),
            (self.csv, lambda file: files.write_text(file, csv_text(rows))),
            (self.latex, lambda file: files.write_text(file, latex_text(rows, notes))),
            (self.chart, lambda file: _draw(rows, file)),
        )


def attempt(*writes: tuple[Any, Callable[[Any], object]]) -> None:
    """Write to each place that is asked for, and say which files were written.

    What stops some of them, as a full disk, stops no other, and is all raised in the end.
    """
    faults: list[FSLSTMError] = []
    for place, write in writes:
        try:
            if place:
                write(place)
            if isinstance(place, Path):
                written(place)
        except FSLSTMError as error:
            faults.append(error)
        except OSError as error:
            faults.append(StorageError(f"Cannot write {error.filename}: {reason(error)}."))
    if len(faults) > 1:
        raise StorageError(" ".join(map(str, faults)))
    if faults:
        raise faults[0]


def _draw(rows: Sequence[Row], file: Path) -> None:
    from fslstm_plugin.reporting.captions import setting
    from fslstm_plugin.reporting.chart import chart, save

    save(chart(rows, setting(rows)), file, "chart")


def write_json(file: Path, content: Mapping[str, Any]) -> None:
    """What a command found as JSON with command, version and date."""
    files.write_json(file, to_plain({**made_now(), **content}))


def written(file: Path) -> None:
    """Say that a file was written; of a device or a pipe, which may be the standard output itself, nothing."""
    if file.is_file():
        typer.echo(f"Written: {printable(str(file))}.")

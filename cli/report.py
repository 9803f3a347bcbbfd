"""``fslstm report``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from fslstm_plugin.errors import RunError, printable
from fslstm_plugin.runs.builtin import PREFIX
from fslstm_plugin.storage.damage import naming_damage
from fslstm_plugin.storage.files import write_text

from . import options

if TYPE_CHECKING:
    from fslstm_plugin.reporting.blocks import Section

EXAMPLES = """
fslstm report
fslstm report base fslstm
fslstm report reproductions/table3 runs/base --output table3.html
fslstm report reproductions
"""


def report(
    sources: Annotated[
        Optional[list[str]],
        typer.Argument(
            metavar="[RUN|FOLDER]...", help="Runs, reproductions, or folders of either; the newest run if not given."
        ),
    ] = None,
    runs: options.RunsFolder = Path("runs"),
    output: Annotated[Path, options.output("The page.", "page")] = Path("report.html"),
) -> None:
    """Write one page that needs no network, with the best numbers, tables, figures, settings and provenance."""
    from fslstm_plugin.reporting.html import page
    from fslstm_plugin.runs.folder import Run

    wanted = sources or [str(Run.newest(runs).path)]
    sections = [section for source in wanted for section in _sections(source, runs)]
    names = ", ".join(printable(Path(source).absolute().name) for source in wanted)
    write_text(output, page(f"FSLSTM: {names}", sections))
    typer.echo(f"Saved the report in {printable(str(output))}.")


def _sections(source: str, runs: Path) -> list[Section]:
    """The sections of a run, a reproduction, or everything in a folder."""
    from fslstm_plugin.reporting.run_report import run_section
    from fslstm_plugin.reproduction.outputs import reproduction_section
    from fslstm_plugin.reproduction.trainings import describe
    from fslstm_plugin.runs.folder import Run

    folder = Path(source)
    if (folder / "specification.json").is_file():
        with naming_damage(folder):
            return [reproduction_section(folder)]
    inside = sorted(folder.glob("*/specification.json")) or sorted(folder.glob("*/config.json"))
    if inside and not (folder / "config.json").is_file():
        return [section for file in inside for section in _sections(str(file.parent), runs)]
    if not source.startswith(PREFIX) and not any((each / "config.json").is_file() for each in (folder, runs / source)):
        raise RunError(f"There is no run or reproduction at {source}, nor a run of that name in {runs}.")
    run = Run.find(source, runs)
    with naming_damage(run.path / "config.json"):
        training = describe(run.config)
    return [run_section(run, training)]

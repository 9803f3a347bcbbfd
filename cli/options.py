"""Options that several commands share, as annotated types."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from fslstm_plugin.errors import UsageError, printable
from fslstm_plugin.registry import BACKBONES
from fslstm_plugin.runs import builtin
from fslstm_plugin.storage.files import replaceable

if TYPE_CHECKING:
    from fslstm_plugin.training.engine import EngineOptions


_OURS = {  # By which an earlier file of a kind is known as one that may be replaced.
    "JSON file": rb'\s*\{\s*"command": "',
    "Label Studio file": rb'\s*\[\s*(\]|\{\s*"data": \{\s*"image": "/data/local-files/)',
    "CSV file": rb"dataset,split,",
    "LaTeX table": rb"% Needs",
    "card": rb'---\nlibrary_name: "fslstm"',
    "page": rb'(?s:.{,1000})<meta name="generator" content="fslstm">',
    "graph": rb"(?s:.{,16})fslstm",
    "chart": rb"(?s:.*)drawn by fslstm",
}
_REGULAR = {"graph", "chart"}  # Kinds that are written by a library, which takes no device and no pipe.
_MOST = 2**22  # Bytes of a file to look at; none of ours is that long before what tells it.


def output(help_text: str, kind: str | None = None, *names: str) -> Any:
    """The option of a file to write; one that has a kind replaces nothing but an earlier one of its kind."""

    def checked(file: Optional[Path]) -> Optional[Path]:
        if file is not None:
            _require_place(file, kind is None or kind in _REGULAR)
            _require_ours(file, kind)
        return file

    return typer.Option(*names, help=help_text, dir_okay=False, callback=checked)


def _require_place(file: Path, regular: bool) -> None:
    """Refuse a place that cannot be written; its folder must exist, so that a mistyped one is not created."""
    if str(file) == "-":
        raise UsageError(f"A file must have a name, but got -: name one{'' if regular else ', or /dev/stdout'}.")
    if regular:
        replaceable(file)
    if not file.parent.is_dir():
        raise UsageError(f"There is no folder {file.parent} for {file.name}: create it, or name another place.")
    place = Path(os.path.realpath(file))
    replaced = file.is_file() or not file.exists()  # a device or a pipe is written to
    if replaced and not os.access(place.parent, os.W_OK):
        raise UsageError(f"The folder {place.parent} of {place.name} cannot be written to: name another place.")


def _require_ours(file: Path, kind: str | None) -> None:
    """Refuse to replace a picture, or a file of another kind."""
    if kind is None:
        from fslstm_plugin.data.reading.decode import picture_suffixes

        if file.is_file() and file.suffix.lower() in picture_suffixes():
            raise UsageError(f"{file} is a picture, and is not replaced: name another file.")
    elif file.is_file() and file.stat().st_size:
        try:
            with file.open("rb") as opened:
                content = opened.read(_MOST)
        except OSError as error:
            raise UsageError(
                f"{file} already exists and cannot be read ({error.strerror}): name another file."
            ) from error
        if not re.match(_OURS[kind], content):
            raise UsageError(f"{file} already exists and is no {kind} of fslstm: name another file.")


def require_writable_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written to, or made where it is not there."""
    place = Path(os.path.realpath(folder))
    nearest = next(each for each in (place, *place.parents) if os.path.exists(each))
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise UsageError(f"The folder {folder} cannot be written to: name another place.")


def coverage_kind(coverage: float | None, kind: str | None) -> str:
    """The kind of coverage guarantee, per-class unless another is asked for."""
    if kind is not None and coverage is None:
        raise UsageError("--coverage-kind says how --coverage holds: give --coverage too, such as --coverage 0.8.")
    return kind or PER_CLASS


def require_apart(*files: Path | None) -> None:
    """Refuse one file for two outputs, of which one would be lost."""
    seen: set[str] = set()
    for file in files:
        if file is None or file.is_dir() or file.is_char_device():  # of pictures, or a terminal, or /dev/null
            continue
        place = os.path.realpath(file)
        if place in seen:
            raise UsageError(f"{file} is named for two outputs, and one would replace the other: name another file.")
        seen.add(place)


Backbone = Annotated[str, typer.Option(help="conv4, resnet12, or a registered one.", autocompletion=BACKBONES.names)]
DataRoot = Annotated[
    Optional[Path], typer.Option(help="Where the data sets are; $FSLSTM_DATA_ROOT, then ~/data, if not given.")
]
MaxSteps = Annotated[
    Optional[int], typer.Option(min=1, max=10**12, help="Stop after this many steps; the schedule is scaled to them.")
]
Name = Annotated[Optional[str], typer.Option(help="Name of the run folder.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the run --name, or the newest.")]
RunsFolder = Annotated[Path, typer.Option("--runs", help="Folder that holds the runs.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of every random choice.")]
PER_CLASS = "per-class"
COVERAGE_KIND = (
    "How --coverage holds. per-class, the default: for each class, however many labelled images it has. marginal: on "
    "average over the classes, if labelled and new images are drawn alike."
)
CoverageKind = Annotated[Optional[str], typer.Option(help=COVERAGE_KIND)]
Json = Annotated[Optional[Path], output("Also write the rows to this JSON file.", "JSON file", "--json")]

ENGINE = "Engine"  # Heading of the options that follow, and of the number of workers.


@dataclass(frozen=True)
class Engine:
    """Options of Lightning's Trainer, as typed; by default its own choices."""

    accelerator: Annotated[str, typer.Option(help="Lightning's accelerator: auto, cpu, gpu, ...")] = "auto"
    devices: Annotated[str, typer.Option(help="Number of devices, or auto.")] = "auto"
    num_nodes: Annotated[int, typer.Option(min=1, help="Number of machines.")] = 1
    strategy: Annotated[str, typer.Option(help="Lightning's strategy: auto, ddp, ...")] = "auto"
    precision: Annotated[
        str, typer.Option(help="auto, 32 or bf16; auto is bf16 where the CPU or GPU computes with it.")
    ] = "auto"
    checkpoint_every: Annotated[
        Optional[int], typer.Option(min=1, help="Steps between two checkpoints; as many as take a minute if not given.")
    ] = None

    def for_training(self) -> EngineOptions:
        """The same for the library, but for the precision, which is part of a run's configuration."""
        number = int(self.devices) if self.devices.isdecimal() and len(self.devices) < 5 else 0
        if self.devices != "auto" and not number:
            raise UsageError(f"--devices must be a number from 1 to 9999 or auto, but got '{self.devices}'.")
        from fslstm_plugin.training.engine import EngineOptions

        return EngineOptions(self.accelerator, number or "auto", self.num_nodes, self.strategy, self.checkpoint_every)


# Options that may accompany --resume: they do not change what is trained.
_WITH_RESUME = {
    "resume", "name", "runs", "data_root", "accelerator", "devices", "num_nodes", "strategy",
    "checkpoint_every", "workers", "max_pixels",
}  # fmt: skip


def refuse_beside(context: typer.Context, option: str, allowed: set[str], why: str) -> None:
    """Refuse options that were typed beside one with which they do nothing, but for parameters that are allowed."""
    for each in context.command.params:
        source = context.get_parameter_source(each.name or "")
        if source is not None and source.name == "COMMANDLINE" and each.name not in allowed:
            typed = each.secondary_opts if context.params[each.name or ""] is False else each.opts
            raise UsageError(f"{option} and {typed[0]} cannot be used together: {why}.")


def refuse_with_resume(context: typer.Context) -> None:
    """A continued run keeps its configuration: any option that would change it is an error."""
    refuse_beside(context, "--resume", _WITH_RESUME, "the run keeps its own configuration")


def find_pretrained(pretrained: Path | None, runs: Path) -> Path | None:
    """The folder or file itself, or else the run of that name in the folder of runs or in the package."""
    if pretrained is not None and str(pretrained).startswith(builtin.PREFIX):
        return builtin.place(str(pretrained), runs)
    if pretrained is not None and not pretrained.exists() and (runs / pretrained).exists():
        return runs / pretrained
    return pretrained


def announce(sentence: str) -> None:
    """Print a sentence once, whatever the number of training processes."""
    from pytorch_lightning.utilities.rank_zero import rank_zero_only

    rank_zero_only(typer.echo)(printable(sentence))

"""``fslstm suggest``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Optional

import typer

from fslstm_plugin.errors import printable

from . import evaluation, options, pictures, terminal

EXAMPLES = """
[bold]Examples[/bold]

fslstm suggest birds.fslstm pictures/

fslstm suggest birds.fslstm pictures/ --count 25 --json next.json
"""


def suggest(
    model: pictures.Model,
    source: pictures.Pictures,
    count: Annotated[int, typer.Option(min=1, max=1000, help="Number of pictures to suggest.")] = 10,
    weights: pictures.Moved = None,
    max_pixels: pictures.MaxPixels = None,
    device: evaluation.Device = "auto",
    json: options.Json = None,
    label_studio: Annotated[
        Optional[Path],
        typer.Option(
            help="Tasks for Label Studio, in this order; 'fslstm update --add' reads its export.",
            show_default=False,
            dir_okay=False,
            callback=options.in_a_folder,
        ),
    ] = None,
) -> None:
    """Say which pictures to label next, and why: those whose labels tell most about the others.

    Of more than 2,000 pictures, 2,000 are drawn at random and considered. Put the pictures that you label into class
    folders, and add them with 'fslstm update'.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from fslstm_plugin.data.reading.decode import allow_pixels
    from fslstm_plugin.pictures import pictures_in

    options.require_apart(model, source, json, label_studio)
    if max_pixels is not None:
        allow_pixels(max_pixels)
    console = Console(stderr=True)
    found = pictures_in(source, partial(terminal.say, console))
    classifier = pictures.load(model, device, weights)
    known = set(classifier.pictures_)
    new = [each for each in pictures.drawn(found, classifier.seed) if pictures.text_of(each.path) not in known]
    if not new:
        typer.echo(f"All pictures in {printable(str(source))} are labelled already.")
        if json is not None:
            _write(json, [])
        if label_studio is not None:
            _write_tasks(label_studio, [])
        return
    gathered = pictures.gather(new, classifier.open_backbone(), console)
    rows = [
        (number, gathered.pictures[each.place].path, each.reason)
        for number, each in enumerate(classifier.suggest(gathered.features.numpy(), count), start=1)
    ]
    table = Table("", "Picture", "Why")
    for number, path, reason in rows:
        place = pictures.shown(pictures.text_of(path), source)
        table.add_row(str(number), Text(printable(place), overflow="fold"), Text(printable(reason)))
    Console().print(table)
    if json is not None:
        _write(json, [(pictures.text_of(path), printable(reason)) for _, path, reason in rows])
    if label_studio is not None:
        _write_tasks(label_studio, [pictures.text_of(path) for _, path, _ in rows])


def _write_tasks(file: Path, paths: list[str]) -> None:
    from fslstm_plugin.pictures.label_studio import task
    from fslstm_plugin.storage.files import write_json

    write_json(file, [task(file, path) for path in paths])
    typer.echo(f"Written: {printable(str(file))}.")


def _write(json: Path, rows: list[tuple[str, str]]) -> None:
    from fslstm_plugin import __version__
    from fslstm_plugin.pictures.predictions import path_beside
    from fslstm_plugin.reporting.provenance import command_line
    from fslstm_plugin.storage.files import write_json

    suggestions = [{"path": path_beside(json, path), "reason": reason} for path, reason in rows]
    write_json(json, {"command": command_line(), "version": __version__, "suggestions": suggestions})

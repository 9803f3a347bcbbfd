"""``fslstm suggest``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

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

    options.require_apart(model, source, json)
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


def _write(json: Path, rows: list[tuple[str, str]]) -> None:
    from fslstm_plugin import __version__
    from fslstm_plugin.pictures.predictions import path_beside
    from fslstm_plugin.reporting.provenance import command_line
    from fslstm_plugin.storage.files import write_json

    suggestions = [{"path": path_beside(json, path), "reason": reason} for path, reason in rows]
    write_json(json, {"command": command_line(), "version": __version__, "suggestions": suggestions})

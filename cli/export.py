"""``fslstm export``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Optional

import typer

from fslstm_plugin.errors import DataError, UsageError, printable

from . import options, pictures, terminal

EXAMPLES = """
[bold]Examples[/bold]

fslstm export birds.fslstm --onnx birds.onnx

fslstm export birds.fslstm --onnx birds.onnx --check pictures/
"""

_CHECKED = 64  # Pictures; drawn where there are more.


def export(
    model: pictures.Model,
    onnx: Annotated[
        Path, typer.Option(help="File of the graph.", dir_okay=False, callback=options.in_a_folder, show_default=False)
    ],
    check: Annotated[
        Optional[Path],
        typer.Option(help="Pictures to check the graph with. Default: the labelled ones.", show_default=False),
    ] = None,
    weights: pictures.Moved = None,
    max_pixels: pictures.MaxPixels = None,
) -> None:
    """Write backbone and head as one ONNX graph, for programs without PyTorch.

    The graph is run on up to 64 pictures, and kept only if it predicts them as the classifier does. It takes normalised
    images; its metadata say how to prepare them, and name the classes.
    """
    import random

    from rich.console import Console

    from fslstm_plugin.data.reading.decode import allow_pixels, read_picture
    from fslstm_plugin.pictures import Picture, pictures_in
    from fslstm_plugin.pictures.onnx import export_onnx, require_packages
    from fslstm_plugin.pictures.tables import path_of

    console = Console(stderr=True)
    require_packages()
    options.require_apart(model, onnx)
    if onnx.exists() and onnx.suffix != ".onnx":
        raise UsageError(f"{onnx} already exists and is not replaced, since it is not named as an .onnx file.")
    if max_pixels is not None:
        allow_pixels(max_pixels)
    classifier = pictures.load(model, "cpu", weights)
    if check is None:
        found = [Picture(Path(path_of(name))) for name in classifier.pictures_ if name]
    else:
        found = pictures_in(check, partial(terminal.say, console))
    found = random.Random(0).sample(found, min(len(found), _CHECKED))
    images = []
    for each in found:
        try:
            images.append(read_picture(each.path))
        except DataError as error:
            terminal.say(console, f"Not checked with: {error}")
    difference = export_onnx(classifier, onnx, images)
    typer.echo(
        f"Saved in {printable(str(onnx))}; on {pictures.count_of(len(images))} its probabilities are those of the "
        f"classifier, to within {difference:.1g}."
    )

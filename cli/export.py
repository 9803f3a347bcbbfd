"""``fslstm export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from fslstm_plugin.errors import DataError, UsageError, printable

from . import options, pictures, results

EXAMPLES = """
[bold]Examples[/bold]

fslstm export birds.fslstm --onnx birds.onnx

fslstm export birds.fslstm --onnx birds.onnx --check pictures/
"""

_CHECKED = 64  # Pictures; drawn where there are more.


def export(
    model: pictures.Model,
    onnx: Annotated[
        Path, typer.Option(help="The graph's file.", dir_okay=False, callback=options.in_a_folder, show_default=False)
    ],
    check: Annotated[
        Optional[Path],
        typer.Option(help="Pictures to check it with; the labelled ones if not given.", show_default=False),
    ] = None,
    weights: pictures.Moved = None,
    max_pixels: pictures.MaxPixels = None,
) -> None:
    """Write backbone and head as one ONNX graph, for programs without PyTorch.

    It is run on pictures, 64 at most, and kept only if it predicts them as the classifier does. The graph takes
    normalised images; how to make them is in its metadata, and so are the names of the classes.
    """
    import random

    from rich.console import Console

    from fslstm_plugin.data.decode import allow_pixels, read_picture
    from fslstm_plugin.pictures import Picture, pictures_in
    from fslstm_plugin.pictures.onnx import export_onnx, require_packages

    require_packages()
    if onnx.exists() and (onnx.suffix != ".onnx" or onnx.samefile(model)):
        raise UsageError(f"{onnx} is there already and is not replaced, since its name does not end with .onnx.")
    if max_pixels is not None:
        allow_pixels(max_pixels)
    classifier = pictures.load(model, "cpu", weights)
    found = [Picture(Path(name)) for name in classifier.pictures_ if name] if check is None else pictures_in(check)
    found = random.Random(0).sample(found, min(len(found), _CHECKED))
    images = []
    for each in found:
        try:
            images.append(read_picture(each.path))
        except DataError as error:
            results.say(Console(stderr=True), f"Not checked with: {error}")
    difference = export_onnx(classifier, onnx, images)
    typer.echo(
        f"Saved in {printable(str(onnx))}; on {pictures.count_of(len(images))} its probabilities are those of the "
        f"classifier, to {difference:.1g}."
    )

"""``fslstm export``."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from fslstm_plugin.errors import DataError, UsageError, count_of, printable
from fslstm_plugin.storage.files import write_text
from fslstm_plugin.storage.tables import path_of

from . import options, pictures, results, terminal

if TYPE_CHECKING:
    from fslstm_plugin.classifier.classifier import Classifier

EXAMPLES = """
fslstm export birds.fslstm --onnx birds.onnx
fslstm export birds.fslstm --onnx birds.onnx --check pictures/
fslstm export birds.fslstm --card README.md
"""

_CHECKED = 64  # Pictures; drawn where there are more.


def export(
    model: pictures.Model,
    onnx: Annotated[Optional[Path], options.output("File of the graph.", "graph")] = None,
    card: Annotated[
        Optional[Path],
        options.output(
            "File of a card in Markdown: classes, what to expect, backbone and licence, with a hub's metadata.", "card"
        ),
    ] = None,
    check: Annotated[
        Optional[Path],
        typer.Option(
            help="Pictures to check the graph with. Default: the labelled ones.", callback=pictures.refuse_model
        ),
    ] = None,
    weights: pictures.Moved = None,
    max_pixels: pictures.MaxPixels = None,
) -> None:
    """Write backbone and head as one ONNX graph, for programs without PyTorch; or a card that says what a model is.

    The graph is run on up to 64 pictures, and kept only if it predicts them as the classifier does. It takes normalised
    images; its metadata say how to prepare them, and name the classes.
    """
    from fslstm_plugin.pictures.onnx import require_packages

    if onnx is None and card is None:
        raise UsageError("There is nothing to export: give --onnx, --card or both.")
    if check is not None and onnx is None:
        raise UsageError("--check names pictures to check the graph with: give --onnx too.")
    if max_pixels is not None and onnx is None:
        raise UsageError("--max-pixels limits the pictures that check the graph: give --onnx too.")
    options.require_apart(model, onnx, card)
    if onnx is not None:  # what is wrong is said before anything is computed
        require_packages()
    classifier = pictures.load(model, "cpu", weights)
    if onnx is not None:
        _write_graph(classifier, onnx, check)
    if card is not None:
        _write_card(classifier, model, card)


def _write_graph(classifier: Classifier, onnx: Path, check: Path | None) -> None:
    from fslstm_plugin.pictures import Picture
    from fslstm_plugin.pictures.onnx import export_onnx
    from fslstm_plugin.pictures.picture import read_boxed

    if check is None:
        found = [Picture(Path(path_of(name))) for name in classifier.pictures_ if name]
    else:
        found = pictures.unlabelled(check)
    found = random.Random(0).sample(found, min(len(found), _CHECKED))
    images, faults = [], []
    for each in found:
        try:
            images.append(read_boxed(each.path))
        except DataError as error:
            faults.append(error)
    if faults:
        more = f" And {len(faults) - 1:,} more." if len(faults) > 1 else ""
        terminal.say(f"Not checked with: {faults[0]}{more}")
    difference = export_onnx(classifier, onnx, images)
    typer.echo(
        f"Saved in {printable(str(onnx))}; on {count_of(len(images), 'picture')} its probabilities agree with the "
        f"classifier's to within {difference:.1g}."
    )


def _write_card(classifier: Classifier, model: Path, file: Path) -> None:
    from fslstm_plugin.classifier.model_file import ModelFile
    from fslstm_plugin.pictures.card import card
    from fslstm_plugin.pictures.expectations import expectations, sentences

    expected = expectations(classifier)
    licence = classifier.open_backbone().licence
    write_text(file, card(ModelFile.read(model), expected, sentences(expected), model.name, licence))
    results.written(file)

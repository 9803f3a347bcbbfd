"""``fslstm show``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import typer
from msgspec import structs

from fslstm_plugin.errors import count_of, printable
from fslstm_plugin.storage.tables import path_of

from . import options, pictures, results, terminal

if TYPE_CHECKING:
    from fslstm_plugin.classifier.identity import BackboneIdentity

EXAMPLES = """
fslstm show birds.fslstm
fslstm show birds.fslstm --json birds.json
"""


def show(model: pictures.Model, json: options.Json = None) -> None:
    """Say what a classifier is: its classes, backbone and method, and what to expect of it.

    Neither the pictures nor the backbone's weights are needed.
    """
    from rich.table import Column, Table

    from fslstm_plugin.classifier.classifier import Classifier
    from fslstm_plugin.classifier.model_file import ModelFile
    from fslstm_plugin.pictures.expectations import expectations, sentences

    options.require_apart(model, json)
    content = ModelFile.read(model)
    expected = expectations(Classifier.of(content, model))
    table = Table("Class", Column("Pictures", justify="right"))
    for name, number in expected.pictures.items():
        table.add_row(terminal.cell(name), f"{number:,}")
    terminal.for_tables().print(table)
    sets = "" if content.set_method in (None, expected.method) else f"; prediction sets by {content.set_method}"
    for sentence in (
        *([] if content.made is None else [f"Made on {content.made.date} by fslstm {content.made.version}."]),
        *_origin(content.pictures),
        f"Backbone: {_of_backbone(content.backbone)}.",
        f"Method: {expected.method}{sets}.",
        *sentences(expected),
    ):
        typer.echo(printable(sentence))
    set_method = content.set_method or expected.method
    about = {"made": content.made, "backbone": content.backbone, "set_method": set_method, **structs.asdict(expected)}
    rows = [{"class": name, "pictures": number} for name, number in about.pop("pictures").items()]
    results.attempt((json, lambda file: results.write_json(file, {**about, "rows": rows})))


def _origin(names: tuple[str, ...]) -> list[str]:
    """The folder that all pictures lie in, in a sentence; none where no names are known."""
    places = [path_of(each) for each in names if each]
    if not places:
        return []
    folder = _near(os.path.commonpath([os.path.dirname(each) for each in places]))
    return [f"Fitted to {count_of(len(names), 'picture')} in {folder}."]


def _near(path: str) -> str:
    """A path from the working folder, if it lies within; any other text as it is."""
    near = os.path.relpath(path) if os.path.isabs(path) else path
    return path if near.startswith(".") else near


def _of_backbone(identity: BackboneIdentity | None) -> str:
    if identity is None:
        return "none, since it was fitted to features"
    height, width = identity.image_size
    more = [f"pooling {identity.pooling}"] if identity.pooling else []
    more += [f"views {identity.views}"] if identity.views else []
    return ", ".join([f"{_near(identity.name)} ({height} x {width} pixels)", *more, f"weights {identity.digest[:12]}"])

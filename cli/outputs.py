"""The files that `predict` writes from a table of predictions: JSON, tasks, a gallery, sidecars, sorted pictures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fslstm_plugin.errors import StorageError, count_of, printable
from fslstm_plugin.pictures import xmp
from fslstm_plugin.pictures.label_studio import task
from fslstm_plugin.pictures.picture import unboxed
from fslstm_plugin.pictures.predictions import NONE, UNSURE, Asked, Prediction
from fslstm_plugin.pictures.sorting import sort_into
from fslstm_plugin.reporting.provenance import made_now
from fslstm_plugin.storage import files
from fslstm_plugin.storage.tables import path_beside, path_of

from . import terminal
from .summary import Summary

if TYPE_CHECKING:
    from fslstm_plugin.pictures.likeness import Tested

    from .labellers import Labeller


def write_json(file: Path, asked: Asked, labeller: Labeller, tested: Tested | None) -> None:
    """All predictions as JSON, a line for each, of which one is held at a time."""
    about = {
        **made_now(),
        "model": asked.table.model,
        "coverage": labeller.sets and {"share": labeller.sets.coverage, "kind": labeller.sets.kind},
        "likeness": tested and tested._asdict() | {"different": [path_beside(file, each) for each in tested.different]},
        "accept": labeller.accepted,
        "uncalibrated": labeller.why_uncalibrated,
    }
    rows = (
        {
            "path": path_beside(file, each.path),
            "label": each.label,
            "likeliest": each.likeliest,
            "probability": each.probability,
            "cautious": each.cautious,
            "calibrated": each.calibrated,
            "familiarity": each.familiarity,
            "probabilities": dict(zip(labeller.classes, each.probabilities, strict=False)) or None,
            "set": each.labels,
            "sure": each.sure,
            "nearest": path_beside(file, each.nearest),
        }
        for each in asked
    )
    lines = (f"{',' if number else ''}\n{json.dumps(row)}" for number, row in enumerate(rows))
    files.write_text(file, chain([f'{json.dumps(about)[:-1]}, "rows": ['], lines, ["\n]}\n"]))


def write_tasks(file: Path, found: Iterable[tuple[str, Prediction | None]], model: str = "") -> None:
    """Tasks for Label Studio, of pictures by their names, with what a model predicts."""
    files.write_json(file, [task(file, path, prediction, model) for path, prediction in found])


def write_gallery(file: Path, asked: Asked, labeller: Labeller, title: str, lead: Sequence[str]) -> None:
    """The page of all pictures, with sentences on top."""
    from fslstm_plugin.reporting.gallery import gallery  # which needs an extra

    files.write_text(file, gallery(asked, labeller.classes, title, lead, file, labeller.labelled, labeller.identity))


def write_sidecars(asked: Asked) -> None:
    """XMP sidecars with the labels as keywords, of sure ones where that was asked."""
    keywords: dict[Path, dict[str, None]] = {}  # of all boxes of a picture, each once
    for each in asked:
        file, _ = unboxed(Path(path_of(each.path)))
        mine = keywords.setdefault(file, {})
        if each.label != NONE and each.sure is not False:
            mine[each.label] = None
    done = xmp.write_sidecars(keywords)
    left = f" Left unchanged, made or edited by other programs: {done.left:,}." if done.left else ""
    typer.echo(f"Written: {count_of(done.written, 'XMP sidecar')}.{left}")
    if done.failed:
        others = count_of(len(done.failed) - 1, "other XMP sidecar")
        more = f" {others} could not be written either." if done.failed[1:] else ""
        raise StorageError(f"{done.failed[0]}{more}")


def sort(folder: Path, asked: Asked, summary: Summary, link: bool) -> None:
    """The pictures in a folder for each label, copied or linked."""
    found = (
        (unboxed(Path(path_of(each.path)))[0], UNSURE if each.sure is False and each.label != NONE else each.label)
        for each in asked
    )
    for sentence in sort_into(folder, found, [*summary.counts, UNSURE], link):
        terminal.say(sentence)
    typer.echo(f"{'Linked' if link else 'Copied'} into {printable(str(folder))}.")

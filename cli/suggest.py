"""``fslstm suggest``."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from fslstm_plugin.errors import UsageError, printable
from fslstm_plugin.storage.tables import path_beside

from . import evaluation, gathering, options, pictures, results, terminal

if TYPE_CHECKING:
    from torch import Tensor

    from fslstm_plugin.classifier.suggestions import Suggestion

EXAMPLES = """
fslstm suggest birds.fslstm pictures/
fslstm suggest birds.fslstm pictures/ --count 25 --json next.json
fslstm suggest pictures/ --count 25  (which to label first)
"""

ModelOrPictures = Annotated[
    Path,
    typer.Argument(metavar="MODEL|PICTURES", help="What 'fslstm fit' wrote; or unlabelled pictures."),
]
PicturesOrNone = Annotated[
    Optional[Path],
    typer.Argument(
        metavar="PICTURES",
        help="With MODEL: a folder, a picture, or a CSV file with the column path.",
        callback=pictures.refuse_model,
    ),
]
WeightsOrMoved = Annotated[
    Optional[Path],
    pictures.moved("The weights of --backbone, or the new place of MODEL's backbone, if moved since 'fit'."),
]


def suggest(
    context: typer.Context,
    model: ModelOrPictures,
    source: PicturesOrNone = None,
    count: Annotated[int, typer.Option(min=1, max=1000, help="Number of pictures to suggest.")] = 10,
    backbone: pictures.BackboneName = None,
    weights: WeightsOrMoved = None,
    pooling: pictures.Pooling = None,
    views: pictures.Views = None,
    runs: options.RunsFolder = Path("runs"),
    max_pixels: pictures.MaxPixels = None,
    device: evaluation.Device = "auto",
    seed: options.Seed = 0,
    json: options.Json = None,
    label_studio: Annotated[
        Optional[Path],
        options.output(
            "Tasks for Label Studio, in this order; 'fslstm update --add' reads its export.", "Label Studio file"
        ),
    ] = None,
) -> None:
    """Say which pictures to label next, and why: those whose labels tell most about the others.

    Without a classifier, --backbone decides which pictures to label first. Of more than 2,000 pictures, 2,000 are drawn
    at random and considered. Put the pictures that you label into class folders, and fit to them or add them with
    'fslstm update'.
    """
    from rich.table import Table

    options.require_apart(model, source, json, label_studio)
    choose: Callable[[Tensor, int], list[Suggestion]]
    if source is None:
        from fslstm_plugin.classifier.suggestions import suggest_first

        source = model
        if source.is_file() and source.suffix.lower() == ".fslstm":
            raise UsageError(f"Name the pictures after {source}: 'fslstm suggest {shlex.quote(str(source))} PICTURES'.")
        pictures.refuse_model(source)
        new = pictures.drawn(pictures.unlabelled(source), seed)
        network, choose = pictures.open_backbone(backbone, weights, pooling, runs, device, views), suggest_first
    else:
        if model.is_dir():
            raise UsageError(
                f"{model} is a folder, not what 'fslstm fit' wrote: name that, or leave one of the two out."
            )
        allowed = {*context.params} - {"backbone", "pooling", "views", "runs", "seed"}
        options.refuse_beside(context, "MODEL", allowed, "a classifier has a backbone and a seed of its own")
        found = pictures.unlabelled(source)
        classifier = pictures.load(model, device, weights)
        known = set(classifier.pictures_)
        new = [each for each in pictures.drawn(found, classifier.seed) if each.name not in known]
        if not new:
            typer.echo(f"All pictures in {printable(str(source))} are labelled already.")
            _write([], json, label_studio)
            return
        network, choose = classifier.open_backbone(), classifier.suggest
    if label_studio is not None:
        pictures.refuse_boxes(new, "--label-studio")
    gathered = gathering.gather(new, network)
    rows = [(gathered.pictures[each.place].name, each.reason) for each in choose(gathered.features, count)]
    table = Table("", "Picture", "Why")
    for number, (path, reason) in enumerate(rows, start=1):
        place = pictures.shown(path, source)
        table.add_row(str(number), terminal.cell(place), terminal.cell(reason))
    terminal.for_tables().print(table)
    _write(rows, json, label_studio)


def _write(rows: Sequence[tuple[str, str]], json: Path | None, label_studio: Path | None) -> None:
    from . import outputs

    def suggestions(file: Path) -> list[dict[str, str]]:
        return [{"path": path_beside(file, path), "reason": printable(reason)} for path, reason in rows]

    results.attempt(
        (json, lambda file: results.write_json(file, {"rows": suggestions(file)})),
        (label_studio, lambda file: outputs.write_tasks(file, [(path, None) for path, _ in rows])),
    )

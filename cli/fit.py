"""``fslstm fit``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import msgspec
import typer

from fslstm_plugin.errors import DataError, UsageError, count_of, listed, printable
from fslstm_plugin.storage.files import write_text
from fslstm_plugin.storage.tables import path_beside

from . import evaluation, gathering, options, pictures, results, terminal
from .command import as_options

if TYPE_CHECKING:
    from fslstm_plugin.pictures import Picture
    from fslstm_plugin.pictures.expectations import Expectations

    from .gathering import Gathered

EXAMPLES = """
fslstm fit labelled/ -o birds.fslstm
fslstm fit --sample -o drawings.fslstm  (drawings, to try it)
fslstm fit labels.csv -o birds.fslstm --backbone timm:vit_small_patch16_dinov3 --pooling token
fslstm fit labelled/ -o birds.fslstm --method "lssvm(ridge=1,normalize)"
fslstm fit labelled/ -o birds.fslstm --groups time:300  (bursts: judged without their other pictures)
"""

SAMPLE = Path("sample")
Output = Annotated[Path, options.output("File of the classifier.", None, "--output", "-o")]


def fit(
    output: Output,
    labelled: pictures.LabelledOrNone = None,
    sample: Annotated[
        bool,
        typer.Option("--sample", help=f"Draw sample pictures into the folder {SAMPLE}, and fit to them."),
    ] = False,
    method: Annotated[
        Optional[str], typer.Option(help="Name of a method. Default: chosen by leave-one-out.", show_default=False)
    ] = None,
    backbone: pictures.BackboneName = None,
    weights: pictures.Weights = None,
    pooling: pictures.Pooling = None,
    views: pictures.Views = None,
    groups: pictures.Groups = None,
    runs: options.RunsFolder = Path("runs"),
    max_pixels: pictures.MaxPixels = None,
    seed: options.Seed = 0,
    device: evaluation.Device = "auto",
    json: Annotated[Optional[Path], options.output("What is printed, in full, as JSON.", "JSON file")] = None,
    html: Annotated[
        Optional[Path], options.output("A page of what is printed, with the possibly mislabelled pictures.", "page")
    ] = None,
) -> None:
    """Learn classes from a few labelled pictures of each, and say what to expect.

    A frozen backbone computes features. The head and its constants are chosen by leaving out each labelled picture in
    turn, so that no further pictures are needed. The file holds features and names: no pictures, and no code.
    """
    from fslstm_plugin.classifier.classifier import Classifier, method_to_fit
    from fslstm_plugin.classifier.selection import CANDIDATES
    from fslstm_plugin.pictures.expectations import expectations, sentences
    from fslstm_plugin.pictures.sample import draw_sample

    if sample == (labelled is not None):
        raise UsageError("Name labelled pictures, or give --sample for drawings to try it on.")
    if labelled is None:
        draw_sample(SAMPLE)
        labelled = SAMPLE / "labelled"
    options.require_apart(labelled, output, json, html)
    if html is not None:
        from fslstm_plugin.reporting.gallery import overview  # what it needs is missed before anything is computed
    if method is not None and method_to_fit(method).needs_base_mean:  # said before anything is computed
        raise UsageError(
            f"{method} needs the mean feature of base classes, which labelled pictures do not have: use "
            "center=episode, or neither center nor stretch."
        )
    found = pictures.labelled(labelled, groups)
    _require_two(found, labelled)
    pictures.require_replaceable(output)
    network = pictures.open_backbone(backbone, weights, pooling, runs, device, views)
    gathered = gathering.gather(found, network)
    _require_two(gathered.pictures, labelled)
    once, copies = gathering.without_copies(gathered)
    _tell_lost(found, once)
    features, labels = once.features.numpy(), [str(each.label) for each in once.pictures]
    # Sets by a method that was chosen with these pictures would not have the guaranteed coverage.
    by = None if method else CANDIDATES[0]
    classifier = Classifier(method or _chosen(once), backbone=network, seed=seed, set_method=by)
    classifier.fit(features, labels, [each.name for each in once.pictures], [each.group for each in once.pictures])
    said = expectations(classifier)
    with pictures.claimed(output):  # an update of it may be under way
        classifier.save(output)
    lost = f"; {count_of(len(once.unreadable), 'picture')} could not be read" if once.unreadable else ""
    fitted = [
        f"{count_of(len(labels), 'picture')}, {len(said.pictures)} classes{lost}.",
        *gathering.on_copies(copies),
        f"Method: {said.method}{'' if method else _reason(said)}.",
    ]
    for sentence in [*fitted, *sentences(said)]:
        typer.echo(sentence)
    saved, new = printable(str(output)), SAMPLE / "new" if sample else "PICTURES"
    typer.echo(f"Saved in {saved}. Next: fslstm predict {shlex.quote(saved)} {new}")
    lead = [*fitted, *sentences(said, pairs=False)]
    results.attempt(
        (json, lambda file: _write(file, said, once, copies)),
        (html, lambda file: write_text(file, overview(said, printable(output.name), lead))),
    )


def _chosen(gathered: Gathered) -> str:
    """Name of the method that leave-one-out chooses."""
    import numpy as np
    import torch

    from fslstm_plugin.classifier.groups import numbered
    from fslstm_plugin.classifier.selection import choose_method

    _, labels = np.unique([str(each.label) for each in gathered.pictures], return_inverse=True)
    groups = numbered([each.group for each in gathered.pictures])
    return choose_method(gathered.features, torch.from_numpy(labels), groups=groups).method


def _reason(said: Expectations) -> str:
    """Why it is this method."""
    if said.judged:
        return ", chosen by leaving out each picture in turn"
    return ", the usual one, since no class has a picture that can be left out"


def _require_two(found: Sequence[Picture], source: Path) -> None:
    from fslstm_plugin.pictures import class_names

    names = class_names(found)
    if len(names) < 2:
        raise DataError(
            f"{source} has pictures of one class only, {names[0]}: a classifier needs two or more. Add a folder "
            "of another class, for example pictures of anything else."
        )


def _tell_lost(found: Sequence[Picture], kept: Gathered) -> None:
    """Name classes of which no picture can be read."""
    from fslstm_plugin.pictures import class_names

    left = set(class_names(kept.pictures))
    if lost := [name for name in class_names(found) if name not in left]:
        terminal.say(f"Classes left out, since none of their pictures can be read: {listed(lost)}.")


def _write(json: Path, said: Expectations, gathered: Gathered, copies: Sequence[Sequence[Picture]]) -> None:
    unreadable = [
        {"picture": path_beside(json, each.picture.name), "reason": as_options(each.text)}
        for each in gathered.unreadable
    ]
    beside = [[path_beside(json, each.name) for each in group] for group in copies]
    results.write_json(json, {**msgspec.structs.asdict(said), "unreadable": unreadable, "copies": beside})

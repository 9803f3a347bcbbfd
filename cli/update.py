"""``fslstm update``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from fslstm_plugin.errors import UnknownNameError, UsageError, count_of, listed, printable
from fslstm_plugin.storage.files import replaceable
from fslstm_plugin.storage.tables import path_of

from . import evaluation, gathering, options, pictures, terminal
from .gathering import Gathered

if TYPE_CHECKING:
    from fslstm_plugin.classifier.classifier import Classifier
    from fslstm_plugin.pictures import Picture

EXAMPLES = """
fslstm update birds.fslstm --add more/
fslstm update birds.fslstm --forget sparrow --add sparrows.csv -o new.fslstm
fslstm update birds.fslstm --add corrections.csv --remove blurred.jpg
"""


def update(
    model: pictures.Model,
    add: Annotated[
        Optional[Path],
        typer.Option(
            help="More labelled pictures, of known or new classes, in any form that 'fslstm fit' takes.",
            callback=pictures.refuse_model,
        ),
    ] = None,
    forget: Annotated[Optional[list[str]], typer.Option(help="A class to remove; repeat it for several.")] = None,
    remove: Annotated[
        Optional[list[str]],
        typer.Option(
            metavar="PICTURE", help="A labelled picture to remove, by its name or path; repeat it for several."
        ),
    ] = None,
    output: Annotated[
        Optional[Path],
        options.output("File of the updated classifier. Default: the old one is replaced.", None, "--output", "-o"),
    ] = None,
    groups: pictures.Groups = None,
    weights: pictures.Moved = None,
    max_pixels: pictures.MaxPixels = None,
    device: evaluation.Device = "auto",
) -> None:
    """Add labelled pictures to a classifier, or remove pictures or classes.

    The result is the same as fitting anew with the pictures in that order. The pictures that it was fitted to are not
    needed. Its method stays the same; its temperature is fitted again. Classes and pictures are removed
    before others are added. To correct a label, add the picture with the right label.
    """
    from fslstm_plugin.pictures.expectations import expectations, sentences

    if add is None and not forget and not remove:
        raise UsageError("There is nothing to update: give --add, --remove or --forget.")
    for option, value in (("--groups", groups), ("--max-pixels", max_pixels)):
        if value is not None and add is None:
            raise UsageError(f"{option} is for the pictures of --add: give --add too.")
    if output is None:
        options.require_writable_folder(replaceable(model).parent)
    changes: list[str] = []
    with pictures.claimed(output or model):
        if output is not None:
            pictures.require_replaceable(output)
        classifier = pictures.load(model, device, weights)
        gone = {*_rows_of_classes(classifier, forget or []), *_rows_of_pictures(classifier, remove or [])}
        held = gathering.held(classifier)
        kept = held.at([row for row in range(len(held.pictures)) if row not in gone])
        if add is not None:
            kept = _with_added(kept, classifier, add, groups, changes)
        _fit(classifier, held, kept)
        classifier.save(output or model)
    for sentence in changes:  # only what is true now
        terminal.say(sentence)
    expected = expectations(classifier)
    number = sum(expected.pictures.values())
    typer.echo(
        f"{count_of(number, 'picture')}, {len(expected.pictures)} classes, saved in {printable(str(output or model))}."
    )
    for sentence in sentences(expected):
        typer.echo(sentence)


def _fit(classifier: Classifier, held: Gathered, kept: Gathered) -> None:
    """Fit anew to the pictures that are kept; those that it held keep their names."""
    import numpy as np

    names = dict(zip(map(id, held.pictures), classifier.pictures_, strict=True))
    kind = classifier.classes_.dtype
    classifier.fit(
        kept.features.numpy(),
        np.array([each.label for each in kept.pictures], dtype=None if kind.kind == "U" else kind),
        [names.get(id(each), each.name) for each in kept.pictures],
        [each.group for each in kept.pictures],
    )


def _with_added(
    held: Gathered, classifier: Classifier, source: Path, groups: str | None, changes: list[str]
) -> Gathered:
    """The held pictures and those of a source that are not among them; of one that is, the new label counts.

    One that is "none of these" now is held no longer. A sentence on each kind of change is appended to the changes.
    """
    import torch

    from fslstm_plugin.data.reading.walk import class_name, on_case
    from fslstm_plugin.pictures import class_names
    from fslstm_plugin.pictures.duplicates import corrections

    if classifier.classes_.dtype.kind not in "UO":
        raise UsageError("The classes of this classifier are numbers, not names: add pictures to it from Python.")
    labelled, none = pictures.examples(source, groups)
    held = _without_refused(held, none, changes)
    if not labelled:
        return held
    classes = {class_name(str(each.label)): each.label for each in held.pictures}
    if any(classifier.groups_) and groups is None:
        terminal.say("Each new picture is a group of its own, since no --groups are given.")
    given = gathering.gather(labelled, classifier.open_backbone())
    spelled = [each._replace(label=str(classes.get(str(each.label), each.label))) for each in given.pictures]
    given = given._replace(pictures=spelled)
    gathering.without_copies(given)
    corrected = corrections(held.pictures, given.pictures, torch.cat([held.features, given.features]))
    as_corrected = [corrected.get(place, each) for place, each in enumerate(held.pictures)]
    new = _not_held(given, held._replace(pictures=as_corrected), source, changes)
    said = {*on_case(classes), *on_case(class_names(labelled))}  # before, or of the new ones by themselves
    changes += [each for each in on_case(class_names([*as_corrected, *new.pictures])) if each not in said]
    if corrected:
        changes.append(_on_corrections([(held.pictures[place], each) for place, each in corrected.items()]))
    mine = [
        corrected[place]._replace(group=each.group) if place in corrected else each
        for place, each in enumerate(held.pictures)
    ]
    return Gathered([*mine, *new.pictures], torch.cat([held.features, new.features]), [])


def _not_held(given: Gathered, held: Gathered, source: Path, changes: list[str]) -> Gathered:
    """The pictures that are not held yet, each once; what is left out is among the changes."""
    before = {id(each) for each in held.pictures}
    rest = given.at([place for place, each in enumerate(given.pictures) if id(each) not in before])
    new, copies = gathering.without_copies(rest, held)
    if again := len(rest.pictures) - len(new.pictures):
        changes.append(f"Already in the classifier, or given twice: {count_of(again, 'picture')} of {source}.")
    renamed = [group for group in copies if len({each.name for each in group}) > 1]
    changes += gathering.on_copies([group for group in renamed if not before.issuperset(map(id, group))])
    return new


def _without_refused(held: Gathered, none: Sequence[Picture], changes: list[str]) -> Gathered:
    """The held pictures but for those that are "none of these" now, which is one of the changes."""
    from fslstm_plugin.pictures.predictions import NONE

    names = {each.name for each in none}
    if refused := [Path(each.name).name for each in held.pictures if each.name in names]:
        changes.append(printable(f'Taken out of the classifier, since "{NONE}": {listed(refused)}.'))
    return held.at([place for place, each in enumerate(held.pictures) if each.name not in names])


def _rows_of_classes(classifier: Classifier, names: Sequence[str]) -> list[int]:
    from fslstm_plugin.data.reading.walk import class_name

    classes = [class_name(str(each)) for each in classifier.classes_.tolist()]
    for name in names:
        if class_name(name) not in classes:
            raise UnknownNameError("class", name, classes)
    wanted = {class_name(each) for each in names}
    return [place for place, label in enumerate(classifier.support_labels_) if classes[label] in wanted]


def _rows_of_pictures(classifier: Classifier, names: Sequence[str]) -> list[int]:
    """Each picture is named by any last parts of its path."""
    paths = [Path(path_of(each)) for each in classifier.pictures_]
    rows = []
    for name in names:
        parts = Path(os.path.abspath(name) if name.startswith("..") else name).parts
        places = [place for place, each in enumerate(paths) if each.parts[-len(parts) :] == parts]
        if len(places) != 1:
            candidates = listed(paths[place] for place in places)
            raise UsageError(
                f"{name} is the name of {len(places)} labelled pictures: name one by more of its path ({candidates})."
                if places
                else f"No labelled picture has the name {name}: 'fslstm show' says which folder they are from."
            )
        rows += places
    return rows


def _on_corrections(pairs: Sequence[tuple[Picture, Picture]]) -> str:
    """A sentence on pictures that have another label now."""
    told = listed(f"{now.path} ({before.label}, now {now.label})" for before, now in pairs)
    return printable(f"The new label counts for {count_of(len(pairs), 'picture')}: {told}.")

"""What the commands on a user's own pictures share: options, the backbone, the lists of pictures."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from fslstm_plugin.errors import DataError, FSLSTMError, RunError, UsageError, count_of
from fslstm_plugin.runs import builtin
from fslstm_plugin.storage.files import claimed as alone
from fslstm_plugin.storage.tables import path_of, path_text

from . import terminal

if TYPE_CHECKING:
    from fslstm_plugin.classifier.classifier import Classifier
    from fslstm_plugin.pictures import Picture
    from fslstm_plugin.pretrained import PictureBackbone


def refuse_model(source: Optional[Path]) -> Optional[Path]:
    """Refuse a model where pictures are expected."""
    if source is not None and source.suffix.lower() in (".fslstm", ".onnx"):
        raise UsageError(f"{source} is a model, not pictures: name a folder of pictures, or a file that lists them.")
    return source


_LABELLED = typer.Argument(
    metavar="LABELLED",
    help="A folder with a folder of pictures for each class; a CSV file of path and label, and boxes or not; or JSON "
    "of Label Studio, COCO or MegaDetector.",
    callback=refuse_model,
)
Labelled = Annotated[Path, _LABELLED]
LabelledOrNone = Annotated[Optional[Path], _LABELLED]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="What 'fslstm fit' wrote.", dir_okay=False)]
Pictures = Annotated[
    Path,
    typer.Argument(
        metavar="PICTURES",
        help="A folder of pictures, which may have folders within it; one picture; a CSV file of paths, and boxes "
        "or not; or JSON of COCO or MegaDetector.",
        callback=refuse_model,
    ),
]


def _allow_pixels(most: Optional[int]) -> Optional[int]:
    if most is not None:
        from fslstm_plugin.data.reading.decode import allow_pixels

        allow_pixels(most)
    return most


MaxPixels = Annotated[
    Optional[int],
    typer.Option(min=1, help="Most pixels that a picture may have. Default: 89 million.", callback=_allow_pixels),
]
BackboneName = Annotated[
    Optional[str],
    typer.Option(
        "--backbone",
        help="timm:NAME or timm:hf-hub:ORG/NAME, torchvision:NAME, open_clip:MODEL/TAG, a run, builtin:NAME, or a "
        "registered backbone with --weights; or several, as NAME+NAME. Default: the installed EfficientNet-Lite0.",
    ),
]
Weights = Annotated[
    Optional[Path], typer.Option(help="The backbone's weights: safetensors, or tensors only.", dir_okay=False)
]


def moved(help_text: str) -> Any:
    """The option of where a classifier's backbone is now: a file, a run, or one of the package."""
    return typer.Option("--weights", help=help_text, callback=_require_there)


def _require_there(weights: Optional[Path]) -> Optional[Path]:
    if weights is not None and not os.path.exists(weights) and not str(weights).startswith(builtin.PREFIX):
        raise UsageError(f"There is no file or run at {weights}: give --weights the backbone's place, or builtin:NAME.")
    return weights


Moved = Annotated[
    Optional[Path], moved("New place of the backbone's weights, or of its run, if moved since 'fit'; or builtin:NAME.")
]
Groups = Annotated[
    Optional[str],
    typer.Option(
        help="Which pictures belong together, such as those of one burst, place or patient. folder: those in one "
        "folder within the class folder; time: those at most 60 s apart (time:300 for another number); picture: "
        "boxes of one picture; or a column of a CSV file. What to expect of new pictures is then estimated by "
        "leaving out whole groups.",
    ),
]
Pooling = Annotated[Optional[str], typer.Option(help="avg, max, avgmax, catavgmax, or token, as for DINOv3.")]

Views = Annotated[
    Optional[str],
    typer.Option(help="flip: average the features of each picture and its mirror image, in twice the time."),
]


def open_backbone(
    name: str | None, weights: Path | None, pooling: str | None, runs: Path, device: str, views: str | None = None
) -> PictureBackbone:
    """The backbone of the options, on its device."""
    from fslstm_plugin.pretrained import open_backbone as opened

    where = terminal.join_ranks().device(device)
    if name is not None:
        name = _in_full(name, runs)
    backbone = opened(name, None if weights is None else weights.absolute(), pooling, views=views)
    for note in backbone.notes:
        terminal.say(note)
    return backbone.to(where)


def _in_full(name: str, runs: Path) -> str:
    """A backbone's name with runs by their places; also of several, joined by ``+``."""
    from fslstm_plugin.pretrained.summed import JOINED
    from fslstm_plugin.runs.folder import Run

    if Path(name).is_dir() or (runs / name).is_dir():
        return str(Run.find(name, runs).path.absolute())
    parts = name.split(JOINED)
    return name if len(parts) == 1 else JOINED.join(_in_full(part, runs) for part in parts)


def load(model: Path, device: str, weights: Path | None = None) -> Classifier:
    """The classifier of a file, its backbone on its device; its weights, or its run, may have been moved."""
    from fslstm_plugin.classifier.classifier import Classifier

    where = terminal.join_ranks().device(device)
    classifier = Classifier.load(model, weights=weights)
    if classifier.backbone is None:
        raise RunError(f"{model} was fitted to features, not to pictures, and has no backbone: use it from Python.")
    classifier.open_backbone().to(where)
    return classifier


def labelled(source: Path, groups: str | None = None) -> list[Picture]:
    """See `fslstm_plugin.pictures.grouping.grouped`; what it reports is printed.

    Pictures of "none of these", as `predict` calls them, are left out with a sentence, since they need no examples.
    """
    from fslstm_plugin.pictures.predictions import NONE

    kept, _ = examples(source, groups)
    if not kept:
        raise DataError(f'All pictures in {source} are labelled "{NONE}", which needs no examples: label others.')
    return kept


def examples(source: Path, groups: str | None = None) -> tuple[list[Picture], list[Picture]]:
    """See `labelled`; those of "none of these" apart from the others, of which there may be none."""
    from fslstm_plugin.pictures.grouping import grouped
    from fslstm_plugin.pictures.predictions import NONE, only_guesses

    pictures = grouped(source, groups, terminal.say)
    if only_guesses(source):
        terminal.say(
            f"{source} has only labels that the classifier predicted itself: judged by them, it seems better than it "
            "is."
        )
    kept, none = ([each for each in pictures if (each.label == NONE) is of_none] for of_none in (False, True))
    if none:
        terminal.say(f'{count_of(len(none), "picture")} of "{NONE}" left out, which needs no examples.')
    return kept, none


def unlabelled(source: Path) -> list[Picture]:
    """See `fslstm_plugin.pictures.pictures_in`; what it reports is printed."""
    from fslstm_plugin.pictures import pictures_in

    return pictures_in(source, terminal.say)


def refuse_boxes(found: Sequence[Picture], option: str) -> None:
    """Refuse boxes where an option is for whole pictures."""
    from fslstm_plugin.pictures.picture import unboxed

    if any(unboxed(each.path)[1] for each in found):
        raise UsageError(f"{option} writes labels of whole pictures, but these have boxes: leave it out.")


def require_replaceable(output: Path) -> None:
    """Refuse to replace a file that is no classifier, and a name by which it could not be read."""
    from fslstm_plugin.classifier.model_file import ModelFile

    try:
        os.fsencode(output.absolute()).decode()
    except UnicodeDecodeError:
        raise UsageError(f"The name of {output} is not valid UTF-8: name another file.") from None
    if output.exists():
        try:
            ModelFile.read(output)
        except FSLSTMError as error:
            raise UsageError(f"{output} already exists and is not replaced: name another file. ({error})") from error


def claimed(file: Path) -> AbstractContextManager[None]:
    """Keep a file from other commands while it is read, changed and written; if one has it, say so and wait."""
    return alone(file, lambda: terminal.say(f"Waiting for another command that writes {file}."))


def shown(text: str, source: Path) -> str:
    """What a table shows of a picture: its path within the folder that was named, or its name."""
    path = path_of(text)
    folder = os.path.join(os.path.abspath(source), "")
    return path_text(path.removeprefix(folder) if source.is_dir() else os.path.basename(path))


def drawn(found: Sequence[Picture], seed: int) -> list[Picture]:
    """As many as suggestions look at, drawn where there are more, so that no others need be decoded."""
    from fslstm_plugin.classifier.suggestions import MOST

    places = random.Random(seed).sample(range(len(found)), min(MOST, len(found)))
    return [found[place] for place in sorted(places)]

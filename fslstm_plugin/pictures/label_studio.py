"""Label Studio's JSON: tasks with predictions to import there, and its export with the labels that people gave.

Pictures are named as Label Studio serves files of its machine, ``/data/local-files/?d=PATH``, from the JSON file's
folder, which its ``LOCAL_FILES_DOCUMENT_ROOT`` is to be. The labelling interface has an ``Image`` called ``image`` and
``Choices`` called ``choice``.

Source: Label Studio's documentation, "Label Studio JSON format of annotated tasks" and "Import pre-annotations".
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from ..errors import DataError
from ..storage.damage import text_of
from ..storage.tables import path_beside, path_of
from .predictions import NONE, Prediction

_SERVED = "/data/local-files/?d="


def task(file: Path, path: str, prediction: Prediction | None = None, model: str = "") -> dict[str, Any]:
    """A task to import, in which the prediction by a model is filled in, unless it is "none of these".

    The file is where the tasks will lie, the path that of the picture from the root.

    Example:
        >>> task(Path("/home/tasks.json"), "/home/new/a b.png")
        {'data': {'image': '/data/local-files/?d=new/a%20b.png'}}
    """
    found: dict[str, Any] = {
        "data": {"image": _SERVED + quote(path_of(path_beside(file, path)), errors="surrogateescape")}
    }
    if prediction is not None and prediction.label != NONE:
        value = {"choices": [prediction.label]}
        choice = {"from_name": "choice", "to_name": "image", "type": "choices", "value": value}
        score = {} if prediction.is_corrected else {"score": prediction.probability}
        found["predictions"] = [{"model_version": model, **score, "result": [choice]}]
    return found


def labelled_in(file: Path, content: Any) -> Iterator[tuple[Path, str]]:
    """The pictures and labels of an export's content, ``JSON`` or ``JSON-MIN``; tasks without a label are passed over.

    Of several annotations of a task the last that was not cancelled counts. Pictures that Label Studio served are
    looked for from the file's folder.
    """
    found = [(_image(each), _label(each, file)) for each in content]
    for image, label in found:
        if label is not None:
            yield file.parent / _path(image, file), label


def _image(task: dict[str, Any]) -> str:
    return text_of(task["data"]["image"] if "data" in task else task["image"], "the image of a task")


def _label(task: dict[str, Any], file: Path) -> str | None:
    if "annotations" in task:
        given = (each["result"] for each in reversed(task["annotations"]) if not each.get("was_cancelled"))
        choices = ([each["value"]["choices"] for each in result if each["type"] == "choices"] for result in given)
        chosen = [each for several in next(filter(None, choices), []) for each in several]
    else:
        choice = task.get("choice")
        chosen = choice["choices"] if isinstance(choice, dict) else [] if choice is None else [choice]
    if len(chosen) > 1:
        raise DataError(
            f"{file} has several choices for {_image(task)} ({', '.join(map(str, chosen))}): choose one of them in "
            "Label Studio, and export again."
        )
    return text_of(chosen[0], f"the choice for {_image(task)}") if chosen else None


def _path(image: str, file: Path) -> str:
    if image.startswith(_SERVED):
        return unquote(image.removeprefix(_SERVED), errors="surrogateescape")
    if "://" in image or image.startswith("/data/"):
        raise DataError(
            f"{file} has the picture {image}, which Label Studio holds itself: export with the files, or import "
            "pictures as local files."
        )
    return image

"""The card of a classifier: what it is and what to expect of it, in Markdown with the metadata that hubs read."""

from __future__ import annotations

import json
import re
import shlex

from .. import __version__
from ..classifier.model_file import ModelFile
from ..errors import printable
from .expectations import Expectations

_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|!])")


def card(content: ModelFile, said: Expectations, sentences: list[str], name: str, licence: str | None) -> str:
    """The card of a classifier's file of this name, with the licence of its backbone's weights where it is known."""
    full = "" if content.backbone is None else content.backbone.name
    backbone = full.rpartition("/")[2]
    metadata = {
        "library_name": "fslstm",
        "pipeline_tag": "image-classification",
        "tags": ["few-shot", "prediction-sets"],
        **({"license": licence} if licence else {}),
        **({"base_model": full.partition("hf-hub:")[2]} if "hf-hub:" in full else {}),
        "metrics": ["accuracy"],
    }
    rows = [f"| {_plain(label)} | {count:,} |" for label, count in said.pictures.items()]
    made = "" if content.made is None else f", on {content.made.date} by fslstm {content.made.version}"
    return "\n".join(
        [
            "---",
            *(f"{key}: {json.dumps(value)}" for key, value in metadata.items()),
            "---",
            "",
            f"# {_plain(name)}",
            "",
            f"A classifier of pictures of {len(said.pictures)} classes, fitted to {sum(said.pictures.values())} "
            f"labelled ones{made}.",
            "",
            "| class | labelled pictures |",
            "| --- | --- |",
            *rows,
            "",
            "## What to expect",
            "",
            *(line for sentence in sentences for line in (_plain(sentence), "")),
            "These are estimates from the labelled pictures, for new pictures like them.",
            "",
            "## What it is made of",
            "",
            f"* Backbone: {_plain(backbone or 'none, it was fitted to features')}; licence of its weights: "
            f"{licence or 'not stated'}. They are not in the file.",
            f"* Method: `{said.method}`.",
            "* The file holds features of the labelled pictures and the names of their files, no pictures and no code.",
            "",
            "## How to use it",
            "",
            f"With fslstm-plugin {__version__} or newer and its extra `pictures`:",
            "",
            "```sh",
            f"fslstm predict {shlex.quote(name)} pictures/ --csv labels.csv",
            "```",
            "",
        ]
    )


def _plain(text: str) -> str:
    """Text that Markdown shows as it is."""
    return _MARKUP.sub(r"\\\1", printable(text))

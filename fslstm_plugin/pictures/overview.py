"""What to expect of a classifier of pictures, in a page of one file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from .. import __version__
from ..errors import printable
from .expectations import Expectations, Odd
from .gallery import page, thumbnail


def overview(said: Expectations, title: str, lead: Sequence[str]) -> str:
    """The page, in HTML, with nothing from the network and no program: classes, confusions, doubtful labels.

    Args:
        said: What the labelled pictures tell.
        title: Its heading.
        lead: Sentences below it.

    Example:
        >>> from fslstm_plugin import FewShotClassifier
        >>> from fslstm_plugin.pictures.expectations import expectations
        >>> X = [[0.0, 0.1], [0.2, 0.0], [1.0, 0.9], [0.8, 1.0]]
        >>> said = expectations(FewShotClassifier().fit(X, ["owl", "owl", "<wren>", "<wren>"]))
        >>> "&lt;wren&gt;" in overview(said, "Birds", ["Two classes."])
        True
    """
    return page("overview.html").render(
        title=title,
        lead=lead,
        classes={printable(name): count for name, count in said.pictures.items()},
        confused=said.confused,
        odd=[_doubtful(each) for each in said.odd],
        alike=[[_named(one), _named(other)] for one, other in said.alike],
        version=__version__,
        date=date.today().isoformat(),
    )


def _named(picture: str) -> str:
    return printable("/".join(Path(picture).parts[-2:]))


def _doubtful(odd: Odd) -> dict[str, Any]:
    return {
        "image": thumbnail(odd.picture) if odd.picture else None,
        "name": _named(odd.picture),
        "label": printable(odd.label),
        "looks_like": printable(odd.looks_like),
        "odds": f"{odd.odds:.0f}",
    }

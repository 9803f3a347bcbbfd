"""The message where published weights cannot be downloaded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import RunError


@contextmanager
def downloading(name: str, otherwise: str = "") -> Iterator[None]:
    """Turn any failure of a download into a sentence.

    Args:
        name: Name of the backbone.
        otherwise: A sentence on what else can be done, begun with a space. Default empty.

    Raises:
        RunError: If the block fails.
    """
    try:
        yield
    except Exception as error:  # each library, and each of its download clients, has its own errors
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].partition(". ")[0].rstrip(".")
        raise RunError(
            f"The weights of {name} are not on this machine and cannot be downloaded ({reason}). Name a file of them "
            f"with `weights`, or leave out `backbone`: the default needs no network.{otherwise}"
        ) from error

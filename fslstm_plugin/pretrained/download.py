"""Published weights that cannot be downloaded: at once, and in a sentence."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit
from urllib.request import getproxies

from ..errors import RunError


@contextmanager
def downloading(name: str, otherwise: str = "") -> Iterator[None]:
    """Turn any failure of a backbone's download into a sentence, with another on what else can be done."""
    try:
        yield
    except Exception as error:  # each library, and each of its download clients, has its own errors
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].partition(". ")[0].rstrip(".")
        raise RunError(
            f"The weights of {name} are not on this machine and cannot be downloaded ({reason}). Name a file of them "
            f"with `weights`, or leave out `backbone`: the default needs no network.{otherwise}"
        ) from error


@contextmanager
def no_retries_without_network() -> Iterator[None]:
    """Let the download fail at once where there is no network; its own retries take a minute."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not _reachable(constants.ENDPOINT)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _reachable(address: str) -> bool:
    if getproxies():  # which raise errors for names that this machine does not know
        return True
    try:
        return bool(socket.getaddrinfo(urlsplit(address).hostname, None))
    except OSError:
        return False

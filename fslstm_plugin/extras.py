"""Packages that only some commands need, and how to install them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from .errors import FSLSTMError

_BUILD_LEARN2LEARN = (
    'pip install "cython>=3" "setuptools<81" wheel numpy, then CYTHON_FORCE_REGEN=1 pip install --use-pep517 '
    "--no-build-isolation --no-deps --config-settings=--global-option=build_ext learn2learn==0.2.0"
)
_COMPILED = ("l2l", "bench")  # Extras with learn2learn, whose source archive Python 3.11 and later cannot compile.


class MissingExtraError(FSLSTMError):
    """A package that only some commands need, and that a plain installation leaves out.

    The sentence begins with what needs it; the extra of this distribution brings it.

    Example:
        >>> raise MissingExtraError("A report", "jinja2", "report")
        Traceback (most recent call last):
        ...
        fslstm_plugin.extras.MissingExtraError: A report needs jinja2, which is not installed: pip install
        "fslstm-plugin[report]".
    """

    def __init__(self, what: str, package: str, extra: str) -> None:
        install = f'pip install "fslstm-plugin[{extra}]"'
        if extra in _COMPILED and sys.version_info >= (3, 13):  # qpth asks for a NumPy that has no wheel there
            install = f'echo "numpy>=2" | uv {install.replace("install", "install --overrides -")}'
        if extra in _COMPILED and sys.version_info >= (3, 11):
            install = f"{_BUILD_LEARN2LEARN}, then {install}"
        super().__init__(f"{what} needs {package}, which is not installed: {install}.")


@contextmanager
def needs_extra(what: str, extra: str) -> Iterator[None]:
    """Turn a failed import in the block into a `MissingExtraError`, which says how to install the package.

    Example:
        >>> with needs_extra("A report", "report"):
        ...     import a_package_that_is_not_there
        Traceback (most recent call last):
        ...
        fslstm_plugin.extras.MissingExtraError: A report needs a_package_that_is_not_there, which is not installed:
        pip install "fslstm-plugin[report]".
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtraError(what, (error.name or "a package").partition(".")[0], extra) from error

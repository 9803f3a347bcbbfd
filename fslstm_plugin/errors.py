"""The few errors that a user can meet; each says what is wrong and what to do."""

from __future__ import annotations

import difflib
import errno
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

_MOST_NAMES = 60  # In a sentence; timm has 1,400 networks.


_BUILD_LEARN2LEARN = (
    'pip install "cython>=3" "setuptools<81" wheel numpy, then CYTHON_FORCE_REGEN=1 pip install --use-pep517 '
    "--no-build-isolation --no-deps --config-settings=--global-option=build_ext learn2learn==0.2.0"
)


_COMPILED = ("l2l", "bench")  # Extras with learn2learn, whose source archive Python 3.11 and later cannot compile.


TOO_LARGE = "asks for more memory than there is: it is damaged, or too large for this machine"


def printable(text: str) -> str:
    r"""The text with every character escaped that a terminal could obey, such as names of untrusted files may hold.

    Example:
        >>> printable("\x1b[2Jmüsli\n")
        '\\x1b[2Jmüsli\\n'
    """
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


class FSLSTMError(Exception):
    """A failure that the user can fix; the command line prints it and exits with its code.

    Its text is one line that a terminal only shows, whatever untrusted names are in it.
    """

    exit_code = 1

    def __str__(self) -> str:
        return printable(super().__str__())


class UsageError(FSLSTMError, ValueError):
    """A wrong value or combination of options; the command line exits with code 2.

    A text names arguments as Python does, in backticks; the command line shows its options in their place.
    """

    exit_code = 2


class UntrainedError(UsageError):
    """A method has weights, and there are none for it."""


class SingularError(UsageError):
    """A head's linear system that cannot be solved, for example of features that are not a number."""


class DataError(FSLSTMError):
    """Data that is missing, incomplete or damaged."""


class RunError(FSLSTMError):
    """A run folder, checkpoint or cache that is missing, damaged or does not fit."""


class StorageError(FSLSTMError):
    """The operating system refuses to write: a full disk, a read-only folder, a vanished network folder."""


class UnknownNameError(UsageError):
    """A name that is not registered; the message suggests the nearest known one.

    Args:
        kind: What is unknown, for example ``"head"``.
        name: The unknown name; what was typed may also be a number.
        known: The names that exist.

    Example:
        >>> raise UnknownNameError("head", "lsvm", ["lssvm", "svm"])
        Traceback (most recent call last):
        ...
        fslstm_plugin.errors.UnknownNameError: There is no head 'lsvm'. Did you mean 'lssvm'? Known: lssvm, svm.
    """

    def __init__(self, kind: str, name: object, known: Iterable[str]) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(str(name).lower(), names, n=5, cutoff=0.5)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        told = names if len(names) <= _MOST_NAMES else near or names[:5]
        more = f" and {len(names) - len(told):,} more" if len(told) < len(names) else ""
        super().__init__(f"There is no {kind} '{name}'.{hint} Known: {', '.join(told)}{more}.")


class PartError(FSLSTMError):
    """A part that another package registered, and that cannot be used.

    Args:
        kind: What it was registered as, for example ``"head"``.
        name: Its name.
        package: The distribution that registered it.
        fault: What is wrong with it.

    Example:
        >>> raise PartError("head", "centroid", "my-package", "cannot be imported (ImportError: no module a)")
        Traceback (most recent call last):
        ...
        fslstm_plugin.errors.PartError: The head 'centroid' of the package my-package cannot be imported
        (ImportError: no module a): update or uninstall that package.
    """

    def __init__(self, kind: str, name: str, package: str, fault: str) -> None:
        super().__init__(f"The {kind} '{name}' of the package {package} {fault}: update or uninstall that package.")


class MissingExtraError(FSLSTMError):
    """A package that only some commands need, and that a plain installation leaves out.

    Args:
        what: What needs it, as the beginning of a sentence.
        package: Its name.
        extra: The extra of this distribution that brings it.

    Example:
        >>> raise MissingExtraError("A report", "jinja2", "report")
        Traceback (most recent call last):
        ...
        fslstm_plugin.errors.MissingExtraError: A report needs jinja2, which is not installed: pip install
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
    """Turn a failed import in the block into a sentence that says how to install the package.

    Args:
        what: What needs it, as the beginning of a sentence.
        extra: The extra of this distribution that brings it.

    Raises:
        MissingExtraError: If a package is not installed.

    Example:
        >>> with needs_extra("A report", "report"):
        ...     import a_package_that_is_not_there
        Traceback (most recent call last):
        ...
        fslstm_plugin.errors.MissingExtraError: A report needs a_package_that_is_not_there, which is not installed:
        pip install "fslstm-plugin[report]".
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtraError(what, (error.name or "a package").partition(".")[0], extra) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether there was not enough memory, of the machine or of a GPU; PyTorch says so in words.

    Example:
        >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("not enough memory: you tried to allocate"))
        (True, True)
    """
    said = ("not enough memory", "out of memory", "can't allocate memory", "ALLOC_FAILED")
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in said)
    )


@contextmanager
def naming_damage(file: Path) -> Iterator[None]:
    """Turn whatever the content of a file leads to into a sentence that names the file.

    Args:
        file: What is read in the block; it is not trusted.

    Raises:
        DataError: If the block fails, unless the operating system or another such error stopped it.

    Example:
        >>> with naming_damage(Path("results.json")):
        ...     rows = {}["rows"]
        Traceback (most recent call last):
        ...
        fslstm_plugin.errors.DataError: results.json is damaged or has an unexpected format (KeyError: 'rows').
    """
    try:
        yield
    except (DataError, RunError, StorageError):
        raise
    except Exception as error:  # many types, as content can be wrong in many ways
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # that is of a place before the file's beginning
            raise
        fault = f"is damaged or has an unexpected format ({type(error).__name__}: {error})"
        raise DataError(f"{file} {TOO_LARGE if is_out_of_memory(error) else fault}.") from error

"""The few errors that a user can meet; each says what is wrong and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MOST_NAMES = 60  # In a sentence; timm has 1,400 networks.


def printable(text: str) -> str:
    r"""The text with every character escaped that a terminal could obey, such as names of untrusted files may hold.

    Example:
        >>> printable("\x1b[2Jmüsli\n")
        '\\x1b[2Jmüsli\\n'
    """
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def listed(names: Iterable[object], most: int = 5, separator: str = ", ") -> str:
    """The first names, and how many others there are.

    Example:
        >>> listed(["owl", "tit", "wren", "jay"], most=2)
        'owl, tit and 2 more'
    """
    every = [str(each) for each in names]
    return separator.join(every[:most]) + (f" and {len(every) - most:,} more" if len(every) > most else "")


def count_of(number: int | str, noun: str) -> str:
    """A number with its noun; of several by the words for the number.

    Example:
        >>> count_of(1, "class"), count_of(1200, "query"), count_of("1 to 2", "group"), count_of(2, "way")
        ('1 class', '1,200 queries', '1 to 2 groups', '2 ways')
    """
    text = number if isinstance(number, str) else f"{number:,}"
    several = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}es" if noun.endswith("ss") else f"{noun}s"
    return f"{text} {noun if text == '1' else several}"


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
    """A method needs trained weights, and there are none."""


class SingularError(UsageError):
    """A head's linear system that cannot be solved, for example because features are NaN."""


class DataError(FSLSTMError):
    """Data that is missing, incomplete or damaged."""


class RunError(FSLSTMError):
    """A run folder, checkpoint or cache that is missing, damaged or does not fit."""


class StorageError(FSLSTMError):
    """The operating system refuses to write: a full disk, a read-only folder, a vanished network folder."""


class UnknownNameError(UsageError):
    """A name that is not registered; the message suggests the nearest known one.

    What was typed may also be a number; an owner is what has names of its own, as a head its arguments.

    Example:
        >>> raise UnknownNameError("head", "lsvm", ["lssvm", "svm"])
        Traceback (most recent call last):
        ...
        fslstm_plugin.errors.UnknownNameError: There is no head 'lsvm'. Did you mean 'lssvm'? Known: lssvm, svm.
    """

    def __init__(self, kind: str, name: object, known: Iterable[str], owner: str = "") -> None:
        names = sorted(known)
        near = difflib.get_close_matches(str(name).lower(), names, n=5, cutoff=0.5)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        told = names if len(names) <= _MOST_NAMES else near or names[:5]
        more = f" and {len(names) - len(told):,} more" if len(told) < len(names) else ""
        lacks = f"{owner} has" if owner else "There is"
        super().__init__(f"{lacks} no {kind} '{name}'.{hint} Known: {', '.join(told) or 'none'}{more}.")


class PartError(FSLSTMError):
    """A part that another package, a distribution, registered, and that cannot be used, with what is wrong with it.

    Example:
        >>> raise PartError("head", "centroid", "my-package", "cannot be imported (ImportError: no module a)")
        Traceback (most recent call last):
        ...
        fslstm_plugin.errors.PartError: The head 'centroid' of the package my-package cannot be imported
        (ImportError: no module a): update or uninstall that package.
    """

    def __init__(self, kind: str, name: str, package: str, fault: str) -> None:
        super().__init__(f"The {kind} '{name}' of the package {package} {fault}: update or uninstall that package.")


def reason(error: BaseException) -> str:
    """What is wrong, in words; of an operating system's error its text alone, without number and file.

    Example:
        >>> reason(FileNotFoundError(2, "No such file or directory", "a.txt")), reason(ValueError("no number"))
        ('No such file or directory', 'no number')
    """
    return str(getattr(error, "strerror", None) or error)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether there was not enough memory, of the machine or of a GPU; PyTorch says so in words, its libraries too.

    Example:
        >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("not enough memory: you tried to allocate"))
        (True, True)
        >>> is_out_of_memory(ImportError("libtorch_cpu.so: failed to map segment from shared object"))
        True
    """
    if isinstance(error, ImportError):  # within a limit as of ulimit; without permission it is said
        return str(error).endswith("failed to map segment from shared object")
    said = ("not enough memory", "out of memory", "can't allocate memory", "ALLOC_FAILED")
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in said)
    )

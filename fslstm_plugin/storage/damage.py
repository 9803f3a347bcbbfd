"""Files whose content is not what it should be."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import DataError, FSLSTMError, RunError, StorageError, is_out_of_memory

_TOO_LARGE = "asks for more memory than there is: it is damaged, or too large for this machine"


def without_advice(message: str) -> str:
    r"""A reader's message, without PyTorch's advice to read the file unprotected.

    Example:
        >>> without_advice("Do this:\n WeightsUnpickler error: Unsupported global: os.system. Please use ...")
        'Unsupported global: os.system'
        >>> without_advice("Do this:\nWeightsUnpickler error: \n\nUnsupported operand 8\n\nRead ...")
        'Unsupported operand 8'
    """
    refused = message.partition("WeightsUnpickler error: ")[2].lstrip().partition("\n")[0]
    return refused.partition(". Please use")[0] if refused else message


def text_of(value: object, what: str) -> str:
    """A value of a file that is to be text, or a number as text; anything else is damage, for `naming_damage`.

    Example:
        >>> text_of("1.png", "a file"), text_of(7, "a class")
        ('1.png', '7')
        >>> text_of(None, "a file")
        Traceback (most recent call last):
        ...
        ValueError: a file must be text, but is None
    """
    if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
        raise ValueError(f"{what} must be text, but is {value!r}")
    return str(value)


@contextmanager
def naming_damage(
    file: Path,
    fault: str = "is damaged or has an unexpected format",
    kind: Callable[[str], FSLSTMError] = DataError,
) -> Iterator[None]:
    """Turn whatever the untrusted content of a file leads to in the block into an error that names file and fault.

    What the operating system or another such error stops goes on as it is.

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
        # Readers raise some without a number; EINVAL is of a place before the file's beginning.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        said = without_advice(str(error)).strip().partition("\n")[0].rstrip(".")
        if not said or isinstance(error, LookupError):  # whose words are a key alone
            said = f"{type(error).__name__}: {said}".removesuffix(": ")
        raise kind(f"{file} {_TOO_LARGE if is_out_of_memory(error) else f'{fault} ({said})'}.") from error

"""Typed data from the plain data of an untrusted JSON file: every type and bound is checked."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ..errors import DataError, FSLSTMError, RunError, UsageError
from .files import require_regular, saying_why

T = TypeVar("T")


def from_plain(kind: type[T] | Any, values: Any, prefix: str = "") -> T:
    """The struct or dataclass that plain data describe; in messages its fields have the prefix.

    Raises:
        UsageError: If a field is missing, unknown, of another type or out of its range; or as the class itself raises.

    Example:
        >>> class Point(msgspec.Struct, forbid_unknown_fields=True):
        ...     x: float
        ...     name: str = "origin"
        >>> from_plain(Point, {"x": 1})
        Point(x=1.0, name='origin')
        >>> from_plain(Point, {"x": "1"})
        Traceback (most recent call last):
        ...
        fslstm_plugin.errors.UsageError: `x` must be a number, but got text.
    """
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise UsageError(_sentence(error, f"`{prefix}{{}}`")) from error


def to_plain(value: Any) -> Any:
    """Plain data that `from_plain` reads: dictionaries, lists, texts and numbers."""
    return msgspec.to_builtins(value)


def read_plain(file: Path, kind: type[T] | Any, fault: Callable[[str], FSLSTMError] = RunError) -> T:
    """What a JSON file describes, a struct or dataclass or a union of tagged ones.

    Raises:
        FSLSTMError: That ``fault`` makes of a sentence, if the file cannot be read, or is not of that form.
    """
    try:
        with saying_why(f"Cannot read {file}", fault):
            content = require_regular(file).read_bytes()
    except DataError as error:
        raise fault(str(error)) from error
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if str(error).endswith("`$.format`"):
            raise fault(
                f"{file} is of another version of fslstm: use the version that wrote it, or make it anew."
            ) from error
        fields = _sentence(error).replace("`", "'")  # of the file: no option is to take their place
        raise fault(f"{file} is damaged: {fields}") from error


_KINDS = {
    "float": "a number",
    "int": "a whole number",
    "str": "text",
    "bool": "true or false",
    "object": "a group of fields",
}


def _sentence(error: Exception, argument: str | None = None) -> str:
    """A reader's words, the place first: ``recipe.lr must be a number > 0.0.``; that of an argument in its form."""
    text, _, place = str(error).rstrip(".").partition(" - at `$")
    text, where = text.rstrip("."), place.rstrip("`").removeprefix(".")
    name = where.partition("[")[0]  # without which of its values it is
    where = argument.format(name) if argument and name.isidentifier() else where
    match = re.fullmatch(r"Expected `([^`]+)`(?: ([<>]=? \S+))?(?:, got `([^`]+)`)?", text)
    if match:
        wanted, bound, got = match.groups()
        words = f"must be {_kinds(wanted)}{f' {bound}' if bound else ''}{f', but got {_kinds(got)}' if got else ''}"
        return f"{where or 'it'} {words}."
    text = text[:1].lower() + text[1:] if text.startswith(("Expected", "Object", "Invalid")) else text
    return f"{where}: {text}." if where else f"{text}."


def _kinds(names: str) -> str:
    return " or ".join(_KINDS.get(name, name) for name in names.split(" | "))

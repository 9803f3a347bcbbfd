"""Dataclasses from the plain data of a JSON file, which a stranger may have written: every type is checked."""

from __future__ import annotations

import dataclasses
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

from .errors import UsageError

T = TypeVar("T")


def from_plain(kind: type[T], values: Any) -> T:
    """The dataclass whose ``dataclasses.asdict`` this is, also after a way through JSON.

    Args:
        kind: A dataclass of numbers, texts, paths, tuples of them, other such dataclasses, and None where its types say
            so.
        values: A dictionary of its fields; those with a default may be absent.

    Raises:
        UsageError: If a field is missing, unknown or of another type; or as the dataclass itself raises.

    Example:
        >>> @dataclasses.dataclass
        ... class Point:
        ...     x: float
        ...     name: str = "origin"
        >>> from_plain(Point, {"x": 1})
        Point(x=1.0, name='origin')
        >>> from_plain(Point, {"x": "1"})
        Traceback (most recent call last):
        ...
        fslstm_plugin.errors.UsageError: x must be of type float, but got '1'.
    """
    if not isinstance(values, dict):
        raise UsageError(f"A {kind.__name__} must be given by its fields, but got {_short(values)}.")
    hints = typing.get_type_hints(kind)
    for name in values.keys() - hints.keys():
        raise UsageError(f"A {kind.__name__} has no field {_short(name)}.")
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.default is dataclasses.MISSING and field.name not in values:
            raise UsageError(f"The field {field.name} of the {kind.__name__} is missing.")
    return kind(**{name: _value(hints[name], value, name) for name, value in values.items()})


def _value(hint: Any, value: Any, name: str) -> Any:
    if isinstance(hint, types.UnionType):
        if value is None and types.NoneType in typing.get_args(hint):
            return None
        (hint,) = (choice for choice in typing.get_args(hint) if choice is not types.NoneType)
    if dataclasses.is_dataclass(hint):
        return from_plain(hint, value)  # type: ignore[arg-type]
    if typing.get_origin(hint) is tuple and isinstance(value, (list, tuple)):
        return tuple(_value(typing.get_args(hint)[0], item, name) for item in value)
    if hint is float and type(value) is int:
        return float(value) if abs(value) < 2**63 else _refuse(hint, value, name)
    if hint is Path and isinstance(value, str):
        return Path(value)
    return value if type(value) is hint else _refuse(hint, value, name)


def _refuse(hint: Any, value: Any, name: str) -> typing.NoReturn:
    raise UsageError(f"{name} must be of type {getattr(hint, '__name__', hint)}, but got {_short(value)}.")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

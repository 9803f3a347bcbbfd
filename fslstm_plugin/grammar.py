"""The one grammar of names, read and written here alone: ``lssvm(ridge=loo,normalize)+iam+psm(iterations=3)``.

A name is parts joined by ``+``; a part is a word, with arguments in parentheses where it has some. An argument is
``name=value``, a bare word, or a part of its own, as in ``rr(power(exponent=0.3))``. Values are whole numbers, numbers,
``true``, ``false``, ``none``, and words, which may have parentheses too, as in ``kernel=rbf(scale=0.1)``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from .checks import is_number
from .errors import UsageError

BATCH_NORM = "bn"  # Written like a part, but none.
_WORDS = {"true": True, "false": False, "none": None}
_DEEPEST = 20  # Parentheses within parentheses; two are of use.


class _Bare:
    """The value of an argument that is a bare word."""

    def __repr__(self) -> str:
        return "BARE"


BARE = _Bare()


@dataclass(frozen=True)
class Part:
    """A word and its arguments, in the order of writing.

    Example:
        >>> Part.parse("rr(ridge=0.50,normalize)")
        Part(name='rr', arguments={'ridge': 0.5, 'normalize': BARE})
        >>> str(_)
        'rr(ridge=0.5,normalize)'
    """

    name: str
    arguments: Mapping[str, Any]

    @classmethod
    def parse(cls, text: str) -> Part:
        """Read one part: a word with arguments, each with a name, and once."""
        name, opening, rest = text.strip().partition("(")
        if not name or (opening and not rest.endswith(")")) or "=" in name or ")" in name:
            raise UsageError(f"'{text}' must be a name, or a name with arguments such as lssvm(ridge=10).")
        arguments: dict[str, Any] = {}
        inside = rest.removesuffix(")").strip()
        for argument in _split(inside, ",") if inside else ():
            key, value = _argument(argument.strip())
            if not key:
                raise UsageError(f"'{text}' has an argument without a name.")
            if key in arguments:
                raise UsageError(f"'{text}' has the argument '{key}' twice.")
            arguments[key] = value
        return cls(name.strip(), arguments)

    def __str__(self) -> str:
        words = [
            name if value is BARE else str(value) if isinstance(value, Part) else f"{name}={value_text(value)}"
            for name, value in self.arguments.items()
        ]
        return f"{self.name}({','.join(words)})" if words else self.name


def _argument(text: str) -> tuple[str, Any]:
    key, sign, value = text.partition("=")
    if "(" in key:
        part = Part.parse(text)
        return part.name, part
    if sign and not value.strip():
        raise UsageError(f"The argument '{key.strip()}' needs a value after '='.")
    return key.strip(), read_value(value.strip()) if sign else BARE


def parse(text: str) -> list[Part]:
    """The parts of a name.

    Example:
        >>> [part.name for part in parse("lssvm(ridge=loo,normalize)+iam+psm(iterations=3)")]
        ['lssvm', 'iam', 'psm']
    """
    if not isinstance(text, str):
        raise UsageError(f"A name must be text such as 'lssvm+psm', but got {text!r}.")
    parts = list(_split(text, "+"))
    if not all(part.strip() for part in parts):
        raise UsageError(f"'{text}' must be a name, or names with '+' between them such as lssvm+psm.")
    return [Part.parse(part) for part in parts]


def _split(text: str, separator: str) -> Iterator[str]:
    """The pieces between separators that stand in no parentheses."""
    depth, start = 0, 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            break
        if depth > _DEEPEST:
            raise UsageError(f"'{text}' has more than {_DEEPEST} parentheses within each other.")
        if letter == separator and depth == 0:
            yield text[start:place]
            start = place + 1
    if depth:
        raise UsageError(f"The parentheses in '{text}' do not match.")
    yield text[start:]


def read_value(text: str) -> Any:
    """A whole number, a number, true, false, none, or the word itself.

    Example:
        >>> [read_value(text) for text in ("10", "0.5", "true", "loo")]
        [10, 0.5, True, 'loo']
    """
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return _WORDS.get(text.lower(), text)


def value_text(value: Any) -> str:
    """A value as short as it can be read back: 10.0 is ``10``, True is ``true``."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        return str(int(value))
    if is_number(value):
        value = float(value)
        short = f"{value + 0.0:g}"  # 0 for -0 too
        return short if float(short) == value else repr(value)
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return _array_text(value) if getattr(value, "ndim", 0) else str(value)


def _array_text(value: Any) -> str:
    """Shape and digest of an array or tensor: no name to read, but another for other numbers."""
    content = hashlib.blake2b(repr(value.tolist()).encode(), digest_size=4).hexdigest()
    return f"matrix({','.join(map(str, (*value.shape, content)))})"

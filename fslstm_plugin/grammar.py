"""The one grammar of names, read and written here alone: ``lssvm(ridge=loo,normalize)+iam+psm(iterations=3)``.

A name is parts joined by ``+``; a part is a word, with arguments in parentheses where it has some. An argument is
``name=value``, a bare word, or a part of its own, as in ``rr(power(exponent=0.3))``. Values are whole numbers, numbers,
``true``, ``false``, ``none``, and words, which may have parentheses too, as in ``kernel=rbf(scale=0.1)``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple, TypeVar

from .errors import UnknownNameError, UsageError, is_number, is_out_of_memory

T = TypeVar("T")

_WORDS = {"true": True, "false": False, "none": None}
_DEEPEST = 20  # Parentheses within parentheses; two are of use.
_FITTED = ("support", "labels", "ways")  # What heads' constructors take to be fitted at once.


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
        """Read one part.

        Raises:
            UsageError: If it is not a word with arguments, or has an argument twice or without a name.
        """
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
    """Name and value of an argument."""
    key, sign, value = text.partition("=")
    if "(" in key:
        part = Part.parse(text)
        return part.name, part
    if sign and not value.strip():
        raise UsageError(f"The argument '{key.strip()}' needs a value after '='.")
    return key.strip(), read_value(value.strip()) if sign else BARE


def parse(text: str) -> list[Part]:
    """The parts of a name.

    Raises:
        UsageError: If a part is missing or cannot be read, or parentheses do not match.

    Example:
        >>> [part.name for part in parse("lssvm(ridge=loo,normalize)+iam+psm(iterations=3)")]
        ['lssvm', 'iam', 'psm']
    """
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
    return f"matrix{tuple(value.shape)}".replace(" ", "") if hasattr(value, "shape") else str(value)


class Option(NamedTuple):
    """An argument of a part's constructor that has a default."""

    name: str
    default: Any


def options(part: Callable[..., Any]) -> list[Option]:
    """The arguments of a constructor that a name can give."""
    parameters = inspect.signature(part).parameters
    left_out = {"adapters", *(_FITTED if "support" in parameters else ())}
    return [
        Option(each.name, each.default)
        for each in parameters.values()
        if each.default is not each.empty and each.name not in left_out
    ]


def options_of(part: object, **changed: Any) -> dict[str, Any]:
    """The constructor's arguments that are not their defaults, from the attributes of the same names.

    Args:
        part: The part.
        **changed: Arguments in place of its own.

    Example:
        >>> from fslstm_plugin.heads import RidgeClassifier
        >>> options_of(RidgeClassifier(ridge=1.0))
        {'ridge': 1.0}
    """
    found = {name: (changed.get(name, getattr(part, name, default)), default) for name, default in options(type(part))}
    return {name: value for name, (value, default) in found.items() if not _same(value, default)}


def _same(value: Any, default: Any) -> bool:
    if value is default:
        return True
    if isinstance(value, (int, float)) and isinstance(default, (int, float)):
        return value == default
    return value_text(value) == value_text(default)


def build(part: Callable[..., T], arguments: Mapping[str, Any], text: str, **given: Any) -> T:
    """Call a constructor with the arguments of a name.

    Args:
        part: The constructor.
        arguments: From `Part.arguments`; a bare word switches a Boolean on.
        text: What was typed, for messages.
        **given: Further arguments that no name can give, such as ``dim``.

    Raises:
        UnknownNameError: If there is no such argument.
        UsageError: If an argument needs a value, or another one, or the constructor refuses it.
    """
    values = read_arguments(part, arguments, text, given)
    try:
        return part(**given, **values)
    except UsageError as error:
        if type(error) is UsageError:  # not one of those that name what was typed
            raise UsageError(f"{text}: {str(error).replace('`', '')}") from error  # no option: it is in the text
        raise
    except (TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:  # of any third party
        if is_out_of_memory(error):
            raise
        raise UsageError(_refusal(part, values, text, error)) from error


def _refusal(part: Callable[..., Any], values: Mapping[str, Any], text: str, error: Exception) -> str:
    """Why a constructor raised: a word in place of a number, or its own message."""
    for name, default in options(part):
        if isinstance(default, (int, float)) and isinstance(values.get(name), str):
            return f"The argument '{name}' in '{text}' must be a number, but got {values[name]}."
    return f"'{text}' is not valid: {error}"


def read_arguments(
    part: Callable[..., Any], arguments: Mapping[str, Any], text: str, given: Iterable[str] = ()
) -> dict[str, Any]:
    """The arguments of a name as values for a constructor; see `build`."""
    known = {name: default for name, default in options(part) if name not in given}
    for name in arguments:
        if name not in known:
            raise UnknownNameError(f"argument of {text.partition('(')[0]}", name, known)
    return {name: _accepted(name, value, known[name], text) for name, value in arguments.items()}


def agrees(part: object, values: Mapping[str, Any]) -> bool:
    """Whether a part was made with these values of its constructor's arguments."""
    return all(_same(getattr(part, name, None), value) for name, value in values.items())


def _accepted(name: str, value: Any, default: Any, text: str) -> Any:
    """The value for an argument with this default; words and numbers in a Boolean's place would all count as true."""
    if isinstance(default, bool):
        if value is not BARE and not isinstance(value, bool):
            raise UsageError(f"The argument '{name}' in '{text}' must be true or false, but got {value}.")
        return True if value is BARE else value
    if value is BARE or isinstance(value, Part):
        raise UsageError(f"The argument '{name}' in '{text}' needs a value, as in {name}={value_text(default)}.")
    if isinstance(value, bool) and default is not None:
        raise UsageError(f"The argument '{name}' in '{text}' cannot be {value_text(value)}.")
    return value


_SIZES = ("dim", "backbone")


def sizes_asked(part: Callable[..., Any]) -> list[str]:
    """What a constructor asks of a model to know the sizes of its weights: ``dim``, ``backbone``, or nothing."""
    return [name for name in _SIZES if name in inspect.signature(part).parameters]


def needs_dim(part: Callable[..., Any]) -> bool:
    """Whether a constructor asks for the length of the features or for the backbone, as parts with weights do."""
    return bool(sizes_asked(part))


def part_text(name: str, part: object, words: Sequence[str] = (), **changed: Any) -> str:
    """A part as typed: its name, and the arguments that are not their defaults.

    Args:
        name: Its registered name.
        part: The part.
        words: What else is among its arguments.
        **changed: Arguments in place of its own.

    Example:
        >>> from fslstm_plugin.heads import RidgeClassifier
        >>> part_text("rr", RidgeClassifier(ridge=10.0), ["normalize"])
        'rr(ridge=10,normalize)'
    """
    found = [f"{key}={value_text(value)}" for key, value in options_of(part, **changed).items()] + list(words)
    return f"{name}({','.join(found)})" if found else name

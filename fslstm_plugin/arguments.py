"""The arguments of a part's constructor: read from a name, checked, and written back."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from .errors import UnknownNameError, UsageError, is_out_of_memory
from .grammar import BARE, Part, value_text

T = TypeVar("T")
SearchSpace = Mapping[str, Sequence[Any]]  # Arguments that tuning chooses, each with its candidates.

_FITTED = ("support", "labels", "ways")  # What heads' constructors take to be fitted at once.


def options(part: Callable[..., Any]) -> dict[str, Any]:
    """The defaults of the arguments of a constructor that a name can give."""
    parameters = inspect.signature(part).parameters
    left_out = {"adapters", *(_FITTED if "support" in parameters else ())}
    return {
        name: each.default
        for name, each in parameters.items()
        if each.default is not each.empty and name not in left_out
    }


def options_of(part: object, **changed: Any) -> dict[str, Any]:
    """The constructor's arguments that are not their defaults: those changed, or the attributes of the same names.

    Example:
        >>> from fslstm_plugin.heads import RidgeClassifier
        >>> options_of(RidgeClassifier(ridge=1.0))
        {'ridge': 1.0}
    """
    defaults = options(type(part))
    values = {name: changed.get(name, getattr(part, name, default)) for name, default in defaults.items()}
    return {name: value for name, value in values.items() if not _same(value, defaults[name])}


def _same(value: Any, default: Any) -> bool:
    if value is default:
        return True
    if isinstance(value, (int, float)) and isinstance(default, (int, float)):
        return value == default
    return value_text(value) == value_text(default)


def build(part: Callable[..., T], arguments: Mapping[str, Any], text: str, **given: Any) -> T:
    """Call a constructor with the arguments of a name, and with those that no name can give, such as ``dim``.

    Args:
        part: The constructor.
        arguments: From `Part.arguments`; a bare word switches a Boolean on.
        text: What was typed, for messages.
        **given: The others.

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
    for name, default in options(part).items():
        if isinstance(default, (int, float)) and isinstance(values.get(name), str):
            return f"The argument '{name}' in '{text}' must be a number, but got {values[name]}."
    return f"'{text}' is not valid: {error}"


def read_arguments(
    part: Callable[..., Any], arguments: Mapping[str, Any], text: str, given: Iterable[str] = ()
) -> dict[str, Any]:
    """The arguments of a name as values for a constructor; see `build`."""
    known = {name: default for name, default in options(part).items() if name not in given}
    for name in arguments:
        if name not in known:
            raise UnknownNameError("argument", name, known, text.partition("(")[0])
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


def part_text(name: str, part: object, words: Sequence[str] = (), **changed: Any) -> str:
    """A part as typed: its name, the arguments that are not their defaults, and other words among them.

    Example:
        >>> from fslstm_plugin.heads import RidgeClassifier
        >>> part_text("rr", RidgeClassifier(ridge=10.0), ["normalize"])
        'rr(ridge=10,normalize)'
    """
    found = [f"{key}={value_text(value)}" for key, value in options_of(part, **changed).items()] + list(words)
    return f"{name}({','.join(found)})" if found else name

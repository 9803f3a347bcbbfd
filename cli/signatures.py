"""Options that commands share: made from a recipe's fields, or from those of a dataclass of annotated types."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import typing
from collections.abc import Callable, Collection
from typing import Annotated, Any, Optional, TypeVar

import msgspec
import typer

_BY_NAME = inspect.Parameter.KEYWORD_ONLY
_LARGE = 10_000  # Larger bounds are checked with the configuration; in the help they would be clutter.


def with_fields(kind: type, panel: str | None = None, without: Collection[str] = ()) -> Callable[..., Any]:
    """Give a command an option for each field of a dataclass, whose types are annotated with Typer's options.

    The values reach the command by name, to be collected in the dataclass again. Every field has a default; some may be
    no options of the command. In the help they have a heading of their own, if one is given.
    """
    hints = typing.get_type_hints(kind, include_extras=True)
    if panel is not None:
        hints = {name: _in_panel(hint, panel) for name, hint in hints.items()}
    fields = [
        inspect.Parameter(each.name, _BY_NAME, default=each.default, annotation=hints[each.name])
        for each in dataclasses.fields(kind)
        if each.name not in without
    ]
    return lambda command: _with_parameters(command, fields)


def _in_panel(hint: Any, panel: str) -> Any:
    plain, option = typing.get_args(hint)
    option = copy.copy(option)
    option.rich_help_panel = panel
    return Annotated[plain, option]


def with_recipe(panel: str, *kinds: type[msgspec.Struct], prefix: str = "") -> Callable[..., Any]:
    """Give a command an option for each field of the recipes; the values reach it by name, None where not given.

    Fields without a description among their annotations are no options. The names of the others get the prefix.
    """
    added = []
    for kind in kinds:
        for name, hint in typing.get_type_hints(kind, include_extras=True).items():
            description = _meta(hint, "description")
            if description:
                option = _option(f"{prefix}{name}", hint, description, panel)
                added.append(inspect.Parameter(f"{prefix}{name}", _BY_NAME, default=None, annotation=option))
    return lambda command: _with_parameters(command, added)


def _with_parameters(command: Callable[..., Any], added: list[inspect.Parameter]) -> Callable[..., Any]:
    """The same command, with names for Typer of the further keyword arguments that it takes."""
    signature = inspect.signature(command, eval_str=True)
    own = [each.replace(kind=_BY_NAME) for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    command.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    return command


T = TypeVar("T")


def split(kind: type[T], values: dict[str, Any]) -> tuple[T, dict[str, Any]]:
    """The dataclass made of its values, and the remaining values."""
    names = {each.name for each in dataclasses.fields(kind)}  # type: ignore[arg-type]
    own = {name: value for name, value in values.items() if name in names}
    return kind(**own), {name: value for name, value in values.items() if name not in names}


def only_given(values: dict[str, Any]) -> dict[str, Any]:
    """The options that the user gave, to replace a recipe's values."""
    return {name: value for name, value in values.items() if value is not None}


def _option(name: str, hint: Any, description: str, panel: str) -> Any:
    """An optional option of a field's type and bounds; a tuple's is repeated, under its singular."""
    word = name.replace("_", "-")
    plain = _plain(hint)
    several = typing.get_origin(plain) is tuple
    inner = typing.get_args(plain)[0] if several else hint
    kind = _plain(inner)
    settings: dict[str, Any] = {"help": description, "rich_help_panel": panel}
    if kind is bool:
        return Annotated[Optional[bool], typer.Option(f"--{word}/--no-{word.partition('-')[0]}", **settings)]
    if kind in (int, float):
        most = _meta(inner, "le")
        settings |= {"min": _meta(inner, "ge"), "max": None if most is None or most > _LARGE else most}
    value = list[kind] if several else kind  # type: ignore[valid-type]
    return Annotated[Optional[value], typer.Option(f"--{word.removesuffix('s') if several else word}", **settings)]


def _plain(hint: Any) -> Any:
    """A type without its annotations."""
    return typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint


def _meta(hint: Any, what: str) -> Any:
    """A bound or the description among a type's annotations."""
    metas = [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, msgspec.Meta)]
    return next((value for each in metas if (value := getattr(each, what)) is not None), None)

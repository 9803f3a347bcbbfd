"""A command whose failures speak of its options."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from typer.core import TyperCommand

from fslstm_plugin.errors import FSLSTMError, UsageError, is_out_of_memory
from fslstm_plugin.registry import fault_of_package

_ARGUMENT = re.compile(r"`([a-z][a-z0-9_]*)(?:=([^`]*))?`")
_EMPTY = re.compile("--[a-z0-9-]+=")
_WANTED = re.compile(r"(?:tried|unable) to allocate ([\d.]+ \w+)", re.IGNORECASE)
_SIZES = ("batch_size", "batch_episodes", "episodes_per_step", "queries", "workers", "max_pixels")  # What takes memory

_running: ContextVar[Sequence[Any]] = ContextVar("parameters of the running command", default=())


class Command(TyperCommand):
    """A command: an error of the library names the option where it names an argument."""

    def __init__(self, *args: Any, help: str | None = None, **more: Any) -> None:
        # Typer keeps the line breaks of a docstring but for its first paragraph's.
        paragraphs = (help or "").split("\n\n")
        super().__init__(*args, help="\n\n".join(" ".join(each.split()) for each in paragraphs), **more)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words after the command."""
        with self._in_its_words():
            takes = {name for each in self.params if not getattr(each, "is_flag", True) for name in each.opts}
            for before, word in zip(["", *args], args, strict=False):
                if not word or _EMPTY.fullmatch(word):  # an empty path would be the current folder
                    name = word[:-1] or (before if before in takes else "An argument")
                    raise UsageError(f"{name} is empty, as an unset variable leaves it: give it, or leave it out.")
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Do what it does."""
        _running.set(self.params)
        with self._in_its_words():
            return super().invoke(ctx)

    @contextmanager
    def _in_its_words(self) -> Iterator[None]:
        try:
            yield
        except FSLSTMError as error:
            error.args = (as_options(str(error), self.params),)
            raise
        except Exception as error:
            if is_out_of_memory(error):
                raise FSLSTMError(_out_of_memory(error, self.params)) from error
            is_refusal = type(error).__module__.partition(".")[0] in ("typer", "click")
            if not is_refusal and (fault := fault_of_package(error)) is not None:
                raise fault from error
            raise


def epilog(examples: str) -> str:
    """What stands below a command's help: its examples, of which Typer would join the lines of one paragraph."""
    return "\n\n".join(["[bold]Examples[/bold]", *examples.strip().splitlines()])


def as_options(text: str, params: Sequence[Any] | None = None) -> str:
    """A text of the library as the command line says it: an argument in backticks is an option.

    Arguments are such as `` `weights` ``, `` `resume=True` `` or `` `precision=32` ``. What is no option of the command
    that runs, or of that with these parameters, is left as it is.
    """
    known = {each.name: each for each in (_running.get() if params is None else params)}

    def option(match: re.Match[str]) -> str:
        name, value = match.groups()
        param = known.get(name)
        if param is None:
            return match[0]
        if param.param_type_name == "argument":
            return param.metavar or param.name.upper()
        if value in ("True", "False"):
            words = param.opts if value == "True" else param.secondary_opts
            return words[0] if words else match[0]
        return param.opts[0] if value is None else f"{param.opts[0]} {value}"

    return _ARGUMENT.sub(option, text)


def _out_of_memory(error: Exception, params: Sequence[Any]) -> str:
    names = {each.name: each.opts[0] for each in params}
    wanted = _WANTED.search(str(error))
    reason = f" for another {wanted[1]}" if wanted else ""
    lower = " or ".join(names[each] for each in _SIZES if each in names)
    advice = f"lower {lower}, " if lower else ""
    advice += "use --device cpu, " if "CUDA" in str(error) and "device" in names else ""
    end = f"{'or ' if advice else ''}close other programs that use much of it"
    return f"There is not enough memory{reason}: {advice}{end}."

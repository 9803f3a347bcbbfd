"""What commands say on the terminal while they work: sentences, progress, and by which process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from math import nan
from typing import TYPE_CHECKING

from fslstm_plugin.errors import printable

from .command import as_options

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from fslstm_plugin.evaluation.ranks import Ranks

_PATIENCE = 30.0  # Seconds between two lines of progress, as in trainings.
LEAST_COLUMNS = 64  # In which every table fits: in fewer, parts of it would be left out.


@cache
def join_ranks() -> Ranks:
    """The processes that evaluate together: those that ``torchrun`` started, or this one alone."""
    from fslstm_plugin.evaluation.ranks import Ranks

    return Ranks.join()


def is_first() -> bool:
    """Whether this is the first of those processes, or alone; known without PyTorch, which a graph does without."""
    return "TORCHELASTIC_RUN_ID" not in os.environ or os.environ["RANK"] == "0"


@contextmanager
def progress(description: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """A progress bar with the time left; see `_lines` for where no terminal is attached."""
    from rich.progress import Progress

    console = for_sentences()
    if not console.is_terminal:
        yield _lines(description)
        return
    with Progress(console=console, transient=True, disable=not is_first()) as bar:
        task = bar.add_task(description, total=total)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines(description: str) -> Callable[[int, int], None]:
    """Progress as a line at most every half minute, for a log."""
    last = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _PATIENCE:
            last = time.monotonic()
            say(f"{description}: {done:,} of {total:,}")

    return tell


def say(sentence: str) -> None:
    """A sentence on a line of its own, by the first process only."""
    if is_first():
        for_sentences().print(printable(as_options(sentence)), highlight=False, soft_wrap=True, markup=False)


@cache
def for_sentences() -> Console:
    """Standard error, for all that is no result: one console, whose sentences stand above its progress bar."""
    from rich.console import Console

    return Console(stderr=True, emoji=False)  # :cat: may be in a file's name


def for_tables() -> Console:
    """Standard output; where it is too narrow for the words and numbers of a table, its lines go on in the next."""
    from rich.console import Console

    console = Console(emoji=False)
    console.width = max(console.width, LEAST_COLUMNS)
    return console


def cell(words: str) -> Text:
    """Words of a user, such as names, for a table: whole, also where they are longer than their column."""
    from rich.text import Text

    return Text(printable(words), overflow="fold")


@contextmanager
def running(total: int) -> Iterator[Callable[..., None]]:
    """The accuracies so far above a progress bar; see `_lines` for where no terminal is attached."""
    from rich.console import Group
    from rich.live import Live
    from rich.progress import Progress

    from fslstm_plugin.reporting.terminal import running_table

    console = for_sentences()
    counts: dict[tuple[int, str], int] = {}
    columns: dict[int, dict[str, float]] = {}
    bar, tell = Progress(console=console), _lines("Episodes")
    task = bar.add_task("Episodes", total=total)

    def show(shots: int, methods: Sequence[str], done: int, accuracies: Sequence[float]) -> None:
        counts[shots, methods[0]] = done
        if not console.is_terminal:
            tell(sum(counts.values()), total)
            return
        columns.setdefault(shots, {}).update(zip(methods, accuracies, strict=True))
        bar.update(task, completed=sum(counts.values()))
        names = list(dict.fromkeys(name for column in columns.values() for name in column))
        numbers = {count: [column.get(name, nan) for name in names] for count, column in columns.items()}
        live.update(Group(running_table(names, numbers), bar))

    live = Live(bar, console=console, transient=True)
    with live if console.is_terminal else nullcontext():
        yield show

"""What commands say on the terminal while they work: sentences, progress, and by which process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from math import nan
from typing import TYPE_CHECKING

from .command import as_options

if TYPE_CHECKING:
    from rich.console import Console

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
def progress(console: Console, description: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """A progress bar with the time left; see `_lines` for where no terminal is attached."""
    from rich.progress import Progress

    if not console.is_terminal:
        yield _lines(console, description)
        return
    with Progress(console=console, transient=True, disable=not is_first()) as bar:
        task = bar.add_task(description, total=total)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines(console: Console, description: str) -> Callable[[int, int], None]:
    """Progress as a line at most every half minute, for a log."""
    last = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _PATIENCE:
            last = time.monotonic()
            say(console, f"{description}: {done:,} of {total:,}")

    return tell


def say(console: Console, sentence: str) -> None:
    """A sentence on a line of its own, by the first process only."""
    if is_first():
        console.print(as_options(sentence), highlight=False, soft_wrap=True, markup=False)


def for_sentences() -> Console:
    """Standard error, for all that is no result."""
    from rich.console import Console

    return Console(stderr=True)


def for_tables() -> Console:
    """Standard output; where it is too narrow for the words and numbers of a table, its lines go on in the next."""
    from rich.console import Console

    console = Console()
    console.width = max(console.width, LEAST_COLUMNS)
    return console


@contextmanager
def running(console: Console, total: int) -> Iterator[Callable[..., None]]:
    """The accuracies so far above a progress bar; see `_lines` for where no terminal is attached."""
    from rich.console import Group
    from rich.live import Live
    from rich.progress import Progress

    from fslstm_plugin.reporting.terminal import running_table

    counts: dict[tuple[int, str], int] = {}
    if not console.is_terminal:
        tell = _lines(console, "Episodes")

        def count(shots: int, methods: Sequence[str], done: int, _: Sequence[float]) -> None:
            counts[shots, methods[0]] = done
            tell(sum(counts.values()), total)

        yield count
        return
    columns: dict[int, dict[str, float]] = {}
    bar = Progress(console=console)
    task = bar.add_task("Episodes", total=total)
    with Live(bar, console=console, transient=True) as live:

        def show(shots: int, methods: Sequence[str], done: int, accuracies: Sequence[float]) -> None:
            columns.setdefault(shots, {}).update(zip(methods, accuracies, strict=True))
            counts[shots, methods[0]] = done
            bar.update(task, completed=sum(counts.values()))
            names = list(dict.fromkeys(name for column in columns.values() for name in column))
            numbers = {count: [column.get(name, nan) for name in names] for count, column in columns.items()}
            live.update(Group(running_table(names, numbers), bar))

        yield show

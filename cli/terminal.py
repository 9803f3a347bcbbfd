"""What commands say on the terminal while they work: sentences, progress, and by which process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from math import nan
from typing import TYPE_CHECKING

from .command import as_options

if TYPE_CHECKING:
    from rich.console import Console

    from fslstm_plugin.evaluation.ranks import Ranks


@cache
def join_ranks() -> Ranks:
    """The processes that evaluate together: those that ``torchrun`` started, or this one alone."""
    from fslstm_plugin.evaluation.ranks import Ranks

    return Ranks.join()


@contextmanager
def progress(console: Console, description: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """A progress bar, where one is shown."""
    from rich.progress import Progress

    with Progress(console=console, transient=True, disable=not shows_progress(console)) as bar:
        task = bar.add_task(description, total=total)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def shows_progress(console: Console) -> bool:
    """Whether to show progress: on a terminal, by the first process only."""
    return console.is_terminal and join_ranks().rank == 0


def say(console: Console, sentence: str) -> None:
    """A sentence on a line of its own, by the first process only."""
    if join_ranks().rank == 0:
        console.print(as_options(sentence), highlight=False, soft_wrap=True, markup=False)


@contextmanager
def running(console: Console, total: int) -> Iterator[Callable[..., None]]:
    """The accuracies so far above a progress bar; where progress is shown."""
    from rich.console import Group
    from rich.live import Live
    from rich.progress import Progress

    from fslstm_plugin.reporting.terminal import running_table

    if not shows_progress(console):
        yield lambda *_: None
        return
    columns: dict[int, dict[str, float]] = {}
    counts: dict[tuple[int, str], int] = {}
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

"""What tables of rows say in every format: captions, notes, and the texts of some cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..data.prepared import SPLITS
from ..errors import FSLSTMError, count_of, printable
from ..evaluation.rows import Row
from ..registry import DATASETS
from .words import NOTHING, are_compared, listed, number, reference_name, several_runs, share, signed

TASKS = 10_000  # The paper reports the time for so many tasks.


def title(rows: Sequence[Row]) -> str:
    """The run, the images and the episodes, in one line."""
    run = only_run(rows)
    return f"{run}: {setting(rows)}" if run else setting(rows)


def only_run(rows: Sequence[Row]) -> str:
    """The run that all rows are of; empty if there are several, or none, as of a file of features."""
    first = rows[0]
    no_run = first.run == first.dataset and first.split not in SPLITS
    return "" if no_run or several_runs(rows) else printable(first.run)


def setting(rows: Sequence[Row]) -> str:
    """The images and the episodes."""
    row = rows[0]
    backbones = listed(list(dict.fromkeys(row.backbone for row in rows)))
    balance = "" if row.query_balance == "uniform" else f" on average ({row.query_balance})"
    return printable(
        f"{dataset_title(row.dataset)} {row.split}, {backbones}, {row.ways}-way, "
        f"{count_of(row.queries, 'query')} per class{balance}, {row.episodes:,} episodes, seed {row.seed}"
    )


def dataset_title(dataset: str) -> str:
    """A registered data set as it is written in sentences; another's name."""
    try:
        return str(DATASETS.get(dataset).title)
    except FSLSTMError:  # of pictures or a file of features, or of a package that is gone
        return dataset


def notes(rows: Sequence[Row], best: str, transductive: str) -> list[str]:
    """How to read the rows, in a table that so marks the best, and what is transductive."""
    intervals = listed(list(dict.fromkeys(row.interval for row in rows)))
    words = [f"Accuracy in percent with 95 % interval over {intervals}."]
    if are_compared(rows):
        words.append(
            f"{best}: best or within noise of it. The intervals of differences, and the statements about them, hold "
            "for all pairs of rows of this table at once; the interval of an accuracy holds for its row alone."
        )
    if any(row.transductive for row in rows):
        words.append(f"{transductive}: transductive, uses the other queries.")
    shown = columns(rows)
    if "shares" in shown:
        words.append("shares: mean absolute error of the classes' shares in the predictions, in points.")
    if "s/10k" in shown:
        words.append(f"s/10k: seconds for {TASKS:,} episodes from features.")
    often = iterations(rows)
    return [*words, f"{often}."] if often else words


def iterations(rows: Sequence[Row]) -> str:
    """Iterations of the modules whose names do not say them; empty if there are none."""
    counts = {
        row.modules[-1]: row.iterations
        for row in rows
        if row.iterations is not None and row.modules and row.method.endswith(f"+{row.modules[-1]}")
    }
    return ", ".join(f"{count_of(count, 'iteration')} of {name.upper()}" for name, count in counts.items())


def columns(rows: Sequence[Row]) -> dict[str, Callable[[Row], str]]:
    """The numbers that a table of the rows may show: the name of each, and its text in a row."""
    found: dict[str, Callable[[Row], str]] = {"accuracy": lambda row: number(row.accuracy, row.ci95)}
    if are_compared(rows):
        found["to the best"] = _to_best
        found["gain"] = lambda row: signed(row.gain, row.gain_ci95)
        found["gain over"] = lambda row: reference_name(row, rows) if row.reference else NOTHING
    if any(row.transductive and row.share_error is not None for row in rows):
        found["shares"] = lambda row: share(row.share_error)
    if any(row.seconds is not None for row in rows):
        found["s/10k"] = lambda row: _two_digits(row.seconds and row.seconds * TASKS / row.episodes)
    return found


def _to_best(row: Row) -> str:
    same = row.difference == 0 and row.difference_ci95 == 0
    return "best" if same else signed(row.difference, row.difference_ci95)


def _two_digits(value: float | None) -> str:
    """Of a number of seconds, as far as known.

    Example:
        >>> [_two_digits(value) for value in (0.735, 4.25, 92.75, 1510.0, None)]
        ['0.73', '4.2', '93', '1510', '–']
    """
    if value is None:
        return NOTHING
    return f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 9.95 else f"{value:.0f}"

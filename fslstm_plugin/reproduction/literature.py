"""Numbers that others published for the methods of a figure, each with its source, and ours in the same table."""

from __future__ import annotations

from collections.abc import Sequence

from ..reporting.words import NOTHING, number
from .measurements import Measurement
from .rendering import Table
from .specification import PublishedValue
from .titles import place


def table(published: Sequence[PublishedValue], measured: Sequence[Measurement]) -> Table:
    """The published lines of each method, then ours of the same balance; columns for the numbers of shots.

    Example:
        >>> one = {"method": "TIM", "dataset": "mini", "backbone": "WRN", "ci95": None, "source": "a README"}
        >>> values = [PublishedValue(**one, shots=1, accuracy=77.5), PublishedValue(**one, shots=5, accuracy=87.2)]
        >>> head, rows = table(values, [])
        >>> head
        ['method', 'model', 'queries', '1-shot', '5-shot', 'from']
        >>> rows
        [['TIM', 'miniImageNet, WRN', 'uniform', '77.50', '87.20', 'published: a README']]
    """
    shots = sorted({value.shots for value in published})
    balances = {value.query_balance for value in published}
    ours = [each for each in measured if each.query_balance in balances and each.shots in shots]
    entries: list[tuple[str, PublishedValue | Measurement, str]] = [
        *((value.method, value, f"published: {value.source}") for value in published),
        *((_name(each), each, f"measured here: {each.training}, {each.episodes:,} episodes") for each in ours),
    ]
    rows: dict[tuple[str, ...], dict[int, str]] = {}
    for method in dict.fromkeys(value.method for value in published):
        for name, each, source in entries:
            if name == method:
                line = method, place(each.dataset, each.backbone), each.query_balance, source
                rows.setdefault(line, {})[each.shots] = number(each.accuracy, each.ci95)
    head = ["method", "model", "queries", *(f"{count}-shot" for count in shots), "from"]
    return head, [
        [*line[:-1], *(cells.get(count, NOTHING) for count in shots), line[-1]] for line, cells in rows.items()
    ]


def _name(each: Measurement) -> str:
    """As the published values name it: whatever its arguments, for example those for features of any sign."""
    return "+".join([each.head, *each.modules]).upper()

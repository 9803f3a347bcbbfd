"""The tables and lists of a reproduction, and how they are written as Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, product
from string import ascii_uppercase, digits
from typing import TypeAlias

from ..evaluation.statistics import widened
from ..reporting.blocks import Block
from ..reporting.escaping import latex_escape, latex_number, latex_tabular, markdown_escape
from ..reporting.figures.lines import Lines, Point, in_order
from ..reporting.statements import statement
from ..reporting.words import NOTHING, display_name, number, share, signed
from .comparison import Cell, Line, Trained
from .measurements import Measurement, Provenance
from .specification import Published, PublishedValue, Reproduction
from .titles import OfModel, model_titles, place

Table: TypeAlias = "tuple[list[str], list[list[str]]]"  # Names of the columns, and the rows.
Letters: TypeAlias = "dict[Trained, str]"


def explanation(lines: Sequence[Line]) -> str:
    """How to read the tables."""
    difference = letters = ""
    if any(cell.difference is not None for line in lines for cell in line.cells.values()):
        difference = (
            "; the difference is ours less the published, with ✓ where it lies within its interval, the root of the "
            "sum of the squares of both"
        )
    if any(line.trained for line in lines):
        letters = " The training of our models is named by letters, explained below the tables."
    return f"Accuracy in percent with 95 % interval{difference}.{letters}"


def published_by(published: Published) -> str:
    """Where the published numbers come from, and what their models were trained with; empty if there are none."""
    return f"Published: {published.source} {published.training}" if published.values else ""


def comparisons(lines: Sequence[Line], letters: Letters) -> list[Block]:
    """For each data set and backbone the published numbers, with ours beside them if there are any."""
    tables = []
    for (dataset, backbone), group in groupby(lines, key=lambda line: (line.dataset, line.backbone)):
        mine = list(group)
        heading = place(dataset, backbone)
        run = any(line.trained for line in mine)
        head, rows = _comparison(mine, letters, run)
        tables.append(Block(heading if run else f"{heading} (not run)", head=head, rows=rows))
    return tables


def _comparison(lines: list[Line], letters: Letters, run: bool) -> Table:
    shots = sorted({count for line in lines for count in line.cells})
    columns = {"method": [_name(line, lines) for line in lines]}
    if run:
        untrained = {True: "not run", False: "published only"}
        columns["training"] = [_lettered(line, letters) or untrained[line.known] for line in lines]
    for count in shots:
        for name, text in _TEXTS.items():
            columns[f"{count}-shot {name}"] = [text(line.cells.get(count, Cell())) for line in lines]
    filled = {name: cells for name, cells in columns.items() if any(cell != NOTHING for cell in cells)}
    return list(filled), [list(row) for row in zip(*filled.values(), strict=True)]


def _name(line: Line, others: Iterable[Line]) -> str:
    """The method, with its episodes where others have more."""
    fewer = 0 < line.episodes < max(each.episodes for each in others)
    return f"{line.method}, {line.episodes:,} episodes" if fewer else line.method


def _lettered(line: Line, letters: Letters) -> str:
    return ", ".join(letters[each] for each in line.trained)


def training_letters(lines: Iterable[Line]) -> Letters:
    """A letter for each model; two after Z."""
    letters = ("".join(each) for length in (1, 2, 3) for each in product(ascii_uppercase, repeat=length))
    return dict(zip(dict.fromkeys(each for line in lines for each in line.trained), letters, strict=False))


def explained(letters: Letters) -> list[str]:
    """What the letters mean; with the seed of the test episodes where there are several."""
    several = len({each.seed for each in letters}) > 1
    return [
        f"{letter}: {each.training}{f'; test episodes of seed {each.seed}' if several else ''}"
        for each, letter in letters.items()
    ]


def markdown(title: str, lead: Iterable[str], blocks: Iterable[Block]) -> str:
    """A page of paragraphs, tables and lists."""
    text = [f"# {title}"]
    for words in lead:
        text += ["", words]
    for block in blocks:
        text += ["", f"## {block.heading}"]
        text += ["", block.caption] if block.caption else []
        text += ["", *(f"* {markdown_escape(sentence)}" for sentence in block.sentences)] if block.sentences else []
        text += ["", *_markdown_table(block.head, block.rows)] if block.head else []
    return "\n".join(text) + "\n"


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, columns of numbers to the right."""
    numbers = [all(_is_number(row[place]) for row in rows) for place in range(1, len(head))]
    rule = ["---", *("---:" if right else "---" for right in numbers)]
    head, *rows = [[markdown_escape(cell) for cell in line] for line in (head, *rows)]
    return [f"| {' | '.join(line)} |" for line in (head, rule, *rows)]


def _is_number(cell: str) -> bool:
    return cell[:1] in f"+-{NOTHING}{digits}"


def _number(value: PublishedValue | Measurement | None) -> str:
    return NOTHING if value is None else number(value.accuracy, value.ci95)


def _difference(cell: Cell) -> str:
    if cell.difference is None:
        return NOTHING
    return f"{cell.difference:+.2f} ✓" if cell.within else f"{cell.difference:+.2f}"


def _seconds(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.0f}"


_TEXTS: dict[str, Callable[[Cell], str]] = {  # What is said of a cell, as the heads of columns name it.
    "published": lambda cell: _number(cell.published),
    "ours": lambda cell: _number(cell.ours),
    "difference": _difference,
    "published s / 10k": lambda cell: _seconds(cell.published.seconds if cell.published else None),
    "ours s / 10k": lambda cell: _seconds(cell.ours_seconds),
}


def paired_differences(measured: Sequence[Measurement], letters: Letters) -> list[Block]:
    """The paired differences of the measurements in words, for each model's training, and between trainings.

    Their intervals hold for all of them at once, by Bonferroni's bound.
    """
    caption = "On the same episodes; the 95 % intervals hold for all paired differences here at once (Bonferroni)."
    sentences: dict[str, list[str]] = {}
    comparisons = sum(each.gain is not None for each in measured)
    for each in measured:
        if each.reference is None or each.gain is None or each.gain_ci95 is None:
            continue
        ci95 = widened(each.gain_ci95, each.episodes, comparisons)
        names = [display_name(each.method), display_name(each.reference)]
        models = each.training
        if each.reference_training is not None:
            models = "between trainings"
            both = each.training, each.reference_training
            places = [letters.get(Trained(training, each.seed), "no longer shown") for training in both]
            names = [f"{name} ({letter})" for name, letter in zip(names, places, strict=True)]
        heading = f"Paired differences, {place(each.dataset, each.backbone)}: {models}"
        sentences.setdefault(heading, []).append(statement(names[0], names[1], each.shots, each.gain, ci95))
    return [Block(heading, caption, sentences=mine, folded=True) for heading, mine in sentences.items()]


def grids(lines: Lines) -> list[Block]:
    """Gains, accuracies, and errors of the shares if there are any, of each row of panels, folded."""
    texts: dict[str, Callable[[Point], str]] = {
        "Gain in points": lambda point: signed(point.gain, point.gain_ci95),
        "Accuracy in percent": lambda point: number(point.accuracy, point.accuracy_ci95),
    }
    if any(point.share_error is not None for point in lines.points):
        texts["Mean absolute error of the classes' shares in points"] = lambda point: share(point.share_error)
    rows = {point.row: [each for each in lines.points if each.row == point.row] for point in lines.points}
    blocks = []
    for what, text in texts.items():
        for row, points in rows.items():
            head, cells = grid(points, lines.x_label, text)
            blocks.append(Block(f"{what}: {row}", head=head, rows=cells, folded=True))
    return blocks


def grid(points: Sequence[Point], x_label: str, show: Callable[[Point], str]) -> Table:
    """Series and places, the more numerous of them down."""
    places = in_order(points)
    series = list(dict.fromkeys((point.column, point.series) for point in points))
    cells = {(point.column, point.series, point.x): show(point) for point in points}
    names = [", ".join(name) for name in series]
    ticks = ["any" if place is None else place if isinstance(place, str) else f"{place:g}" for place in places]
    rows = [[cells.get((*name, place), NOTHING) for place in places] for name in series]
    if len(places) > len(series):
        names, ticks, rows = ticks, names, [list(column) for column in zip(*rows, strict=True)]
    return [x_label, *ticks], [[name, *row] for name, row in zip(names, rows, strict=True)]


def latex_grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table with booktabs."""
    cells = ([latex_escape(name), *map(_latex_cell, others)] for name, *others in rows)
    return latex_tabular("l" + "c" * (len(head) - 1), [latex_escape(name) for name in head], cells)


def _latex_cell(text: str) -> str:
    return latex_number(text) if _is_number(text) else latex_escape(text)


def literature(published: Sequence[PublishedValue], measured: Sequence[Measurement]) -> Table:
    """What others published for the methods of a figure, each with its source, then ours of the same balance.

    Example:
        >>> one = {"method": "TIM", "dataset": "mini", "backbone": "WRN", "ci95": None, "source": "a README"}
        >>> values = [PublishedValue(**one, shots=1, accuracy=77.5), PublishedValue(**one, shots=5, accuracy=87.2)]
        >>> head, rows = literature(values, [])
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
        *((_family(each), each, f"measured here: {each.training}, {each.episodes:,} episodes") for each in ours),
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


def _family(each: Measurement) -> str:
    """As the published values name it: whatever its arguments, for example those for features of any sign."""
    return "+".join([each.head, *each.modules]).upper()


def origin(found: Iterable[tuple[Provenance, int]], models: Sequence[OfModel] = ()) -> list[Block]:
    """What models were trained with, and where measurements come from, given their provenances and seeds."""
    said = {
        "Training of the models": [
            f"{title}: {each.training}" for title, each in zip(model_titles(models), models, strict=True)
        ],
        "Measured with": [
            f"{where.command} at commit {where.commit} on {where.date}, seed {seed}, scale: {where.scale}; "
            f"{where.hardware}"
            for where, seed in found
        ],
    }
    return [Block(heading, sentences=list(dict.fromkeys(lines))) for heading, lines in said.items() if lines]


def latex(reproduction: Reproduction, lines: Sequence[Line]) -> str:
    r"""The same as a booktabs table, ours beside the published. Needs ``\usepackage{booktabs}``."""
    specification = reproduction.specification
    shots = sorted({count for line in lines for count in line.cells})
    names = ["published", "ours"]
    if specification.timed is not None:
        names += ["published s / 10k", "ours s / 10k"]
    wide, width = len(names), 1 + len(names) * len(shots)
    letters = training_letters(lines)
    text = [f"% {specification.title}", f"\\begin{{tabular}}{{l{'c' * (width - 1)}}}", "\\toprule"]
    text.append(" & ".join(["", *(f"\\multicolumn{{{wide}}}{{c}}{{{count}-shot}}" for count in shots)]) + " \\\\")
    text.append(" ".join(f"\\cmidrule(lr){{{end - wide + 1}-{end}}}" for end in range(1 + wide, width + 1, wide)))
    text.append(" & ".join(["Method", *names * len(shots)]) + " \\\\")
    for (dataset, backbone), group in groupby(lines, key=lambda line: (line.dataset, line.backbone)):
        heading = latex_escape(place(dataset, backbone))
        text += ["\\midrule", f"\\multicolumn{{{width}}}{{l}}{{\\emph{{{heading}}}}} \\\\"]
        mine = list(group)
        for line in mine:
            cells = [line.cells.get(count, Cell()) for count in shots]
            numbers = [latex_number(_TEXTS[name](cell)) for cell in cells for name in names]
            letter = f" ({_lettered(line, letters)})" if line.trained else ""
            text.append(f"{' & '.join([latex_escape(_name(line, mine) + letter), *numbers])} \\\\")
    text += ["\\bottomrule", "\\end{tabular}"]
    text += [f"\\par {latex_escape(words)}." for words in explained(letters)]
    return "\n".join([*text, ""])

"""Rows as a table in LaTeX."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..evaluation.rows import Row
from .captions import columns, notes, only_run, setting
from .escaping import latex_escape, latex_number, latex_tabular
from .words import NOTHING, by_method, by_shots, display_name, is_marked, several_runs


def latex_text(rows: Sequence[Row], further: Sequence[str] = ()) -> str:
    r"""A floating table: methods down, shots across; bold what is the best or within noise of it; notes below.

    Needs ``\usepackage{booktabs}``; `further` are notes on what was measured, in sentences.
    """
    groups = by_shots(rows)
    names_runs = several_runs(rows)
    shown = {name: text for name, text in columns(rows).items() if name in ("accuracy", "shares")}

    def cells(row: Row | None) -> list[str]:
        if row is None:
            return [latex_number(NOTHING)] * len(shown)
        accuracy, *others = (latex_number(text(row)) for text in shown.values())
        return [f"$\\mathbf{{{accuracy.strip('$')}}}$" if is_marked(row, rows) else accuracy, *others]

    def line(of_method: dict[int, Row]) -> list[str]:
        row = next(iter(of_method.values()))
        name = latex_escape(f"{display_name(row.method)}{'†' if row.transductive else ''}")
        run = [latex_escape(row.run)] if names_runs else []
        numbers = [text for shots in groups for text in cells(of_method.get(shots))]
        return [*run, name, *numbers]

    first = rows[0]
    run = only_run(rows)
    features = f", features of the run {run}" if run else ""
    caption = f"Few-shot classification on {setting(rows)}{features}."
    remarks = [*(words for words in notes(rows, "Bold", "†") if "s/10k" not in words), *further]
    label = re.sub("[^A-Za-z0-9]", "-", f"{first.dataset}-{first.split}-{first.backbone}")  # LaTeX accepts these.
    names = [*(["Run"] if names_runs else []), "Method"]
    heads = [name for shots in groups for name in (f"{first.ways}-way {shots}-shot", *list(shown)[1:])]
    return "\n".join(
        [
            "% Needs \\usepackage{booktabs}.",
            "\\begin{table}",
            "\\centering",
            f"\\caption{{{latex_escape(caption)}}}",
            f"\\label{{tab:{label}}}",
            *latex_tabular("l" * len(names) + "c" * len(heads), [*names, *heads], map(line, by_method(rows))),
            "",
            "\\smallskip",
            *(f"{{\\footnotesize {latex_escape(words)}\\par}}" for words in remarks),
            "\\end{table}",
            "",
        ]
    )

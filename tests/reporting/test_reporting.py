"""What a user reads: verdicts, tables for the terminal and for papers, and the page of a run."""

from __future__ import annotations

import csv
import io
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from fslstm_cli.terminal import LEAST_COLUMNS
from msgspec.structs import replace
from rich.console import Console

from fslstm_plugin.errors import FSLSTMError
from fslstm_plugin.evaluation.calibration import CalibrationRow, Quality
from fslstm_plugin.evaluation.coverage import CoverageRow
from fslstm_plugin.evaluation.open_set import OpenRow
from fslstm_plugin.evaluation.rows import Row
from fslstm_plugin.naming import parse_method
from fslstm_plugin.reporting.blocks import Best, Block, Section
from fslstm_plugin.reporting.captions import setting
from fslstm_plugin.reporting.chart import chart
from fslstm_plugin.reporting.escaping import latex_escape, markdown_escape
from fslstm_plugin.reporting.further import TABLES
from fslstm_plugin.reporting.html import page
from fslstm_plugin.reporting.latex import latex_text
from fslstm_plugin.reporting.results import Results, csv_text, json_content
from fslstm_plugin.reporting.run_report import run_section
from fslstm_plugin.reporting.statements import statements, verdict
from fslstm_plugin.reporting.terminal import ResultsTable, running_table
from fslstm_plugin.runs.folder import Run
from fslstm_plugin.storage.plain import from_plain

RECIPE = {"epochs": 8, "batch_size": 128, "lr": 0.1, "schedule": "steps", "weight_decay": 0.0}
CONFIG = {
    "kind": "pretrain", "backbone": "conv4", "image_size": 32, "max_steps": None, "seed": 0, "precision": "32",
    "dataset": "cifar-fs", "recipe": RECIPE,
}  # fmt: skip


def row(method, shots=1, accuracy=50.0, difference=(0.0, 0.0), gain=None, reference=None, **changes):
    """A row whose description follows from the method's name."""
    made = parse_method(method, dim=8)
    return replace(
        Row(
            dataset="cifar-fs", split="test", backbone="conv4", run="base", method=method, head=made.family,
            modules=list(made.module_names), options={}, adapters=[], transductive=made.is_transductive,
            iterations=getattr(getattr(made, "transduction", None), "iterations", None), ways=5, shots=shots,
            queries=15, episodes=1000, seed=0, query_balance="uniform", interval="episodes", accuracy=accuracy,
            ci95=0.5, seconds=0.5, difference=difference[0], difference_ci95=difference[1], reference=reference,
            reference_run="base" if reference else None, gain=gain[0] if gain else None,
            gain_ci95=gain[1] if gain else None,
        ),
        **changes,
    )  # fmt: skip


def compared(shots=1):
    """Two heads with and without PSM: RR+PSM is best, NN+PSM within noise of it."""
    return [
        row("nn", shots, 51.0, (-11.0, 0.9), (-5.4, 0.4), "lssvm"),
        row("nn+psm", shots, 61.75, (-0.25, 0.5), (10.75, 0.4), "nn"),
        row("rr", shots, 57.5, (-4.5, 0.6), (0.55, 0.13), "lssvm"),
        row("rr+psm", shots, 62.0, (0.0, 0.0), (4.5, 0.3), "rr"),
        row("lssvm", shots, 56.5, (-5.5, 0.6)),
        row("lssvm+psm", shots, 56.625, (-5.375, 0.6), (0.125, 0.2), "lssvm"),
    ]


def text_of(what, width):
    console = Console(file=io.StringIO(), width=width)
    console.print(what)
    return console.file.getvalue()


# Sentences.


def test_a_verdict_has_a_sentence_for_each_question_and_says_nothing_twice():
    rows = [*compared(1), *[replace(each, gain=2.0) if "psm" in each.method else each for each in compared(5)]]
    assert verdict(rows) == [
        "1-shot: RR+PSM is best; NN+PSM is within noise of it.",
        "5-shot: RR+PSM is best; NN+PSM is within noise of it.",
        "PSM: at 1 shot helps NN and RR (+4.50 to +10.75 points), no clear difference for LSSVM (+0.12 ± 0.20 points); "
        "at 5 shots helps every head (+2.00 points).",
    ]
    assert len(statements(rows)) == 2 * (5 + 1)


def test_of_a_single_head_the_verdict_says_what_its_module_adds_once():
    rows = [
        row("lssvm+iam", 1, 54.0, (-2.7, 0.2)),
        row("lssvm+iam+psm(iterations=3)", 1, 56.7, (0, 0), (2.7, 0.2), "lssvm+iam"),
    ]
    assert verdict(rows) == ["PSM(iterations=3): at 1 shot helps LSSVM+IAM (+2.70 ± 0.20 points)."]
    assert verdict(rows[:1]) == []


def test_transductive_methods_without_a_head_to_compare_with_are_named():
    rows = [row("tim", 1, 60.0), row("paddle", 1, 58.0, (-2.0, 0.5))]
    assert verdict(rows)[-1] == "TIM and PADDLE are compared with nothing here: add nn."
    assert verdict(rows[:1]) == []
    rows = [row("nn", 1, 60.0), row("lssvm+psm", 1, 58.0, (-2.0, 0.5)), row("rr+can", 1, 58.0, (-2.0, 0.5))]
    assert verdict(rows)[-1] == "LSSVM+PSM and RR+CAN are compared with nothing here: add lssvm and rr."
    rows = [row("svm", 1, 60.0), row("rr(bpa)", 1, 58.0, (-2.0, 0.5))]
    assert verdict(rows)[-1] == "RR(bpa) is compared with nothing here: add rr."
    rows = [row("nn", 1, 60.0), row("rr(ridge=1,normalize)+can", 1, 58.0, (-2.0, 0.5))]
    assert verdict(rows)[-1].endswith("add rr(ridge=1,normalize)."), "CAN's own gain, not that of the arguments too"


def test_a_module_on_another_head_than_its_reference_is_named_with_its_head():
    rows = [row("nn", 1, 54.0, (-4.0, 0.2)), row("nn(normalize)+psm", 1, 58.0, (0, 0), (4.0, 0.2), "nn")]
    assert verdict(rows) == ["NN(normalize)+PSM over NN: at 1 shot helps (+4.00 ± 0.20 points)."]


def test_what_hurts_is_called_so():
    rows = [row("nn", 1, 54.0), row("nn+can", 1, 52.0, (-2.0, 0.2), (-2.0, 0.2), "nn")]
    assert verdict(rows) == ["CAN: at 1 shot hurts NN (-2.00 ± 0.20 points)."]


def test_whole_transductive_methods_get_a_verdict_each():
    gains = {"tim": (7.9, 0.4), "pt-map": (-0.5, 0.3), "bd-cspn": (0.1, 0.3)}
    rows = [row("nn", 1, 50.0, (-7.9, 0.4))]
    rows += [row(name, 1, 50 + gain[0], (gain[0] - 7.9, 0.4), gain, "nn") for name, gain in gains.items()]
    rows[1] = replace(rows[1], difference=0.0, difference_ci95=0.0)
    assert verdict(rows) == [
        "1-shot: TIM is best, 7.80 ± 0.40 points ahead of BD-CSPN.",
        "TIM over NN: at 1 shot helps (+7.90 ± 0.40 points).",
        "PT-MAP over NN: at 1 shot hurts (-0.50 ± 0.30 points).",
        "BD-CSPN over NN: at 1 shot no clear difference (+0.10 ± 0.30 points).",
    ]


def sharing(rows):
    """The same rows with errors of the classes' shares: 3.0 of plain heads, 6.25, 6.5, ... of transductive ones."""
    return [replace(each, share_error=6 + place / 4 if each.transductive else 3.0) for place, each in enumerate(rows)]


def test_a_verdict_says_how_far_the_class_shares_lie_from_the_true_ones():
    tim = row("tim", 1, 57.9, (0, 0), (7.9, 0.4), "nn")
    inductive = row("rr(normalize)", 1, 51.0, (-6.9, 0.4), (1.0, 0.5), "rr")
    assert verdict(sharing([row("nn"), tim, inductive])) == [
        "TIM over NN: at 1 shot helps (+7.90 ± 0.40 points; class shares off by 6.2).",
        "RR(normalize) over RR: at 1 shot helps (+1.00 ± 0.50 points).",
    ]
    assert verdict(sharing(compared(1)))[1] == (
        "PSM: at 1 shot helps NN and RR (+4.50 to +10.75 points; class shares off by 6.2 to 6.8), no clear difference "
        "for LSSVM (+0.12 ± 0.20 points; class shares off by 7.2)."
    )


def test_plain_heads_and_equal_ones_are_ranked():
    rows = [row("rr", 5, 57.0), row("lssvm", 5, 56.0, (-1.0, 0.25)), row("svm", 5, 55.0, (-2.0, 0.25))]
    rows[0] = replace(rows[0], reference="lssvm", reference_run="base", gain=1.0, gain_ci95=0.2)
    assert verdict(rows) == ["5-shot: RR is best, 1.00 ± 0.25 points ahead of LSSVM."]
    equal = [replace(each, difference=-0.1 if place else 0.0) for place, each in enumerate(rows)]
    assert verdict(equal) == ["5-shot: RR is best; all others are within noise of it."]
    assert statements([replace(each, reference=None) for each in equal])[-1].startswith(
        "5-shot: warning: the best, RR, and LSSVM (and 1 more) are within noise"
    )
    same = [row("rr"), row("rr(normalize)", gain=(0.0, 0.0), reference="rr")]
    assert verdict(same) == ["RR(normalize) over RR: at 1 shot no clear difference (0.00 points)."]


def test_runs_are_told_apart_where_there_are_several():
    other = {"run": "other", "reference_run": "base"}
    rows = [
        row("rr", 1, 50.0, (-2.0, 0.3)),
        row("svm", 1, 49.0, (-3.0, 0.3)),
        row("rr", 1, 52.0, (0.0, 0.0), (2.0, 0.3), "rr", **other),
        row("svm", 1, 48.0, (-4.0, 0.3), (-1.0, 0.3), "svm", **other),
    ]
    assert verdict(rows) == [
        "1-shot: RR of other is best, 2.00 ± 0.30 points ahead of RR of base.",
        "other against base: at 1 shot ahead with RR (+2.00 ± 0.30 points), behind with SVM (-1.00 ± 0.30 points).",
    ]
    assert "1-shot: SVM of other is behind SVM of base by 1.00 ± 0.30 points." in statements(rows)
    for width in (80, 52):
        assert re.search(r"run +method", text_of(ResultsTable(rows), width))
    assert not re.search(r"run +method", text_of(ResultsTable(rows[:2]), 80))


@pytest.mark.parametrize("width", [80, 60])
def test_the_column_of_what_is_transductive_is_there_with_its_legend(width):
    for rows in (compared(), [row("nn"), row("rr")]):
        told = any(each.transductive for each in rows)
        text = text_of(ResultsTable(rows), width)
        assert (bool(re.search(r"method +T ", text)), "T: transductive" in " ".join(text.split())) == (told, told)


# The terminal.


@pytest.mark.parametrize("width", [50, 80, 120])
def test_no_line_of_a_table_is_longer_than_the_terminal_and_no_number_is_cut(width):
    rows = [*compared(1), *compared(5), row("lssvm(ridge=loo,normalize)+psm(iterations=3)", 5, 51.5, (-10.5, 0.3))]
    lines = text_of(ResultsTable(rows), width).splitlines()
    assert max(map(len, lines)) <= width
    for each in rows:
        assert f"{each.accuracy:.2f}±0.50" in "\n".join(lines)


def test_the_further_tables_are_whole_on_the_narrowest_terminal():
    named = {"run": "base", "method": "lssvm(normalize)+psm", "shots": 5}
    quality = Quality(ece=43.21, brier=0.525, nll=1.053)
    reason = "what it predicts depends on the other queries"
    percent = {"auroc": 95.5, "accuracy": 96.5, "refused": 97.5, "covered": 98.5, "guaranteed": 99.0}
    wide = {"ci95": 12.34, "auroc_ci95": 12.34, "accuracy_ci95": 12.34, "refused_ci95": 12.34}
    values = {**named, **percent, **wide, "before": quality, "after": quality, "temperature": 1.0, "size": 1.73}
    values |= {"kind": "per-class", "asked": 80.0, "singletons": 51.9, "open_ways": 5, "score": "probability"}
    values["uncalibrated"] = reason
    rows = {"calibration": CalibrationRow, "coverage": CoverageRow, "open": OpenRow}
    shown = {
        name: text_of(TABLES[name]([made(**{each: values[each] for each in made.__struct_fields__})]), LEAST_COLUMNS)
        for name, made in rows.items()
    }
    assert all(word in shown["calibration"] for word in ("43.21→43.21", "0.525→0.525", "1.053→1.053", " no\n"))
    assert all(word in shown["coverage"] for word in ("99.0", "98.50±12.34", "1.73", "51.9"))
    assert all(word in shown["open"] for word in ("95.50±12.34", "96.50±12.34", "97.50±12.34"))
    far = [row("lssvm(normalize)+psm", 1, 100.0, (-75.0, 317.66), ci95=317.66, run=name) for name in ("first", "other")]
    text = text_of(ResultsTable(far), LEAST_COLUMNS)
    assert text.count("100.00±317.66") == text.count("-75.00±317.66") == 2


def test_all_shots_share_the_lines_of_a_table_if_they_fit_into_80_columns():
    rows = [*compared(1), *compared(5)]
    wide, narrow = (text_of(ResultsTable(rows), width) for width in (80, 60))
    assert (wide.count("RR+PSM"), narrow.count("RR+PSM")) == (1, 2)
    line = next(line for line in wide.splitlines() if "NN+PSM" in line)
    assert line.split() == ["NN+PSM", "T", *["61.75±0.50*", "-0.25±0.50", "5.0"] * 2]
    best = next(line for line in wide.splitlines() if "RR+PSM" in line)
    assert best.split()[2:5] == ["62.00±0.50*", "best", "5.0"]
    assert wide.count("±0.50*") == 4, "the best, and what is within noise of it"
    assert "base: CIFAR-FS test, conv4, 5-way, 15 queries per class, 1,000 episodes, seed 0" in wide
    assert "10 iterations of PSM" in " ".join(wide.split())


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_error_of_the_class_shares_stands_beside_transductive_methods(width):
    rows = sharing([*compared(1), *compared(5)])
    text = text_of(ResultsTable(rows), width)
    assert max(map(len, text.splitlines())) <= width
    found = [line.split() for line in text.splitlines() if "NN+PSM" in line]
    assert sum((line.count("6.2") for line in found), 0) == 1
    assert "shares: mean absolute error of the classes' shares" in " ".join(text.split())
    latex = latex_text(rows)
    assert "\\begin{tabular}{lcccc}" in latex
    assert "Method & 5-way 1-shot & shares & 5-way 5-shot & shares \\\\" in latex
    assert "& $6.2$ & " in latex
    (first, *_) = csv.DictReader(io.StringIO(csv_text(rows)))
    assert first["share_error"] == "3.0"
    plain = [each for each in rows if not each.transductive]
    for without in (plain, [replace(each, share_error=None) for each in rows]):
        assert "shares" not in text_of(ResultsTable(without), width) + latex_text(without)


def test_a_table_has_no_columns_and_notes_without_content():
    rows = [replace(each, seconds=None, interval="classes") for each in compared() if "psm" not in each.method]
    text = text_of(ResultsTable(rows), 80)
    assert "s/10k" not in text
    assert "T:" not in text
    assert "over classes" in text
    assert not re.search(r"\*|best", text_of(ResultsTable(rows[:1]), 80)), "nothing to be best of"


def test_names_of_runs_are_no_markup_and_no_escapes():
    text = text_of(ResultsTable([replace(row("nn"), run="[red]x[/]\x1b[2J")]), 80)
    assert "[red]x[/]\\x1b[2J" in text


def test_a_running_table_shows_what_is_not_known_yet():
    text = text_of(running_table(["nn", "rr+psm"], {1: [50.0, 60.0], 5: [70.0, float("nan")]}), 80)
    assert [cell.strip() for cell in text.splitlines()[-2].split("│")[1:-1]] == ["RR+PSM", "60.00", "–"]


# Files.


def test_a_json_file_says_what_made_its_rows():
    content = json_content(compared(), ["slow"])
    assert json.loads(json.dumps(content)) == content
    assert list(content) == ["command", "version", "date", "rows", "statements", "notes"]
    assert content["statements"] == statements(compared())
    assert from_plain(Results, content).rows == compared()


def test_a_csv_file_has_every_field():
    rows = [replace(each, options={"ridge": 0.5, "kernel": "rbf"}) for each in compared()]
    found = list(csv.DictReader(io.StringIO(csv_text(rows))))
    assert [float(each["accuracy"]) for each in found] == [each.accuracy for each in rows]
    assert found[1]["modules"] == "psm"
    assert found[0]["options"] == "ridge=0.5,kernel=rbf"
    assert found[4]["reference"] == ""


def test_a_latex_table_marks_ties_and_explains_itself():
    text = latex_text([*compared(1), *compared(5)])
    body = text[text.index("\\midrule") : text.index("\\bottomrule")].splitlines()[1:]
    assert [line.count("mathbf") for line in body] == [0, 2, 0, 2, 0, 0]
    assert body[1] == "NN+PSM$^\\dagger$ & $\\mathbf{61.75 \\pm 0.50}$ & $\\mathbf{61.75 \\pm 0.50}$ \\\\"
    for part in (
        "\\caption{",
        "\\label{tab:cifar-fs-test-conv4}",
        "1,000 episodes, seed 0",
        "Bold: ",
        "$^\\dagger$: tr",
    ):
        assert part in text
    assert sorted(re.findall(r"\\begin\{(\w+)\}", text)) == sorted(re.findall(r"\\end\{(\w+)\}", text))


def test_latex_takes_untrusted_names_as_text():
    assert latex_escape("[5]*") == "{[}5{]}{*}", "after \\\\ they would be its argument"
    assert latex_escape("a\nb{\\x}") == "a\\textbackslash{}nb\\{\\textbackslash{}x\\}"
    hostile = "[2ex]%\n\\input{x}_$&#~^<|>"
    names = [hostile, "other"]
    text = latex_text([replace(row("nn"), run=name, dataset=hostile) for name in names])
    for line in text.splitlines():
        unescaped = re.sub(r"\\\\$|\\[&%$#_{}]|\\textbackslash\{\}", "", line)
        assert "\\input" not in unescaped
        assert "#" not in unescaped
        assert "%" not in unescaped.removeprefix("% Needs")
        assert unescaped.count("{") == unescaped.count("}")
        assert unescaped.count("$") % 2 == 0
    (line,) = [line for line in text.splitlines() if line.startswith("{[}2ex{]}")]
    assert len(re.findall(r"(?<!\\)&", line)) == 2, "run, method, one number"


def test_markdown_takes_untrusted_names_as_text():
    assert markdown_escape("<img src=x>|`a`*b*_c_[d](e)\n\\") == (
        "&lt;img src=x&gt;&#124;\\`a\\`\\*b\\*\\_c\\_\\[d\\](e)\\\\n\\\\"
    )


# The page.


class Page(HTMLParser):
    """The text of a page's elements, those with their kind or class."""

    VOID = ("meta", "br", "wbr", "link")

    def __init__(self, text):
        super().__init__()
        self.open, self.found, self.links, self.ids = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.links += [value for name, value in attributes.items() if name in ("href", "src")]
        self.ids += [attributes["id"]] if "id" in attributes else []
        if tag not in self.VOID:
            self.open.append((tag, attributes.get("class", ""), []))

    def handle_startendtag(self, tag, attributes):
        self.links += [value for name, value in attributes if name in ("href", "xlink:href", "src")]
        self.ids += [value for name, value in attributes if name == "id"]

    def handle_data(self, data):
        for _, _, texts in self.open:
            texts.append(data)

    def handle_endtag(self, tag):
        opened, kind, texts = self.open.pop()
        assert opened == tag, f"<{opened}> is closed by </{tag}>"
        self.found.append((tag, kind, " ".join("".join(texts).split())))

    def texts(self, tag, kind=None):
        return [text for name, its, text in self.found if name == tag and kind in (None, its)]


def content_of(rows, command, version, date, notes=()):
    return json_content(rows, notes) | {"command": command, "version": version, "date": date}


@pytest.fixture
def run(tmp_path):
    """A run folder with two evaluations and learning curves."""
    place = tmp_path / "base"
    place.mkdir()
    (place / "config.json").write_text(json.dumps(CONFIG))
    lines = ["step,epoch,train_loss,train_accuracy,valid_accuracy", "1,0,2.5,0.25,", "2,0,1.5,0.5,40.0", "3,1,1.0,,45"]
    (place / "metrics.csv").write_text("\n".join(lines))
    run = Run.open(place)
    older = [replace(each, accuracy=each.accuracy - 20, query_balance="dirichlet:2") for each in compared(5)]
    run.save_evaluation("eval", content_of(older, "fslstm eval", "1.0", "2026-01-01"))
    newer = [replace(each, accuracy=each.accuracy + 0.25) for each in compared(5)]
    run.save_evaluation("compare", content_of([*compared(1), *newer], "fslstm compare", "1.0", "2026-01-02"))
    return run


def page_of(run):
    return page("Title", [run_section(run, "base classes, 8 epochs")])


def test_the_page_of_a_run_begins_with_its_best_numbers_and_what_they_say(run):
    text = page_of(run)
    found = Page(text)
    assert found.open == []
    assert found.texts("dt") == ["1-shot, RR+PSM", "5-shot, RR+PSM"]
    assert found.texts("dd") == ["62.00 ± 0.50 %", "62.25 ± 0.50 %"]
    order = ["base classes, 8 epochs", "62.25 ± 0.50 %", "NN+PSM is within noise of it", "compare-1", "eval-1",
             "Learning curves", "Configuration"]  # fmt: skip
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    assert [heading for heading in found.texts("h3") if len(heading) > 30] == []
    for sentence in verdict(compared(1)):
        assert sum(sentence in item for item in found.texts("li")) <= 1, "no fact twice"


def test_the_tables_of_a_page_hold_every_number_once_and_mark_the_best(run):
    found = Page(page_of(run))
    cells = found.texts("td")
    for number in ("51.00 ± 0.50", "51.25 ± 0.50", "31.00 ± 0.50"):
        assert cells.count(number) == 1
    assert found.texts("td", "best") == [
        *("61.75 ± 0.50", "62.00 ± 0.50", "62.00 ± 0.50", "62.25 ± 0.50"),
        *("41.75 ± 0.50", "42.00 ± 0.50"),
    ]
    assert sum("dirichlet:2" in caption for caption in found.texts("p", "soft")) == 1


def test_each_evaluation_of_a_page_begins_a_line_of_its_own(run):
    run.save_evaluation("compare", json_content(compared(1)))
    headings = re.findall(r'<div class="block whole">\s*<h3>(.*?)</h3>', page_of(run))
    assert sorted(headings) == sorted(file.stem for file in (run.path / "evaluations").iterdir())


def test_the_page_of_a_run_tells_the_error_of_the_class_shares(run):
    assert "shares" not in Page(page_of(run)).texts("th")
    run.save_evaluation("compare", content_of(sharing(compared(1)), "fslstm compare", "1.0", "2026-01-03"))
    found = Page(page_of(run))
    assert found.texts("th").count("shares") == 1
    assert "6.8" in found.texts("td")
    assert "class shares off by 7.2" in page_of(run)


def test_a_page_needs_nothing_else_and_no_two_figures_meet(run):
    text = page("Title", [run_section(run, "x"), replace_name(run_section(run, "x"), "other")])
    found = Page(text)
    assert all(link.startswith("#") for link in found.links)
    assert "url(http" not in text
    assert "prefers-color-scheme: dark" in text
    assert not re.search("fill: #ffffff|#000000", text), "a figure takes the colours of its page"
    contents = [item for item in found.texts("li") if item.startswith("Run base")]
    assert contents == ["Run base; 1-shot, RR+PSM: 62.00 ± 0.50 %; 5-shot, RR+PSM: 62.25 ± 0.50 %"]


def replace_name(section, title):
    return Section(title, section.lead, section.blocks[:2])


def test_a_page_quotes_what_it_is_given():
    block = Block("<s>", "<em>", head=["<i>"], rows=[["a & b", Best("<q>")]], sentences=["<u>"])
    section = Section("<script>", ["<p id=x>"], [block], [("<dd>", "<dt>")], ["<li>"], ["<hr>"])
    text = page("<b>", [section, section])
    assert not re.search("<(s|em|i|u|b|q|tt|script|hr|p id=x)>", text)
    assert text.count("&lt;") >= 2 * 10
    assert "a &amp; b" in text
    assert Page(text).open == []


def test_names_break_at_their_parts_in_every_cell_and_numbers_do_not():
    block = Block("", head=["method", "gain", "gain over"], rows=[["RR+PSM", "+1.25 ± 0.50", "lssvm(ridge=0.1,bpa)"]])
    text = page("Title", [Section("Run", [], [block], [], [], [])])
    assert "RR+<wbr>PSM" in text
    assert "<td>+1.25 ± 0.50</td><td>lssvm<wbr>(ridge=0.1,<wbr>bpa)</td>" in text


def test_untrusted_names_are_shown_not_obeyed(run):
    name = "<script>alert('a')&$\\frac"
    config = {**CONFIG, "dataset": name}
    (run.path / "config.json").write_text(json.dumps(config))
    rows = [replace(each, run=name, dataset=name, backbone=name) for each in compared()]
    Run.open(run.path).save_evaluation("eval", content_of(rows, name, name, name))
    text = page_of(Run.open(run.path.rename(run.path.with_name("<script>b"))))
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 4


@pytest.mark.parametrize("value", ["1e308", "-1e300", "inf", "nan"])
def test_a_number_that_cannot_be_drawn_is_left_out_and_said(run, value):
    file = run.path / "metrics.csv"
    file.write_text(file.read_text() + f"\n4,1,{value},,\n")
    text = page_of(run)
    assert "Left out, as too large to draw: 1 of the logged numbers." in text
    assert "Learning curves" in text
    file.write_text(f"step,epoch,train_loss\n1,0,{value}\n")
    assert page_of(run).count("<figure") == text.count("<figure") - 1


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("metrics.csv", "epoch,step,train_loss\n0,one,2\n"),
        ("metrics.csv", "epoch,train_loss\n0,2\n"),
        ("metrics.csv", "step,train_loss\n1,2,3,4\n5,6,7"),
        ("metrics.csv", f"step,train_loss\n1,{'9' * 200_000}\n"),
        ("metrics.csv", "step,train_loss\n1,\xff\n"),
        ("evaluations/eval-1.json", '{"rows": []}'),
        ("evaluations/eval-1.json", '{"rows": [{"shots": 1}]}'),
        ("evaluations/eval-1.json", "[" * 10_000),
        ("tuned.json", "{}"),
    ],
)
def test_a_damaged_or_foreign_file_of_a_run_is_named_in_one_sentence(run, file, content):
    (run.path / file).write_bytes(content.encode("latin1"))
    with pytest.raises(FSLSTMError, match="is damaged") as caught:
        page_of(run)
    assert str(run.path / file) in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("change", [{"seconds": 1e308}, {"iterations": 10**30}])
def test_an_evaluation_with_impossible_numbers_is_shown_or_named(run, change):
    content = content_of(compared(), "x", "1", "2026-02-01")
    content["rows"][1].update(change)
    (run.path / "evaluations" / "eval-7.json").write_text(json.dumps(content))
    try:
        shown = page_of(run)
    except FSLSTMError as error:
        shown = str(error)
    assert "eval-7" in shown
    assert max(map(len, re.findall(r"\d+", shown))) < 50


@pytest.mark.parametrize(
    "change",
    [
        {"episodes": 0}, {"episodes": 1}, {"shots": -5}, {"shots": 0}, {"ways": 1}, {"queries": 0}, {"seed": -1},
        {"iterations": -1}, {"accuracy": 100.5}, {"accuracy": -1}, {"ci95": -0.1}, {"seconds": -1}, {"gain": 101},
        {"difference": -101}, {"difference_ci95": -1}, {"gain_ci95": -1}, {"share_error": 101}, {"accuracy": 1e308},
    ],
)  # fmt: skip
def test_a_row_out_of_its_bounds_is_refused_by_its_name(run, change):
    content = content_of(compared(), "x", "1", "2026-02-01")
    content["rows"][1].update(change)
    (run.path / "evaluations" / "eval-7.json").write_text(json.dumps(content))
    with pytest.raises(FSLSTMError, match=rf"eval-7.json is damaged: rows\[1\].{next(iter(change))} must be") as caught:
        page_of(run)
    assert len(str(caught.value)) < 300


def test_a_row_of_before_the_class_shares_were_measured_is_read(run):
    content = content_of(compared(), "x", "1", "2026-02-01")
    for each in content["rows"]:
        del each["share_error"]
    (run.path / "evaluations" / "eval-7.json").write_text(json.dumps(content))
    assert "eval-7" in page_of(run)


def test_a_run_without_evaluations_and_metrics_shows_its_configuration(run):
    (run.path / "metrics.csv").unlink()
    for file in (run.path / "evaluations").iterdir():
        file.unlink()
    found = Page(page_of(run))
    assert found.texts("h3") == ["Configuration"]
    assert "recipe.batch_size" in found.texts("th")


def test_what_was_tuned_is_shown(run):
    (run.path / "tuned.json").write_text(
        json.dumps({"choices": {"dots": {"rr": "rr(ridge=10,normalize)"}}, "rows": []})
    )
    assert "rr(ridge=10,normalize)" in Page(page_of(run)).texts("td")


def test_the_command_reports_the_newest_run_and_replaces_nothing_else(run, fslstm, tmp_path):
    output = tmp_path / "r.html"
    missing = fslstm("report", "--runs", tmp_path, "--output", output)
    assert missing.code == 1
    assert "no trained model" in missing.err
    run.weights.write_bytes(b"")
    result = fslstm("report", "--runs", tmp_path, "--output", output)
    assert result.code == 0, result.err
    assert "<title>FSLSTM: base</title>" in output.read_text()
    (run.path / "metrics.csv").write_text("step,train_loss\n1,x\n")
    before = output.read_bytes()
    assert fslstm("report", "", "--runs", tmp_path, "--output", output).code == 2
    assert fslstm("report", "base", "--runs", tmp_path, "--output", output).code == 1
    assert output.read_bytes() == before


def test_the_chart_has_each_accuracy_with_its_interval():
    rows = [row("nn", accuracy=60.0), row("tim", accuracy=70.0), row("lssvm+psm", accuracy=75.0)]
    figure = chart([*rows, row("nn", shots=5, accuracy=80.0)])
    one, five = figure.axes
    assert [label.get_text() for label in one.get_yticklabels()] == ["NN", "TIM", "LSSVM+PSM"]
    segments = [each for collection in one.collections for each in collection.get_segments()]
    found = {(round(float(x[0]), 6), round(float(x[1]), 6)) for x in (each[:, 0] for each in segments)}
    assert found == {(each.accuracy - each.ci95, each.accuracy + each.ci95) for each in rows}
    assert (one.get_title(), five.get_title()) == ("1-shot", "5-shot")
    alone = chart(rows, setting(rows))
    assert [each.axes[0].get_title() for each in (alone, chart(rows))] == ["1-shot", ""]
    assert " ".join(alone.get_supxlabel().split()).endswith(f"interval {setting(rows)}")
    assert "conv4" not in figure.get_supxlabel()
    assert len(five.collections) == 1


@pytest.mark.parametrize("kind", ["svg", "PNG", "pdf"])
def test_compare_draws_the_chart_that_its_file_is_named_after(fslstm, tmp_path, kind):
    features = tmp_path / "features.npz"
    numbers = np.random.default_rng(0).normal(size=(60, 4))
    np.savez(features, features=numbers, labels=np.repeat(["a", "b", "c", "d", "e", "f"], 10))
    file = tmp_path / f"methods.{kind}"
    command = ("compare", "nn", "rr", "--features", features, "--episodes", 20, "--shots", 1, "--queries", 3)
    begins = {"svg": b"<?xml", "PNG": b"\x89PNG", "pdf": b"%PDF"}
    for _ in range(2):  # An earlier chart is replaced.
        done = fslstm(*command, "--chart", file)
        assert done.code == 0, done.err
        assert file.read_bytes().startswith(begins[kind])
    others = begins[kind] + b" made by hand"
    file.write_bytes(others)
    done = fslstm(*command, "--chart", file)
    assert (done.code, done.out, "is no chart of fslstm" in done.err) == (2, "", True)
    assert file.read_bytes() == others
    done = fslstm("compare", "nn", "rr", "--features", features, "--chart", tmp_path / "methods.jpg")
    assert done.code == 2
    assert "methods.jpg must end in .svg, .png or .pdf" in done.err

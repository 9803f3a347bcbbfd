"""The pages: their Python runs and prints what they say, their commands exist, their links lead somewhere."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
from pathlib import Path

import click
import pytest
import typer
from fslstm_cli.main import app

from fslstm_plugin.registry import ADAPTERS, HEADS, METHODS, TRANSDUCTION

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "reproductions").rglob("*.md")])
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"^<!-- not run: .* -->\n```python\n.*?^```$", re.MULTILINE | re.DOTALL)
OUTPUT = re.compile(r"^```python\n(.*?)^```$(?:\n+```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def named(paths):
    return pytest.mark.parametrize("page", paths, ids=lambda page: str(page.relative_to(ROOT)))


def prose(text):
    """A page without its blocks."""
    return BLOCK.sub("", text)


@named([page for page in PAGES if "```python" in page.read_text(encoding="utf-8")])
def test_python_runs_and_prints_what_the_page_says(page, tmp_path, monkeypatch):
    """The blocks of a page share one namespace; a text block right after one is its output."""
    monkeypatch.chdir(tmp_path)
    for registry in (HEADS, ADAPTERS, TRANSDUCTION, METHODS):
        monkeypatch.setattr(registry, "_here", {})  # what a page registers is for that page alone
    namespace = {"__name__": "page"}
    for code, expected in OUTPUT.findall(NOT_RUN.sub("", page.read_text(encoding="utf-8"))):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(page), "exec"), namespace)
        if expected:
            assert printed.getvalue().strip() == expected.strip()


def commands(page):
    """The words of every command of ours on a page: in blocks of shell lines, and in the text."""
    text = page.read_text(encoding="utf-8")
    shell = "\n".join(code for kind, code in BLOCK.findall(text) if kind in ("sh", "bash", "console"))
    lines = [*shell.replace("\\\n", " ").splitlines(), *re.findall(r"`([^`]*)`", prose(text))]
    for line in lines:
        found = re.search(r"(?:^|[\s`(])(?:fslstm|-m fslstm_cli)\s+(?=[\w-])(.*)", " ".join(line.split()))
        if found:
            words = shlex.split(found[1].split(" || ")[0].split(" && ")[0], comments=True)
            yield [word for word in words if word != "..." and not word.startswith("$")]


ALL = [pytest.param(words, id=f"{page.name}: {shlex.join(words)}") for page in PAGES for words in commands(page)]


@pytest.mark.parametrize("words", ALL)
def test_commands_exist_with_their_options(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    command, context = typer.main.get_command(app), None
    while isinstance(command, click.Group):
        context = click.Context(command, parent=context, info_name=command.name)
        assert words, "a group alone is no command"
        assert words[0] in command.commands, f"there is no command {words[0]}"
        command, words = command.commands[words[0]], words[1:]
    parser = command.make_parser(click.Context(command, parent=context))
    parser.parse_args(list(words))  # an unknown option, or one without its value, is an error


def test_there_are_commands_to_check():
    assert len(ALL) > 40


def targets():
    for page in PAGES:
        for link in LINK.findall(prose(page.read_text(encoding="utf-8"))):
            if not link.startswith(("http://", "https://", "#")):
                yield pytest.param(page, link, id=f"{page.relative_to(ROOT)} -> {link}")


@pytest.mark.parametrize(("page", "link"), targets())
def test_links_lead_somewhere(page, link):
    place, _, anchor = link.partition("#")
    target = Path(os.path.normpath(page.parent / place))
    assert target.exists(), target
    if anchor:
        headings = re.findall(r"^#+ (.*)$", prose(target.read_text(encoding="utf-8")), re.MULTILINE)
        assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def blocks(text):
    """Paragraphs, a table being a part of the one before it, and the items of lists."""
    return re.split(r"\n\s*\n(?!\s*\|)|\n(?=\* )", text)


def measured(name):
    """Accuracies, gains and differences of a reproduction with their intervals, without signs."""
    rows = json.loads((ROOT / "reproductions" / name / "measured.json").read_text())["measurements"]
    pairs = [("accuracy", "ci95"), ("gain", "gain_ci95"), ("difference", "difference_ci95")]
    return {(f"{abs(row[a]):.2f}", f"{row[b]:.2f}") for row in rows for a, b in pairs if row[a] is not None}


def quotations():
    """Blocks that quote reproductions, with the names of these; not those with figures of other commands beside."""
    names = [file.parent.name for file in (ROOT / "reproductions").glob("*/measured.json")]
    for page in PAGES:
        for block in blocks(page.read_text(encoding="utf-8")):
            text = " ".join(block.split())
            quoted = [name for name in names if re.search(rf"`{name}`|`fslstm reproduce {name}\b", text)]
            figures = re.findall(r"(\d+\.\d\d) ± (\d+\.\d\d)", text)
            if quoted and figures and not re.search(r"`fslstm (compare|train)\b", text):
                yield pytest.param(quoted, set(figures), id=f"{page.name}: {text[:40]}")


QUOTATIONS = list(quotations())


def test_there_are_quotations_to_check():
    assert len(QUOTATIONS) > 15


@pytest.mark.parametrize(("quoted", "figures"), QUOTATIONS)
def test_figures_with_an_interval_are_as_measured(quoted, figures):
    assert figures <= set().union(*map(measured, quoted))

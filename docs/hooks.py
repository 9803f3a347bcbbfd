"""Pages that are made while the site is built: the commands, the Python reference, and files of the repository."""

from __future__ import annotations

import importlib
import os
import re
from pathlib import Path

import typer
from fslstm_cli.main import app
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from typer.cli import get_docs_for_click

from fslstm_plugin.registry import METHODS

# Page of the reference: title and the modules whose public names it shows.
REFERENCE = {
    "heads": ("Heads", ["fslstm_plugin.heads", "fslstm_plugin.kernels", "fslstm_plugin.gram"]),
    "methods": (
        "Methods and models",
        [
            "fslstm_plugin.features",
            "fslstm_plugin.methods.base",
            "fslstm_plugin.methods.kernel",
            "fslstm_plugin.naming",
            "fslstm_plugin.model",
            "fslstm_plugin.adapters",
        ],
    ),
    "transduction": ("Transduction", ["fslstm_plugin.transduction"]),
    "other-methods": ("Other methods", METHODS.modules()),
    "classifier": (
        "Your own pictures",
        [
            "fslstm_plugin.classifier.estimator",
            "fslstm_plugin.classifier.classifier",
            "fslstm_plugin.pretrained",
            "fslstm_plugin.pictures",
            "fslstm_plugin.classifier.selection",
            "fslstm_plugin.confidence.calibration",
            "fslstm_plugin.confidence.conformal",
            "fslstm_plugin.confidence.certainty",
        ],
    ),
    "backbones": ("Backbones", ["fslstm_plugin.backbones"]),
    "data": ("Data", ["fslstm_plugin.data.base", "fslstm_plugin.data.sets.folders", "fslstm_plugin.data.sampler"]),
    "training": (
        "Training",
        ["fslstm_plugin.recipes", "fslstm_plugin.learn2learn.few_shot", "fslstm_plugin.learn2learn.trained"],
    ),
    "evaluation": (
        "Evaluation",
        [
            "fslstm_plugin.evaluation.evaluate",
            "fslstm_plugin.evaluation.setting",
            "fslstm_plugin.evaluation.runner",
            "fslstm_plugin.evaluation.statistics",
        ],
    ),
    "testing": ("Testing a part", ["fslstm_plugin.testing"]),
}
# Files outside docs/ that are pages of the site too. Links to them are written as they hold in the repository.
COPIES = {
    "CHANGELOG.md": "inside/changes.md",
    "CONTRIBUTING.md": "inside/contributing.md",
    "reproductions/README.md": "findings.md",
    "reproductions/pretraining.md": "findings/pretraining.md",
    **{path.as_posix(): f"findings/{path.parent.name}.md" for path in sorted(Path("reproductions").glob("*/table.md"))},
    **{
        path.as_posix(): f"findings/{path.parent.name}{path.suffix}"
        for kind in ("svg", "png")
        for path in sorted(Path("reproductions").glob(f"*/figure.{kind}"))
    },
}
# Source files that pages link to, and the pages that show them.
SHOWN = {
    "cli": "reference/commands.md",
    "fslstm_plugin/data/base.py": "reference/data.md",
    "fslstm_plugin/heads": "reference/heads.md",
    "fslstm_plugin/methods": "reference/other-methods.md",
    "fslstm_plugin/methods/base.py": "reference/methods.md",
    **{path.as_posix(): f"notebooks/{path.stem}.md" for path in Path("docs/notebooks").glob("*.py")},
}
PAGES = COPIES | SHOWN
_ROW = re.compile(r"^\|.*", re.MULTILINE)
_LINK = re.compile(r"\[([^\[\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages and the copies."""
    made = {"reference/commands.md": _commands()}
    made |= {f"reference/{name}.md": _reference(title, modules) for name, (title, modules) in REFERENCE.items()}
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    for source, name in COPIES.items():
        files.append(File.generated(config, name, content=Path(source).read_bytes()))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links between places in the repository into links between pages; numbers in tables stay whole."""
    here = page.file.src_uri
    sources = {name: source for source, name in COPIES.items()}
    folder = os.path.dirname(sources.get(here, f"docs/{here}"))

    def turned(link: re.Match[str]) -> str:
        if "://" in link[2]:
            return link[0]
        text, target, anchor = link[1], os.path.normpath(os.path.join(folder, link[2])), link[3] or ""
        if target in PAGES or target.startswith("docs/"):
            name = PAGES.get(target, target.removeprefix("docs/"))
            return f"[{text}]({os.path.relpath(name, os.path.dirname(here))}{anchor})"
        return text if Path(target).exists() else link[0]  # a file that is no page stays a name

    markdown = _ROW.sub(lambda row: row[0].replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}"), markdown)
    return _LINK.sub(turned, markdown)


def _commands() -> str:
    """The help of every command in Markdown."""
    command = typer.main.get_command(app)
    text = get_docs_for_click(obj=command, ctx=typer.Context(command), name="fslstm", title="Commands")
    return re.sub(r"\[/?(?:bold|dim|italic)\]", "**", text)


def _reference(title: str, modules: list[str]) -> str:
    """Every public name of some modules."""
    lines = [f"# {title}", ""]
    for name in modules:
        module = importlib.import_module(name)
        lines += [f"## `{name}`", "", (module.__doc__ or "").strip(), ""]
        for each in _public(module):
            lines += [f"::: {each}", ""]
    return "\n".join(lines)


def _public(module: object) -> list[str]:
    """Full names of what a module offers: its ``__all__``, or what it defines without an underscore."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        found = [getattr(module, name) for name in listed]
        return [f"{each.__module__}.{each.__qualname__}" for each in found if hasattr(each, "__qualname__")]
    return [
        f"{module.__name__}.{name}"
        for name, each in vars(module).items()
        if not name.startswith("_") and getattr(each, "__module__", None) == module.__name__ and callable(each)
    ]

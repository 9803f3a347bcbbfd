"""Pages that are made while the site is built: the commands, the Python reference, the figures of the reproductions."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import typer
from fslstm_cli.main import app
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from typer.cli import get_docs_for_click

# Page of the reference: title and the modules whose public names it shows.
REFERENCE = {
    "heads": ("Heads", ["fslstm_plugin.heads", "fslstm_plugin.kernels"]),
    "methods": (
        "Methods and models",
        ["fslstm_plugin.features", "fslstm_plugin.methods", "fslstm_plugin.model", "fslstm_plugin.adapters"],
    ),
    "transduction": ("Transduction", ["fslstm_plugin.transduction"]),
    "baselines": ("Other methods", ["fslstm_plugin.baselines"]),
    "backbones": ("Backbones", ["fslstm_plugin.backbones"]),
    "data": ("Data", ["fslstm_plugin.data.base", "fslstm_plugin.data.folders", "fslstm_plugin.data.sampler"]),
    "training": ("Training", ["fslstm_plugin.recipes", "fslstm_plugin.learn2learn"]),
    "evaluation": (
        "Evaluation",
        ["fslstm_plugin.evaluation.setting", "fslstm_plugin.evaluation.runner", "fslstm_plugin.evaluation.statistics"],
    ),
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages and the figures."""
    files.append(File.generated(config, "reference/commands.md", content=_commands()))
    for name, (title, modules) in REFERENCE.items():
        files.append(File.generated(config, f"reference/{name}.md", content=_reference(title, modules)))
    for figure in sorted(Path("reproductions").glob("*/figure.svg")):
        files.append(
            File.generated(config, f"figures/{figure.parent.name}.svg", content=figure.read_text(encoding="utf-8"))
        )
    return files


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

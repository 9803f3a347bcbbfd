"""The house: imports go down its floors only, in no circle, and the root holds the core."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE, COMMANDS = ROOT / "fslstm_plugin", ROOT / "cli"
# From the ground up; a module or a folder imports what is on its own floor or below.
FLOORS = (
    ("errors", "extras", "tracing", "stopping", "normalization"),
    ("checks", "grammar"),
    ("arguments", "registry", "recipes", "storage", "kernels", "episodes"),
    ("gram",),
    ("heads",),
    ("features", "data"),
    ("adapters", "transduction", "backbones"),
    ("methods",),
    ("naming", "runs"),
    ("model",),
    ("testing", "confidence"),
    ("evaluation",),
    ("training", "pretrained"),
    ("learn2learn",),
    ("classifier", "pictures"),
    ("reporting",),
    ("benchmarks", "reproduction"),
    ("cli",),
)
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
FILES = [file for folder in (PACKAGE, COMMANDS) for file in sorted(folder.rglob("*.py"))]


def module_of(file: Path) -> str:
    parts = list(file.relative_to(ROOT).with_suffix("").parts)
    parts[0] = "fslstm_cli" if parts[0] == "cli" else parts[0]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(file): file for file in FILES}


def imports(file: Path) -> set[str]:
    """The project's modules that a module imports, within functions and for types too."""
    here = module_of(file)
    package = here if file.name == "__init__.py" else here.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found |= {f"{base}.{alias.name}" if f"{base}.{alias.name}" in MODULES else base for alias in node.names}
    return {name for name in found if name in MODULES} - {here, "fslstm_plugin", "fslstm_cli"}


def room_of(module: str) -> str:
    top, *rest = module.split(".")
    return "cli" if top == "fslstm_cli" else rest[0]


GRAPH = {module: imports(file) for module, file in MODULES.items() if module not in ("fslstm_plugin", "fslstm_cli")}


@pytest.mark.parametrize("module", sorted(GRAPH))
def test_imports_go_down(module: str) -> None:
    upwards = {each for each in GRAPH[module] if FLOOR[room_of(each)] > FLOOR[room_of(module)]}
    assert not upwards


def test_no_imports_in_a_circle() -> None:
    try:
        TopologicalSorter(GRAPH).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_the_root_holds_the_core_alone() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= 18

"""Scripts that are run while the site is built, and shown with what they print and draw.

A script has cells as Jupyter and editors know them: ``# %%`` begins code and ``# %% [markdown]`` text in comments.
"""

from __future__ import annotations

import io
import re
import sys
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path

import matplotlib
from matplotlib import pyplot
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from fslstm_plugin.reporting.html import svg_element

FOLDER = Path("docs/notebooks")
_CELL = re.compile(r"^# %%(.*)\n", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each script that has cells."""
    matplotlib.use("agg")
    sys.path.insert(0, str(FOLDER))  # as for a script that is run by its name
    for script in sorted(FOLDER.glob("*.py")):
        text = script.read_text(encoding="utf-8")
        if _CELL.search(text):
            files.append(File.generated(config, f"notebooks/{script.stem}.md", content=_page(script, text)))
    sys.path.remove(str(FOLDER))
    return files


@cache  # so that the preview runs again only what was changed
def _page(script: Path, text: str) -> str:
    """The cells in Markdown, each with its output and figures."""
    parts: list[str] = []
    namespace = {"__name__": "__main__"}
    _, *cells = _CELL.split(text)
    for kind, cell in zip(cells[::2], cells[1::2], strict=True):
        if "[markdown]" in kind:
            parts.append(re.sub(r"^# ?", "", cell, flags=re.MULTILINE))
            continue
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile(cell, str(script), "exec"), namespace)
        parts.append(f"```python\n{cell.strip()}\n```\n")
        if printed.getvalue():
            parts.append(f"```text\n{printed.getvalue().rstrip()}\n```\n")
        for number in pyplot.get_fignums():
            parts.append(f"<figure>{svg_element(pyplot.figure(number), f'{script.stem}-{len(parts)}')}</figure>\n")
        pyplot.close("all")
    parts.append(f"*This page is the output of `{script}`, run while the site was built.*\n")
    return "\n".join(parts)

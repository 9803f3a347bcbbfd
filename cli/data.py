"""``fslstm data``: prepare data sets, and list them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fslstm_plugin.errors import DataError, PartError, UsageError, printable
from fslstm_plugin.registry import DATASETS

from . import terminal
from .command import Command, epilog
from .options import DataRoot, Json
from .results import attempt, write_json

app = typer.Typer(no_args_is_help=True, help="Prepare data sets, and list them.")

PREPARE_EXAMPLES = """
fslstm data prepare cifar-fs  (downloads CIFAR-100)
fslstm data prepare cifar-fs --from cifar100.zip
fslstm data prepare mini --from ~/mini-imagenet  (pickles, parquet files or class folders)
fslstm data prepare tiered --from ~/imagenet/train
"""

LIST_EXAMPLES = """
fslstm data list
fslstm data list --data-root /scratch/data --json data.json
"""


@app.command(cls=Command, epilog=epilog(PREPARE_EXAMPLES))
def prepare(
    name: Annotated[
        str,
        typer.Argument(
            help="cifar-fs, mini, fc100, tiered, glyphs, or a registered one.", autocompletion=DATASETS.names
        ),
    ],
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="PATH",
            help="The data set as you have it: an archive, or a folder of pickles, parquet files or class folders "
            "(ImageNet's train folder).",
        ),
    ] = None,
    archive: Annotated[Path | None, typer.Option(metavar="FILE", help="The same as --from, for an archive.")] = None,
    data_root: DataRoot = None,
) -> None:
    """Prepare a data set in the format that the other commands read; needed only once.

    Classes and numbers of images are compared with the published ones. Another split becomes another data set, such as
    mini-other, so that no table mixes the two.
    """
    if source and archive:
        raise UsageError("--archive and --from cannot be used together: a data set has one source.")
    dataset = DATASETS.get(name)
    from fslstm_plugin.data.root import data_root as resolve

    dataset.prepare(resolve(data_root), source or archive, lambda message: typer.echo(printable(message), err=True))


@app.command("list", cls=Command, epilog=epilog(LIST_EXAMPLES))
def show(data_root: DataRoot = None, json: Json = None) -> None:
    """List the data sets, prepared ones first, each with its folder and the numbers of classes and images per split."""
    from rich.table import Column, Table

    from fslstm_plugin.data.root import data_root as resolve

    root = resolve(data_root)
    if data_root is not None and not root.is_dir():
        raise UsageError(f"--data-root: there is no folder {root}: name the one that holds the data sets.")
    rows = sorted((row for name in DATASETS.names() for row in _rows(name, root)), key=lambda row: not row["prepared"])
    names = (Column(heading, no_wrap=True) for heading in ("data set", "split"))
    numbers = (Column(heading, justify="right", no_wrap=True) for heading in ("classes", "images", "size"))
    table = Table(*names, *numbers, Column("where", overflow="fold"), title=f"Data sets in {root}")
    for row in rows:
        counts = (row["classes"], row["images"], row["image_size"]) if row["prepared"] else ("", "", "")
        where = row["path"] if row["prepared"] else row["state"]
        table.add_row(row["dataset"], row["split"], *map(str, counts), where)
    terminal.for_tables().print(table)
    attempt((json, lambda file: write_json(file, {"rows": rows})))


def _rows(name: str, root: Path) -> list[dict[str, Any]]:
    """A row for each split; one without numbers if it is not prepared, and none if it is another version of one."""
    from fslstm_plugin.data.sets.published import OtherVersion

    row = {"dataset": name, "split": "", "prepared": False, "classes": None, "images": None, "image_size": None}
    try:
        dataset = DATASETS.get(name)
    except PartError as error:
        return [{**row, "path": None, "state": str(error)}]
    folder = dataset.folder(root)
    if isinstance(dataset, OtherVersion) and not folder.exists():
        return []
    dataset.clean(root)
    row |= {"image_size": dataset.image_size, "path": str(folder)}
    try:
        index = dataset.index(root)
    except DataError:
        return [{**row, "state": "damaged or of another version" if folder.exists() else "not prepared"}]
    row |= {"prepared": True, "state": "prepared"}
    return [
        {**row, "split": split, "classes": len(prepared.classes), "images": sum(prepared.classes.values())}
        for split, prepared in index.items()
    ]

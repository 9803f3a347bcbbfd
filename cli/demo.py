"""``fslstm demo``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from fslstm_plugin.errors import printable
from fslstm_plugin.stopping import Interrupted

from . import options

EXAMPLES = """
fslstm demo
fslstm demo --runs /tmp/runs --seed 1
"""


def demo(
    context: typer.Context,
    runs: options.RunsFolder = Path("runs"),
    data_root: options.DataRoot = None,
    seed: options.Seed = 0,
    pretrain_steps: Annotated[int, typer.Option(min=1, help="Steps of the pretraining.")] = 200,
    train_steps: Annotated[int, typer.Option(min=1, help="Steps of the meta-training.")] = 20,
    episodes: Annotated[int, typer.Option(min=2, help="Episodes of each evaluation.")] = 1000,
    json: options.Json = None,
) -> None:
    """The whole workflow in minutes, with nothing to download: pretrain, meta-train, evaluate, compare, report.

    It draws the data set glyphs, and runs the commands that it shows.
    """
    from fslstm_plugin.data.root import data_root as default_root
    from fslstm_plugin.reporting import run_report  # noqa: F401  # before minutes of training
    from fslstm_plugin.runs.folder import new_run_folder

    program = context.find_root().command
    root = default_root(data_root)
    pretrained = new_run_folder(runs, None, "demo-pretrained")
    trained = new_run_folder(runs, None, "demo-trained")
    page = runs / f"{trained.name}.html"
    shared = ["--runs", str(runs), "--data-root", str(root), "--seed", str(seed)]
    settings = ["--dataset", "glyphs", "--backbone", "conv4", "--devices", "1"]
    measured = ["--episodes", str(episodes)]
    commands = [
        ["data", "prepare", "glyphs", "--data-root", str(root)],
        ["pretrain", *settings, "--max-steps", str(pretrain_steps), "--batch-size", "64", "--name", pretrained.name],
        [
            *("train", *settings, "--algorithm", "lssvm+iam", "--pretrained", str(pretrained), "--name", trained.name),
            *("--max-steps", str(train_steps), "--episodes-per-step", "4", "--val-episodes", "300"),
        ],
        ["eval", "--run", trained.name, "--psm-iters", "10", "--can", *measured],
        ["compare-heads", "--run", trained.name, *measured, *(["--json", str(json)] if json else [])],
        ["report", trained.name, "--runs", str(runs), "--output", str(page)],
    ]
    for command in commands:
        arguments = command if command[0] in ("data", "report") else [*command, *shared]
        typer.secho(f"\n$ fslstm {shlex.join(arguments)}", bold=True)
        try:
            program.main(arguments, prog_name="fslstm", standalone_mode=False)
        except Interrupted as stop:
            raise Interrupted(
                "Stopped. 'fslstm demo' cannot be resumed: it starts from the beginning.", stop.number
            ) from stop
    data = shlex.join(["--data-root", str(root)])
    where = f"{shlex.join(['--runs', str(runs)])} {data}"
    typer.echo(
        f"\nThe report is {printable(str(page))}: open it in a browser. Next steps:\n"
        f"  fslstm compare {where}  # every transductive method on these features\n"
        f"  fslstm tune {where}  # constants chosen on validation classes\n"
        f"  fslstm data list {data}  # the data sets; cifar-fs needs one archive\n"
        f"  fslstm train --dataset cifar-fs --backbone conv4 {data}  # the paper's recipe"
    )

"""``fslstm reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from fslstm_plugin.registry import BACKBONES

from . import options, results

EXAMPLES = """
[bold]Examples[/bold]

fslstm reproduce table3 --dataset cifar-fs --backbone conv4 --dry-run

fslstm reproduce all --scale quick --dataset glyphs --backbone conv4

fslstm reproduce table1 --run base --run fslstm --episodes 10000

fslstm reproduce figure-iterations --redraw
"""

NAMES = (
    "table1", "table2", "table3", "figure-support", "figure-iterations", "unbalanced", "queries", "ridge", "all",
)  # fmt: skip


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help=f"{', '.join(NAMES[:-1])}, or all.",
            autocompletion=lambda incomplete: [name for name in NAMES if name.startswith(incomplete)],
        ),
    ],
    dataset: Annotated[
        Optional[list[str]],
        typer.Option(
            help="Repeat it for several. Default: those of the paper that are prepared.",
            autocompletion=options.complete(options.DATASETS),
            show_default=False,
        ),
    ] = None,
    backbone: Annotated[
        Optional[list[str]],
        typer.Option(
            help="Repeat it for several. Default: the paper's for it.",
            autocompletion=options.complete(BACKBONES),
            show_default=False,
        ),
    ] = None,
    scale: Annotated[
        str,
        typer.Option(help="quick: minutes; cpu: some hours on a CPU; paper: all 60,000 steps of each training."),
    ] = "cpu",
    run: Annotated[
        Optional[list[str]],
        typer.Option(help="Evaluate this run in place of training any; repeat it for several.", show_default=False),
    ] = None,
    pretrained: Annotated[
        Optional[Path],
        typer.Option(
            help="Run folder, its name in --runs, or weights file that trainings begin from, for example Places365's; "
            "base classes if not given.",
            show_default=False,
        ),
    ] = None,
    episodes: Annotated[
        Optional[int], typer.Option(min=2, help="Number of episodes; the scale's if not given.", show_default=False)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue trainings that were interrupted.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done, and how long it would take here.")
    ] = False,
    redraw: Annotated[
        bool, typer.Option("--redraw", help="Only make tables and figures again from what was measured.")
    ] = False,
    folder: Annotated[Path, typer.Option(help="Folder of the reproductions.")] = Path("reproductions"),
    runs: options.RunsFolder = Path("runs"),
    seed: options.Seed = 0,
    batch_episodes: results.BatchEpisodes = 128,
    device: results.Device = "auto",
    data_root: options.DataRoot = None,
) -> None:
    """A table or figure of the paper with our numbers beside the published ones.

    Trains what is missing by the recipes, at a scale; a run with the same configuration is used again, one with
    another never.
    """
    from rich.console import Console

    from fslstm_plugin.errors import UsageError, naming_damage
    from fslstm_plugin.files import require_writable
    from fslstm_plugin.reproduction import engine, measurements, outputs, specification, support, trainings
    from fslstm_plugin.reproduction.estimate import estimate
    from fslstm_plugin.runs import Run

    trained = {"--dataset": dataset, "--backbone": backbone, "--pretrained": pretrained, "--resume": resume}
    measured = {"--run": run, "--episodes": episodes, "--dry-run": dry_run, **trained}
    for option, others, why in (
        ("--run", trained if run else {}, "the run is evaluated as it is"),
        ("--redraw", measured if redraw else {}, "nothing is measured"),
    ):
        useless = [name for name, value in others.items() if value]
        if useless:
            raise UsageError(f"{option} and {useless[0]} cannot be used together: {why}.")
    pretrained = options.find_pretrained(pretrained, runs)
    if pretrained is not None and not pretrained.exists():
        raise UsageError(f"--pretrained: there is no run folder or weights file at {pretrained}.")
    wanted = specification.find(name, folder)
    if episodes is not None and all(each.shows == outputs.SUPPORT for each in wanted):
        raise UsageError(f"--episodes cannot be used with {name}: it shows single tasks.")
    request = engine.Request(
        scale=trainings.find_scale(scale),
        runs=runs,
        datasets=tuple(dataset or ()),
        backbones=tuple(backbone or ()),
        given=tuple(Run.find(each, runs) for each in dict.fromkeys(run or ())),
        weights=pretrained,
        episodes=episodes,
        seed=seed,
        resume=resume,
        data_root=data_root,
        device=results.pick_device(device),
        batch_episodes=batch_episodes,
    )
    console = Console(stderr=True)
    for each in () if dry_run else wanted:  # before hours of training
        require_writable(each.folder)
        if each.shows != outputs.SUPPORT:
            measurements.read(each.folder)
    planned: set[str] = set()
    for each in wanted:
        parts = [] if redraw else engine.plan(each, request)
        if dry_run:
            typer.echo(f"{each.name}: {each.title}")
            for line in estimate(each, parts, request, planned):
                typer.echo(f"  {line}")
            continue
        if each.shows == outputs.SUPPORT and parts:
            support.measure(each, parts, request, console)
        else:
            engine.measure(each, parts, request, console)
        with naming_damage(each.folder):
            outputs.write(each)
        typer.echo(f"{each.name}: see {each.folder / 'table.md'}")

"""``fslstm reproduce``."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from fslstm_plugin.errors import RunError, UsageError, printable
from fslstm_plugin.registry import BACKBONES, DATASETS
from fslstm_plugin.reproduction import shipped
from fslstm_plugin.stopping import Interrupted
from fslstm_plugin.storage.damage import naming_damage

from . import evaluation, options, terminal

if TYPE_CHECKING:
    from fslstm_plugin.reproduction.engine import Part, Request
    from fslstm_plugin.reproduction.specification import Reproduction
    from fslstm_plugin.reproduction.trainings import Identity

EXAMPLES = """
fslstm reproduce table3 --dataset cifar-fs --backbone conv4 --dry-run
fslstm reproduce all --scale quick --dataset glyphs --backbone conv4
fslstm reproduce table1 --run base --run fslstm --episodes 10000
fslstm reproduce figure-iterations --redraw --output reproduced
"""


def reproduce(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(help=f"{', '.join(shipped.names())}, or all.", autocompletion=lambda: [*shipped.names(), "all"]),
    ],
    dataset: Annotated[
        Optional[list[str]],
        typer.Option(
            help="Repeat it for several. Default: those of the paper that are prepared.", autocompletion=DATASETS.names
        ),
    ] = None,
    backbone: Annotated[
        Optional[list[str]],
        typer.Option(
            help="Repeat it for several. Default: those in the paper's table or figure.", autocompletion=BACKBONES.names
        ),
    ] = None,
    shots: Annotated[
        Optional[list[int]],
        typer.Option(
            min=1,
            help="Only episodes with this many support images per class, and the trainings for them; repeat it for "
            "several. Default: all in the paper's table or figure.",
        ),
    ] = None,
    scale: Annotated[
        str,
        typer.Option(
            help="quick: minutes, table1 up to an hour; cpu: some hours on a CPU; gpu: a GPU's pretraining, all 60,000 "
            "steps of each training, 10,000 episodes; paper: these steps after a CPU's pretraining, 1,000 episodes."
        ),
    ] = "cpu",
    run: Annotated[
        Optional[list[str]], typer.Option(help="Evaluate this run instead of training one; repeat it for several.")
    ] = None,
    pretrained: Annotated[
        Optional[Path],
        typer.Option(
            help="Run folder, its name in --runs, or weights file that trainings start from, for example of Places365. "
            "If not given, they are pretrained on the base classes."
        ),
    ] = None,
    episodes: Annotated[
        Optional[int], typer.Option(min=2, help="Number of episodes; the scale's if not given.")
    ] = None,
    no_train: Annotated[
        bool, typer.Option("--no-train", help="Evaluate finished trainings only, and train nothing.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue interrupted trainings and measurements.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what would be done, and how long it would take here.")
    ] = False,
    redraw: Annotated[
        bool, typer.Option("--redraw", help="Only redraw the tables and figures from the measurements.")
    ] = False,
    output: Annotated[
        Path, typer.Option(help="Folder for measurements, tables and figures; shipped results are only compared with.")
    ] = Path("reproduced"),
    runs: options.RunsFolder = Path("runs"),
    seed: options.Seed = 0,
    batch_episodes: evaluation.BatchEpisodes = None,
    device: evaluation.Device = "auto",
    data_root: options.DataRoot = None,
) -> None:
    """A table or figure of the paper with our numbers beside the published ones.

    Trains what is missing, by the recipes at the given scale. A run with the same configuration is reused; one with a
    different configuration never is.
    """
    from fslstm_plugin.reproduction import beside, engine, measurements, outputs, support, trainings
    from fslstm_plugin.reproduction.specification import PRETRAINING, find
    from fslstm_plugin.runs.folder import Run

    trained = {"--dataset": dataset, "--backbone": backbone, "--pretrained": pretrained, "--no-train": no_train}
    if redraw:
        harmless = {"redraw", "name", "output", "runs", "data_root", "device"}
        options.refuse_beside(context, "--redraw", harmless, "nothing is measured")
    if run and (useless := [option for option, value in trained.items() if value]):
        raise UsageError(f"--run and {useless[0]} cannot be used together: the run is evaluated as it is.")
    pretrained = options.find_pretrained(pretrained, runs)
    if pretrained is not None and not pretrained.exists():
        raise UsageError(f"--pretrained: there is no run folder or weights file at {pretrained}.")
    shipped.refuse_to_overwrite(output)
    reproductions = find(name, output if redraw else shipped.folder())
    for option, value in (("--episodes", episodes), ("--batch-episodes", batch_episodes)):
        if value is not None and all(each.specification.shows_tasks for each in reproductions):
            raise UsageError(f"{option} cannot be used with {name}: it shows single tasks.")
    request = engine.Request(
        scale=trainings.find_scale(scale),
        runs=runs,
        datasets=tuple(dict.fromkeys(dataset or ())),
        backbones=tuple(dict.fromkeys(backbone or ())),
        shots=tuple(dict.fromkeys(shots or ())),
        given=tuple(Run.find_each(run or (), runs)),
        weights=pretrained,
        episodes=episodes,
        seed=seed,
        train=not no_train,
        resume=resume,
        data_root=data_root,
        device=terminal.join_ranks().device(device),
        console=terminal.for_sentences(),
        batch_episodes=batch_episodes,
        tell=terminal.progress,
    )
    parts = {}
    if not redraw:
        parts = _plan(reproductions, request)
        reproductions = [each for each in reproductions if each.name in parts]
        if pretrained is not None and all(part.config.kind == PRETRAINING for each in parts.values() for part in each):
            raise UsageError(
                f"--pretrained cannot be used with {name} here: it trains nothing from pretrained weights. Name a run "
                "with --run to evaluate it."
            )
        if dry_run:
            _say([each.within(output) for each in reproductions], parts, request)
            return
        reproductions = [each.put_into(output) for each in reproductions]
    for reproduction in reproductions:  # damage is reported before hours of training
        if not reproduction.specification.shows_tasks:
            measurements.read(reproduction.folder)
    for reproduction in reproductions:
        if not redraw:
            measure = support.measure if reproduction.specification.shows_tasks else engine.measure
            try:
                measure(reproduction, parts[reproduction.name], request)
            except (Interrupted, KeyboardInterrupt) as stop:  # of which the first names the one training's command
                number = stop.number if isinstance(stop, Interrupted) else signal.SIGINT
                raise Interrupted("Stopped. Continue with the same command and --resume.", number) from stop
        with naming_damage(reproduction.folder):
            shown = outputs.write(reproduction)
        where = f"see {reproduction.folder / 'table.md'}" if shown else "nothing is measured yet."
        typer.echo(printable(f"{reproduction.name}: {where}"))
        if not redraw and not reproduction.specification.shows_tasks:
            measured = measurements.read(reproduction.folder)
            typer.echo(beside.sentence(beside.shipped_pairs(reproduction.name, measured)))


def _plan(reproductions: Sequence[Reproduction], request: Request) -> dict[str, list[Part]]:
    """What to evaluate for each; of several, those that there is no run for are left out."""
    from fslstm_plugin.reproduction import engine

    parts = {}
    for reproduction in reproductions:
        try:
            parts[reproduction.name] = engine.plan(reproduction, request)
        except engine.NothingToMeasureError as error:
            if len(reproductions) == 1:
                raise
            terminal.say(str(error))
    if not parts:
        raise RunError("There is nothing to measure for any of the reproductions.")
    return parts


def _say(reproductions: Sequence[Reproduction], parts: Mapping[str, Sequence[Part]], request: Request) -> None:
    """What would be done, and then how long each of it would take, which is measured meanwhile."""
    from fslstm_plugin.reproduction.estimate import duration, planned_steps

    planned: set[Identity] = set()
    total = 0.0
    for reproduction in reproductions:
        typer.echo(f"{reproduction.name}: {reproduction.specification.title}")
        steps = list(planned_steps(parts[reproduction.name], request, planned))
        for line in (line for step in steps for line in step.lines):
            typer.echo(f"  {line}")
        timed = [(step.name, step.seconds) for step in steps if step.seconds is not None]
        if timed:
            typer.echo("  Times here, from a few steps and episodes of each:")
        for name, measure in timed:
            seconds = measure()
            typer.echo(f"  {name}: {duration(seconds)}")
            total += seconds
    typer.echo(f"in all: {duration(total)}")

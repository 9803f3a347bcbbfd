"""What ``eval`` and ``compare-heads`` share: finding the run, its features, and giving out the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from . import options

if TYPE_CHECKING:
    import torch
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from fslstm_plugin.data.base import Split
    from fslstm_plugin.evaluation.engine import FeatureSource, Method
    from fslstm_plugin.evaluation.experiment import Row, Setting
    from fslstm_plugin.evaluation.methods import HeadName
    from fslstm_plugin.evaluation.model import TrainedModel
    from fslstm_plugin.evaluation.ranks import Ranks
    from fslstm_plugin.runs import Run

RunOption = Annotated[
    Optional[str],
    typer.Option("--run", help="Run folder, or its name in --runs; the newest if not given.", show_default=False),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
OtherDataset = Annotated[
    Optional[str],
    typer.Option(
        "--dataset",
        help="Another data set than the run's.",
        autocompletion=options.complete(options.DATASETS),
        show_default=False,
    ),
]
SplitName = Annotated[str, typer.Option("--split", help="test, val or train.")]
Episodes = Annotated[int, typer.Option(min=2, help="Number of episodes.")]
Ways = Annotated[int, typer.Option(min=2, help="Classes an episode.")]
Shots = Annotated[
    Optional[list[int]],
    typer.Option(min=1, help="Support images a class; repeat it for several. Default 1 and 5.", show_default=False),
]
Queries = Annotated[int, typer.Option(min=1, help="Query images a class.")]
QueryBalance = Annotated[
    str,
    typer.Option(
        help="uniform, or dirichlet:A with a number A such as 2: class proportions of the queries drawn for each "
        "episode, their total the same."
    ),
]
Interval = Annotated[
    str,
    typer.Option(
        help="What the 95 % intervals are over: episodes, or classes, for statements about classes never seen."
    ),
]
Normalize = Annotated[
    Optional[bool],
    typer.Option(
        "--normalize/--no-normalize",
        help="Bring the features to unit length; as tuned, or else not.",
        show_default=False,
    ),
]
Tuned = Annotated[bool, typer.Option("--tuned/--no-tuned", help="Use what 'fslstm tune' chose for the run.")]
BatchEpisodes = Annotated[int, typer.Option(min=1, help="Episodes at a time: memory and speed, never the result.")]


def pick_device(name: str) -> torch.device:
    """The torch device for ``--device``.

    Raises:
        UsageError: If there is no such device here.
    """
    import torch

    from fslstm_plugin.errors import UsageError

    if name == "auto":
        name = f"cuda:{join_ranks().device_index}" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
        return torch.device(name)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"There is no device '{name}' here: {str(error).splitlines()[0]}") from error


@cache
def join_ranks() -> Ranks:
    """The processes that evaluate together: those that ``torchrun`` started, or this one alone."""
    from fslstm_plugin.evaluation.ranks import Ranks

    return Ranks.join()


@contextmanager
def progress(console: Console, description: str, total: int) -> Iterator[tuple[Progress, TaskID]]:
    """A progress bar, where one is shown."""
    from rich.progress import Progress

    with Progress(console=console, transient=True, disable=not shows_progress(console)) as bar:
        yield bar, bar.add_task(description, total=total)


def shows_progress(console: Console) -> bool:
    """Whether to show what goes on: on a terminal, by the first process only."""
    return console.is_terminal and join_ranks().rank == 0


def load_split_for(run: Run, dataset: str | None, split: str, root: Path | None) -> Split:
    """The split to evaluate on: of the run's data set, or of another with images of the same size.

    Raises:
        UsageError: If the images have another size than those of the run.
    """
    from fslstm_plugin.data.root import load_split
    from fslstm_plugin.errors import UsageError

    name = dataset or run.config["dataset"]
    if name is None:
        raise UsageError(f"The run {run.name} was pretrained on a folder of images: name a data set with --dataset.")
    data = load_split(name, split, root)
    size, expected = data.images.shape[1], run.config["image_size"]
    if size != expected:
        raise UsageError(f"The run {run.name} is for images of {expected} pixels, but those of {name} have {size}.")
    return data


def head_names(
    run: Run, heads: Sequence[str], normalize: bool | None, tuned: bool, console: Console, iam: bool = False
) -> list[HeadName]:
    """The heads that are asked for, with what was tuned for those whose defaults are asked for."""
    from fslstm_plugin.evaluation.methods import HeadName
    from fslstm_plugin.evaluation.tuning import load_choices, tuned_name

    choices = load_choices(run) if tuned else {}
    names = []
    for text in heads:
        asked = HeadName.parse(text)
        name = tuned_name(choices, asked, iam)
        if name != asked:
            words = f"{asked} is used as tuned on validation episodes: {name} (leave it with --no-tuned)."
            console.print(words, highlight=False, soft_wrap=True)
        names.append(name if normalize is None else replace(name, normalize=normalize))
    return list({str(name): name for name in names}.values())


def split_features(run: Run, model: TrainedModel, split: Split, device: torch.device, console: Console) -> torch.Tensor:
    """The split's features from the run's cache, or computed now with a progress bar."""
    from fslstm_plugin.evaluation.features import cached_features

    title = f"Features of {split.dataset} {split.name}"
    with join_ranks().first_alone(), progress(console, title, len(split.labels)) as (bar, task):
        features = cached_features(
            run.path / "cache",
            model.backbone,
            split,
            device,
            report=lambda done, _: bar.update(task, completed=done),
        )
    return features.to(device)


def measure(
    run: Run,
    methods: Sequence[Method],
    source: FeatureSource,
    split: Split,
    shots: Sequence[int],
    setting: Setting,
    device: torch.device,
    batch_episodes: int,
    console: Console,
    reentrant: bool = True,
) -> list[Row]:
    """Rows of the methods for each number of shots, on the same episodes within it.

    ``reentrant`` says whether the source may be called from several threads.
    """
    from fslstm_plugin.evaluation.experiment import evaluate

    rows: list[Row] = []
    mine = len(join_ranks().share(setting.episodes))
    with running(console, methods, len(shots) * mine) as show:
        for place, count in enumerate(shots):

            def report(done: int, accuracies: Sequence[float], before: int = place * mine, count: int = count) -> None:
                show(before + done, count, accuracies)

            rows += evaluate(
                methods,
                source,
                split,
                run.config["backbone"],
                replace(setting, shots=count),
                device,
                batch_episodes,
                report,
                workers=None if reentrant else 1,
                ranks=join_ranks(),
            )
    return rows


@contextmanager
def running(console: Console, methods: Sequence[Method], total: int) -> Iterator[Callable[..., None]]:
    """The accuracies so far above a progress bar; where progress is shown."""
    from rich.console import Group
    from rich.live import Live
    from rich.progress import Progress

    from fslstm_plugin.reporting.tables import running_table

    if not shows_progress(console):
        yield lambda *_: None
        return
    columns: dict[int, Sequence[float]] = {}
    bar = Progress(console=console)
    task = bar.add_task("Episodes", total=total)
    with Live(bar, console=console, transient=True) as live:

        def show(done: int, shots: int, accuracies: Sequence[float]) -> None:
            columns[shots] = accuracies
            bar.update(task, completed=done)
            live.update(Group(running_table([method.label for method in methods], columns), bar))

        yield show


def give_out(
    run: Run, kind: str, rows: Sequence[Row], json: Path | None, csv: Path | None = None, latex: Path | None = None
) -> None:
    """Print the rows' table, which no full disk prevents, keep them in the run, write the files that were asked for."""
    if join_ranks().rank > 0:
        return
    from rich.console import Console

    from fslstm_plugin.files import write_json, write_text
    from fslstm_plugin.reporting.statements import statements
    from fslstm_plugin.reporting.tables import csv_text, latex_text, rich_table

    console = Console()
    console.print(rich_table(rows))
    for sentence in statements(rows):
        console.print(sentence, highlight=False, soft_wrap=True, style="yellow" if "warning" in sentence else None)
    run.save_evaluation(kind, rows)
    if json:
        write_json(json, {"rows": [row.as_dict() for row in rows]})
    if csv:
        write_text(csv, csv_text(rows))
    if latex:
        write_text(latex, latex_text(rows))

"""What the evaluating commands share: their options, the sessions of runs, and the measurement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from . import options
from .pictures import Views
from .results import give_out
from .terminal import join_ranks, progress, running, say

if TYPE_CHECKING:
    from rich.console import Console

    from fslstm_plugin.evaluation.rows import Row
    from fslstm_plugin.evaluation.session import RunSession, Session
    from fslstm_plugin.evaluation.setting import Setting
    from fslstm_plugin.methods.base import Method
    from fslstm_plugin.runs.folder import Run

    from .further import Further
    from .sources import Source


RunOption = Annotated[
    Optional[str],
    typer.Option(
        "--run",
        help="Run folder, its name in --runs, or builtin:cifar-fs-conv4; a+b is the sum of two. Default: the newest.",
        show_default=False,
    ),
]


OneRun = Annotated[
    Optional[str],
    typer.Option(
        "--run",
        help="Run folder, its name in --runs, or builtin:cifar-fs-conv4; the newest if not given.",
        show_default=False,
    ),
]


RunsOption = Annotated[
    Optional[list[str]],
    typer.Option(
        "--run",
        help="Run folder, its name in --runs, or builtin:cifar-fs-conv4; a+b is the sum of two; repeat it for several. "
        "Default: the newest.",
        show_default=False,
    ),
]


Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]


OtherDataset = Annotated[
    Optional[str],
    typer.Option(
        "--dataset",
        help="A data set other than the run's.",
        autocompletion=options.complete(options.DATASETS),
        show_default=False,
    ),
]


SplitName = Annotated[str, typer.Option("--split", help="test, val or train.")]


Episodes = Annotated[int, typer.Option(min=2, help="Number of episodes.")]


Ways = Annotated[int, typer.Option(min=2, help="Classes per episode.")]


Shots = Annotated[
    Optional[list[int]],
    typer.Option(min=1, help="Support images per class; repeat it for several. Default 1 and 5.", show_default=False),
]


Queries = Annotated[int, typer.Option(min=1, help="Query images per class.")]


QueryBalance = Annotated[
    str,
    typer.Option(
        help="uniform, or dirichlet:A with a number A such as 2: class proportions of the queries, drawn for "
        "each episode; their total stays the same."
    ),
]


Interval = Annotated[
    str,
    typer.Option(
        help="What the 95 % intervals are over: episodes, or classes, for statements about classes never seen."
    ),
]


Tuned = Annotated[bool, typer.Option("--tuned/--no-tuned", help="Use what 'fslstm tune' chose for the run.")]


BatchEpisodes = Annotated[
    Optional[int],
    typer.Option(
        min=1, help="Episodes at a time; affects memory and speed, never results. Chosen by size if not given.",
        show_default=False,
    ),
]  # fmt: skip


FeaturePrecision = Annotated[str, typer.Option("--precision", help="Precision of the backbone's passes: 32 or bf16.")]


Cache = Annotated[bool, typer.Option("--cache/--no-cache", help="Keep the features beside the run, and reuse them.")]


Verbose = Annotated[bool, typer.Option("--verbose", help="Print every paired difference in words.")]


Csv = Annotated[
    Optional[Path],
    typer.Option(
        help="Also write the rows to this CSV file.", show_default=False, dir_okay=False, callback=options.output("CSV")
    ),
]


Chart = Annotated[
    Optional[Path],
    typer.Option(
        help="Also draw the accuracies with their intervals into this file: .svg, .png or .pdf.",
        show_default=False,
        dir_okay=False,
        callback=options.in_a_folder,
    ),
]


Latex = Annotated[
    Optional[Path],
    typer.Option(
        help="Also write a booktabs table to this file.",
        show_default=False,
        dir_okay=False,
        callback=options.output("LaTeX"),
    ),
]


@dataclass(frozen=True)
class Evaluation:
    """What is evaluated and how, as typed."""

    runs: options.RunsFolder = Path("runs")
    dataset: OtherDataset = None
    views: Views = None
    split: SplitName = "test"
    episodes: Episodes = 1000
    ways: Ways = 5
    shots: Shots = None
    queries: Queries = 15
    query_balance: QueryBalance = "uniform"
    interval: Interval = "episodes"
    tuned: Tuned = True
    seed: options.Seed = 0
    batch_episodes: BatchEpisodes = None
    device: Device = "auto"
    precision: FeaturePrecision = "32"
    cache: Cache = True
    data_root: options.DataRoot = None
    verbose: Verbose = False
    json: options.Json = None
    csv: Csv = None
    latex: Latex = None
    chart: Chart = None

    def __post_init__(self) -> None:
        options.require_apart(self.json, self.csv, self.latex, self.chart)
        if self.chart is not None:
            from fslstm_plugin.reporting.chart import require_kind

            require_kind(self.chart)

    @property
    def setting(self) -> Setting:
        """The episodes, but for the shots.

        Raises:
            UsageError: If a value is outside its range.
        """
        from fslstm_plugin.evaluation.setting import Setting

        return Setting(
            ways=self.ways,
            queries=self.queries,
            episodes=self.episodes,
            seed=self.seed,
            query_balance=self.query_balance,
            interval=self.interval,
        )

    def sessions(self, runs: Sequence[str] | None, source: Source, console: Console) -> list[Session]:
        """Of each run that is named, of the newest where none is, or of what takes the place of a run.

        Raises:
            UsageError: If both are named, or two runs have one name.
        """
        from fslstm_plugin.errors import UsageError
        from fslstm_plugin.runs.folder import Run

        if source.replaces(runs, self.dataset):
            for name, usual in (("split", "test"), ("precision", "32")):
                if getattr(self, name) != usual:
                    raise UsageError(f"{source.option} has no {name}, which is a run's: leave out --{name}.")
            return [source.session(self.runs, self.device, console, self.views)]
        chosen = [Run.find_sum(name, self.runs) for name in runs] if runs else [[Run.newest(self.runs)]]
        chosen = list({tuple(run.path.resolve() for run in each): each for each in chosen}.values())
        names = ["+".join(run.name for run in each) for each in chosen]
        if again := next((name for name in names if names.count(name) > 1), None):
            raise UsageError(f"Rows are told apart by their runs' names, but two are called {again}: rename a folder.")
        return [self._session(each, console) for each in chosen]

    def _session(self, runs: Sequence[Run], console: Console) -> Session:
        """Of a run, or of the sum of several."""
        from fslstm_plugin.evaluation.summed import summed

        sessions = [
            open_session(
                run,
                self.dataset,
                self.split,
                self.data_root,
                self.device,
                console,
                self.precision,
                self.cache,
                self.views,
            )
            for run in runs
        ]
        return sessions[0] if len(sessions) == 1 else summed(sessions)

    def finish(
        self,
        kind: str,
        parts: Sequence[tuple[Session, Sequence[str]]],
        console: Console,
        further: Further | None = None,
    ) -> None:
        """Measure methods of runs by name, as tuned if that is wanted, and output the rows.

        Args:
            kind: The command's name.
            parts: Sessions, each with the names of its methods.
            console: Where progress is shown.
            further: What is measured besides accuracy, for the first session. Default None: nothing.
        """
        built = [
            (session, session.methods(as_tuned(session.run, names, self.tuned, console))) for session, names in parts
        ]
        shots = list(dict.fromkeys(self.shots or [1, 5]))
        settings = [replace(self.setting, shots=count) for count in shots]
        for sentence in further.check(*built[0], settings) if further else ():
            say(console, sentence)
        rows = measure(built, shots, self.setting, self.batch_episodes, console)
        more = further.rows(*built[0], settings) if further and join_ranks().rank == 0 else {}
        runs = [session.run for session, _ in parts if session.run is not None]
        notes = list(dict.fromkeys(note for session, _ in parts for note in session.notes))
        give_out(runs, kind, rows, self.json, self.csv, self.latex, self.chart, self.verbose, notes, more)


def open_session(
    run: Run,
    dataset: str | None,
    split: str,
    data_root: Path | None,
    device: str,
    console: Console,
    precision: str = "32",
    cache: bool = True,
    views: str | None = None,
) -> RunSession:
    """A run's model on a split of its data set, or of another with images of the same size.

    Raises:
        UsageError: If the images have another size than those of the run, or there is no such device or precision.
    """
    from fslstm_plugin.data.root import load_split
    from fslstm_plugin.errors import UnknownNameError, UsageError
    from fslstm_plugin.evaluation.session import RunSession

    if precision not in ("32", "bf16"):
        raise UnknownNameError("precision", precision, ("32", "bf16"))
    name = dataset or run.config.dataset
    if name is None:
        raise UsageError(f"The run {run.name} was pretrained on a folder of images: name a data set with --dataset.")
    ranks = join_ranks()
    return RunSession(
        run,
        load_split(name, split, data_root),
        ranks.device(device),
        precision,
        data_root,
        cache,
        ranks,
        lambda title, total: progress(console, title, total),
        lambda sentence: say(console, sentence),
        views,
    )


def possible(session: Session, names: Iterable[str], console: Console) -> list[str]:
    """Those of some usual methods that are possible here; the others are reported, with the reason for the first."""
    from fslstm_plugin.errors import UsageError

    found, refused = [], {}
    for name in names:
        try:
            session.methods([name])
            found.append(name)
        except UsageError as error:
            refused[name] = error
    if refused:
        say(console, f"Left out: {', '.join(refused)}. {next(iter(refused.values()))}")
    return found


def as_tuned(run: Run | None, names: Sequence[str], tuned: bool, console: Console) -> list[str]:
    """Names of methods, with what ``fslstm tune`` chose for the run in place of plain ones, each once."""
    from fslstm_plugin.evaluation.tuning import load_tuning, tuned_name

    choices = load_tuning(run).choices if tuned and run is not None else {}
    found: dict[str, None] = {}
    for name in names:
        chosen = tuned_name(choices, name)
        if chosen != name and chosen not in found:
            say(console, f"{name} is used as tuned on validation episodes: {chosen} (--no-tuned for its defaults).")
        found[chosen] = None
    return list(found)


def measure(
    parts: Sequence[tuple[Session, Sequence[Method]]],
    shots: Sequence[int],
    setting: Setting,
    batch_episodes: int | None,
    console: Console,
) -> list[Row]:
    """Rows of the methods for each number of shots, on the same episodes within it."""
    from fslstm_plugin.evaluation.session import measure_together

    settings = [replace(setting, shots=count) for count in shots]
    for each in settings:  # before anything is computed
        each.check(parts[0][0].split)
    rows: list[Row] = []
    passes = sum(len(session.by_pass(methods)) for session, methods in parts)
    with running(console, len(shots) * passes * len(join_ranks().share(setting.episodes))) as show:
        for each in settings:
            rows += measure_together(parts, each, batch_episodes, partial(show, each.shots), len(settings))
    return rows

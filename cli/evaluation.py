"""What the evaluating commands share: their options, the sessions of runs, and the measurement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from fslstm_plugin.checks import one_of
from fslstm_plugin.errors import DataError, FSLSTMError, RunError, UsageError, listed
from fslstm_plugin.registry import DATASETS

from . import options
from .pictures import Views
from .results import Output
from .terminal import join_ranks, progress, running, say

if TYPE_CHECKING:
    from fslstm_plugin.evaluation.rows import Row
    from fslstm_plugin.evaluation.session import RunSession, Session
    from fslstm_plugin.evaluation.setting import Setting
    from fslstm_plugin.methods.base import Method
    from fslstm_plugin.runs.folder import Run

    from .sources import Source


def one_run(help_text: str) -> Any:
    """The option of a run, which is a list of one; several are refused, of which Typer would take the last."""

    def checked(runs: Optional[list[str]]) -> Optional[list[str]]:
        if runs and len(runs) > 1:
            raise UsageError(
                f"--run is for one run here, but got {listed(runs)}: leave out all but one; "
                "'fslstm compare' takes several."
            )
        return runs

    return typer.Option("--run", metavar="<str>", help=help_text, callback=checked)


_RUN = "Run folder, its name in --runs, or builtin:NAME; a+b is the sum of two"
RunOption = Annotated[Optional[list[str]], one_run(f"{_RUN}. Default: the newest.")]
RunsOption = Annotated[
    Optional[list[str]], typer.Option("--run", help=f"{_RUN}; repeat it for several. Default: the newest.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
BatchEpisodes = Annotated[
    Optional[int],
    typer.Option(
        min=1, help="Episodes at a time; affects memory, speed and the last digits. Chosen by size if not given."
    ),
]


@dataclass(frozen=True)
class Further:
    """What is measured besides accuracy, as typed; by default nothing."""

    calibration: Annotated[
        bool,
        typer.Option(
            "--calibration",
            help="Calibration error, Brier score and log-likelihood of the probabilities, before and after the "
            "temperature that each support chooses.",
        ),
    ] = False
    coverage: Annotated[
        Optional[float],
        typer.Option(
            help="Prediction sets with this guaranteed coverage, such as 0.8: the coverage they reach, and their size."
        ),
    ] = None
    coverage_kind: options.CoverageKind = None
    open_ways: Annotated[
        Optional[int],
        typer.Option(
            min=1, help="Add queries of this many unknown classes, and measure how well each score detects them."
        ),
    ] = None

    def check(self, session: Session, methods: Sequence[Method], settings: Sequence[Setting]) -> list[str]:
        """Refuse what cannot be measured, before anything is computed; what is left out is returned in sentences."""
        from fslstm_plugin.confidence.conformal import why_no_prediction_sets
        from fslstm_plugin.evaluation.coverage import require_coverage, why_not_attainable
        from fslstm_plugin.evaluation.open_set import with_unknown

        kind = options.coverage_kind(self.coverage, self.coverage_kind)
        if self.open_ways is not None:
            for setting in settings:
                with_unknown(setting, session.split, self.open_ways)
        if self.coverage is None:
            return []
        require_coverage(methods, settings, self.coverage, kind)
        reasons = [why_not_attainable(setting, self.coverage, kind) for setting in settings]
        reasons += [why_no_prediction_sets(method) for method in methods]
        return [reason for reason in reasons if reason is not None]

    def rows(self, session: Session, methods: Sequence[Method], settings: Sequence[Setting]) -> dict[str, list[Any]]:
        """The rows of each table that was asked for, see `fslstm_plugin.reporting.results.Results`."""
        from fslstm_plugin.evaluation.calibration import calibration_rows
        from fslstm_plugin.evaluation.coverage import coverage_rows, why_not_attainable
        from fslstm_plugin.evaluation.open_set import open_rows

        kind = options.coverage_kind(self.coverage, self.coverage_kind)
        found: dict[str, list[Any]] = {}
        for setting in settings:
            if self.calibration:
                found.setdefault("calibration", []).extend(calibration_rows(session, methods, setting))
            if self.coverage is not None and why_not_attainable(setting, self.coverage, kind) is None:
                mine = coverage_rows(session, methods, setting, self.coverage, kind)
                found.setdefault("coverage", []).extend(mine)
            if self.open_ways is not None:
                found.setdefault("open", []).extend(open_rows(session, methods, setting, self.open_ways))
        return found


@dataclass(frozen=True)
class Evaluation:
    """What is evaluated and how, as typed; wrong values are reported before a run is looked for."""

    runs: options.RunsFolder = Path("runs")
    dataset: Annotated[
        Optional[str], typer.Option(help="A data set other than the run's.", autocompletion=DATASETS.names)
    ] = None
    views: Views = None
    split: Annotated[str, typer.Option(help="test, val or train.")] = "test"
    episodes: Annotated[int, typer.Option(min=2, help="Number of episodes.")] = 1000
    ways: Annotated[int, typer.Option(min=2, help="Classes per episode.")] = 5
    shots: Annotated[
        Optional[list[int]],
        typer.Option(min=1, help="Support images per class; repeat it for several. Default 1 and 5."),
    ] = None
    queries: Annotated[int, typer.Option(min=1, help="Query images per class.")] = 15
    query_balance: Annotated[
        str,
        typer.Option(
            help="uniform, or dirichlet:A with a number A such as 2: class proportions of the queries, drawn for "
            "each episode; their total stays the same."
        ),
    ] = "uniform"
    interval: Annotated[
        str,
        typer.Option(
            help="Sampling unit of the 95 % intervals: episodes, or classes, for statements about unseen classes."
        ),
    ] = "episodes"
    tuned: Annotated[
        bool, typer.Option("--tuned/--no-tuned", help="Use what 'fslstm tune' chose for run and data set.")
    ] = True
    seed: options.Seed = 0
    batch_episodes: BatchEpisodes = None
    device: Device = "auto"
    precision: Annotated[str, typer.Option(help="Precision of the backbone's passes: 32 or bf16.")] = "32"
    cache: Annotated[
        bool, typer.Option("--cache/--no-cache", help="Keep the features beside the run, and reuse them.")
    ] = True
    data_root: options.DataRoot = None

    def __post_init__(self) -> None:
        _ = self.settings

    @property
    def settings(self) -> list[Setting]:
        """The episodes, for each number of shots."""
        from fslstm_plugin.evaluation.setting import Setting

        further = self.queries, self.episodes, self.seed, self.query_balance, self.interval
        return [Setting(self.ways, shots, *further) for shots in dict.fromkeys(self.shots or (1, 5))]

    def sessions(self, runs: Sequence[str] | None, source: Source) -> list[Session]:
        """Of each run that is named, of the newest where none is, or of what takes the place of a run."""
        from fslstm_plugin.evaluation.summed import summed
        from fslstm_plugin.runs.folder import Run

        if source.replaces(runs, self.dataset, self.data_root):
            for option, is_typed in (("--split", self.split != "test"), ("--precision", self.precision != "32")):
                if is_typed:
                    raise UsageError(f"{option} is for a run, but {source.option} takes its place: leave out {option}.")
            return [source.session(self.runs, self.device, self.views, self.settings)]
        chosen = [Run.find_sum(name, self.runs) for name in runs] if runs else [[Run.newest(self.runs)]]
        chosen = list({tuple(run.path.resolve() for run in each): each for each in chosen}.values())
        names = ["+".join(run.name for run in each) for each in chosen]
        if again := next((name for name in names if names.count(name) > 1), None):
            raise UsageError(
                f"Two runs are called {again}, so their rows cannot be told apart: rename one of the folders."
            )
        found = ([self.session(run) for run in each] for each in chosen)
        return [each[0] if len(each) == 1 else summed(each) for each in found]

    def session(self, run: Run) -> RunSession:
        """A run's model on the split of its data set, or of another with images of the same size."""
        from fslstm_plugin.data.root import load_split
        from fslstm_plugin.evaluation.session import RunSession

        one_of("precision", self.precision, ("32", "bf16"))
        if not self.dataset and run.config.dataset is None:
            raise UsageError(
                f"The run {run.name} was pretrained on a folder of images: name a data set with --dataset."
            )
        where = self.split, self.data_root
        split = load_split(self.dataset, *where) if self.dataset else run.split(*where)
        ranks = join_ranks()
        device = ranks.device(self.device)
        return RunSession(
            run, split, device, self.precision, self.data_root, self.cache, ranks, progress, say, self.views
        )

    def measure(self, parts: Sequence[tuple[Session, Sequence[Method]]]) -> list[Row]:
        """Rows of the methods for each number of shots, on the same episodes within it."""
        from fslstm_plugin.evaluation.session import measure_together

        settings = self.settings
        for each in settings:  # before anything is computed
            each.check(parts[0][0].split)
        rows: list[Row] = []
        passes = sum(len(session.by_pass(methods)) for session, methods in parts)
        with running(len(settings) * passes * len(join_ranks().share(self.episodes))) as show:
            for each in settings:
                rows += measure_together(parts, each, self.batch_episodes, partial(show, each.shots), len(settings))
        return rows

    def finish(
        self, kind: str, parts: Sequence[tuple[Session, Sequence[str]]], output: Output, further: Further | None = None
    ) -> None:
        """Measure methods of sessions by name, as tuned if that is wanted, and output the rows of a kind of evaluation.

        What is measured further is of the first session.
        """
        built = [
            (session, session.methods(as_tuned(session, names) if self.tuned else names)) for session, names in parts
        ]
        for sentence in further.check(*built[0], self.settings) if further else ():
            say(sentence)
        rows = self.measure(built)
        more = further.rows(*built[0], self.settings) if further and join_ranks().rank == 0 else {}
        runs = [session.run for session, _ in parts if session.run is not None]
        notes = list(dict.fromkeys(note for session, _ in parts for note in session.notes))
        output.give_out(runs, kind, rows, notes, more)


def possible(session: Session, names: Iterable[str]) -> list[str]:
    """Those of some usual methods that are possible here; the others are reported, with the reason for the first."""
    found: list[str] = []
    refused: dict[str, FSLSTMError] = {}
    for name in names:
        try:
            session.methods([name])
            found.append(name)
        except (DataError, UsageError) as error:
            refused[name] = error
    if refused:
        say(f"Left out: {', '.join(refused)}. {next(iter(refused.values()))}")
    return found


def as_tuned(session: Session, names: Sequence[str]) -> list[str]:
    """Names of methods, with what ``fslstm tune`` chose for run and data set in place of plain ones, each once."""
    from fslstm_plugin.evaluation.tuning import load_tuning, tuned_name

    dataset = session.split.dataset
    try:
        choices = load_tuning(session.run).choices.get(dataset, {}) if session.run is not None else {}
    except RunError as error:
        raise RunError(f"{str(error).rstrip('.')}; or give --no-tuned.") from error
    found: dict[str, None] = {}
    for name in names:
        chosen = tuned_name(choices, name, str(session.method))
        if chosen != name and chosen not in found:
            say(f"{name} is used as tuned on validation episodes of {dataset}: {chosen} (--no-tuned for its defaults).")
        found[chosen] = None
    return list(found)

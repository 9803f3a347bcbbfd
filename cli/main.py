"""The Typer application, and how its errors reach the user."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, NoReturn

import typer

from fslstm_plugin import __version__
from fslstm_plugin.errors import FSLSTMError, printable, reason
from fslstm_plugin.evaluation.processes import forget_stale
from fslstm_plugin.stopping import STOPPED, listening

from . import (
    bench,
    compare,
    data,
    demo,
    eval,
    export,
    fit,
    predict,
    pretrain,
    report,
    reproduce,
    score,
    show,
    streams,
    suggest,
    train,
    tune,
    update,
)
from .command import Command, epilog
from .memory import keep_freed_memory

_with_place = warnings.formatwarning
_INTERRUPTED, _TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM

app = typer.Typer(
    name="fslstm",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Few-shot learning with an LSSVM base learner and transductive modules, on learn2learn.",
    epilog="Try it: [bold]fslstm demo[/bold]. Every command has --help with examples.",
)
app.add_typer(data.app, name="data", rich_help_panel="Data")


def _add(panel: str, name: str, command: Callable[..., None], examples: str) -> None:
    app.command(name, cls=Command, rich_help_panel=panel, epilog=epilog(examples))(command)


_add("Own pictures", "fit", fit.fit, fit.EXAMPLES)
_add("Own pictures", "predict", predict.predict, predict.EXAMPLES)
_add("Own pictures", "score", score.score, score.EXAMPLES)
_add("Own pictures", "show", show.show, show.EXAMPLES)
_add("Own pictures", "suggest", suggest.suggest, suggest.EXAMPLES)
_add("Own pictures", "update", update.update, update.EXAMPLES)
_add("Own pictures", "export", export.export, export.EXAMPLES)
_add("Training", "pretrain", pretrain.pretrain, pretrain.EXAMPLES)
_add("Training", "train", train.train, train.EXAMPLES)
_add("Evaluation", "eval", eval.evaluate, eval.EXAMPLES)
_add("Evaluation", "compare", compare.compare, compare.COMPARE_EXAMPLES)
_add("Evaluation", "compare-heads", compare.compare_heads, compare.HEADS_EXAMPLES)
_add("Evaluation", "tune", tune.tune, tune.EXAMPLES)
_add("Evaluation", "bench", bench.bench, bench.BENCH_EXAMPLES)
_add("Evaluation", "bench-accuracy", bench.bench_accuracy, bench.ACCURACY_EXAMPLES)
_add("Reproduction", "reproduce", reproduce.reproduce, reproduce.EXAMPLES)
_add("Reproduction", "report", report.report, report.EXAMPLES)
_add("Getting started", "demo", demo.demo, demo.EXAMPLES)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fslstm {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options before the command."""
    # learn2learn imports gym, which would print a notice about itself on stderr.
    with suppress(ModuleNotFoundError):
        import gym_notices.notices

        gym_notices.notices.notices.clear()


def _fail(message: str, code: int) -> NoReturn:
    print(f"fslstm: {message}", file=sys.stderr)
    raise SystemExit(code)


def _refusal(error: OSError, place: str | None) -> str:
    return f"The operating system refused: {reason(error)}{f' ({place})' if place else ''}."


def _require_printed(output: streams.Stream) -> None:
    """End with 1 where not all could be printed; without a word where the reader of a pipe left."""
    output.flush()
    if isinstance(output.fault, BrokenPipeError):
        raise SystemExit(1)
    if output.fault is not None:
        _fail(_refusal(output.fault, "the standard output"), 1)


def _warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning of the package as a sentence: the place in the code, which others have, is nothing to a user."""
    if category.__module__.startswith("fslstm_plugin"):
        return f"{printable(str(message))}\n"
    return _with_place(message, category, filename, lineno, line)


def _terminated(*_: object) -> NoReturn:
    raise SystemExit(_TERMINATED)  # an exception, so that files, folders and the terminal are left in order


def run() -> None:
    """Entry point: errors become one sentence on stderr; wrong usage exits with 2, a failure with 1."""
    try:
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # Read when torch is imported; its warnings are not ours.
        os.environ["MPLBACKEND"] = "agg"  # Figures go to files; that of a notebook around may not be installed here.
        warnings.formatwarning = _warning
        # What Pillow would say of a damaged or huge file is said once and with the file's name.
        for category in (UserWarning, RuntimeWarning):
            warnings.filterwarnings("ignore", category=category, module=r"PIL\.")
        keep_freed_memory()
        forget_stale()
        output, _ = streams.replace("stdout"), streams.replace("stderr")
        # In the background of a script Ctrl-C is ignored, and stays so.
        interrupts = [signal.SIGINT] if signal.getsignal(signal.SIGINT) is signal.default_int_handler else []
        with listening(_terminated, [signal.SIGTERM]), listening(signal.default_int_handler, interrupts):
            app()
    except SystemExit as stop:
        if stop.code in (_INTERRUPTED, _TERMINATED):
            print(f"fslstm: {STOPPED}", file=sys.stderr)
        if not stop.code and output is not None:
            _require_printed(output)
        raise
    except FSLSTMError as error:
        _fail(str(error), error.exit_code)
    except OSError as error:
        _fail(_refusal(error, error.filename), 1)

"""``fslstm compare`` and ``fslstm compare-heads``: methods on the same episodes, all differences paired."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from fslstm_plugin.arguments import options as options_of
from fslstm_plugin.errors import UsageError
from fslstm_plugin.grammar import Part
from fslstm_plugin.registry import HEADS, METHODS

from . import evaluation, terminal
from .results import Output
from .signatures import split, with_fields
from .sources import PANEL, Source

if TYPE_CHECKING:
    from fslstm_plugin.evaluation.session import Session

COMPARE_EXAMPLES = """
fslstm compare
fslstm compare tim "pt-map(negative=signed)" lssvm+psm "rr(center,normalize)+psm"
fslstm compare lssvm tim --run builtin:cifar-fs-conv4-gpu
fslstm compare lssvm lssvm+iam --run conv4-lssvm --run conv4-iam --episodes 10000
fslstm compare "tim(steps=50)" "lssvm(ridge=loo)" --shots 5 --query-balance dirichlet:2 --latex table.tex
fslstm compare nn lssvm "lssvm(normalize)" --pictures birds/ --backbone torchvision:resnet50
"""

HEADS_EXAMPLES = """
fslstm compare-heads
fslstm compare-heads --run builtin:cifar-fs-conv4-gpu --episodes 10000 --csv heads.csv --latex heads.tex
fslstm compare-heads --head lssvm --head "lssvm(ridge=loo)" --head "rr(ridge=1,normalize)" --shots 5
fslstm compare-heads --query-balance dirichlet:2 --interval classes
"""

PAPERS_HEADS = ("nn", "rr", "svm", "lssvm")
_WITH_AFFINITIES = ("lssvm(ridge=1,bpa,normalize)", "lssvm(ridge=1,bpa,normalize)+psm", "tim(bpa)")


@with_fields(Output)
@with_fields(evaluation.Evaluation)
@with_fields(Source, PANEL)
def compare(
    methods: Annotated[
        Optional[list[str]],
        typer.Argument(
            metavar="METHOD",
            help="Names of methods. Default: with one run every transductive method, the paper's heads plain and with "
            "PSM, and the best with bpa; with several runs what each was trained for.",
        ),
    ] = None,
    run: evaluation.RunsOption = None,
    **more: Any,
) -> None:
    """Compare any methods, of one run or several, on the same episodes.

    "To the best" is the mean paired difference to the best method, with a 95 % interval of its own that is much
    narrower than the intervals of the accuracies suggest.
    """
    source, rest = split(Source, more)
    output, rest = split(Output, rest)
    asked = evaluation.Evaluation(**rest)
    sessions = asked.sessions(run, source)
    if methods:
        parts = _where_possible(sessions, methods)
    elif len(sessions) > 1:
        parts = [(session, [str(session.method)]) for session in sessions]
    else:
        usual = _default_methods(str(sessions[0].method))
        parts = [(sessions[0], evaluation.possible(sessions[0], usual))]
    asked.finish("compare", parts, output)


def require_head(text: str) -> None:
    """Refuse a name of what is no head, such as a whole method."""
    HEADS.get(Part.parse(text).name)


def _default_methods(trained: str) -> list[str]:
    """The heads, plain and with PSM, what the run was trained for, methods without training, the best with bpa."""
    from fslstm_plugin.naming import whole_methods

    for fault in METHODS.loadable()[1]:
        terminal.say(f"Left out: {fault}")
    # The plugin's own backbones end in a LeakyReLU; without negative features the two are the same.
    whole = [
        f"{name}(negative=signed)" if "negative" in options_of(METHODS.get(name)) else name for name in whole_methods()
    ]
    refitted = (f"{head}+psm" for head in PAPERS_HEADS)
    return list(dict.fromkeys([*PAPERS_HEADS, *refitted, trained, *whole, *_WITH_AFFINITIES]))


def _where_possible(sessions: Sequence[Session], names: Sequence[str]) -> list[tuple[Session, list[str]]]:
    """Each method on every run that has its weights; a method without weights on all of them."""
    suiting: dict[str, list[Session]] = {name: [] for name in names}
    for name, mine in suiting.items():
        faults = []
        for session in sessions:
            try:
                session.methods([name])
                mine.append(session)
            except UsageError as error:
                faults.append(error)
        if not mine:
            raise faults[0]
    parts = [(session, [name for name in names if session in suiting[name]]) for session in sessions]
    return [(session, suited) for session, suited in parts if suited]


@with_fields(Output)
@with_fields(evaluation.Evaluation)
@with_fields(Source, PANEL)
def compare_heads(
    run: evaluation.RunsOption = None,
    head: Annotated[
        Optional[list[str]],
        typer.Option(
            help="A head, such as lssvm or lssvm(ridge=loo); repeat it for several. Default: nn, rr, svm and lssvm.",
            autocompletion=HEADS.names,
        ),
    ] = None,
    psm_iters: Annotated[int, typer.Option(min=1, help="Iterations of the Pseudo Support Module.")] = 10,
    **more: Any,
) -> None:
    """Compare heads on the same features and episodes: plain, with CAN, with PSM; a preset of compare.

    The Inverse Attention Module is left out, since it was trained for one head.
    """
    for name in head or []:
        require_head(name)
    psm = "psm" if psm_iters == 10 else f"psm(iterations={psm_iters})"
    names = [f"{each}{module}" for each in head or PAPERS_HEADS for module in ("", "+can", f"+{psm}")]
    compare(names, run, **more)

"""``fslstm eval``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from fslstm_plugin.errors import UsageError
from fslstm_plugin.grammar import Part
from fslstm_plugin.registry import HEADS

from . import evaluation, options, terminal
from .compare import require_head
from .results import Output
from .signatures import split, with_fields
from .sources import PANEL, Source

if TYPE_CHECKING:
    from fslstm_plugin.methods.base import Method

EXAMPLES = """
fslstm eval --psm-iters 10
fslstm eval --run builtin:cifar-fs-conv4-gpu
fslstm eval --run train-mini-resnet12-lssvm+iam --shots 1 --episodes 10000 --json results.json
fslstm eval --no-iam --can --head rr
fslstm eval lssvm+iam "lssvm(center,normalize)+psm" tim
fslstm eval --query-balance dirichlet:2 --interval classes
fslstm eval --calibration --coverage 0.8 --coverage-kind per-class --shots 5
fslstm eval --open-ways 5 --split val
fslstm eval "lssvm(normalize)" tim --features dinov3.npz
fslstm eval --pictures birds/ --backbone timm:vit_small_patch16_dinov3 --pooling token
"""

PRESET = {"head", "psm_iters", "can", "iam", "bn"}  # Options that make names of methods.


@with_fields(Output)
@with_fields(evaluation.Evaluation)
@with_fields(Source, PANEL)
@with_fields(evaluation.Further, "Beside accuracy")
def evaluate(
    context: typer.Context,
    methods: Annotated[
        Optional[list[str]],
        typer.Argument(
            metavar="METHOD",
            help="Names of methods. Default: the run's own, with and without IAM and PSM, as the options below say.",
        ),
    ] = None,
    run: evaluation.RunOption = None,
    head: Annotated[
        Optional[str],
        typer.Option(
            help="A head other than the run's; also lssvm(ridge=loo), rr(normalize).", autocompletion=HEADS.names
        ),
    ] = None,
    psm_iters: Annotated[
        int, typer.Option(min=0, help="Iterations of the Pseudo Support Module; 0 leaves its row out.")
    ] = 10,
    can: Annotated[bool, typer.Option("--can", help="Add a row with CAN's transduction.")] = False,
    iam: Annotated[
        Optional[bool],
        typer.Option(
            "--iam/--no-iam",
            help="Only rows with, or without, the Inverse Attention Module. Default: both, if the run has it.",
        ),
    ] = None,
    bn: Annotated[
        bool, typer.Option("--bn", help="Batch normalisation with the statistics of each episode's own images.")
    ] = False,
    **more: Any,
) -> None:
    """Evaluate a run: accuracy with 95 % interval, with and without the modules.

    On request, further tables say how good the probabilities are, how often prediction sets contain the true label,
    and how well queries of unknown classes are detected.
    """
    if methods:
        others = {*context.params} - PRESET
        options.refuse_beside(context, "METHOD", others, "name the settings, as in lssvm+iam+psm(iterations=5)")

    beside, rest = split(evaluation.Further, more)
    source, rest = split(Source, rest)
    output, rest = split(Output, rest)
    asked = evaluation.Evaluation(**rest)
    terminal.join_ranks().device(asked.device)
    (session,) = asked.sessions(run, source)
    refits = ["psm" if psm_iters == 10 else f"psm(iterations={psm_iters})"] if psm_iters else []
    refits += ["can"] if can else []
    names = methods or rows_for(session.method, head, refits, iam, bn)
    asked.finish("eval", [(session, names)], output, beside)


def rows_for(trained: Method, head: str | None, refits: list[str], iam: bool | None, bn: bool) -> list[str]:
    """Names of the rows: the run's head, or another, with its trained adapters, and then with each module that refits.

    Adapters are used, or not, or both where `iam` is None; `bn` is batch norm with the episode's own statistics.
    """
    from fslstm_plugin.methods.kernel import KernelMethod

    kernel = trained if isinstance(trained, KernelMethod) else None
    if kernel is None and head is None:
        if iam is not None or bn or refits not in ([], ["psm"]):  # PSM is the default
            raise UsageError(
                f"The run was trained with {trained}, which takes neither IAM, batch norm's statistics nor a "
                "transductive module: leave these options out, or give --head."
            )
        return [str(trained)]
    if head is not None:
        require_head(head)
    text = kernel.head_text if kernel is not None and head is None else str(head)
    same = kernel is not None and Part.parse(text).name == kernel.family
    learned, refit = (kernel.learned_texts, kernel.refit_texts) if kernel is not None and same else ((), ())
    if iam and not learned:
        raise UsageError(
            f"There is no IAM for {text} in this run: train with --algorithm {Part.parse(text).name}+iam for --iam."
        )
    plain = f"{text}+bn" if bn else text
    base = "+".join([plain, *learned]) if iam is not False else plain
    names = [plain, base] if iam is None else [base]
    return list(dict.fromkeys([*names, *(f"{base}+{each}" for each in (*refit, *refits))]))

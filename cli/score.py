"""``fslstm score``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Optional

import typer
from msgspec import structs

from fslstm_plugin.errors import DataError, count_of, listed, printable

from . import evaluation, gathering, options, pictures, predict, results, terminal

if TYPE_CHECKING:
    from fslstm_plugin.classifier.classifier import Classifier
    from fslstm_plugin.pictures.score import Score

    from .gathering import Gathered

EXAMPLES = """
fslstm score birds.fslstm labelled-too/
fslstm score birds.fslstm checked.csv --coverage 0.8 --json score.json
"""

_MOST_CLASSES = 12  # In a table of confusions; of more classes the commonest confusions are listed.
_MOST_NAMED = 10


def score(
    model: pictures.Model,
    labelled: pictures.Labelled,
    coverage: Annotated[
        Optional[float], typer.Option(help="Also judge prediction sets of this coverage, such as 0.8.")
    ] = None,
    coverage_kind: options.CoverageKind = None,
    accept: predict.Accept = None,
    weights: pictures.Moved = None,
    max_pixels: pictures.MaxPixels = None,
    device: evaluation.Device = "auto",
    json: options.Json = None,
) -> None:
    """Say how good a classifier is, on labelled pictures that it was not fitted to.

    It prints the accuracy with its 95 % interval, how often each class is taken for another, how well the
    probabilities are calibrated, and with --coverage how many prediction sets contain the true label. Pictures of
    classes that the classifier does not have are counted apart.
    """
    from fslstm_plugin.pictures.acceptance import acceptance
    from fslstm_plugin.pictures.predictor import Guarantee, independent_counts
    from fslstm_plugin.pictures.score import score as scored

    kind = options.coverage_kind(coverage, coverage_kind)
    options.require_apart(model, labelled, json)
    found = pictures.labelled(labelled)
    classifier = pictures.load(model, device, weights)
    names = [printable(str(each)) for each in classifier.classes_.tolist()]
    if not any(printable(str(each.label)) in names for each in found):
        raise DataError(
            f"None of the pictures in {labelled} is of a class of {model}, which has: "
            f"{listed(sorted(names), _MOST_NAMED)}."
        )
    guarantee = None if coverage is None else Guarantee(coverage, kind)
    if guarantee is not None:
        guarantee.require(classifier)
    gathered = _unseen(gathering.gather(found, classifier.open_backbone()), classifier)
    if not any(printable(str(each.label)) in names for each in gathered.pictures):
        raise DataError(f"All readable pictures of {labelled} of a class of {model} are in it already: name others.")
    labels = [str(each.label) for each in gathered.pictures]
    accepted = acceptance(independent_counts(classifier).tolist(), accept)
    result = scored(classifier, gathered.features, labels, guarantee, accepted)
    _show(result, names, classifier.why_uncalibrated)
    content = structs.asdict(result)
    rows = [{"label": label, "predictions": counts} for label, counts in content.pop("confusions").items()]
    results.attempt((json, lambda file: results.write_json(file, {**content, "rows": rows})))


def _unseen(gathered: Gathered, classifier: Classifier) -> Gathered:
    """The pictures that the classifier was not fitted to, each once."""
    given = _unlabelled(gathered)
    once, _ = gathering.without_copies(given, _unlabelled(gathering.held(classifier)))
    kept = {id(each) for each in once.pictures}  # a list may have one path twice
    places = [place for place, each in enumerate(given.pictures) if id(each) in kept]
    if left := len(gathered.pictures) - len(places):
        terminal.say(f"{count_of(left, 'picture')} left out: in the classifier itself, or given twice.")
    return gathered.at(places)


def _unlabelled(gathered: Gathered) -> Gathered:
    return gathered._replace(pictures=[each._replace(label=None) for each in gathered.pictures])


def _show(result: Score, names: list[str], uncalibrated: str | None) -> None:
    from fslstm_plugin.pictures.predictions import NONE

    typer.echo(
        f"{count_of(result.pictures, 'picture')}: the likeliest class is right for {100 * result.accuracy:.1f} % (95 % "
        f"interval {100 * result.low:.1f} to {100 * result.high:.1f} %)."
    )
    lost = sum(counts.get(NONE, 0) for counts in result.confusions.values())
    typer.echo(f'Taken for "{NONE}", whatever their likeliest class: {lost:,} of {result.pictures:,}.')
    if len(names) <= _MOST_CLASSES:
        _show_table(result, [*names, NONE])
    else:
        _show_commonest(result)
    doubt = "" if uncalibrated is None else " (they are uncalibrated)"
    typer.echo(
        f"Expected calibration error of the probabilities{doubt}: {100 * result.calibration_error:.1f} %; with few "
        "pictures it is biased upwards."
    )
    if result.coverage is not None:
        typer.echo(
            f"Prediction sets: {100 * result.coverage.share:.1f} % contain the true label, where "
            f"{100 * result.coverage.asked:g} % was asked for ({result.coverage.kind}); they have "
            f"{result.coverage.labels:.2f} labels on average."
        )
    if result.unknown:
        number = sum(result.unknown.values())
        counts = listed((f"{name} {count}" for name, count in result.unknown.items()), _MOST_NAMED)
        typer.echo(
            f"Of classes that the classifier does not have: {count_of(number, 'picture')} ({printable(counts)}), "
            f'{result.unknown_refused:,} of them taken for "{NONE}".'
        )


def _show_table(result: Score, names: list[str]) -> None:
    from rich.table import Column, Table

    columns = (Column(terminal.cell(each), justify="right") for each in names)
    table = Table("Label", *columns, title="Pictures by label and prediction")
    for label, counts in result.confusions.items():
        table.add_row(terminal.cell(label), *(f"{counts[name]:,}" if name in counts else "" for name in names))
    terminal.for_tables().print(table)


def _show_commonest(result: Score) -> None:
    pairs = ((label, *each) for label, counts in result.confusions.items() for each in counts.items())
    wrong = Counter({(label, name): count for label, name, count in pairs if name != label})
    commonest = [f"{label} as {name} ({count})" for (label, name), count in wrong.most_common(_MOST_NAMED)]
    if commonest:
        typer.echo(printable(f"Most often confused: {'; '.join(commonest)}."))

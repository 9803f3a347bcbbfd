"""What to expect of a classifier of pictures, estimated from its labelled pictures alone."""

from __future__ import annotations

import msgspec
import torch
import torch.nn.functional as F
from msgspec import structs

from ..classifier.classifier import Classifier
from ..classifier.inspection import Confused, Odd, confused_classes, near_duplicates, odd_labels
from ..classifier.selection import expected_accuracy
from ..confidence.calibration import probabilities
from ..confidence.conformal import MARGINAL, PER_CLASS, greatest_coverage, require_prediction_sets, two_digits
from ..errors import UsageError, count_of, listed, printable
from .predictor import independent_counts

_ALIKE = 0.02**0.5  # Distance of two directions, whose cosine is 0.99, as of a picture that was saved twice.
_MORE = 5  # Pictures of each class that could be labelled next.
_MOST_SAID = 10  # Of a kind, in sentences; the JSON file has all.


class WithMore(msgspec.Struct, frozen=True):
    """What to expect were so many more pictures of each class labelled, or groups of them."""

    more: int
    accuracy: float
    low: float
    high: float


class Expectations(msgspec.Struct, frozen=True):
    """What the labelled pictures tell when each is left out in turn."""

    method: str
    pictures: dict[str, int]  # How many of each class are labelled.
    judged: int  # How many were left out: those that are not the only one of their class.
    accuracy: float | None  # See `expected_accuracy`; None if a class has one picture, or none can be left out.
    low: float  # The ends of its 95 % interval.
    high: float
    with_more: WithMore | None  # None where there is no accuracy.
    confused: list[Confused]  # The most often confused first.
    odd: list[Odd]  # The oddest first.
    alike: list[tuple[str, str]]  # Pictures with the next one that is nearly identical.
    coverage_per_class: float | None  # The highest that prediction sets can guarantee for each class.
    coverage_marginal: float | None  # The same on average over the classes.
    judged_by: str | None  # The head alone, where the method refits it by its predictions: they were left out by that.
    groups: dict[str, int] | None = None  # In how many the pictures of each class are; None where each is by itself.
    independent: dict[str, int] | None = None  # How many of different groups prediction sets use of each class.


def expectations(classifier: Classifier) -> Expectations:
    """What to expect of a fitted classifier.

    Example:
        >>> from fslstm_plugin import FewShotClassifier
        >>> X = [[0.0, 0.1], [0.2, 0.0], [1.0, 0.9], [0.8, 1.0]]
        >>> found = expectations(FewShotClassifier().fit(X, ["owl", "owl", "wren", "wren"]))
        >>> found.pictures, found.accuracy, round(found.low, 2)
        ({'owl': 2, 'wren': 2}, 1.0, 0.38)
    """
    labels = torch.from_numpy(classifier.support_labels_)
    classes, names = [str(each) for each in classifier.classes_], classifier.pictures_
    groups, judged = classifier.fitted.groups, classifier.fitted.judged
    logits = classifier.fitted.left_out()
    expected = later = None
    confused: list[Confused] = []
    odd: list[Odd] = []
    if logits is not None and judged.any():
        expected, later = (expected_accuracy(logits, labels, more, groups) for more in (0, _MORE))
        confused = confused_classes(logits[judged], labels[judged], classes)
        likely = probabilities(logits, classifier.fitted.left_out_temperature(logits))  # also if one was given
        odd = odd_labels(likely, labels, classes, names)
    accuracy, low, high = expected or (None, 0.0, 1.0)
    directions = F.normalize(torch.from_numpy(classifier.support_), dim=-1)
    alike = [(names[one], names[others[0]]) for one, others in near_duplicates(directions, _ALIKE)]
    per_class, marginal = _greatest_coverages(classifier)
    single = classifier.fitted.method.without_queries()
    numbers = independent = None
    if groups is not None:
        counts = torch.stack([labels, groups], -1).unique(dim=0)[:, 0].bincount().tolist()
        numbers = dict(zip(classes, counts, strict=True))
        independent = dict(zip(classes, independent_counts(classifier).tolist(), strict=True))
    return Expectations(
        classifier.method_name,
        dict(zip(classes, labels.bincount().tolist(), strict=True)),
        int(judged.sum()),
        accuracy,
        low,
        high,
        later and WithMore(_MORE, *later),
        confused,
        odd,
        alike,
        per_class,
        marginal,
        None if single in (None, classifier.fitted.method) else str(single),
        numbers,
        independent,
    )


def _greatest_coverages(classifier: Classifier) -> tuple[float, float] | tuple[None, None]:
    """The highest coverage that prediction sets can guarantee, for each class and on average."""
    try:
        require_prediction_sets(classifier.set_method_)
    except UsageError:
        return None, None
    targets = classifier.fitted.representatives.targets
    return greatest_coverage(targets, PER_CLASS), greatest_coverage(targets, MARGINAL)


def sentences(found: Expectations, pairs: bool = True) -> list[str]:
    """In words, for a terminal; with or without the lists of confused classes, doubtful labels and like pictures."""
    said = [_of_accuracy(found), *_of_coverage(found)]
    unit = "picture" if found.groups is None else "group"
    single = [name for name, count in (found.groups or found.pictures).items() if count == 1]
    if single:
        said.append(
            f"Classes with one {unit}: {listed(single, _MOST_SAID)}. How often such a class will be recognised cannot "
            f"be estimated, since nothing is left of it when its {unit} is left out. Pictures can still be predicted "
            f"as such a class. A second {unit} of it helps most."
        )
    lists = {
        "Confused classes, with the number of pictures": [
            f"{each.first} and {each.second} ({each.pictures})" for each in found.confused
        ],
        "Possibly mislabelled": [
            f"{each.picture} is labelled {each.label} but looks like {each.looks_like} ({each.odds:.0f} to 1)"
            for each in found.odd
        ],
        "Nearly identical to the backbone": [f"{one} and {other}" for one, other in found.alike],
    }
    if pairs:
        said += [f"{title}: {listed(items, _MOST_SAID, '; ')}." for title, items in lists.items() if items]
    return [printable(each) for each in said]


def _of_accuracy(found: Expectations) -> str:
    if found.accuracy is None:
        return "How many new pictures will be predicted correctly cannot be estimated from these pictures alone."
    proportions = ", in the same proportions," if len(set(found.pictures.values())) > 1 else ""
    unit, beside = "picture", "together with one of each other class"
    if found.groups is not None:
        fewest, most = min(found.groups.values()), max(found.groups.values())
        numbers = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        unit, beside = (
            "group",
            f"with its whole group and groups of the other classes; the classes have {count_of(numbers, 'group')}",
        )
    alone = f" That is {found.judged_by} alone, without the other pictures." if found.judged_by else ""
    later = ""
    if found.with_more is not None:
        more, *shares = structs.astuple(found.with_more)
        accuracy, low, high = (f"{100 * each:.0f}" for each in shares)
        later = f" With {count_of(more, f'more {unit}')} of each class about {accuracy} % ({low} to {high} %)."
    return (
        f"Expect about {100 * found.accuracy:.0f} % of new pictures like these{proportions} to be predicted correctly "
        f"(95 % interval {100 * found.low:.0f} to {100 * found.high:.0f} %, estimated from "
        f"{count_of(found.judged, 'picture')}, each left out in turn {beside}).{alone}{later}"
    )


def _of_coverage(found: Expectations) -> list[str]:
    if found.coverage_per_class is None or found.coverage_marginal is None:
        return []
    numbers, unit = found.independent or found.pictures, "picture" if found.groups is None else "group"
    number = min(numbers.values())
    scarce = [name for name in numbers if numbers[name] == number]
    some = scarce[0] if len(scarce) == 1 else f"each of {listed(scarce)}"
    whose = "each" if len(scarce) == len(numbers) else some
    counted = "" if found.independent == found.groups else " (a group of several classes counts for one)"
    limit = f"{count_of(number, unit)} of {whose}{counted}"
    return [
        f"Prediction sets can guarantee a coverage of up to {two_digits(found.coverage_per_class):g} for each class, "
        f"limited by the {limit}; on average over the classes, if labelled and new pictures are drawn alike, "
        f"up to {two_digits(found.coverage_marginal):g} (--coverage-kind marginal)."
    ]

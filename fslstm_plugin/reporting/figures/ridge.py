"""What a head's constant does, with features as they are and normalised."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..tables import NOTHING, number, signed
from .lines import Lines, Point, model_and_shots

_SYMBOLS = {"rr": "λ", "svm": "C", "lssvm": "ρ"}


def lines(measured: Sequence[dict[str, Any]]) -> Lines:
    """Gain over the published constant; columns are heads, rows models and shots.

    The ridge that the LSSVM chooses itself is a level line.
    """
    points = [
        Point(
            model_and_shots(each),
            f"{each['head'].upper()}, {_SYMBOLS[each['head']]}",
            f"{'leave-one-out, ' if _chosen(each) else ''}{'normalised' if each['normalize'] else 'as they are'}",
            None if _chosen(each) else _constant(each),
            each["gain"],
            each["gain_ci95"],
            each["accuracy"],
            each["ci95"],
        )
        for each in measured
        if each["head"] in _SYMBOLS and each["options"]
    ]
    over = "the head with its published constant and features as they are"
    remark = "The best constant is chosen on the episodes that its gain is measured on, which favours it a little."
    return Lines("constant of the head", over, points, logarithmic=True, summary=_summary(measured), remark=remark)


def _summary(measured: Sequence[dict[str, Any]]) -> list[list[str]]:
    """For each model, shots and head: the published constant, and the most that each way gains over it."""
    ways = {
        "best constant, as they are": (False, False),
        "best constant, normalised": (False, True),
        "leave-one-out, as they are": (True, False),
        "leave-one-out, normalised": (True, True),
    }
    groups: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    for each in measured:
        groups.setdefault((each["run"], each["shots"], each["head"]), []).append(each)
    rows = [["head", "model", "published constant", *ways]]
    for (run, shots, head), mine in groups.items():
        plain = [each for each in mine if not each["options"] and not each["normalize"]]
        tried = [each for each in mine if each not in plain]
        cells = [_best(each for each in tried if (_chosen(each), each["normalize"]) == way) for way in ways.values()]
        published = number(plain[0]["accuracy"], plain[0]["ci95"]) if plain else NOTHING
        rows.append([f"{head.upper()}, {shots}-shot", run, published, *cells])
    return rows


def _best(measured: Iterable[dict[str, Any]]) -> str:
    """The greatest gain, and the constant that it was reached with."""
    best = max(measured, key=lambda each: each["gain"], default=None)
    if best is None:
        return NOTHING
    text = signed(best["gain"], best["gain_ci95"])
    return text if _chosen(best) or not best["options"] else f"{text} ({_SYMBOLS[best['head']]} = {_constant(best):g})"


def _chosen(each: dict[str, Any]) -> bool:
    return "loo" in each["options"].values()


def _constant(each: dict[str, Any]) -> float:
    (value,) = each["options"].values()
    return float(value)

"""The choice of a method by its labelled points, and what these say about themselves."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
import torch
from msgspec import structs
from torch import Tensor

from fslstm_plugin import EpisodeFeatures, FewShotClassifier, parse_method
from fslstm_plugin.classifier import inspection
from fslstm_plugin.classifier.inspection import confused_classes, near_duplicates, odd_labels
from fslstm_plugin.classifier.selection import CANDIDATES, choose_method, expected_accuracy, left_out
from fslstm_plugin.confidence.calibration import fit_temperature
from fslstm_plugin.errors import UsageError
from fslstm_plugin.pictures import Picture
from fslstm_plugin.pictures.duplicates import corrections, duplicates
from fslstm_plugin.pictures.expectations import expectations


def draw(seed: int, shots: int = 6, dim: int = 8, ways: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(ways * shots) % ways
    return torch.randn(len(labels), dim, generator=generator) + 2 * torch.eye(ways, dim)[labels], labels


@pytest.mark.parametrize("with_mean", [False, True])
def test_the_choice_has_the_greatest_likelihood_of_explicit_refits(with_mean: bool) -> None:
    features, labels = draw(0)
    mean = torch.full((8,), 0.2) if with_mean else None
    change = "center,normalize" if with_mean else "normalize"
    names = ["nn(power(negative=signed))", *(f"lssvm(ridge={ridge},{change})" for ridge in (0.01, 0.1, 1))]
    losses, accuracies = {}, {}
    for name in names:
        logits = []
        for place in range(len(labels)):
            others = torch.arange(len(labels)) // 3 != place // 3  # one of each class leaves
            rows = features[others].double(), features[place : place + 1].double()
            episode = EpisodeFeatures(*rows, labels[others], base_mean=None if mean is None else mean.double())
            logits.append(parse_method(name).logits(episode))
        found = torch.cat(logits)
        temperature = fit_temperature(found, torch.eye(3, dtype=torch.float64)[labels])
        losses[name] = torch.nn.functional.cross_entropy(found / temperature, labels, reduction="none")
        accuracies[name] = (found.argmax(-1) == labels).double().mean().item()
    choice = choose_method(features, labels, names, mean)
    best = min(names, key=lambda name: losses[name].mean().item())
    gain = losses[names[0]] - losses[best]
    clearly = gain.mean() > gain.std() / len(gain) ** 0.5
    assert choice.method == (best if clearly else names[0])
    assert choice.expected is not None
    assert accuracies[choice.method] < choice.expected.accuracy < accuracies[choice.method] + 0.02
    assert choice.expected.low < choice.expected.accuracy < choice.expected.high


def test_features_that_ask_for_normalisation_get_it() -> None:
    """Of a class the direction tells, and the length, which is drawn widely, tells nothing."""
    generator = torch.Generator().manual_seed(0)
    features, labels = draw(1, shots=10)
    lengths = torch.exp(2 * torch.randn(len(labels), 1, generator=generator))
    assert "normalize" in choose_method(features * lengths, labels, ["nn", "lssvm", "rr", *CANDIDATES]).method


def test_the_accuracy_is_that_of_new_points() -> None:
    """Of 20 points per class; it is judged by the share of intervals that contain the accuracy on new points."""
    held = []
    for seed in range(40):
        features, labels = draw(seed, shots=120)
        choice = choose_method(features[:60], labels[:60], CANDIDATES)
        episode = EpisodeFeatures(features[:60], features[60:], labels[:60])
        accuracy = (parse_method(choice.method).logits(episode).argmax(-1) == labels[60:]).double().mean()
        assert choice.expected is not None
        held.append(choice.expected.low <= accuracy <= choice.expected.high)
    assert sum(held) >= 34


def test_one_point_a_class_leaves_nothing_to_judge() -> None:
    assert choose_method(torch.eye(3), torch.arange(3)) == ("lssvm(ridge=1,normalize)", None)


@pytest.mark.parametrize("ways", [2, 5, 50])
def test_at_chance_no_more_is_expected(ways: int) -> None:
    labels = torch.arange(ways).repeat(ways)
    found = expected_accuracy(torch.eye(ways)[torch.arange(ways).repeat_interleave(ways)], labels)
    assert found is not None
    assert found.accuracy == 1 / ways


@pytest.mark.parametrize(
    ("candidates", "said"),
    [
        ([], "nothing to choose from"),
        (["tim"], "cannot be judged by leaving out"),
        (["rr+psm"], "cannot be judged by leaving out"),
        (["svm"], "svm cannot be judged by leaving out its points"),
        (["nn(center)"], "pass base_mean"),
    ],
)
def test_candidates_that_cannot_be_judged_are_named(candidates: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        choose_method(*draw(0), candidates)


def test_points_of_a_choice_that_are_no_tensors_or_no_matrix_are_refused() -> None:
    features, labels = draw(0)
    for points, options, said in (
        (features.tolist(), {}, "The features must be a torch.Tensor, but got a list"),
        (features[None], {}, r"must be \(n, d\), but their shape is \(1, 18, 8\)"),
        (features * torch.nan, {}, "NaN"),
        (features, {"base_mean": [0.0] * 8}, "The base mean must be a torch.Tensor"),
        (features, {"groups": ["a"] * 18}, "The groups must be a torch.Tensor"),
        (features, {"groups": labels[:4]}, "a group for each of 18 points"),
    ):
        with pytest.raises(UsageError, match=said):
            choose_method(points, labels, **options)
    with pytest.raises(UsageError, match="at least 2 ways"):
        choose_method(features, 0 * labels)


def test_confusions_are_counted_in_both_directions() -> None:
    predicted = torch.tensor([0, 1, 1, 0, 2, 2, 1])
    labels = torch.tensor([0, 0, 0, 1, 2, 1, 2])
    found = confused_classes(torch.eye(3)[predicted], labels, "abc")
    assert list(map(structs.astuple, found)) == [("a", "b", 3), ("b", "c", 2)]
    assert confused_classes(torch.eye(3)[labels], labels, "abc") == []


def test_changed_labels_are_found_and_right_ones_are_not() -> None:
    features, labels = draw(0, shots=12, dim=20)
    features += 3 * torch.eye(3, 20)[labels]
    given = labels.clone()
    given[[4, 20]] = (labels[[4, 20]] + 1) % 3

    def odd(labels: Tensor) -> list:
        logits = left_out("lssvm(normalize)", EpisodeFeatures(features, features[:0], labels))
        targets = torch.eye(3, dtype=torch.float64)[labels]
        return odd_labels((logits / fit_temperature(logits, targets)).softmax(-1), labels, "abc", range(len(labels)))

    assert {(each.picture, each.looks_like) for each in odd(given)} == {(4, "abc"[labels[4]]), (20, "abc"[labels[20]])}
    assert odd(labels) == []


@pytest.mark.parametrize(
    ("signal", "ways", "shots", "changed", "accused", "found"),
    [
        (0.2, 5, 60, 0.0, 0.01, 0.0),
        (0.35, 20, 15, 0.0, 0.01, 0.0),
        (0.7, 5, 20, 0.05, 0.005, 0.5),
        (0.7, 20, 5, 0.1, 0.005, 0.4),
    ],
)
def test_right_labels_are_hardly_accused_and_wrong_ones_are_found(
    signal: float, ways: int, shots: int, changed: float, accused: float, found: float
) -> None:
    """The first two at 57 % accuracy."""
    generator = torch.Generator().manual_seed(0)
    right = torch.arange(ways).repeat_interleave(shots)
    wrong = torch.rand(20, len(right), generator=generator) < changed
    given = torch.where(wrong, (right + torch.randint(1, ways, wrong.shape, generator=generator)) % ways, right)
    means = signal * torch.randn(20, ways, 64, generator=generator)
    features = (means[:, right] + torch.randn(20, len(right), 64, generator=generator)).double()
    odd = torch.zeros_like(wrong)
    for place in range(20):
        logits = left_out(
            "lssvm(ridge=1,normalize)", EpisodeFeatures(features[place], features[place, :0], given[place])
        )
        targets = torch.eye(ways, dtype=torch.float64)[given[place]]
        likely = (logits / fit_temperature(logits, targets)).softmax(-1)
        names = range(len(right))
        odd[place, [each.picture for each in odd_labels(likely, given[place], range(ways), names)]] = True
    assert odd[~wrong].double().mean() <= accused
    assert not changed or odd[wrong].double().mean() >= found


def test_the_only_point_of_a_class_is_never_odd() -> None:
    likely = torch.tensor([[0.9, 0.1, 0.0], [0.9, 0.1, 0.0], [1.0, 0.0, 0.0]])
    assert odd_labels(likely, torch.tensor([0, 0, 2]), "abc", range(3)) == []


def test_duplicates_are_found_across_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    features, _ = draw(0)
    features[17] = 1.001 * features[2]
    features[9] = features[2] + 1e-4
    features[11] = 3 * features[2]
    for rows in (4, 1024):
        monkeypatch.setattr(inspection, "_ROWS", rows)
        assert list(near_duplicates(features, 0.01)) == [(2, [9, 17]), (9, [17])]
    assert list(near_duplicates(torch.zeros(3, 2), 0.01)) == []


def test_a_thousand_equal_pictures_are_no_list_of_half_a_million_pairs() -> None:
    pictures, features = [Picture(Path(f"{place}.png"), "owl") for place in range(1000)], torch.ones(1000, 2)
    tracemalloc.start()
    assert duplicates(pictures, features) == [pictures]
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()
    labels = ["owl"] * 10 + ["wren"] * 10
    lengths = torch.arange(1, 21).unsqueeze(-1)  # which say nothing of whether pictures are alike
    alike = expectations(
        FewShotClassifier("nn").fit((lengths * features[:20]).numpy(), labels, [*map(str, range(20))])
    ).alike
    assert alike == [(str(place), str(place + 1)) for place in range(19)]


def test_of_copies_with_a_corrected_label_the_first_is_taken() -> None:
    known, *new = (Picture(Path(name), label) for name, label in (("a", "owl"), ("b", "wren"), ("c", "wren")))
    assert corrections([known], new, torch.ones(3, 2)) == {0: new[0]}


def test_nothing_is_expected_where_a_class_has_one_point() -> None:
    """Left out, it leaves nothing of its class; the others, judged alone, would be far too sure."""
    assert expected_accuracy(torch.eye(3)[[0, 0, 1, 1, 2]], torch.tensor([0, 0, 1, 1, 2])) is None

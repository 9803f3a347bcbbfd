"""SimpleShot, BD-CSPN, LaplacianShot, PADDLE, PT-MAP and protoLP: published numbers, invariances, odd episodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fslstm_plugin.errors import UnknownNameError, UsageError
from fslstm_plugin.features import EpisodeFeatures
from fslstm_plugin.gram import EpisodeGram
from fslstm_plugin.heads import one_hot
from fslstm_plugin.methods.base import Method
from fslstm_plugin.methods.laplacian_shot import nearest_others
from fslstm_plugin.methods.proto_lp import balanced, principal_coordinates, propagated
from fslstm_plugin.methods.pt_map import centered_apart
from fslstm_plugin.methods.shared.prototypes import class_means, squared_distances
from fslstm_plugin.methods.shared.sinkhorn import sinkhorn
from fslstm_plugin.naming import parse_method

GOLDEN = np.load(Path(__file__).resolve().parents[1] / "golden" / "transductive.npz")
CASES = ("5way1shot", "5way5shot", "unbalanced", "onequery", "manyway")
NAMES = ("simpleshot", "bd-cspn", "laplacian-shot", "pt-map", "proto-lp", "paddle")
BALANCED = ("pt-map", "proto-lp")
every_method = pytest.mark.parametrize("name", NAMES)
# By their own tolerances rounding can change the number of sweeps, and so the plan by the tolerance.
EXACT_AND_BRIEF = (
    *NAMES[:3],
    "pt-map(iterations=5,tolerance=1e-10)",
    "proto-lp(iterations=5,tolerance=1e-10,balance_tolerance=1e-10)",
    "paddle(iterations=5)",
)
every_brief_method = pytest.mark.parametrize("name", EXACT_AND_BRIEF)
seeds = st.integers(0, 2**32 - 1)

# Method as typed; the array of the published numbers; from logits to what it holds.
softmax: Callable[[Tensor], Tensor] = lambda logits: logits.softmax(-1)  # noqa: E731
REFERENCES: list[tuple[str, str, Callable[[Tensor], Tensor]]] = [
    ("simpleshot", "simpleshot/distances", torch.neg),
    ("bd-cspn", "bdcspn/distances", torch.neg),
    ("bd-cspn(shifted=true)", "bdcspn_shifted/distances", torch.neg),
    ("laplacian-shot(weight={weight},iterations=0)", "laplacianshot/y0", softmax),
    ("laplacian-shot(weight={weight},iterations=1)", "laplacianshot/y1", softmax),
    ("laplacian-shot(weight={weight})", "laplacianshot/probabilities", softmax),
    ("laplacian-shot(weight={weight},rectify=false,iterations=0)", "laplacianshot_plain/y0", softmax),
    ("laplacian-shot(weight={weight},rectify=false)", "laplacianshot_plain/probabilities", softmax),
    # A plan's columns sum to 1 only to its tolerance, so not the softmax.
    ("pt-map(iterations=0)", "ptmap/plan_0", torch.exp),
    ("pt-map(iterations=1)", "ptmap/plan_1", torch.exp),
    ("pt-map", "ptmap/plan", torch.exp),
    ("proto-lp(iterations=0)", "protolp/plan_0", torch.exp),
    ("proto-lp(iterations=1)", "protolp/plan_1", torch.exp),
    ("proto-lp", "protolp/plan", torch.exp),
    ("paddle(iterations=1)", "paddle/probabilities_1", softmax),
    ("paddle(iterations=2)", "paddle/probabilities_2", softmax),
    ("paddle(iterations=5)", "paddle/probabilities_5", softmax),
    ("paddle", "paddle/probabilities", softmax),
]
PUBLISHED = [  # Some of the published code does not run with all sizes.
    pytest.param(case, *reference, id=f"{case}/{reference[1]}")
    for reference in REFERENCES
    for case in CASES
    if f"{case}/{reference[1]}" in GOLDEN
]


def golden(name: str) -> Tensor:
    return torch.from_numpy(GOLDEN[name])


def golden_features(case: str, dtype: torch.dtype) -> EpisodeFeatures:
    labels = golden(f"{case}/support_labels").long()
    support, query = golden(f"{case}/support").to(dtype), golden(f"{case}/query").to(dtype)
    return EpisodeFeatures(support, query, labels, base_mean=golden(f"{case}/base_mean").to(dtype))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.float64, 2e-7)])
@pytest.mark.parametrize(("case", "text", "array", "of_logits"), PUBLISHED)
def test_published_numbers(
    case: str, text: str, array: str, of_logits: Callable[[Tensor], Tensor], dtype: torch.dtype, tolerance: float
) -> None:
    text = text.format(weight=float(GOLDEN[f"{case}/laplacianshot/weight"]))
    logits = parse_method(text).logits(golden_features(case, dtype))
    expected = golden(f"{case}/{array}").double()
    torch.testing.assert_close(of_logits(logits), expected, rtol=0, atol=tolerance)
    prediction = f"{case}/{array.partition('/')[0]}/prediction"
    if "iterations" not in text:
        assert torch.equal(logits.argmax(-1), golden(prediction).long())


@pytest.mark.parametrize("case", [case for case in CASES if f"{case}/protolp/plan" in GOLDEN])
def test_published_propagation_of_the_first_epoch(case: str) -> None:
    features = golden_features(case, torch.float64)
    plan = parse_method("proto-lp(iterations=0)").logits(features).exp()
    labelled = features.targets.mT
    spread = balanced(propagated(torch.cat([labelled, plan.mT], -1), labelled), labelled, 1e-2)
    expected = golden(f"{case}/protolp/propagated_1").double()
    torch.testing.assert_close(spread.mT, expected, rtol=0, atol=2e-7)


def episodes(seed: int, counts: list[int], queries: list[int], batch: int = 3, dim: int = 48) -> EpisodeFeatures:
    """Episodes with these images per class in support and queries, in random order, in double precision."""
    draw = torch.Generator().manual_seed(seed)
    codes = torch.rand(batch, len(counts), dim, generator=draw, dtype=torch.float64)

    def points(labels: Tensor) -> Tensor:
        chosen = codes.gather(1, labels.unsqueeze(-1).expand(-1, -1, dim))
        return chosen + 0.7 * torch.rand(chosen.shape, generator=draw, dtype=torch.float64)

    def shuffled(numbers: list[int]) -> Tensor:
        labels = torch.arange(len(numbers)).repeat_interleave(torch.tensor(numbers))
        return torch.stack([labels[torch.randperm(len(labels), generator=draw)] for _ in range(batch)])

    labels = shuffled(counts)
    mean = codes.mean((0, 1)) + 0.35
    return EpisodeFeatures(points(labels), points(shuffled(queries)), labels, len(counts), base_mean=mean)


def chosen(features: EpisodeFeatures, **change: Tensor) -> EpisodeFeatures:
    """The same with other support, query or labels."""
    support, query = change.get("support", features.support), change.get("query", features.query)
    labels = change.get("labels", features.labels)
    return EpisodeFeatures(support, query, labels, features.ways, base_mean=features.base_mean)


sizes = st.lists(st.integers(1, 4), min_size=2, max_size=6)
# Shots of each class, and queries of each, at least two: a single one's plan is uniform, its prediction rounding.
shapes = sizes.flatmap(
    lambda shots: st.tuples(
        st.just(shots),
        st.lists(st.integers(0, 6), min_size=len(shots), max_size=len(shots)).filter(lambda queries: sum(queries) > 1),
    )
)


@every_brief_method
@settings(max_examples=8, deadline=None)
@given(seed=seeds, shape=shapes)
def test_a_batch_is_its_episodes_one_at_a_time(name: str, seed: int, shape: tuple[list[int], list[int]]) -> None:
    method, features = parse_method(name), episodes(seed, *shape)
    together = method.logits(features)
    assert together.shape == (3, sum(shape[1]), len(shape[0]))
    assert together.isfinite().all()
    for i in range(3):
        alone = chosen(features, support=features.support[i], query=features.query[i], labels=features.labels[i])
        torch.testing.assert_close(method.logits(alone), together[i], rtol=1e-7, atol=1e-8)


@every_brief_method
@settings(max_examples=8, deadline=None)
@given(seed=seeds, shape=shapes)
def test_queries_support_and_classes_in_another_order(name: str, seed: int, shape: tuple[list[int], list[int]]) -> None:
    method, features = parse_method(name), episodes(seed, *shape)
    draw = torch.Generator().manual_seed(seed)
    of_support, of_query, of_class = (
        torch.randperm(size, generator=draw) for size in (features.num_support, features.num_query, features.ways)
    )
    moved = chosen(
        features,
        support=features.support[:, of_support],
        query=features.query[:, of_query],
        labels=of_class[features.labels[:, of_support]],
    )
    expected = method.logits(features)[:, of_query]
    torch.testing.assert_close(method.logits(moved)[..., of_class], expected, rtol=1e-6, atol=1e-7)


@every_method
def test_any_leading_dimensions(name: str) -> None:
    method, features = parse_method(name), episodes(0, [2, 1, 3], [4, 0, 5], batch=6)
    expected = method.logits(features)
    split = [part.unflatten(0, (2, 3)) for part in (features.support, features.query, features.labels)]
    logits = method.logits(chosen(features, support=split[0], query=split[1], labels=split[2]))
    torch.testing.assert_close(logits, expected.unflatten(0, (2, 3)))


@every_method
@pytest.mark.parametrize("queries", [[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0], [2, 0, 0, 0], [0, 40, 0, 0]], ids=str)
@pytest.mark.parametrize("shots", [[1, 1, 1, 1], [1, 5, 2, 1]], ids=str)
def test_few_queries_and_absent_classes(name: str, queries: list[int], shots: list[int]) -> None:
    features = episodes(1, shots, queries)
    logits = parse_method(name).logits(features)
    assert logits.shape == (3, sum(queries), 4)
    assert logits.isfinite().all()
    if name in BALANCED:
        shares = torch.full((3, 4), sum(queries) / 4, dtype=torch.float64)
        torch.testing.assert_close(logits.exp().sum(-2), shares)
    features.forget()  # what adapters made of the features must not be the features themselves


@every_method
def test_equal_queries_get_equal_predictions(name: str) -> None:
    features = episodes(2, [2, 2, 2], [3, 3, 3])
    for query in (features.query[:, :1].expand(-1, 4, -1), torch.zeros_like(features.query)):
        logits = parse_method(name).logits(chosen(features, query=query))
        assert logits.isfinite().all()
        torch.testing.assert_close(logits, logits[:, :1].expand_as(logits), rtol=0, atol=1e-5)


@every_method
def test_support_points_that_are_all_the_same(name: str) -> None:
    features = episodes(3, [2, 2], [3, 3])
    logits = parse_method(name).logits(chosen(features, support=torch.ones_like(features.support)))
    assert logits.isfinite().all()


@every_method
def test_gradients(name: str) -> None:
    iterations = {"laplacian-shot": 3, "pt-map": 2, "proto-lp": 2, "paddle": 3}
    text = f"{name}(iterations={iterations[name]})" if name in iterations else name
    features = episodes(4, [1, 2, 1], [2, 1, 2], batch=2, dim=12)

    def logits(support: Tensor, query: Tensor) -> Tensor:
        return parse_method(text).logits(chosen(features, support=support, query=query))

    parts = [part.clone().requires_grad_() for part in (features.support, features.query)]
    assert torch.autograd.gradcheck(logits, parts, atol=1e-4, rtol=1e-3, fast_mode=True)


@every_method
def test_single_precision_and_half(name: str) -> None:
    features = episodes(5, [3, 3, 3], [9, 9, 9])
    expected = parse_method(name).logits(features).argmax(-1)
    for dtype, least in ((torch.float32, 0.99), (torch.float16, 0.9)):
        lower = [part.to(dtype) for part in (features.support, features.query)]
        logits = parse_method(name).logits(chosen(features, support=lower[0], query=lower[1]))
        assert logits.dtype == torch.float64
        assert (logits.argmax(-1) == expected).double().mean() >= least


def test_simpleshot_alone_is_inductive() -> None:
    found = {name: parse_method(name).is_transductive for name in NAMES}
    assert found == {name: name != "simpleshot" for name in NAMES}
    assert parse_method("simpleshot(center=episode)").is_transductive
    features = episodes(6, [2, 2], [4, 1])
    for text, changes in (("simpleshot", False), ("simpleshot(center=episode)", True)):
        method = parse_method(text)
        fewer = method.logits(chosen(features, query=features.query[:, :2]))
        assert torch.allclose(fewer, method.logits(features)[:, :2]) != changes


@settings(max_examples=25, deadline=None)
@given(seed=seeds, ways=st.integers(2, 6), num_query=st.integers(1, 12), count=st.integers(1, 9))
def test_sinkhorn_is_its_definition_in_each_episode(seed: int, ways: int, num_query: int, count: int) -> None:
    """Some episodes take many times as many sweeps as others."""
    draw = torch.Generator().manual_seed(seed)
    power = torch.randint(1, 7, (count, 1, 1), generator=draw)
    batch = torch.rand(count, ways, num_query, generator=draw, dtype=torch.float64) ** power + 1e-3
    sums = torch.rand(count, ways, generator=draw, dtype=torch.float64) + 0.2
    sums = sums * num_query / sums.sum(-1, keepdim=True)
    found = sinkhorn(batch, sums)
    assert torch.equal(found, torch.cat([sinkhorn(*each) for each in zip(batch.split(1), sums.split(1), strict=True)]))
    for plan, wanted, scaled in zip(batch, sums, found, strict=True):
        before = torch.zeros(num_query, dtype=torch.float64)
        for _ in range(1000):
            if (before - plan.sum(0)).abs().max() <= 1e-6:
                break
            before = plan.sum(0)
            plan = plan / before
            plan = plan * (wanted / plan.sum(1)).unsqueeze(1)
        torch.testing.assert_close(scaled, plan, rtol=1e-9, atol=1e-12)


def test_sinkhorn_is_differentiable_where_episodes_stop_apart() -> None:
    draw = torch.Generator().manual_seed(0)
    batch = torch.rand(2, 3, 2, 4, generator=draw, dtype=torch.float64) ** torch.tensor([1, 3, 9]).view(3, 1, 1) + 1e-3
    assert torch.autograd.gradcheck(lambda each: sinkhorn(each, 2.0, 1e-12), batch.requires_grad_())


def test_distances_to_combinations_are_those_of_the_features() -> None:
    torch.manual_seed(0)
    points, mix = torch.randn(2, 9, 5, dtype=torch.float64), torch.randn(2, 3, 9, dtype=torch.float64)
    expected = torch.cdist(mix @ points, points) ** 2
    torch.testing.assert_close(squared_distances(points @ points.mT, mix), expected)
    far = 1e4 + torch.randn(6, 4)
    assert (squared_distances(far @ far.mT, class_means(torch.eye(3).repeat(2, 1))) >= 0).all()


@pytest.mark.parametrize("num_query", [1, 2, 7])
def test_centering_apart_is_that_of_the_features(num_query: int) -> None:
    torch.manual_seed(0)
    support, query = (torch.nn.functional.normalize(torch.rand(2, n, 8).double(), dim=-1) for n in (4, num_query))
    found = centered_apart(EpisodeGram.from_features(support, query, transductive=True))
    moved = query - query.mean(-2, keepdim=True) if num_query > 1 else query
    points = torch.cat([support - support.mean(-2, keepdim=True), moved], -2)
    points = torch.nn.functional.normalize(points, dim=-1)
    torch.testing.assert_close(found, points @ points.mT)


@pytest.mark.parametrize("name", BALANCED)
def test_classes_far_from_the_origin_are_told_apart(name: str) -> None:
    features = episodes(7, [3, 3, 3], [9, 9, 9])
    expected = parse_method(name).logits(features).argmax(-1)
    far = chosen(features, support=features.support + 1e4, query=features.query + 1e4)
    assert (parse_method(name).logits(far).argmax(-1) == expected).double().mean() >= 0.99


@pytest.mark.parametrize(("num_points", "dim"), [(12, 20), (12, 4), (3, 20)])
def test_principal_coordinates_are_those_of_the_features(num_points: int, dim: int) -> None:
    torch.manual_seed(0)
    points = torch.randn(2, num_points, dim, dtype=torch.float64)
    _, _, directions = torch.linalg.svd(points, full_matrices=False)
    expected = points @ directions[:, :5].mT
    found = principal_coordinates(points @ points.mT, 5)
    torch.testing.assert_close(found @ found.mT, expected @ expected.mT)


def test_propagation_with_unequal_shots_is_its_formula() -> None:
    torch.manual_seed(0)
    targets = one_hot(torch.tensor([0, 1, 1, 1, 2, 2]), 3)
    known = torch.cat([targets, torch.rand(7, 3).double().softmax(-1)])
    laplacian = torch.eye(3) - known.mT @ known @ torch.diag(1 / known.sum(0))
    expected = known @ torch.linalg.inv(targets.mT @ targets + laplacian) @ targets.mT @ targets
    torch.testing.assert_close(propagated(known.mT, targets.mT).mT, expected)


@settings(max_examples=25, deadline=None)
@given(seed=seeds, num_points=st.integers(1, 9), count=st.integers(0, 12))
def test_nearest_others_are_those_of_the_features(seed: int, num_points: int, count: int) -> None:
    points = torch.rand(2, num_points, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    distances = torch.cdist(points, points) + torch.diag(torch.full((num_points,), torch.inf))
    expected = distances.argsort(-1)[..., : min(count, num_points - 1)]
    assert torch.equal(nearest_others(points @ points.mT, count), expected)


def test_a_bdcspn_class_without_points_keeps_its_mean() -> None:
    """Each point of the first class is nearer to the mean of another."""
    near, other = torch.tensor([0.99, 0.0, 0.14]), torch.tensor([0.0, 0.99, 0.14])
    support = torch.stack([torch.eye(3)[0], torch.eye(3)[1], near, other]).double()
    features = EpisodeFeatures(support, support[2:], torch.tensor([0, 0, 1, 2]))
    logits = parse_method("bd-cspn(center=none)").logits(features)
    assert logits.argmax(-1).tolist() == [1, 2]
    query = torch.nn.functional.normalize(support[2:], dim=-1)
    torch.testing.assert_close(-logits[:, 0], (query - support[:2].mean(0)).norm(dim=-1))


def test_the_same_preparation_is_done_once() -> None:
    features = episodes(7, [2, 2], [3, 3])
    assert parse_method("pt-map").prepare(features) is parse_method("proto-lp").prepare(features)
    assert parse_method("simpleshot").prepare(features) is parse_method("laplacian-shot").prepare(features)


def test_joined_batches() -> None:
    parts = [episodes(seed, [2, 1, 2], [3, 0, 4]) for seed in (8, 9)]
    for part in parts:
        part.base_mean = parts[0].base_mean
    for name in NAMES:
        method: Method = parse_method(name)
        expected = torch.cat([method.logits(part) for part in parts])
        torch.testing.assert_close(method.logits(EpisodeFeatures.join(parts)), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", BALANCED)
def test_negative_features_are_refused_or_signed(name: str) -> None:
    features = golden_features("5way5shot", torch.float32)
    support, query = (torch.where(part > 0, part, -0.02) for part in (features.support, features.query))
    leaky = chosen(features, support=support, query=query)
    with pytest.raises(
        UsageError, match=rf"^{name}: a power needs features that are not negative.* use negative=signed"
    ):
        parse_method(name).logits(leaky)
    plain = parse_method(name).logits(features).argmax(-1)
    assert torch.equal(parse_method(f"{name}(negative=signed)").logits(features).argmax(-1), plain)
    assert (parse_method(f"{name}(negative=signed)").logits(leaky).argmax(-1) == plain).double().mean() > 0.9


@pytest.mark.parametrize("name", ["simpleshot", "bd-cspn", "laplacian-shot"])
def test_centering_without_a_base_mean(name: str) -> None:
    known = episodes(10, [2, 2], [3, 3])
    features = EpisodeFeatures(known.support, known.query, known.labels)
    assert parse_method(name).needs_base_mean
    with pytest.raises(UsageError, match=r"center=base needs .* use center=episode"):
        parse_method(name).logits(features)
    for choice in ("episode", "none"):
        assert not parse_method(f"{name}(center={choice})").needs_base_mean
        assert parse_method(f"{name}(center={choice})").logits(features).isfinite().all()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("simpleshot(center=bse)", "Did you mean 'base'"),
        ("bd-cspn(temperature=0)", "temperature must be a finite number above 0"),
        ("laplacian-shot(weight=-0.1)", "weight must be a finite number of at least 0"),
        ("laplacian-shot(neighbours=0)", "neighbours must be a whole number of at least 1"),
        ("laplacian-shot(iterations=-1)", "iterations must be a whole number"),
        ("laplacian-shot(tolerance=0)", "tolerance must be a finite number above 0"),
        ("paddle(weight=inf)", "weight must be a finite number of at least 0"),
        ("paddle(iterations=0)", "iterations must be a whole number of at least 1"),
        ("pt-map(scale=0)", "scale must be a finite number above 0"),
        ("pt-map(step=1.5)", "step must be a finite number above 0 and at most 1"),
        ("pt-map(negative=clip)", "negative features 'clip'"),
        ("proto-lp(exponent=0)", "exponent must be a finite number above 0"),
        ("proto-lp(directions=0)", "directions must be a whole number of at least 1"),
        ("proto-lp(mixing=0)", "mixing must be a finite number above 0"),
        ("proto-lp(balance_tolerance=-1)", "balance_tolerance must be a finite number above 0"),
    ],
)
def test_arguments_outside_their_range(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        parse_method(text)


@pytest.mark.parametrize(
    "text",
    [
        "simpleshot(center=none)",
        "bd-cspn(temperature=30,shifted=true)",
        "laplacian-shot(weight=0.7,neighbours=5,rectify=false)",
        "paddle(weight=0.5,iterations=20)",
        "pt-map(scale=5,negative=signed)",
        "proto-lp(directions=20,mixing=0.7)",
    ],
)
def test_names_are_read_and_written(text: str) -> None:
    assert str(parse_method(text)) == text
    for variant in parse_method(text.partition("(")[0]).variants():
        assert str(parse_method(str(variant))) == str(variant)


def test_more_neighbours_than_queries_are_all() -> None:
    features = episodes(11, [2, 2, 2], [2, 2, 1])
    all_others = parse_method("laplacian-shot(neighbours=5)").logits(features)
    assert torch.equal(parse_method("laplacian-shot(neighbours=50)").logits(features), all_others)
    alone = chosen(features, query=features.query[:, :1])
    plain = parse_method("laplacian-shot(iterations=0)").logits(alone)
    torch.testing.assert_close(parse_method("laplacian-shot").logits(alone), plain)


def test_large_scales_give_numbers() -> None:
    """Of the likeness ``exp(-scale squared)`` nothing would be left of the far classes."""
    for name in BALANCED:
        logits = parse_method(f"{name}(scale=5000)").logits(episodes(12, [2, 2, 2], [5, 5, 5]))
        assert logits.isfinite().all()
        assert torch.equal(logits.argmax(-1).sort(-1).values[0], torch.tensor([0] * 5 + [1] * 5 + [2] * 5))


def test_unknown_method_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'pt-map'"):
        parse_method("ptmap")

"""Balanced pairwise affinities: the published numbers, and what must not change them."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from fslstm_plugin import EpisodeFeatures, parse_method
from fslstm_plugin.adapters import BalancedAffinities
from fslstm_plugin.data.sampler import EpisodeSampler
from fslstm_plugin.errors import UsageError
from fslstm_plugin.evaluation.runner import indexed, run_methods
from fslstm_plugin.heads import one_hot
from fslstm_plugin.naming import whole_methods
from fslstm_plugin.registry import ADAPTERS
from fslstm_plugin.testing import check_method

GOLDEN = np.load(Path(__file__).resolve().parents[1] / "golden" / "bpa.npz")
CASES = sorted({key.partition("/")[0] for key in GOLDEN})
# With what they have to be named behind bpa: no mean of the base classes, no feature below 0.
BEHIND = {  # Without the base classes' mean, and with few steps.
    **dict.fromkeys(("simpleshot", "bd-cspn", "laplacian-shot"), ",center=none"),
    **dict.fromkeys(("pt-map", "proto-lp", "paddle"), ",iterations=5"),
    "alpha-tim": ",steps=20",
}


def golden(case: str) -> tuple[EpisodeFeatures, BalancedAffinities, Tensor]:
    ways, shots, _, reg, iterations, scale = GOLDEN[f"{case}/settings"].tolist()
    points, labels = torch.from_numpy(GOLDEN[f"{case}/points"]), torch.arange(int(ways)).repeat_interleave(int(shots))
    features = EpisodeFeatures(points[: len(labels)], points[len(labels) :], labels)
    return features, BalancedAffinities(reg, int(iterations), bool(scale)), torch.from_numpy(GOLDEN[f"{case}/rows"])


def random_points(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def rows(points: Tensor, num_support: int = 3, **options) -> Tensor:
    labels = torch.arange(num_support).expand(*points.shape[:-2], -1)
    return (
        EpisodeFeatures(*points.tensor_split([num_support], -2), labels).adapted(BalancedAffinities(**options)).points
    )


@pytest.mark.parametrize("case", CASES)
def test_published_rows(case: str) -> None:
    features, bpa, expected = golden(case)
    torch.testing.assert_close(features.adapted(bpa).points, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(features.adapted(bpa).gram.support, (expected @ expected.mT)[: len(features.labels)][
        :, : len(features.labels)], rtol=0, atol=1e-5)  # fmt: skip


def test_an_episode_stands_alone_in_a_batch() -> None:
    points = random_points(2, 3, 11, 6)
    alone = torch.stack([torch.stack([rows(each) for each in some]) for some in points])
    torch.testing.assert_close(rows(points), alone)


@pytest.mark.parametrize("seed", range(5))
def test_permuted_points_get_permuted_rows(seed: int) -> None:
    """All points are treated alike, whichever of them are labelled."""
    points = random_points(12, 5, seed=seed)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(rows(points[order], 2 + seed), rows(points)[order][:, order])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"reg": 0.05, "iterations": 3},
        {"scale": False},
        {"iterations": 1},
        {"share": 0.5},
        {"share": 0.5, "exponent": 0.5},
    ],
)
def test_gradients(options: dict) -> None:
    assert torch.autograd.gradcheck(lambda points: rows(points, **options), random_points(2, 6, 4).requires_grad_())


@pytest.mark.parametrize("reg", [1e-6, 1e-3, 0.01, 0.2, 1e3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_are_finite_and_balanced_at_every_temperature(reg: float, dtype: torch.dtype) -> None:
    """A far point, equal points, a zero point, and an episode of 800."""
    points = random_points(800, 8, dtype=dtype)
    points[0], points[1], points[2] = -points[3:].mean(0), points[3], 0
    found = rows(points, reg=reg, scale=False)
    assert found.isfinite().all()
    sums = found.sum(-2) - 1  # the diagonal is 1
    torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-6)
    assert rows(points, reg=reg).isfinite().all()


@pytest.mark.parametrize(("share", "exponent"), [(0.3, 1.0), (0.7, 1.0), (0.7, 0.5)])
def test_a_share_keeps_the_features_beside_their_affinities(share: float, exponent: float) -> None:
    points = random_points(2, 9, 4)
    features = EpisodeFeatures(*points.tensor_split([3], -2), torch.arange(3))
    found = features.adapted(BalancedAffinities(share=share, exponent=exponent))
    own, others = points.sign() * (points.abs() + 1e-6 * (exponent != 1)) ** exponent, rows(points)
    cosines = [torch.nn.functional.cosine_similarity(x.unsqueeze(-2), x.unsqueeze(-3), dim=-1) for x in (own, others)]
    expected = (1 - share) * cosines[0] + share * cosines[1]
    torch.testing.assert_close(found.gram.whole, expected)
    torch.testing.assert_close(found.points @ found.points.mT, expected)
    torch.testing.assert_close(found.gram.query_norms, torch.ones(2, 6, dtype=torch.float64))
    assert found.gram.dim == found.points.shape[-1] == 4 + 9
    before = found.points
    features.release()
    assert torch.equal(found.points, before)


def test_nothing_is_kept_of_episodes_that_are_forgotten() -> None:
    features = EpisodeFeatures(random_points(3, 4), random_points(6, 4), torch.arange(3))
    found = weakref.ref(features.adapted(BalancedAffinities(share=0.5)).gram)
    gc.disable()
    try:
        features.forget()
        assert found() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("exponent", [1.0, 0.5])
def test_features_beside_affinities_are_not_kept_where_points_are_released(exponent: float) -> None:
    looked_up = []

    def look_up() -> Tensor:
        looked_up.append(points)
        return points

    points, targets = random_points(2, 9, 4), one_hot(torch.arange(3), 3).expand(2, -1, -1)
    features = EpisodeFeatures.looked_up(look_up, 6, targets)
    found = features.adapted(BalancedAffinities(share=0.5, exponent=exponent))
    for times in (1, 2, 3):
        assert found.points.shape == (2, 9, 4 + 9)
        assert len(looked_up) == times
        features.release()


def test_single_precision_is_nearly_double() -> None:
    points = random_points(2, 300, 64, dtype=torch.float32)
    torch.testing.assert_close(rows(points), rows(points.double()), rtol=0, atol=1e-5)


def test_it_says_what_it_is() -> None:
    bpa, iam = BalancedAffinities(), ADAPTERS.get("iam")
    assert bpa.is_transductive
    assert bpa.is_label_free
    assert not iam.is_label_free
    assert ADAPTERS.name_of(bpa) == "bpa"
    method = parse_method("lssvm(bpa(reg=0.2,iterations=10,scale=true),ridge=1,normalize)")
    assert str(method) == "lssvm(ridge=1,bpa,normalize)"
    assert [ADAPTERS.name_of(each) for each in method.adapters] == ["bpa", "normalize"]
    assert [ADAPTERS.name_of(each) for each in parse_method("rr(normalize,bpa=0.3)").adapters] == ["normalize", "bpa"]


@pytest.mark.parametrize("name", ["nn", "rr", "svm", "lssvm", *whole_methods()])
def test_every_head_and_method_works_behind_it(name: str) -> None:
    check_method(lambda: parse_method(f"{name}(bpa{BEHIND.get(name, '')})"))


@pytest.mark.parametrize(
    "name",
    [
        "lssvm(bpa,normalize)+psm",
        "rr(center=episode,bpa(reg=0.3),normalize)+can",
        "pt-map(exponent=1,iterations=5,bpa(reg=0.1,share=0.7,exponent=0.5))",
        "tim(solver=gd,steps=20,bpa(share=0.7))",
    ],
)
def test_refits_and_a_share_work_behind_it(name: str) -> None:
    check_method(lambda: parse_method(name))


def test_whole_methods_keep_their_adapters_in_their_name() -> None:
    method = parse_method("tim(bpa(reg=0.3),temperature=10)")
    assert str(method) == "tim(temperature=10,bpa=0.3)"
    assert method.adapter_texts == ("bpa=0.3",)
    assert "tim(temperature=20,bpa=0.1)" in method.variants()
    assert method.references == ("nn", "tim", "lssvm")


def test_tuning_chooses_the_temperature() -> None:
    found = parse_method("rr(bpa,normalize)+psm").variants()
    assert "rr(ridge=1,bpa=0.1,normalize)+psm" in found
    assert all(str(parse_method(name)) == name for name in found)
    assert all(str(parse_method(name)) == name for name in parse_method("rr(normalize)").variants())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nn(bpa(reg=0))", "reg must be"),
        ("nn(bpa(iterations=0))", "iterations must"),
        ("nn(bpa(share=0))", "share must be"),
        ("nn(bpa(share=1.1))", "share must be"),
        ("nn(bpa(exponent=0))", "exponent must be"),
        ("nn(bpa(exponent=0.5))", "exponent is of the features that a share below 1 keeps: give a share"),
        ("nn(bpa(scale=2))", "'scale' in .* must be true or false"),
        ("nn(bpa(rge=1))", "Did you mean 'reg'"),
        ("feat(bpa)", "'feat' in 'feat.bpa.' is trained on the backbone's own features"),
        ("tim(iam)", "has weights"),
        ("tim(bap)", "Did you mean 'bpa'"),
    ],
)
def test_wrong_names_are_one_sentence(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_method(name, dim=8)


@pytest.mark.parametrize(
    "name",
    ["nn(bpa,center)", "lssvm(bpa,normalize,center)+psm", "pt-map(bpa,center)"]
    + [f"{method}(bpa)" for method in ("simpleshot", "bd-cspn", "laplacian-shot")],
)
def test_a_mean_of_base_classes_behind_it_is_refused_as_a_name(name: str) -> None:
    with pytest.raises(UsageError, match=r"but the features that bpa makes have none: use center=episode, or leave"):
        parse_method(name)


def test_a_mean_of_base_classes_before_it_is_subtracted() -> None:
    points = random_points(8, 4)
    features = EpisodeFeatures(points[:2], points[2:], torch.arange(2), base_mean=points.mean(0))
    assert parse_method("nn(center,bpa)").logits(features).isfinite().all()
    assert parse_method("simpleshot(bpa,center=episode)").logits(features).isfinite().all()


@pytest.mark.parametrize(
    "names",
    [
        ("lssvm", "lssvm(bpa)"),
        ("lssvm", "lssvm(bpa)+psm"),
        ("lssvm", "lssvm(bpa)", "lssvm(bpa,normalize)"),
        ("lssvm", "lssvm(normalize)", "lssvm(normalize,bpa(share=0.5))"),
        ("lssvm", "pt-map(exponent=1)"),
        ("lssvm", "lssvm(power(exponent=1))", "pt-map(exponent=1)"),
        ("lssvm", "lssvm(center=episode,normalize)"),
    ],
)
def test_a_method_is_charged_what_it_is_made_of(names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same seconds alone and beside methods that share the Gram matrices, on a clock that counts products."""
    from fslstm_plugin.evaluation import devices

    seconds = {"now": 0.0}
    product = EpisodeFeatures._product

    def slow(self: EpisodeFeatures, whole: bool):
        seconds["now"] += 4.0 if whole else 1.0
        return product(self, whole)

    monkeypatch.setattr(EpisodeFeatures, "_product", slow)
    monkeypatch.setattr(devices.time, "perf_counter", lambda: seconds["now"])
    labels = torch.arange(20).repeat_interleave(20)
    source, sampler = indexed(random_points(400, 8, dtype=torch.float32)), EpisodeSampler(labels, 5, 2, 2, 0)
    (alone,) = run_methods(source, sampler, [parse_method(names[-1])], 1, workers=1)
    beside = run_methods(source, sampler, [parse_method(name) for name in names], 1, workers=1)
    assert alone.seconds == beside[-1].seconds > 0

"""The directions in which the base classes differ: what is stretched, by how much, and what it gains."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fslstm_plugin import EpisodeFeatures, FewShotClassifier, evaluate
from fslstm_plugin.adapters import Center, Stretch
from fslstm_plugin.data.root import load_split
from fslstm_plugin.errors import UsageError
from fslstm_plugin.evaluation.features import FeatureStore
from fslstm_plugin.evaluation.session import RunSession
from fslstm_plugin.naming import parse_method
from fslstm_plugin.runs.folder import Run
from fslstm_plugin.testing import check_method


def drawn(seed: int, classes: int, dim: int) -> tuple[EpisodeFeatures, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    support, query, means = (torch.randn(n, dim, generator=draw, dtype=torch.float64) for n in (4, 5, classes))
    return EpisodeFeatures(support, query, torch.tensor([0, 0, 1, 1]), base_mean=means), means


@settings(deadline=None)
@given(st.integers(0, 99), st.integers(2, 9), st.integers(2, 12), st.floats(0.05, 1), st.floats(1e-3, 1))
def test_each_direction_is_stretched_by_its_eigenvalue(seed, classes, dim, exponent, floor) -> None:
    """By a decomposition of the scatter of the means, a matrix as large as the features are long."""
    features, means = drawn(seed, classes, dim)
    found = Stretch(exponent, floor).adapt(features)
    less = means - means.mean(0)
    squares, vectors = torch.linalg.eigh(less.mT @ less)
    gains = (1 + squares.clamp(min=0) / (floor * squares[-1])) ** exponent
    expected = (features.points - means.mean(0)) @ (vectors * gains) @ vectors.mT
    torch.testing.assert_close(found.points, expected, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(found.gram.whole, expected @ expected.mT, rtol=1e-6, atol=1e-8)
    assert gains.max() <= (1 + 1 / floor) ** exponent + 1e-9


def test_only_its_own_directions_are_stretched_and_a_small_exponent_is_the_centre() -> None:
    features, means = drawn(0, 3, 8)
    less = means - means.mean(0)
    across = torch.linalg.qr(torch.cat([less[:2], torch.eye(8).double()]).mT).Q[:, 2:]
    points = features.points - means.mean(0)
    torch.testing.assert_close(Stretch().adapt(features).points @ across, points @ across)
    torch.testing.assert_close(Stretch(1e-12).adapt(features).points, Center().adapt(features).points)


def test_base_classes_that_are_one_point_stretch_nothing() -> None:
    features, means = drawn(0, 3, 8)
    alike = EpisodeFeatures(features.support, features.query, features.labels, base_mean=means[:1].expand(3, -1))
    torch.testing.assert_close(Stretch().adapt(alike).points, features.points - means[0])


@pytest.mark.parametrize("adapter", [Center(), Stretch()], ids=["center", "stretch"])
def test_means_in_half_precision_are_averaged_in_double(adapter: Center | Stretch) -> None:
    """Of many classes far from 0 an average in half precision would be off by more than what it is subtracted from."""
    features, means = drawn(0, 1000, 8)
    half = (means + 100).half()
    points = features.points + 100
    found, expected = (
        adapter.adapt(EpisodeFeatures(points[:4], points[4:], features.labels, base_mean=each)).points
        for each in (half, half.double())
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_it_is_an_adapter_as_others_are() -> None:
    check_method(lambda: parse_method("lssvm(ridge=1,stretch,normalize)"))
    method = parse_method("nn(stretch=0.3,normalize)")
    assert (method.adapters[0].exponent, str(method)) == (0.3, "nn(stretch=0.3,normalize)")
    assert not method.is_transductive
    with pytest.raises(UsageError, match="`exponent` must be a finite number above 0"):
        Stretch(0)


def test_it_gains_where_new_classes_differ_as_the_base_classes_do() -> None:
    """Class means in 8 of 64 directions, noise in all: stretched, one picture of a class says more."""
    draw = torch.Generator().manual_seed(0)
    axes = torch.linalg.qr(torch.randn(64, 64, generator=draw)).Q[:8]
    means = 1 + 1.5 * torch.randn(60, 8, generator=draw) @ axes
    labels = torch.arange(20).repeat_interleave(40)
    features = means[40:][labels] + 0.8 * torch.randn(800, 64, generator=draw)
    methods = ["nn(center,normalize)", "nn(stretch,normalize)"]
    without, stretched = evaluate(features, labels, methods, shots=1, episodes=300, base_mean=means[:40])
    assert stretched.accuracy > without.accuracy + 3
    for given_mean in (means[:40].mean(0), None):
        with pytest.raises(UsageError, match=r"of each base class, and there is none .* base_mean \(classes, d\)"):
            evaluate(features, labels, methods[1:], base_mean=given_mean)
    with pytest.raises(UsageError, match=r"must be of shape \(64,\) or \(classes, 64\)"):
        evaluate(features, labels, methods[1:], base_mean=means[None])


def test_a_run_knows_its_base_classes(succeed, data_root, tmp_path: Path) -> None:
    few = "--max-steps", 3, "--batch-size", 32
    succeed("pretrain", "--dataset", "dots", "--backbone", "tiny", *few, "--runs", tmp_path, "--name", "base")
    session = RunSession(
        Run.open(tmp_path / "base"), load_split("dots", "test", data_root), torch.device("cpu"), data_root=data_root
    )
    method, center = session.methods(["nn(stretch,normalize)", "nn(center,normalize)"])
    base = load_split("dots", "train", data_root)
    features = FeatureStore(session.model.backbone, None).features(base)
    expected = torch.stack([features[base.labels == each].mean(0) for each in range(len(base.class_names))])
    found = session.source([method]).base_mean
    torch.testing.assert_close(found, expected)
    assert [len(each) for each in session.by_pass([method, center])] == [1, 1]
    assert session.source([center]).base_mean.shape == expected[0].shape
    few = "--run", tmp_path / "base", "--ways", 2, "--shots", 1, "--queries", 3, "--episodes", 4
    succeed("tune", "nn(stretch,normalize)", *few)
    tried = {row["method"] for row in json.loads((tmp_path / "base" / "tuned.json").read_text())["rows"]}
    assert {f"nn(stretch={exponent},normalize)" for exponent in (0.05, 0.1, 0.2)} <= tried


def test_a_classifier_is_fitted_and_kept_with_them(tmp_path: Path) -> None:
    features, means = drawn(1, 3, 8)
    points, labels = features.support.numpy(), features.labels.numpy()
    made = FewShotClassifier("lssvm(ridge=1,stretch,normalize)", base_mean=means.numpy()).fit(points, labels)
    made.save(tmp_path / "m.fslstm")
    again = FewShotClassifier.load(tmp_path / "m.fslstm")
    assert np.array_equal(again.predict_proba(features.query.numpy()), made.predict_proba(features.query.numpy()))
    with pytest.raises(UsageError, match="or an array .classes, 8. of them"):
        FewShotClassifier("nn(stretch)", base_mean=means[:, :2].numpy()).fit(points, labels)
    with pytest.raises(UsageError, match=r"pass a base_mean of shape \(classes, d\)"):
        FewShotClassifier("nn(stretch)", base_mean=means[0].numpy()).fit(points, labels)

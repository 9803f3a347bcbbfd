"""TIM and alpha-TIM: published numbers, batches, invariances, odd episodes, gradients."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from fslstm_plugin.errors import UsageError
from fslstm_plugin.features import EpisodeFeatures
from fslstm_plugin.heads import one_hot
from fslstm_plugin.methods.alpha_tim import AlphaTIM
from fslstm_plugin.methods.tim import TIM
from fslstm_plugin.naming import parse_method

FOLDER = Path(__file__).resolve().parents[1] / "golden"
INPUTS, GOLDEN = np.load(FOLDER / "transductive.npz"), np.load(FOLDER / "transductive_tim.npz")
CASES = ("5way1shot", "5way5shot", "unbalanced", "onequery", "manyway")
NAMES = {"tim": "tim_adm", "tim(solver=gd)": "tim_gd", "alpha-tim": "alpha_tim"}
PUBLISHED = [
    (case, name, steps, key)
    for case in CASES
    for name, array in NAMES.items()
    for steps in (0, 1, 10, 100, None)
    if (key := f"{case}/{array}/probabilities" + ("" if steps is None else f"_{steps}")) in GOLDEN
]
QUICK = ("tim(steps=20)", "tim(solver=gd,steps=20)", "alpha-tim(steps=20)")


def golden(case: str, dtype: torch.dtype = torch.float32) -> EpisodeFeatures:
    support, query = (torch.from_numpy(INPUTS[f"{case}/{what}"]).to(dtype) for what in ("support", "query"))
    return EpisodeFeatures(support, query, torch.from_numpy(INPUTS[f"{case}/support_labels"]).long())


def episodes(seed: int, *leading: int, shots=(3, 3, 3), queries: int = 8, dim: int = 16):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(len(shots)).repeat_interleave(torch.tensor(shots))
    centres = torch.randn(*leading, len(shots), dim, generator=generator, dtype=torch.float64)
    noise = torch.randn(*leading, len(labels) + queries, dim, generator=generator, dtype=torch.float64)
    classes = torch.cat([labels, torch.arange(queries) % len(shots)])
    support, query = (centres[..., classes, :] + noise).split([len(labels), queries], -2)
    return support, query, labels


@pytest.mark.parametrize(("case", "name", "steps", "key"), PUBLISHED)
def test_published_probabilities(case, name, steps, key):
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.float64, 1e-6)):
        method = parse_method(name)
        if steps is not None:
            method.steps = steps
        logits = method.logits(golden(case, dtype))
        np.testing.assert_allclose(logits.softmax(-1), GOLDEN[key], atol=tolerance, rtol=0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", CASES)
def test_published_logits_and_predictions(case, name):
    logits = parse_method(name).logits(golden(case))
    np.testing.assert_allclose(logits, GOLDEN[f"{case}/{NAMES[name]}/logits"], atol=2e-3, rtol=0)
    np.testing.assert_array_equal(logits.argmax(-1), GOLDEN[f"{case}/{NAMES[name]}/prediction"])


@pytest.mark.parametrize("name", QUICK)
def test_a_batch_is_its_episodes_one_at_a_time(name, monkeypatch):
    monkeypatch.setattr(
        "fslstm_plugin.methods.shared.batches._CACHE", 2 * 17 * 16 * 8
    )  # 1 Gram matrix, or 8 times 17 points.
    method = parse_method(name)
    support, query, labels = episodes(0, 2, 6)
    together = method.logits(EpisodeFeatures(support, query, labels))
    assert together.shape == (2, 6, 8, 3)
    for i in range(2):
        for j in range(6):
            alone = method.logits(EpisodeFeatures(support[i, j], query[i, j], labels))
            torch.testing.assert_close(alone, together[i, j], atol=1e-9, rtol=0)


@pytest.mark.parametrize("name", QUICK)
def test_orders_of_queries_points_and_classes_do_not_matter(name):
    method = parse_method(name)
    support, query, labels = episodes(1, 4, shots=(1, 4, 2))
    logits = method.logits(EpisodeFeatures(support, query, labels))
    queries, points, classes = torch.randperm(8), torch.randperm(7), torch.tensor([2, 0, 1])
    mixed = EpisodeFeatures(support[:, points], query[:, queries], classes[labels[points]])
    torch.testing.assert_close(method.logits(mixed)[..., classes], logits[:, queries], atol=1e-8, rtol=0)


@pytest.mark.parametrize("scale", [1, 1e-3, 1e3])
@pytest.mark.parametrize("name", QUICK)
def test_lengths_of_features_do_not_matter(name, scale):
    method = parse_method(name)
    support, query, labels = episodes(2, 3)
    logits = method.logits(EpisodeFeatures(support, query, labels))
    torch.testing.assert_close(method.logits(EpisodeFeatures(scale * support, query, labels)), logits)


@pytest.mark.parametrize("queries", [0, 1, 2, 40])
@pytest.mark.parametrize("shots", [(1, 1, 1), (1, 6, 2), (5, 5)])
@pytest.mark.parametrize("name", QUICK)
def test_any_number_of_points(name, shots, queries):
    support, query, labels = episodes(3, 2, shots=shots, queries=queries)
    for features in (EpisodeFeatures(support, query, labels), EpisodeFeatures(support * 0, query * 0, labels)):
        logits = parse_method(name).logits(features)
        assert logits.shape == (2, queries, len(shots))
        assert logits.isfinite().all()


@pytest.mark.parametrize("name", ["tim", "tim(solver=gd,learning_rate=0.01)"])
def test_information_is_pulled_towards_equal_shares(name):
    """The queries are of one class only; TIM fills the others, the more the greater the weight of equal shares is."""
    support, query, labels = episodes(4, 20, queries=24)
    query = query[:, ::3]
    shares = []
    for weight in (0.0, 1.0):
        method = parse_method(name)
        method.marginal_weight = weight
        shares.append(method.logits(EpisodeFeatures(support, query, labels)).softmax(-1).mean((0, 1))[0])
    assert shares[0] > 0.8
    assert shares[1] < shares[0] - 0.2


def test_alpha_tim_fills_absent_classes_less_than_tim():
    case = "manyway"  # 5 of 20 classes have queries.
    wrong = {}
    for name in ("tim(solver=gd)", "alpha-tim"):
        predicted = parse_method(name).logits(golden(case)).argmax(-1)
        wrong[name] = len(predicted[0].unique())
    assert wrong["alpha-tim"] < wrong["tim(solver=gd)"]


def test_alpha_tim_at_one_query_is_the_cross_entropy_alone():
    support, query, labels = episodes(5, 3, queries=1)
    features = EpisodeFeatures(support, query, labels)
    without = AlphaTIM(steps=50, marginal_weight=0, conditional_weight=0).logits(features)
    torch.testing.assert_close(AlphaTIM(steps=50).logits(features), without)


@pytest.mark.parametrize(
    ("shots", "alpha"), [((1, 1), 2), ((1, 2), 2), ((2, 2), 5), ((1, 7), 5), ((4, 5), 5), ((5, 5), 7)]
)
def test_alpha_follows_the_mean_shots(shots, alpha):
    features = EpisodeFeatures(*episodes(6, 2, shots=shots))
    torch.testing.assert_close(AlphaTIM(steps=5).logits(features), AlphaTIM(alpha, steps=5).logits(features))
    other = AlphaTIM(alpha + 1, steps=5).logits(features)
    assert not torch.equal(AlphaTIM(steps=5).logits(features), other)


@pytest.mark.parametrize(
    "method",
    [
        TIM("gd", learning_rate=0.01),
        AlphaTIM(alpha=3.0, support_weight=0.5, conditional_weight=0.2, learning_rate=0.01),
    ],
)
def test_the_gradient_in_closed_form_is_the_derivative_of_the_loss(method):
    """Descended by automatic differentiation of the published loss, and PyTorch's own optimiser."""
    support, query, labels = episodes(7, 3)
    points = torch.nn.functional.normalize(torch.cat([support, query], -2), dim=-1)
    targets = one_hot(labels.expand(3, -1), 3)
    slope = method._slope if isinstance(method, TIM) else partial(method._slope, method.alpha)
    found = method._descend(slope, 30, points, targets)
    weights = torch.stack([points[:, :9][:, labels == c].mean(1) for c in range(3)], 1).requires_grad_()
    adam = torch.optim.Adam([weights], lr=0.01)
    logits = lambda: -7.5 * torch.cdist(points, weights).square()  # noqa: E731
    for _ in range(30):
        adam.zero_grad()
        loss(method, logits().log_softmax(-1), labels).backward()
        adam.step()
    torch.testing.assert_close(found, logits()[:, 9:].detach(), atol=1e-6, rtol=0)


def loss(method, log_p, labels):
    """As published, summed over the episodes."""
    query = log_p[:, 9:].exp()
    mean = query.mean(1)
    if isinstance(method, TIM):
        marginal, conditional = -(mean * mean.log()).sum(), -(query * log_p[:, 9:]).sum((0, 2)).mean()
    else:
        order = method.alpha - 1
        marginal = ((1 - mean.pow(method.alpha).sum(-1)) / order).sum()
        conditional = ((1 - query.pow(method.alpha).sum(-1)) / order).mean(1).sum()
    support = -log_p[:, torch.arange(9), labels].mean(1).sum()
    return method.support_weight * support - method.marginal_weight * marginal + method.conditional_weight * conditional


def test_gradient_of_adm():
    support, query, labels = episodes(8, 2, shots=(1, 2), queries=3, dim=4)
    method = TIM(steps=3)
    logits = lambda support, query: method.logits(EpisodeFeatures(support, query, labels))  # noqa: E731
    assert torch.autograd.gradcheck(logits, (support.requires_grad_(), query.requires_grad_()))


@pytest.mark.parametrize("name", QUICK)
def test_half_precision_and_autocast_keep_single(name):
    support, query, labels = episodes(9, 3)
    method = parse_method(name)
    with torch.autocast("cpu", torch.bfloat16):
        found = method.logits(EpisodeFeatures(support.bfloat16(), query.bfloat16(), labels))
    wanted = method.logits(EpisodeFeatures(support.bfloat16().float(), query.bfloat16().float(), labels))
    assert found.dtype in (torch.float32, torch.float64)
    torch.testing.assert_close(found, wanted, atol=0.2, rtol=0)  # Of unit vectors in bfloat16.


def test_names():
    for name in ("tim", "tim(solver=gd)", "tim(steps=150)", "alpha-tim(alpha=3)", "tim(temperature=10)"):
        assert str(parse_method(name)) == name
        assert parse_method(name).is_transductive
    assert (parse_method("tim").uses_gram, parse_method("tim(solver=gd)").uses_gram) == ("all", "none")
    assert str(parse_method("alpha-tim").variants()[0]) == "alpha-tim(alpha=1.5)"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("tim(solver=sgd)", "There is no solver of TIM 'sgd'"),
        ("tim(steps=-1)", "steps must be a whole number of at least 0"),
        ("tim(temperature=0)", "temperature must be a finite number above 0"),
        ("tim(support_weight=0)", "support_weight must be a finite number above 0"),
        ("tim(marginal_weight=-1)", "marginal_weight must be a finite number of at least 0"),
        ("tim(conditional_weight=nan)", "conditional_weight must be a finite number of at least 0"),
        ("tim(temprature=1)", "Did you mean 'temperature'"),
        ("alpha-tim(alpha=1)", "alpha must be a finite number above 1"),
        ("alpha-tim(learning_rate=inf)", "learning_rate must be a finite number above 0"),
        ("alpha-tim(steps=1.5)", "steps must be a whole number"),
    ],
)
def test_bad_arguments(name, says):
    with pytest.raises(UsageError, match=says):
        parse_method(name)

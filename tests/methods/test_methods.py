"""Names of methods, what methods share of an episode's features, adapters, and the model that holds a method."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from functools import partial
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fslstm_plugin import FewShotClassifier
from fslstm_plugin.adapters import Center, FeatureAdapter, InverseAttentionModule, Normalize, Power
from fslstm_plugin.arguments import build, options, options_of
from fslstm_plugin.backbones import Conv4
from fslstm_plugin.errors import UnknownNameError, UsageError
from fslstm_plugin.evaluation.evaluate import evaluate
from fslstm_plugin.evaluation.rows import Measured, reference
from fslstm_plugin.evaluation.runner import Outcome
from fslstm_plugin.features import EpisodeFeatures
from fslstm_plugin.gram import EpisodeGram
from fslstm_plugin.grammar import BARE, Part, parse, read_value
from fslstm_plugin.heads import LSSVMClassifier, PrototypeClassifier, RidgeClassifier
from fslstm_plugin.methods.base import Method
from fslstm_plugin.methods.kernel import KernelMethod
from fslstm_plugin.model import FewShotModel
from fslstm_plugin.naming import parse_method, whole_methods
from fslstm_plugin.registry import ADAPTERS, HEADS, METHODS, TRANSDUCTION
from fslstm_plugin.runs.configuration import PretrainConfig
from fslstm_plugin.runs.folder import Run
from fslstm_plugin.training.configuration import pretrain_config, train_config
from fslstm_plugin.transduction import CandidateSelection, PseudoSupportModule

DIM = 12


def episodes(seed: int = 0, batch: tuple[int, ...] = (), **options) -> EpisodeFeatures:
    """Three classes of 2, 1 and 3 shots in no order, 8 queries, features of at least 0 (float64)."""
    draw = torch.Generator().manual_seed(seed)
    support, query = (torch.rand(*batch, points, DIM, generator=draw, dtype=torch.float64) for points in (6, 8))
    return EpisodeFeatures(support, query, torch.tensor([2, 0, 2, 1, 0, 2]), 3, **options)


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-11)


# The grammar

words = st.from_regex(r"[a-z][a-z0-9_-]{0,8}", fullmatch=True).filter(lambda word: read_value(word) == word)
numbers = st.integers(-(10**9), 10**9) | st.floats(allow_nan=False)
values = numbers | st.booleans() | st.none() | words
named = st.dictionaries(words, values | st.just(BARE), max_size=3)
parts = st.builds(Part, words, named)
nested = st.tuples(parts, st.lists(parts.filter(lambda part: part.arguments), max_size=2)).map(
    lambda pair: Part(pair[0].name, {**pair[0].arguments, **{inner.name: inner for inner in pair[1]}})
)


@given(st.lists(nested, min_size=1, max_size=3))
@example([Part("a", {"b": -0.0})])
def test_what_is_written_is_read(found: list[Part]) -> None:
    text = "+".join(map(str, found))
    assert parse(text) == found
    assert "+".join(map(str, parse(text))) == text


@given(words, words, st.dictionaries(words, values, min_size=1, max_size=2))
def test_a_value_may_have_arguments_of_its_own(name: str, key: str, inner: dict[str, object]) -> None:
    value = str(Part("value", inner))
    assert parse(f"{name}({key}={value})") == [Part(name, {key: value})]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3), ("3.0", 3.0), ("1e-3", 0.001), ("-2", -2), ("inf", math.inf), ("true", True), ("False", False),
        ("none", None), ("loo", "loo"), ("one-vs-all", "one-vs-all"), ("", ""),
    ],
)  # fmt: skip
def test_values_are_read_as_what_they_look_like(text: str, value: object) -> None:
    assert (read_value(text), type(read_value(text))) == (value, type(value))


class Switched:
    def __init__(self, flag: bool = True, count: int = 3, word: str = "a", absent: int | None = None) -> None:
        self.flag, self.count, self.word, self.absent = flag, count, word, absent
        if count > 9:
            raise TypeError(f"{count} is more than ten fingers show.")


def switched(text: str) -> Switched:
    (part,) = parse(text)
    return build(Switched, part.arguments, text)


@pytest.mark.parametrize("text", ["switched(flag=false)", "switched(flag=False)", "switched( flag = FALSE )"])
def test_false_is_false(text: str) -> None:
    assert switched(text).flag is False
    assert options_of(switched(text)) == {"flag": False}


def test_a_bare_word_switches_on() -> None:
    assert switched("switched(flag)").flag is True
    assert options_of(switched("switched(flag,absent=2)")) == {"absent": 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("switched(count=10)", r"'switched\(count=10\)' is not valid: 10 is more than ten fingers show"),
        ("switched(flag=no)", "'flag' in .* must be true or false, but got no"),
        ("switched(flag=0)", "'flag' in .* must be true or false, but got 0"),
        ("switched(count)", "'count' in .* needs a value, as in count=3"),
        ("switched(count(x=1))", "'count' in .* needs a value, as in count=3"),
        ("switched(count=true)", "'count' in .* cannot be true"),
        ("switched(cuont=1)", "switched has no argument 'cuont'. Did you mean 'count'"),
    ],
)
def test_arguments_that_cannot_be_used_are_named(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        switched(text)


# Names of methods

heads = st.sampled_from(
    ["nn", "rr", "svm", "lssvm", "rr(ridge=1)", "svm(C=1)", "lssvm(ridge=loo)", "lssvm(ridge=10,coding=one-vs-one)",
     "nn(kernel=rbf(scale=0.1))", "lssvm(decoding=hamming,kernel=polynomial(degree=2,offset=0.5))"]
)  # fmt: skip
inside = st.lists(
    st.sampled_from(
        ["normalize", "center", "center=episode", "power", "power=0.3", "power(exponent=0.3,negative=signed)"]
    ),
    max_size=3, unique_by=lambda text: text.partition("=")[0].partition("(")[0],
)  # fmt: skip
learned = st.sampled_from(["", "+bn", "+iam", "+iam(reduction=4)", "+bn+iam(dropout=0.2)"])
refits = st.sampled_from(["", "+psm", "+psm(iterations=3)", "+can(fraction=0.5)", "+can(score=probability)"])


def with_inside(head: str, adapters: list[str]) -> str:
    if not adapters:
        return head
    return f"{head[:-1]},{','.join(adapters)})" if head.endswith(")") else f"{head}({','.join(adapters)})"


@settings(deadline=None)
@given(heads, inside, learned, refits)
def test_a_name_is_its_method_and_back(head: str, adapters: list[str], around: str, refit: str) -> None:
    text = with_inside(head, adapters) + around + refit
    method = parse_method(text, dim=DIM)
    assert str(method) == text
    assert method.is_transductive == bool(around or refit or "center=episode" in adapters)
    assert method.episode_statistics == ("+bn" in around)
    assert isinstance(method, KernelMethod)
    assert len(method.adapters) == len(adapters) + ("iam" in around)


@pytest.mark.parametrize("name", whole_methods())
def test_whole_methods_are_named_by_what_is_not_their_default(name: str) -> None:
    method = parse_method(name)
    assert str(method) == name
    assert not method.variants() or all(str(parse_method(each)) == each for each in method.variants())


def test_spaces_and_defaults_are_left_out() -> None:
    assert str(parse_method(" lssvm ( ridge = 0.1 , normalize ) + psm ( iterations = 10 ) ")) == "lssvm(normalize)+psm"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' must be a name"),
        ("lssvm+", r"'lssvm\+' must be a name, or names with '\+' between them"),
        ("lssvm(", r"parentheses in 'lssvm\(' do not match"),
        ("lssvm(ridge=1))", "parentheses in .* do not match"),
        ("lssvm(ridge=1)x", "must be a name"),
        ("ridge=1", "must be a name"),
        ("lssvm(=3)", "has an argument without a name"),
        ("lssvm(ridge=1,)", "has an argument without a name"),
        ("lssvm(ridge=1,ridge=2)", "has the argument 'ridge' twice"),
        ("lssvm(normalize,normalize)", "has the argument 'normalize' twice"),
        ("lsvm", "no method or head 'lsvm'. Did you mean 'lssvm'"),
        ("LSSVM", "no method or head 'LSSVM'. Did you mean 'lssvm'"),
        ("pt-mep", "Did you mean 'pt-map'"),
        ("lssvm(rige=1)", "lssvm has no argument 'rige'. Did you mean 'ridge'"),
        ("lssvm(normalise)", "lssvm has no argument 'normalise'. Did you mean 'normalize'"),
        ("psm", "transductive module: write it after a head, such as lssvm.psm"),
        ("bpa", r"feature adapter: write it within a head, such as lssvm\(bpa\)"),
        ("iam", r"feature adapter: write it after a head, such as lssvm\+iam"),
        ("lssvm(psm)", r"write it after the head: lssvm\+psm"),
        ("lssvm+soft-centroid", "no module .soft-centroid.(?!.*bpa)"),
        ("lssvm(labels=3)", "lssvm has no argument 'labels'"),
        ("lssvm(ridge)", "'ridge' in .* needs a value"),
        ("lssvm(ridge=)", "The argument 'ridge' needs a value"),
        (
            "tim(steps=true)",
            r"^tim\(steps=true\): steps must be a whole number of at least 0 and at most 1,000,000, but got True",
        ),
        ("bd-cspn(temperature=-1)", r"^bd-cspn\(temperature=-1\): temperature must be a finite number above 0"),
        ("rr(ridge=loo)", "ridge must be a finite number above 0, but got 'loo'"),
        ("lssvm(kernel=rbf(scael=1))", "Did you mean 'scale'"),
        ("lssvm(normalize=1)", "'normalize' in .* takes no value"),
        ("lssvm(center=foo)", "no mean to center by 'foo'. Known: base, episode"),
        ("lssvm(power(foo=1))", "power has no argument 'foo'"),
        ("lssvm(iam)", r"'iam' has weights: write it after the head, as in 'lssvm\+iam'"),
        ("rr+normalize", r"'normalize' belongs to the head's arguments: rr\(normalize\)"),
        ("lssvm+iamm", "no module 'iamm'. Did you mean 'iam'"),
        ("lssvm+iam+iam", "names 'iam' twice"),
        ("lssvm+bn+bn", "'bn' in .* takes no arguments and can be written only once"),
        ("lssvm+bn(x=1)", "'bn' in .* takes no arguments"),
        ("lssvm+psm+iam", "nothing can follow the transductive module"),
        ("lssvm+psm+can", "nothing can follow the transductive module"),
        (
            "lssvm+psm(iterations=1.5)",
            "iterations must be a whole number of at least 0 and at most 1,000,000, but got 1.5",
        ),
        ("lssvm+psm(iterations)", "'iterations' in .* needs a value"),
        ("lssvm+can(fraction=half)", "fraction must be a finite number above 0 and at most 1, but got 'half'"),
        ("lssvm+iam(dropout=much)", r"dropout must be a finite number of at least 0 and below 1, but got 'much'"),
        ("lssvm+iam(reduction=2.5)", "reduction must be a whole number of at least 1 and at most 12, but got 2.5"),
        ("tim+psm", r"'tim' in 'tim\+psm' is a whole method: nothing can be added"),
        ("nn(normalize(x=1))", "normalize has no argument 'x'. Known: none."),
        ("tim(stpes=3)", "tim has no argument 'stpes'. Did you mean 'steps'"),
    ],
)
def test_wrong_names_are_answered(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_method(text, dim=DIM)


def switches() -> Iterator[tuple[str, Callable[..., object]]]:
    """The Boolean arguments of constructors, with what takes the argument alone."""
    given = {"backbone": Conv4(image_size=32), "head": RidgeClassifier(), "dim": DIM}
    classes = [registry.get(name) for registry in (HEADS, ADAPTERS, TRANSDUCTION, METHODS) for name in registry.names()]
    for each in [*classes, KernelMethod]:
        needed = {name: given[name] for name in signature(each).parameters if name in given}
        for name, default in options(each).items():
            if isinstance(default, bool):
                yield name, partial(each, **needed)


@pytest.mark.parametrize("value", ["false", 2, None])
def test_what_is_neither_true_nor_false_is_refused_where_python_passes_it(value: object) -> None:
    found = dict(switches())
    assert {"scale", "rectify", "shifted", "power", "batch_statistics", "episode_statistics"} <= found.keys()
    for name, make in found.items():
        assert getattr(make(**{name: np.True_}), name) is True
        with pytest.raises(UsageError, match=f"^`{name}` must be true or false, but got {value!r}"):
            make(**{name: value})


@pytest.mark.parametrize("text", [3, None, b"lssvm", ["lssvm"]])
def test_a_name_that_is_no_text_is_refused(text: object) -> None:
    with pytest.raises(UsageError, match="name must be text such as 'lssvm.psm', but got "):
        parse_method(text)  # type: ignore[arg-type]


def test_weights_need_the_length_of_the_features_or_a_trained_method() -> None:
    with pytest.raises(UsageError, match="'iam' in 'lssvm.iam' has weights: pass dim"):
        parse_method("lssvm+iam")
    trained = parse_method("lssvm+iam(reduction=4)", dim=DIM)
    assert parse_method("lssvm(ridge=1)+iam+psm", learned=trained).adapters[0] is trained.adapters[0]
    for text in ("lssvm+iam", "lssvm+iam(reduction=4)", "lssvm+iam(dropout=0.5)"):
        assert parse_method(text, learned=trained).adapters[0] is trained.adapters[0]
    for text in ("rr+iam", "lssvm+iam(reduction=2)"):
        head, part = text.split("+")
        message = f"'{text}' needs {part} trained with {head}, which the run does not have: "
        with pytest.raises(UsageError, match=re.escape(f"{message}train one with 'fslstm train --algorithm {text}'.")):
            parse_method(text, learned=trained)
    with pytest.raises(UsageError, match="'lssvm.iam' needs iam trained with lssvm, which the run does not have: "):
        parse_method("lssvm+iam", learned=parse_method("lssvm"))
    with pytest.raises(UnknownNameError, match="Did you mean 'reduction'"):
        parse_method("lssvm+iam(reductoin=4)", learned=trained)


def test_weights_that_fit_serve_other_arguments_too() -> None:
    trained = parse_method("lssvm+iam(reduction=4)", dim=DIM)
    other = parse_method("lssvm+iam(dropout=0.1)", dim=DIM, learned=trained)
    assert str(other) == "lssvm+iam(reduction=4,dropout=0.1)"
    assert other.adapters[0] is not trained.adapters[0]
    close(other.eval().double().logits(episodes()), trained.eval().double().logits(episodes()))
    with pytest.raises(UsageError, match=r"needs iam\(reduction=2\) trained with lssvm"):
        parse_method("lssvm+iam(reduction=2)", dim=DIM, learned=trained)


def test_what_has_no_weights_is_what_its_name_says_whatever_was_trained() -> None:
    trained = parse_method("lssvm(ridge=10)+iam", dim=DIM)
    assert str(parse_method("lssvm+iam", learned=trained)) == "lssvm+iam"
    assert str(parse_method("tim", learned=parse_method("tim(steps=3)"))) == "tim"


# What methods share of an episode's features


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """One entry for each multiplication of features: whether with the queries' own block."""
    found: list[bool] = []
    multiply = EpisodeGram.from_points.__func__

    def counted(cls: type[EpisodeGram], points: Tensor, support_size: int, transductive: bool = False) -> EpisodeGram:
        found.append(transductive)
        return multiply(cls, points, support_size, transductive)

    monkeypatch.setattr(EpisodeGram, "from_points", classmethod(counted))
    return found


def test_features_are_multiplied_out_once_for_all_methods(products: list[bool]) -> None:
    features = episodes(batch=(2,))
    for name in ("lssvm+psm", "rr+can", "nn", "lssvm(normalize)", "rr(normalize)+psm", "lssvm(kernel=rbf)"):
        parse_method(name).logits(features)
    assert products == [True]
    for name in ("nn(center=episode)", "rr(center=episode)", "rr(center=episode,normalize)"):
        parse_method(name).logits(features)
    assert products == [True, False], "other features, and unit length follows from their products"
    parse_method("rr(power,center=episode)").logits(features)
    assert products == [True, False, False]


def test_the_queries_own_block_is_computed_for_those_alone_who_need_it(products: list[bool]) -> None:
    features = episodes()
    assert features.support_gram.query is None
    assert features.gram.query is not None
    close(features.support_gram.cross, features.gram.cross)
    assert products == [False, True]


def test_equal_adapters_share_their_features_and_others_do_not() -> None:
    features = episodes()
    assert features.adapted(Power()) is features.adapted(Power(0.5))
    assert features.adapted(Power()) is not features.adapted(Power(0.3))
    first, second = InverseAttentionModule(DIM).double().eval(), InverseAttentionModule(DIM).double().eval()
    assert features.adapted(first) is features.adapted(first)
    assert features.adapted(first) is not features.adapted(second), "their weights differ"


@pytest.mark.parametrize("name", ["lssvm+psm", "rr(center=episode,normalize)", "nn(center)", "tim", "simpleshot"])
def test_joined_features_give_what_their_parts_give(name: str) -> None:
    parts = [episodes(seed, (size,), base_mean=torch.full((DIM,), 0.4).double()) for seed, size in enumerate((1, 3))]
    method, joined = parse_method(name), EpisodeFeatures.join(parts)
    close(method.logits(joined), torch.cat([method.logits(part) for part in parts]))
    assert (joined.num_support, joined.num_query, joined.ways) == (6, 8, 3)
    assert EpisodeFeatures.join(parts[:1]) is parts[0]
    with pytest.raises(UsageError, match="no episodes to join: give at least one batch"):
        EpisodeFeatures.join([])


def test_joining_multiplies_nothing_again(products: list[bool]) -> None:
    parts = [episodes(seed, (2,)) for seed in range(2)]
    for part in parts:
        part.gram  # noqa: B018 - computed while the part lies in the cache
    parse_method("lssvm+psm").logits(EpisodeFeatures.join(parts))
    assert products == [True, True]


def test_points_need_no_second_copy_and_labels_follow_from_the_targets() -> None:
    features = episodes()
    again = EpisodeFeatures.from_points(features.points, features.targets)
    assert torch.equal(again.labels, torch.tensor([2, 0, 2, 1, 0, 2]))
    assert again.support.data_ptr() == features.points.data_ptr()
    close(again.gram.cross, features.gram.cross)


def test_maps_are_the_vectors_in_their_shape() -> None:
    features = episodes(batch=(2,), map_shape=(3, 2, 2))
    assert features.support_maps.shape == (2, 6, 3, 2, 2)
    assert torch.equal(features.query_maps.flatten(-3), features.query)
    with pytest.raises(UsageError, match="needs feature maps: use a backbone with a map_shape"):
        _ = episodes().support_maps


def test_the_base_mean_is_checked_and_asked_for() -> None:
    with pytest.raises(UsageError, match=r"feature vector \(12,\), or .* \(classes, 12\), but got \(3,\)"):
        episodes(base_mean=torch.zeros(3))
    with pytest.raises(UsageError, match="The base mean must be a torch.Tensor, but got a list"):
        episodes(base_mean=[0.0] * DIM)
    with pytest.raises(UsageError, match="base mean must be of real numbers, but got torch.complex64"):
        episodes(base_mean=torch.zeros(DIM, dtype=torch.complex64))
    with pytest.raises(UsageError, match="base mean holds NaN or infinite values"):
        episodes(base_mean=torch.full((DIM,), torch.nan))
    with pytest.raises(UsageError, match="pass base_mean, or use center=episode"):
        parse_method("nn(center)").logits(episodes())
    assert [parse_method(name).needs_base_mean for name in ("nn(center)", "nn(center=episode)")] == [True, False]


# Adapters

scales = st.floats(0.01, 100)
SHIFT = torch.linspace(-1, 1, DIM, dtype=torch.float64)


def changed(change: Callable[[Tensor], Tensor], seed: int = 0, **options) -> EpisodeFeatures:
    features = episodes(seed, **options)
    return EpisodeFeatures(change(features.support), change(features.query), features.labels, 3, **options)


@settings(deadline=None, max_examples=20)
@given(scales, st.integers(0, 1000))
def test_normalize_forgets_the_scale_of_every_point(scale: float, seed: int) -> None:
    lengths = torch.linspace(scale, 1, 6, dtype=torch.float64).unsqueeze(-1)
    scaled = changed(lambda points: points * (lengths if len(points) == 6 else scale), seed).adapted(Normalize())
    plain = episodes(seed).adapted(Normalize())
    close(scaled.points, plain.points)
    close(scaled.gram.query, plain.gram.query)


@pytest.mark.parametrize("adapter", [Normalize(), Center("episode"), Power()])
def test_adapters_compute_in_single_precision_at_least(adapter: FeatureAdapter) -> None:
    half = changed(lambda points: (3e4 * points.abs().clamp(1, 2)).half())
    single = EpisodeFeatures(half.support.float(), half.query.float(), half.labels, 3)
    assert half.support.float().norm(dim=-1).amin() > torch.finfo(torch.half).max
    assert torch.equal(half.adapted(adapter).points, single.adapted(adapter).points)


def test_normalize_gives_the_gram_matrix_of_its_features() -> None:
    features = episodes(batch=(2,)).adapted(Normalize())
    close(features.gram.cross, EpisodeGram.from_points(features.points, 6, True).cross)
    assert not features.has_own_product


@settings(deadline=None, max_examples=20)
@given(scales)
def test_centring_by_the_episode_forgets_where_it_lies(distance: float) -> None:
    centred = [changed(lambda points, d=d: points + d * SHIFT).adapted(Center("episode")) for d in (0, distance)]
    close(*(each.points for each in centred))
    close(centred[0].points.mean(-2), torch.zeros(DIM, dtype=torch.float64))


def test_negative_features_under_a_power_are_refused_by_the_methods_name() -> None:
    said = r"^rr\(power,normalize\): a power needs features that are not negative.* use negative=signed"
    with pytest.raises(UsageError, match=said):
        parse_method("rr(power,normalize)").logits(EpisodeFeatures(-torch.eye(2), torch.eye(2), torch.tensor([0, 1])))


def test_centring_by_the_base_mean_moves_every_point_alike() -> None:
    features = episodes(base_mean=SHIFT)
    close(features.adapted(Center()).points, features.points - SHIFT)
    assert not Center().is_transductive
    assert Center("episode").is_transductive


@settings(deadline=None, max_examples=20)
@given(st.floats(0.1, 3).filter(lambda exponent: exponent != 1))
def test_powers(exponent: float) -> None:
    features = episodes()
    close(features.adapted(Power(exponent)).points, (features.points + 1e-6) ** exponent)
    moved = changed(lambda points: points - 0.5)
    with pytest.raises(UsageError, match="power needs features that are not negative.*negative=signed"):
        moved.adapted(Power(exponent))
    signed = moved.adapted(Power(exponent, "signed")).points
    assert torch.equal(signed.sign(), moved.points.sign())
    close(changed(lambda points: 0.5 - points).adapted(Power(exponent, "signed")).points, -signed)


@pytest.mark.parametrize("negative", ["refuse", "signed"])
def test_the_power_1_leaves_features_as_they_are(negative: str) -> None:
    features = changed(lambda points: points - 0.5)
    same = features.adapted(Power(1, negative))
    assert torch.equal(same.points, features.points)
    assert same.gram is features.gram
    assert not same.has_own_product


def test_an_adapter_may_return_what_it_got() -> None:
    class Same(FeatureAdapter):
        def adapt(self, features: EpisodeFeatures) -> EpisodeFeatures:
            return features

    features = episodes()
    assert features.adapted(Same()) is features
    features.release()
    features.forget()


def test_adapters_apply_in_the_order_in_which_they_are_written() -> None:
    features = episodes()
    first, second = (KernelMethod(RidgeClassifier(), each) for each in ([Power(), Normalize()], [Normalize(), Power()]))
    close(first.prepare(features).points, nn.functional.normalize((features.points + 1e-6) ** 0.5, dim=-1))
    assert not torch.allclose(first.logits(features), second.logits(features))
    assert (str(first), str(second)) == ("rr(power,normalize)", "rr(normalize,power)")


# Kernel methods and their parts


@pytest.mark.parametrize("head", [LSSVMClassifier(), RidgeClassifier(), PrototypeClassifier()])
@pytest.mark.parametrize("module", [PseudoSupportModule(3), CandidateSelection()])
def test_a_kernel_method_is_its_parts_one_after_the_other(head, module) -> None:
    features = episodes(batch=(2,))
    iam = InverseAttentionModule(DIM).double().eval()
    adjusted = iam(features.support, features.labels, features.query, ways=3)
    close(
        KernelMethod(head, [iam], module).logits(features),
        module(head, adjusted, features.labels, features.query, ways=3),
    )
    close(KernelMethod(head).logits(features), head.fit_(features.support, features.labels, 3)(features.query))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (["lssvm"], "`head` must be an object of type Head, but got 'lssvm'"),
        ([RidgeClassifier], "`head` must be an object of type Head, but got <class"),
        (
            [RidgeClassifier(), ["normalize"]],
            r"`adapters\[0\]` must be an object of type FeatureAdapter, but got 'normalize'",
        ),
        ([RidgeClassifier(), [], "psm"], "`transduction` must be an object of type TransductiveModule, but got 'psm'"),
    ],
)
def test_what_is_no_part_of_a_kernel_method_is_refused(parts: list, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        KernelMethod(*parts)


def test_names_are_no_parts_of_a_model() -> None:
    with pytest.raises(UsageError, match="`method` must be an object of type Method, but got 'lssvm'"):
        FewShotModel(nn.Flatten(), "lssvm")
    with pytest.raises(UsageError, match="`backbone` must be an object of type Module, but got 'conv4'"):
        FewShotModel("conv4", KernelMethod(RidgeClassifier()))


@pytest.mark.parametrize("name", ["lssvm(normalize)", "lssvm(kernel=cosine)", "tim", "lssvm(bpa)"])
def test_a_zero_vector_has_a_derivative_of_the_size_of_the_others(name: str) -> None:
    draw = torch.Generator().manual_seed(0)
    support, query = (torch.rand(points, DIM, generator=draw, dtype=torch.float64) for points in (6, 8))
    support[0], query[0] = 0, 0
    leaves = support.requires_grad_(), query.requires_grad_()
    features = EpisodeFeatures(*leaves, torch.tensor([2, 0, 2, 1, 0, 2]))
    parse_method(name).logits(features).square().sum().backward()
    for each in leaves:
        assert each.grad[0].abs().max() <= each.grad[1:].abs().max(), each.grad[0]


def test_unit_length_is_the_same_of_points_and_of_their_gram_matrix() -> None:
    """Methods that need the points take another way to it; the third vector is short, but no zero."""
    points = torch.tensor([[0.0, 0.0], [3.0, 4.0], [1e-14, 0.0], [0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    prepared = parse_method("nn(normalize)").prepare(EpisodeFeatures(points[:2], points[2:], torch.arange(2)))
    close(prepared.gram.cross, prepared.query @ prepared.support.mT)
    close(prepared.points, torch.tensor([[0.0, 0.0], [0.6, 0.8], [1.0, 0.0], [0.0, 0.0]], dtype=torch.float64))
    prepared.points.sum().backward()
    assert (points.grad[[0, 3]] == 0).all()


def test_parts_with_parameters_train_move_and_are_saved() -> None:
    method = parse_method("lssvm+iam(reduction=4)", dim=DIM)
    loss, logits = method.loss(
        episodes(batch=(2,)), torch.zeros(2, 8, dtype=torch.int64), lambda x, y: x.square().sum()
    )
    loss.backward()
    assert logits.shape == (2, 8, 3)
    assert all(each.grad.isfinite().all() for each in method.parameters())
    assert {each.device.type for each in method.to("meta").parameters()} == {"meta"}
    assert {name.split(".")[0] for name in method.state_dict()} == {"adapters"}


def test_what_a_method_is_measured_against() -> None:
    expected = {
        "lssvm": (),
        "rr": ("lssvm",),
        "rr(ridge=1)": ("rr", "lssvm"),
        "rr+iam+psm": ("rr+iam", "rr"),
        "lssvm(normalize)+psm": ("lssvm(normalize)", "lssvm"),
        "rr(bpa,normalize)": ("rr(normalize)", "rr", "lssvm"),
        "rr(ridge=1,bpa)+psm": ("rr(ridge=1,bpa)", "rr(ridge=1)+psm", "rr"),
        "tim": ("nn", "lssvm"),
        "tim(steps=3)": ("nn", "tim", "lssvm"),
    }
    assert {name: parse_method(name, dim=DIM).references for name in expected} == expected


def test_a_head_of_other_constants_stands_in_for_the_plain_one() -> None:
    names = ["tim", "nn(normalize)+psm", "nn(center=episode)", "rr+psm", "lssvm", "nn+psm", "nn"]
    names += ["rr(ridge=1)", "rr(ridge=10)"]
    zeros = torch.zeros(2)
    rows = [Measured("a", "conv4", Outcome(parse_method(name), zeros, zeros, 0.0)) for name in names]

    def found(*chosen: str) -> list[str | None]:
        mine = [each for each in rows if str(each.method) in chosen]
        others = [reference(each, mine) for each in mine]
        return [None if other is None else str(other.method) for other in others]

    assert found("tim", "nn(center=episode)", "lssvm") == ["nn(center=episode)", "lssvm", None]
    assert found("tim", "nn(center=episode)", "nn") == ["nn", "nn", None]
    assert found("nn(normalize)+psm", "nn(center=episode)") == ["nn(center=episode)", None]
    assert found("rr+psm", "nn+psm", "nn") == [None, "nn", None]
    assert found("rr(ridge=1)", "rr(ridge=10)") == [None, None], "no two are measured against each other"


def test_tuning_tries_arguments_and_changes_of_the_features() -> None:
    names = parse_method("rr(ridge=1)+psm").variants()
    assert "rr(ridge=10,center,normalize)+psm" in names
    assert "rr(ridge=1,normalize)+psm" in names
    assert "rr(normalize)+psm" not in names, "50, the default, is no candidate"
    assert "rr(ridge=1)+psm" not in names
    assert len(set(names)) == len(names)


class Weighted(FeatureAdapter):
    """Weights without sizes: they could not be told from an adapter that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def adapt(self, features: EpisodeFeatures) -> EpisodeFeatures:
        return features.derived(lambda points: points * self.weight)


@pytest.fixture
def weighted() -> Iterator[None]:
    ADAPTERS.register("weighted", Weighted)
    yield
    ADAPTERS.forget("weighted")


@pytest.mark.usefixtures("weighted")
@pytest.mark.parametrize("name", ["nn(weighted)", "nn(weighted())"])
def test_an_adapter_with_weights_must_say_which_sizes_they_need(name: str) -> None:
    with pytest.raises(UsageError, match="adapter 'weighted' has weights: its class must say which sizes"):
        parse_method(name)


class Shifted(FeatureAdapter):
    """Changes features in a way that no key tells apart, but for its weights."""

    sizes = ("dim",)

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(dim))

    def adapt(self, features: EpisodeFeatures) -> EpisodeFeatures:
        return features.derived(lambda points: points + self.shift)


def test_a_change_of_weights_is_seen_in_new_features() -> None:
    method = KernelMethod(PrototypeClassifier(), [Shifted(DIM)])
    before = method.prepare(episodes()).points
    method.adapters[0].shift.data += 1
    close(method.prepare(episodes()).points, before + 1)


# The model


@pytest.fixture
def trained_run(tmp_path: Path) -> Run:
    """A run as a training leaves it."""
    run = Run(tmp_path / "run", train_config("dots", "tiny", "lssvm+iam(reduction=4)", precision="32"))
    run.create()
    model = FewShotModel.from_backbone("tiny", "lssvm+iam(reduction=4)", 32)
    model.scale.data.fill_(3.0)
    run.save_weights(model)
    return run


def test_a_run_gives_back_its_model(trained_run: Run) -> None:
    model = FewShotModel.from_run(trained_run.path)
    saved = trained_run.load_weights()
    assert not model.training
    assert model.scale == 3
    assert str(model.method) == "lssvm+iam(reduction=4)"
    assert model.state_dict().keys() == saved.keys()
    assert all(torch.equal(value, saved[name]) for name, value in model.state_dict().items())
    assert {name.split(".")[0] for name in saved} == {"backbone", "method", "scale"}


def test_the_runs_parts_serve_every_method_that_can_use_them(trained_run: Run) -> None:
    model = FewShotModel.from_run(trained_run)
    for name in ("lssvm(ridge=1)+iam", "lssvm+iam+psm", "lssvm+bn+iam"):
        assert model.method_of(name).adapters[0] is model.method.adapters[0]
    assert not list(model.method_of("rr+psm").parameters())
    with pytest.raises(UsageError, match="'rr.iam' needs iam trained with rr, which the run does not have"):
        model.method_of("rr+iam")
    with pytest.raises(UnknownNameError, match="Did you mean 'psm'"):
        model.method_of("lssvm+iam+psn")


def test_a_pretrained_run_gives_a_backbone_with_the_papers_head(tmp_path: Path) -> None:
    run = Run(tmp_path / "base", pretrain_config("tiny", dataset="dots", precision="32"))
    assert isinstance(run.config, PretrainConfig)
    run.create()
    saved = FewShotModel.from_backbone("tiny", "lssvm", 32)
    run.save_weights(saved)
    model = FewShotModel.from_run(run)
    assert str(model.method) == "lssvm"
    images = torch.rand(2, 3, 32, 32)
    close(model.embed(images), saved.eval().embed(images))


def test_features_of_a_backbone_in_bfloat16_are_given_to_methods_in_single_precision() -> None:
    model = FewShotModel(nn.Flatten().bfloat16(), parse_method("nn"))
    assert model.embed(torch.rand(2, 3, 4, 4).bfloat16()).dtype == torch.float32
    assert model.embed(torch.rand(2, 3, 4, 4).double()).dtype == torch.float64


def test_logits_are_scaled_and_never_in_reduced_precision() -> None:
    model = FewShotModel.from_backbone("conv4", "lssvm+psm", image_size=32).eval()
    model.scale.data.fill_(2.0)
    assert model.map_shape == (512, 2, 2)
    features = model.embed(torch.rand(10, 3, 32, 32)).detach()
    episode = EpisodeFeatures(features[:4], features[4:], torch.tensor([0, 1, 0, 1]), map_shape=model.map_shape)
    expected = 2 * model.method.logits(episode)
    with torch.autocast("cpu", torch.bfloat16):
        close(model.logits(episode), expected)


def test_the_loss_is_the_criterion_of_the_scaled_logits() -> None:
    model = FewShotModel(nn.Identity(), parse_method("rr"))
    model.scale.data.fill_(2.0)
    labels = torch.zeros(2, 8, dtype=torch.int64)
    loss, logits = model.loss(episodes(batch=(2,)), labels, nn.CrossEntropyLoss())
    close(loss, nn.functional.cross_entropy((2 * logits).flatten(0, 1).float(), labels.flatten()))
    loss.backward()
    assert model.scale.grad.isfinite()


def test_a_backbone_that_does_not_say_its_size_can_have_methods_without_weights_alone() -> None:
    assert str(FewShotModel.from_backbone(nn.Flatten(), "rr+psm").method) == "rr+psm"
    with pytest.raises(UsageError, match="'iam' in 'rr.iam' has weights: the backbone Flatten needs an attribute"):
        FewShotModel.from_backbone(nn.Flatten(), "rr+iam")
    odd = nn.Flatten()
    odd.out_features = "many"
    with pytest.raises(UsageError, match="out_features of Flatten must be a whole number, but is 'many'"):
        FewShotModel.from_backbone(odd, "rr")


def test_a_backbone_that_gives_maps_is_named() -> None:
    model = FewShotModel.from_backbone(nn.Identity(), "rr")
    for embed in (model.embed, model.embedding_of(model.method)):
        with pytest.raises(UsageError, match=r"Identity must give vectors \(batch, d\) but gave \(2, 3, 4, 4\)"):
            embed(torch.ones(2, 3, 4, 4))


def test_a_models_parts_move_together(trained_run: Run) -> None:
    model = FewShotModel.from_run(trained_run).to("meta")
    tensors = [*model.parameters(), *model.buffers(), *model.method_of("lssvm+iam+psm").parameters()]
    assert {each.device.type for each in tensors} == {"meta"}


def test_a_method_says_what_it_is() -> None:
    class Even(Method):
        is_transductive = False

        def logits(self, features: EpisodeFeatures) -> Tensor:
            return features.query[..., : features.ways] * 0

    assert str(Even()) == "Even"
    assert Even().module_names == ()
    assert (Even().uses_gram, Even().episode_statistics, Even().needs_base_mean) == ("none", False, False)


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        (lambda logits: None, "a NoneType"),
        (lambda logits: [logits], "a list"),
        (lambda logits: logits[..., :2], r"torch.float\d\d \(\d+, \d+, 2\)"),
        (lambda logits: logits.sum(-1), r"torch.float\d\d \(\d+, \d+\)"),
        (lambda logits: logits.argmax(-1), r"torch.int64 \(\d+, \d+\)"),
        (lambda logits: logits > 0, r"torch.bool \(\d+, \d+, 3\)"),
    ],
)
def test_logits_of_a_wrong_shape_or_type_are_named(wrong: Callable[[Tensor], object], found: str) -> None:
    class Wrong(Method):
        is_transductive = False

        def logits(self, features):
            return wrong(features.query @ features.support.mT @ features.targets.to(features.query))

    labels = torch.arange(30) % 3
    episode = EpisodeFeatures(torch.rand(2, 3, 8), torch.rand(2, 6, 8), labels[:3])
    model = FewShotModel(torch.nn.Identity(), Wrong())
    for use in (
        lambda: evaluate(torch.rand(30, 8), labels, [Wrong()], ways=3, queries=2, episodes=2),
        lambda: model.logits(episode),
        lambda: model.loss(episode, labels[:6].expand(2, -1), torch.nn.functional.cross_entropy),
        lambda: FewShotClassifier(Wrong()).fit(torch.rand(30, 8).numpy(), labels.numpy()),
    ):
        with pytest.raises(UsageError, match=rf"Wrong must give floating-point logits .*, but gave {found}: see "):
            use()

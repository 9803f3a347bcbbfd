"""What every head and every method must do, as checks for the tests of new ones.

Each check raises an `AssertionError` whose sentence says what does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from typing import NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.gradcheck import GradcheckError

from .errors import UsageError
from .features import EpisodeFeatures
from .gram import EpisodeGram
from .heads import Dual, Head, one_hot
from .methods.base import Method
from .naming import has_weights, parse_method

Part = TypeVar("Part", Head, Method)

_SHOTS = 3 * ((3, 1, 2), (1, 1, 1), (2, 5, 1))  # Of each class, in successive episodes.
_DIM, _QUERIES, _WAYS = 12, 7, 3
_MAP = (3, 2, 2)


class SmallEpisodes(NamedTuple):
    """A batch of episodes in double precision, the classes in no order."""

    support: Tensor
    labels: Tensor
    query: Tensor


Answer = Callable[[SmallEpisodes], Tensor]  # Its logits ``(..., m, ways)``.


class Tied(NamedTuple):
    """The only shape of episodes that a method can take."""

    shots: tuple[int, int, int]  # Support points of each of 3 classes.
    queries: int  # Of an episode.


class SmallBackbone(nn.Module):
    """The sizes of what `check_method` calls features, for methods that ask for a backbone; it computes nothing."""

    out_features = _DIM
    map_shape = _MAP
    map_channels = _MAP[0]
    widths = (1, 1, 2, 3)
    image_size = 32

    def stages(self, images: Tensor) -> list[Tensor]:
        """Not called."""
        raise NotImplementedError


@contextmanager
def _on_cpu() -> Iterator[None]:
    """What is made is on the CPU, whose generators draw the episodes, whatever the default device is."""
    with torch.device("cpu"):
        yield


def small_episodes(
    seed: int, shots: tuple[int, ...] = _SHOTS[0], batch: tuple[int, ...] = (), queries: int = _QUERIES
) -> SmallEpisodes:
    """Classes that overlap a little, in more dimensions than points.

    Args:
        seed: Seed of the draw.
        shots: Support points of each class.
        batch: Leading dimensions; every episode has an order of labels of its own.
        queries: Number of queries.

    Example:
        >>> [tuple(each.shape) for each in small_episodes(0, (1, 2), (4,))]
        [(4, 3, 12), (4, 3), (4, 7, 12)]
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*batch, *shape, generator=generator, dtype=torch.float64)

    labels = torch.repeat_interleave(torch.arange(len(shots)), torch.tensor(shots)).expand(*batch, -1)
    labels = labels.gather(-1, normal(labels.shape[-1]).argsort(-1))
    centres = normal(len(shots), _DIM).gather(-2, labels.unsqueeze(-1).expand(*labels.shape, _DIM))
    return SmallEpisodes(centres + normal(*centres.shape[-2:]), labels, 2 * normal(queries, _DIM))


@_on_cpu()
def check_head(make: Callable[[], Head]) -> None:
    """Check that a head keeps the contract of `Head`, on which modules, training and evaluation rely.

    A batch gives what its episodes give alone; the order of support points, queries and classes does not matter; a
    point of weight w stands for w equal ones, and one of weight 0 for none; classes may have different numbers of
    points; queries of single and half precision get nearly the logits of double; the gradient is that of the logits;
    what ``state_dict`` saves predicts alike when loaded; and what `Head.solve` is given stays as it is. All is computed
    on the CPU.

    Args:
        make: Makes a new head that is not fitted, in the setting to check. A head that iterates must be as accurate as
            a difference quotient demands.

    Raises:
        AssertionError: Naming the first requirement that does not hold.

    Example:
        >>> from fslstm_plugin.heads import Dual, RidgeClassifier
        >>> check_head(RidgeClassifier)
        >>> class Counting(Head):
        ...     def solve(self, kernel, targets):
        ...         present = (targets > 0).to(targets)
        ...         return Dual(present, -present.sum(-2))
        >>> check_head(Counting)
        Traceback (most recent call last):
        ...
        AssertionError: Counting: a support point of weight w must stand for w equal ones, ...
    """
    head = _new(make, Head).eval()
    name = type(head).__name__
    _check_dual(name, head)

    def answer(episodes: SmallEpisodes) -> Tensor:
        return head.fit_(episodes.support, episodes.labels, _WAYS)(episodes.query)

    for seed, shots in enumerate(_SHOTS):
        _check_order(name, answer, small_episodes(seed, shots), seed)
        _check_weights(name, head, seed, shots)
    batch = small_episodes(4, batch=(2, 3))
    _check_batch(name, answer, batch)
    first = batch.labels[0, 0]
    for_all, each = (answer(batch._replace(labels=labels)) for labels in (first, first.expand_as(batch.labels)))
    _same(name, "labels (n,) must be those of every episode", for_all, each)
    _check_precisions(name, answer)
    _check_state(name, head, make)
    head.double()
    _check_gradients(name, answer)


def _new(make: Callable[[], Part], kind: type) -> Part:
    """What is checked, once it is clear that it can be made again and again."""
    word = kind.__name__
    is_maker = callable(make) and not isinstance(make, nn.Module)
    assert is_maker, f"What is checked must make a new {word}, as its class does, but is a {type(make).__name__}."
    part = make()
    assert isinstance(part, kind), f"What is checked must be a {word}, but got a {type(part).__name__}."
    assert "_parameters" in vars(part), f"{type(part).__name__}: __init__ must call super().__init__() first."
    assert make() is not part, f"What is checked must make a new {word} each time, but gave the same one again."
    return part


def _check_dual(name: str, head: Head) -> None:
    support, labels, query = small_episodes(0)
    gram, targets = EpisodeGram.from_features(support, query), one_hot(labels, _WAYS)
    before = gram.support.clone(), targets.clone()
    dual = head.learn(gram, targets)
    assert isinstance(dual, Dual), f"{name}: solve must give a Dual, but gave a {type(dual).__name__}."
    for what, each, shape in (("alpha", dual.alpha, targets.shape), ("bias", dual.bias, targets.shape[-1:])):
        found = tuple(each.shape) if isinstance(each, Tensor) else type(each).__name__
        assert found == shape, f"{name}: solve must give {what} of the shape {tuple(shape)}, but gave {found}."
    unchanged = all(map(torch.equal, (gram.support, targets), before))
    assert unchanged, f"{name}: solve must not change the kernel or the targets, which other heads are given too."


def _check_logits(name: str, logits: object, shape: tuple[int, ...]) -> None:
    assert isinstance(logits, Tensor), f"{name}: logits must be a tensor, but got a {type(logits).__name__}."
    assert logits.shape == shape, f"{name}: logits must have the shape {shape}, but got {tuple(logits.shape)}."
    assert logits.is_floating_point(), f"{name}: logits must be floating-point numbers, but got {logits.dtype}."


def _check_order(name: str, answer: Answer, episodes: SmallEpisodes, seed: int, classes_are_alike: bool = True) -> None:
    """Of one episode: shape and repetition, and that nothing depends on the order of anything."""
    support, labels, query = episodes
    logits = answer(episodes)
    _check_logits(name, logits, (len(query), _WAYS))
    assert logits.isfinite().all(), f"{name}: logits must be finite."
    _same(name, "the same episode must get the same logits again", answer(episodes), logits, 0)
    generator = torch.Generator().manual_seed(seed)
    points, queries, classes = (torch.randperm(size, generator=generator) for size in (len(labels), len(query), _WAYS))
    moved = answer(SmallEpisodes(support[points], labels[points], query))
    _same(name, "the order of the support points must not matter", moved, logits)
    moved = answer(SmallEpisodes(support, labels, query[queries]))
    _same(name, "queries in another order must get the same logits in that order", moved, logits[queries])
    if classes_are_alike:
        moved = answer(SmallEpisodes(support, classes[labels], query))
        _same(name, "renumbered classes must get the same logits", moved[:, classes], logits)


def _check_batch(name: str, answer: Answer, episodes: SmallEpisodes) -> None:
    logits = answer(episodes)
    for place in ((0, 0), (1, 2)):
        alone = answer(_at(episodes, place))
        _same(name, "an episode of a batch must get the logits that it gets alone", logits[place], alone)


def _at(episodes: SmallEpisodes, place: int | tuple[int, ...]) -> SmallEpisodes:
    return SmallEpisodes(*(each[place] for each in episodes))


def _in(dtype: torch.dtype, episodes: SmallEpisodes) -> SmallEpisodes:
    return episodes._replace(support=episodes.support.to(dtype), query=episodes.query.to(dtype))


def _check_precisions(name: str, answer: Answer) -> None:
    for dtype, tolerance in ((torch.float32, 1e-3), (torch.bfloat16, 3e-2)):
        episodes = _in(dtype, small_episodes(5))
        logits = answer(episodes)
        assert logits.dtype == dtype, f"{name}: logits of {dtype} queries must be {dtype}, but got {logits.dtype}."
        exact = answer(_in(torch.float64, episodes))
        what = f"{dtype} features must get nearly the logits of the same numbers in double precision"
        _same(name, what, logits, exact, tolerance)


def _check_gradients(name: str, answer: Answer) -> None:
    support, labels, query = small_episodes(6, batch=(2,))

    def logits(support: Tensor, query: Tensor) -> Tensor:
        return answer(SmallEpisodes(support, labels, query))

    leaves = support.requires_grad_(), query.requires_grad_()
    if not logits(*leaves).requires_grad:  # A head without gradients, for evaluation only.
        return
    try:
        torch.autograd.gradcheck(logits, leaves, atol=1e-5, fast_mode=True)
    except GradcheckError as error:
        raise AssertionError(f"{name}: the gradient must be that of the logits. {error}") from error


def _check_weights(name: str, head: Head, seed: int, shots: tuple[int, ...]) -> None:
    support, labels, query = small_episodes(seed, shots)
    times = torch.randint(0, 4, labels.shape, generator=torch.Generator().manual_seed(seed))
    times[[int((labels == label).nonzero()[0]) for label in range(_WAYS)]] += 1  # Every class needs a point.
    copies = torch.arange(len(labels)).repeat_interleave(times)
    expected = head.fit_(support[copies], labels[copies], _WAYS)(query)
    # Rows and columns of absent points are zero in the linear kernel.
    gram = EpisodeGram.from_features(support * (times > 0).unsqueeze(-1), query)
    weighted = head.predict(gram, one_hot(labels, _WAYS) * times.unsqueeze(-1))
    _same(name, "a support point of weight w must stand for w equal ones, and of weight 0 for none", weighted, expected)


def _check_state(name: str, head: Head, make: Callable[[], Head]) -> None:
    support, labels, query = small_episodes(7)
    logits = head.fit_(support, labels, _WAYS)(query)
    loaded = make().eval()
    loaded.load_state_dict(head.state_dict())
    _same(name, "a head that loads another's state must give its logits", loaded(query), logits, 0)
    gram = EpisodeGram.from_features(support, query)
    before = {key: value.clone() for key, value in head.state_dict().items()}
    head.predict(gram.normalized(), one_hot(labels.flip(0), _WAYS))
    unchanged = all(torch.equal(value, before[key]) for key, value in head.state_dict().items())
    assert unchanged, f"{name}: predict must not change the head's state."


@_on_cpu()
def check_method(
    make: Callable[[], Method],
    *,
    transductive: bool = True,
    single_precision: float = 1e-3,
    tied: Tied | None = None,
    backbone: nn.Module | None = None,
) -> None:
    """Check that a method keeps the contract of `Method`, on which training, evaluation and comparison rely.

    A batch gives what its episodes give alone, also when it was joined from parts; the order of support points, queries
    and classes does not matter; classes may have different numbers of points, and an episode a single query; a query's
    logits depend on the other queries if, and only if, the method says that it is transductive; the features are not
    changed; single precision gets nearly the logits of double; where there are gradients they are finite, and
    training's reach every weight; a closed form of leave-one-out gives what fits without the points do; the state of
    one loads into another; and a registered method is what its name says. All is computed on the CPU.

    The features are vectors of length 12, not negative, as after a ReLU, with a mean of base classes; they are maps of
    shape (3, 2, 2) too.

    Args:
        make: Makes a new method, with ``dim`` 12 and a `SmallBackbone` if it asks for them:
            ``lambda: parse_method("lssvm+iam", dim=12)``.
        transductive: Whether to require dependence on the other queries where the method says that it is transductive.
            Default True; False is for methods that cancel it, as ``nn(center=episode)``, whose distances stay the same.
        single_precision: How far logits in single precision may be off, as a share of the largest; default 1e-3. More
            is for methods that amplify rounding, as many steps of Adam do.
        tied: The shape of all episodes, for methods that learn a place for each class or support point, as ``sib`` and
            ``dpgn`` do: they cannot take another shape, and the order of the classes means something. Default None.
        backbone: What a registered method asks for its sizes, so that it is read from its name; they must be those of
            the features. Default None: a `SmallBackbone`.

    Raises:
        AssertionError: Naming the first requirement that does not hold.

    Example:
        >>> check_method(lambda: parse_method("rr(normalize)+psm"))
        >>> class Centred(Method):
        ...     is_transductive = False
        ...
        ...     def logits(self, features):
        ...         centred = features.query - features.query.mean(-2, keepdim=True)
        ...         return centred @ features.support.mT @ features.targets.to(centred)
        >>> check_method(Centred)
        Traceback (most recent call last):
        ...
        AssertionError: Centred: is_transductive is False, so a query's logits must not depend on the other queries, ...
    """
    method = _new(make, Method)
    name = str(method)
    assert hasattr(method, "is_transductive"), f"{name}: is_transductive must say whether other queries matter."
    method.eval()
    draw: Callable[..., SmallEpisodes] = small_episodes
    if tied is not None:
        draw = partial(small_episodes, shots=tied.shots, queries=tied.queries)
    method.double()

    def answer(episodes: SmallEpisodes) -> Tensor:
        features, untouched = _features(episodes), _features(episodes)
        _ = features.points, features.gram  # Made before they are watched.
        is_changed = features.watched()
        logits = method.logits(features)
        same = torch.equal(features.support, untouched.support) and torch.equal(features.query, untouched.query)
        unchanged = same and not is_changed()
        assert unchanged, f"{name}: the features must not be changed, nor their targets and Gram matrices."
        return logits

    for seed, shots in enumerate(_SHOTS):
        episodes = draw(seed, shots) if tied is None else draw(seed)
        _check_order(name, answer, episodes, seed, classes_are_alike=tied is None)
    _check_single_precision(name, deepcopy(method), draw(6), single_precision)
    _check_training(name, deepcopy(method), draw(8, batch=(2,)))
    batch = draw(4, batch=(2, 3))
    _check_batch(name, answer, batch)
    _check_joining(name, method, batch)
    if tied is None:
        logits, beside_others = _single_queries(name, answer, draw(5))
    else:
        episodes = draw(5)
        changed = torch.cat([episodes.query[:1], draw(10).query[1:]])
        logits, beside_others = (answer(episodes._replace(query=each))[:1] for each in (changed, episodes.query))
    _check_dependence(name, method, logits, beside_others, transductive)
    _check_feature_gradients(name, method, draw(7, batch=(2,)))
    if method.why_no_leave_one_out is None:
        _check_leave_one_out(name, method, draw(11))
    _check_state_and_name(name, method, make().eval(), draw(9), backbone or SmallBackbone())


def _features(episodes: SmallEpisodes) -> EpisodeFeatures:
    """The episodes' features, not negative."""
    support, query = episodes.support.relu(), episodes.query.relu()
    mean = torch.linspace(0.2, 0.8, _DIM, dtype=support.dtype)
    means = torch.stack([mean, mean.square(), mean.sqrt()])  # of three base classes
    return EpisodeFeatures(support, query, episodes.labels, _WAYS, base_mean=means, map_shape=_MAP)


def _check_joining(name: str, method: Method, episodes: SmallEpisodes) -> None:
    parts = [_features(_at(episodes, place)) for place in range(2)]
    for part in parts:
        assert part.gram.query is not None  # Evaluation computes it for each part before it joins them.
    logits = method.logits(_features(episodes))
    joined = method.logits(EpisodeFeatures.join(parts))
    _same(name, "features that were joined must get the logits of their parts", joined, logits.flatten(0, 1))


def _single_queries(name: str, answer: Answer, episodes: SmallEpisodes) -> tuple[Tensor, Tensor]:
    """The logits of each query alone, and beside the others."""
    support, labels, query = episodes
    alone = answer(SmallEpisodes(support.expand(_QUERIES, -1, -1), labels.expand(_QUERIES, -1), query.unsqueeze(-2)))
    expected = (_QUERIES, 1, _WAYS)
    assert alone.shape == expected, f"{name}: single queries must get logits {expected}, but got {tuple(alone.shape)}."
    assert alone.isfinite().all(), f"{name}: the logits of a single query must be finite."
    return alone.squeeze(-2), answer(episodes)


def _check_dependence(name: str, method: Method, logits: Tensor, beside_others: Tensor, transductive: bool) -> None:
    """Whether queries get other logits beside other queries if, and only if, the method says so."""
    if not method.is_transductive:
        what = "is_transductive is False, so a query's logits must not depend on the other queries"
        _same(name, what, logits, beside_others)
    elif transductive and not method.episode_statistics:  # whose dependence is the backbone's
        depends = not torch.allclose(logits, beside_others, rtol=1e-6, atol=1e-9)
        assert depends, f"{name}: is_transductive is True, but a query's logits do not depend on the other queries."


def _check_single_precision(name: str, method: Method, episodes: SmallEpisodes, tolerance: float) -> None:
    single = _in(torch.float32, episodes)
    logits = method.float().logits(_features(single))
    _check_logits(name, logits, (len(episodes.query), _WAYS))
    exact = method.double().logits(_features(_in(torch.float64, single)))
    what = "single precision must get nearly the logits of the same numbers in double precision"
    _same(name, what, logits.double(), exact, tolerance)


def _check_feature_gradients(name: str, method: Method, episodes: SmallEpisodes) -> None:
    features = _features(episodes)
    support, query = features.support.clone().requires_grad_(), features.query.clone().requires_grad_()
    again = EpisodeFeatures(
        support, query, features.labels, _WAYS, base_mean=features.base_mean, map_shape=features.map_shape
    )
    logits = method.logits(again)
    if logits.requires_grad:  # Without gradients it is for evaluation only.
        logits.square().sum().backward()
        finite = all(each.grad is None or bool(each.grad.isfinite().all()) for each in (support, query))
        assert finite, f"{name}: gradients with respect to the features must be finite."


def _check_leave_one_out(name: str, method: Method, episodes: SmallEpisodes) -> None:
    if method.fixed_head is not None and method.fixed_head.tunes_itself:
        return
    support, labels, _ = episodes
    found = method.leave_one_out(_features(episodes), of_each_class=False)
    for point in (labels.bincount()[labels] > 1).nonzero().flatten().tolist():
        others = torch.arange(len(labels)) != point
        apart = SmallEpisodes(support[others], labels[others], support[point : point + 1])
        what = "leave_one_out must give a point the logits of a fit without it"
        _same(name, what, found[point], method.logits(_features(apart))[0])


def _check_training(name: str, method: Method, episodes: SmallEpisodes) -> None:
    if not has_weights(method):
        return
    num_query = episodes.query.shape[-2]
    labels = (torch.arange(num_query) % _WAYS).expand(2, -1)
    of_criterion = torch.zeros((), requires_grad=True)

    def criterion(logits: Tensor, labels: Tensor) -> Tensor:
        return of_criterion + F.cross_entropy(logits.flatten(0, -2).float(), labels.flatten())

    found = method.float().train().loss(_features(_in(torch.float32, episodes)), labels, criterion)
    is_pair = isinstance(found, tuple) and len(found) == 2 and all(isinstance(each, Tensor) for each in found)
    assert is_pair, f"{name}: loss must give the loss and the logits, but gave a {type(found).__name__}."
    loss, logits = found
    assert loss.shape == (), f"{name}: the loss must be one number, but has the shape {tuple(loss.shape)}."
    expected = (2, num_query, _WAYS)
    assert logits.shape == expected, f"{name}: loss must give logits {expected} too, but got {tuple(logits.shape)}."
    assert loss.requires_grad, f"{name}: the loss must have a gradient."
    loss.backward()
    is_declared = method.uses_criterion or of_criterion.grad is None
    assert is_declared, f"{name}: uses_criterion is False, but the loss has its gradient from the criterion."
    for weight, value in method.named_parameters():
        if value.grad is None:  # Layers for each image alone are not reached from features.
            assert method.embeds or not value.requires_grad, f"{name}: the loss must have a gradient for {weight}."
        else:
            assert value.grad.isfinite().all(), f"{name}: the loss must have a finite gradient for {weight}."


def _check_state_and_name(
    name: str, method: Method, other: Method, episodes: SmallEpisodes, backbone: nn.Module
) -> None:
    # Features are made anew each time: they keep what adapters of one name made of them.
    logits = method.logits(_features(episodes))
    other.double().load_state_dict(method.state_dict())
    loaded = other.logits(_features(episodes))
    _same(name, "a method that loads another's state must give its logits", loaded, logits, 0)
    if not method.is_registered:
        return
    try:
        parsed = parse_method(name, dim=_DIM, backbone=backbone).eval()
    except UsageError as error:
        raise AssertionError(f"{name}: a registered method must be read from its name. {error}") from error
    assert str(parsed) == name, f"{name}: the method of this name must have it too, but is {parsed}."
    parsed.double().load_state_dict(method.state_dict())
    what = "its name must say what it does, so each argument must be kept in an attribute of its name"
    _same(name, what, parsed.logits(_features(episodes)), logits)


def _same(name: str, what: str, actual: Tensor, expected: Tensor, tolerance: float = 1e-4) -> None:
    """Equal to a share of the logits' scale."""
    largest = expected.abs().max().item()
    difference = (actual.to(expected) - expected).abs().max().item()
    if not difference <= tolerance * largest:
        raise AssertionError(f"{name}: {what}, but logits of up to {largest:.3g} differ by up to {difference:.3g}.")

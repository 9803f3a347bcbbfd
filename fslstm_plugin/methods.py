"""A method is one thing: from the features of episodes to the logits of their queries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from torch import Tensor, nn

from .adapters import FeatureAdapter
from .errors import UnknownNameError, UntrainedError, UsageError
from .features import EpisodeFeatures
from .grammar import (
    BARE,
    Part,
    agrees,
    build,
    needs_dim,
    options,
    options_of,
    parse,
    part_text,
    read_arguments,
    sizes_asked,
    value_text,
)
from .heads import Head
from .leaving_out import moved_logits
from .registry import ADAPTERS, HEADS, METHODS, TRANSDUCTION
from .transduction import TransductiveModule

if TYPE_CHECKING:
    from .recipes import MetaRecipe

# Changes of a head's features that tuning tries.
_CHANGES = (("normalize",), ("center", "normalize"), ("power(negative=signed)", "normalize"))

Criterion = Callable[[Tensor, Tensor], Tensor]
Gram = Literal["none", "support", "all"]

BATCH_NORM = "bn"
_LSSVM = "lssvm"  # The paper's head, which plain heads are measured against.


class Method(nn.Module, ABC):
    """What classifies queries, given their episode's features; a subclass says how in `logits`.

    Training, evaluation, comparison and tuning take methods and nothing else. A method is named once, in the registry
    (entry-point group ``fslstm_plugin.methods``); its constructor's arguments are part of its name as typed, and are
    kept as attributes of the same names. A constructor with an argument ``dim`` gets the length of the features, one
    with ``backbone`` the backbone, whose sizes it may ask for; it registers no part of it. Heads with adapters and
    transductive modules are `KernelMethod`; anything else is a subclass in a file of its own.
    `fslstm_plugin.testing.check_method` tests one.

    Args:
        adapters: What the features go through first, see `prepare`. Default none.

    Attributes:
        is_transductive: Whether a query's prediction depends on the other queries.
        uses_gram: Which Gram matrices are needed, so that they can be computed, and timed, beforehand:
            ``"none"`` (default), ``"support"`` for those without the queries' own block, or ``"all"``.
        episode_statistics: Whether the backbone's batch normalisation uses the statistics of each episode's own images
            (the paper's "+BN"). Default False.
        follows_autocast: Whether `loss` and `logits` run in the precision that is set around them, for methods that
            train a network on images there. For all others autocast is off. Default False.
        search_space: Arguments that ``fslstm tune`` chooses, each with its candidates. Default none.
        plain: Name of the method that this one is naturally measured against. Default ``"nn"``.

    Example:
        >>> class Nearest(Method):
        ...     is_transductive = False
        ...
        ...     def logits(self, features):
        ...         nearest = features.query @ features.support.mT
        ...         return nearest @ features.targets.to(nearest.dtype)
        >>> import torch
        >>> Nearest().logits(EpisodeFeatures(torch.eye(2), torch.tensor([[3.0, 1.0]]), torch.tensor([0, 1])))
        tensor([[3., 1.]])
    """

    is_transductive: bool
    adapters: Sequence[FeatureAdapter]
    uses_gram: Gram = "none"
    episode_statistics: bool = False
    follows_autocast: bool = False
    search_space: ClassVar[Mapping[str, Sequence[Any]]] = {}
    plain: str | None = "nn"

    def __init__(self, adapters: Iterable[FeatureAdapter] = ()) -> None:
        super().__init__()
        self.adapters = nn.ModuleList(adapters)  # type: ignore[assignment]  # a sequence of them

    @abstractmethod
    def logits(self, features: EpisodeFeatures) -> Tensor:
        """Logits of the queries.

        Args:
            features: A batch of episodes as the backbone gave them.

        Returns:
            ``(..., m, ways)``, floating point; the greatest is the prediction, the first one of equal ones.
        """

    def loss(self, features: EpisodeFeatures, query_labels: Tensor, criterion: Criterion) -> tuple[Tensor, Tensor]:
        """What training minimises; a method with a loss of its own overrides it.

        Args:
            features: A batch of episodes.
            query_labels: int64 ``(..., m)``.
            criterion: From logits ``(..., m, ways)`` and labels to the usual loss: cross entropy of the scaled logits
                with label smoothing.

        Returns:
            The loss, and the logits for the accuracy.
        """
        logits = self.logits(features)
        return criterion(logits, query_labels), logits

    def recipe(self, recipe: MetaRecipe, *, pretrained: bool, test_shots: int) -> MetaRecipe:
        """The recipe that this method is trained with; by default the given one.

        Args:
            recipe: That of the data set and backbone.
            pretrained: Whether the backbone starts from pretrained weights.
            test_shots: Shots of the later tests.
        """
        return recipe

    def embed(self, backbone: nn.Module, images: Tensor) -> Tensor:
        """What the method needs of each image alone; by default the backbone's vectors.

        A method that works on other maps than the backbone's last, or has layers of its own for each image, overrides
        it. In evaluation it is computed once for every image of a split.

        Args:
            backbone: The model's backbone.
            images: Normalised images ``(batch, 3, H, W)``.

        Returns:
            Vectors ``(batch, d)``, which `logits` finds in its `EpisodeFeatures`.
        """
        return backbone(images)

    @property
    def embeds(self) -> bool:
        """Whether the method embeds images in a way of its own."""
        return type(self).embed is not Method.embed

    def training_images(self, images: Tensor) -> Tensor:
        """Change the images of training episodes before they are embedded; by default not at all.

        Args:
            images: ``(batch, n + m, 3, H, W)``, the support first.
        """
        return images

    def require_shape(self, ways: int, num_support: int, num_query: int) -> None:
        """Refuse episodes of a shape that the method was not built for; by default every shape is accepted.

        Args:
            ways: Classes of an episode.
            num_support: Support images of all classes together.
            num_query: Query images of all classes together.

        Raises:
            UsageError: Saying which shape it is built for.
        """

    def leave_one_out(self, features: EpisodeFeatures) -> Tensor:
        """Logits of each support point by the method fitted without it and one point of each other class.

        The points that leave join the queries, so that a transductive method predicts them as it predicts those.

        Args:
            features: A batch of episodes as the backbone gave them.

        Returns:
            ``(..., n, ways)``. The logits of the only point of a class mean nothing.
        """
        return moved_logits(self, features)

    @property
    def has_closed_leave_one_out(self) -> bool:
        """Whether `leave_one_out` follows from one fit to all points; by default not."""
        return False

    def prepare(self, features: EpisodeFeatures) -> EpisodeFeatures:
        """The features after the adapters, shared by all methods that have the same ones."""
        for adapter in self.adapters:
            features = features.adapted(adapter)
        return features

    @property
    def needs_base_mean(self) -> bool:
        """Whether the mean feature of the base classes is needed."""
        return any(getattr(adapter, "needs_base_mean", False) for adapter in self.adapters)

    @property
    def family(self) -> str:
        """Registered name of the head, or of the method itself."""
        return METHODS.name_of(self)

    @property
    def module_names(self) -> tuple[str, ...]:
        """Names of what surrounds the head: ``("iam", "psm")``."""
        return ()

    @property
    def references(self) -> tuple[str, ...]:
        """Names of what this method is measured against, the first that is there: `plain`, its own defaults, LSSVM."""
        own = (self.family,) if options_of(self) else ()
        return (*((self.plain,) if self.plain else ()), *own, _LSSVM)

    def variants(self) -> list[str]:
        """Names of this method with every other combination of arguments that ``fslstm tune`` may choose."""
        return [part_text(self.family, self, **values) for values in _combinations(self)]

    def __str__(self) -> str:
        """The name that `parse_method` reads."""
        return part_text(self.family, self)


class KernelMethod(Method):
    """Feature adapters, a head on their Gram matrix, and what refits the head with the help of the queries.

    Args:
        head: The head.
        adapters: What the features go through first, in this order. Default none.
        transduction: PSM, CAN or another. Default None: the head alone.
        episode_statistics: See `Method`. Default False.

    Example:
        >>> from fslstm_plugin.heads import RidgeClassifier
        >>> from fslstm_plugin.adapters import Normalize
        >>> from fslstm_plugin.transduction import PseudoSupportModule
        >>> method = KernelMethod(RidgeClassifier(ridge=1.0), [Normalize()], PseudoSupportModule(iterations=3))
        >>> str(method), method.is_transductive
        ('rr(ridge=1,normalize)+psm(iterations=3)', True)
    """

    def __init__(
        self,
        head: Head,
        adapters: Iterable[FeatureAdapter] = (),
        transduction: TransductiveModule | None = None,
        episode_statistics: bool = False,
    ) -> None:
        super().__init__(adapters)
        self.head = head
        self.transduction = transduction
        self.episode_statistics = episode_statistics

    @property
    def is_transductive(self) -> bool:  # type: ignore[override]
        """Whether one of its parts is."""
        parts = (self.head, *self.adapters, self.transduction)
        return self.episode_statistics or any(part is not None and part.is_transductive for part in parts)

    @property
    def uses_gram(self) -> Gram:  # type: ignore[override]
        """See `Method`; refitting needs the queries' own block."""
        return "support" if self.transduction is None else "all"

    def prepare(self, features: EpisodeFeatures) -> EpisodeFeatures:
        """See `Method.prepare`.

        Raises:
            UsageError: If an adapter refuses the features.
        """
        try:
            return super().prepare(features)
        except UsageError as error:
            raise UsageError(f"{self}: {error}") from error

    def logits(self, features: EpisodeFeatures) -> Tensor:
        """See `Method.logits`; in double precision, as the heads compute."""
        features = self.prepare(features)
        if self.transduction is None:
            return self.head.predict(features.support_gram, features.targets)
        return self.transduction.refine(self.head, features.gram, features.targets)

    @property
    def has_closed_leave_one_out(self) -> bool:
        """See `Method`; where the head has the closed form and nothing is transductive."""
        return self.head.lacks_leave_one_out is None and not self.is_transductive

    def leave_one_out(self, features: EpisodeFeatures) -> Tensor:
        """See `Method.leave_one_out`."""
        if not self.has_closed_leave_one_out:
            return super().leave_one_out(features)
        features = self.prepare(features)
        return self.head.leave_one_out(features.support_gram, features.targets, of_each_class=True)

    @property
    def family(self) -> str:
        """See `Method`."""
        return HEADS.name_of(self.head)

    @property
    def module_names(self) -> tuple[str, ...]:
        """See `Method`; episode batch norm, adapters with weights, and the transductive module."""
        return tuple(name for name, _ in self._around())

    @property
    def adapter_texts(self) -> tuple[str, ...]:
        """The adapters without weights, as they stand among the head's arguments."""
        return tuple(_adapter_text(part) for part in self.adapters if not needs_dim(type(part)))

    @property
    def learned_texts(self) -> tuple[str, ...]:
        """The adapters with weights, as they are written after the head."""
        return tuple(part_text(ADAPTERS.name_of(part), part) for part in self._learned())

    @property
    def refit_texts(self) -> tuple[str, ...]:
        """The transductive module, if there is one, which is written last."""
        refit = self.transduction
        return () if refit is None else (part_text(TRANSDUCTION.name_of(refit), refit),)

    @property
    def head_text(self) -> str:
        """The head with its arguments and the adapters that stand among them."""
        return part_text(self.family, self.head, self.adapter_texts)

    @property
    def references(self) -> tuple[str, ...]:
        """See `Method`: the same without its last module, or its head alone; a head's defaults; LSSVM."""
        around = [text for _, text in self._around()]
        if around:
            return tuple(dict.fromkeys(["+".join([self.head_text, *around[:-1]]), self.head_text, self.family]))
        own = (self.family,) if self.head_text != self.family else ()
        return tuple(name for name in (*own, _LSSVM) if name != self.head_text)

    def _around(self) -> list[tuple[str, str]]:
        """Names and texts of what is written after the head."""
        bn = [(BATCH_NORM, BATCH_NORM)] if self.episode_statistics else []
        parts: list[tuple[str, nn.Module]] = [(ADAPTERS.name_of(part), part) for part in self._learned()]
        parts += [] if self.transduction is None else [(TRANSDUCTION.name_of(self.transduction), self.transduction)]
        return bn + [(name, part_text(name, part)) for name, part in parts]

    def _learned(self) -> list[FeatureAdapter]:
        """The adapters with weights."""
        return [part for part in self.adapters if needs_dim(type(part))]

    def variants(self) -> list[str]:
        """See `Method`; the head's arguments, each with the features as they are and changed."""
        around = [text for _, text in self._around()]
        found = [
            "+".join([part_text(self.family, self.head, [*self.adapter_texts, *change], **values), *around])
            for values in ({}, *_combinations(self.head))
            for change in ((), *_CHANGES)
        ]
        return [name for name in found if name != str(self)]

    def __str__(self) -> str:
        """The name that `parse_method` reads."""
        return "+".join([self.head_text, *(text for _, text in self._around())])


def _adapter_text(adapter: FeatureAdapter) -> str:
    """An adapter among a head's arguments: ``normalize``, ``center=episode``, ``power(exponent=0.3,...)``."""
    name, changed = ADAPTERS.name_of(adapter), options_of(adapter)
    if len(changed) == 1 and next(iter(changed)) == options(type(adapter))[0].name:
        return f"{name}={value_text(*changed.values())}"
    return part_text(name, adapter)


def _combinations(part: Any) -> list[dict[str, Any]]:
    """The search space's combinations of arguments that are not the part's own already."""
    space = part.search_space
    found = [dict(zip(space, values, strict=True)) for values in product(*space.values())] if space else []
    return [values for values in found if any(getattr(part, name) != value for name, value in values.items())]


def parse_method(
    text: str, dim: int | None = None, learned: Method | None = None, backbone: nn.Module | None = None
) -> Method:
    """The method of a name: the one place where names are read.

    Args:
        text: A head with its arguments and, among them, adapters: ``"lssvm"``, ``"rr(ridge=1,center=episode)"``; then
            ``+bn``, adapters with weights (``+iam``), and one transductive module (``+psm(iterations=3)``), where
            wanted. Or a method of its own kind, ``"tim(steps=50)"``.
        dim: Length of the features, for parts with weights. Default None.
        learned: A trained method, whose parts with weights are used in place of fresh ones; one that is named with
            other arguments than it was trained with takes the weights, if they fit and dim is given. Default None.
        backbone: The backbone, for methods that ask for its sizes. Default None.

    Raises:
        UnknownNameError: If there is no such part or argument; the message suggests the nearest.
        UsageError: If an argument is refused, parts do not go together, or weights are needed and there are none.

    Example:
        >>> method = parse_method("lssvm(ridge=loo,normalize)+psm(iterations=3)")
        >>> method.head, method.transduction.iterations
        (LSSVMClassifier(ridge=loo), 3)
        >>> str(method)
        'lssvm(ridge=loo,normalize)+psm(iterations=3)'
    """
    first, *rest = parse(text)
    makes = _Maker(text, {"dim": dim, "backbone": backbone}, learned)
    if first.name in METHODS.names() and first.name not in HEADS.names():
        if rest:
            raise UsageError(f"'{first.name}' in '{text}' is a whole method: nothing can be added to it.")
        return makes.method(first)
    if first.name not in HEADS.names():
        raise UnknownNameError("method or head", first.name, {*HEADS.names(), *METHODS.names()})
    return makes.kernel_method(first, rest)


def whole_methods() -> list[str]:
    """Names of the registered methods that are not heads and need no training."""
    return [name for name, kind in METHODS.loadable()[0].items() if not needs_dim(kind) and not _learns(kind, name)]


def _learns(kind: type[Method], name: str) -> bool:
    try:
        return has_weights(build(kind, {}, name))
    except UsageError:  # which is said where it is used
        return False


class _Maker:
    """Makes the parts of one name; see `parse_method`."""

    def __init__(self, text: str, sizes: Mapping[str, Any], learned: Method | None) -> None:
        self.text, self.sizes, self.learned = text, sizes, learned

    def method(self, part: Part) -> Method:
        return self._made(METHODS.get(part.name), part, [self.learned] if self.learned is not None else [])

    def kernel_method(self, first: Part, rest: Sequence[Part]) -> KernelMethod:
        arguments = {name: value for name, value in first.arguments.items() if not self._is_adapter(first, name)}
        inside = [self._adapter(name, value) for name, value in first.arguments.items() if name not in arguments]
        # Parts are trained for each other: those of another head are of no use.
        same = isinstance(self.learned, KernelMethod) and self.learned.family == first.name
        trained = cast(KernelMethod, self.learned) if same else None
        head = self._made(HEADS.get(first.name), Part(first.name, arguments), [trained.head] if trained else [])
        before: list[FeatureAdapter] = []
        refits: list[TransductiveModule] = []
        bn = False
        for part in rest:
            if refits:
                raise UsageError(f"In '{self.text}' nothing can follow the transductive module.")
            if part.name == BATCH_NORM:
                if bn or part.arguments:
                    raise UsageError(f"'{BATCH_NORM}' in '{self.text}' takes no arguments and can stand there once.")
                bn = True
            elif part.name in ADAPTERS.names():
                before.append(self._learned_adapter(part, first.name, trained, before))
            elif part.name in TRANSDUCTION.names():
                found = [trained.transduction] if trained else []
                refits.append(self._made(TRANSDUCTION.get(part.name), part, found, first.name))
            else:
                raise UnknownNameError("module", part.name, {BATCH_NORM, *ADAPTERS.names(), *TRANSDUCTION.names()})
        return KernelMethod(head, [*before, *inside], refits[0] if refits else None, bn)

    def _is_adapter(self, head: Part, name: str) -> bool:
        own = {each.name for each in options(HEADS.get(head.name))}
        if name not in own and name not in ADAPTERS.names():
            plain = {each for each, kind in ADAPTERS.loadable()[0].items() if not needs_dim(kind)}
            raise UnknownNameError(f"argument of {head.name}", name, own | plain)
        return name not in own

    def _adapter(self, name: str, value: Any) -> FeatureAdapter:
        """An adapter among a head's arguments: a bare word, with its first argument's value, or with its own ones."""
        kind = ADAPTERS.get(name)
        if needs_dim(kind):
            raise UsageError(f"'{name}' has weights: write it after the head, as in 'lssvm+{name}'.")
        known = options(kind)
        if isinstance(value, Part):
            arguments = value.arguments
        elif value is not BARE and not known:
            raise UsageError(f"'{name}' in '{self.text}' takes no value.")
        else:
            arguments = {} if value is BARE else {known[0].name: value}
        adapter = build(kind, arguments, str(value) if isinstance(value, Part) else name)
        if has_weights(adapter):
            raise UsageError(f"The adapter '{name}' has weights: its constructor must take dim, the features' length.")
        return adapter

    def _learned_adapter(
        self, part: Part, head: str, trained: KernelMethod | None, before: Sequence[FeatureAdapter]
    ) -> FeatureAdapter:
        kind = ADAPTERS.get(part.name)
        if not needs_dim(kind):
            raise UsageError(f"'{part.name}' belongs to the head's arguments: {head}({part.name}).")
        if any(type(other) is kind for other in before):
            raise UsageError(f"'{self.text}' names '{part.name}' twice.")
        return self._made(kind, part, trained.adapters if trained is not None else (), head)

    def _made(self, kind: Any, part: Part, trained: Iterable[nn.Module | None], head: str | None = None) -> Any:
        """A part with trained weights, or a fresh one.

        Args:
            kind: Its class.
            part: As typed.
            trained: The parts trained with the same head.
            head: The head that it is written after. Default None: it is the head itself, or a whole method.
        """
        mine = next((each for each in trained if each is not None and type(each) is kind and has_weights(each)), None)
        if mine is None:
            return self._fresh(kind, part, head)
        if agrees(mine, read_arguments(kind, part.arguments, str(part), sizes_asked(kind))):
            return mine
        if self._unknown(kind):
            raise self._untrained(part, head)
        other = self._built(kind, part, options_of(mine))
        try:
            other.load_state_dict(mine.state_dict())
        except RuntimeError as error:
            raise self._untrained(part, head) from error
        return other

    def _fresh(self, kind: Any, part: Part, head: str | None) -> Any:
        if needs_dim(kind) and self.learned is not None:
            raise self._untrained(part, head)
        if self._unknown(kind):
            raise UntrainedError(
                f"'{part.name}' in '{self.text}' has weights: pass {' and '.join(self._unknown(kind))} for fresh ones "
                "(dim is the length of the features), or learned, a trained method."
            )
        made = self._built(kind, part, {})
        if has_weights(made) and self.learned is not None:
            raise self._untrained(part, head)
        return made

    def _built(self, kind: Any, part: Part, arguments: Mapping[str, Any]) -> Any:
        given = {name: self.sizes[name] for name in sizes_asked(kind)}
        return build(kind, {**arguments, **part.arguments}, str(part), **given)

    def _unknown(self, kind: Any) -> list[str]:
        """What a constructor asks for and was not given."""
        return [name for name in sizes_asked(kind) if self.sizes[name] is None]

    def _untrained(self, part: Part, head: str | None) -> UsageError:
        needs, algorithm = (f"{part} trained with {head}", f"{head}+{part}") if head else ("weights", part)
        return UsageError(
            f"'{self.text}' needs {needs}, which the run does not have: train one with 'fslstm train --algorithm "
            f"{algorithm}'."
        )


def has_weights(part: nn.Module) -> bool:
    """Whether a part of a method is trained."""
    return next(part.parameters(), None) is not None

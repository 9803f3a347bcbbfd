"""A method is one thing: from the features of episodes to the logits of their queries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import Any, ClassVar, Literal

from torch import Tensor, nn
from typing_extensions import Self

from ..adapters import FeatureAdapter
from ..arguments import SearchSpace, options, options_of, part_text
from ..backbones.base import vectors_of
from ..errors import UsageError
from ..features import EpisodeFeatures
from ..grammar import value_text
from ..heads import Head
from ..heads.margins import WithQueries
from ..recipes import MetaRecipe
from ..registry import ADAPTERS, METHODS
from .shared.leaving_out import moved_logits, with_queries
from .shared.logits import require_logits

Criterion = Callable[[Tensor, Tensor], Tensor]
Gram = Literal["none", "support", "all"]
LSSVM = "lssvm"  # The paper's head, which plain heads are measured against.


class Method(nn.Module, ABC):
    """Classifies the queries of an episode, given its features; a subclass implements `logits`.

    Training, evaluation, comparison and tuning take methods and nothing else. A method is named once, in the registry
    (entry-point group ``fslstm_plugin.methods``); its constructor's arguments are part of its name as typed, and are
    kept as attributes of the same names. A method with weights names the ``sizes`` that they need. Heads with
    adapters and transductive modules are `KernelMethod`; anything else is a subclass in a file of its own.
    `fslstm_plugin.testing.check_method` tests a method.

    Args:
        adapters: What the features go through first, see `prepare`. Default none.

    Attributes:
        is_transductive: Whether a query's prediction depends on the other queries.
        sizes: What the constructor is given to size its weights: ``"dim"``, the length of the features, or
            ``"backbone"``, the backbone, no part of which it may register. Default none.
        uses_gram: Which Gram matrices are needed, so that they can be computed, and timed, beforehand:
            ``"none"`` (default), ``"support"`` for those without the queries' own block, or ``"all"``.
        episode_statistics: Whether the backbone's batch normalisation uses the statistics of each episode's own images
            (the paper's "+BN"). Default False.
        follows_autocast: Whether `loss` and `logits` run in the precision that is set around them, for methods that
            train a network on images there. For all others autocast is off. Default False.
        search_space: Arguments that ``fslstm tune`` chooses, each with its candidates. Default none.
        plain: Name of the method that this one is compared with by default. Default ``"nn"``.
        fills_classes_equally: Whether it assumes equally many queries of each class; figures mark it. Default False.
        is_static: Whether its loss takes the same operations for every batch of a shape where no values are known, and
            waits for none of them, so that a GPU may record a training. Default False.
        uses_criterion: Whether the gradient of `loss` comes from the criterion; if not, label smoothing and the
            learning rate of the logit scale have no effect. Default True.
        is_head: Whether it is a head, with nothing around it but adapters without weights. Default False.
        why_no_leave_one_out: Why `leave_one_out` has no closed form, independent of the queries; None where it has one.
            `choose_method` can choose only methods that have one.

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
    sizes: ClassVar[tuple[str, ...]] = ()
    adapters: Sequence[FeatureAdapter]
    uses_gram: Gram = "none"
    episode_statistics: bool = False
    follows_autocast: bool = False
    search_space: ClassVar[SearchSpace] = {}
    plain: str | None = "nn"
    fills_classes_equally: ClassVar[bool] = False
    is_static: bool = False
    uses_criterion: bool = True
    is_head: bool = False
    why_no_leave_one_out: str | None = "it has no closed form for leaving out a point"
    _changes: ClassVar[Sequence[tuple[str, ...]]] = ((),)  # Adapters that tuning tries where there are none.

    def __init__(self, adapters: Iterable[FeatureAdapter] = ()) -> None:
        super().__init__()
        self.adapters = nn.ModuleList(adapters)  # type: ignore[assignment]  # a sequence of them
        self._named = 0  # of the adapters, which a name gave; the others belong to the method

    def after(self, adapters: Sequence[FeatureAdapter]) -> Self:
        """This method, on features that go through further adapters first."""
        self.adapters = nn.ModuleList([*adapters, *self.adapters])  # type: ignore[assignment]
        self._named += len(adapters)
        if any(adapter.is_transductive for adapter in adapters):
            self.is_transductive = True
        return self

    @abstractmethod
    def logits(self, features: EpisodeFeatures) -> Tensor:
        """Logits of the queries.

        Args:
            features: A batch of episodes as the backbone gave them; `prepare` gives them after the adapters.

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
        logits = require_logits(self, self.logits(features), features)
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
        return vectors_of(backbone, images)

    @property
    def embeds(self) -> bool:
        """Whether the method embeds images in a way of its own."""
        return type(self).embed is not Method.embed

    def training_images(self, images: Tensor) -> Tensor:
        """The images ``(batch, n + m, 3, H, W)`` of training episodes, the support first, as they are embedded."""
        return images

    def why_not_shape(self, ways: int, num_support: int, num_query: int) -> str | None:
        """Which other shape of episodes the method was built for, in words; by default every shape is accepted.

        The numbers of support and query images are those of all classes together.
        """
        return None

    def require_shape(self, features: EpisodeFeatures) -> None:
        """Refuse episodes of a shape that the method was not built for, as `why_not_shape` says."""
        if (why := self.why_not_shape(features.ways, features.num_support, features.num_query)) is not None:
            raise UsageError(why)

    @property
    def why_no_prediction_sets(self) -> str | None:
        """Why `leave_one_out_with_queries` has no closed form that treats labelled points and queries alike.

        None where it has one.
        """
        if self.is_transductive:
            return (
                "what it predicts for a query depends on the other queries, so that it treats labelled images otherwise"
            )
        return self.why_no_leave_one_out

    def leave_one_out(self, features: EpisodeFeatures, *, of_each_class: bool = True) -> Tensor:
        """Logits of each support point by the method fitted without it.

        By default the points that leave join the queries, so that a transductive method predicts them as it predicts
        those.

        Args:
            features: A batch of episodes as the backbone gave them.
            of_each_class: Whether one point of each other class is left out with it, see `one_of_each_class`. Default
                True. False only where there is a closed form, see `why_no_leave_one_out`.

        Returns:
            ``(..., n, ways)``. The logits of the only point of a class mean nothing.
        """
        return moved_logits(self, features)

    def leave_one_out_with_queries(
        self, features: EpisodeFeatures, *, of_own_class: bool = False
    ) -> Iterator[WithQueries]:
        """See `Head.leave_one_out_with_queries`; by default by `leave_one_out` of the support joined by each query."""
        return with_queries(self, features, of_own_class)

    @property
    def fixed_head(self) -> Head | None:
        """The head that is all of the method behind its adapters, solved before the queries are known; default None."""
        return None

    def without_queries(self) -> Method | None:
        """What is left of the method where it may not learn from the queries; None, by default, of a transductive one.

        Example:
            >>> from fslstm_plugin import parse_method
            >>> [str(parse_method(name).without_queries()) for name in ("nn", "nn+psm", "tim")]
            ['nn', 'nn', 'None']
        """
        return None if self.is_transductive else self

    def prepare(self, features: EpisodeFeatures) -> EpisodeFeatures:
        """The features after the adapters, shared by all methods that have the same ones.

        Raises:
            UsageError: If an adapter refuses the features.
        """
        try:
            for adapter in self.adapters:
                features = features.adapted(adapter)
        except UsageError as error:
            raise UsageError(f"{self}: {error}") from error
        return features

    @property
    def needs_base_mean(self) -> bool:
        """Whether the mean feature of the base classes is needed."""
        return any(adapter.needs_base_mean for adapter in self.adapters)

    @property
    def needs_base_classes(self) -> bool:
        """Whether the mean feature of each base class is needed."""
        return any(adapter.needs_base_classes for adapter in self.adapters)

    @property
    def family(self) -> str:
        """Registered name of the head, or of the method itself."""
        return METHODS.name_of(self)

    @property
    def module_names(self) -> tuple[str, ...]:
        """Names of what surrounds the head: ``("iam", "psm")``."""
        return ()

    def description(self) -> dict[str, Any]:
        """The method in the words of a `Row`."""
        plain = (bool, int, float, str, type(None))  # as JSON can hold them
        options = options_of(self._part).items()
        return {
            "method": str(self),
            "head": self.family,
            "modules": list(self.module_names),
            "options": {name: value if isinstance(value, plain) else value_text(value) for name, value in options},
            "adapters": list(self.adapter_texts),
            "transductive": self.is_transductive,
            "iterations": None,
        }

    @property
    def is_registered(self) -> bool:
        """Whether each of its parts has a registered name."""
        return self.family in METHODS.names()

    @property
    def untrained_parts(self) -> tuple[str, ...]:
        """Names of its parts that are for testing alone."""
        return ()

    @property
    def adapter_texts(self) -> tuple[str, ...]:
        """The adapters that stand among the arguments, as typed."""
        return tuple(adapter_text(part) for part in self._inner)

    @property
    def references(self) -> tuple[str, ...]:
        """Names of what this method is measured against, the first that is there: `plain`, its own defaults, LSSVM."""
        own = (self.family,) if str(self) != self.family else ()
        return (*((self.plain,) if self.plain else ()), *own, LSSVM)

    def variants(self) -> list[str]:
        """Names of this method with every other combination of arguments that ``fslstm tune`` may choose."""
        found = [
            "+".join([part_text(self.family, self._part, words, **values), *self._around])
            for values in ({}, *combinations_of(self._part))
            for words in (product(*map(_choices, self._inner)) if self._inner else self._changes)
        ]
        return [name for name in found if name != str(self)]

    @property
    def _part(self) -> nn.Module:
        """What the arguments in the name belong to."""
        return self

    @property
    def _inner(self) -> Sequence[FeatureAdapter]:
        """The adapters among the arguments."""
        return self.adapters[: self._named]

    @property
    def _around(self) -> tuple[str, ...]:
        """What is written after the arguments."""
        return ()

    def __str__(self) -> str:
        """The name that `parse_method` reads."""
        return "+".join([part_text(self.family, self._part, self.adapter_texts), *self._around])


def adapter_text(adapter: FeatureAdapter, **changed: Any) -> str:
    """An adapter among a method's arguments: ``normalize``, ``center=episode``, ``power(exponent=0.3,...)``."""
    name, given = ADAPTERS.name_of(adapter), options_of(adapter, **changed)
    if len(given) == 1 and next(iter(given)) == next(iter(options(type(adapter)))):
        return f"{name}={value_text(*given.values())}"
    return part_text(name, adapter, **changed)


def _choices(adapter: FeatureAdapter) -> list[str]:
    """An adapter as typed, with every combination of the arguments that tuning may choose."""
    return [adapter_text(adapter, **values) for values in ({}, *combinations_of(adapter))]


def combinations_of(part: Any) -> list[dict[str, Any]]:
    """The search space's combinations of arguments that are not the part's own already."""
    space = getattr(part, "search_space", {})
    found = [dict(zip(space, values, strict=True)) for values in product(*space.values())] if space else []
    return [values for values in found if any(getattr(part, name) != value for name, value in values.items())]

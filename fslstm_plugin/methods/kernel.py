"""Feature adapters, a head on their Gram matrix, and what refits the head with the help of the queries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor, nn

from ..adapters import FeatureAdapter
from ..arguments import part_text
from ..errors import UsageError
from ..features import EpisodeFeatures
from ..heads import Head
from ..heads.margins import WithQueries
from ..registry import ADAPTERS, HEADS, TRANSDUCTION
from ..transduction import TransductiveModule
from .base import LSSVM, Gram, Method, adapter_choices, adapter_text, combinations_of, plain_options

# Changes of a head's features that tuning tries.
_CHANGES = (("normalize",), ("center", "normalize"), ("power(negative=signed)", "normalize"))


BATCH_NORM = "bn"


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
    def is_static(self) -> bool:  # type: ignore[override]
        """See `Method`; where head and adapters are, and nothing refits the head."""
        parts = (self.head, *self.adapters)
        return self.transduction is None and not self.episode_statistics and all(part.is_static for part in parts)

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
    def why_no_leave_one_out(self) -> str | None:
        """See `Method`; where the head has the closed form and nothing is transductive."""
        if self.is_transductive:
            return "what it predicts for a query depends on the other queries"
        return self.head.why_no_leave_one_out

    @property
    def why_no_prediction_sets(self) -> str | None:
        """See `Method`; an adapter to which all points are alike leaves labelled ones and queries exchangeable."""
        seeing = [part for part in self.adapters if part.is_transductive]
        if self.transduction is None and not self.episode_statistics and all(part.is_label_free for part in seeing):
            return self.head.why_no_leave_one_out
        return super().why_no_prediction_sets

    def leave_one_out(self, features: EpisodeFeatures, *, of_each_class: bool = True) -> Tensor:
        """See `Method.leave_one_out`."""
        if self.why_no_leave_one_out is not None:
            return super().leave_one_out(features)
        features = self.prepare(features)
        return self.head.leave_one_out(features.support_gram, features.targets, of_each_class=of_each_class)

    def leave_one_out_with_queries(
        self, features: EpisodeFeatures, *, of_own_class: bool = False
    ) -> Iterator[WithQueries]:
        """See `Head.leave_one_out_with_queries`."""
        features = self.prepare(features)
        return self.head.leave_one_out_with_queries(features.support_gram, features.targets, of_own_class=of_own_class)

    @property
    def fixed_head(self) -> Head | None:
        """See `Method`."""
        return None if self.is_transductive else self.head

    def without_queries(self) -> Method | None:
        """See `Method`; the head alone."""
        return self if self.transduction is None else KernelMethod(self.head, self.adapters)

    def refitted_by(self, module: TransductiveModule) -> Method:
        """See `Method.refitted_by`."""
        return self if self.transduction is not None else KernelMethod(self.head, self.adapters, module)

    @property
    def is_head(self) -> bool:  # type: ignore[override]
        """See `Method`."""
        return not self.module_names

    def description(self) -> dict[str, Any]:
        """See `Method.description`."""
        iterations = getattr(self.transduction, "iterations", None)
        return super().description() | {"options": plain_options(self.head), "iterations": iterations}

    @property
    def is_registered(self) -> bool:
        """See `Method`."""
        refits = [] if self.transduction is None else [TRANSDUCTION.name_of(self.transduction) in TRANSDUCTION.names()]
        adapters = [ADAPTERS.name_of(each) in ADAPTERS.names() for each in self.adapters]
        return all([self.family in HEADS.names(), *adapters, *refits])

    @property
    def untrained_parts(self) -> tuple[str, ...]:
        """See `Method`; refitting without weights, and batch-norm statistics of an episode."""
        refit = self.transduction
        bn = (BATCH_NORM,) if self.episode_statistics else ()
        is_trained = refit is None or next(refit.parameters(), None) is not None
        return bn if is_trained else (*bn, TRANSDUCTION.name_of(refit))

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
        return tuple(adapter_text(part) for part in self.adapters if not part.sizes)

    @property
    def learned_texts(self) -> tuple[str, ...]:
        """See `Method`."""
        return tuple(part_text(ADAPTERS.name_of(part), part) for part in self._learned())

    @property
    def refit_texts(self) -> tuple[str, ...]:
        """See `Method`."""
        refit = self.transduction
        return () if refit is None else (part_text(TRANSDUCTION.name_of(refit), refit),)

    @property
    def head_text(self) -> str:
        """See `Method`."""
        return part_text(self.family, self.head, self.adapter_texts)

    @property
    def references(self) -> tuple[str, ...]:
        """See `Method`: the same without its last module, or its head alone; a head's defaults; LSSVM."""
        around = [text for _, text in self._around()]
        if around:
            return tuple(dict.fromkeys(["+".join([self.head_text, *around[:-1]]), self.head_text, self.family]))
        own = (self.family,) if self.head_text != self.family else ()
        return tuple(name for name in (*own, LSSVM) if name != self.head_text)

    def _around(self) -> list[tuple[str, str]]:
        """Names and texts of what is written after the head."""
        bn = [(BATCH_NORM, BATCH_NORM)] if self.episode_statistics else []
        parts: list[tuple[str, nn.Module]] = [(ADAPTERS.name_of(part), part) for part in self._learned()]
        parts += [] if self.transduction is None else [(TRANSDUCTION.name_of(self.transduction), self.transduction)]
        return bn + [(name, part_text(name, part)) for name, part in parts]

    def _learned(self) -> list[FeatureAdapter]:
        """The adapters with weights."""
        return [part for part in self.adapters if part.sizes]

    def variants(self) -> list[str]:
        """See `Method`; the head's arguments and its adapters', or where it has no adapter, changes of the features."""
        around = [text for _, text in self._around()]
        plain = [part for part in self.adapters if not part.sizes]
        found = [
            "+".join([part_text(self.family, self.head, words, **values), *around])
            for values in ({}, *combinations_of(self.head))
            for words in (adapter_choices(plain) if plain else ((), *_CHANGES))
        ]
        return [name for name in found if name != str(self)]

    def __str__(self) -> str:
        """The name that `parse_method` reads."""
        return "+".join([self.head_text, *(text for _, text in self._around())])

"""Feature adapters, a head on their Gram matrix, and what refits the head with the help of the queries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor, nn

from ..adapters import FeatureAdapter
from ..arguments import part_text
from ..checks import require_bool, require_kind
from ..features import EpisodeFeatures
from ..grammar import BATCH_NORM
from ..heads import Head
from ..heads.margins import WithQueries
from ..registry import ADAPTERS, HEADS, TRANSDUCTION, Registry
from ..transduction import TransductiveModule
from .base import LSSVM, Gram, Method, adapter_text


class KernelMethod(Method):
    """Feature adapters, a head on their Gram matrix, and what refits the head with the help of the queries.

    Args:
        head: The head.
        adapters: What the features go through first, in this order. Default none.
        transduction: PSM, CAN or another. Default None: the head alone.
        episode_statistics: See `Method`. Default False.

    Raises:
        UsageError: If an argument is another kind of object, such as the class or the name of a part.

    Example:
        >>> from fslstm_plugin.heads import RidgeClassifier
        >>> from fslstm_plugin.adapters import Normalize
        >>> from fslstm_plugin.transduction import PseudoSupportModule
        >>> method = KernelMethod(RidgeClassifier(ridge=1.0), [Normalize()], PseudoSupportModule(iterations=3))
        >>> str(method), method.is_transductive
        ('rr(ridge=1,normalize)+psm(iterations=3)', True)
    """

    _changes = ((), ("normalize",), ("center", "normalize"), ("power(negative=signed)", "normalize"))

    def __init__(
        self,
        head: Head,
        adapters: Iterable[FeatureAdapter] = (),
        transduction: TransductiveModule | None = None,
        episode_statistics: bool = False,
    ) -> None:
        require_kind("head", head, Head)
        adapters = list(adapters)
        for place, each in enumerate(adapters):
            require_kind(f"adapters[{place}]", each, FeatureAdapter)
        if transduction is not None:
            require_kind("transduction", transduction, TransductiveModule)
        episode_statistics = require_bool("episode_statistics", episode_statistics)
        super().__init__(adapters)
        self.head, self.transduction, self.episode_statistics = head, transduction, episode_statistics
        parts, is_plain = (head, *self.adapters), transduction is None and not episode_statistics
        self.is_transductive = episode_statistics or any(part.is_transductive for part in (*parts, *self._refits))
        self.why_no_leave_one_out = head.why_no_leave_one_out
        if self.is_transductive:
            self.why_no_leave_one_out = "what it predicts for a query depends on the other queries"
        self.is_static = is_plain and all(part.is_static for part in parts)
        self.is_head = is_plain and not any(part.sizes for part in self.adapters)
        self.uses_gram: Gram = "support" if transduction is None else "all"  # Refitting needs the queries' own block.

    def logits(self, features: EpisodeFeatures) -> Tensor:
        """See `Method.logits`; in double precision, as the heads compute."""
        features = self.prepare(features)
        if self.transduction is None:
            return self.head.predict(features.support_gram, features.targets)
        return self.transduction.refine(self.head, features.gram, features.targets)

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

    def description(self) -> dict[str, Any]:
        """See `Method.description`."""
        return super().description() | {"iterations": getattr(self.transduction, "iterations", None)}

    @property
    def is_registered(self) -> bool:
        """See `Method`."""
        parts: dict[Registry, Iterable[nn.Module]]
        parts = {HEADS: [self.head], ADAPTERS: self.adapters, TRANSDUCTION: self._refits}
        return all(registry.name_of(each) in registry.names() for registry in parts for each in parts[registry])

    @property
    def untrained_parts(self) -> tuple[str, ...]:
        """See `Method`; refitting without weights, and batch-norm statistics of an episode."""
        untrained = (part for part in self._refits if next(part.parameters(), None) is None)
        return (*self._bn, *(TRANSDUCTION.name_of(part) for part in untrained))

    @property
    def family(self) -> str:
        """See `Method`."""
        return HEADS.name_of(self.head)

    @property
    def module_names(self) -> tuple[str, ...]:
        """See `Method`; episode batch norm, adapters with weights, and the transductive module."""
        return tuple(text.partition("(")[0] for text in self._around)

    @property
    def head_text(self) -> str:
        """The head with its arguments and the adapters among them."""
        return part_text(self.family, self.head, self.adapter_texts)

    @property
    def learned_texts(self) -> tuple[str, ...]:
        """The adapters with weights, as they are written after the head."""
        return tuple(part_text(ADAPTERS.name_of(part), part) for part in self.adapters if part.sizes)

    @property
    def refit_texts(self) -> tuple[str, ...]:
        """The transductive module, if there is one, which is written last."""
        return tuple(part_text(TRANSDUCTION.name_of(part), part) for part in self._refits)

    @property
    def references(self) -> tuple[str, ...]:
        """See `Method`: without its last module or with its head alone, without `bpa`, a head's defaults, LSSVM."""
        around = self._around
        without_last = ["+".join([self.head_text, *around[:-1]]), self.head_text] if around else []
        alone = [adapter_text(part) for part in self._inner if not part.is_transductive]
        without_bpa = "+".join([part_text(self.family, self.head, alone), *around])
        names = dict.fromkeys([*without_last, without_bpa, self.family, *(() if around else (LSSVM,))])
        return tuple(name for name in names if name != str(self))

    @property
    def _part(self) -> nn.Module:
        return self.head

    @property
    def _inner(self) -> list[FeatureAdapter]:
        return [part for part in self.adapters if not part.sizes]

    @property
    def _around(self) -> tuple[str, ...]:
        return (*self._bn, *self.learned_texts, *self.refit_texts)

    @property
    def _bn(self) -> tuple[str, ...]:
        return (BATCH_NORM,) if self.episode_statistics else ()

    @property
    def _refits(self) -> list[TransductiveModule]:
        return [] if self.transduction is None else [self.transduction]

"""From a name to the method it names: the one place where names are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import nn

from .adapters import FeatureAdapter
from .arguments import agrees, build, options, options_of, read_arguments
from .errors import UnknownNameError, UntrainedError, UsageError
from .grammar import BARE, BATCH_NORM, Part, parse
from .methods.base import Method
from .methods.kernel import KernelMethod
from .registry import ADAPTERS, HEADS, METHODS, TRANSDUCTION
from .transduction import TransductiveModule


def parse_method(
    text: str, dim: int | None = None, learned: Method | None = None, backbone: nn.Module | None = None
) -> Method:
    """The method of a name: the one place where names are read.

    Args:
        text: A head with its arguments and, among them, adapters: ``"lssvm"``, ``"rr(ridge=1,center=episode)"``; then
            ``+bn``, adapters with weights (``+iam``), and one transductive module (``+psm(iterations=3)``), where
            wanted. Or a method of its own kind, ``"tim(steps=50)"``, with adapters too if it has no weights.
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
        if first.name in TRANSDUCTION.names():
            raise UsageError(
                f"'{first.name}' is a transductive module: write it after a head, such as lssvm+{first.name}."
            )
        if first.name in ADAPTERS.names():
            where = f"after a head, such as lssvm+{first.name}"
            if not ADAPTERS.get(first.name).sizes:
                where = f"within a head, such as lssvm({first.name})"
            raise UsageError(f"'{first.name}' is a feature adapter: write it {where}.")
        raise UnknownNameError("method or head", first.name, {*HEADS.names(), *METHODS.names()})
    return makes.kernel_method(first, rest)


def whole_methods() -> list[str]:
    """Names of the registered methods that are not heads and need no training."""
    return [name for name, kind in METHODS.loadable()[0].items() if not _learns(kind, name)]


def trained_methods() -> dict[str, type[Method]]:
    """The registered methods with weights, by name."""
    return {name: kind for name, kind in METHODS.loadable()[0].items() if _learns(kind, name)}


def _learns(kind: type[Method], name: str) -> bool:
    try:
        return bool(kind.sizes) or has_weights(build(kind, {}, name))
    except UsageError:  # which is said where it is used
        return False


class _Maker:
    """Makes the parts of one name; see `parse_method`."""

    def __init__(self, text: str, sizes: Mapping[str, Any], learned: Method | None) -> None:
        self.text, self.sizes, self.learned = text, sizes, learned
        self.trained: Sequence[nn.Module | None] = [learned]  # Among which a part's weights may be.

    def method(self, part: Part) -> Method:
        kind = METHODS.get(part.name)
        plain, inside = self._split(kind, part)
        if inside and _learns(kind, part.name):
            raise UsageError(f"'{part.name}' in '{self.text}' is trained on the backbone's own features: no adapters.")
        made = self._made(kind, plain).after(inside)
        self._require_mean(made.adapters)
        return made

    def kernel_method(self, first: Part, rest: Sequence[Part]) -> KernelMethod:
        kind = HEADS.get(first.name)
        plain, inside = self._split(kind, first)
        # Parts are trained for each other: those of another head are of no use.
        if isinstance(self.learned, KernelMethod) and self.learned.family == first.name:
            self.trained = [self.learned.head, *self.learned.adapters, self.learned.transduction]
        head = self._made(kind, plain)
        before: list[FeatureAdapter] = []
        refits: list[TransductiveModule] = []
        bn = False
        for part in rest:
            if refits:
                raise UsageError(f"In '{self.text}' nothing can follow the transductive module.")
            if part.name == BATCH_NORM:
                if bn or part.arguments:
                    raise UsageError(
                        f"'{BATCH_NORM}' in '{self.text}' takes no arguments and can be written only once."
                    )
                bn = True
            elif part.name in ADAPTERS.names():
                before.append(self._learned_adapter(part, first.name, before))
            elif part.name in TRANSDUCTION.names():
                refits.append(self._made(TRANSDUCTION.get(part.name), part, first.name))
            else:
                adapters = {name for name, each in ADAPTERS.loadable()[0].items() if each.sizes}
                raise UnknownNameError("module", part.name, {BATCH_NORM, *adapters, *TRANSDUCTION.names()})
        self._require_mean([*before, *inside])
        return KernelMethod(head, [*before, *inside], refits[0] if refits else None, bn)

    def _require_mean(self, adapters: Iterable[FeatureAdapter]) -> None:
        """Refuse to subtract the base classes' mean of features that are made of an episode's Gram matrix."""
        made_by = ""
        for adapter in adapters:
            if made_by and adapter.needs_base_mean:
                raise UsageError(
                    f"'{self.text}' subtracts the mean feature of the base classes, but the features that {made_by} "
                    f"makes have none: use center=episode, or leave {made_by} out."
                )
            if adapter.needs_gram:
                made_by = ADAPTERS.name_of(adapter)

    def _split(self, kind: Any, part: Part) -> tuple[Part, list[FeatureAdapter]]:
        """A part without the adapters among its arguments, and these, in the order written."""
        own = options(kind)
        for name in part.arguments:
            if name not in own and name not in ADAPTERS.names():
                if name in TRANSDUCTION.names() and part.name in HEADS.names():
                    raise UsageError(f"'{name}' is a transductive module: write it after the head: {part.name}+{name}.")
                plain = {each for each, adapter in ADAPTERS.loadable()[0].items() if not adapter.sizes}
                raise UnknownNameError("argument", name, {*own, *plain}, part.name)
        inside = [self._adapter(name, value) for name, value in part.arguments.items() if name not in own]
        return Part(part.name, {name: value for name, value in part.arguments.items() if name in own}), inside

    def _adapter(self, name: str, value: Any) -> FeatureAdapter:
        """An adapter among a part's arguments: a bare word, with its first argument's value, or with its own ones."""
        kind = ADAPTERS.get(name)
        if kind.sizes:
            raise UsageError(f"'{name}' has weights: write it after the head, as in 'lssvm+{name}'.")
        known = options(kind)
        if isinstance(value, Part):
            arguments = value.arguments
        elif value is not BARE and not known:
            raise UsageError(f"'{name}' in '{self.text}' takes no value.")
        else:
            arguments = {} if value is BARE else {next(iter(known)): value}
        adapter = build(kind, arguments, str(value) if isinstance(value, Part) else name)
        if has_weights(adapter):
            raise UsageError(
                f"The adapter '{name}' has weights: its class must say which sizes they need, as in sizes = ('dim',)."
            )
        return adapter

    def _learned_adapter(self, part: Part, head: str, before: Sequence[FeatureAdapter]) -> FeatureAdapter:
        kind = ADAPTERS.get(part.name)
        if not kind.sizes:
            raise UsageError(f"'{part.name}' belongs to the head's arguments: {head}({part.name}).")
        if any(type(other) is kind for other in before):
            raise UsageError(f"'{self.text}' names '{part.name}' twice.")
        return self._made(kind, part, head)

    def _made(self, kind: Any, part: Part, head: str | None = None) -> Any:
        """A part with the weights of that of its class among those trained, or a fresh one.

        The head is the one that it is written after. Default None: it is the head itself, or a whole method.
        """
        like = (each for each in self.trained if each is not None and type(each) is kind)
        mine = next(filter(has_weights, like), None)
        if mine is None:
            return self._fresh(kind, part, head)
        if agrees(mine, read_arguments(kind, part.arguments, str(part), kind.sizes)):
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
        if kind.sizes and self.learned is not None:
            raise self._untrained(part, head)
        if self._unknown(kind):
            if (backbone := self.sizes["backbone"]) is not None:
                raise UsageError(
                    f"'{part.name}' in '{self.text}' has weights: the backbone {type(backbone).__name__} needs an "
                    "attribute out_features, the length of its vectors."
                )
            raise UntrainedError(
                f"'{part.name}' in '{self.text}' has weights: pass {' and '.join(self._unknown(kind))} for fresh ones, "
                "or learned, a trained method."
            )
        made = self._built(kind, part, {})
        if has_weights(made) and self.learned is not None:
            raise self._untrained(part, head)
        return made

    def _built(self, kind: Any, part: Part, arguments: Mapping[str, Any]) -> Any:
        given = {name: self.sizes[name] for name in kind.sizes}
        return build(kind, {**arguments, **part.arguments}, str(part), **given)

    def _unknown(self, kind: Any) -> list[str]:
        """The sizes that a part's weights need and that were not given."""
        return [name for name in kind.sizes if self.sizes[name] is None]

    def _untrained(self, part: Part, head: str | None) -> UsageError:
        needs, algorithm = (f"{part} trained with {head}", f"{head}+{part}") if head else ("weights", part)
        return UsageError(
            f"'{self.text}' needs {needs}, which the run does not have: train one with 'fslstm train --algorithm "
            f"{algorithm}'."
        )


def has_weights(part: nn.Module) -> bool:
    """Whether a part of a method is trained."""
    return next(part.parameters(), None) is not None

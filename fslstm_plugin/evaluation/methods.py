"""Methods by name: ``lssvm(ridge=loo,normalize)+iam+psm(iterations=3)`` to what the engine runs, and back."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import UnknownNameError, UsageError
from ..registry import HEADS, TRANSDUCTION
from ..transduction import CandidateSelection, PseudoSupportModule
from .engine import Method, method_label
from .model import TrainedModel

_PART = re.compile(r"([^()+]+)(?:\(([^()]*)\))?")
_OF_AN_EPISODE = ("support", "labels", "ways")  # Arguments of a head that are no options.
_BEFORE = ("bn", "iam")  # What changes the features; anything else refits the head.


@dataclass(frozen=True)
class HeadName:
    """A head, arguments that are not its defaults, and whether its features are normalised.

    Args:
        head: Registered name.
        options: Arguments of the head.
        normalize: Whether features are brought to unit length.

    Example:
        >>> HeadName.parse("lssvm(ridge=loo,normalize)")
        HeadName(head='lssvm', options={'ridge': 'loo'}, normalize=True)
        >>> str(HeadName("rr", {"ridge": 0.5}))
        'rr(ridge=0.5)'
    """

    head: str
    options: Mapping[str, Any] = field(default_factory=dict)
    normalize: bool = False

    def __str__(self) -> str:
        return method_label(self.head, (), self.options, self.normalize)

    @classmethod
    def parse(cls, text: str) -> HeadName:
        """Read ``HEAD`` or ``HEAD(name=value,...,normalize)``.

        Raises:
            UsageError: If the head or an argument is unknown, or a value is outside its range.
        """
        head, options = _parse_part(text)
        normalize = "normalize" in options
        if options.pop("normalize", None) is not None:
            raise UsageError(f"'normalize' in '{text}' takes no value.")
        _build(HEADS.get(head), options, text)
        return cls(head, options, normalize)


def parse_method(text: str) -> tuple[HeadName, tuple[str, ...]]:
    """Head and modules of a method's name.

    Raises:
        UsageError: If a part is unknown, an argument is wrong, or the modules do not go together.

    Example:
        >>> parse_method("nn+iam+psm(iterations=3)")
        (HeadName(head='nn', options={}, normalize=False), ('iam', 'psm(iterations=3)'))
    """
    head, *modules = re.split(r"\+(?![^()]*\))", text)
    after = [module for module in modules if module not in _BEFORE]
    for module in after:
        _transduction(module)
    if len(after) > 1 or (after and modules[-1] != after[0]) or len(set(modules)) < len(modules):
        raise UsageError(f"The method '{text}' must be a head, then bn or iam, then one of {TRANSDUCTION.names()}.")
    return HeadName.parse(head), tuple(modules)


def build_head(name: HeadName, model: TrainedModel) -> Any:
    """The run's own head, or another with the arguments that the name has."""
    return _build(HEADS.get(name.head), name.options, str(name)) if name.options else model.head(name.head)


def build_methods(names: Sequence[str], model: TrainedModel) -> list[Method]:
    """The methods of these names on a trained model.

    Args:
        names: See :func:`parse_method`.
        model: Whose Inverse Attention Module to use.

    Raises:
        UsageError: If a name is wrong, or has IAM where the model has none for that head.
    """
    methods = []
    for text in names:
        name, modules = parse_method(text)
        if "iam" in modules and (model.attention is None or model.head_name != name.head):
            raise UsageError(f"The method '{text}' needs a run that was trained with --algorithm {name.head}+iam.")
        after = [module for module in modules if module not in _BEFORE]
        methods.append(
            Method(
                name.head,
                build_head(name, model),
                model.attention if "iam" in modules else None,
                _transduction(after[0]) if after else None,
                modules,
                name.normalize,
                name.options,
            )
        )
    return methods


def comparison(model: TrainedModel, names: Sequence[HeadName], psm_iterations: int = 10) -> list[Method]:
    """Each head plain, with CAN and with PSM: the rows of the paper's table 3.

    Args:
        model: Whose heads to build; its Inverse Attention Module is left out, since it was trained for one head.
        names: The heads.
        psm_iterations: Iterations of the Pseudo Support Module.
    """
    can, psm = CandidateSelection(), PseudoSupportModule(psm_iterations)
    methods = []
    for name in names:
        head = build_head(name, model)
        for module, modules in ((None, ()), (can, ("can",)), (psm, ("psm",))):
            methods.append(Method(name.head, head, None, module, modules, name.normalize, name.options))
    return methods


def _transduction(text: str) -> Any:
    name, options = _parse_part(text)
    return _build(TRANSDUCTION.get(name), options, text)


def _parse_part(text: str) -> tuple[str, dict[str, Any]]:
    """A name and its arguments; one without a value is None."""
    match = _PART.fullmatch(text)
    if match is None:
        raise UsageError(f"'{text}' must be a name, or a name with arguments such as lssvm(ridge=10).")
    words = [word.strip().partition("=") for word in (match[2] or "").split(",") if word.strip()]
    options = {name.strip(): _value(value.strip()) if sign else None for name, sign, value in words}
    if len(options) < len(words):
        raise UsageError(f"'{text}' has an argument twice.")
    return match[1], options


def _value(text: str) -> Any:
    """A whole number, a number, or a word."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _build(part: Any, options: Mapping[str, Any], text: str) -> Any:
    parameters = inspect.signature(part).parameters.items()
    known = [name for name, what in parameters if what.default is not what.empty and name not in _OF_AN_EPISODE]
    for name, value in options.items():
        if name not in known:
            raise UnknownNameError(f"argument of {part.__name__}", name, known)
        if value is None:
            raise UsageError(f"The argument '{name}' in '{text}' needs a value.")
    try:
        return part(**options)
    except TypeError as error:
        raise UsageError(f"'{text}' has an argument of the wrong type.") from error

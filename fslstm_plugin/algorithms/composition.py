"""Names such as ``lssvm+iam``: a head and the modules around it."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UnknownNameError, UsageError
from ..registry import HEADS

TRAINED_MODULES = ("iam",)


@dataclass(frozen=True)
class Composition:
    """What is trained on a backbone.

    Args:
        head: Registered name of the head.
        iam: Whether the Inverse Attention Module adjusts the support.

    Example:
        >>> Composition.parse("lssvm+iam")
        Composition(head='lssvm', iam=True)
        >>> str(Composition("rr"))
        'rr'
    """

    head: str
    iam: bool = False

    @classmethod
    def parse(cls, text: str) -> Composition:
        """Read ``HEAD`` or ``HEAD+iam``.

        Raises:
            UnknownNameError: If the head or a module is unknown.
            UsageError: If a module belongs to evaluation or is named twice.
        """
        head, *modules = text.split("+")
        if head not in HEADS.names():
            raise UnknownNameError("head", head, HEADS.names())
        for module in modules:
            if module in ("bn", "psm", "can"):
                raise UsageError(f"'{module}' is not trained: name it to 'fslstm eval', not in the algorithm '{text}'.")
            if module not in TRAINED_MODULES:
                raise UnknownNameError("module", module, TRAINED_MODULES)
        if len(modules) > len(set(modules)):
            raise UsageError(f"The algorithm '{text}' names a module twice.")
        return cls(head, iam="iam" in modules)

    def __str__(self) -> str:
        return f"{self.head}+iam" if self.iam else self.head

"""Published transductive methods, each a whole method of its own."""

from .alpha_tim import AlphaTIM
from .ilpc import ILPC
from .tim import TIM

__all__ = ["ILPC", "TIM", "AlphaTIM"]

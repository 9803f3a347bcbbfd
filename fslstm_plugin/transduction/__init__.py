"""How queries can help the classifier: adjust the support (IAM), or extend it (PSM, CAN)."""

from ..adapters import InverseAttentionModule
from .base import TransductiveModule
from .can import CandidateSelection
from .psm import PseudoSupportModule

__all__ = ["CandidateSelection", "InverseAttentionModule", "PseudoSupportModule", "TransductiveModule"]

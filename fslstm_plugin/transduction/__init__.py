"""What queries can do for the classifier: adjust the support (IAM), or extend it (PSM, CAN)."""

from .base import TransductiveModule
from .can import CandidateSelection
from .iam import InverseAttentionModule
from .psm import PseudoSupportModule

__all__ = ["CandidateSelection", "InverseAttentionModule", "PseudoSupportModule", "TransductiveModule"]

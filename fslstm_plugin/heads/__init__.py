"""Base learners: from a labelled support set to the logits of queries."""

from .base import Dual, Head, one_hot
from .coding import coding_matrix, exhaustive_code, random_code
from .crammer_singer import ConvergenceWarning, solve_crammer_singer, svm_duality_gap
from .lssvm import LSSVMClassifier
from .prototype import PrototypeClassifier
from .ridge import RidgeClassifier
from .svm import SVMClassifier

__all__ = [
    "ConvergenceWarning",
    "Dual",
    "Head",
    "LSSVMClassifier",
    "PrototypeClassifier",
    "RidgeClassifier",
    "SVMClassifier",
    "coding_matrix",
    "exhaustive_code",
    "one_hot",
    "random_code",
    "solve_crammer_singer",
    "svm_duality_gap",
]

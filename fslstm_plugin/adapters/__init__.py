"""Feature adapters: from an episode's features to others of the same shape, before any head."""

from .base import FeatureAdapter
from .center import Center
from .iam import InverseAttentionModule
from .normalize import Normalize
from .power import Power

__all__ = ["Center", "FeatureAdapter", "InverseAttentionModule", "Normalize", "Power"]

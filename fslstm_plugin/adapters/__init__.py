"""Feature adapters: from an episode's features to others, before any head."""

from .base import FeatureAdapter
from .bpa import BalancedAffinities
from .center import Center
from .iam import InverseAttentionModule
from .normalize import Normalize
from .power import Power
from .stretch import Stretch

__all__ = ["BalancedAffinities", "Center", "FeatureAdapter", "InverseAttentionModule", "Normalize", "Power", "Stretch"]

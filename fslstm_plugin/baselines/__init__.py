"""Published few-shot classifiers that the paper's heads are compared with, most of them transductive."""

from .alpha_tim import AlphaTIM
from .bd_cspn import BDCSPN
from .ilpc import ILPC
from .laplacian_shot import LaplacianShot
from .paddle import PADDLE
from .proto_lp import ProtoLP
from .pt_map import PTMAP
from .reptile import Reptile
from .simpleshot import SimpleShot
from .tim import TIM

__all__ = [
    "BDCSPN",
    "ILPC",
    "PADDLE",
    "PTMAP",
    "TIM",
    "AlphaTIM",
    "LaplacianShot",
    "ProtoLP",
    "Reptile",
    "SimpleShot",
]

"""Published few-shot classifiers that the paper's heads are compared with, most of them transductive."""

from .alpha_tim import AlphaTIM
from .bd_cspn import BDCSPN
from .dpgn import DPGN
from .feat import FEAT
from .ilpc import ILPC
from .laplacian_shot import LaplacianShot
from .paddle import PADDLE
from .proto_lp import ProtoLP
from .pt_map import PTMAP
from .relation_net import RelationNet
from .reptile import Reptile
from .sib import SIB
from .simpleshot import SimpleShot
from .team import TEAM
from .tim import TIM
from .tpn import TPN

__all__ = [
    "BDCSPN",
    "DPGN",
    "FEAT",
    "ILPC",
    "PADDLE",
    "PTMAP",
    "SIB",
    "TEAM",
    "TIM",
    "TPN",
    "AlphaTIM",
    "LaplacianShot",
    "ProtoLP",
    "RelationNet",
    "Reptile",
    "SimpleShot",
]

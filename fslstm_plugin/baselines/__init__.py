"""Published few-shot classifiers that the paper's heads are compared with, most of them transductive."""

from .bd_cspn import BDCSPN
from .laplacian_shot import LaplacianShot
from .paddle import PADDLE
from .proto_lp import ProtoLP
from .pt_map import PTMAP
from .simpleshot import SimpleShot

__all__ = ["BDCSPN", "PADDLE", "PTMAP", "LaplacianShot", "ProtoLP", "SimpleShot"]

"""The named parts: heads, feature adapters, transductive modules, methods, backbones, data sets.

The plugin's own parts are named here as ``"module:attribute"`` and imported when they are asked for, so that
listing names costs nothing. Other packages add parts through entry points of the groups
``fslstm_plugin.heads``, ``.adapters``, ``.transduction``, ``.methods``, ``.backbones`` and ``.datasets``:

.. code-block:: toml

    [project.entry-points."fslstm_plugin.heads"]
    centroid = "my_package:CentroidHead"
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from .errors import UnknownNameError


class Registry:
    """Names of one kind of part, resolved to the object on demand.

    Args:
        kind: The singular, for error messages (``"head"``).
        group: Entry-point group in which other packages name theirs.
        builtin: The plugin's own parts, name to ``"module:attribute"``.

    Example:
        >>> {"lssvm", "nn", "rr", "svm"} <= set(HEADS.names())
        True
        >>> HEADS.get("rr").__name__
        'RidgeClassifier'
    """

    def __init__(self, kind: str, group: str, builtin: Mapping[str, str]) -> None:
        self.kind = kind
        self.group = group
        self._builtin = dict(builtin)
        self._known: dict[type, str] = {}

    @cached_property
    def _entries(self) -> dict[str, EntryPoint]:
        """Third parties' parts first, so that a built-in name always means the built-in part."""
        entries = {entry.name: entry for entry in entry_points(group=self.group)}
        entries.update({name: EntryPoint(name, value, self.group) for name, value in self._builtin.items()})
        return entries

    def names(self) -> list[str]:
        """All registered names, sorted."""
        return sorted(self._entries)

    def get(self, name: str) -> Any:
        """The part with this name.

        Raises:
            UnknownNameError: If nothing has that name; the message suggests the nearest.
        """
        if name not in self._entries:
            raise UnknownNameError(self.kind, name, self._entries)
        return self._entries[name].load()

    def name_of(self, part: object) -> str:
        """The name under which a part's class is registered, or else the class's own.

        Example:
            >>> HEADS.name_of(HEADS.get("rr")())
            'rr'
        """
        kind = type(part)
        if kind not in self._known:
            found = (name for name, entry in self._entries.items() if entry.attr == kind.__name__)
            self._known[kind] = next((name for name in found if self.get(name) is kind), kind.__name__)
        return self._known[kind]


HEADS = Registry(
    "head",
    "fslstm_plugin.heads",
    {
        "nn": "fslstm_plugin.heads:PrototypeClassifier",
        "rr": "fslstm_plugin.heads:RidgeClassifier",
        "svm": "fslstm_plugin.heads:SVMClassifier",
        "lssvm": "fslstm_plugin.heads:LSSVMClassifier",
    },
)

ADAPTERS = Registry(
    "feature adapter",
    "fslstm_plugin.adapters",
    {
        "center": "fslstm_plugin.adapters:Center",
        "iam": "fslstm_plugin.adapters:InverseAttentionModule",
        "normalize": "fslstm_plugin.adapters:Normalize",
        "power": "fslstm_plugin.adapters:Power",
    },
)

TRANSDUCTION = Registry(
    "transductive module",
    "fslstm_plugin.transduction",
    {
        "psm": "fslstm_plugin.transduction:PseudoSupportModule",
        "can": "fslstm_plugin.transduction:CandidateSelection",
    },
)

METHODS = Registry(
    "method",
    "fslstm_plugin.methods",
    {
        "alpha-tim": "fslstm_plugin.baselines:AlphaTIM",
        "bd-cspn": "fslstm_plugin.baselines:BDCSPN",
        "dpgn": "fslstm_plugin.baselines:DPGN",
        "feat": "fslstm_plugin.baselines:FEAT",
        "ilpc": "fslstm_plugin.baselines:ILPC",
        "laplacian-shot": "fslstm_plugin.baselines:LaplacianShot",
        "paddle": "fslstm_plugin.baselines:PADDLE",
        "proto-lp": "fslstm_plugin.baselines:ProtoLP",
        "pt-map": "fslstm_plugin.baselines:PTMAP",
        "relation-net": "fslstm_plugin.baselines:RelationNet",
        "reptile": "fslstm_plugin.baselines:Reptile",
        "sib": "fslstm_plugin.baselines:SIB",
        "simpleshot": "fslstm_plugin.baselines:SimpleShot",
        "team": "fslstm_plugin.baselines:TEAM",
        "tim": "fslstm_plugin.baselines:TIM",
        "tpn": "fslstm_plugin.baselines:TPN",
    },
)

BACKBONES = Registry(
    "backbone",
    "fslstm_plugin.backbones",
    {
        "conv4": "fslstm_plugin.backbones:Conv4",
        "resnet12": "fslstm_plugin.backbones:ResNet12",
    },
)

DATASETS = Registry(
    "data set",
    "fslstm_plugin.datasets",
    {
        "cifar-fs": "fslstm_plugin.data.cifarfs:CIFAR_FS",
        "mini": "fslstm_plugin.data.mini:MINI",
        "glyphs": "fslstm_plugin.data.glyphs:GLYPHS",
        "glyphs-84": "fslstm_plugin.data.glyphs:GLYPHS_84",
        "fc100": "fslstm_plugin.data.l2l_benchmarks:FC100",
        "tiered": "fslstm_plugin.data.l2l_benchmarks:TIERED",
    },
)

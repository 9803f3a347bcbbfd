"""Registers the plugin's parts where learn2learn's users look for them."""

from __future__ import annotations

from types import ModuleType

import learn2learn as l2l
import learn2learn.algorithms.lightning

import fslstm_plugin.learn2learn as plugin

from .. import heads, transduction
from .tasksets import register_tasksets


def _add(target: ModuleType, source: ModuleType, names: list[str]) -> None:
    """Add names that the target does not have; a name of its own is never replaced."""
    for name in names:
        if not hasattr(target, name):
            setattr(target, name, getattr(source, name))


def register_all() -> None:
    """See :func:`fslstm_plugin.register`."""
    _add(l2l.algorithms, plugin, plugin.__all__)
    _add(l2l.algorithms.lightning, plugin, plugin.__all__)
    _add(l2l.nn, heads, [name for name in heads.__all__ if name.endswith("Classifier")])
    _add(l2l.nn, transduction, list(transduction.__all__))
    register_tasksets()

"""LSSVM base learner and transductive modules for few-shot learning with learn2learn.

After "Few-Shot Learning with LSSVM Base Learner and Transductive Modules" (Wang and Deng, AAAI 2021).
"""

from __future__ import annotations

__version__ = "0.1.0"


def register() -> None:
    """Make the plugin's parts importable from learn2learn.

    Afterwards the Lightning modules are found in ``learn2learn.algorithms`` and
    ``learn2learn.algorithms.lightning``, the heads and transductive modules in ``learn2learn.nn``, and the data sets
    in ``learn2learn.vision.benchmarks``. Calling it again changes nothing, and nothing that was there is replaced.

    Example:
        >>> import fslstm_plugin
        >>> fslstm_plugin.register()
        >>> from learn2learn.algorithms import LightningFSLSTM
    """
    from .registration import register_all

    register_all()

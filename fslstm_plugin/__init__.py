"""LSSVM base learner and transductive modules for few-shot learning with learn2learn.

After "Few-Shot Learning with LSSVM Base Learner and Transductive Modules" (Wang and Deng, AAAI 2021).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .classifier.estimator import FewShotClassifier as FewShotClassifier
    from .errors import FSLSTMError as FSLSTMError
    from .evaluation.evaluate import evaluate as evaluate
    from .features import EpisodeFeatures as EpisodeFeatures
    from .heads import Head as Head
    from .methods.base import Method as Method
    from .methods.kernel import KernelMethod as KernelMethod
    from .model import FewShotModel as FewShotModel
    from .naming import parse_method as parse_method
    from .pretrained import open_backbone as open_backbone
    from .testing import check_head as check_head
    from .testing import check_method as check_method

__version__ = "0.2.0"

_EXPORTS = {
    "EpisodeFeatures": "features",
    "FSLSTMError": "errors",
    "FewShotClassifier": "classifier.estimator",
    "FewShotModel": "model",
    "Head": "heads",
    "KernelMethod": "methods.kernel",
    "Method": "methods.base",
    "check_head": "testing",
    "check_method": "testing",
    "evaluate": "evaluation.evaluate",
    "open_backbone": "pretrained",
    "parse_method": "naming",
}
__all__ = sorted([*_EXPORTS, "register"])


def __getattr__(name: str) -> Any:
    """Import a public name when it is asked for: the command line's help must not wait for torch."""
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_EXPORTS[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_EXPORTS])


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
    from .learn2learn import register_all

    register_all()

"""What adapters with weights are told apart by."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from fslstm_plugin import EpisodeFeatures
from fslstm_plugin.adapters import FeatureAdapter
from fslstm_plugin.heads import PrototypeClassifier
from fslstm_plugin.methods.kernel import KernelMethod


class Scaled(FeatureAdapter):
    sizes: ClassVar[tuple[str, ...]] = ("dim",)

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(factor))

    def adapt(self, features: EpisodeFeatures) -> EpisodeFeatures:
        factor = self.factor.detach().clone()  # so that what is derived does not keep the adapter alive
        return features.derived(lambda points: points * factor)


def test_an_adapter_never_gets_the_features_of_one_that_is_gone() -> None:
    features = EpisodeFeatures(torch.eye(2), torch.ones(1, 2), torch.tensor([0, 1]))

    def logits(factor: float) -> Tensor:
        with torch.no_grad():
            return KernelMethod(PrototypeClassifier(), [Scaled(factor)]).logits(features)

    for factor in range(1, 50):
        torch.testing.assert_close(logits(float(factor)), logits(1.0) * factor**2)

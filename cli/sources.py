"""What can take the place of a run in an evaluation: features in a file, or pictures with a backbone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from fslstm_plugin.errors import UsageError

from . import gathering, pictures, terminal
from .pictures import BackboneName, MaxPixels, Pooling, Weights, refuse_model

if TYPE_CHECKING:
    import numpy as np

    from fslstm_plugin.evaluation.session import Session
    from fslstm_plugin.evaluation.setting import Setting
    from fslstm_plugin.pictures import Picture

PANEL = "In place of a run"
_IMAGENET = (
    "{name} was trained on ImageNet, which has miniImageNet's test classes in it, and classes like those of other "
    "benchmarks: on pictures of a benchmark these are not accuracies of classes that it never saw."
)


@dataclass(frozen=True)
class Source:
    """Features or pictures, as typed; by default neither."""

    features: Annotated[
        Optional[Path],
        typer.Option(
            help="Features of any backbone: .npz or .safetensors with 'features' (N, d) and 'labels' (N,).",
            dir_okay=False,
        ),
    ] = None
    pictures: Annotated[
        Optional[Path],
        typer.Option(
            help="A folder with a folder of pictures for each class, or a CSV file of path and label.",
            callback=refuse_model,
        ),
    ] = None
    backbone: BackboneName = None
    weights: Weights = None
    pooling: Pooling = None
    max_pixels: MaxPixels = None

    @property
    def option(self) -> str | None:
        """The option that takes the place of a run; None where there is none."""
        if self.pictures is not None:
            if self.features is not None:
                raise UsageError("--pictures and --features are two sources: give one of them.")
            return "--pictures"
        for name in ("backbone", "weights", "pooling", "max_pixels"):
            if getattr(self, name) is not None:
                raise UsageError(f"--{name.replace('_', '-')} is for --pictures: give --pictures too.")
        return None if self.features is None else "--features"

    def replaces(self, runs: Sequence[str] | None, dataset: str | None, data_root: Path | None) -> bool:
        """Whether these take the place of a run, beside which no run, data set or place of one may be named."""
        if self.option is None:
            return False
        if runs or dataset is not None:
            raise UsageError(f"{self.option} takes the place of a run and its data set: leave out --run and --dataset.")
        if data_root is not None:
            raise UsageError(f"--data-root is for a run, but {self.option} takes its place: leave out --data-root.")
        return True

    def session(self, runs: Path, device: str, views: str | None, settings: Sequence[Setting]) -> Session:
        """The features, those of pictures computed first, if there are enough for the settings.

        The folder `runs` has the runs that can be the backbone.
        """
        from fslstm_plugin.evaluation.feature_file import open_feature_file

        if self.pictures is not None:
            return self._embedded(self.pictures, runs, device, views, settings)
        assert self.features is not None
        if views is not None:
            raise UsageError("--views changes how features are computed, but --features has them: leave out --views.")
        ranks = terminal.join_ranks()
        return open_feature_file(self.features, ranks.device(device), ranks, terminal.progress)

    def _embedded(
        self, source: Path, runs: Path, device: str, views: str | None, settings: Sequence[Setting]
    ) -> Session:
        import torch

        from fslstm_plugin.backbones.views import on_views
        from fslstm_plugin.evaluation.feature_session import FeatureSession
        from fslstm_plugin.pictures import labelled

        found = labelled(source, terminal.say)
        name = source.resolve().name
        # Before minutes of work; some may be left out later, as copies, and are missed then.
        counted = FeatureSession.of(name, "pictures", torch.zeros(len(found), 1), _labels(found), "none").split
        for each in settings:
            each.check(counted)
        network = pictures.open_backbone(self.backbone, self.weights, self.pooling, runs, device, views)
        gathered, copies = gathering.without_copies(gathering.gather(found, network))
        for sentence in gathering.on_copies(copies):
            terminal.say(sentence)
        made_by = Path(network.name).name  # of a run, whose name is its place
        notes = [*([_IMAGENET.format(name=made_by)] if network.imagenet else []), *on_views(views)]
        what = name, "pictures", gathered.features, _labels(gathered.pictures), made_by, network.device
        return FeatureSession.of(*what, terminal.join_ranks(), terminal.progress, notes=notes)


def _labels(found: Sequence[Picture]) -> np.ndarray:
    import numpy as np

    return np.array([each.label for each in found])

"""The configuration of a training from few options: recipes, sizes and precision are filled in, all bounds checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.nn.functional as F

from ..backbones.base import Backbone, build_backbone
from ..checks import one_of
from ..data.root import load_split
from ..errors import UsageError
from ..features import EpisodeFeatures
from ..grammar import Part, parse
from ..methods.base import Method
from ..model import feature_size
from ..naming import has_weights, parse_method
from ..recipes import (
    MetaRecipe,
    PretrainRecipe,
    base_class_pretraining,
    base_class_pretraining_on_gpu,
    changed,
    folder_pretraining,
    meta_training,
)
from ..registry import BACKBONES, DATASETS
from ..runs.configuration import PretrainConfig, TrainConfig, Validation
from ..storage.plain import from_plain, to_plain

_MANY = 10_000  # Images, of which a GPU's recipe makes large batches.

C = TypeVar("C", PretrainConfig, TrainConfig)
R = TypeVar("R", MetaRecipe, PretrainRecipe)


def resolve_precision(precision: str, accelerator: str = "auto") -> Any:
    """The precision that an option means here, to be kept; ``"auto"`` is bfloat16 where the accelerator has it."""
    if precision not in ("auto", "32", "bf16"):
        raise UsageError(f"`precision` must be auto, 32 or bf16, but got '{precision}'.")
    if precision != "auto":
        return precision
    if accelerator != "cpu" and torch.cuda.is_available():
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "32"
    probe = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return "bf16" if probe and probe() else "32"


def pretrain_config(
    backbone: str,
    *,
    dataset: str | None = None,
    places: Path | None = None,
    folder: Path | None = None,
    teacher: Path | None = None,
    image_size: int | None = None,
    max_steps: int | None = None,
    seed: int = 0,
    precision: str = "auto",
    accelerator: str = "auto",
    recipe: str = "cpu",
    given: Mapping[str, Any] | None = None,
) -> PretrainConfig:
    """The configuration of a pretraining, on exactly one of a benchmark, Places365-standard and a folder.

    Arguments that are fields of `PretrainConfig` are described there. Crops from a folder have by default 84 pixels a
    side; a benchmark has its own size. A precision of ``"auto"`` becomes what it means on this machine with Lightning's
    accelerator. A benchmark's recipe is ``"cpu"`` or ``"gpu"``, see `recipe_for`; values are given, by field, in place
    of the recipe's and of its augmentation's.

    Raises:
        UsageError: If a name is unknown, not exactly one source is named, or a value is out of its range.

    Example:
        >>> config = pretrain_config("conv4", dataset="cifar-fs", precision="32", given={"epochs": 3})
        >>> config.image_size, config.recipe.epochs, config.recipe.schedule
        (32, 3, 'one-cycle')
    """
    if dataset is not None and image_size is not None:
        raise UsageError("`image_size` is for a folder of images: a data set has its own.")
    kind = BACKBONES.get(backbone)  # an unknown name is reported before a folder is looked at
    ours = isinstance(kind, type) and issubclass(kind, Backbone)
    size = DATASETS.get(dataset).image_size if dataset is not None else image_size or 84
    one_of("recipe", recipe, ("cpu", "gpu"))
    if dataset is None:
        published = folder_pretraining()
    elif recipe == "gpu":
        published = base_class_pretraining_on_gpu(size, any_size=ours, backbone=kind)
    else:
        published = base_class_pretraining(size, any_size=ours)
    wanted = _with(published, given)
    if wanted.augmentation is not None:
        wanted.augmentation.require_fit(size)
    return _checked(
        PretrainConfig(
            backbone=backbone,
            image_size=size,
            max_steps=max_steps,
            seed=seed,
            precision=resolve_precision(precision, accelerator),
            recipe=wanted,
            dataset=dataset,
            places=_absolute(places),
            folder=_absolute(folder),
            teacher=_absolute(teacher),
        )
    )


def recipe_for(dataset: str, accelerator: str = "auto", data_root: Path | None = None) -> str:
    """Name of the recipe that suits a benchmark's pretraining here: on a GPU its own, from 10,000 images on."""
    if accelerator == "cpu" or not torch.cuda.is_available():
        return "cpu"
    return "gpu" if len(load_split(dataset, "train", data_root).labels) >= _MANY else "cpu"


def train_config(
    dataset: str,
    backbone: str,
    algorithm: str,
    *,
    pretrained: Path | None = None,
    max_steps: int | None = None,
    seed: int = 0,
    precision: str = "auto",
    accelerator: str = "auto",
    validation: Validation | None = None,
    test_shots: int = 5,
    given: Mapping[str, Any] | None = None,
) -> TrainConfig:
    """The configuration of a meta-training by the recipe of data set, backbone and method; see also `pretrain_config`.

    Arguments that are fields of `TrainConfig` are described there. An IAM in the algorithm without a reduction ratio
    gets the data set's. By default the backbone starts from fresh weights, and the best weights are chosen on the
    paper's 2,000 episodes. miniImageNet's training shots depend on those of later tests.

    Raises:
        UsageError: If a name is unknown or names parts for testing only, nothing can be learned through the method, it
            is not built for the episodes, the backbone has no recipe for pretrained weights, or a value is out of its
            range.

    Example:
        >>> config = train_config("mini", "conv4", "lssvm+iam", precision="32", given={"epochs": 3})
        >>> config.algorithm, config.image_size, config.recipe.epochs, config.recipe.lr
        ('lssvm+iam(reduction=16)', 84, 3, 0.1)
    """
    images, size = DATASETS.get(dataset), DATASETS.get(dataset).image_size
    method = _fresh_method(algorithm, images.recipe.iam_reduction, backbone, size)
    recipe = meta_training(images, BACKBONES.get(backbone), pretrained is not None, test_shots, given)
    recipe = _with(method.recipe(recipe, pretrained=pretrained is not None, test_shots=test_shots), given)
    _require_criterion(method, given or {})
    recipe.augmentation.require_fit(size)
    validation = validation or Validation()
    _require_shape(method, recipe, "Training (`ways`, `shots`, `queries`)")
    _require_shape(method, validation, "Validation (`val_ways`, `val_shots`, `val_queries`)")
    return _checked(
        TrainConfig(
            backbone=backbone,
            image_size=size,
            max_steps=max_steps,
            seed=seed,
            precision=resolve_precision(precision, accelerator),
            dataset=dataset,
            algorithm=str(method),
            recipe=recipe,
            validation=validation,
            pretrained=_absolute(pretrained),
        )
    )


def _fresh_method(algorithm: str, iam_reduction: int, backbone: str, image_size: int) -> Method:
    """The method, its IAM with the data set's reduction ratio unless the name gives one; its weights take no memory."""
    parts = [
        Part(part.name, {"reduction": iam_reduction, **part.arguments}) if part.name == "iam" else part
        for part in parse(algorithm)
    ]
    with torch.device("meta"):
        network = build_backbone(backbone, image_size)
        dim = feature_size(network)
        method = parse_method("+".join(map(str, parts)), dim=dim, backbone=network)
    if method.untrained_parts:
        raise UsageError(f"{method.untrained_parts[0]} has no weights: name it to 'fslstm eval', not in the algorithm.")
    if not has_weights(method):
        _require_gradient(str(method), dim)
    return method


def _require_shape(method: Method, shape: MetaRecipe | Validation, where: str) -> None:
    """Refuse episodes of a shape that the method was not built for, saying where they are asked for."""
    why = method.why_not_shape(shape.ways, shape.ways * shape.shots, shape.ways * shape.queries)
    if why is not None:
        raise UsageError(f"{where}: {why}")


def _require_criterion(method: Method, given: Iterable[str]) -> None:
    """Refuse values of the criterion for a method that has a loss of its own."""
    for name in given:
        if name in ("label_smoothing", "scale_lr") and not method.uses_criterion:
            raise UsageError(f"`{name}` has no effect with {method.family}, which has a loss of its own: leave it out.")


def _require_gradient(name: str, dim: int | None) -> None:
    """Refuse a method without weights or gradients for the backbone, as a small episode shows."""
    method = parse_method(name, dim=dim)
    labels = torch.arange(5, device="cpu")
    points = torch.rand(2, 5, dim or 5, generator=torch.Generator("cpu").manual_seed(0), device="cpu").requires_grad_()
    loss, _ = method.loss(EpisodeFeatures(points[0], points[1], labels), labels, F.cross_entropy)
    if not loss.requires_grad or not torch.autograd.grad(loss, points)[0].any():
        raise UsageError(
            f"{name} has no weights, and passes no gradients to a backbone: name it to "
            "'fslstm eval', not in the algorithm."
        )


def _with(recipe: R, given: Mapping[str, Any] | None) -> R:
    """The recipe with the values given, in their bounds, of which each must do something."""
    found: R = changed(type(recipe), to_plain(recipe), given or {})
    for name in given or {}:
        if name in found.idle:
            raise UsageError(f"`{name}` has no effect with `{found.idle[name]}`: leave it out.")
    return found


def _absolute(path: Path | None) -> str | None:
    return None if path is None else str(path.resolve())


def _checked(config: C) -> C:
    """The same configuration, once it can be read back as from a run folder."""
    return from_plain(type(config), to_plain(config))

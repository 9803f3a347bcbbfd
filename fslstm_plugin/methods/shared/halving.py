"""The schedule that the episodic rivals were published with: Adam, one episode per step, its rate halved at times."""

from __future__ import annotations

from msgspec.structs import replace

from ...recipes import Augmentation, MetaRecipe

_EPOCH = 1000  # Episodes between two validations, ours.


def halving_adam(
    recipe: MetaRecipe, *, episodes: int, every: int, shots: int, queries: int, pretrained: bool, clip_norm: float = 0.0
) -> MetaRecipe:
    """Adam at 1e-3 without weight decay, augmentation, label smoothing or dropout, on one episode per step.

    The published backbones have no dropout. A graph or a relation that is learned from the distances of features with
    dropout does not fit those without: from a pretrained Conv4 TPN then stays at 39 % where it has 61 % without.

    A pretrained backbone gets a tenth of the rate, which is ours: the first gradients come through layers that know
    nothing yet, and would undo what it has learned.

    After every so many of the episodes the rates are halved. The rest is taken from the given recipe.

    Example:
        >>> standard = MetaRecipe(augmentation=Augmentation.published(32), lr=0.1, method_lr=0.1)
        >>> halved = halving_adam(standard, episodes=5000, every=1000, shots=1, queries=15, pretrained=False)
        >>> halved.epochs, halved.lr, [halved.factor(share) for share in (0, 0.2, 0.79, 0.8)]
        (5, 0.001, [1.0, 0.5, 0.125, 0.0625])
    """
    times = range(1, (episodes - 1) // every + 1)
    return replace(
        recipe,
        augmentation=Augmentation(padding=0, jitter=0.0, flip=0.0),
        optimizer="adam",
        lr=1e-4 if pretrained else 1e-3,
        method_lr=1e-3,
        weight_decay=0.0,
        clip_norm=clip_norm,
        dropout=0.0,
        epochs=episodes // _EPOCH,
        steps_per_epoch=_EPOCH,
        episodes_per_step=1,
        shots=shots,
        queries=queries,
        label_smoothing=0.0,
        schedule="steps",
        milestones=tuple(time * every / episodes for time in times),
        factors=tuple(0.5**time for time in times),
    )

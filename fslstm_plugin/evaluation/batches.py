"""Answers of methods in the same episodes, computed in batches and joined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from msgspec import Struct
from torch import Tensor

from ..features import EpisodeFeatures
from ..heads import one_hot
from ..methods.base import Method
from .devices import fetched, sent
from .session import Session
from .setting import Setting

_MOST_EPISODES = {"cpu": 16, "cuda": 1024}  # At a time.
_MOST_LOGITS = {"cpu": 2**20, "cuda": 2**25}  # Of the support together with each query, for prediction sets.


class MethodRow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of a table about methods of runs, both by name, with a number of support images per class."""

    run: str
    method: str
    shots: int


class Batch(NamedTuple):
    """Some episodes: the number of the first, their features, and the labels of their queries, int64 ``(episodes, m)``.

    The label of a class that has no support is its number among all classes of the episode.
    """

    first: int
    features: EpisodeFeatures
    query_labels: Tensor


Answer = Callable[[Method, Batch], Sequence[Tensor]]


def collect(
    session: Session,
    methods: Sequence[Method],
    setting: Setting,
    answer: Answer,
    title: str,
    known: int | None = None,
) -> list[tuple[Method, list[Tensor]]]:
    """Answers of methods for each episode: of each method the tensors of all episodes, on the CPU.

    Args:
        session: The model and its images.
        methods: Of this session.
        setting: The episodes.
        answer: From a method and a batch to tensors whose first dimension is its episodes.
        title: What is being done, for the progress bar, which also says how many shots there are.
        known: How many of the episode's classes, the first ones, have their support; all by default.
    """
    arriving: dict[int, list[Callable[[], Sequence[Tensor]]]] = {id(method): [] for method in methods}
    sampler, episodes = setting.sampler(session.split), setting.episodes
    ways = setting.ways if known is None else known
    kept = ways * sampler.shots
    targets = one_hot(sampler.labels[:kept].to(session.device), ways)
    kind = "cuda" if session.device.type == "cuda" else "cpu"
    size = max(1, min(_MOST_EPISODES[kind], _MOST_LOGITS[kind] // (targets.numel() * sampler.ways * sampler.queries)))
    groups = session.by_pass(methods)
    done, total = 0, episodes * len(groups)
    with session.tell(f"{title}, {setting.shots}-shot", total) as say, torch.no_grad():
        for group in groups:
            source = session.source(group)
            for first in range(0, episodes, size):
                count = min(size, episodes - first)
                indices = sampler.batch(first, count)
                used = torch.cat([indices[:, :kept], indices[:, sampler.num_support :]], 1)
                together = sent(torch.cat([used, sampler.query_labels(first, count)], 1), session.device)
                used, labels = together.tensor_split([used.shape[1]], dim=1)
                features = EpisodeFeatures.from_points(
                    source.points(used), targets.expand(count, -1, -1), source.base_mean, source.map_shape
                )
                batch = Batch(first, features, labels)
                for method in group:
                    with source.precision_of(method, session.device):
                        answers = answer(method.eval(), batch)
                    arriving[id(method)].append(fetched(answers))
                features.forget()
                done += count
                say(done, total)
    return [
        (method, [torch.cat(parts) for parts in zip(*(arrived() for arrived in arriving[id(method)]), strict=True)])
        for method in methods
    ]

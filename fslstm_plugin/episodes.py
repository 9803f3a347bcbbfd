"""Episodes: the one batch type between data, backbone and heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .checks import require, require_integers
from .errors import UsageError, count_of


@dataclass  # not frozen: Lightning moves the fields to the device in place
class Episodes:
    """A batch of few-shot tasks of one shape, support samples first.

    Args:
        samples: Images or features ``(batch, n + m, *shape)``.
        labels: Class of each sample in [0, ways), int64 ``(batch, n + m)``.
        num_support: Number n of support samples per episode.
        ways: Number of classes per episode.

    Example:
        >>> labels = torch.tensor([[0, 1, 0, 1, 1]])
        >>> episodes = Episodes(torch.zeros(1, 5, 8), labels, num_support=2, ways=2)
        >>> episodes.support.shape, episodes.query_labels
        (torch.Size([1, 2, 8]), tensor([[0, 1, 1]]))
    """

    samples: Tensor
    labels: Tensor
    num_support: int
    ways: int

    @classmethod
    def from_task(cls, data: Tensor, labels: Tensor, ways: int, shots: int) -> Episodes:
        """One learn2learn task: the first ``shots`` samples of each class support, the others are queries.

        Args:
            data: Samples ``(N, *shape)`` or ``(1, N, *shape)`` in any order of classes.
            labels: Class of each sample, any integers, ``(N,)`` or ``(1, N)``.
            ways: Number of classes expected in the task.
            shots: Support samples per class.

        Returns:
            A batch of one episode with the labels renumbered from 0 in ascending order.

        Raises:
            UsageError: If data and labels do not go together, the labels are no integers, the task has another number
                of classes, or a class has no sample left to be a query.
        """
        require("shots", shots, least=1, whole=True)
        if not isinstance(data, Tensor) or not isinstance(labels, Tensor):
            found = f"a {type(data).__name__} and a {type(labels).__name__}"
            raise UsageError(f"A task must be two tensors, samples and their labels, but got {found}.")
        if labels.dim() == 2:
            data, labels = data.squeeze(0), labels.squeeze(0)
        if labels.dim() != 1 or data.shape[:1] != labels.shape:
            found = f"samples {tuple(data.shape)} and labels {tuple(labels.shape)}"
            raise UsageError(f"A task must have one label for each sample, but got {found}.")
        require_integers(labels)
        classes, labels, counts = torch.unique(labels, return_inverse=True, return_counts=True)
        if len(classes) != ways:
            raise UsageError(f"The task was expected to have {ways} classes, but it has {len(classes)}.")
        if int(counts.min()) <= shots:
            raise UsageError(
                f"With {count_of(shots, 'shot')} each class needs at least {shots + 1} samples, but one has "
                f"{int(counts.min())}."
            )
        by_class = torch.argsort(labels, stable=True)
        starts = counts.cumsum(0) - counts
        place = torch.arange(len(labels), device=labels.device) - starts.repeat_interleave(counts)
        order = torch.cat([by_class[place < shots], by_class[place >= shots]])
        return cls(data[order].unsqueeze(0), labels[order].unsqueeze(0), ways * shots, ways)

    @property
    def support(self) -> Tensor:
        """Support samples ``(batch, n, *shape)``."""
        return self.samples[:, : self.num_support]

    @property
    def query(self) -> Tensor:
        """Query samples ``(batch, m, *shape)``."""
        return self.samples[:, self.num_support :]

    @property
    def support_labels(self) -> Tensor:
        """Labels of the support samples ``(batch, n)``."""
        return self.labels[:, : self.num_support]

    @property
    def query_labels(self) -> Tensor:
        """Labels of the query samples ``(batch, m)``."""
        return self.labels[:, self.num_support :]

    def embed(self, features: Callable[[Tensor], Tensor]) -> Episodes:
        """The same episodes with every sample replaced by its features, in one forward pass."""
        vectors = features(self.samples.flatten(0, 1))
        return replace(self, samples=vectors.unflatten(0, self.labels.shape))

"""How familiar queries are, and that as many of the classes' own are refused as is said."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fslstm_plugin import EpisodeFeatures
from fslstm_plugin.classifier.suggestions import suggest_first
from fslstm_plugin.confidence.familiarity import familiarity, familiarity_rank
from fslstm_plugin.confidence.refusal import refused_share
from fslstm_plugin.pictures.acceptance import accepting


def corrected(point: Tensor, others: Tensor) -> float:
    """Squared distance to the mean of the others, as if it were that of all; none where there are no others."""
    return (
        float((point - others.mean(0)).square().sum() * len(others) / (len(others) + 1)) if len(others) else torch.inf
    )


@pytest.mark.parametrize("sizes", [(2, 2), (3, 1, 4), (1, 1, 1), (5, 5)])
def test_ranks_are_those_of_explicitly_enlarged_classes(sizes: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    support, query = (
        torch.nn.functional.normalize(torch.randn(number, 4, generator=generator).double(), dim=-1)
        for number in (len(labels), 30)
    )
    found = familiarity_rank(EpisodeFeatures(support, query, labels))
    for point, rank in zip(query, found.tolist(), strict=True):
        own = torch.tensor([corrected(point, support[labels == label]) for label in range(len(sizes))])
        nearest = int(own.argmin())
        points, classes = torch.cat([support, point[None]]), torch.cat([labels, torch.tensor([nearest])])
        scores = []
        for place in range(len(points)):
            rest = torch.arange(len(points)) != place
            mine = classes == classes[place]
            if mine.sum() > 1:
                distances = [corrected(points[place], points[rest & (classes == each)]) for each in range(len(sizes))]
                scores.append(min(distances))
        assert rank == sum(each >= scores[-1] - 1e-12 for each in scores) / len(scores)


def test_batches_and_the_order_of_points_make_no_difference() -> None:
    generator = torch.Generator().manual_seed(1)
    support, query = torch.randn(3, 8, 5, generator=generator), torch.randn(3, 6, 5, generator=generator)
    labels = torch.arange(8) % 3
    found = familiarity_rank(EpisodeFeatures(support, query, labels.expand(3, -1)))
    order = torch.randperm(8, generator=generator)
    for place in range(3):
        alone = familiarity_rank(EpisodeFeatures(support[place][order], query[place], labels[order]))
        assert torch.equal(found[place], alone)


# Of features of unit length: sizes of the classes, spreads of their points, and the rank that is refused.
CASES = [
    ((2, 2), (1.0,) * 2, 0.2),
    ((2, 2, 2), (1.0,) * 3, 0.15),
    ((2,) * 5, (0.4, 0.5, 0.7, 1.0, 1.5), 0.1),
    ((2,) * 20, (1.0,) * 20, 0.05),
    ((5,) * 5, (1.0,) * 5, 0.05),
    ((20,) * 5, (0.4, 0.5, 0.7, 1.0, 1.5), 0.05),
    ((1, 1, 1, 1, 3), (1.0,) * 5, 0.25),
    ((1, 5, 5, 5, 5), (1.0,) * 5, 0.05),
    ((20, 2, 2, 2, 2), (0.5, 1.0, 1.0, 1.0, 1.0), 0.05),
    ((20, 2, 2, 2, 2), (1.0, 0.5, 0.5, 0.5, 0.5), 0.05),
    ((2, 3, 5, 10, 20), (1.5, 1.2, 1.0, 0.7, 0.5), 0.05),
    ((1,) * 10 + (10,) * 10, (1.0,) * 20, 0.05),
    ((1,) * 4 + (5,) * 4, (1.0,) * 4 + (0.6,) * 4, 0.05),
    ((1, 1, 1, 10), (1.0, 1.0, 1.0, 0.5), 0.1),
]


@pytest.mark.parametrize(("sizes", "spreads", "rank"), CASES)
@pytest.mark.parametrize("apart", [0.3, 1.0])
def test_as_many_queries_of_the_classes_are_refused_as_is_said(
    sizes: tuple[int, ...], spreads: tuple[float, ...], rank: float, apart: float
) -> None:
    generator = torch.Generator().manual_seed(0)
    draws, ways = 300 if len(sizes) < 20 else 60, len(sizes)
    labels = torch.arange(ways).repeat_interleave(torch.tensor(sizes))
    new = torch.arange(ways).repeat_interleave(10)
    scale = torch.arange(1, 65) ** -0.5
    means = 1 + apart * scale * torch.randn(draws, ways, 64, generator=generator)
    support, query = (
        means[:, each]
        + torch.tensor(spreads)[each, None] * scale * torch.randn(draws, len(each), 64, generator=generator)
        for each in (labels, new)
    )
    found = familiarity_rank(EpisodeFeatures(support, query, labels.expand(draws, -1)))
    refused = (found <= rank + 1e-9).double().view(draws, ways, 10).mean((0, 2))
    shares = torch.tensor(sizes, dtype=torch.float64) / sum(sizes)
    for equally, measured in ((False, float(refused @ shares)), (True, float(refused.mean()))):
        low, high = refused_share(sizes, rank, equally=equally)
        assert low - 0.02 <= measured <= high + 0.02


def test_fewer_are_refused_where_the_labelled_points_were_suggested() -> None:
    """Of as many of each class that were drawn at random as many as is said, of these not half as many."""
    generator = torch.Generator().manual_seed(0)
    scale, classes, rank = torch.arange(1, 65) ** -0.5, torch.arange(5), 0.05
    refused, said = [], []
    for _ in range(60):
        means = 1 + scale * torch.randn(5, 64, generator=generator)
        labels, new = classes.repeat(60), classes.repeat(30)
        pool, query = (means[each] + scale * torch.randn(len(each), 64, generator=generator) for each in (labels, new))
        chosen = torch.tensor([each.place for each in suggest_first(pool, 30)])
        counts = labels[chosen].bincount(minlength=5)
        drawn = torch.cat([(labels == each).nonzero()[: int(counts[each]), 0] for each in classes])
        ranks = (familiarity_rank(EpisodeFeatures(pool[each], query, labels[each])) for each in (chosen, drawn))
        refused.append([float((each <= rank + 1e-9).double().mean()) for each in ranks])
        said.append(refused_share(counts.tolist(), rank, equally=True))
    (of_chosen, of_drawn), (low, high) = (torch.tensor(each).mean(0).tolist() for each in (refused, said))
    assert low - 0.01 <= of_drawn <= high + 0.01
    assert of_chosen < low / 2
    assert "fewer of all where 'fslstm suggest' chose the labelled ones." in accepting(0.95, [6] * 5)[1]


def test_an_unfamiliar_query_is_less_familiar_than_all_points() -> None:
    support = torch.eye(3).repeat_interleave(5, 0) + 0.05 * torch.randn(
        15, 3, generator=torch.Generator().manual_seed(2)
    )
    labels = torch.arange(3).repeat_interleave(5)
    episode = EpisodeFeatures(support, torch.tensor([[1.0, 0.02, 0.0], [-1.0, -1.0, -1.0]]), labels)
    rank, score = familiarity_rank(episode), familiarity(episode)
    assert (rank[0] > 0.2, rank[1]) == (True, 1 / 16)
    assert score[0] > score[1]


@pytest.mark.parametrize(
    ("accepted", "counts", "asked", "said"),
    [
        (0.95, [5] * 5, None, "Expect this of about 4 % of the pictures of the classes, too: more of some"),
        (0.95, [2] * 10, None, "Expect this of 3 to 8 % of the pictures of the classes, too: more of some"),
        (0.8, [2, 2], 0.8, "Expect this of 17 to 25 % of"),
        (
            0.95,
            [20, 2, 2, 2, 2],
            None,
            "of about 4 % of the pictures of the classes, too, if they come in the proportions of",
        ),
        (0.95, [20, 2, 2, 2, 2], None, "of the labelled ones, and of 1 to 13 % if all classes have equally many:"),
        (1.0, [2, 2], None, "That needs 9 labelled pictures in classes with two or more, or --accept."),
        (1.0, [20, 20], 1.0, 'No picture is labelled "none of these".'),
    ],
)
def test_what_is_refused_is_said_in_one_number_or_as_a_range(
    accepted: float, counts: list[int], asked: float | None, said: str
) -> None:
    assert said in " ".join(accepting(accepted, counts, asked))

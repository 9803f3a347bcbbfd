"""Features of a user's own pictures with progress; unreadable pictures, copies and what else is said of them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from fslstm_plugin.errors import DataError, listed, printable
from fslstm_plugin.storage.tables import path_of

from . import terminal

if TYPE_CHECKING:
    import torch

    from fslstm_plugin.classifier.classifier import Classifier
    from fslstm_plugin.pictures import Picture
    from fslstm_plugin.pictures.decoding import Batch, Remark
    from fslstm_plugin.pretrained import PictureBackbone

Values = TypeVar("Values")
_MOST_NAMED = 20  # Unreadable pictures, or groups of copies; of the others only the number is given.


class Gathered(NamedTuple):
    """Pictures that could be read, their features ``(n, d)``, and those that could not be read."""

    pictures: list[Picture]
    features: torch.Tensor
    unreadable: list[Remark]

    def at(self, places: Sequence[int]) -> Gathered:
        """The pictures at these places."""
        return Gathered([self.pictures[place] for place in places], self.features[places], self.unreadable)


def held(classifier: Classifier) -> Gathered:
    """The labelled pictures of a classifier."""
    import torch

    from fslstm_plugin.pictures import Picture

    names = [Path(path_of(name or "a picture without a name")) for name in classifier.pictures_]
    labels = classifier.classes_[classifier.support_labels_].tolist()
    known = [Picture(*each) for each in zip(names, labels, classifier.groups_, strict=True)]
    return Gathered(known, torch.from_numpy(classifier.support_), [])


def gather(pictures: Sequence[Picture], backbone: PictureBackbone) -> Gathered:
    """Features of pictures, with progress; unreadable ones are named."""
    import torch

    from fslstm_plugin.pictures.embedding import features_of

    batches = list(told(features_of(pictures, backbone), len(pictures)))
    found = [each for batch in batches for each in batch.pictures]
    if not found:
        raise DataError("None of the pictures can be read.")
    unreadable = [each for batch in batches for each in batch.problems]
    return Gathered(found, torch.cat([batch.values for batch in batches]), unreadable)


def told(batches: Iterable[Batch[Values]], total: int) -> Iterator[Batch[Values]]:
    """The batches of so many pictures, with progress; unreadable ones are named, and in the end remarks are said."""
    done, unreadable = 0, 0
    remarks: list[Remark] = []
    with terminal.progress("Pictures", total) as tell:
        for batch in batches:
            for each in batch.problems[: max(0, _MOST_NAMED - unreadable)]:
                terminal.say(f"Left out: {each.text}")
            yield batch
            unreadable += len(batch.problems)
            remarks += batch.remarks
            done += batch.looked_at
            tell(done, total)
    for how, count in Counter(each.text for each in remarks).items():
        first = next(each.picture for each in remarks if each.text == how)
        more = f" and {count - 1:,} more" if count > 1 else ""
        terminal.say(f"{how}: {first.path}{more}.")


def without_copies(gathered: Gathered, known: Gathered | None = None) -> tuple[Gathered, list[list[Picture]]]:
    """Each picture once, and the groups of those that are alike: a copy would tell leave-one-out the answer.

    The pictures are not to be copies of known ones either. None may be in two classes.
    """
    import torch

    from fslstm_plugin.pictures.duplicates import duplicates

    both = [known, gathered] if known else [gathered]
    copies = duplicates([each for one in both for each in one.pictures], torch.cat([one.features for one in both]))
    again = {id(each) for _, *others in copies for each in others}
    kept = [place for place, each in enumerate(gathered.pictures) if id(each) not in again]
    return gathered.at(kept), copies


def on_copies(copies: Sequence[Sequence[Picture]]) -> list[str]:
    """A sentence on each of the first groups of identical pictures, and the number of the others."""
    said = [
        f"Given {len(group)} times, used once: {group[0].path}."
        if len({os.path.abspath(each.path) for each in group}) == 1
        else f"Identical to the backbone, used once: {listed(each.path for each in group)}."
        for group in copies[:_MOST_NAMED]
    ]
    more = [f"And {len(copies) - _MOST_NAMED:,} more."] if len(copies) > _MOST_NAMED else []
    return [printable(each) for each in said + more]

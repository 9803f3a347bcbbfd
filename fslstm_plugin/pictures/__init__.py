"""A user's own pictures: listed with their labels, decoded in threads, turned into features."""

from .duplicates import corrections, duplicates
from .embedding import Batch, Problem, Remark, features_of
from .listing import Picture, class_names, labelled, pictures_in

__all__ = [
    "Batch",
    "Picture",
    "Problem",
    "Remark",
    "class_names",
    "corrections",
    "duplicates",
    "features_of",
    "labelled",
    "pictures_in",
]

"""A user's own pictures: listed with their labels, decoded in threads, turned into features, predicted."""

from .listing import class_names, labelled, pictures_in
from .picture import Picture

__all__ = ["Picture", "class_names", "labelled", "pictures_in"]

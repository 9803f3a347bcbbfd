"""Evaluation: features computed once, many episodes and methods on them, statistics."""

"""The figures: one file each, and what they share."""

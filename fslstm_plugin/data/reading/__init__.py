"""Readers of untrusted files: archives, pickles, pictures."""

"""Methods: what all of them are, heads with what surrounds them, and the others, one file each."""

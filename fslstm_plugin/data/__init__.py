"""Data sets as uint8 tensors, episodes of indices, and images made from them on the device."""

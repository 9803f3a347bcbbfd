"""The C library's memory allocator, told to expect tensors."""

from __future__ import annotations

import ctypes
import sys

# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def keep_freed_memory() -> None:
    """Keep freed memory for the next tensor instead of returning it to the system.

    By default glibc returns every large block, and the pages of the next tensor are requested again, one fault each: a
    third of the time of an evaluation from cached features. Blocks of more than 32 MB, such as the maps of a batch in
    training, are returned: computing them takes far longer than requesting their pages, and the gaps between kept ones
    would add to the largest need. Only for a process of our own; elsewhere than on glibc nothing happens.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 2)  # Each keeps its own; with one, threads wait for each other.
        mallopt(_M_MMAP_THRESHOLD, 2**25)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)

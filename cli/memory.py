"""The C library's memory allocator, told to expect tensors."""

from __future__ import annotations

import ctypes
import sys

# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def keep_freed_memory() -> None:
    """Let freed memory wait for the next tensor in place of going back to the system.

    By default glibc gives every large block back, and the next tensor's pages are asked for anew, one fault each:
    a third of the time of an evaluation from cached features. Only for a process of our own; elsewhere than on
    glibc nothing happens.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 2)  # Each keeps its own; with one, threads wait for each other.
        mallopt(_M_MMAP_THRESHOLD, 2**30)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)

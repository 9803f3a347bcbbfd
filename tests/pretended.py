"""A GPU that is not there: its tensors say that they are on ``cuda``, and the CPU computes their values.

Within `PretendedGPU`, ``cuda`` is a name for PyTorch's lazy device, which has no backend here and no driver to ask; so
modules move, optimisers step and gradients flow as on a GPU. What a GPU refuses is refused: an operation on tensors of
two devices, NumPy's access to a tensor on ``cuda``, and eigenvectors of more small matrices than cuSOLVER takes.

It counts, since `PretendedGPU.forget`, what a GPU would be given and what Python would wait for, see `Counts`.

Not pretended: streams, ``autocast`` (entered, but everything stays in single precision), optimisers' fused and foreach
kernels (left out, as for any subclass of Tensor), graphs (what would be recorded is computed), memory, checkpoints with
tensors on ``cuda`` (they are read onto the CPU, as Lightning does), and rounding.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, _pop_mode_temporarily
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes, return_and_correct_aliasing
from torch.utils._pytree import tree_map_only

CPU, CUDA, LAZY = torch.device("cpu"), torch.device("cuda:0"), torch.device("lazy:0")
COPIES = {torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default}
OF_NAMES = {torch.device, torch._C._nn._parse_to}
FROM_NUMBERS = {torch.tensor, torch.as_tensor, torch.asarray}
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"}
# What Python waits for, beside blocking copies and masks as indices: sizes and values that depend on values.
WAITING = {
    *("_local_scalar_dense", "equal", "nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive"),
    *("bincount", "repeat_interleave", "_linalg_check_errors", "_linalg_eigh"),
}
MOST_DECOMPOSED = 2**15  # So many matrices and more, of up to 32 rows, cuSOLVER of CUDA 13.0 refuses.
FILLS = {"masked_fill", "masked_fill_", "index_fill", "index_fill_"}
TAKES_SCALARS = {"where", "masked_fill", "masked_fill_", "fill", "fill_", "index_fill", "index_fill_"}


class OnGPU(Tensor):
    """A tensor of the pretended GPU.

    Args:
        values: Its values, on the CPU.
    """

    values: Tensor
    device = property(lambda self: CUDA)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, values: Tensor) -> OnGPU:
        tensor = Tensor._make_wrapper_subclass(
            cls,
            values.size(),
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            layout=values.layout,
            device=LAZY,
        )
        tensor.values = values
        return tensor

    @classmethod
    def __torch_dispatch__(cls, operation, types, arguments=(), options=None):
        return _computed(operation, arguments, options or {})

    def __reduce_ex__(self, protocol):
        return self.values.__reduce_ex__(protocol)

    def __array__(self, *_, **__):
        return self.numpy()

    def numpy(self, *_, **__):
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")

    def new_tensor(self, data, dtype=None):
        return torch.tensor(data, dtype=dtype or self.dtype, device=CUDA)

    def tolist(self):
        PretendedGPU.counts.wait("tolist")
        return self.values.tolist()

    def __format__(self, form):
        return format(self.values, form)

    def __repr__(self, **_):
        return f"{self.values!r} on {CUDA}"


@dataclass
class Counts:
    """What was asked of the pretended GPU.

    Attributes:
        operations: Of each name, how many; views are none.
        copies: To the GPU.
        waits: For the GPU, by operation and the place in the package that asked for it.
    """

    operations: Counter[str] = field(default_factory=Counter)
    copies: int = 0
    waits: Counter[str] = field(default_factory=Counter)

    def wait(self, name: str) -> None:
        """Count one, at the innermost line of the package."""
        frame = sys._getframe(1)
        while frame.f_back and "fslstm_plugin" not in frame.f_code.co_filename:
            frame = frame.f_back
        self.waits[f"{name} in {Path(frame.f_code.co_filename).name}:{frame.f_lineno}"] += 1

    def count(self, operation, arguments, options) -> None:
        """Count one operation that has to do with the GPU."""
        name = operation.overloadpacket.__name__
        if operation in COPIES:
            into = operation is torch.ops.aten.copy_.default
            source = arguments[1] if into else arguments[0]
            device = arguments[0].device if into else options.get("device") or source.device
            free = options.get("non_blocking") or (into and arguments[2:] == (True,))
            if device.type != "cpu" and source.device.type == "cpu":
                self.copies += 1
                free = free and source.untyped_storage().data_ptr() in PretendedGPU.pinned
            if "cpu" in (device.type, source.device.type):
                return None if free else self.wait("copy")
        indices = [each for each in arguments[1] if each is not None] if name in INDEXING else []
        on_cpu = isinstance(arguments[0], OnGPU) and any(not isinstance(each, OnGPU) for each in indices)
        # A choice needs a number of the CPU there, and a fill reads one that is there.
        numbers = {isinstance(each, OnGPU) for each in arguments if isinstance(each, Tensor) and each.ndim == 0}
        on_cpu |= (False in numbers) if name == "where" else (True in numbers and name in FILLS)
        if name in WAITING or on_cpu or any(each.dtype in (torch.bool, torch.uint8) for each in indices):
            self.wait(name)
        if not any(each.alias_info is not None and not each.alias_info.is_write for each in operation._schema.returns):
            self.operations[name] += 1
        return None


class PretendedGPU:
    """Within it there is one GPU, for this thread and those that it starts.

    Attributes:
        used: Whether it computed anything.
        counts: What was asked of it.
        pinned: Tensors on the CPU that it reads without waiting, by their storage.
    """

    kind = "pretended"
    used = False
    counts = Counts()
    pinned: dict[int, Tensor] = {}

    def __enter__(self) -> PretendedGPU:
        self.forget()
        run = threading.Thread.run

        def run_too(thread: threading.Thread) -> None:
            with _Renaming(), _Computing():
                run(thread)

        idle = SimpleNamespace(is_capturing=lambda: False)
        cuda = {
            "_lazy_init": lambda: None,
            "is_available": lambda: True,
            "device_count": lambda: 1,
            "current_device": lambda: 0,
            "set_device": lambda device: None,
            "synchronize": lambda device=None: self.counts.wait("synchronize"),
            "Event": _Event,
            "current_stream": lambda device=None: idle,
            "memory_allocated": lambda device=None: 0,
            "max_memory_allocated": lambda device=None: 0,
            "reset_peak_memory_stats": lambda device=None: None,
            "mem_get_info": lambda device=None: (2**33, 2**33),
            "empty_cache": lambda: None,
            "is_current_stream_capturing": lambda: False,
            "is_bf16_supported": lambda including_emulation=True: True,
            "get_device_name": lambda device=None: "Pretended GPU",
            "get_device_capability": lambda device=None: (9, 0),
            "get_device_properties": lambda device=None: SimpleNamespace(name="Pretended GPU", total_memory=2**33),
            "get_rng_state_all": list,
            "get_rng_state": lambda device=None: torch.get_rng_state(),
            "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
            "make_graphed_callables": lambda passes, tensors, allow_unused_input=False: passes,
        }
        self.within = ExitStack()
        anything = {"synchronize": lambda device=None: None, "current_stream": lambda device=None: idle}
        self.within.enter_context(mock.patch.multiple(torch.accelerator, **anything))
        self.within.enter_context(mock.patch.multiple(torch.cuda, **cuda))
        self.within.enter_context(mock.patch.object(threading.Thread, "run", run_too))
        self.within.enter_context(mock.patch.object(Tensor, "pin_memory", _pinned))
        self.within.enter_context(_Renaming())
        self.within.enter_context(_Computing())
        return self

    def forget(self) -> None:
        """Nothing was computed."""
        PretendedGPU.used, PretendedGPU.counts, PretendedGPU.pinned = False, Counts(), {}

    def __exit__(self, *error: object) -> None:
        self.within.close()


def _pinned(tensor: Tensor, device: object = None) -> Tensor:
    if isinstance(tensor, OnGPU):
        raise RuntimeError("cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned")
    copy = tensor.clone()
    PretendedGPU.pinned[copy.untyped_storage().data_ptr()] = copy  # Kept, so that no other tensor gets its place.
    return copy


class _Event:
    """A point in time."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.timing, self.began = enable_timing, 0.0

    def record(self, stream: object = None) -> None:
        self.began = time.perf_counter()

    def synchronize(self) -> None:
        PretendedGPU.counts.wait("event")

    def elapsed_time(self, end: _Event) -> float:
        if not (self.timing and end.timing):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        return 1e3 * (end.began - self.began)


class _Renaming(TorchFunctionMode):
    """What says ``cuda`` in Python is the lazy device in PyTorch."""

    def __torch_function__(self, function, types, arguments=(), options=None):
        options = options or {}
        if function in OF_NAMES:
            return function(*arguments, **options)
        arguments = [_lazy(each) for each in arguments]
        options = {name: _lazy(each) for name, each in options.items()}
        if function in FROM_NUMBERS and (device := options.pop("device", None)) is not None:
            return function(*arguments, **options).to(device)  # Dispatched nowhere, they ask for a backend.
        found = function(*arguments, **options)
        return CUDA if isinstance(found, torch.device) and found.type == "lazy" else found


def _lazy(argument: object) -> object:
    if isinstance(argument, (str, torch.device)) and str(argument).startswith("cuda"):
        if str(argument) not in ("cuda", "cuda:0"):
            raise RuntimeError("CUDA error: invalid device ordinal")
        return LAZY
    return argument


class _Computing(TorchDispatchMode):
    """Sees what is made on the device, or copied to it."""

    def __torch_dispatch__(self, operation, types, arguments=(), options=None):
        return _computed(operation, arguments, options or {})


def _computed(operation, arguments, options):
    if _is_composite(operation):  # as in inference mode, which does not take these apart
        with _Computing():
            return operation.decompose(*arguments, **options)
    given = [*arguments, *options.values()]
    tensors = [each for one in given for each in (one if isinstance(one, (list, tuple)) else [one])]
    tensors = [each for each in tensors if isinstance(each, Tensor)]
    on_gpu = any(isinstance(tensor, OnGPU) for tensor in tensors)
    wanted = options.get("device")
    to_gpu = wanted is not None and wanted.type in ("lazy", "cuda")  # Which PyTorch's own Python code says, unrenamed.
    if not on_gpu and not to_gpu:
        return operation(*arguments, **options)
    PretendedGPU.used = True
    PretendedGPU.counts.count(operation, arguments, options)
    _require_one_device(operation, arguments, tensors)
    if operation.overloadpacket.__name__ == "_linalg_eigh" and arguments[0].shape[:-2].numel() >= MOST_DECOMPOSED:
        raise torch.linalg.LinAlgError("cusolver error: CUSOLVER_STATUS_INVALID_VALUE")
    if options.get("generator") is not None:
        raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
    values = [_values(each) for each in arguments]
    found = operation(
        *values, **{name: CPU if to_gpu and each is wanted else _values(each) for name, each in options.items()}
    )
    leaves = on_gpu and wanted is not None and not to_gpu
    if leaves or (operation is torch.ops.aten.copy_.default and not isinstance(arguments[0], OnGPU)):
        return found
    found = tree_map_only(Tensor, OnGPU, found)
    return return_and_correct_aliasing(operation, arguments, options, found) if _aliases(operation) else found


def _values(argument: object) -> object:
    if isinstance(argument, (list, tuple)):
        return [_values(each) for each in argument]
    return argument.values if isinstance(argument, OnGPU) else argument


@cache
def _is_composite(operation) -> bool:
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return torch._C._dispatch_has_kernel_for_dispatch_key(operation.name(), key)


@cache
def _aliases(operation) -> bool:
    """Whether something that the operation gives is a view of its arguments, or one of them."""
    return any(each.alias_info is not None for each in operation._schema.returns)


def _require_one_device(operation, arguments, tensors) -> None:
    """Refuse what CUDA refuses: an operation on tensors of two devices.

    Raises:
        RuntimeError: As PyTorch does.
    """
    others = [tensor for tensor in tensors if not isinstance(tensor, OnGPU) and tensor.device.type == "cpu"]
    if len(others) == len(tensors) or not others or operation in COPIES:
        return
    name, first = operation.overloadpacket.__name__, arguments[0]
    if name in INDEXING and isinstance(first, OnGPU):  # by indices on the CPU
        others = [tensor for tensor in others if any(tensor is each for each in arguments[2:])]
    scalars = torch.Tag.pointwise in operation.tags or name in TAKES_SCALARS or name in INDEXING
    changed = first if operation._schema.is_mutable else None
    if all(scalars and tensor.ndim == 0 and tensor is not changed for tensor in others):
        return
    raise RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! ({operation})"
    )


@contextmanager
def paused() -> Iterator[None]:
    """For what takes no such modes, as PyTorch's tracers."""
    with _disable_current_modes(), _pop_mode_temporarily():
        yield

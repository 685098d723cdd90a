"""Arrays of all ranks added up, without a call of MPI and without a thread that spins.

    with lmdbio.sync.Synchronizer(MPI.COMM_WORLD) as sync:
        operation = sync.allreduce("conv1", gradient)      # in place; returns at once
        ...
        operation.wait()

`lmdbio.torch.GradientSync` does this for the parameters of a model.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any, Dict, List, Optional

import numpy as np

from lmdbio import _capi

# How long a call sleeps before Python looks for signals.
_LOOK_UP_MS = 100

OPERATIONS = {"allreduce": 0, "broadcast": 1}
TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3, "int32": 4, "int64": 5}
REDUCTIONS = {"sum": 0, "min": 1, "max": 2, "product": 3}


class Operation:
    """An operation under way. Keeps its array alive until it is done."""

    def __init__(self, handle: ctypes.c_void_p, keeps: Any) -> None:
        self._handle = handle
        self._keeps = keeps
        self._closes = weakref.finalize(self, _close_op, handle, keeps)

    def is_done(self) -> bool:
        """Whether it is done or has failed. Never waits."""
        done = ctypes.c_int()
        _capi.check_op(self._handle, _capi.library().lmdbio_sync_op_test(
            self._handle, ctypes.byref(done)))
        return done.value != 0

    def wait(self) -> None:
        """Sleeps until it is done. InvalidArgumentError says what ranks mean differently,
        PeerFailedError who is gone, or has not submitted the tensor."""
        wait_within = _capi.library().lmdbio_sync_op_wait_within
        status = _capi.TIMEOUT
        while status == _capi.TIMEOUT:
            status = wait_within(self._handle, _LOOK_UP_MS)
        _capi.check_op(self._handle, status)


# The library writes to arrays of operations that nobody waits for any more, so these stay. Errors
# of such operations are nobody's.
_orphans: List[Any] = []


def _close_op(handle: ctypes.c_void_p, keeps: Any) -> None:
    done = ctypes.c_int(1)
    _capi.library().lmdbio_sync_op_test(handle, ctypes.byref(done))
    if not done.value:
        _orphans.append(keeps)
    _capi.library().lmdbio_sync_op_close(handle)


class Synchronizer:
    """Adds up arrays over the ranks of a communicator of mpi4py's; without one, of this process.

    comm     its ranks; the constructor, shutdown and close are collective
    options  as in lmdbio_sync.h: coordinator, pacing, collective, transport, cycle_time_us,
             gs_cycles, num_groups, fusion_threshold_bytes, bucket_bytes, cache_capacity,
             gradient_bytes, chunk_bytes, chunk_depth, plan_patience_ms, stall_report_ms,
             stall_limit_ms, silence_limit_ms, timeline_path, placement

    Any thread may submit and wait. Errors are LmdbioError, most also a built-in exception; stall
    reports go to logging.getLogger("lmdbio").
    """

    def __init__(self, comm: Any = None, **options: Any) -> None:
        self._handle: Optional[ctypes.c_void_p] = None
        self._places: List[weakref.ref] = []
        unknown = set(options) - {name for name, _ in _capi.SyncOptions._fields_[1:-2]}
        if unknown:
            raise TypeError(f"there is no option {', '.join(sorted(unknown))}")
        self._handle = _capi.open_sync(_capi.sync_options_of(**options), comm)
        rank, size = ctypes.c_int(), ctypes.c_int()
        self._check(_capi.library().lmdbio_sync_rank(self._handle, ctypes.byref(rank),
                                                     ctypes.byref(size)))
        self.rank, self.size = rank.value, size.value

    def _use(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise ValueError("the synchronizer is closed")
        return self._handle

    def _check(self, status: int) -> None:
        _capi.check_sync(self._use(), status)

    def place(self, size_bytes: int) -> np.ndarray:
        """Memory of `gradient_bytes`, as uint8: arrays that are reduced there need no copy. Every
        rank asks for the same sizes in the same order."""
        size = _capi.number("size_bytes", size_bytes, ctypes.c_uint64)
        memory = ctypes.c_void_p()
        self._check(_capi.library().lmdbio_sync_place(self._use(), size, ctypes.byref(memory)))
        if size == 0:
            return np.empty(0, np.uint8)
        buffer = (ctypes.c_uint8 * size).from_address(memory.value)
        self._places.append(weakref.ref(buffer))
        return np.frombuffer(buffer, np.uint8)

    def submit(self, name: str, address: int, shape: Any, type_name: str, keeps: Any,
               operation: str = "allreduce", reduction: str = "sum", root: int = 0,
               prescale: float = 1.0, postscale: float = 1.0) -> Operation:
        """Values at an address, worked on in place. `keeps` is what keeps them there."""
        dimensions = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        request = _capi.SyncRequest(
            struct_size=ctypes.sizeof(_capi.SyncRequest), name=_capi.text("name", name),
            operation=_capi.choice("operation", operation, OPERATIONS),
            type=_capi.choice("type", type_name, TYPES),
            reduction=_capi.choice("reduction", reduction, REDUCTIONS),
            root=_capi.number("root", root, ctypes.c_int), shape=dimensions,
            dimension_count=len(shape), input=address, output=address, prescale=prescale,
            postscale=postscale)
        handle = ctypes.c_void_p()
        self._check(_capi.library().lmdbio_sync_submit(self._use(), ctypes.byref(request),
                                                       ctypes.byref(handle)))
        return Operation(handle, keeps)

    def _submit_array(self, name: str, array: np.ndarray, **fields: Any) -> Operation:
        if not (array.flags.c_contiguous and array.flags.writeable):
            raise ValueError(f"{name}: the array must be contiguous and writable")
        return self.submit(name, array.ctypes.data, array.shape, array.dtype.name, array, **fields)

    def allreduce(self, name: str, array: np.ndarray, reduction: str = "sum",
                  prescale: float = 1.0, postscale: float = 1.0) -> Operation:
        """Every rank's array becomes the reduction of all of them, in place. It must be left alone
        until the operation is done."""
        return self._submit_array(name, array, reduction=reduction, prescale=prescale,
                                  postscale=postscale)

    def broadcast(self, name: str, array: np.ndarray, root: int = 0) -> Operation:
        """Every rank's array becomes the root's."""
        return self._submit_array(name, array, operation="broadcast", root=root)

    def counters(self) -> Dict[str, int]:
        """What has been done so far, as lmdbio_sync_counters."""
        counters = ctypes.POINTER(_capi.SyncCounters)()
        self._check(_capi.library().lmdbio_sync_get_counters(self._use(), ctypes.byref(counters)))
        return {name: getattr(counters.contents, name) for name, _ in _capi.SyncCounters._fields_}

    def describe(self) -> str:
        """What was chosen, in lines."""
        text = ctypes.c_char_p()
        self._check(_capi.library().lmdbio_sync_describe(self._use(), ctypes.byref(text)))
        return text.value.decode()

    def flight_record(self) -> str:
        """The last operations of this rank, a line each."""
        text = ctypes.c_char_p()
        self._check(_capi.library().lmdbio_sync_flight_record(self._use(), ctypes.byref(text)))
        return text.value.decode()

    def shutdown(self) -> None:
        """Collective: waits until all ranks have come and everything is done."""
        self._check(_capi.library().lmdbio_sync_shutdown(self._use()))

    def close(self) -> None:
        """Collective. What is under way fails. BufferError says that placed memory is in use."""
        if self._handle is None:
            return
        if any(place() is not None for place in self._places):
            raise BufferError("memory that was placed is still in use")
        handle, self._handle = self._handle, None
        _capi.library().lmdbio_sync_close(handle)

    def __enter__(self) -> "Synchronizer":
        return self

    def __exit__(self, kind: Any, *_error: Any) -> None:
        if kind is None:
            self.shutdown()
        self.close()

    def __getstate__(self) -> Any:
        raise TypeError("a synchronizer cannot be pickled")

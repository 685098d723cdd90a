"""Arrays of all ranks added up, without a call of MPI and without a thread that spins.

    with lmdbio.sync.Synchronizer(MPI.COMM_WORLD) as sync:
        operation = sync.allreduce("conv1", gradient)      # in place; returns at once
        ...
        operation.wait()

`lmdbio.torch.GradientSync` does this for the parameters of a model.
"""

from __future__ import annotations

import ctypes
import gc
import traceback
import warnings
import weakref
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np

from lmdbio import _capi
from lmdbio._errors import ClosedError, InUseError, InvalidArgumentError, InvalidTypeError

# How long a call sleeps before Python looks for signals.
_LOOK_UP_MS = 100

OPERATIONS = {"allreduce": 0, "broadcast": 1}
TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3, "int32": 4, "int64": 5}
REDUCTIONS = {"sum": 0, "min": 1, "max": 2, "product": 3}

# Operations that nobody waits for any more, by their handles' numbers, and what keeps the arrays
# that the library still works on. Their errors are nobody's.
_Orphans = Dict[int, Tuple[ctypes.c_void_p, Any]]

# Of each open synchronizer, by its handle's number: one that is never closed works on for ever.
_orphans: Dict[int, _Orphans] = {}


class Operation:
    """An operation under way. Keeps its array alive until it is done."""

    def __init__(self, handle: ctypes.c_void_p, keeps: Any, orphans: _Orphans) -> None:
        self._handle = handle
        self._closes = weakref.finalize(self, _let_go_of_op, handle, keeps, orphans)

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


def _is_over(handle: ctypes.c_void_p) -> bool:
    done = ctypes.c_int(1)
    _capi.library().lmdbio_sync_op_test(handle, ctypes.byref(done))
    return done.value != 0


def _let_go_of_op(handle: ctypes.c_void_p, keeps: Any, orphans: _Orphans) -> None:
    if keeps is None or _is_over(handle):
        _capi.library().lmdbio_sync_op_close(handle)
    else:
        orphans[handle.value] = (handle, keeps)


def _forget_done(orphans: _Orphans) -> None:
    for number, (handle, _) in list(orphans.items()):
        if _is_over(handle) and orphans.pop(number, None) is not None:
            _capi.library().lmdbio_sync_op_close(handle)


def _close_sync(handle: ctypes.c_void_p) -> None:
    _capi.library().lmdbio_sync_close(handle)
    _forget_done(_orphans.pop(handle.value, {}))


def _close_with_last(handle: ctypes.c_void_p, places_left: List[None]) -> None:
    places_left.pop()
    if not places_left:
        _close_sync(handle)


class Synchronizer:
    """Adds up arrays over the ranks of a communicator of mpi4py's; without one, of this process.

    comm     its ranks; the constructor, shutdown and close are collective
    options  as in lmdbio_sync.h: coordinator, pacing, collective, transport, cycle_time_us,
             gs_cycles, num_groups, fusion_threshold_bytes, bucket_bytes, cache_capacity,
             gradient_bytes, chunk_bytes, chunk_depth, plan_patience_ms, stall_report_ms,
             stall_limit_ms, silence_limit_ms, timeline_path, placement

    Any thread may submit and wait. Errors are LmdbioError, most also a built-in exception; stall
    reports go to logging.getLogger("lmdbio").

    Use it in a `with`: an error closes it there, and the other ranks hear of that at once. Where
    arrays in placed memory outlive the error, there is a warning, and it is closed with the last
    of them or when the process exits.
    """

    def __init__(self, comm: Any = None, **options: Any) -> None:
        self._handle: Optional[ctypes.c_void_p] = None
        self._places: List[weakref.ref] = []
        self._placed = range(0)  # addresses: what is placed lies in one piece
        self._users: List[Callable[[], Any]] = []
        unknown = set(options) - {name for name, _ in _capi.SyncOptions._fields_[1:-2]}
        if unknown:
            raise InvalidTypeError(f"there is no option {', '.join(sorted(unknown))}")
        self._handle = _capi.open_sync(_capi.sync_options_of(**options), comm)
        self._orphans: _Orphans = _orphans.setdefault(self._handle.value, {})
        rank, size = ctypes.c_int(), ctypes.c_int()
        self._check(_capi.library().lmdbio_sync_rank(self._handle, ctypes.byref(rank),
                                                     ctypes.byref(size)))
        self.rank, self.size = rank.value, size.value

    def _use(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise ClosedError("the synchronizer is closed")
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
        self._placed = range(self._placed.start or memory.value, memory.value + size)
        return np.frombuffer(buffer, np.uint8)

    def submit(self, name: str, address: int, shape: Any, type_name: str, keeps: Any,
               operation: str = "allreduce", reduction: str = "sum", root: int = 0,
               prescale: float = 1.0, postscale: float = 1.0) -> Operation:
        """Values at an address, worked on in place. `keeps` is what keeps them there."""
        if prescale == 0 or postscale == 0:
            raise InvalidArgumentError(f"{name}: a scale of 0 would make all values 0")
        _forget_done(self._orphans)
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
        # What is placed stays as long as the library works on it.
        return Operation(handle, None if address in self._placed else keeps, self._orphans)

    def _submit_array(self, name: str, array: np.ndarray, **fields: Any) -> Operation:
        if not (array.flags.c_contiguous and array.flags.writeable):
            raise InvalidArgumentError(f"{name}: the array must be contiguous and writable")
        if not array.dtype.isnative:
            raise InvalidArgumentError(f"{name}: the array has the byte order of other machines")
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

    def close_before(self, close: Callable[[], Any]) -> None:
        """`close`, a method, is called when this is closed, if its object is still there: it lets
        go of placed memory."""
        self._users.append(weakref.WeakMethod(close))

    def _places_in_use(self) -> List[Any]:
        return [buffer for buffer in (place() for place in self._places) if buffer is not None]

    def close(self) -> None:
        """Collective. What is under way fails. BufferError says that placed memory is in use."""
        if self._handle is None:
            return
        users, self._users = self._users, []
        for user in users:
            close = user()
            if close is not None:
                close()
        if self._places_in_use():
            gc.collect()
        if self._places_in_use():
            raise InUseError("memory that was placed is still in use")
        handle, self._handle = self._handle, None
        _close_sync(handle)

    def _close_after(self, trace: Any) -> None:
        # Without an error that would hide that of the program.
        try:
            self.close()
            return
        except BufferError:
            traceback.clear_frames(trace)  # their variables are what most often is left
        try:
            self.close()
            return
        except BufferError:
            pass
        handle, self._handle = self._handle, None
        buffers = self._places_in_use()
        places_left: List[None] = [None] * len(buffers)
        for buffer in buffers:
            weakref.finalize(buffer, _close_with_last, handle, places_left)
        warnings.warn("placed memory is in use after an error: other ranks hear of it when the "
                      "last array there goes, or this process exits", RuntimeWarning, stacklevel=3)

    def __enter__(self) -> "Synchronizer":
        return self

    def __exit__(self, kind: Any, _error: Any, trace: Any) -> None:
        if kind is not None:
            self._close_after(trace)
            return
        try:
            self.shutdown()
        except BaseException as error:
            self._close_after(error.__traceback__)
            raise
        self.close()

    def __getstate__(self) -> Any:
        raise InvalidTypeError("a synchronizer cannot be pickled")

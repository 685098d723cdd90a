"""Collective operations on arrays over all ranks, without MPI calls and without a busy thread.

    with lmdbio.sync.Synchronizer(MPI.COMM_WORLD) as sync:
        operation = sync.allreduce("conv1", gradient)      # in place; returns at once
        ...
        operation.wait()
        rows = sync.allgather("rows", mine).wait().result()

`lmdbio.torch.GradientSync` does this for the parameters of a model.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import traceback
import warnings
import weakref
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from lmdbio import _capi, _launch
from lmdbio._batch import view
from lmdbio._device_place import DevicePlace
from lmdbio._errors import ClosedError, InUseError, InvalidArgumentError, InvalidTypeError
from lmdbio._persistent import PersistentAllreduce, wait_on

OPERATIONS = {"allreduce": 0, "broadcast": 1, "allgather": 2, "alltoall": 3, "reduce_scatter": 4,
              "barrier": 5, "join": 6}
TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3, "int32": 4, "int64": 5}
REDUCTIONS = {"sum": 0, "min": 1, "max": 2, "product": 3}
MEMORIES = {"host": 0, "device": 1, "ask": 2}

# Operations whose Operation object is gone, by the number of their handle, with the object that
# keeps the array alive while the library uses it. Their errors are not reported.
_Orphans = Dict[int, Tuple[ctypes.c_void_p, Any]]

# The orphans of each open synchronizer, by the number of its handle. They are global because a
# synchronizer that is never closed continues to use the arrays.
_orphans: Dict[int, _Orphans] = {}

# The open synchronizers, by the numbers of their handles.
_open: Dict[int, ctypes.c_void_p] = {}


def _close_open() -> None:
    """Closes what a program leaves open, so that no other rank waits for this one, and before
    mpi4py finalizes MPI under the helper threads. In a forked child it ends nothing."""
    for handle in list(_open.values()):
        _close_sync(handle)


atexit.register(_close_open)

# Element types whose NumPy type has another name. NumPy has no bfloat16: the result has the bits.
_RESULT_TYPES = {"bfloat16": "uint16"}


class Operation:
    """An operation in flight. It keeps its array alive until the operation is done."""

    def __init__(self, handle: ctypes.c_void_p, keeps: Any, orphans: _Orphans,
                 type_name: str = "float32", row_shape: Tuple[int, ...] = ()) -> None:
        self._handle = handle
        self._type_name, self._row_shape = type_name, row_shape
        self._closes = weakref.finalize(self, _let_go_of_op, handle, keeps, orphans)

    def is_done(self) -> bool:
        """Returns whether the operation is done or has failed. Never waits."""
        done = ctypes.c_int()
        _capi.check_op(self._handle, _capi.library().lmdbio_sync_op_test(
            self._handle, ctypes.byref(done)))
        return done.value != 0

    def wait(self) -> "Operation":
        """Sleeps until the operation is done, and returns it.

        InvalidArgumentError: the ranks' requests differ; the text has all of them.
        PeerFailedError: a rank has failed, or has not submitted the tensor; the text names it.
        """
        wait_within = _capi.library().lmdbio_sync_op_wait_within
        status = _capi.TIMEOUT
        while status == _capi.TIMEOUT:
            status = wait_within(self._handle, _capi.LOOK_UP_MS)
        _capi.check_op(self._handle, status)
        return self

    def wait_on(self, stream: Optional[int]) -> "Operation":
        """Makes work that is enqueued on a stream of the GPU later see the result, and returns the
        operation. Sleeps until the result is enqueued, and does not wait for the GPU.

        stream  the number of a cudaStream_t; None: the default stream
        """
        _capi.check_op(self._handle, wait_on(self._handle, stream))
        return self

    def _outcome(self) -> _capi.SyncResult:
        result = ctypes.POINTER(_capi.SyncResult)()
        _capi.check_op(self._handle, _capi.library().lmdbio_sync_op_result(
            self._handle, ctypes.byref(result)))
        return result.contents

    def result(self) -> np.ndarray:
        """Returns the rows of an allgather, alltoall or reduce_scatter; read-only, and valid as
        long as the array lives. Rows of bfloat16 are uint16, with the same bits."""
        outcome = self._outcome()
        memory = view(outcome.data, outcome.size_bytes, self)
        kind = np.dtype(_RESULT_TYPES.get(self._type_name, self._type_name))
        return memory.view(kind).reshape((sum(self.rows()), *self._row_shape))

    def rows(self) -> List[int]:
        """Returns the number of rows from each rank; for a reduce_scatter, the number of rows of
        this rank."""
        outcome = self._outcome()
        return outcome.rows[:outcome.part_count]

    def last_joined(self) -> int:
        """Returns the rank that joined last; -1 for operations other than a join."""
        return self._outcome().last_joined


class Tensor:
    """The request of a node of a graph, for Synchronizer.set_graph.

    The arguments are those of the call that submits the tensor later.

    name       of the tensor
    shape      of the array; its first dimension counts the rows of an allgather
    type_name  "float32", "float64", "float16", "bfloat16", "int32" or "int64"
    operation  "allreduce", "broadcast", "allgather", "reduce_scatter" or "barrier"
    """

    def __init__(self, name: str, shape: Sequence[int], type_name: str = "float32",
                 operation: str = "allreduce", reduction: str = "sum", root: int = 0,
                 prescale: float = 1.0, postscale: float = 1.0) -> None:
        self.name, self.shape, self.type_name = name, tuple(shape), type_name
        self.fields = {"operation": operation, "reduction": reduction, "root": root,
                       "prescale": prescale, "postscale": postscale}


def _request_of(name: Optional[str], address: Optional[int], shape: Sequence[int], type_name: str,
                operation: str = "allreduce", reduction: str = "sum", root: int = 0,
                prescale: float = 1.0, postscale: float = 1.0,
                splits: Optional[Sequence[int]] = None, memory: str = "host",
                stream: Optional[int] = None) -> _capi.SyncRequest:
    if prescale == 0 or postscale == 0:
        raise InvalidArgumentError(f"{name}: a scale of 0 makes all values 0; use another scale")
    dimensions = (ctypes.c_int64 * max(len(shape), 1))(*shape)
    parts = None if splits is None else (ctypes.c_int64 * len(splits))(*splits)
    is_in_place = operation in ("allreduce", "broadcast")
    return _capi.SyncRequest(
        struct_size=ctypes.sizeof(_capi.SyncRequest),
        name=None if name is None else _capi.text("name", name),
        operation=_capi.choice("operation", operation, OPERATIONS),
        type=_capi.choice("type", type_name, TYPES),
        reduction=_capi.choice("reduction", reduction, REDUCTIONS),
        root=_capi.number("root", root, ctypes.c_int), shape=dimensions,
        dimension_count=len(shape), input=address, output=address if is_in_place else None,
        prescale=prescale, postscale=postscale, splits=parts,
        memory=_capi.choice("memory", memory, MEMORIES), stream=stream)


def _pointers_to(requests: Sequence[Optional[_capi.SyncRequest]]) -> Any:
    """Returns an array of pointers; None is NULL. The requests must outlive it."""
    kind = ctypes.POINTER(_capi.SyncRequest)
    return (kind * max(len(requests), 1))(*(
        kind() if request is None else ctypes.pointer(request) for request in requests))


def _check_array(name: str, array: np.ndarray, is_written: bool) -> None:
    if not (array.flags.c_contiguous and (array.flags.writeable or not is_written)):
        raise InvalidArgumentError(f"{name}: the array must be contiguous"
                                   f"{' and writable' if is_written else ''}")
    if not array.dtype.isnative:
        raise InvalidArgumentError(f"{name}: the array has a byte order other than this machine's")


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
    _open.pop(handle.value, None)
    _capi.library().lmdbio_sync_close(handle)
    _forget_done(_orphans.pop(handle.value, {}))


def _close_with_last(handle: ctypes.c_void_p, places_left: List[None]) -> None:
    places_left.pop()
    if not places_left:
        _close_sync(handle)


class Synchronizer:
    """Sums arrays over the ranks of an mpi4py communicator, or of a launcher; without both, of this
    process alone.

    Any thread may submit and wait. Errors are LmdbioError, most also a built-in exception; stall
    reports go to logging.getLogger("lmdbio").

    Use it in a `with` statement: an error then closes the synchronizer, and the operations of the
    other ranks fail at once. If arrays in placed memory outlive the error, there is a warning. The
    synchronizer is then closed with the last of these arrays, or when the process exits. Without
    `with` and close() it is open until the process exits; then, too, the operations of the other
    ranks fail.
    """

    # Begin generated Synchronizer: scripts/generate_options.py, from api/options.toml.
    def __init__(self, comm: Any = None, *, coordinator: str = "topo", pacing: str = "event",
                 transport: str = "own", cycle_time_us: int = 1_000, gs_cycles: int = 1,
                 cache_capacity: int = 1_024, tree_arity: int = 4, collective: str = "auto",
                 fusion_threshold_bytes: int = 64 << 20, gradient_bytes: int = 0,
                 chunk_bytes: Optional[int] = 0, chunk_depth: Optional[int] = 0,
                 placement: Optional[str] = None, host_roots: int = 1, device: Optional[int] = 0,
                 device_collective: str = "auto", device_order: str = "auto",
                 device_buffer_bytes: Optional[int] = 0, device_gradient_bytes: int = 0,
                 device_one_shot_bytes: int = 262_144, reproducible: bool = False,
                 num_groups: Optional[int] = 0, bucket_bytes: Optional[int] = 0,
                 plan_patience_ms: int = 1_000, group_by: str = "bytes",
                 last_bucket_bytes: Optional[int] = 0, slice_bytes: Optional[int] = 0,
                 order: str = "due", stall_report_ms: int = 5_000, stall_limit_ms: int = 600_000,
                 silence_limit_ms: int = 4_000, timeline_path: Optional[str] = None) -> None:
        """Starts the helper thread. Collective.

        comm                 A communicator of mpi4py: its ranks. "env": the ranks that torchrun or
                             srun has started. "torch": those of torch.distributed. None: this
                             process alone.

        Order of operations:
        coordinator          The algorithm that decides the order of the operations. "topo": A plan,
                             learnt from the first iterations or given by lmdbio_sync_set_graph.
                             "caramel": A plan whose order follows from times: of submissions, of
                             waits and of transfers. It gains where the program waits for each
                             tensor when it needs it. "cache": Rounds, with one bit for each
                             response in the response cache. "horovod": Rounds in which rank 0
                             gathers all requests. "hierarchical": Rounds along a tree of hosts:
                             each root merges the requests below it.
        pacing               The time at which a rank begins a round. "event": When there are new
                             requests. "cycle": After each cycle_time_us. "gs": After each cycle;
                             the ranks agree on its length. "nbcs": After each cycle, with
                             non-blocking exchanges.
        transport            The transport of control messages. "own": Shared memory, and
                             connections between hosts. "mpi": MPI. It needs MPI_THREAD_MULTIPLE.
        cycle_time_us        The cycle, with pacing = cycle, gs and nbcs. -1: no pause.
        gs_cycles            With pacing = gs, the number of cycles after which the ranks agree on
                             the next cycle time.
        cache_capacity       The number of responses in the response cache. -1: none.
        tree_arity           With coordinator = hierarchical, the number of hosts that send their
                             requests to one other host. -1: no tree: all hosts send to rank 0.

        Data:
        collective           The algorithm that reduces values. "auto": Chosen by the size of the
                             call and the number of hosts. "shm": Shared memory, within one host.
                             "ring": Ring allreduce. "halving": Recursive halving and doubling.
                             "direct": Every rank sends to every rank. "mpi": MPI's network, by its
                             collectives or its messages: a trial decides. It needs
                             MPI_THREAD_MULTIPLE.
        fusion_threshold_bytes The largest total size of tensors that are reduced in one call. -1:
                             tensors are never fused.
        gradient_bytes       The memory from which placed gradients are allocated.
        chunk_bytes          The size of a message between hosts, or ranks with collective = mpi. 0:
                             measured when the ranks connect.
        chunk_depth          The number of messages that a rank receives at once from another rank.
                             0: measured when the ranks connect.
        placement            The cores of the helper thread, in the syntax of the loader's
                             placement. None: any core.
        host_roots           The number of ranks of each host that share the reduction of large
                             values between hosts. It needs collective = auto, and at least this
                             number of ranks on each host.
        device               The GPU of this rank for tensors there: 1 + its number among those that
                             the process sees. The driver is opened only if this is set. Either all
                             ranks have a GPU, or none has. 0: none.
        device_collective    The way of an AllReduce of tensors on GPUs. "auto": The GPUs reduce in
                             their own memory, if the ranks of each host can map each other's; else
                             as staged. "staged": The values are copied to the host, which reduces
                             them. "nccl": NCCL reduces: libnccl.so.2, version 2.14 or later, which
                             is opened at run time. Each rank needs a GPU of its own. NCCL adds in
                             an order of its own, so the bits are those of no other way. Create
                             fails if it is not possible. On a real GPU tried with a rank alone
                             only. "mpi": MPI reduces in the memory of the GPUs. It needs
                             lmdbio_sync_open_mpi, MPI_THREAD_MULTIPLE, and an MPI that says that it
                             takes such memory; Create fails without them. The bits are MPI's own.
                             float16, bfloat16, and minima and maxima of floats pass through the
                             host. Not tried on a real GPU yet.
        device_order         How GPUs wait for each other when they reduce. If a GPU cannot wait in
                             this way, all ranks use host. None of them was tried on a real GPU yet.
                             "auto": As host. "host": The helper threads wait. "event": By events
                             that processes share. "mark": By counters in pinned memory that
                             processes share.
        device_buffer_bytes  The memory of each GPU in which its rank and the others reduce. Larger
                             tensors are reduced in several steps. 0: 32 MiB.
        device_gradient_bytes The memory of the GPU from which gradients there are placed.
        device_one_shot_bytes The largest values that several GPUs of one host reduce in one shot:
                             each reads the values of all ranks, and writes to its own memory only.
                             Larger values are divided among the GPUs. Not measured on a real GPU
                             yet. -1: none.
        reproducible         Sums have the same bits in every run, with any order of a plan and any
                             sizes of buckets and slices: between hosts, only algorithms whose sum
                             of a value depends neither on its place nor on a trial. Refused with
                             collective = ring or mpi, device_collective = nccl or mpi, several
                             host_roots, order = split, and collectives of the program that do not
                             promise it.

        Plans:
        num_groups           The number of tensor groups of an iteration: buckets of a plan, or
                             groups that the other coordinators learn. 0: bucket_bytes decides.
        bucket_bytes         The size of a bucket, in plans and in rounds, at most
                             fusion_threshold_bytes. 0: 16 MiB if ranks reduce on their GPUs; 1 MiB
                             in the memory of one host; else 4 MiB or as a trial finds.
        plan_patience_ms     The ranks abandon a plan, or learned groups, if tensors of a bucket or
                             group are missing for longer than this. Keep it below stall_report_ms,
                             because in a plan no rank knows which rank lacks which tensor.
        group_by             The share of an iteration that each of num_groups gets. "bytes": Equal
                             numbers of bytes. "tensors": Equal numbers of tensors, as in Horovod.
        last_bucket_bytes    The size of the last bucket of a plan, for which the program waits. The
                             buckets before it shrink towards it: a bucket has at most half of the
                             bytes that are left, or this size. 0: a quarter of a bucket if
                             bucket_bytes is 0, too; else the size of the others.
        slice_bytes          The size of a slice of a large tensor in a plan. A larger tensor on the
                             host that is alone in its bucket is reduced in slices, at most 512 of
                             them. It needs coordinator = topo or caramel. 0: as caramel finds; not
                             cut with topo.
        order                The order of a plan with coordinator = caramel. "due": What the program
                             needs first travels first. "bins": The windows of Caramel: large
                             tensors beside the backward pass, the others beside the forward pass.
                             "split": As topo, but each bucket is reduced in two halves: each rank
                             gets a part of the sums in the backward pass, and the parts are
                             gathered in the forward pass. "arrival": As topo.

        Failures:
        stall_report_ms      The time after which a tensor that some rank has not submitted is
                             reported to log. -1: never.
        stall_limit_ms       The time after which a tensor that some rank has not submitted is an
                             error. -1: never.
        silence_limit_ms     The time without a sign of life after which a rank counts as failed.
        timeline_path        The path of a Chrome trace, to which the rank is appended: PATH.0.
                             None: none.
        """
        self._begin(comm, dict(
            coordinator=coordinator, pacing=pacing, transport=transport,
            cycle_time_us=cycle_time_us, gs_cycles=gs_cycles, cache_capacity=cache_capacity,
            tree_arity=tree_arity, collective=collective,
            fusion_threshold_bytes=fusion_threshold_bytes, gradient_bytes=gradient_bytes,
            chunk_bytes=chunk_bytes, chunk_depth=chunk_depth, placement=placement,
            host_roots=host_roots, device=device, device_collective=device_collective,
            device_order=device_order, device_buffer_bytes=device_buffer_bytes,
            device_gradient_bytes=device_gradient_bytes,
            device_one_shot_bytes=device_one_shot_bytes, reproducible=reproducible,
            num_groups=num_groups, bucket_bytes=bucket_bytes, plan_patience_ms=plan_patience_ms,
            group_by=group_by, last_bucket_bytes=last_bucket_bytes, slice_bytes=slice_bytes,
            order=order, stall_report_ms=stall_report_ms, stall_limit_ms=stall_limit_ms,
            silence_limit_ms=silence_limit_ms, timeline_path=timeline_path))
    # End generated Synchronizer.

    def _begin(self, comm: Any, options: Dict[str, Any]) -> None:
        self._handle: Optional[ctypes.c_void_p] = None
        self._places: List[weakref.ref] = []
        # The addresses of placed memory, which is contiguous on the host and on the GPU.
        self._placed, self._placed_on_device = range(0), range(0)
        self._users: List[Callable[[], Any]] = []
        self._join_checks: List[Callable[[], Any]] = []
        self._is_shut_down = False
        self._handle = _capi.open_sync(_capi.sync_options_of(**options), _launch.resolve(comm))
        _open[self._handle.value] = self._handle
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
        """Allocates memory out of `gradient_bytes`, as uint8. Arrays that are reduced there are not
        copied. All ranks make these calls with the same sizes in the same order."""
        size = _capi.number("size_bytes", size_bytes, ctypes.c_uint64)
        memory = ctypes.c_void_p()
        self._check(_capi.library().lmdbio_sync_place(self._use(), size, ctypes.byref(memory)))
        if size == 0:
            return np.empty(0, np.uint8)
        buffer = (ctypes.c_uint8 * size).from_address(memory.value)
        self._places.append(weakref.ref(buffer))
        self._placed = range(self._placed.start or memory.value, memory.value + size)
        return np.frombuffer(buffer, np.uint8)

    def place_on_device(self, size_bytes: int) -> DevicePlace:
        """Allocates memory of the GPU out of `device_gradient_bytes`. If the GPUs of the ranks
        reduce, tensors that are reduced there are not copied. All ranks make these calls with the
        same sizes in the same order."""
        size = _capi.number("size_bytes", size_bytes, ctypes.c_uint64)
        address = ctypes.c_void_p()
        self._check(_capi.library().lmdbio_sync_place_device(self._use(), size,
                                                             ctypes.byref(address)))
        place = DevicePlace(address.value or 0, size)
        if size > 0:
            self._places.append(weakref.ref(place))
            self._placed_on_device = range(self._placed_on_device.start or place.address,
                                           place.address + size)
        return place

    def submit(self, name: Optional[str], address: Optional[int], shape: Any, type_name: str,
               keeps: Any, **fields: Any) -> Operation:
        """Submits an operation on values at an address.

        keeps   the object that keeps the values in place
        fields  operation, reduction, root, prescale, postscale and splits, as in the methods below.
                memory="device": the values are on the GPU of the option `device`, and `stream` is
                the number of a cudaStream_t whose work writes them. memory="ask": the driver tells
                where they are
        """
        _forget_done(self._orphans)
        request = _request_of(name, address, shape, type_name, **fields)
        handle = ctypes.c_void_p()
        self._check(_capi.library().lmdbio_sync_submit(self._use(), ctypes.byref(request),
                                                       ctypes.byref(handle)))
        return self._operation_of(handle, address, shape, type_name, keeps)

    def _operation_of(self, handle: ctypes.c_void_p, address: Optional[int], shape: Any,
                      type_name: str, keeps: Any) -> Operation:
        return Operation(handle, self._keeps_of(address, keeps), self._orphans, type_name,
                         tuple(shape[1:]))

    def _keeps_of(self, address: Optional[int], keeps: Any) -> Any:
        # Placed memory stays allocated as long as the library uses it.
        is_placed = address is not None and (address in self._placed or
                                             address in self._placed_on_device)
        return None if is_placed else keeps

    def _let_go_later(self, handle: ctypes.c_void_p, address: Optional[int], keeps: Any) -> None:
        _let_go_of_op(handle, self._keeps_of(address, keeps), self._orphans)

    def forget_done(self) -> None:
        """Closes the operations that are done and whose objects are gone."""
        _forget_done(self._orphans)

    def _submit_array(self, name: str, array: np.ndarray, is_written: bool = True,
                      **fields: Any) -> Operation:
        _check_array(name, array, is_written)
        return self.submit(name, array.ctypes.data, array.shape, array.dtype.name, array, **fields)

    def allreduce(self, name: str, array: np.ndarray, reduction: str = "sum",
                  prescale: float = 1.0, postscale: float = 1.0) -> Operation:
        """Reduces the arrays of all ranks, in place. Do not touch the array until the operation is
        done.

        reduction  "sum", "min", "max" or "product"
        """
        return self._submit_array(name, array, reduction=reduction, prescale=prescale,
                                  postscale=postscale)

    def persistent_allreduce(self, name: str, array: np.ndarray, reduction: str = "sum",
                             prescale: float = 1.0, postscale: float = 1.0) -> PersistentAllreduce:
        """Returns an allreduce of one array that is submitted again and again: it costs less of
        Python's time than allreduce. Nothing is submitted yet.

            total = sync.persistent_allreduce("loss", losses)
            for batch in batches:
                losses[:] = ...
                total.submit()
                ...
                total.wait()
        """
        _check_array(name, array, is_written=True)
        prepared = self.persistent(name, array.shape, array.dtype.name, reduction=reduction,
                                   prescale=prescale, postscale=postscale)
        prepared.set_values(array.ctypes.data, array)
        return prepared

    def persistent(self, name: str, shape: Any, type_name: str,
                   **fields: Any) -> PersistentAllreduce:
        """Returns the same for values whose place is set before each submission.

        fields  reduction, prescale and postscale, as in allreduce
        """
        return PersistentAllreduce(self, name, _request_of(name, None, shape, type_name, **fields))

    def allreduce_group(self, arrays: Mapping[str, np.ndarray], reduction: str = "sum",
                        prescale: float = 1.0, postscale: float = 1.0) -> Dict[str, Operation]:
        """Submits several arrays by name as a tensor group: they are reduced together. If one of
        them is invalid, none is submitted."""
        _forget_done(self._orphans)
        requests = []
        for name, array in arrays.items():
            _check_array(name, array, is_written=True)
            requests.append(_request_of(name, array.ctypes.data, array.shape, array.dtype.name,
                                        reduction=reduction, prescale=prescale,
                                        postscale=postscale))
        if not requests:
            return {}
        handles = (ctypes.c_void_p * len(requests))()
        self._check(_capi.library().lmdbio_sync_submit_group(
            self._use(), _pointers_to(requests), len(requests), handles))
        return {name: self._operation_of(ctypes.c_void_p(handle), array.ctypes.data, array.shape,
                                         array.dtype.name, array)
                for (name, array), handle in zip(arrays.items(), handles)}

    def broadcast(self, name: str, array: np.ndarray, root: int = 0) -> Operation:
        """Copies the array of rank `root` to the arrays of all ranks."""
        return self._submit_array(name, array, operation="broadcast", root=root)

    def allgather(self, name: str, array: np.ndarray) -> Operation:
        """The result has the rows of all ranks, in the order of ranks. Ranks may have different
        numbers of rows; the other dimensions are the same."""
        return self._submit_array(name, array, is_written=False, operation="allgather")

    def alltoall(self, name: str, array: np.ndarray, splits: Sequence[int]) -> Operation:
        """The result has the rows that each rank sends to this one.

        splits  [ranks] how many rows go to each rank; their sum is the number of rows
        """
        if len(splits) != self.size:
            raise InvalidArgumentError(f"{name}: {len(splits)} splits; "
                                       f"expected one for each of {self.size} ranks")
        return self._submit_array(name, array, is_written=False, operation="alltoall",
                                  splits=splits)

    def reduce_scatter(self, name: str, array: np.ndarray, reduction: str = "sum",
                       prescale: float = 1.0, postscale: float = 1.0) -> Operation:
        """The result has this rank's share of the rows of the reduction."""
        return self._submit_array(name, array, is_written=False, operation="reduce_scatter",
                                  reduction=reduction, prescale=prescale, postscale=postscale)

    def barrier(self, name: str = "barrier") -> Operation:
        """Done when all ranks have submitted it."""
        return self.submit(name, None, (), "float32", None, operation="barrier")

    def join(self) -> Operation:
        """Submits a join: this rank has no more data. Until all ranks have joined it contributes
        zeros to sums, and no rows. Done when all ranks have joined; Operation.last_joined is the
        last of them."""
        for check in [reference() for reference in self._join_checks]:
            if check is not None:
                check()
        return self.submit(None, None, (), "float32", None, operation="join")

    def set_graph(self, nodes: Sequence[Optional[Tensor]],
                  edges: Sequence[Tuple[int, int]]) -> None:
        """Sets the plan of coordinator "topo" from a graph. Without it, the coordinator learns the
        plan from the first iterations. Collective: every rank passes the same graph, before its
        first submission.

        nodes  the tensor that each node submits; None: a node that only computes
        edges  pairs of node numbers, from 0: the second node depends on the first
        """
        requests = [None if node is None else _request_of(
            node.name, None, node.shape, node.type_name, **node.fields) for node in nodes]
        numbers = [_capi.number("edge", number, ctypes.c_uint32) for edge in edges
                   for number in edge]
        pairs = (ctypes.c_uint32 * max(len(numbers), 1))(*numbers)
        self._check(_capi.library().lmdbio_sync_set_graph(
            self._use(), _pointers_to(requests), len(requests), pairs, len(edges)))

    def counters(self) -> Dict[str, int]:
        """Returns the counters; see lmdbio_sync_counters in lmdbio_sync.h."""
        counters = ctypes.POINTER(_capi.SyncCounters)()
        self._check(_capi.library().lmdbio_sync_get_counters(self._use(), ctypes.byref(counters)))
        return {name: getattr(counters.contents, name) for name, _ in _capi.SyncCounters._fields_}

    def options(self) -> Dict[str, Any]:
        """Returns the effective options. A number is 0 if the argument is -1."""
        text = ctypes.c_char_p()
        self._check(_capi.library().lmdbio_sync_get_options(self._use(), ctypes.byref(text)))
        return json.loads(text.value.decode())

    def describe(self) -> str:
        """Describes the configuration in lines: coordinator, pacing, ranks, cores."""
        text = ctypes.c_char_p()
        self._check(_capi.library().lmdbio_sync_describe(self._use(), ctypes.byref(text)))
        return text.value.decode()

    def flight_record(self) -> str:
        """Returns the last operations of this rank, oldest first, one line each."""
        text = ctypes.c_char_p()
        self._check(_capi.library().lmdbio_sync_flight_record(self._use(), ctypes.byref(text)))
        return text.value.decode()

    def shutdown(self) -> None:
        """Waits until all ranks have called it and all operations are done. Collective."""
        self._check(_capi.library().lmdbio_sync_shutdown(self._use()))
        self._is_shut_down = True

    def is_shut_down(self) -> bool:
        """Returns whether all ranks have called shutdown(), so that no operation is in flight."""
        return self._is_shut_down

    def releases_on_close(self) -> bool:
        """Returns whether close() gives memory of the GPU back. Work of other ranks may still use
        it if they have not all called shutdown(): then it stays until the process exits."""
        return self._is_shut_down or self.size == 1

    def close_before(self, close: Callable[[], Any]) -> None:
        """Registers a method that close() calls first, if its object still exists. The method
        releases placed memory."""
        self._users.append(weakref.WeakMethod(close))

    def check_before_join(self, check: Callable[[], None]) -> None:
        """Registers a method that join() calls first, if its object still exists. The method raises
        an error if this rank cannot join now."""
        self._join_checks.append(weakref.WeakMethod(check))

    def _places_in_use(self) -> List[Any]:
        return [buffer for buffer in (place() for place in self._places) if buffer is not None]

    def close(self) -> None:
        """Closes the synchronizer; operations in flight fail. Collective. Raises BufferError if
        placed memory is still in use."""
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
            raise InUseError("placed memory is still in use; delete the arrays in it first")
        handle, self._handle = self._handle, None
        _close_sync(handle)

    def _close_after(self, trace: Any) -> None:
        # Raises no error, which would hide the error of the program.
        try:
            self.close()
            return
        except BufferError:
            traceback.clear_frames(trace)  # their variables are usually the arrays in use
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
        warnings.warn("placed memory is in use after an error: the synchronizer is closed, and the "
                      "other ranks fail, when its last array is deleted or this process exits",
                      RuntimeWarning, stacklevel=3)

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

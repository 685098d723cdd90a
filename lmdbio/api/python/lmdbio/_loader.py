"""Batches of an LMDB database, in order."""

from __future__ import annotations

import ctypes
import json
import os
import warnings
import weakref
from typing import Any, Dict, Iterator, Optional, Union

from lmdbio import _capi
from lmdbio._batch import Batch, Lease
from lmdbio._errors import (
    ClosedError,
    InUseError,
    InvalidArgumentError,
    InvalidStateError,
    InvalidTypeError,
)

# How long a call sleeps before Python looks for signals.
_LOOK_UP_MS = 100


class _Handle:
    """Closes a loader's handle with the last that needs it: the loader, or a view into its memory.
    Those of a communicator are closed by hand. What is open when Python ends is left to the
    system: views may be looked at until then."""

    __slots__ = ("__weakref__",)

    def __init__(self, handle: ctypes.c_void_p, closes: bool) -> None:
        if closes:
            weakref.finalize(self, _capi.library().lmdbio_close, handle).atexit = False


def _order_of(shuffle: Union[bool, str]) -> int:
    if isinstance(shuffle, bool):
        shuffle = "global" if shuffle else "sequential"
    return _capi.choice("shuffle", shuffle, _capi.ORDERS)


class Loader:
    """Iterates over batches. A for loop ends with the epoch; the next goes on with the next one.

    path             a directory with data.mdb, or a data file
    batch_size       records of this rank's batches
    shuffle          False, True or "global" (any record anywhere), "block" (blocks of neighbours,
                     mixed: faster where memory is small), "chunked" (neighbours take turns)
    seed             of shuffling; with the same seed and global batch size the same global batches
                     come at any number of ranks
    drop_last        leave out the last records of an epoch where they fill no batch; else the
                     last batch is smaller
    num_shards, shard_id
                     several processes that share batches, this one's number among them
    prefetch_factor  about so many batches are read ahead; None: as many as memory_budget holds
    comm             a communicator of mpi4py's: its ranks share memory and batches. The
                     constructor, set_epoch, load_state_dict and close are then collective
    database         a named database; None: the main one
    epoch            where to begin
    state            or: what state_dict returned
    wrap             the last batch of an epoch goes on with the next epoch's records
    max_batches      the stream ends after so many batches (of its whole life)
    block_records, group_batches, reuse, share, on_error, snapshot, strategy, engine,
    readers_per_host, queue_depth, placement
                     as in lmdbio.h
    memory_budget    bytes for what is read ahead
    keep             bytes to keep the file in memory in, as far as it was read; 0: not at all
    allow_map        look at a file that is all in the page cache in a map of it: should somebody
                     cut it short meanwhile, the system ends the process, as with LMDB itself
    block_bytes      the largest read

    All iterators of a loader share its one stream. Safe to pickle, and to use after fork: the
    other process opens its own, where this one stands. Not for several threads at once. Errors
    are LmdbioError, most also a built-in exception.
    """

    def __init__(self, path: Union[str, os.PathLike], batch_size: int = 64,
                 shuffle: Union[bool, str] = False, seed: int = 0, drop_last: bool = False,
                 num_shards: int = 1, shard_id: int = 0,
                 prefetch_factor: Optional[int] = None, *, comm: Any = None,
                 database: Optional[str] = None, epoch: int = 0,
                 state: Optional[Dict[str, Any]] = None, wrap: bool = False,
                 max_batches: int = 0, block_records: int = 0, group_batches: int = 0,
                 reuse: int = 1, share: str = "block", on_error: str = "raise",
                 snapshot: str = "immutable", memory_budget: Optional[int] = None,
                 keep: Optional[int] = None, allow_map: bool = True, readers_per_host: int = 1,
                 queue_depth: Optional[int] = None, block_bytes: Optional[int] = None,
                 strategy: Optional[str] = None, engine: Optional[str] = None,
                 placement: Optional[str] = None) -> None:
        if batch_size < 1 or num_shards < 1 or not 0 <= shard_id < num_shards:
            raise InvalidArgumentError(
                f"batch_size {batch_size}, shard {shard_id} of {num_shards}: that cannot be")
        if wrap and drop_last:
            raise InvalidArgumentError("wrap and drop_last exclude each other")
        self._path = os.fspath(path)
        self._comm = comm
        self._batch_size = batch_size
        ranks = num_shards * (comm.size if comm is not None else 1)
        self._fields: Dict[str, Any] = {
            "database_name": database, "batch_size": batch_size * ranks,
            "batch_count_max": max_batches, "order": _order_of(shuffle),
            "tail": _capi.TAILS["wrap" if wrap else "drop" if drop_last else "short"],
            "share": _capi.choice("share", share, _capi.SHARES),
            "on_error": _capi.choice("on_error", on_error, _capi.ON_ERRORS),
            "snapshot": _capi.choice("snapshot", snapshot, _capi.SNAPSHOTS),
            "seed": seed, "block_records": block_records, "group_batches": group_batches,
            "reuse": reuse, "num_shards": num_shards, "shard_id": shard_id,
            "memory_budget_bytes": memory_budget,
            "keep_bytes_max": None if keep is None else keep or -1,
            "prefetch_batches": None if prefetch_factor is None else prefetch_factor * ranks,
            "no_map": 0 if allow_map else 1, "readers_per_host": readers_per_host,
            "queue_depth": queue_depth, "block_bytes": block_bytes, "strategy": strategy,
            "engine": engine, "placement": placement,
        }
        self._reset()
        self._open(epoch, None if state is None else json.dumps(state))

    def _reset(self) -> None:
        self._handle: Optional[ctypes.c_void_p] = None
        self._owned: Optional[_Handle] = None
        self._lent: Optional[weakref.ref] = None
        self._batch: Optional[Batch] = None
        self._pid = os.getpid()
        self._is_closed = False
        # To be opened when it is first used, in another process than the one before.
        self._pending: Optional[str] = None

    # --- The handle -----------------------------------------------------------------------------

    def _open(self, epoch: int, state: Optional[str]) -> None:
        """In place of what is open, which stays if this fails."""
        options = _capi.options_of(**self._fields, state=state,
                                   epoch=epoch if state is None else None)
        handle = _capi.open_loader(self._path, options, self._comm)
        if self._handle is not None:
            self._give_up()
        self._reset()
        self._handle = handle
        self._owned = _Handle(handle, closes=self._comm is None)
        self._forget_batch()

    def _forget_batch(self) -> None:
        self._batch = None
        # What lmdbio_next has said last, and the number of the batch that was handed out last.
        self._struct = ctypes.POINTER(_capi.BatchStruct)()
        self._handed_out: Optional[int] = None

    def _use(self) -> ctypes.c_void_p:
        """The handle, of this process."""
        if self._is_closed:
            raise ClosedError("the loader is closed")
        if self._pid != os.getpid():
            self._leave_parent()
        if self._handle is None:
            self._open(0, self._pending)
        return self._handle  # type: ignore[return-value]

    def _leave_parent(self) -> None:
        if self._comm is not None:
            raise InvalidStateError("a loader with a communicator cannot be used after fork")
        state = json.dumps(self._save())
        self._give_up()
        self._reset()
        self._pending = state

    def _save(self) -> Dict[str, Any]:
        text = ctypes.c_char_p()
        _capi.check(self._handle, _capi.library().lmdbio_save(self._handle, ctypes.byref(text)))
        state = json.loads(text.value.decode())
        missed = self._undelivered()
        if missed is not None:
            state.update(batch=missed.number, epoch=missed.epoch, position=missed.first_position)
        return state

    def _is_lent(self) -> bool:
        """Whether there are views into the loader's memory."""
        return self._lent is not None and self._lent() is not None

    def _check_may_close(self) -> None:
        """With a communicator, memory goes at once and on all ranks."""
        if self._comm is not None and self._pid == os.getpid() and self._is_lent():
            raise InUseError("views into the loader's memory are still in use")

    def _lease_for(self, batch: Batch) -> Lease:
        self._check_at_hand(batch)
        lease = self._lent() if self._lent is not None else None
        if lease is None:
            lease = Lease(self._owned)
            self._lent = weakref.ref(lease)
        return lease

    def _check_at_hand(self, batch: Batch) -> None:
        if batch is not self._batch or self._pid != os.getpid():
            raise InvalidStateError("this batch is gone: the loader has moved on or was closed")

    def _copy_values(self, address: int, row_bytes: int, row_count: int) -> None:
        handle = self._use()
        status = _capi.library().lmdbio_copy_values(handle, address, row_bytes, row_count)
        _capi.check(handle, status)

    def _give_up(self) -> None:
        """Lets go of the handle: at once, or with the last view into its memory."""
        self._check_may_close()
        handle, self._handle, self._batch = self._handle, None, None
        self._owned = None  # what closes it, if nobody else needs it
        if handle is not None and self._comm is not None:
            _capi.library().lmdbio_close(handle)

    # --- Iteration ------------------------------------------------------------------------------

    def next(self) -> Optional[Batch]:
        """The next batch; None after the last (max_batches). What the last one showed is gone."""
        handle = self._use()
        if self._undelivered() is not None:
            return self._hand_out()
        self._batch = None
        next_within, struct = _capi.library().lmdbio_next_within, self._struct
        status = _capi.TIMEOUT
        while status == _capi.TIMEOUT:
            status = next_within(handle, _LOOK_UP_MS, ctypes.byref(struct))
        if status == _capi.OK:
            return self._hand_out()
        if status != _capi.END:
            _capi.check(handle, status)
        return None

    def _undelivered(self) -> Optional[_capi.BatchStruct]:
        """A batch that came while a signal's handler raised, so that nobody has it."""
        if self._struct and self._struct.contents.number != self._handed_out:
            return self._struct.contents
        return None

    def _hand_out(self) -> Batch:
        batch = Batch(self, self._struct.contents)
        self._batch, self._handed_out = batch, batch.number
        return batch

    def __iter__(self) -> Iterator[Batch]:
        while True:
            batch = self.next()
            if batch is None:
                return
            is_last = batch.ends_epoch
            yield batch
            if is_last:
                return

    def _count(self) -> tuple[int, int]:
        handle = self._use()
        records, batches = ctypes.c_uint64(), ctypes.c_uint64()
        _capi.check(handle, _capi.library().lmdbio_count(handle, ctypes.byref(records),
                                                         ctypes.byref(batches)))
        return records.value, batches.value

    def __len__(self) -> int:
        """Batches of an epoch."""
        return self._count()[1]

    @property
    def record_count(self) -> int:
        """Records of the database."""
        return self._count()[0]

    @property
    def batch_size(self) -> int:
        """Records of this rank's batches."""
        return self._batch_size

    # --- Where the stream stands ----------------------------------------------------------------

    def set_epoch(self, epoch: int) -> None:
        """Goes on with the first record of an epoch. Costs nothing if that comes next anyway."""
        handle = self._use()
        epoch = _capi.number("epoch", epoch, ctypes.c_uint64)
        self._check_may_close()
        if self._is_lent():
            self._open(epoch, None)
            return
        self._forget_batch()
        _capi.check(handle, _capi.library().lmdbio_set_epoch(handle, epoch))

    def state_dict(self) -> Dict[str, Any]:
        """Where the stream stands, before the next batch: small, readable, good at any number of
        ranks. Ranks that have had as many batches get the same."""
        if self._pending is None:
            self._use()
            return self._save()
        return json.loads(self._pending)

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Goes on where `state` stands. What was read ahead is lost: to begin there, give it to
        the constructor."""
        handle = self._use()
        text = json.dumps(state)
        self._check_may_close()
        if self._is_lent():
            self._open(0, text)
            return
        self._forget_batch()
        _capi.check(handle, _capi.library().lmdbio_restore(handle, text.encode()))

    # --- What it does ---------------------------------------------------------------------------

    def counters(self) -> Dict[str, Union[int, float]]:
        """What the loader has done so far; see lmdbio_counters in lmdbio.h."""
        handle = self._use()
        pointer = ctypes.POINTER(_capi.Counters)()
        _capi.check(handle, _capi.library().lmdbio_get_counters(handle, ctypes.byref(pointer)))
        return {name: getattr(pointer.contents, name) for name, _ in _capi.Counters._fields_}

    def describe(self) -> str:
        """How records are found and read."""
        handle = self._use()
        text = ctypes.c_char_p()
        _capi.check(handle, _capi.library().lmdbio_describe(handle, ctypes.byref(text)))
        return text.value.decode()

    def pin_compute(self) -> None:
        """The calling thread, and those it starts, run on the cores that `placement` leaves to
        computing; does nothing where it names none."""
        handle = self._use()
        _capi.check(handle, _capi.library().lmdbio_pin_compute(handle))

    # --- The end --------------------------------------------------------------------------------

    def close(self) -> None:
        """Lets go of everything; views that were taken stay readable. Collective with `comm`,
        where BufferError says that such views are still in use."""
        if not self._is_closed:
            self._give_up()
            self._is_closed = True

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *_error: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_comm", None) is not None and getattr(self, "_handle", None) is not None:
            warnings.warn("a loader with a communicator was not closed", ResourceWarning,
                          stacklevel=2)

    def __getstate__(self) -> Dict[str, Any]:
        if self._comm is not None:
            raise InvalidTypeError("a loader with a communicator cannot be pickled")
        state = None if self._is_closed else json.dumps(self.state_dict())
        return {"path": self._path, "batch_size": self._batch_size, "fields": self._fields,
                "state": state}

    def __setstate__(self, pickled: Dict[str, Any]) -> None:
        self._path, self._comm = pickled["path"], None
        self._batch_size, self._fields = pickled["batch_size"], pickled["fields"]
        self._reset()
        self._pending = pickled["state"]
        self._is_closed = self._pending is None

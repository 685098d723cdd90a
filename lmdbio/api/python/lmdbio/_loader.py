"""Batches of an LMDB database, in order."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sysconfig
import threading
import time
import warnings
import weakref
from typing import Any, Dict, Iterator, NamedTuple, Optional, Union

from lmdbio import _capi, _launch, _options
from lmdbio._batch import Batch, Lease, Lent
from lmdbio._errors import (
    ClosedError,
    InUseError,
    InvalidArgumentError,
    InvalidStateError,
    InvalidTypeError,
)
from lmdbio._files import Files, files_of
from lmdbio._view import View, taken_apart


# A free-threaded Python frees an object of another thread when that thread runs next, or in a
# collection. If threads sleep whose batches others have let go, batches would stay in memory: after
# so long without a batch, and then more and more rarely, a collection frees them.
_COLLECT_AFTER_S = 0.05 if sysconfig.get_config_var("Py_GIL_DISABLED") else float("inf")


class _Handle:
    """Closes a loader's handle when neither the loader nor a view of its memory needs it.

    A handle with a communicator is closed explicitly. The system releases handles that are open
    when Python ends, because views may be read until then.
    """

    __slots__ = ("__weakref__",)

    def __init__(self, handle: ctypes.c_void_p, closes: bool) -> None:
        if closes:
            weakref.finalize(self, _capi.library().lmdbio_close, handle).atexit = False


class _Opened(NamedTuple):
    """An open handle, what closes it, and the process that opened it."""

    handle: ctypes.c_void_p
    owned: _Handle
    process: int


class _OfThread:
    """What a thread does with a loader: the batch that it takes, and the one that it got last."""

    __slots__ = ("result", "struct", "batch")

    def __init__(self) -> None:
        # Results of lmdbio_fetch. The first is NULL once the batch is delivered.
        self.result = ctypes.c_void_p()
        self.struct = ctypes.POINTER(_capi.BatchStruct)()
        self.batch: Optional[weakref.ref] = None

    def __del__(self) -> None:
        if self.result.value is not None:
            _capi.library().lmdbio_result_close(self.result)


class _Epoch:
    """Iterates over the rest of the epoch that its first batch belongs to. Threads may share it."""

    __slots__ = ("_loader", "ends_before")

    def __init__(self, loader: "Loader") -> None:
        self._loader = loader
        self.ends_before: Optional[int] = None  # epochs that had ended at the first batch

    def __iter__(self) -> "_Epoch":
        return self

    def __next__(self) -> Batch:
        batch = self._loader._take(self)
        if batch is None:
            raise StopIteration
        return batch


def _take_torch_words(options: Dict[str, Any], shuffle: Union[bool, str], drop_last: bool) -> None:
    """Translates PyTorch's arguments to options of lmdbio."""
    is_given = isinstance(shuffle, str) or shuffle
    if is_given:
        if options["order"] not in ("sequential", "shuffle"):
            raise InvalidArgumentError(
                f"shuffle={shuffle!r} and order={options['order']!r} exclude each other")
        options["order"] = "shuffle"
    options["shuffle"] = shuffle if isinstance(shuffle, str) else "global"
    if drop_last:
        if options["tail"] == "wrap":
            raise InvalidArgumentError("drop_last and tail='wrap' exclude each other")
        options["tail"] = "drop"


def _ranks_of(options: Dict[str, Any], comm: Any) -> int:
    """Returns the number of ranks that share a batch, over all shards."""
    num_shards, shard_id = options["num_shards"], options["shard_id"]
    if num_shards < 1 or not 0 <= shard_id < num_shards:
        raise InvalidArgumentError(f"shard_id {shard_id} is out of range for num_shards "
                                   f"{num_shards}; shards are numbered from 0")
    return num_shards * (comm.size if comm is not None else 1)


class Loader:
    """Iterates over batches. A for loop ends with the epoch; the next loop delivers the next epoch.

    With a View in place of the path, batches consist of its samples: sizes, shuffling, shards and
    states count them. With fields, batch["label"] is the batch of that field.

    All iterators of a loader share its one stream. A loader can be pickled, and used after fork:
    the other process opens its own, which continues at the same position.

    Any number of threads may use a loader, or one iterator of it. Each gets batches of its own, in
    turn; a batch is valid until its thread takes the next one. A thread that keeps its batch keeps
    memory from the others, for a minute at most: then `next` raises MemoryError. Errors are
    LmdbioError, most also a built-in exception.
    """

    # Begin generated Loader: scripts/generate_options.py, from api/options.toml.
    def __init__(self, path: Union[Files, View], batch_size: Optional[int] = None,
                 shuffle: Union[bool, str] = False, *, drop_last: bool = False, comm: Any = None,
                 database_name: Optional[str] = None, on_error: str = "raise",
                 snapshot: str = "immutable", layout_cache: Optional[str] = None,
                 global_batch_size: Optional[int] = None, max_batches: Optional[int] = 0,
                 order: str = "sequential", tail: str = "short", share: str = "block",
                 seed: int = 0, block_records: Optional[int] = 0, group_batches: Optional[int] = 0,
                 reuse: int = 1, reuse_among: str = "rank", epoch: int = 0,
                 state: Optional[Dict[str, Any]] = None, num_shards: int = 1, shard_id: int = 0,
                 memory_budget_bytes: int = 256 << 20, keep_bytes: Optional[int] = 0,
                 prefetch_batches: Optional[int] = 0, allow_map: bool = True,
                 huge_pages: str = "auto", window_memory: str = "auto", readers_per_host: int = 1,
                 queue_depth: int = 32, block_bytes: int = 1 << 20, strategy: str = "auto",
                 engine: Optional[str] = None, placement: Optional[str] = None,
                 cache: Optional[str] = None, stagger: Optional[int] = 0, joint_walk: str = "auto",
                 exchange: str = "auto", open_files_max: Optional[int] = 0) -> None:
        """Opens the database and begins to read.

        path                 A directory with data.mdb, or a data file. Several files as one:
                             another directory, a glob, or a list of paths and of pairs (path,
                             database name). Or a View of them.
        batch_size           Records of this rank's batches, as in PyTorch; in place of
                             global_batch_size. None: global_batch_size, of all ranks, counts.
        shuffle              As in PyTorch: True is order="shuffle". "global" and "block" also
                             choose the way to shuffle.
        drop_last            As in PyTorch: True is tail="drop".
        comm                 A communicator of mpi4py, "env" for the ranks that torchrun or srun has
                             started, or "torch" for those of torch.distributed, whose store they
                             meet in: these ranks share memory and batches. The constructor,
                             set_epoch, load_state_dict and close are then collective.

        Data:
        database_name        The named database to read. None: the main database.
        on_error             The reaction to a record that cannot be read or is damaged. "raise":
                             Every rank gets an error. "skip": The record is left out of its batch
                             and counted.
        snapshot             The protection against a writer that changes the file. "immutable": For
                             files that no process changes. A change is detected at the end of an
                             epoch. "optimistic": Every slot is checked after it has been read.
                             "pinned": A read transaction of liblmdb keeps the pages in place. It
                             needs the lock file.
        layout_cache         The folder that keeps the layout of a walked database for later jobs,
                             with strategy auto, one reader on one host and no provenance. "off":
                             none. None: the folder in LMDBIO_CACHE, which may be "off"; else lmdbio
                             in the user's cache folder.

        Batches:
        global_batch_size    Records of one batch, over all ranks.
        max_batches          The number of batches after which the stream ends. 0: no limit.

        Order:
        order                The order of the records in the stream. "sequential": The order of the
                             database. "shuffle": A different random order in each epoch; the option
                             shuffle selects the method. "chunked": Consecutive records go to the
                             batches of a batch group in turn.
        tail                 The end of an epoch, if the batch size does not divide the number of
                             records. "short": The last batch of an epoch is smaller, so each record
                             occurs exactly once. "drop": The last records of an epoch are left out.
                             "wrap": The last batch continues with the first records of the next
                             epoch, as in Caffe.
        share                The share of a rank in a batch. "block": Rank r of P gets the r-th
                             contiguous part. "round-robin": Rank r of P gets the positions that are
                             r modulo P, as the solvers of Caffe do. "fill": As block, but in a
                             short batch the first ranks get parts of full size.
        seed                 Selects the random order of shuffling, and of the batches that reuse
                             composes.
        block_records        Records of a block, with shuffle = block. 0: as many as fill 1 MiB of
                             pages.
        group_batches        The number of batches of a batch group, whose records are read together
                             and dealt out among the batches. Used with order = chunked, with
                             shuffle = block and with reuse. At most 1,024. Not with share =
                             round-robin. 0: as many as hold 32 MiB of pages.
        reuse                The number of times that each record is delivered while it is in
                             memory, in newly composed batches. An epoch becomes longer by this
                             factor. 1 to 1,000.
        reuse_among          The rank that gets a record again, with reuse. "rank": The same rank in
                             each pass. "host": Another rank of the same host in each pass.

        Start:
        epoch                The stream begins with the first record of this epoch. Excludes state.
        state                The stream begins at a saved state. The saved block_records and
                             group_batches are used if these options are 0.

        Shards:
        num_shards           The number of jobs that share each batch, as if their ranks were the
                             ranks of one job. For processes without MPI.
        shard_id             The number of this job among the shards, below num_shards.

        Memory:
        memory_budget_bytes  Memory of a host for the records that are read ahead. At least 1 MiB.
        keep_bytes           Memory of a host for the file cache, in addition to
                             memory_budget_bytes. Strategy auto may keep the parts of the file there
                             that were read, so that nothing is read twice. The whole data file must
                             fit. 0: an eighth of the free memory, if the records are scattered and
                             there are no shards. -1: the file is never kept.
        prefetch_batches     The approximate number of global batches to read ahead. A few are
                             always read ahead. 0: as many as the memory budget holds.
        allow_map            Batches may be views into a map of the file, if the job has one host
                             and most of the file is in its page cache. If a process truncates the
                             file meanwhile, lost bytes of the batch in use become zeros, and the
                             next batch is an error. Only with strategy auto; not with snapshot =
                             optimistic.
        huge_pages           The page size of the memory that batches are read into. "auto": Huge
                             pages (2 MiB), as far as the system has them; a note tells the reason
                             if it has none. "off": Small pages. Direct reads are slower; the memory
                             grows page by page.
        window_memory        The memory that the ranks of a host share. A host with one rank shares
                             none. "auto": A file in memory without a name; a window of MPI, with a
                             note, if the system refuses it. "mpi": A window of MPI. It needs room
                             in /dev/shm, may have small pages, and may stay there if a rank is
                             killed.

        Reading:
        readers_per_host     The number of ranks of each host that read.
        queue_depth          The number of reads in flight for each reader.
        block_bytes          The size of the largest read. A multiple of 4,096. At the default, the
                             -coal strategies derive larger reads from memory_budget_bytes.
        strategy             The method to find and to fetch records; docs/loader.md describes the
                             strategies. "auto": Provenance if it fits, else a page walk. A probe
                             chooses the engine. "scan": A page walk, and many reads in flight that
                             bypass the page cache. "lmdb": Every rank steps liblmdb's cursor over
                             all records. "lmm": Readers step a cursor over a map. "lmm-dm": The
                             cursor travels from host to host. "lmm-dio": The cursor of one host
                             finds the records; explicit reads fetch them. "lmm-dio-prov": As
                             lmm-dio, but provenance finds the records. "lmm-dio-prov-coal": As
                             lmm-dio-prov; neighbouring pages are read together.
                             "lmm-dio-prov-coal-stag": As lmm-dio-prov-coal; readers take turns.
        engine               The code that executes reads, if the strategy does not determine it.
                             None: the strategy chooses. "mmap": Copies from a map of the file.
                             "pread": Threads with one blocking read each. "uring": io_uring.
        placement            The cores of the threads. "scp": one core of a rank reads and one
                             synchronises gradients, if the rank has at least three cores.
                             "compute=0-5,input=6,sync=7": lists of cores; semicolons separate such
                             groups for the ranks of a host in order. With hwloc also "core:0-5",
                             "numa:0" and "near" (docs/sync.md). Reading threads run on the input
                             cores. None: any core. If one rank has a placement, all ranks must have
                             one; the values may differ.
        cache                The use of the page cache, if the strategy does not determine it. None:
                             the strategy chooses. "buffered": Reads go through the page cache.
                             "direct": Reads bypass the page cache (O_DIRECT). "mixed": Reads take
                             what the page cache has, and bypass it for the rest.
        stagger              The number of readers of the job that read at a time, with strategies
                             in which they take turns. 0: a trial of the first slots of the stream
                             decides; on one host only with -stag.
        joint_walk           Whether a page walk reads values along with the leaf pages, in key
                             order and with direct reads, if the file was written in order. "auto":
                             If a single read of the storage takes 0.3 ms or more. "on": Also on
                             fast storage. "off": Never: the walk reads leaf pages alone.
        exchange             Whether the hosts read large parts of the file for each other, in key
                             order, if a host needs only a small part of each batch. "auto": With
                             strategy auto and direct or mixed reads, if a host needs less than an
                             eighth of block_bytes of a batch and a single read takes 0.3 ms or
                             more. "on": Also with other strategies that read blocks, larger batches
                             and fast storage. "off": Never: each host reads what it needs.
        open_files_max       The most descriptors of data files that are open at the same time, if
                             there are several files. A file may need two. With fewer descriptors
                             than files, files are opened again for later reads. 0: a quarter of
                             those that the process may have, and at most 1,024.
        """
        self._begin(path, batch_size, shuffle, drop_last, comm, dict(
            database_name=database_name, on_error=on_error, snapshot=snapshot,
            layout_cache=layout_cache, global_batch_size=global_batch_size, max_batches=max_batches,
            order=order, tail=tail, share=share, seed=seed, block_records=block_records,
            group_batches=group_batches, reuse=reuse, reuse_among=reuse_among, epoch=epoch,
            state=state, num_shards=num_shards, shard_id=shard_id,
            memory_budget_bytes=memory_budget_bytes, keep_bytes=keep_bytes,
            prefetch_batches=prefetch_batches, allow_map=allow_map, huge_pages=huge_pages,
            window_memory=window_memory, readers_per_host=readers_per_host, queue_depth=queue_depth,
            block_bytes=block_bytes, strategy=strategy, engine=engine, placement=placement,
            cache=cache, stagger=stagger, joint_walk=joint_walk, exchange=exchange,
            open_files_max=open_files_max))
    # End generated Loader.

    def _begin(self, path: Any, batch_size: Optional[int], shuffle: Union[bool, str],
               drop_last: bool, comm: Any, options: Dict[str, Any]) -> None:
        path, self._view = taken_apart(path, options)
        self._path = files_of(path)
        self._comm = comm = _launch.resolve(comm)
        _take_torch_words(options, shuffle, drop_last)
        ranks = _ranks_of(options, comm)
        if batch_size is not None:
            if options["global_batch_size"] is not None:
                raise InvalidArgumentError("batch_size and global_batch_size exclude each other")
            if batch_size < 1:
                raise InvalidArgumentError(f"batch_size {batch_size} is out of range; "
                                           "expected 1 or more")
            options["global_batch_size"] = batch_size * ranks
        if options["global_batch_size"] is None:
            options["global_batch_size"] = _options.GLOBAL_BATCH_SIZE
        self._global_batch_size = options["global_batch_size"]
        self._batch_size = -(-self._global_batch_size // ranks)
        epoch, state = options.pop("epoch"), options.pop("state")
        if state is not None and epoch:
            raise InvalidArgumentError(f"epoch {epoch} and a state exclude each other; "
                                       "give only one of them")
        self._fields = _capi.option_fields(options)
        self._reset()
        self._open(epoch, None if state is None else json.dumps(state))

    def _reset(self) -> None:
        self._opened: Optional[_Opened] = None
        self._of_thread = threading.local()
        self._lent: Optional[weakref.ref] = None
        self._feed: Optional[weakref.ref] = None  # lmdbio.DeviceFeed
        self._turns: Dict[int, threading.RLock] = {}
        self._end_count = 0  # epochs whose last batch was delivered
        self._is_closed = self._is_closing = False
        # The state at which another process opens the loader when it first uses it.
        self._pending: Optional[str] = None

    # --- The handle -----------------------------------------------------------------------------

    def _turn(self) -> threading.RLock:
        """Returns the lock of the thread that takes a batch, opens or closes. Each process has its
        own: a child of fork() may inherit one that is never unlocked. The thread that holds it may
        lock it again, because a handler of signals may use the loader."""
        return self._turns.setdefault(os.getpid(), threading.RLock())

    def _open(self, epoch: int, state: Optional[str]) -> None:
        """Replaces the open handle by a new one. After an error the open handle stays."""
        where = {"epoch": epoch} if state is None else {"state": state}
        options = _capi.options_of({**self._fields, **_capi.option_fields(where)}, self._view)
        handle = _capi.open_loader(self._path, options, self._comm)
        if self._opened is not None:
            self._give_up()
        self._lent = self._pending = None
        self._opened = _Opened(handle, _Handle(handle, closes=self._comm is None), os.getpid())

    def _use(self) -> _Opened:
        """Returns the handle of this process."""
        opened = self._opened
        if opened is not None and opened.process == os.getpid():
            return opened
        with self._turn():
            if self._is_closed:
                raise ClosedError("the loader is closed")
            if self._opened is not None and self._opened.process != os.getpid():
                self._leave_parent()
            if self._opened is None:
                self._open(0, self._pending)
            return self._opened  # type: ignore[return-value]

    def _call(self, name: str, *arguments: Any) -> None:
        opened = self._use()  # keeps the handle open during the call
        _capi.check(opened.handle, getattr(_capi.library(), name)(opened.handle, *arguments))

    def _leave_parent(self) -> None:
        if self._comm is not None:
            raise InvalidStateError("a loader with a communicator cannot be used after fork")
        state = json.dumps(self._save(self._opened))
        self._reset()
        self._pending = state

    def _save(self, opened: _Opened) -> Dict[str, Any]:
        text = ctypes.c_char_p()
        _capi.check(opened.handle,
                    _capi.library().lmdbio_save(opened.handle, ctypes.byref(text)))
        state = json.loads(text.value.decode())
        missed = self._undelivered()
        if missed is not None:
            state.update(batch=missed.number, epoch=missed.epoch, position=missed.first_position)
        return state

    def _is_lent(self) -> bool:
        """Returns whether the memory is in use: by views, or by batches of other threads. Ends the
        batch of this thread, if it has no views."""
        batch = self._batch_of_thread()
        if batch is not None and batch._lease is not None:
            lease = weakref.ref(batch._lease)
            batch._lease = None
            batch._lease = lease()  # a view keeps it
        return self._lent is not None and self._lent() is not None

    def _check_may_close(self) -> None:
        """Raises if memory is in use: with a communicator, closing releases it at once."""
        if self._comm is not None and self._is_of_this_process() and self._is_lent():
            raise InUseError("views of the loader's memory, or batches of other threads, are still "
                             "in use; delete them first")

    def _open_feed(self) -> Any:
        """Returns the feed that takes the batches; None if there is none."""
        feed = self._feed() if self._feed is not None else None
        return feed if feed is not None and feed.is_open and self._is_of_this_process() else None

    def _is_of_this_process(self) -> bool:
        return self._opened is not None and self._opened.process == os.getpid()

    def _check_at_hand(self, batch: Batch) -> Lease:
        lease, opened = batch._lease, self._opened
        if lease is None or opened is None or lease.owned is not opened.owned or (
                opened.process != os.getpid()):
            raise InvalidStateError("the batch is no longer valid: the loader has moved on or was "
                                    "closed")
        return lease

    def _give_up(self) -> None:
        """Releases the handle: at once, or with the last view of its memory."""
        self._check_may_close()
        feed = self._open_feed()
        if feed is not None:
            feed.close()
        self._end_batch()
        opened, self._opened = self._opened, None
        if opened is not None and self._comm is not None:
            _capi.library().lmdbio_close(opened.handle)

    # --- Iteration ------------------------------------------------------------------------------

    def next(self) -> Optional[Batch]:
        """Returns the next batch; None after the last one (max_batches). The earlier batch of this
        thread becomes invalid.

        MemoryError: batches of other threads have occupied the memory for a minute. The next call
        waits again.
        """
        return self._take(None)

    def _take(self, epoch: Optional[_Epoch]) -> Optional[Batch]:
        """Returns the next batch; None after the last one, of `epoch` if it is given."""
        self._use()
        # Before the turn: another thread may wait for this batch's memory.
        self._end_batch()
        with self._turn():
            if epoch is not None and epoch.ends_before is None:
                epoch.ends_before = self._end_count
            if epoch is not None and epoch.ends_before != self._end_count:
                return None  # this thread, or another one, has got its last batch
            batch = self._take_in_turn()
            if batch is not None and batch.ends_epoch:
                self._end_count += 1
            return batch

    def _take_in_turn(self) -> Optional[Batch]:
        opened, mine = self._use(), self._mine()
        if mine.result.value is not None:
            return self._hand_out()
        fetch, result, struct = _capi.library().lmdbio_fetch, mine.result, mine.struct
        status, collect_after_s, begin = _capi.TIMEOUT, _COLLECT_AFTER_S, time.monotonic()
        while status == _capi.TIMEOUT:
            if self._is_closing:
                raise ClosedError("the loader is closed")
            if time.monotonic() - begin > collect_after_s:
                gc.collect()  # memory of views that are gone
                collect_after_s *= 4
            status = fetch(opened.handle, _capi.LOOK_UP_MS, ctypes.byref(result),
                           ctypes.byref(struct))
        if status == _capi.OK:
            return self._hand_out()
        if status != _capi.END:
            _capi.check(opened.handle, status)
        return None

    def _mine(self) -> _OfThread:
        try:
            return self._of_thread.mine
        except AttributeError:
            self._of_thread.mine = mine = _OfThread()
            return mine

    def _batch_of_thread(self) -> Optional[Batch]:
        batch = self._mine().batch
        return batch() if batch is not None else None

    def _end_batch(self) -> None:
        """Ends the batch of this thread. Its views stay readable."""
        batch = self._batch_of_thread()
        lease = batch._lease if batch is not None else None
        if lease is not None:
            batch._lease = None  # type: ignore[union-attr]
            lease.end()

    def _undelivered(self) -> Optional[_capi.BatchStruct]:
        """Returns the batch that this thread did not get because a signal handler raised."""
        mine = self._mine()
        return mine.struct.contents if mine.result.value is not None else None

    def _hand_out(self) -> Batch:
        mine, opened = self._mine(), self._use()
        lent = self._lent() if self._lent is not None else None
        if lent is None:
            lent = Lent()
            self._lent = weakref.ref(lent)
        names = None if self._view is None else self._view.field_names
        batch = Batch(self, mine.struct.contents, names)
        lease, nothing = Lease(lent), ctypes.c_void_p()
        mine.batch = weakref.ref(batch)
        # No signal handler runs between these assignments, so the batch has one owner.
        lease.owned = opened.owned
        lease.result = mine.result
        mine.result = nothing
        batch._lease = lease
        return batch

    def __iter__(self) -> Iterator[Batch]:
        return _Epoch(self)

    def _count(self) -> tuple[int, int]:
        records, batches = ctypes.c_uint64(), ctypes.c_uint64()
        self._call("lmdbio_count", ctypes.byref(records), ctypes.byref(batches))
        return records.value, batches.value

    def __len__(self) -> int:
        """Returns the number of batches of an epoch."""
        return self._count()[1]

    @property
    def record_count(self) -> int:
        """The number of records of the database, or of samples of the view."""
        return self._count()[0]

    @property
    def batch_size(self) -> int:
        """The largest number of records in a batch of this rank."""
        return self._batch_size

    @property
    def global_batch_size(self) -> int:
        """The number of records in a batch of all ranks."""
        return self._global_batch_size

    # --- Stream state ---------------------------------------------------------------------------

    def set_epoch(self, epoch: int) -> None:
        """Continues with the first record of an epoch. Costs nothing if that record comes next
        anyway."""
        epoch = _capi.number("epoch", epoch, ctypes.c_uint64)
        self._go_on_at("lmdbio_set_epoch", epoch, epoch, None)

    def _go_on_at(self, call: str, argument: Any, epoch: int, state: Optional[str]) -> None:
        """Moves the stream elsewhere. Memory that is in use stays as it is: the loader gets other
        memory then."""
        self._use()
        with self._turn():
            self._check_may_close()
            if self._is_lent() and self._open_feed() is None:
                self._open(epoch, state)
                return
            self._end_batch()
            # A batch that a signal took away is passed over, too.
            self._of_thread = threading.local()
            self._call(call, argument)

    def state_dict(self) -> Dict[str, Any]:
        """Returns the stream state before the next batch: small, readable, valid for any number of
        ranks. Ranks that have received equally many batches get the same state."""
        if self._pending is not None:
            return json.loads(self._pending)
        return self._save(self._use())

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Continues the stream at a saved state. Records that were read ahead are discarded, so a
        program that begins at a state passes it to the constructor instead."""
        text = json.dumps(state)
        self._go_on_at("lmdbio_restore", text.encode(), 0, text)

    # --- Counters and options -------------------------------------------------------------------

    def counters(self) -> Dict[str, Union[int, float]]:
        """Returns the counters of the loader; see lmdbio_counters in lmdbio.h."""
        pointer = ctypes.POINTER(_capi.Counters)()
        self._call("lmdbio_get_counters", ctypes.byref(pointer))
        return {name: getattr(pointer.contents, name) for name, _ in _capi.Counters._fields_}

    def options(self) -> Dict[str, Any]:
        """Returns the effective options; None for an option that the strategy chooses."""
        text = ctypes.c_char_p()
        self._call("lmdbio_get_options", ctypes.byref(text))
        return json.loads(text.value.decode())

    def describe(self) -> str:
        """Describes how records are found and read."""
        text = ctypes.c_char_p()
        self._call("lmdbio_describe", ctypes.byref(text))
        return text.value.decode()

    def pin_compute(self) -> None:
        """Pins the calling thread, and the threads that it starts later, to the compute cores of
        `placement`. Does nothing if `placement` names none."""
        self._call("lmdbio_pin_compute")

    # --- Closing --------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes the loader; its views stay readable, and the last one releases the memory.

        With `comm` it is collective, and raises BufferError if views, or batches of other threads,
        are still in use. Another thread that waits for a batch gets ClosedError.
        """
        self._is_closing = True
        try:
            with self._turn():
                if not self._is_closed:
                    self._give_up()
                    self._is_closed = True
        finally:
            self._is_closing = False

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *_error: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_comm", None) is not None and getattr(self, "_opened", None) is not None:
            warnings.warn("a loader with a communicator was not closed", ResourceWarning,
                          stacklevel=2)

    def __getstate__(self) -> Dict[str, Any]:
        if self._comm is not None:
            raise InvalidTypeError("a loader with a communicator cannot be pickled")
        state = None if self._is_closed else json.dumps(self.state_dict())
        return {"path": self._path, "batch_size": self._batch_size,
                "global_batch_size": self._global_batch_size, "fields": self._fields,
                "state": state, "view": self._view}

    def __setstate__(self, pickled: Dict[str, Any]) -> None:
        self._path, self._comm = pickled["path"], None
        self._view = pickled["view"]
        self._batch_size, self._fields = pickled["batch_size"], pickled["fields"]
        self._global_batch_size = pickled["global_batch_size"]
        self._reset()
        self._pending = pickled["state"]
        self._is_closed = self._pending is None

"""Decoded batches for a DataLoader of PyTorch."""

from __future__ import annotations

import contextlib
import json
import operator
import os
from multiprocessing.context import get_spawning_popen
from typing import Any, Callable, Dict, Iterator, NamedTuple, Optional, Tuple

import torch
import torch.utils.data

from lmdbio import _ranks
from lmdbio._epochs import Epochs
from lmdbio._errors import InvalidArgumentError, InvalidStateError, InvalidTypeError
from lmdbio._hand_over import begin, check_size
from lmdbio._loader import Loader
from lmdbio._options import GLOBAL_BATCH_SIZE
from lmdbio._positions import Positions
from lmdbio._torch_feed import (
    TorchFeed,
    batches_of,
    check_feed_options,
    device_of,
    values_as_tensor,
)


# Of each worker. Six batches of 256 images of 224 x 224 x 3 floats; memory is used when needed.
HAND_OVER_BYTES = 1 << 30


class _Place(NamedTuple):
    """A process that iterates over a dataset: a worker of a rank. Without workers it is (1, 0)."""

    workers: int
    worker: int
    ranks: int
    rank: int


class _Saved(NamedTuple):
    """A state at which a loop continues."""

    state: Dict[str, Any]
    epoch: int  # the loop delivers the rest of it, which is nothing if the state is behind it
    selections: int  # of Epochs when it was loaded; a later selection replaces it
    is_for_all: bool  # loaded by the trainer, and not by each worker for itself


def _worker() -> Tuple[int, int]:
    """Returns (number of workers, number of this worker)."""
    info = torch.utils.data.get_worker_info()
    return (info.num_workers, info.id) if info is not None else (1, 0)


class IterableDataset(torch.utils.data.IterableDataset):
    """Decoded batches of a database, for DataLoader(dataset, batch_size=None, ...).

    path        a directory with data.mdb, or a data file; several files as in lmdbio.Loader; or a
                lmdbio.View of them
    batch_size  records of a batch of this rank; None: global_batch_size divided by the ranks
    decode      converts a Batch to the value that is delivered; it must copy data that it keeps.
                The default copies the values into one tensor of uint8, shorter ones ending in
                zeros. With a GPU it gets a DeviceBatch, and the default copies nothing
    global_batch_size
                records of a batch of all ranks, in place of batch_size; without either it is 64
    num_shards, shard_id
                None: the ranks of torch.distributed. RuntimeError if they form a DeviceMesh of
                several dimensions, or if WORLD_SIZE names several ranks and torch.distributed does
                not know them
    hand_over_bytes
                the largest memory in which each worker hands batches over to the trainer without a
                copy. 0: all batches are copied, as PyTorch does it
    device      a GPU, as PyTorch names it: batches are copied to its memory ahead of the program,
                and arrive for the current stream (lmdbio.DeviceFeed). Without workers only. The
                default of allow_map is then False. None or "cpu": they stay on the host
    feed_options
                with a GPU: a dict of `packed`, `row_bytes_min` and `depth` of lmdbio.DeviceFeed
    Also shuffle, seed, drop_last and all other arguments of lmdbio.Loader, except comm, share and
    tail="wrap".

    A loop delivers the epoch after the last one, or repeats an epoch that was left early. An epoch
    has been delivered when its last batch has been, with workers to their queue.

    Each of n workers delivers every n-th batch, so the sequence does not depend on their number.
    For lmdbio, the n batches that the workers deliver in turn are parts of one global batch, and
    Batch.global_record_count counts all of them. If the last batch of an epoch is short, the ranks
    may then get other shares of it, or none.

    With shuffle="block", order="chunked" and reuse, the size of global batches is part of the
    order. The sequence then depends on the number of workers, and a state continues only without
    workers.

    Accelerate shards such a DataLoader again. Its loops are refused (RuntimeError), because records
    would be lost: use lmdbio.torch.DataLoader.
    """

    def __init__(self, path: Any, batch_size: Optional[int] = None, *,
                 decode: Callable[[Any], Any] = values_as_tensor,
                 drop_last: bool = False, global_batch_size: Optional[int] = None,
                 num_shards: Optional[int] = None, shard_id: Optional[int] = None,
                 tail: str = "short", hand_over_bytes: int = HAND_OVER_BYTES, device: Any = None,
                 feed_options: Optional[Dict[str, Any]] = None, **options: Any) -> None:
        if "comm" in options or "share" in options or tail not in ("short", "drop"):
            raise InvalidArgumentError("comm, share and tail='wrap' are not supported here; use "
                                       "lmdbio.Loader")
        if batch_size is not None and global_batch_size is not None:
            raise InvalidArgumentError("batch_size and global_batch_size exclude each other")
        if batch_size is None and global_batch_size is None:
            global_batch_size = GLOBAL_BATCH_SIZE
        self._drop_last = drop_last or tail == "drop"
        self._path, self._decode = path, decode
        self._sizes = (batch_size, global_batch_size)  # one of them is None
        if (num_shards is None) != (shard_id is None):
            raise InvalidArgumentError("num_shards and shard_id belong together: give both or none")
        self._share = None if num_shards is None else _ranks.Share(num_shards, shard_id)
        self._trainers_share: Optional[_ranks.Share] = None  # in a worker
        self._hand_over_bytes = check_size(hand_over_bytes)
        self._device = device_of(device)
        self._feed_options = check_feed_options(self._device, feed_options)
        if self._device is not None and options.get("strategy", "auto") == "auto":
            options.setdefault("allow_map", False)  # the GPU reads the window, but no map of a file
        self._options = options
        state, epoch = options.pop("state", None), options.pop("epoch", 0)
        if state and epoch:
            raise InvalidArgumentError(f"epoch {epoch} and a state exclude each other; "
                                       "give only one of them")
        self._epochs = Epochs(operator.index(epoch))
        self._saved: Optional[_Saved] = None
        self._known: Dict[Any, Tuple[Positions, Dict[str, Any]]] = {}
        self._close()
        self._loops = 0
        if state:
            self.load_state_dict(state)

    # --- The loader of this process -------------------------------------------------------------

    def _close(self) -> None:
        self._loader: Optional[Loader] = None  # of process _owner at _place, between epochs
        self._feed: Optional[TorchFeed] = None  # with a device: takes the batches of the loader
        self._owner = 0
        self._place: Optional[_Place] = None
        self._epoch: Optional[int] = None  # that the last loop delivers, or delivered
        self._selections: Optional[int] = None  # of Epochs, when that loop began
        self._stands_at: Optional[int] = None  # the epoch whose first record comes next

    def _my_share(self) -> _ranks.Share:
        if self._share is not None:
            return self._share
        if self._trainers_share is not None and torch.utils.data.get_worker_info() is not None and (
                not _ranks.is_known()):
            return self._trainers_share
        return _ranks.of_job()

    @property
    def batch_size(self) -> int:
        """The largest number of records in a batch of this rank."""
        batch_size, global_batch_size = self._sizes
        if batch_size is not None:
            return batch_size
        count = self._my_share().count
        if global_batch_size % count != 0:
            raise InvalidArgumentError(f"global_batch_size {global_batch_size} is invalid; "
                                       f"expected a multiple of the {count} ranks")
        return global_batch_size // count

    def _open(self, place: _Place, epoch: int, state: Optional[Dict[str, Any]]) -> Loader:
        # A global batch contains the batches of all workers; the ranks of each worker are shards of
        # it. _deliver applies drop_last itself: a short global batch may contain whole batches of
        # some workers.
        return Loader(self._path, self.batch_size, num_shards=place.ranks * place.workers,
                      shard_id=place.worker * place.ranks + place.rank,
                      share="fill" if place.workers > 1 else "block",
                      state=state, epoch=0 if state else epoch, **self._options)

    def _stand_at(self, epoch: int, state: Optional[Dict[str, Any]]) -> Loader:
        """Returns the loader of this process, before the first record of an epoch or at a state."""
        place = _Place(*_worker(), *self._my_share())
        if self._loader is not None and (self._owner, self._place) != (os.getpid(), place):
            self._loader.close()  # it belongs to the parent of this forked process, or to a world
            self._loader = None   # that has other ranks now
        if self._loader is None:
            loader = self._open(place, epoch, state)
            if self._device is not None:
                self._feed = TorchFeed(loader, self._device, self._feed_options)
            self._loader, self._owner, self._place = loader, os.getpid(), place
        elif state is not None:
            self._loader.load_state_dict(state)
        elif self._stands_at != epoch:
            self._loader.set_epoch(epoch)
        self._stands_at = None
        return self._loader

    # --- Epochs ---------------------------------------------------------------------------------

    def set_epoch(self, epoch: int) -> None:
        """Selects the epoch of the next loop.

        After load_state_dict, the epoch of the state keeps the position of the state. If the state
        is at the end of the selected epoch, the next loop is empty. Any other epoch replaces the
        state.
        """
        epoch = operator.index(epoch)
        saved = self._saved_for(self._epochs.next(1))
        if saved is not None and epoch == saved.state["epoch"] == saved.epoch:
            return
        if saved is not None and epoch == saved.state["epoch"] - 1 and (
                self.positions().is_at_start(saved.state)):
            self._keep(saved.state, epoch)
            return
        self._epochs.select(epoch)
        self._saved = None

    def _keep(self, state: Dict[str, Any], epoch: int) -> None:
        self._epochs.select(epoch, is_loaded=True)
        self._saved = _Saved(state, epoch, self._epochs.selections, True)

    def _saved_for(self, epoch: int) -> Optional[_Saved]:
        """Returns the state at which a loop over an epoch begins, if there is one."""
        saved = self._saved
        if saved is None or saved.selections != self._epochs.selections or saved.epoch != epoch:
            return None
        return saved

    def _next_epoch(self) -> int:
        saved = self._saved
        if saved is not None and not saved.is_for_all and (
                saved.selections == self._epochs.selections
                and (self._epoch is None or self._epoch < saved.epoch)):
            return saved.epoch  # the other workers may not have got their states yet
        return self._epochs.next(_worker()[0])

    def __iter__(self) -> Iterator[Any]:
        _ranks.check_sharded_once(self._my_share())
        return self._loop()

    def _loop(self) -> Iterator[Any]:
        workers, worker = _worker()
        if self._device is not None and torch.utils.data.get_worker_info() is not None:
            raise InvalidStateError(f"device {self._device} is fed by the trainer's process: use "
                                    "num_workers=0")
        begin(self._hand_over_bytes)
        self._loops += 1
        selections = self._epochs.selections
        if self._epochs.is_loaded and (self._saved is None
                                       or self._saved.selections != selections):
            raise InvalidStateError("load_state_dict does not reach persistent workers that have "
                                    "begun: make a new DataLoader for the state")
        epoch = self._next_epoch()
        saved = self._saved_for(epoch)
        self._epochs.begin(worker)
        self._epoch, self._selections = epoch, selections
        state = saved.state if saved is not None else None
        if state is None or state["epoch"] == epoch:
            yield from self._deliver(epoch, state, selections)
        else:
            self._stand_at(epoch, state)
        self._finish(epoch, selections)

    def _deliver(self, epoch: int, state: Optional[Dict[str, Any]],
                 selections: int) -> Iterator[Any]:
        loop, loader = self._loops, self._stand_at(epoch, state)
        workers, worker = self._place.workers, self._place.worker
        whole = self.batch_size * self._place.ranks
        end = (epoch + 1) * loader.record_count * self._options.get("reuse", 1)

        def is_mine(records: int) -> bool:
            """Whether this worker delivers its part of a global batch of so many records."""
            part = min(records - worker * whole, whole)
            return part == whole or (part > 0 and not self._drop_last)

        for batch in batches_of(loader, self._feed):
            if loop != self._loops:
                raise InvalidStateError("another loop over this dataset has begun; only the latest "
                                        "loop gets batches")
            if is_mine(batch.global_record_count):
                rest = end - batch.first_position - batch.global_record_count
                if not is_mine(min(rest, whole * workers)):  # trainers that know the length do not
                    self._finish(epoch, selections)          # ask for more
                    self._stands_at = epoch + 1 if batch.ends_epoch else None
                yield self._decode(batch)
        self._stands_at = epoch + 1

    def _finish(self, epoch: int, selections: int) -> None:
        if selections == self._epochs.selections:
            self._epochs.finish(epoch, *_worker())

    # --- States ---------------------------------------------------------------------------------

    def positions(self) -> Positions:
        """Returns the arithmetic of the states of this rank."""
        return self._know(None)[0]

    def _know(self, state: Optional[Dict[str, Any]]) -> Tuple[Positions, Dict[str, Any]]:
        """Returns the arithmetic of the stream, and a state as the library would save it."""
        key = (*self._my_share(), state and json.dumps(state))
        if key not in self._known:
            kept = {each: self._known[each] for each in self._known if each[-1] is None}
            self._known = {**kept, key: self._ask(state)}
        return self._known[key]

    def _ask(self, state: Optional[Dict[str, Any]]) -> Tuple[Positions, Dict[str, Any]]:
        place = _Place(1, 0, *self._my_share())
        is_open = (self._owner, self._place) == (os.getpid(), place)
        if state is None and self._loader is not None and is_open:
            loader, closes = self._loader, contextlib.nullcontext()
        else:
            loader = closes = self._open(place, 0, state)
        with closes:
            known = loader.state_dict()
            positions = Positions(loader.record_count, self._options.get("reuse", 1),
                                  known["batch_size"], self._drop_last)
        return positions, known if state is not None else {**known, "batch": 0}

    def _selected(self) -> Tuple[Positions, Dict[str, Any]]:
        """Returns the arithmetic, and the state at which the selected epoch begins or continues."""
        epoch = self._epochs.selected
        saved = self._saved_for(epoch)
        if saved is not None:
            return self._know(saved.state)
        positions, state = self._know(None)
        return positions, positions.start(state, epoch)

    def state_dict(self, batches: Optional[int] = None) -> Dict[str, Any]:
        """Returns the stream state of this rank, for load_state_dict at any number of ranks and
        workers.

        batches  the number of batches that the training loop has received since set_epoch or
                 load_state_dict, within one epoch. Needed with workers, whose progress this process
                 does not know. None without workers: the state after the last batch that was
                 delivered

        In a worker, where StatefulDataLoader calls it, it is the state of that worker alone. The
        same worker of as many workers continues there, at any number of ranks with the same global
        batch size.

        Errors: InvalidStateError if workers have begun another loop since set_epoch
        """
        if batches is not None:
            if self._epochs.loops > 1:
                raise InvalidStateError(
                    "workers have begun several loops since set_epoch, so the epoch of the batches "
                    "is not known: call set_epoch before each loop, or use lmdbio.torch.DataLoader")
            positions, state = self._selected()
            return positions.after(state, batches)
        if torch.utils.data.get_worker_info() is not None:
            return self._state_of_worker()
        if not self._has_begun():
            return self._selected()[1]
        return self._loader.state_dict()

    def _has_begun(self) -> bool:
        """Returns whether this process has begun a loop since an epoch or a state was chosen."""
        return (self._loader is not None and self._owner == os.getpid()
                and self._selections == self._epochs.selections)

    def _state_of_worker(self) -> Dict[str, Any]:
        if self._has_begun():
            state, epoch = self._loader.state_dict(), self._epoch
        else:
            epoch = self._next_epoch()
            saved = self._saved_for(epoch)
            if saved is not None:
                state = saved.state
            else:
                state = self._stand_at(epoch, None).state_dict()
                self._stands_at = epoch
        workers, worker = _worker()
        return {**state, "worker": {"number": worker, "of": workers, "epoch": epoch}}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Makes the next loop continue at a saved state; workers must not have begun yet.

        Errors: InvalidArgumentError if the state is that of a worker, and this is another one, or
                there are more or fewer, or the size of global batches has changed
        """
        state = json.loads(json.dumps(state))
        mark = state.pop("worker", None)
        workers, worker = _worker()
        epoch = state["epoch"] if mark is None else mark["epoch"]
        if mark is not None and (mark["number"], mark["of"]) != (worker, workers):
            raise InvalidArgumentError(
                f"the state is that of worker {mark['number']} of {mark['of']}, but this is worker "
                f"{worker} of {workers}: it continues only with as many workers. The states of "
                "lmdbio.torch.DataLoader continue with any number")
        if mark is not None and workers > 1:
            size = self.batch_size * self._my_share().count
            if state["batch_size"] != size * workers:
                raise InvalidArgumentError(
                    f"the state is that of a worker with global batches of "
                    f"{state['batch_size'] // workers} records, but now they have {size}: records "
                    "would be lost or repeated. The states of lmdbio.torch.DataLoader continue "
                    "with any batch size")
        if torch.utils.data.get_worker_info() is None:
            self._keep(state, epoch)
            return
        self._saved = _Saved(state, epoch, self._epochs.selections, False)
        self._epoch = self._selections = None
        self._epochs.finish(epoch - 1, workers, worker)

    # --- Length ---------------------------------------------------------------------------------

    def batches_per_epoch(self) -> int:
        """Returns the number of batches of this rank in an epoch, without workers."""
        positions, state = self._know(None)
        return positions.left(positions.start(state, 0))

    def __len__(self) -> int:
        """Returns the number of batches of this rank in an epoch. TypeError with max_batches, which
        ends the stream and not the epoch."""
        if self._options.get("max_batches"):
            raise InvalidTypeError("the batches of an epoch are not known with max_batches")
        return self.batches_per_epoch()

    # --- Pickling -------------------------------------------------------------------------------

    def __getstate__(self) -> Dict[str, Any]:
        share = self._trainers_share
        if get_spawning_popen() is not None:  # a worker is not among the ranks of the trainer
            with contextlib.suppress(InvalidStateError):  # its loop refuses them
                share = self._my_share()
            if share is not None:
                _ranks.check_sharded_once(share)
        nothing = {"_loader": None, "_feed": None, "_place": None, "_epoch": None,
                   "_selections": None, "_stands_at": None}
        return {**self.__dict__, **nothing, "_trainers_share": share}

"""A loader for trainers that take any iterable with a state."""

from __future__ import annotations

import operator
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

import torch.utils.data

from lmdbio import _ranks
from lmdbio._errors import InvalidArgumentError, InvalidStateError
from lmdbio._iterable_dataset import IterableDataset
from lmdbio._torch_feed import device_of, values_as_tensor

# Orders in which the size of global batches counts, and with it the number of workers.
_GROUPED = "shuffle='block', order='chunked' and reuse"


def _check_workers(num_workers: int, options: Dict[str, Any]) -> int:
    num_workers = operator.index(num_workers)
    if num_workers < 0:
        raise InvalidArgumentError(f"num_workers {num_workers} is out of range; expected 0 or more")
    is_grouped = (options.get("shuffle") == "block" or options.get("order") == "chunked"
                  or options.get("reuse", 1) != 1)
    if num_workers > 1 and is_grouped:
        raise InvalidArgumentError(
            f"num_workers {num_workers} would change the order of the records: with {_GROUPED} it "
            "depends on the number of workers. Use num_workers=1 or 0, or shuffle=True")
    return num_workers


def _check_device(device: Any, num_workers: int, pin_memory: bool) -> None:
    gpu = device_of(device)
    if gpu is None:
        return
    if num_workers > 0:
        raise InvalidArgumentError(f"num_workers {num_workers} is invalid with device {gpu}, which "
                                   "is fed by the trainer's process: use num_workers=0")
    if pin_memory:
        raise InvalidArgumentError(f"pin_memory is for batches on the host, and those for device "
                                   f"{gpu} are on the GPU: leave it out")


class DataLoader:
    """Decoded batches of a database, epoch after epoch, with a state for exact resuming.

        loader = lmdbio.torch.DataLoader("train.lmdb", batch_size=256, shuffle=True, decode=f)
        for epoch in range(10):
            for values in loader:
                ...                        # loader.state_dict() continues at the next batch
    path, batch_size, decode, global_batch_size, drop_last, hand_over_bytes, device, feed_options
                as for IterableDataset
    mesh, process_group, data_parallel
                the ranks that share each batch: a DeviceMesh of one dimension, a process group of
                torch.distributed, or (rank, number of ranks). Ranks that are not told apart by it,
                such as those of one tensor-parallel group, get the same batches. None: all ranks
                of torch.distributed, as it is when the first loop begins
    num_workers processes that decode. The order of the batches does not depend on them
    multiprocessing_context, persistent_workers, pin_memory, prefetch_factor, timeout,
    worker_init_fn
                as for torch.utils.data.DataLoader
    Also shuffle, seed and all other arguments of lmdbio.Loader, except comm, share, num_shards,
    shard_id, max_batches and tail="wrap".

    Each loop is an epoch. Also if it is left early, the next loop delivers the next epoch, unless
    set_epoch or load_state_dict says otherwise. All ranks get equally many batches; the last one
    of an epoch may be short, and empty for some ranks.

    It is no torch.utils.data.DataLoader, so that trainers do not shard it again: Lightning's
    Trainer and Accelerate's prepare() take it as it is. They leave the batches where they are, or
    move them; see README.md of the package.

    Errors:  InvalidArgumentError, InvalidTypeError; InvalidStateError in the first loop, or
             wherever the ranks are needed, if they cannot be told (IterableDataset)
    Threads: one at a time
    """

    def __init__(self, path: Any, batch_size: Optional[int] = None, *,
                 decode: Callable[[Any], Any] = values_as_tensor, mesh: Any = None,
                 process_group: Any = None, data_parallel: Optional[Tuple[int, int]] = None,
                 num_workers: int = 0, multiprocessing_context: Any = None,
                 persistent_workers: bool = False, pin_memory: bool = False,
                 prefetch_factor: Optional[int] = None, timeout: float = 0,
                 worker_init_fn: Optional[Callable[[int], None]] = None, **options: Any) -> None:
        for name in ("num_shards", "shard_id", "max_batches"):
            if name in options:
                raise InvalidArgumentError(f"{name} is not supported here; use " + (
                    "a break" if name == "max_batches" else "data_parallel=(rank, size)"))
        share = _ranks.of_arguments(mesh, process_group, data_parallel)
        self._num_workers = _check_workers(num_workers, options)
        _check_device(options.get("device"), self._num_workers, pin_memory)
        if share is not None:
            options.update(num_shards=share.count, shard_id=share.rank)
        state = options.pop("state", None)
        self._epoch = operator.index(options.get("epoch", 0))  # of the next loop
        self._dataset = IterableDataset(path, batch_size, decode=decode, **options)
        self._options = dict(
            batch_size=None, num_workers=self._num_workers, pin_memory=pin_memory, timeout=timeout,
            worker_init_fn=worker_init_fn, persistent_workers=persistent_workers,
            multiprocessing_context=multiprocessing_context)
        if prefetch_factor is not None:
            self._options["prefetch_factor"] = prefetch_factor
        self._saved: Optional[Dict[str, Any]] = None  # where the next loop continues
        self._workers: Optional[torch.utils.data.DataLoader] = None
        self._has_begun = False  # the latest loop has delivered a batch, or ended
        self._delivered = 0  # batches of that loop
        self._loops = 0
        if state:
            self.load_state_dict(state)

    def __iter__(self) -> Iterator[Any]:
        self._loops += 1
        loop, self._has_begun = self._loops, False
        if self._saved is None:
            self._dataset.set_epoch(self._epoch)
        else:
            self._tell_workers(self._saved)
        if self._workers is None:
            self._workers = torch.utils.data.DataLoader(self._dataset, **self._options)
        for batch in self._workers:
            if loop != self._loops:
                raise InvalidStateError("another loop over this loader has begun, or its position "
                                        "was set; only the latest loop gets batches")
            self._begin()
            self._delivered += 1
            yield batch
        if loop == self._loops:
            self._begin()

    def _tell_workers(self, state: Dict[str, Any]) -> None:
        if self._options["persistent_workers"]:
            self._workers = None  # those that have begun cannot get it
        self._dataset.load_state_dict(state)
        self._dataset.set_epoch(self._epoch)  # that of the state, or the one before it

    def _begin(self) -> None:
        """Notes the first batch of a loop: the loop after it is another epoch."""
        if not self._has_begun:
            self._has_begun, self._delivered = True, 0
            self._epoch, self._saved = self._epoch + 1, None

    def _go_to(self, epoch: int, state: Optional[Dict[str, Any]]) -> None:
        self._loops += 1
        self._has_begun = False
        self._epoch, self._saved = epoch, state

    def set_epoch(self, epoch: int) -> None:
        """Selects the epoch of the next loop.

        After load_state_dict, the epoch of the state keeps the position of the state. If the state
        is at the end of the selected epoch, the next loop is empty. Any other epoch replaces the
        state. So `for epoch in range(first, last): loader.set_epoch(epoch)` resumes exactly.
        """
        epoch = operator.index(epoch)
        saved = self._saved
        keeps = saved is not None and (
            epoch == saved["epoch"] or epoch == saved["epoch"] - 1
            and self._dataset.positions().is_at_start(saved))
        self._go_to(epoch, saved if keeps else None)

    def state_dict(self) -> Dict[str, Any]:
        """Returns the state of the stream after the last batch that was delivered: small, readable,
        valid for any number of ranks and workers. After the last batch of an epoch it is the start
        of the next one. All ranks that have had equally many batches have the same state."""
        if self._has_begun:
            state = self._dataset.state_dict(batches=self._delivered)
            return self._dataset.positions().beyond_tail(state)
        if self._saved is not None:
            return dict(self._saved)
        self._dataset.set_epoch(self._epoch)
        return self._dataset.state_dict(batches=0)

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Makes the next loop continue at a saved state, to the end of its epoch. The number of
        ranks and workers may have changed, and the batch size if the order does not depend on it.
        """
        self._dataset.load_state_dict(state)
        self._go_to(state["epoch"], dict(state))

    def __len__(self) -> int:
        """Returns the number of batches of this rank in an epoch."""
        return len(self._dataset)

    @property
    def batch_size(self) -> int:
        """The largest number of records in a batch of this rank."""
        return self._dataset.batch_size

    @property
    def num_workers(self) -> int:
        """The number of processes that decode."""
        return self._num_workers

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_workers": None}

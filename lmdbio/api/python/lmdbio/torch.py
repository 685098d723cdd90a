"""LMDB databases for PyTorch's DataLoader.

    dataset = lmdbio.torch.IterableDataset("train.lmdb", batch_size=256, shuffle=True, seed=1)
    for epoch in range(10):
        dataset.set_epoch(epoch)
        for values in torch.utils.data.DataLoader(dataset, batch_size=None):
            ...

The loader reads ahead in a thread of its own, so num_workers=0 is fastest if decoding is cheap.
Workers help if decoding is expensive. They do not change the order of the batches. They hand
tensors and arrays over in memory that the trainer shares (hand_over_bytes); `empty` makes tensors
there.
"""

from __future__ import annotations

import contextlib
import json
import operator
import os
import warnings
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch
import torch.utils.data

from lmdbio._batch import Batch, Record
from lmdbio._dataset import Dataset
from lmdbio._errors import InvalidArgumentError, InvalidStateError
from lmdbio._hand_over import begin, check_size, collate, empty
from lmdbio._loader import Loader
from lmdbio._options import GLOBAL_BATCH_SIZE
from lmdbio._persistent import PersistentAllreduce, let_go_of_all, wait_all
from lmdbio.sync import TYPES, Operation, Synchronizer


def values_as_tensor(batch: Batch) -> torch.Tensor:
    """Returns a copy of the values as rows of uint8, [len, size of the largest]."""
    rows = empty((len(batch), int(batch.sizes.max(initial=0))))
    batch.array(out=rows.numpy())
    return rows


def value_as_tensor(record: Record) -> torch.Tensor:
    """Returns a copy of a value as uint8."""
    return torch.frombuffer(bytearray(record.value), dtype=torch.uint8)


# Of each worker. Six batches of 256 images of 224 x 224 x 3 floats; memory is used when needed.
HAND_OVER_BYTES = 1 << 30


def _world() -> Tuple[int, int]:
    """Returns (number of ranks, this rank) under torch.distributed; else (1, 0)."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size(), distributed.get_rank()
    return 1, 0


class IterableDataset(torch.utils.data.IterableDataset):
    """Decoded batches of a database, for DataLoader(dataset, batch_size=None, ...).

    path        a directory with data.mdb, or a data file
    batch_size  records of a batch of this rank; None: global_batch_size divided by the ranks
    decode      converts a Batch to the value that is delivered; it must copy data that it keeps.
                The default copies the values into one tensor of uint8, shorter ones ending in zeros
    global_batch_size
                records of a batch of all ranks, in place of batch_size; without either it is 64
    num_shards, shard_id
                None: the ranks of torch.distributed
    hand_over_bytes
                the largest memory in which each worker hands batches over to the trainer without a
                copy. 0: all batches are copied, as PyTorch does it
    Also shuffle, seed, drop_last and all other arguments of lmdbio.Loader, except comm, share and
    tail="wrap".

    Each of n workers delivers every n-th batch, so the sequence does not depend on their number.
    For lmdbio, the n batches that the workers deliver in turn are parts of one global batch, and
    Batch.global_record_count counts all of them. If the last batch of an epoch is short, the ranks
    may then get other shares of it, or none.

    With shuffle="block", order="chunked" and reuse, the size of global batches is part of the
    order. The sequence then depends on the number of workers, and a state continues only without
    workers.
    """

    def __init__(self, path: Any, batch_size: Optional[int] = None, *,
                 decode: Callable[[Batch], Any] = values_as_tensor,
                 drop_last: bool = False, global_batch_size: Optional[int] = None,
                 num_shards: Optional[int] = None, shard_id: Optional[int] = None,
                 tail: str = "short", hand_over_bytes: int = HAND_OVER_BYTES,
                 **options: Any) -> None:
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
        self._shards = (num_shards, shard_id)
        self._hand_over_bytes = check_size(hand_over_bytes)
        self._options = options
        self._state: Optional[Dict[str, Any]] = options.pop("state", None)
        epoch = self._state["epoch"] if self._state else options.pop("epoch", 0)
        # The next epoch, and the number of calls of set_epoch: shared with persistent workers.
        self._said = torch.tensor([epoch, 0]).share_memory_()
        self._heard: Tuple[int, int] = (epoch, 0)
        self._done = 0  # epochs that were delivered since set_epoch
        self._loader: Optional[Loader] = None  # of process _owner, between epochs
        self._owner = 0
        self._stands_at: Optional[int] = None  # the epoch whose first record comes next
        self._loops = 0

    def _open(self, state: Optional[Dict[str, Any]], workers: int, worker: int) -> Loader:
        count, rank = self._ranks()
        # A global batch contains the batches of all workers; the ranks of each worker are shards of
        # it. __iter__ applies drop_last itself: a short global batch may contain whole batches of
        # some workers.
        return Loader(self._path, self._batch_size(), num_shards=count * workers,
                      shard_id=worker * count + rank, share="fill" if workers > 1 else "block",
                      state=state, epoch=0 if state else self._epoch(), **self._options)

    def _ranks(self) -> Tuple[int, int]:
        count, rank = self._shards
        return _world() if count is None or rank is None else (count, rank)

    def _batch_size(self) -> int:
        """Returns the number of records in a batch of this rank."""
        batch_size, global_batch_size = self._sizes
        if batch_size is not None:
            return batch_size
        count = self._ranks()[0]
        if global_batch_size % count != 0:
            raise InvalidArgumentError(f"global_batch_size {global_batch_size} is invalid; "
                                       f"expected a multiple of the {count} ranks")
        return global_batch_size // count

    def set_epoch(self, epoch: int) -> None:
        """Selects the epoch of the next loop. Without this call, a loop delivers the epoch after
        the last one, or repeats an epoch that was left early. Workers that end with each epoch
        repeat the same epoch without it (as with DistributedSampler)."""
        self._said[0] = operator.index(epoch)
        self._said[1] += 1
        self._state = None

    def _epoch(self) -> int:
        said = tuple(self._said.tolist())
        if said != self._heard:
            self._heard, self._done = said, 0
        return said[0] + self._done

    def _at_start(self, workers: int, worker: int) -> Loader:
        """Returns the loader, positioned before the first batch of the loop."""
        epoch = self._epoch()
        if self._loader is not None and self._owner != os.getpid():
            self._loader.close()  # it belongs to the parent of this forked process
            self._loader = None
        if self._loader is None:
            self._loader, self._owner = self._open(self._state, workers, worker), os.getpid()
        elif self._state is not None:
            self._loader.load_state_dict(self._state)
        elif self._stands_at != epoch:
            self._loader.set_epoch(epoch)
        self._state = None
        self._stands_at = None
        return self._loader

    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        workers, worker = (info.num_workers, info.id) if info is not None else (1, 0)
        begin(self._hand_over_bytes)
        whole = self._batch_size() * self._ranks()[0]
        self._loops += 1
        loop = self._loops
        for batch in self._at_start(workers, worker):
            if loop != self._loops:
                raise InvalidStateError("another loop over this dataset has begun; only the latest "
                                        "loop gets batches")
            count = min(batch.global_record_count - worker * whole, whole)  # of this worker
            if count == whole or (count > 0 and not self._drop_last):
                yield self._decode(batch)
        self._stands_at = self._epoch() + 1
        self._done += 1

    def state_dict(self, batches: Optional[int] = None) -> Dict[str, Any]:
        """Returns the stream state of this rank, for load_state_dict at any number of ranks and
        workers.

        batches  the number of batches that the training loop has received since the epoch began, or
                 since load_state_dict. Needed with workers, whose progress this process does not
                 know. None without workers: the state after the last batch that was delivered
        """
        if batches is None:
            if self._loader is not None:
                return self._loader.state_dict()
            batches = 0
        with self._open(self._state, 1, 0) as loader:
            state = loader.state_dict()
            records = loader.record_count
            epoch_records = records * self._options.get("reuse", 1)
            whole = state["batch_size"]
            position = min(state["position"] + batches * whole,
                           (state["epoch"] + 1) * epoch_records)
        state.update(batch=state["batch"] + batches, position=position,
                     epoch=position // epoch_records)
        return state

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Makes the next loop continue at a saved state; workers must not have begun yet."""
        self.set_epoch(state["epoch"])
        self._state = json.loads(json.dumps(state))

    def batches_per_epoch(self) -> int:
        """Returns the number of batches of this rank in an epoch, without workers."""
        with self._open(None, 1, 0) as loader:
            rest = loader.record_count % (self._batch_size() * self._ranks()[0])
            left_out = self._options.get("reuse", 1) if self._drop_last and rest > 0 else 0
            return len(loader) - left_out

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_loader": None, "_stands_at": None}


class MapDataset(torch.utils.data.Dataset):
    """Decoded records by number, for the samplers of PyTorch.

    path    a directory with data.mdb, or a data file
    decode  converts a Record to the value that is delivered. The default copies its value into a
            tensor of uint8
    hand_over_bytes
            as for IterableDataset
    Also all other arguments of lmdbio.Dataset.

    DataLoader(dataset, batch_size=256, shuffle=True) works as with any dataset. With workers, add
    collate_fn=lmdbio.torch.collate: then batches are not copied on the way to the trainer. PyTorch
    2.0 and later requests all records of a batch together, so they are read together. With an older
    PyTorch, pass sampler=BatchSampler(...), batch_size=None.
    """

    def __init__(self, path: Any, decode: Callable[[Record], Any] = value_as_tensor, *,
                 hand_over_bytes: int = HAND_OVER_BYTES, **options: Any) -> None:
        self._records = Dataset(path, **options)
        self._hand_over_bytes = check_size(hand_over_bytes)
        self._decode = decode

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, i: Any) -> Any:
        begin(self._hand_over_bytes)
        found = self._records[i]
        if isinstance(found, Record):
            return self._decode(found)
        return collate([self._decode(record) for record in found])

    def __getitems__(self, numbers: Any) -> list:
        begin(self._hand_over_bytes)
        return [self._decode(record) for record in self._records.__getitems__(numbers)]


def _type_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).split(".")[-1]


def _check_reducible(name: str, tensor: torch.Tensor) -> None:
    if tensor.device.type != "cpu":
        raise InvalidArgumentError(f"{name} is on the device {tensor.device}; move it to the CPU")
    if tensor.layout is not torch.strided:
        raise InvalidArgumentError(f"{name} has the layout {tensor.layout}; make it dense")
    if _type_name(tensor) not in TYPES:
        raise InvalidArgumentError(
            f"{name} is of type {_type_name(tensor)}; expected one of {', '.join(TYPES)}")


class _WatchedParameter:
    """A parameter, and the allreduce of its gradient."""

    __slots__ = ("name", "parameter", "allreduce", "place", "sums", "_dtype", "_count")

    def __init__(self, name: str, parameter: torch.nn.Parameter, allreduce: PersistentAllreduce,
                 place: Optional[torch.Tensor]) -> None:
        self.name, self.parameter, self.allreduce, self.place = name, parameter, allreduce, place
        # With a lag: [2] the values of an iteration, and the sums of the one before it, in turn.
        self.sums: List[torch.Tensor] = []
        self._dtype, self._count = parameter.dtype, parameter.numel()

    def can_take(self, gradient: Optional[torch.Tensor]) -> bool:
        """Returns whether a gradient can be reduced where it is, by the request as it is."""
        return (gradient is not None and gradient.layout is torch.strided and gradient.is_cpu
                and gradient.dtype is self._dtype and gradient.numel() == self._count
                and gradient.is_contiguous()
                and (self.place is None or gradient.data_ptr() == self.place.data_ptr()))

    def prepare(self) -> torch.Tensor:
        """Makes .grad a gradient that can be taken, and returns it."""
        with torch.no_grad():
            gradient = self.parameter.grad
            if gradient is None:
                gradient = torch.zeros_like(self.parameter, memory_format=torch.contiguous_format)
            _check_reducible(f"the gradient of {self.name}", gradient)
            if gradient.numel() != self._count or gradient.dtype is not self._dtype:
                raise InvalidArgumentError(
                    f"{self.name} has {gradient.numel()} values of {_type_name(gradient)}; it had "
                    f"{self._count} of {str(self._dtype).split('.')[-1]} when GradientSync was "
                    "made: make another one")
            if self.place is not None and gradient.data_ptr() != self.place.data_ptr():
                gradient = self.place.copy_(gradient)
            self.parameter.grad = gradient = gradient.contiguous()
        return gradient


class GradientSync:
    """Sums the gradients of a model over all ranks while the backward pass continues.

        with lmdbio.torch.GradientSync(model, MPI.COMM_WORLD) as gradients:
            gradients.broadcast_parameters()
            for images, labels in batches:
                optimizer.zero_grad(set_to_none=False)
                loss_of(model(images), labels).backward()   # each gradient is submitted when ready
                gradients.synchronize()
                optimizer.step()

    model     dense and on the CPU; the names of its parameters identify the gradients
    comm      a communicator of mpi4py, "torch" for the ranks of torch.distributed, "env" for those
              that torchrun or srun has started, or None for this process alone: GradientSync makes
              a Synchronizer with `options`, and closes it at the end of `with` or in close().
              Or a Synchronizer, which may also reduce other tensors. GradientSync does not close
              it; closing it detaches GradientSync
    average   divide by the number of ranks
    lag       0, or 1: gradient lag. synchronize() then delivers the sums of the iteration before,
              which were exchanged meanwhile, and does not wait for those of this one. Weights
              follow w[i+1] = w[i] - step(g[i-1]), with g[i-1] taken at w[i-1], which may cost
              accuracy (Romero et al. 2.2.3). The gradients are copied twice and take three times
              the memory
    placed    place the gradients in the synchronizer's gradient_bytes, so that they are not copied
              before they are reduced. None: if GradientSync makes the synchronizer, with as many
              bytes as it needs; a given one needs at least bytes_to_place(model, lag). After
              zero_grad(set_to_none=True), the default of PyTorch 2, they are copied once: it drops
              .grad, and the backward pass allocates another one
    options   of the Synchronizer that GradientSync makes

    A parameter without a gradient on this rank takes part with zeros. From the backward pass until
    synchronize() has returned, .grad is in flight. Do not touch it: a change may change the sum
    without an error. To sum the gradients of several batches before they are exchanged, use
    no_sync(). A second backward pass outside of it raises RuntimeError, and the gradients of this
    step are lost: call synchronize(), then zero them. With a lag, .grad is never in flight.
    """

    def __init__(self, model: torch.nn.Module, comm: Any, average: bool = True,
                 placed: Optional[bool] = None, lag: int = 0, **options: Any) -> None:
        if lag not in (0, 1):
            raise InvalidArgumentError(f"lag is {lag}; expected 0 or 1")
        self._lag = lag
        self._is_owner = not isinstance(comm, Synchronizer)
        if placed is None:
            placed = self._is_owner
        if not self._is_owner and options:
            raise InvalidArgumentError(f"{', '.join(options)}: the synchronizer is made already; "
                                       "pass these options to it")
        if self._is_owner:
            if placed:
                options.setdefault("gradient_bytes", self.bytes_to_place(model, lag))
            comm = Synchronizer(comm, **options)
        self._synchronizer: Synchronizer = comm
        self._model = model
        try:
            self._begin(average, placed)
        except BaseException as error:
            if self._is_owner:
                comm.__exit__(type(error), error, error.__traceback__)
            raise

    def _begin(self, average: bool, placed: bool) -> None:
        model, synchronizer = self._model, self._synchronizer
        parameters = [(name, parameter) for name, parameter in model.named_parameters()
                      if parameter.requires_grad]
        for name, parameter in parameters:
            _check_reducible(name, parameter)
        self._is_off = False
        self._pending: Dict[str, PersistentAllreduce] = {}  # in the order of submission
        self._turn = 0  # of the two halves of _WatchedParameter.sums: that of this iteration
        self._has_late_sums = False  # those of the last iteration are in flight, or not delivered
        scale = 1.0 / synchronizer.size if average else 1.0
        # Gradients become ready from the last layer to the first. A bucket whose gradients lie in
        # this order is not packed.
        self._watched = [
            _WatchedParameter(
                name, parameter,
                synchronizer.persistent(f"gradient.{name}", tuple(parameter.shape),
                                        _type_name(parameter), postscale=scale),
                self._place_of(parameter) if placed and self._lag == 0 else None)
            for name, parameter in reversed(parameters)]
        # The places of an iteration lie one behind the other, so each half is placed as a whole.
        for _ in range(2 * self._lag):
            for watched in self._watched:
                watched.sums.append(self._place_of(watched.parameter) if placed
                                    else torch.empty_like(
                                        watched.parameter, requires_grad=False,
                                        memory_format=torch.contiguous_format))
        if self._lag > 0:
            synchronizer.check_before_join(self._check_join)
        self._hooks: List[Any] = []
        for watched in self._watched:
            self._watch(watched)
        weakref.finalize(self, let_go_of_all, [watched.allreduce for watched in self._watched])
        synchronizer.close_before(self._detach)

    def _place_of(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        memory = self._synchronizer.place(parameter.numel() * parameter.element_size())
        return torch.from_numpy(memory).view(parameter.dtype).view(parameter.shape)

    @staticmethod
    def bytes_to_place(model: torch.nn.Module, lag: int = 0) -> int:
        """Returns the smallest gradient_bytes that `placed` needs."""
        return (1 + lag) * sum((parameter.numel() * parameter.element_size() + 63) // 64 * 64
                   for parameter in model.parameters() if parameter.requires_grad)

    def _watch(self, watched: _WatchedParameter) -> None:
        # The autograd node that adds to .grad calls its hooks afterwards. The node exists as long
        # as there is a reference to it, so _hooks keeps one.
        parameter = watched.parameter
        node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
        hook = node.register_hook(lambda *_unused: self._on_gradient(watched))
        self._hooks.append((node, hook))

    def _on_gradient(self, watched: _WatchedParameter) -> None:
        if not self._is_off:
            self._submit(watched)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside it add to .grad only; the first one after it submits the sums.

            with gradients.no_sync():
                loss_of(model(images), labels).backward()
            loss_of(model(more_images), more_labels).backward()
            gradients.synchronize()
        """
        before, self._is_off = self._is_off, True
        try:
            yield
        finally:
            self._is_off = before

    # The helper thread can begin only when this returns, so each line counts.
    def _submit(self, watched: _WatchedParameter) -> None:
        if watched.name in self._pending:
            raise InvalidStateError(
                f"{watched.name} got a second gradient: call synchronize() in between")
        gradient = watched.parameter.grad
        if not watched.can_take(gradient):
            gradient = watched.prepare()
        allreduce = watched.allreduce
        if self._lag > 0:
            self._await_late(allreduce)
            gradient = watched.sums[self._turn].copy_(gradient)
        allreduce.set_values(gradient.data_ptr(), gradient)
        allreduce.submit()
        self._pending[watched.name] = allreduce

    def _submit_tensor(self, name: str, tensor: torch.Tensor, **fields: Any) -> Operation:
        _check_reducible(name, tensor)
        if not tensor.is_contiguous():
            raise InvalidArgumentError(f"{name} is not contiguous")
        return self._synchronizer.submit(name, tensor.data_ptr(), tuple(tensor.shape),
                                         _type_name(tensor), tensor, **fields)

    def synchronize(self) -> bool:
        """Waits until every gradient is the sum, or mean, of all ranks. Collective.

        Returns whether .grad has sums. They are missing only with a lag, in the first iteration and
        in the first one after flush(): then .grad is 0. Take no step of the optimizer.
        """
        if len(self._pending) < len(self._watched):
            for watched in self._watched:
                if watched.name not in self._pending:
                    self._submit(watched)
        pending, self._pending = list(self._pending.values()), {}
        if self._lag > 0:
            return self._deliver_late_sums()
        wait_all(pending)
        for allreduce in pending:
            allreduce.keeps = None  # .grad may be dropped from now on
        return True

    # Each allreduce of the iteration before was waited for, before the next one of its name.
    def _deliver_late_sums(self) -> bool:
        self._turn, has_sums, self._has_late_sums = 1 - self._turn, self._has_late_sums, True
        if has_sums:
            self._deliver(self._turn)
        else:
            for watched in self._watched:
                watched.parameter.grad = torch.zeros_like(watched.parameter)
        return has_sums

    # After an error the sums of the iteration before are lost: some of them are no sums.
    def _await_late(self, allreduce: PersistentAllreduce) -> None:
        try:
            allreduce.wait()
        except BaseException:
            self._has_late_sums = False
            raise

    def _deliver(self, turn: int) -> None:
        with torch.no_grad():
            for watched in self._watched:
                if watched.parameter.grad is None:
                    watched.parameter.grad = torch.empty_like(watched.parameter)
                watched.parameter.grad.copy_(watched.sums[turn])

    def flush(self) -> bool:
        """With a lag: waits for the sums of the last iteration, which no synchronize() has
        delivered, and copies them to .grad. Call it, and take a step of the optimizer, before a
        checkpoint, an evaluation, a join and the end.

        Returns whether there were such sums.
        """
        if self._pending:
            raise InvalidStateError("gradients are in flight: call synchronize() before flush()")
        if not self._has_late_sums:
            return False
        self._has_late_sums = False  # also after an error: some of them are no sums then
        wait_all([watched.allreduce for watched in self._watched])
        self._deliver(1 - self._turn)
        return True

    def _check_join(self) -> None:
        if self._has_late_sums:
            raise InvalidStateError(
                "this rank cannot join: with a lag of 1 the sums of its last iteration were not "
                "delivered; call flush() first")

    def broadcast_parameters(self, root: int = 0) -> None:
        """Copies all parameters and buffers of rank `root` to all ranks. ValueError names the first
        tensor that cannot be sent; then none has been sent."""
        tensors = [*self._model.named_parameters(), *self._model.named_buffers()]
        for name, tensor in tensors:
            _check_reducible(name, tensor)
        operations = []
        with torch.no_grad():
            for name, tensor in tensors:
                values = tensor.detach()
                sent = values if values.is_contiguous() else values.contiguous()
                operations.append((values, sent, self._submit_tensor(
                    f"parameter.{name}", sent, operation="broadcast", root=root)))
            for values, sent, operation in operations:
                operation.wait()
                if sent is not values:
                    values.copy_(sent)

    @property
    def synchronizer(self) -> Synchronizer:
        """The synchronizer that reduces the gradients."""
        return self._synchronizer

    def __enter__(self) -> "GradientSync":
        return self

    def __exit__(self, *error: Any) -> None:
        if self._has_late_sums and error[0] is None:
            warnings.warn("the sums of the last iteration were not delivered: call flush(), and "
                          "take a step, before the end", RuntimeWarning, stacklevel=2)
        if self._is_owner:
            self._synchronizer.__exit__(*error)
        else:
            self.close()

    def close(self) -> None:
        """Detaches from the model, copies placed gradients to other memory, and closes a
        synchronizer that GradientSync has made. A given synchronizer calls it when it is closed."""
        if self._is_owner:
            self._synchronizer.close()  # calls _detach
        else:
            self._detach()

    def _detach(self) -> None:
        self._has_late_sums = False
        for _, hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._pending.clear()
        for watched in self._watched:
            watched.allreduce.let_go()
            if watched.place is not None and watched.parameter.grad is not None:
                watched.parameter.grad = watched.parameter.grad.clone()
            watched.place, watched.sums = None, []

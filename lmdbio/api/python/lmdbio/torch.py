"""LMDB databases for PyTorch.

    loader = lmdbio.torch.DataLoader("train.lmdb", batch_size=256, shuffle=True, seed=1)
    for epoch in range(10):
        for values in loader:
            ...

DataLoader is for trainers that take any iterable. IterableDataset and MapDataset are for PyTorch's
own DataLoader.

They read ahead in a thread of their own, so num_workers=0 is fastest if decoding is cheap. Workers
help if decoding is expensive. They do not change the order of the batches. They hand tensors and
arrays over in memory that the trainer shares (hand_over_bytes); `empty` makes tensors there.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import torch
import torch.utils.data

from lmdbio._batch import Record
from lmdbio._data_loader import DataLoader
from lmdbio._dataset import Dataset
from lmdbio._ddp_hook import ddp_hook
from lmdbio._errors import InvalidArgumentError, InvalidStateError, LmdbioError, PeerFailedError
from lmdbio._hand_over import begin, check_size, collate, empty
from lmdbio._iterable_dataset import HAND_OVER_BYTES, IterableDataset
from lmdbio._late_updates import LateUpdates
from lmdbio._partial_step import check_optimizer
from lmdbio._persistent import PersistentAllreduce, let_go_of_all, wait_all, wait_all_on
from lmdbio._torch_feed import values_as_tensor
from lmdbio._torch_streams import CPU, Streams, streams_of
from lmdbio.sync import TYPES, Operation, Synchronizer

__all__ = ["DataLoader", "GradientSync", "IterableDataset", "MapDataset", "collate", "ddp_hook",
           "empty", "value_as_tensor", "values_as_tensor"]


def value_as_tensor(record: Any) -> Any:
    """Returns a copy of a value as uint8; of a sample with fields, a dict of them."""
    if isinstance(record, dict):
        return {name: value_as_tensor(one) for name, one in record.items()}
    if len(record.value) == 0:
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(bytearray(record.value), dtype=torch.uint8)


class MapDataset(torch.utils.data.Dataset):
    """Decoded records by number, for the samplers of PyTorch.

    path    a directory with data.mdb, or a data file; several files as in lmdbio.Dataset; or a
            lmdbio.View of them
    decode  converts a Record, or a sample of the view, to the value that is delivered. The default
            copies its value into a tensor of uint8
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
        if isinstance(found, (Record, dict)):
            return self._decode(found)
        return collate([self._decode(record) for record in found])

    def __getitems__(self, numbers: Any) -> list:
        begin(self._hand_over_bytes)
        return [self._decode(record) for record in self._records.__getitems__(numbers)]


def _type_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).split(".")[-1]


def _check_reducible(name: str, tensor: torch.Tensor, device: torch.device) -> None:
    if tensor.device != device:
        raise InvalidArgumentError(f"{name} is on the device {tensor.device}; move it to {device}")
    if tensor.layout is not torch.strided:
        raise InvalidArgumentError(f"{name} has the layout {tensor.layout}; make it dense")
    if _type_name(tensor) not in TYPES:
        raise InvalidArgumentError(
            f"{name} is of type {_type_name(tensor)}; expected one of {', '.join(TYPES)}")


class _WatchedParameter:
    """A parameter, and the allreduce of its gradient."""

    __slots__ = ("name", "parameter", "allreduce", "place", "sums", "gradient", "is_late", "kept",
                 "_dtype", "_count", "_device")

    def __init__(self, name: str, parameter: torch.nn.Parameter, allreduce: PersistentAllreduce,
                 place: Optional[torch.Tensor]) -> None:
        self.name, self.parameter, self.allreduce, self.place = name, parameter, allreduce, place
        # With a lag: [2] the values of an iteration, and the sums of the one before it, in turn.
        self.sums: List[torch.Tensor] = []
        # With late updates:
        self.gradient: Optional[torch.Tensor] = None  # under way, and not in .grad
        self.is_late = False  # the parameter waits for its update
        self.kept: Optional[torch.Tensor] = None  # its values, while it is full of NaN
        self._dtype, self._count = parameter.dtype, parameter.numel()
        self._device = parameter.device

    def can_take(self, gradient: Optional[torch.Tensor]) -> bool:
        """Returns whether a gradient can be reduced where it is, by the request as it is."""
        return (gradient is not None and gradient.layout is torch.strided
                and gradient.device == self._device and gradient.dtype is self._dtype
                and gradient.numel() == self._count and gradient.is_contiguous()
                and (self.place is None or gradient.data_ptr() == self.place.data_ptr()))

    def prepare(self) -> torch.Tensor:
        """Makes .grad a gradient that can be taken, and returns it."""
        with torch.no_grad():
            gradient = self.parameter.grad
            if gradient is None:
                gradient = torch.zeros_like(self.parameter, memory_format=torch.contiguous_format)
            _check_reducible(f"the gradient of {self.name}", gradient, self._device)
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

    model     dense, and on the CPU or on one GPU; the names of its parameters identify the
              gradients
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
    optimizer
              late updates: step() takes the place of synchronize(), of the optimizer's step() and
              of zero_grad(), and returns at once. Each parameter is updated just before its module
              computes, so its gradient has the time until then
    check     with an optimizer: fill parameters that are not updated yet with NaN, to find reads of
              them outside of their modules
    placed    place the gradients in the synchronizer's gradient_bytes, or device_gradient_bytes on
              a GPU, so that they are not copied before they are reduced. None: if GradientSync
              makes the synchronizer, with as many bytes as it needs; a given one needs at least
              bytes_to_place(model, lag). After zero_grad(set_to_none=True), the default of PyTorch
              2, they are copied once: it drops .grad, and the backward pass allocates another one
    options   of the Synchronizer that GradientSync makes. For a model on a GPU, `device` is that
              GPU. A given synchronizer has to be made with this option

    A parameter without a gradient on this rank takes part with zeros. From the backward pass until
    synchronize() has returned, .grad is in flight. Do not touch it: a change may change the sum
    without an error. To sum the gradients of several batches before they are exchanged, use
    no_sync(). A second backward pass outside of it raises RuntimeError, and the gradients of this
    step are lost: call synchronize(), then zero them. With a lag, .grad is never in flight.

    With an optimizer, .grad is None from the backward pass until synchronize(), or until the late
    update. What needs all gradients, such as clipping, comes between synchronize() and step().
    Programs that read parameters outside of their modules call flush() first; for state_dict() of
    the model and the optimizer GradientSync does it (lmdbio/docs/late_updates.md).

    On a GPU, gradients are exchanged when the stream that has computed them comes to them, and
    synchronize() makes the current stream wait for the sums. The host waits until that is enqueued.
    With device_order "event" or "mark", or device_collective "nccl", a rank that fails later may
    leave wrong sums. The next synchronize() raises PeerFailedError then, and so does check(): call
    it before you keep the parameters. close() and the end of `with` call it, too.
    """

    def __init__(self, model: torch.nn.Module, comm: Any, average: bool = True,
                 placed: Optional[bool] = None, lag: int = 0,
                 optimizer: Optional[torch.optim.Optimizer] = None, check: bool = False,
                 **options: Any) -> None:
        if lag not in (0, 1):
            raise InvalidArgumentError(f"lag is {lag}; expected 0 or 1")
        self._lag = lag
        self._check_late(model, optimizer, check)
        self._is_owner = not isinstance(comm, Synchronizer)
        self._streams = self._streams_of(model)  # None: the model is on the host
        if placed is None:
            placed = self._is_owner
        if not self._is_owner and options:
            raise InvalidArgumentError(f"{', '.join(options)}: the synchronizer is made already; "
                                       "pass these options to it")
        if self._is_owner:
            if self._streams is not None:
                options.setdefault("device", self._streams.option)
            if placed:
                options.setdefault("gradient_bytes" if self._streams is None
                                   else "device_gradient_bytes", self.bytes_to_place(model, lag))
            comm = Synchronizer(comm, **options)
        self._synchronizer: Synchronizer = comm
        self._model = model
        try:
            self._begin(average, placed, optimizer, check)
        except BaseException as error:
            if self._is_owner:
                comm.__exit__(type(error), error, error.__traceback__)
            raise

    def _check_late(self, model: torch.nn.Module, optimizer: Any, check: bool) -> None:
        if optimizer is None:
            if check:
                raise InvalidArgumentError("check=True needs optimizer=: it finds reads of "
                                           "parameters before their late updates")
            return
        check_optimizer(optimizer)
        if self._lag > 0:
            raise InvalidArgumentError("late updates by optimizer= are those of this iteration; "
                                       "with a lag of 1 they would be of the one before")
        known = {id(one) for group in optimizer.param_groups for one in group["params"]}
        if not any(one.requires_grad and id(one) in known for one in model.parameters()):
            raise InvalidArgumentError(
                f"{type(optimizer).__name__} has no parameter of the model")

    def _begin(self, average: bool, placed: bool, optimizer: Any, check: bool) -> None:
        model, synchronizer = self._model, self._synchronizer
        parameters = [(name, parameter) for name, parameter in model.named_parameters()
                      if parameter.requires_grad]
        for name, parameter in parameters:
            _check_reducible(name, parameter, self._device)
        if self._streams is not None:
            self._check_device(parameters[0][0])
        self._is_off = False
        self._pending: Dict[str, PersistentAllreduce] = {}  # in the order of submission
        self._failure: Optional[LmdbioError] = None  # of the backward pass
        self._turn = 0  # of the two halves of _WatchedParameter.sums: that of this iteration
        self._has_late_sums = False  # those of the last iteration are in flight, or not delivered
        self._is_placed = placed
        scale = 1.0 / synchronizer.size if average else 1.0
        # Gradients become ready from the last layer to the first. A bucket whose gradients lie in
        # this order is not packed.
        self._watched = [
            _WatchedParameter(
                name, parameter,
                synchronizer.persistent(f"gradient.{name}", tuple(parameter.shape),
                                        _type_name(parameter), postscale=scale,
                                        memory="host" if self._streams is None else "device"),
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
        self._has_sums = False  # .grad has those of this iteration, by synchronize()
        self._updates = None if optimizer is None else LateUpdates(
            model, optimizer, self._watched, self._wait_all, check)
        self._hooks: List[Any] = []
        for watched in self._watched:
            self._watch(watched)
        weakref.finalize(self, let_go_of_all, [watched.allreduce for watched in self._watched])
        synchronizer.close_before(self._detach)

    @staticmethod
    def _streams_of(model: torch.nn.Module) -> Optional[Streams]:
        for parameter in model.parameters():
            if parameter.requires_grad:
                return streams_of(parameter)
        return None

    @property
    def _device(self) -> torch.device:
        return CPU if self._streams is None else self._streams.device

    def _check_device(self, name: str) -> None:
        option = self._synchronizer.options()["device"]
        if option != self._streams.option:
            raise InvalidArgumentError(
                f"{name} is on the device {self._device}, and the option device of the "
                f"synchronizer is {option}; make it with device={self._streams.option}")

    def _place_of(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        size = parameter.numel() * parameter.element_size()
        if self._streams is None:
            memory = torch.from_numpy(self._synchronizer.place(size))
        else:
            memory = torch.as_tensor(self._synchronizer.place_on_device(size), device=self._device)
        return memory.view(parameter.dtype).view(parameter.shape)

    @staticmethod
    def bytes_to_place(model: torch.nn.Module, lag: int = 0) -> int:
        """Returns the smallest gradient_bytes, or device_gradient_bytes, that `placed` needs."""
        return (1 + lag) * sum((parameter.numel() * parameter.element_size() + 63) // 64 * 64
                   for parameter in model.parameters() if parameter.requires_grad)

    def _watch(self, watched: _WatchedParameter) -> None:
        # The autograd node that adds to .grad calls its hooks afterwards. The node exists as long
        # as there is a reference to it, so _hooks keeps one.
        parameter = watched.parameter
        node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
        hook = node.register_hook(lambda *_unused: self._on_gradient(watched))
        self._hooks.append((node, hook))

    # An error that ends a backward pass leaves a part of its graph in PyTorch 2.6 until the process
    # exits, which then crashes. So the failure of a peer or of the GPU waits for synchronize().
    # Other errors are those of the program.
    def _on_gradient(self, watched: _WatchedParameter) -> None:
        if watched.gradient is not None:
            self._refuse_gradient(watched)
        if self._is_off or self._failure is not None:
            return
        try:
            self._submit(watched)
        except LmdbioError as failure:
            if not (isinstance(failure, PeerFailedError) or type(failure) is LmdbioError):
                raise
            self._failure = failure

    @staticmethod
    def _refuse_gradient(watched: _WatchedParameter) -> None:
        if watched.is_late:
            raise InvalidStateError(
                f"{watched.name} was read before its update, outside of the forward pass of its "
                "module: call flush() before that")
        raise InvalidStateError(
            f"{watched.name} got a second gradient: call step() or synchronize() in between")

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
        if self._streams is not None:
            allreduce.set_stream(self._streams.current())
        allreduce.submit()
        self._pending[watched.name] = allreduce
        if self._updates is not None:
            self._has_sums = False
            watched.gradient, watched.parameter.grad = gradient, None

    def _submit_all(self) -> None:
        error, self._failure = self._failure, None
        if error is not None:
            raise error
        if len(self._pending) < len(self._watched):
            for watched in self._watched:
                if watched.name not in self._pending:
                    self._submit(watched)

    def _check_sendable(self, name: str, tensor: torch.Tensor) -> None:
        _check_reducible(name, tensor, CPU if tensor.is_cpu else self._device)

    # The host waits for values on the host only.
    def _wait_all(self, allreduces: Sequence[PersistentAllreduce]) -> None:
        if self._streams is None:
            wait_all(allreduces)
        else:
            wait_all_on(allreduces, self._streams.current())

    def _submit_tensor(self, name: str, tensor: torch.Tensor, **fields: Any) -> Operation:
        self._check_sendable(name, tensor)
        if not tensor.is_contiguous():
            raise InvalidArgumentError(f"{name} is not contiguous")
        if not tensor.is_cpu:
            fields.update(memory="device", stream=self._streams.current())
        return self._synchronizer.submit(name, tensor.data_ptr(), tuple(tensor.shape),
                                         _type_name(tensor), tensor, **fields)

    def synchronize(self) -> bool:
        """Waits until every gradient is the sum, or mean, of all ranks. Collective. On a GPU, later
        work on the current stream waits.

        Returns whether .grad has sums. They are missing only with a lag, in the first iteration and
        in the first one after flush(): then .grad is 0. Take no step of the optimizer.

        Raises PeerFailedError if a rank has failed, also if the backward pass has noticed it, and
        LmdbioError if the GPU has.
        """
        if self._updates is not None:
            self._updates.flush()
        self._submit_all()
        pending, self._pending = list(self._pending.values()), {}
        if self._lag > 0:
            return self._deliver_late_sums()
        if self._updates is not None:
            self._has_sums = True
            for watched in self._watched:
                watched.parameter.grad, watched.gradient = watched.gradient, None
        self._wait_all(pending)
        for allreduce in pending:
            allreduce.keeps = None  # .grad may be dropped from now on
        return True

    def step(self) -> None:
        """Takes the place of synchronize(), of the optimizer's step() and of zero_grad(), and does
        not wait. Each parameter is updated with the settings of now, such as the learning rate,
        before its module computes again, or in flush(). Collective.

        After synchronize() it calls the optimizer's step() at once.

        Errors as synchronize(). InvalidArgumentError: the optimizer cannot update some parameters
        before others. The forward pass, flush() and the next step() raise the errors of waiting.
        """
        if self._updates is None:
            raise InvalidStateError("step() needs the optimizer: pass optimizer= to GradientSync")
        if self._has_sums:
            self._has_sums = False
            self._updates.update_all()
            return
        self._updates.flush()
        computed = set(self._pending)
        self._submit_all()
        self._pending.clear()
        self._updates.begin(self._watched, computed)

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
            if self._streams is None:
                allreduce.wait()
            else:
                wait_all_on([allreduce], self._streams.current())
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
        """With an optimizer: waits for the gradients of the last step(), and updates all parameters
        that wait for them. Call it before you read parameters outside of their modules.

        With a lag: waits for the sums of the last iteration, which no synchronize() has
        delivered, and copies them to .grad. Call it, and take a step of the optimizer, before a
        checkpoint, an evaluation, a join and the end.

        Returns whether there were such sums, or parameters.
        """
        if self._updates is not None:
            return self._updates.flush()
        if self._pending:
            raise InvalidStateError("gradients are in flight: call synchronize() before flush()")
        if not self._has_late_sums:
            return False
        self._has_late_sums = False  # also after an error: some of them are no sums then
        self._wait_all([watched.allreduce for watched in self._watched])
        self._deliver(1 - self._turn)
        return True

    def check(self) -> None:
        """Waits until the GPU has the sums that were delivered last; with an optimizer, after
        flush(). Call it before a checkpoint if device_order is "event" or "mark", or
        device_collective "nccl"; with a lag after flush().

        Raises PeerFailedError if a rank has failed and left wrong sums, and LmdbioError if the GPU
        has failed.
        """
        if self._updates is not None:
            self._updates.flush()
        wait_all([watched.allreduce for watched in self._watched
                  if watched.allreduce.is_enqueued()])

    def _check_join(self) -> None:
        if self._has_late_sums:
            raise InvalidStateError(
                "this rank cannot join: with a lag of 1 the sums of its last iteration were not "
                "delivered; call flush() first")

    def broadcast_parameters(self, root: int = 0) -> None:
        """Copies all parameters and buffers of rank `root` to all ranks. ValueError names the first
        tensor that cannot be sent; then none has been sent."""
        if self._updates is not None:
            self._updates.flush()
        tensors = [*self._model.named_parameters(), *self._model.named_buffers()]
        for name, tensor in tensors:
            self._check_sendable(name, tensor)
        operations = []
        with torch.no_grad():
            for name, tensor in tensors:
                values = tensor.detach()
                sent = values if values.is_contiguous() else values.contiguous()
                operations.append((values, sent, self._submit_tensor(
                    f"parameter.{name}", sent, operation="broadcast", root=root)))
            for values, sent, operation in operations:
                if sent.is_cpu:
                    operation.wait()
                else:
                    operation.wait_on(self._streams.current())
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
        if error[0] is None:
            try:
                self.check()
            except BaseException as failure:
                self.__exit__(type(failure), failure, failure.__traceback__)
                raise
        if self._is_owner:
            self._synchronizer.__exit__(*error)
        else:
            self.close()

    def close(self) -> None:
        """Detaches from the model, copies placed gradients to other memory, and closes a
        synchronizer that GradientSync has made. Errors as check. A given synchronizer detaches it
        when it is closed."""
        try:
            self.check()
        finally:
            if self._is_owner:
                self._synchronizer.close()  # calls _detach
            else:
                self._detach()

    def _copy_of(self, gradient: torch.Tensor) -> Optional[torch.Tensor]:
        try:
            return gradient.clone()
        except RuntimeError:
            if self._streams is None:
                raise
            return None  # the GPU has failed, and its values are lost

    def _detach(self) -> None:
        self._has_late_sums = False
        if self._updates is not None:
            self._updates.close(is_done=self._synchronizer.is_shut_down())
        for _, hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._pending.clear()
        for watched in self._watched:
            watched.allreduce.let_go()
            watched.gradient = None
            if watched.place is not None and watched.parameter.grad is not None:
                watched.parameter.grad = self._copy_of(watched.parameter.grad)
            watched.place, watched.sums = None, []
        if (self._streams is not None and self._is_placed
                and self._synchronizer.releases_on_close()):
            self._streams.synchronize()  # its memory goes with the synchronizer

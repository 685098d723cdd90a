"""Lets the workers of a DataLoader hand tensors and arrays over in an Outbox.

`begin` replaces the functions by which a worker process pickles tensors and arrays for the queue of
the DataLoader. Large ones travel as tickets, small ones as their bytes. Everything else, and
everything for which the outbox has no room, goes the way of torch.multiprocessing.
"""

from __future__ import annotations

import ctypes
import logging
import os
import resource
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import ForkingPickler
from typing import Any, Optional, Sequence, Tuple

import numpy as np
import torch
import torch.utils.data
from torch.multiprocessing.reductions import reduce_tensor

from lmdbio import _capi
from lmdbio._errors import InvalidArgumentError
from lmdbio._inbox import receive
from lmdbio._outbox import Outbox, Ticket

SMALL_BYTES = 4096  # up to this size the bytes themselves are sent

_outbox: Optional[Outbox] = None
_beginner: Optional[int] = None  # the process that has tried to make it


def check_size(hand_over_bytes: int) -> int:
    """Returns the argument of a dataset, or raises TypeError or ValueError."""
    return _capi.number("hand_over_bytes", hand_over_bytes, ctypes.c_uint64)


def begin(size_bytes: int) -> None:
    """In a worker of a DataLoader, begins to hand over. Called again, it does nothing."""
    global _outbox, _beginner
    worker = torch.utils.data.get_worker_info()
    if worker is None or size_bytes == 0 or _beginner == os.getpid():
        return
    _beginner = os.getpid()
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:  # the trainer maps the memory of all workers
        size_bytes = min(size_bytes, limit // (4 * worker.num_workers))
    try:
        _outbox = Outbox(size_bytes)
    except (OSError, ValueError, OverflowError, AttributeError) as error:
        logging.getLogger("lmdbio").warning(
            "the batches of worker process %d are copied, because the system refuses %d bytes of "
            "memory to hand them over: %s; hand_over_bytes selects another size", os.getpid(),
            size_bytes, error)
        return
    ForkingPickler.register(torch.Tensor, _reduce_tensor)
    ForkingPickler.register(np.ndarray, _reduce_array)


def _mine() -> Optional[Outbox]:
    return _outbox if _outbox is not None and _outbox.pid == os.getpid() else None


def empty(shape: Sequence[int], dtype: torch.dtype = torch.uint8) -> torch.Tensor:
    """Returns a tensor without defined content, to be filled by a decoder. In a worker its memory
    is handed over, so the batch is not copied."""
    shape, outbox = torch.Size(shape), _mine()
    size = shape.numel() * torch.empty(0, dtype=dtype).element_size()
    memory = outbox.allocate(size) if outbox is not None and size > SMALL_BYTES else None
    if memory is None:
        return torch.empty(shape, dtype=dtype)
    return _tensor_of(memory, dtype, shape, _strides(shape))


def collate(samples: Sequence[Any]) -> Any:
    """Makes a batch of samples as torch.utils.data.default_collate does, for DataLoader's
    collate_fn. In a worker the batch is built in memory that is handed over.

    Errors: InvalidArgumentError for no samples
    """
    if not samples:
        raise InvalidArgumentError("a batch needs at least one sample")
    first = samples[0]
    if isinstance(first, np.ndarray) and first.dtype.kind in "biufc":
        samples = [torch.as_tensor(each) for each in samples]
        first = samples[0]
    if isinstance(first, torch.Tensor) and all(_stack_with(first, each) for each in samples):
        batch = empty((len(samples), *first.shape), first.dtype)
        return torch.stack(tuple(samples), out=batch)
    if type(first) is dict and all(_keys(first) == _keys(each) for each in samples):
        return {key: collate([each[key] for each in samples]) for key in first}
    if type(first) in (tuple, list) and all(_length(first) == _length(each) for each in samples):
        return [collate(column) for column in zip(*samples)]
    return torch.utils.data.default_collate(samples)


def _keys(sample: Any) -> Any:
    return sample.keys() if type(sample) is dict else None


def _length(sample: Any) -> Optional[int]:
    return len(sample) if type(sample) in (tuple, list) else None


def _stack_with(first: torch.Tensor, other: torch.Tensor) -> bool:
    return (type(other) is torch.Tensor and other.device.type == "cpu"
            and other.layout is torch.strided and not other.requires_grad
            and other.dtype == first.dtype and other.shape == first.shape)


def _strides(shape: Sequence[int]) -> Tuple[int, ...]:
    """Returns the strides of a contiguous tensor, in elements."""
    strides, step = [], 1
    for length in reversed(shape):
        strides.append(step)
        step *= length
    return tuple(reversed(strides))


def _tensor_of(memory: Any, dtype: torch.dtype, shape: Sequence[int],
               strides: Sequence[int]) -> torch.Tensor:
    flat = torch.frombuffer(memory, dtype=dtype)
    # No view of `flat`: a program may do with it all that it may do with a tensor of its own.
    return flat.new_empty(0).set_(flat, 0, shape, strides)


def _received_tensor(ticket: Ticket, dtype: torch.dtype, shape: Sequence[int],
                     strides: Sequence[int]) -> torch.Tensor:
    return _tensor_of(receive(ticket), dtype, shape, strides)


def _small_tensor(data: bytes, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    if not data:
        return torch.empty(shape, dtype=dtype)
    return _tensor_of(bytearray(data), dtype, shape, _strides(shape))


def _received_array(ticket: Ticket, dtype: np.dtype, shape: Sequence[int],
                    order: str) -> np.ndarray:
    return np.ndarray(shape, dtype, receive(ticket), order=order)


def _reduce_tensor(tensor: torch.Tensor) -> Any:
    outbox = _mine()
    if outbox is None or get_spawning_popen() is not None or not _is_plain(tensor):
        return reduce_tensor(tensor)
    size = tensor.numel() * tensor.element_size()
    if size <= SMALL_BYTES:
        data = tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if size else b""
        return _small_tensor, (data, tensor.dtype, tuple(tensor.shape))
    sent = tensor if outbox.holds(tensor.data_ptr()) else _copy(outbox, tensor, size)
    ticket = None if sent is None else outbox.send(sent.data_ptr(), _span(sent))
    if ticket is None:
        return reduce_tensor(tensor)
    return _received_tensor, (ticket, sent.dtype, tuple(sent.shape), sent.stride())


def _is_plain(tensor: torch.Tensor) -> bool:
    # A shared tensor keeps its memory, because the worker and the trainer may both write to it.
    return (tensor.device.type == "cpu" and tensor.layout is torch.strided
            and not tensor.requires_grad and not tensor.is_quantized and not tensor.is_shared()
            and not tensor.is_conj() and not tensor.is_neg())


def _copy(outbox: Outbox, tensor: torch.Tensor, size: int) -> Optional[torch.Tensor]:
    memory = outbox.allocate(size)
    if memory is None:
        return None
    strides = tensor.stride()
    if not tensor.is_contiguous():  # may be dense all the same, as with channels_last
        strides = torch.empty_like(tensor, device="meta").stride()
    return _tensor_of(memory, tensor.dtype, tensor.shape, strides).copy_(tensor)


def _span(tensor: torch.Tensor) -> int:
    """Returns the bytes from the first element to the last."""
    steps = sum((length - 1) * step for length, step in zip(tensor.shape, tensor.stride()))
    return (1 + steps) * tensor.element_size()


def _reduce_array(array: np.ndarray) -> Any:
    outbox = _mine()
    if (outbox is None or array.nbytes <= SMALL_BYTES or array.dtype.hasobject
            or get_spawning_popen() is not None):
        return array.__reduce_ex__(4)
    order = "F" if array.flags.fnc else "C"
    address = array.__array_interface__["data"][0]
    if not (array.flags.forc and outbox.holds(address)):
        memory = outbox.allocate(array.nbytes)
        if memory is None:
            return array.__reduce_ex__(4)
        copy = np.ndarray(array.shape, array.dtype, memory, order=order)
        np.copyto(copy, array)
        address = memory.__array_interface__["data"][0]
    ticket = outbox.send(address, array.nbytes)
    if ticket is None:
        return array.__reduce_ex__(4)
    return _received_array, (ticket, array.dtype, array.shape, order)

"""Batches as tensors of PyTorch, on the host or on a GPU."""

from __future__ import annotations

from typing import Any, Dict, Iterator, Optional

import numpy as np
import torch

from lmdbio._errors import InvalidArgumentError
from lmdbio._feed import DeviceArray, DeviceBatch, DeviceFeed
from lmdbio._hand_over import empty
from lmdbio._loader import Loader
from lmdbio._torch_streams import CPU, streams_on

FEED_OPTIONS = ("packed", "row_bytes_min", "depth")


def values_as_tensor(batch: Any) -> Any:
    """Returns the values as rows of uint8, [len, size of the largest]; of a view with fields, a
    dict of them. Those of a Batch are copied, those of a DeviceBatch stay where they are."""
    if batch.fields is not None:
        return {name: values_as_tensor(batch[name]) for name in batch.fields}
    if isinstance(batch, DeviceBatch):
        return _values_on_gpu(batch)
    rows = empty((len(batch), int(batch.sizes.max(initial=0))))
    batch.array(out=rows.numpy())
    return rows


def values_on(batch: Any, device: Any) -> Any:
    """Returns the values as batch.to(device) does."""
    return _moved(values_as_tensor(batch), torch.device(device))


def _moved(values: Any, device: torch.device) -> Any:
    if isinstance(values, dict):
        return {name: _moved(one, device) for name, one in values.items()}
    if isinstance(values, tuple):
        return tuple(_moved(one, device) for one in values)
    return values.to(device)


def _values_on_gpu(batch: DeviceBatch) -> Any:
    values, offsets = torch.from_dlpack(batch.rows), batch.offsets
    if offsets is None:
        return values
    # PyTorch has few operators for uint64.
    return values, torch.from_dlpack(
        DeviceArray(offsets.address, offsets.shape, np.int64, offsets._lease))


def device_of(device: Any) -> Optional[torch.device]:
    """Returns the GPU that an argument names; None for the CPU.

    Errors: InvalidArgumentError
    """
    if device is None:
        return None
    try:
        named = torch.device(device)
    except (RuntimeError, TypeError) as error:
        text = str(error).partition("\n")[0]
        raise InvalidArgumentError(f"device {device!r} is unknown: {text}") from None
    if named.type == CPU.type:
        return None
    if not hasattr(getattr(torch, named.type, None), "current_stream"):
        raise InvalidArgumentError(f"device {named} is no GPU of CUDA; use device='cpu', and move "
                                   "the batches yourself")
    return named


def check_feed_options(device: Optional[torch.device],
                       options: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    """Returns the arguments of the feed, or raises InvalidArgumentError."""
    options = dict(options or {})
    if options and device is None:
        raise InvalidArgumentError("feed_options need a device, such as 'cuda'")
    for name in options:
        if name not in FEED_OPTIONS:
            raise InvalidArgumentError(f"feed_options have no {name!r}; expected "
                                       f"{', '.join(FEED_OPTIONS)}")
    return options


def batches_of(loader: Loader, feed: Optional["TorchFeed"]) -> Iterator[Any]:
    """Iterates over the rest of an epoch: Batches, or DeviceBatches of the feed."""
    return iter(loader if feed is None else feed)


class TorchFeed:
    """A feed whose batches are taken for the current stream of the thread that asks for one."""

    def __init__(self, loader: Loader, device: torch.device, options: Dict[str, Any]) -> None:
        self._streams = streams_on(device)
        self._feed = DeviceFeed(loader, self._streams.device.index, **options)

    def __iter__(self) -> Iterator[DeviceBatch]:
        """Iterates to the end of the epoch."""
        ends_epoch = False
        while not ends_epoch:
            batch = self._feed.next(self._streams.current())
            if batch is None:
                return
            ends_epoch = batch.ends_epoch
            yield batch
            del batch  # its memory serves later batches, if the program has let it go

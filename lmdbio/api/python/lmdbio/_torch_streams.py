"""The streams of a GPU, as PyTorch knows them."""

from __future__ import annotations

import contextlib
from typing import Any, Optional

import torch

from lmdbio._errors import InvalidArgumentError, NotFoundError

CPU = torch.device("cpu")


class Streams:
    """The streams of one GPU."""

    __slots__ = ("_module", "device")

    def __init__(self, module: Any, device: torch.device) -> None:
        self._module, self.device = module, device

    @property
    def option(self) -> int:
        """The option `device` of a synchronizer for tensors on this GPU."""
        return self.device.index + 1

    def current(self) -> int:
        """Returns the cudaStream_t of this thread's current stream."""
        return self._module.current_stream(self.device).cuda_stream

    def synchronize(self) -> None:
        """Waits until the GPU is done. If it has failed, it is done, too."""
        with contextlib.suppress(RuntimeError):
            self._module.synchronize(self.device)

    def new(self) -> Any:
        """Returns another stream, as PyTorch has it."""
        return self._module.Stream(self.device)

    def use(self, stream: Any) -> Any:
        """Returns a context in which a stream of PyTorch is the current one."""
        return self._module.stream(stream)


def streams_of(tensor: torch.Tensor) -> Optional[Streams]:
    """Returns the streams of a tensor's GPU. None: it is on no GPU of CUDA."""
    device = tensor.device
    module = getattr(torch, device.type, None)
    if device.index is None or not hasattr(module, "current_stream"):
        return None
    if not hasattr(module.current_stream(device), "cuda_stream"):
        return None
    return Streams(module, device)


def streams_on(device: torch.device) -> Streams:
    """Returns the streams of a GPU; without a number, of the current one.

    Errors: NotFoundError; InvalidArgumentError if it is no GPU of CUDA
    """
    module = getattr(torch, device.type)
    count = module.device_count() if module.is_available() else 0
    if count == 0 or (device.index or 0) >= count:
        raise NotFoundError(f"device {device}: PyTorch finds {count or 'no'} "
                            f"GPU{'' if count == 1 else 's'}; without one, use device='cpu'")
    index = module.current_device() if device.index is None else device.index
    if not hasattr(module.current_stream(index), "cuda_stream"):
        raise InvalidArgumentError(f"device {device} is no GPU of CUDA; use device='cpu', and move "
                                   "the batches yourself")
    return Streams(module, torch.device(device.type, index))

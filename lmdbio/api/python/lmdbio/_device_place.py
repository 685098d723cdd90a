"""Placed memory of a GPU, as other packages take it."""

from __future__ import annotations

from typing import Any, Dict


class DevicePlace:
    """Bytes in the memory of a GPU. PyTorch and CuPy make tensors of it, which keep it in use:
    `torch.as_tensor(place, device="cuda")`.

    address     in the memory of the GPU
    size_bytes  of the part
    """

    def __init__(self, address: int, size_bytes: int) -> None:
        self.address, self.size_bytes = address, size_bytes

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        address = self.address if self.size_bytes > 0 else 0
        return {"shape": (self.size_bytes,), "typestr": "|u1", "data": (address, False),
                "strides": None, "version": 3}

"""Capsules of DLPack: arrays of a device for other libraries (dmlc.github.io/dlpack)."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, Tuple

import numpy as np

CUDA = 2  # kDLCUDA
_CODES = {"i": 0, "u": 1}  # kDLInt, kDLUInt, by the kinds of NumPy
_NAME = b"dltensor"  # until a library has taken it over


class Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class ManagedTensor(ctypes.Structure):
    """DLManagedTensor. Whoever has it calls the deleter once."""


_DELETER = ctypes.CFUNCTYPE(None, ctypes.POINTER(ManagedTensor))
ManagedTensor._fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", _DELETER)]

# By address: the struct, what it points to, and the owner of the memory.
_exported: Dict[int, Tuple[Any, ...]] = {}


# Tensors may outlive the globals of this module at the end of the process, so the functions that
# are called from outside have what they need, and stay.
@_DELETER
def _delete(managed: Any, exported: Dict[int, Tuple[Any, ...]] = _exported,
            address_of: Any = ctypes.addressof) -> None:
    exported.pop(address_of(managed.contents), None)


_api = ctypes.pythonapi
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_api.PyCapsule_IsValid.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _drop(capsule: int, exported: Dict[int, Tuple[Any, ...]] = _exported, api: Any = _api,
          name: bytes = _NAME) -> None:
    """Frees the struct of a capsule that no library has taken over."""
    if api.PyCapsule_IsValid(capsule, name):
        exported.pop(api.PyCapsule_GetPointer(capsule, name), None)


_api.Py_IncRef(ctypes.py_object(_delete))
_api.Py_IncRef(ctypes.py_object(_drop))


def capsule_of(address: int, shape: Tuple[int, ...], dtype: np.dtype, device: int,
               owner: Any) -> Any:
    """Returns a capsule of an array of integers on a GPU, which keeps `owner` alive."""
    sizes = (ctypes.c_int64 * len(shape))(*shape)
    managed = ManagedTensor()
    tensor = managed.tensor
    tensor.data, tensor.device_type, tensor.device_id = address, CUDA, device
    tensor.ndim, tensor.code, tensor.bits = len(shape), _CODES[dtype.kind], 8 * dtype.itemsize
    tensor.lanes = 1
    tensor.shape = ctypes.cast(sizes, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = _delete
    _exported[ctypes.addressof(managed)] = (managed, sizes, owner)
    return _api.PyCapsule_New(ctypes.addressof(managed), _NAME, _drop)

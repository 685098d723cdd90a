"""The GPUs of tests/emulated_gpu as devices of PyTorch: "emulated:0", "emulated:1", ...

Importing it loads the backend of this folder, from $LMDBIO_EMULATED_TORCH. The functions are those
of torch.cuda that a program uses, and so is `cuda_stream`.
"""

import contextlib
import ctypes
import math
import os
import struct
import sys

import torch

_library = ctypes.CDLL(os.environ["LMDBIO_EMULATED_TORCH"])
_driver = ctypes.CDLL("libcuda.so.1")
for _name in ("current_stream", "exchange_stream", "new_stream", "used_bytes", "reserved_bytes"):
    getattr(_library, f"emulated_torch_{_name}").restype = ctypes.c_int64
_library.emulated_torch_exchange_stream.argtypes = [ctypes.c_int, ctypes.c_int64]
_library.emulated_torch_destroy_stream.argtypes = [ctypes.c_int, ctypes.c_int64]


def device_count():
    return _library.emulated_torch_device_count()


def current_device():
    return _library.emulated_torch_current_device()


def set_device(device):
    _library.emulated_torch_set_device(_index_of(device))


def is_available():
    return True


def is_initialized():
    return True


def _lazy_init():
    pass


def _is_in_bad_fork():
    return False


def manual_seed_all(_seed):
    pass


def _index_of(device):
    if device is None:
        return current_device()
    index = device if isinstance(device, int) else torch.device(device).index
    return current_device() if index is None else index


class Stream:
    """A stream of a device; without a number a new one."""

    def __init__(self, device=None, number=None):
        self.device = torch.device("emulated", _index_of(device))
        self.cuda_stream = (_library.emulated_torch_new_stream(self.device.index)
                            if number is None else number)

    def destroy(self):
        """Work that is queued still runs."""
        _library.emulated_torch_destroy_stream(self.device.index, self.cuda_stream)


def current_stream(device=None):
    index = _index_of(device)
    return Stream(index, _library.emulated_torch_current_stream(index))


@contextlib.contextmanager
def stream(used):
    """Work inside `with` is on this stream."""
    index = used.device.index
    before = _library.emulated_torch_exchange_stream(index, used.cuda_stream)
    try:
        yield
    finally:
        _library.emulated_torch_exchange_stream(index, before)


def synchronize(device=None):
    code = _library.emulated_torch_synchronize(_index_of(device))
    if code != 0:
        raise RuntimeError(f"the driver fails: {code}")


def memory_allocated(_device=None):
    return _library.emulated_torch_used_bytes()


def memory_reserved(_device=None):
    return _library.emulated_torch_reserved_bytes()


class _Control(ctypes.Structure):
    """The first functions of EmulatedControl in tests/emulated_gpu/emulated_gpu.h."""

    _fields_ = [("reset", ctypes.CFUNCTYPE(None, ctypes.c_uint64)),
                ("fail_call", ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_uint64,
                                               ctypes.c_int)),
                ("faults_left", ctypes.CFUNCTYPE(ctypes.c_uint64)),
                ("hide_function", ctypes.CFUNCTYPE(None, ctypes.c_char_p)),
                ("set_version", ctypes.CFUNCTYPE(None, ctypes.c_int)),
                ("set_device_count", ctypes.CFUNCTYPE(None, ctypes.c_int)),
                ("set_attribute", ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_int)),
                ("set_reach", ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_int, ctypes.c_bool)),
                ("refuse_imports", ctypes.CFUNCTYPE(None, ctypes.c_int)),
                ("call_count", ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_char_p)),
                ("objects", ctypes.c_void_p),
                ("lazy_loads", ctypes.c_void_p),
                ("queued_count", ctypes.CFUNCTYPE(ctypes.c_uint64)),
                ("begin_capture", ctypes.CFUNCTYPE(None, ctypes.c_void_p))]


def driver_function(name, *arguments):
    """Calls a function of the driver, and returns its code."""
    function, found = ctypes.c_void_p(), ctypes.c_int()
    _driver.cuGetProcAddress_v2(name.encode(), ctypes.byref(function), 12000, ctypes.c_uint64(0),
                                ctypes.byref(found))
    return ctypes.CFUNCTYPE(ctypes.c_int)(function.value)(*arguments)


_driver.lmdbio_emulated_gpu_control.restype = ctypes.POINTER(_Control)
control = _driver.lmdbio_emulated_gpu_control().contents

torch.utils.rename_privateuse1_backend("emulated")
torch._register_device_module("emulated", sys.modules[__name__])

# The owners of memory that tensors use, by number.
_kept = {}
_give_back = ctypes.CFUNCTYPE(None, ctypes.c_int64)(lambda number: _kept.pop(number, None))
_library.emulated_torch_set_give_back(_give_back)
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_give_back))  # tensors may outlive this module
_as_tensor, _from_dlpack = torch.as_tensor, torch.from_dlpack


def _bytes_over(owner, address, size, index):
    number = max(_kept, default=0) + 1
    _kept[number] = owner
    return torch.ops.emulated.from_address(address, size, index, number)


def as_tensor(data, dtype=None, device=None):
    """torch.as_tensor, which knows the memory of CUDA alone."""
    if not hasattr(data, "__cuda_array_interface__") or torch.device(device).type != "emulated":
        return _as_tensor(data, dtype=dtype, device=device)
    found = data.__cuda_array_interface__
    assert found["typestr"] == "|u1", found
    return _bytes_over(data, found["data"][0], found["shape"][0], _index_of(device))


_CUDA = 2  # kDLCUDA
_TYPES = {(0, 64): torch.int64, (1, 8): torch.uint8}  # by code and bits
# Not the attributes of pythonapi, which all of a program share.
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", ctypes.pythonapi))
_USED = b"used_dltensor"  # kept, because a capsule keeps only its address


class _Capsule:
    """A capsule that was taken over: DLManagedTensor."""

    def __init__(self, capsule):
        self._pointer = _pointer_of(capsule, b"dltensor")
        _rename(capsule, _USED)
        (self.address, self.kind, self.index, ndim, code, bits, lanes, shape, strides, offset,
         _context, self._deleter) = struct.unpack("<QiiiBBHQQQQQ", ctypes.string_at(
             self._pointer, 64))
        assert (lanes, strides, offset) == (1, 0, 0)
        self.shape = tuple((ctypes.c_int64 * ndim).from_address(shape))
        self.dtype = _TYPES[code, bits]

    def __del__(self, deleter_of=ctypes.CFUNCTYPE(None, ctypes.c_void_p)):
        deleter_of(self._deleter)(self._pointer)


def from_dlpack(data):
    """torch.from_dlpack, which knows the devices of CUDA alone."""
    kind, index = data.__dlpack_device__()
    if kind != _CUDA:
        return _from_dlpack(data)
    taken = _Capsule(data.__dlpack__(stream=current_stream(index).cuda_stream or 1))
    assert (taken.kind, taken.index) == (kind, index)
    size = math.prod(taken.shape) * taken.dtype.itemsize
    return _bytes_over(taken, taken.address, size, index).view(taken.dtype).view(taken.shape)


torch.as_tensor, torch.from_dlpack = as_tensor, from_dlpack

"""A program that uses a GPU by itself, through its driver, for tests with the stand-in
(tests/emulated_gpu)."""

import ctypes

import numpy as np


class Driver:
    """The driver, as a program would use it. An error is an AssertionError."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        self.context, self.stream = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuInit", ctypes.c_uint(0))
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)
        self.call("cuCtxSetCurrent", self.context)
        self.call("cuStreamCreateWithPriority", ctypes.byref(self.stream), ctypes.c_uint(1), 0)

    def call(self, name, *arguments):
        function, found = ctypes.c_void_p(), ctypes.c_int()
        self.library.cuGetProcAddress_v2(name.encode(), ctypes.byref(function), 12000,
                                         ctypes.c_uint64(0), ctypes.byref(found))
        code = ctypes.CFUNCTYPE(ctypes.c_int)(function.value)(*arguments)
        assert code == 0, (name, code)

    def allocate(self, size, byte):
        """Returns memory of the GPU that is filled with one byte."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc", ctypes.byref(address), ctypes.c_size_t(size))
        self.fill(address.value, size, byte)
        return address.value

    def fill(self, address, size, byte):
        self.call("cuMemsetD8Async", ctypes.c_uint64(address), ctypes.c_ubyte(byte),
                  ctypes.c_size_t(size), self.stream)

    def read(self, address, size):
        """Returns the bytes that work on the stream sees."""
        values = np.empty(size, np.uint8)
        if size > 0:
            self.call("cuMemcpyDtoHAsync", ctypes.c_void_p(values.ctypes.data),
                      ctypes.c_uint64(address), ctypes.c_size_t(size), self.stream)
        self.synchronize()
        return values

    def synchronize(self):
        self.call("cuStreamSynchronize", self.stream)

"""Batches of a loader in the memory of a GPU."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any, Dict, Iterator, Optional, Tuple, Union

import numpy as np

from lmdbio import _capi, _dlpack
from lmdbio._batch import record_table
from lmdbio._errors import AbsentKeyError, ClosedError, InvalidArgumentError, InvalidStateError
from lmdbio._loader import Loader

# The legacy default stream in the interfaces between libraries, where 0 is ambiguous.
_DEFAULT_STREAM = 1


class _DeviceLease:
    """Holds the memory of a batch, for the batch and all arrays of it, until nobody needs it."""

    __slots__ = ("result", "device", "stream")

    def __init__(self, result: ctypes.c_void_p, device: int, stream: int) -> None:
        self.result, self.device, self.stream = result, device, stream

    def use_on(self, stream: int) -> None:
        """Lets work that follows on a stream use the memory."""
        _capi.check_result(self.result, _capi.library().lmdbio_result_use_on(self.result, stream))

    def __del__(self) -> None:
        _capi.library().lmdbio_result_close(self.result)


class DeviceArray:
    """An array on a GPU, for libraries that take it by `__dlpack__` or `__cuda_array_interface__`,
    such as torch.from_dlpack(array) and cupy.asarray(array). Its memory serves later batches when
    the array, its batch and all that was made of it are gone. It must not be written to."""

    __slots__ = ("address", "shape", "dtype", "_lease")

    def __init__(self, address: int, shape: Tuple[int, ...], dtype: Any,
                 lease: _DeviceLease) -> None:
        self.address = address  # on the GPU
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self._lease = lease

    @property
    def device(self) -> int:
        """The number of the GPU."""
        return self._lease.device

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        return {"version": 3, "shape": self.shape, "typestr": self.dtype.str, "strides": None,
                "data": (self.address, True), "stream": self._lease.stream or _DEFAULT_STREAM}

    def __dlpack_device__(self) -> Tuple[int, int]:
        return _dlpack.CUDA, self._lease.device

    def __dlpack__(self, *, stream: Optional[int] = None, **_wishes: Any) -> Any:
        """Returns a capsule. Work that follows on `stream` sees the values; -1: no such wait."""
        stream = _DEFAULT_STREAM if stream is None else int(stream)
        if stream == 0 or stream < -1:
            raise InvalidArgumentError(f"stream {stream} is ambiguous; expected -1, 1 (the default "
                                       "stream), 2 (that of the thread) or a stream")
        if stream > 0:
            self._lease.use_on(0 if stream == _DEFAULT_STREAM else stream)
        return _dlpack.capsule_of(self.address, self.shape, self.dtype, self._lease.device,
                                  self._lease)

    def __repr__(self) -> str:
        return f"<lmdbio.DeviceArray {self.shape} of {self.dtype} on GPU {self.device}>"


class DeviceBatch:
    """One rank's share of a batch: its values on a GPU, all else on the host.

    rows     [len, row_bytes] uint8; shorter values end in zeros. With packed=True [bytes] uint8
    offsets  [len + 1] uint64 with packed=True: value i is rows[offsets[i]:offsets[i + 1]]; else
             None

    With a view that has fields, batch["label"] has the rows and offsets of that field. Valid as
    long as it exists.
    """

    __slots__ = ("number", "epoch", "first_position", "global_record_count", "skipped_count",
                 "ends_epoch", "fields", "positions", "_keys", "_sizes", "_arrays")

    def __init__(self, struct: Any, lease: _DeviceLease,
                 fields: Optional[Tuple[str, ...]]) -> None:
        table = record_table(struct.records, struct.record_count).copy()
        count, width = len(table) // struct.field_count, struct.field_count
        self.number: int = struct.number  # index of the batch in the stream, from 0
        self.epoch: int = struct.epoch
        self.first_position: int = struct.first_position  # of the global batch
        self.global_record_count: int = struct.global_record_count
        self.skipped_count: int = struct.skipped_count
        self.ends_epoch: bool = bool(struct.ends_epoch)
        self.fields = fields  # the names of the records of a sample; None: a sample is one record
        self.positions: np.ndarray = table["position"][::width].copy()  # [len]
        self._keys = [[ctypes.string_at(int(record["key"]), int(record["key_size"]))
                       for record in table[f::width]] for f in range(width)]
        self._sizes = [table["value_size"][f::width].copy() for f in range(width)]
        self._arrays = [self._arrays_of(struct.fields[f], count, lease) for f in range(width)]

    @staticmethod
    def _arrays_of(rows: Any, count: int,
                   lease: _DeviceLease) -> Tuple[DeviceArray, Optional[DeviceArray]]:
        if not rows.offsets:
            shape: Tuple[int, ...] = (count, rows.row_bytes)
            return DeviceArray(rows.rows or 0, shape, np.uint8, lease), None
        return (DeviceArray(rows.rows or 0, (rows.size_bytes,), np.uint8, lease),
                DeviceArray(rows.offsets, (count + 1,), np.uint64, lease))

    def _only(self) -> int:
        if self.fields is not None:
            raise InvalidStateError(
                f"the batch has the fields {', '.join(map(repr, self.fields))}: choose one, as in "
                f"batch[{self.fields[0]!r}]")
        return 0

    @property
    def rows(self) -> DeviceArray:
        """The values."""
        return self._arrays[self._only()][0]

    @property
    def offsets(self) -> Optional[DeviceArray]:
        """The offsets of packed values."""
        return self._arrays[self._only()][1]

    @property
    def sizes(self) -> np.ndarray:
        """[len] the size of each value in bytes."""
        return self._sizes[self._only()]

    def keys(self) -> list[bytes]:
        """Returns the keys."""
        return self._keys[self._only()]

    def __getitem__(self, name: str) -> "DeviceBatch":
        """Returns the batch of the records of a field."""
        if name not in (self.fields or ()):
            has = "no fields" if self.fields is None else (
                f"the fields {', '.join(map(repr, self.fields))}")
            raise AbsentKeyError(f"the batch has no field {name!r}; it has {has}")
        f = self.fields.index(name)  # type: ignore[union-attr]
        batch = object.__new__(DeviceBatch)
        for slot in ("number", "epoch", "first_position", "global_record_count", "skipped_count",
                     "ends_epoch", "positions"):
            setattr(batch, slot, getattr(self, slot))
        batch.fields = None
        batch._keys, batch._sizes = [self._keys[f]], [self._sizes[f]]
        batch._arrays = [self._arrays[f]]
        return batch

    def to(self, device: Any, non_blocking: bool = False) -> Any:
        """Returns the values as a tensor of PyTorch on a device: rows of uint8, shorter values end
        in zeros; of a view with fields, a dict of them. Packed values are a pair of uint8 values
        and int64 offsets. On this GPU nothing is copied, and work that follows on the current
        stream sees the values. non_blocking has no effect."""
        from lmdbio._torch_feed import values_on

        return values_on(self, device)

    def __len__(self) -> int:
        return len(self.positions)

    def __repr__(self) -> str:
        return f"<lmdbio.DeviceBatch {self.number} of epoch {self.epoch}: {len(self)} samples>"


class DeviceFeed:
    """Batches of a loader in the memory of a GPU, ahead of the program.

        feed = lmdbio.DeviceFeed(loader, device=0)
        for batch in feed:                          # to the end of the epoch
            train(torch.from_dlpack(batch.rows))    # [256, bytes] uint8 on the GPU

    loader     a lmdbio.Loader, whose next batches come. It has one feed at a time, which takes its
               batches; its state_dict, load_state_dict and set_epoch are about the batches that the
               program has got from the feed
    device     the number of the GPU
    packed     values lie one behind the other, with offsets
    row_bytes_min
               the least size of a row; 0: that of the largest value of a batch
    depth      batches under way ahead of the program
    stream     a stream of the program, as an integer: work that follows on it sees the rows.
               0: the default stream

    Arrays that were made of a batch may be used on any stream that its library has told: so does
    `__dlpack__`. Nothing of this has been tried on a GPU yet.

    Errors:  InvalidArgumentError; NotFoundError, if there is no GPU; MemoryError
    Threads: any, in turn
    """

    def __init__(self, loader: Loader, device: int = 0, *, packed: bool = False,
                 row_bytes_min: int = 0, depth: int = 2, stream: int = 0) -> None:
        self._handle = ctypes.c_void_p()
        self._loader, self.device, self._stream = loader, int(device), stream
        opened = loader._use()
        if depth == 0:  # in C, 0 stands for the default
            raise InvalidArgumentError("depth 0 is out of range; expected 1 to 64")
        options = _capi.FeedOptions(
            struct_size=ctypes.sizeof(_capi.FeedOptions),
            device=_capi.number("device", device, ctypes.c_int), shape=1 if packed else 0,
            row_bytes_min=_capi.number("row_bytes_min", row_bytes_min, ctypes.c_uint64),
            depth=_capi.number("depth", depth, ctypes.c_uint32))
        status = _capi.library().lmdbio_feed_open(opened.handle, ctypes.byref(options),
                                                  ctypes.byref(self._handle))
        if status != _capi.OK:
            error = _capi.feed_failure(self._handle, status)
            _capi.library().lmdbio_feed_close(self._handle)
            raise error
        self._end = weakref.finalize(self, _capi.library().lmdbio_feed_close, self._handle)
        self._end.atexit = False
        view = loader._view
        self._fields = None if view is None else view.field_names
        loader._feed = weakref.ref(self)

    @property
    def is_open(self) -> bool:
        """Whether it was not closed yet."""
        return self._end.alive

    def _use(self) -> ctypes.c_void_p:
        if not self.is_open:
            raise ClosedError("the feed is closed")
        return self._handle

    def next(self, stream: Optional[int] = None) -> Optional[DeviceBatch]:
        """Returns the next batch; None after the last one (max_batches).

        stream  None: that of the constructor
        """
        handle, result = self._use(), ctypes.c_void_p()
        struct = ctypes.POINTER(_capi.DeviceBatchStruct)()
        number = _capi.number("stream", self._stream if stream is None else stream,
                              ctypes.c_uint64)
        status = _capi.TIMEOUT
        while status == _capi.TIMEOUT:
            status = _capi.library().lmdbio_feed_fetch(handle, _capi.LOOK_UP_MS, number,
                                                       ctypes.byref(result), ctypes.byref(struct))
        if status == _capi.END:
            return None
        _capi.check_feed(handle, status)
        lease = _DeviceLease(result, self.device, number)
        return DeviceBatch(struct.contents, lease, self._fields)

    def __iter__(self) -> Iterator[DeviceBatch]:
        ends_epoch = False
        while not ends_epoch:
            batch = self.next()
            if batch is None:
                return
            ends_epoch = batch.ends_epoch
            yield batch
            del batch  # its memory serves later batches, if the program has let it go

    def counters(self) -> Dict[str, Union[int, float]]:
        """Returns the counters of the feed; see lmdbio_feed_counters in lmdbio_feed.h."""
        pointer = ctypes.POINTER(_capi.FeedCounters)()
        handle = self._use()
        _capi.check_feed(handle, _capi.library().lmdbio_feed_get_counters(
            handle, ctypes.byref(pointer)))
        return {name: getattr(pointer.contents, name) for name, _ in _capi.FeedCounters._fields_}

    def describe(self) -> str:
        """Describes the GPU and the way of the values."""
        text, handle = ctypes.c_char_p(), self._use()
        _capi.check_feed(handle, _capi.library().lmdbio_feed_describe(handle, ctypes.byref(text)))
        return text.value.decode()

    def close(self) -> None:
        """Closes the feed. Batches that the program has stay valid; the loader goes on behind
        those that were under way. Closing the loader does this, too."""
        self._end()

    def __enter__(self) -> "DeviceFeed":
        return self

    def __exit__(self, *_error: Any) -> None:
        self.close()

"""A batch: its records as memoryviews and arrays, without a copy."""

from __future__ import annotations

import ctypes
from typing import Any, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from lmdbio._errors import InvalidArgumentError

# lmdbio_record
RECORD = np.dtype([("key", np.uintp), ("value", np.uintp), ("position", np.uint64),
                   ("value_size", np.uint32), ("key_size", np.uint32)])


class Spans(NamedTuple):
    """Values in one array of memory: value i is memory[offsets[i]:offsets[i] + sizes[i]]."""

    memory: np.ndarray  # [bytes] uint8
    offsets: np.ndarray  # [len] uint64
    sizes: np.ndarray  # [len] uint32, bytes


class Record(NamedTuple):
    """A key and its value."""

    key: bytes
    value: Any


class Lease:
    """An object that every view of a loader's memory holds, so the loader knows of its views."""

    __slots__ = ("handle", "__weakref__")

    def __init__(self, handle: Any) -> None:
        self.handle = handle


class _Borrowed:
    """Memory that NumPy may read and cannot make writable; keeps `lease` alive."""

    __slots__ = ("__array_interface__", "lease")

    def __init__(self, address: int, shape: Tuple[int, ...], strides: Optional[Tuple[int, ...]],
                 lease: Optional[Lease]) -> None:
        self.__array_interface__ = {"version": 3, "data": (address or 1, True), "shape": shape,
                                    "strides": strides, "typestr": "|u1"}
        self.lease = lease


def view(address: int, size: int, lease: Optional[Lease]) -> np.ndarray:
    """Returns `size` bytes at `address`, read-only."""
    return np.asarray(_Borrowed(address, (size,), None, lease))


def record_table(address: Optional[int], count: int) -> np.ndarray:
    """Returns the library's array of lmdbio_record, without a copy."""
    if count == 0:
        return np.empty(0, RECORD)
    return view(address, count * RECORD.itemsize, None).view(RECORD)


class Batch:
    """One rank's share of a batch.

    Valid until the loader's next batch, load_state_dict, set_epoch or close. Later calls raise
    RuntimeError. Older views and arrays without a copy stay readable, but show other records; copy
    data that you keep. They are read-only.
    """

    __slots__ = ("_loader", "_table", "number", "epoch", "first_position", "global_record_count",
                 "skipped_count", "ends_epoch")

    def __init__(self, loader: Any, struct: Any) -> None:
        self._loader = loader
        self._table = record_table(struct.records, struct.record_count)
        self.number: int = struct.number  # index of the batch in the stream, from 0
        self.epoch: int = struct.epoch
        self.first_position: int = struct.first_position  # of the global batch
        self.global_record_count: int = struct.global_record_count
        self.skipped_count: int = struct.skipped_count  # unreadable records (on_error="skip")
        self.ends_epoch: bool = bool(struct.ends_epoch)

    def _lease(self) -> Lease:
        return self._loader._lease_for(self)

    def _records(self) -> np.ndarray:
        self._loader._check_at_hand(self)
        return self._table

    def __len__(self) -> int:
        return len(self._table)

    def __repr__(self) -> str:
        return f"<lmdbio.Batch {self.number} of epoch {self.epoch}: {len(self)} records>"

    def key(self, i: int) -> bytes:
        """Returns a copy of the i-th key."""
        record = self._records()[i]
        return ctypes.string_at(int(record["key"]), int(record["key_size"]))

    def value(self, i: int) -> memoryview:
        """Returns the i-th value, without a copy."""
        record = self._records()[i]
        return memoryview(view(int(record["value"]), int(record["value_size"]), self._lease()))

    def __getitem__(self, i: int) -> Record:
        return Record(self.key(i), self.value(i))

    def __iter__(self) -> Iterator[Record]:
        return (self[i] for i in range(len(self)))

    def keys(self) -> List[bytes]:
        """Returns copies of the keys."""
        table = self._records()
        return [ctypes.string_at(key, size)
                for key, size in zip(table["key"].tolist(), table["key_size"].tolist())]

    def values(self) -> List[memoryview]:
        """Returns the values, without a copy."""
        table = self._records()
        memory, first = self._memory(table)
        begins = table["value"] - first
        ends, whole = begins + table["value_size"], memoryview(memory)
        return [whole[at:end] for at, end in zip(begins.tolist(), ends.tolist())]

    def spans(self) -> Spans:
        """Returns the memory, offsets and sizes of all values, without a copy: for compiled or
        vectorised code."""
        table = self._records()
        memory, first = self._memory(table)
        return Spans(memory, table["value"] - first, table["value_size"].copy())

    def _memory(self, table: np.ndarray) -> Tuple[np.ndarray, np.uintp]:
        """Returns the memory from the first value to the last, and its address."""
        if len(table) == 0:
            return np.empty(0, np.uint8), np.uintp(0)
        first = table["value"].min()
        size = int((table["value"] + table["value_size"]).max() - first)
        return view(int(first), size, self._lease()), first

    @property
    def sizes(self) -> np.ndarray:
        """[len] the size of each value in bytes."""
        return self._records()["value_size"].copy()

    @property
    def positions(self) -> np.ndarray:
        """[len] the position of each record in the global sequence."""
        return self._records()["position"].copy()

    def array(self, copy: Optional[bool] = None, out: Optional[np.ndarray] = None) -> np.ndarray:
        """Returns the values as rows of uint8, [len, size of the largest]. Shorter values end in
        zeros.

        copy  False: a view; ValueError if the values do not have one size and one distance. True: a
              copy. None: a view if possible, else a copy
        out   a writable C-contiguous array of uint8 with at least as many rows and columns. It is
              filled and returned; further rows and columns become zeros
        """
        table = self._records()
        if out is None and copy is not True:
            rows = self._view_of_rows(table)
            if rows is not None:
                return rows
            if copy is False:
                raise InvalidArgumentError(
                    "a view needs values of equal size at equal distances; use copy=True")
        if out is None:
            width = int(table["value_size"].max()) if len(table) else 0
            out = np.empty((len(table), width), np.uint8)
        elif out.dtype != np.uint8 or out.ndim != 2 or not out.flags.c_contiguous:
            raise InvalidArgumentError(
                "out must be a C-contiguous array of uint8 with two dimensions")
        elif not out.flags.writeable:
            raise InvalidArgumentError("out is read-only")
        self._loader._copy_values(out.ctypes.data, out.shape[1], out.shape[0])
        return out

    def _view_of_rows(self, table: np.ndarray) -> Optional[np.ndarray]:
        if len(table) == 0:
            return np.empty((0, 0), np.uint8)
        sizes, addresses = table["value_size"], table["value"]
        width = int(sizes[0])
        # The first and last address come first: they reveal most uneven batches at low cost.
        first = int(addresses[0])
        stride = int(addresses[1]) - first if len(table) > 1 else width
        if stride < width or int(addresses[-1]) - first != stride * (len(table) - 1):
            return None
        if not (sizes == width).all() or not (addresses[1:] - addresses[:-1] == stride).all():
            return None
        return np.asarray(_Borrowed(first, (len(table), width), (stride, 1), self._lease()))

"""A batch: its records as memoryviews and arrays, without a copy."""

from __future__ import annotations

import ctypes
from typing import Any, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from lmdbio import _capi
from lmdbio._errors import AbsentKeyError, InvalidArgumentError, InvalidStateError

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


class Lent:
    """An object that every lease of a loader holds, so the loader knows whether there are any."""

    __slots__ = ("__weakref__",)


class Lease:
    """Holds the memory of a batch, for the batch and its views, until it ends or nobody needs it.

    The memory can be read as long as the lease exists. After the end it shows other records.
    """

    __slots__ = ("owned", "result", "_lent", "__weakref__")

    def __init__(self, lent: Lent) -> None:
        self.owned: Any = None  # keeps the loader's memory
        self.result = ctypes.c_void_p()  # of lmdbio_fetch; NULL after the end
        self._lent = lent

    def end(self) -> None:
        """The memory may serve other batches from now on."""
        result, self.result = self.result, ctypes.c_void_p()
        if result.value is not None:
            _capi.library().lmdbio_result_close(result)

    def __del__(self) -> None:
        if self.result.value is not None:
            _capi.library().lmdbio_result_close(self.result)


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

    Valid until the thread that took it takes the next one, or until load_state_dict, set_epoch or
    close of the loader. Later calls raise RuntimeError. Older views and arrays without a copy stay
    readable, but show other records; copy data that you keep. They are read-only.

    With a view that has fields, batch["label"] is the batch of the records of that field, and
    batch[i] a dict of the records of a sample.

    Any thread may use it meanwhile. Its memory serves later batches when it is no longer valid, or
    when the batch and its views are gone.
    """

    __slots__ = ("_loader", "_table", "_lease", "number", "epoch", "first_position",
                 "global_record_count", "skipped_count", "ends_epoch", "fields", "__weakref__")

    def __init__(self, loader: Any, struct: Any,
                 fields: Optional[Tuple[str, ...]] = None) -> None:
        self._loader = loader
        self.fields = fields  # the names of the records of a sample; None: a sample is one record
        self._lease: Optional[Lease] = None  # while the thread that took it holds it
        # [samples * fields]
        self._table = record_table(struct.records, struct.record_count).copy()
        self.number: int = struct.number  # index of the batch in the stream, from 0
        self.epoch: int = struct.epoch
        self.first_position: int = struct.first_position  # of the global batch
        self.global_record_count: int = struct.global_record_count
        self.skipped_count: int = struct.skipped_count  # unreadable samples (on_error="skip")
        self.ends_epoch: bool = bool(struct.ends_epoch)

    def _records(self) -> Tuple[np.ndarray, Lease]:
        """Returns the table of the records, and what keeps them readable."""
        if self.fields is not None:
            raise InvalidStateError(
                f"the batch has the fields {', '.join(map(repr, self.fields))}: choose one, as in "
                f"batch[{self.fields[0]!r}]")
        return self._table, self._loader._check_at_hand(self)

    def _records_of(self, field: int) -> Tuple[np.ndarray, Lease]:
        """The same for one field."""
        lease = self._loader._check_at_hand(self)
        return self._table[field::len(self.fields)], lease  # type: ignore[arg-type]

    def _copy_values(self, result: ctypes.c_void_p, out: np.ndarray) -> None:
        _capi.check_result(result, _capi.library().lmdbio_result_copy_values(
            result, out.ctypes.data, out.shape[1], out.shape[0]))

    def __len__(self) -> int:
        return len(self._table) // (1 if self.fields is None else len(self.fields))

    def __repr__(self) -> str:
        return f"<lmdbio.Batch {self.number} of epoch {self.epoch}: {len(self)} " + (
            "records>" if self.fields is None else f"samples of {', '.join(self.fields)}>")

    def key(self, i: int) -> bytes:
        """Returns a copy of the i-th key."""
        table, _lease = self._records()
        record = table[i]
        return ctypes.string_at(int(record["key"]), int(record["key_size"]))

    def value(self, i: int) -> memoryview:
        """Returns the i-th value, without a copy."""
        table, lease = self._records()
        record = table[i]
        return memoryview(view(int(record["value"]), int(record["value_size"]), lease))

    def __getitem__(self, i: Any) -> Any:
        """Returns the i-th record, or with fields a dict of the records of the i-th sample. By the
        name of a field, the batch of its records."""
        if isinstance(i, str):
            if i not in (self.fields or ()):
                has = "no fields" if self.fields is None else (
                    f"the fields {', '.join(map(repr, self.fields))}")
                raise AbsentKeyError(f"the batch has no field {i!r}; it has {has}")
            return FieldBatch(self, self.fields.index(i))  # type: ignore[union-attr]
        if self.fields is None:
            return Record(self.key(i), self.value(i))
        return {name: self[name][i] for name in self.fields}

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def keys(self) -> List[bytes]:
        """Returns copies of the keys."""
        table, _lease = self._records()
        return [ctypes.string_at(key, size)
                for key, size in zip(table["key"].tolist(), table["key_size"].tolist())]

    def values(self) -> List[memoryview]:
        """Returns the values, without a copy."""
        table, lease = self._records()
        memory, first = self._memory(table, lease)
        begins = table["value"] - first
        ends, whole = begins + table["value_size"], memoryview(memory)
        return [whole[at:end] for at, end in zip(begins.tolist(), ends.tolist())]

    def spans(self) -> Spans:
        """Returns the memory, offsets and sizes of all values, without a copy: for compiled or
        vectorised code."""
        table, lease = self._records()
        memory, first = self._memory(table, lease)
        return Spans(memory, table["value"] - first, table["value_size"].copy())

    @staticmethod
    def _memory(table: np.ndarray, lease: Lease) -> Tuple[np.ndarray, np.uintp]:
        """Returns the memory from the first value to the last, and its address."""
        if len(table) == 0:
            return np.empty(0, np.uint8), np.uintp(0)
        first = table["value"].min()
        size = int((table["value"] + table["value_size"]).max() - first)
        return view(int(first), size, lease), first

    @property
    def sizes(self) -> np.ndarray:
        """[len] the size of each value in bytes."""
        return self._records()[0]["value_size"].copy()

    @property
    def positions(self) -> np.ndarray:
        """[len] the position of each record, or sample, in the global sequence."""
        if self.fields is not None:
            return self[self.fields[0]].positions
        return self._records()[0]["position"].copy()

    def array(self, copy: Optional[bool] = None, out: Optional[np.ndarray] = None) -> np.ndarray:
        """Returns the values as rows of uint8, [len, size of the largest]. Shorter values end in
        zeros.

        copy  False: a view; ValueError if the values do not have one size and one distance. True: a
              copy. None: a view if possible, else a copy
        out   a writable C-contiguous array of uint8 with at least as many rows and columns. It is
              filled and returned; further rows and columns become zeros
        """
        table, lease = self._records()
        if out is None and copy is not True:
            rows = self._view_of_rows(table, lease)
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
        self._copy_values(lease.result, out)
        return out

    def to(self, device: Any, non_blocking: bool = False) -> Any:
        """Returns the values as a tensor of PyTorch on a device: rows of uint8, shorter values end
        in zeros; of a view with fields, a dict of them. They are copied, and the host waits;
        lmdbio.DeviceFeed copies batches ahead of the program. non_blocking has no effect."""
        from lmdbio._torch_feed import values_on

        return values_on(self, device)

    @staticmethod
    def _view_of_rows(table: np.ndarray, lease: Lease) -> Optional[np.ndarray]:
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
        return np.asarray(_Borrowed(first, (len(table), width), (stride, 1), lease))


class FieldBatch(Batch):
    """The records of one field of a batch, one for each sample. Valid as long as the batch."""

    __slots__ = ("_whole", "_index")

    def __init__(self, whole: Batch, index: int) -> None:
        self._whole, self._index = whole, index
        self.fields = None
        self._table = whole._table[index::len(whole.fields)]  # type: ignore[arg-type]
        for name in ("number", "epoch", "first_position", "global_record_count", "skipped_count",
                     "ends_epoch"):
            setattr(self, name, getattr(whole, name))

    def _records(self) -> Tuple[np.ndarray, Lease]:
        return self._whole._records_of(self._index)

    def _copy_values(self, result: ctypes.c_void_p, out: np.ndarray) -> None:
        _capi.check_result(result, _capi.library().lmdbio_result_copy_field(
            result, self._index, out.ctypes.data, out.shape[1], out.shape[0]))

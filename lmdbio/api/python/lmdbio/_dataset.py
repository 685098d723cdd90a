"""Records of an LMDB database by number."""

from __future__ import annotations

import ctypes
import operator
import os
import threading
import weakref
from collections.abc import Sequence
from typing import Any, Callable, Dict, List, Optional, Union

import numpy as np

from lmdbio import _capi
from lmdbio._batch import Record, record_table
from lmdbio._errors import (
    ClosedError,
    InvalidIndexError,
    InvalidStateError,
    InvalidTypeError,
    StaleError,
)

_HINTS = {"b": "; numpy.flatnonzero(mask) returns the numbers of a mask",
          "f": "; array.astype(int) converts floats to integers",
          "S": "; keys cannot be looked up"}


def _refusal(what: str, hint: str = "") -> InvalidTypeError:
    return InvalidTypeError(f"records are selected by number, not by {what}: pass an integer, a "
                            f"slice, or a sequence or array of integers{_HINTS.get(hint, '')}")


def _as_numbers(wanted: Any) -> Any:
    """Returns an int, or a sequence whose elements are still unchecked."""
    if hasattr(wanted, "__array__"):  # an array of NumPy, PyTorch or another package
        array = np.asarray(wanted)
        if array.dtype.kind not in "iu":
            raise _refusal(f"values of type {array.dtype}", array.dtype.kind)
        if array.ndim > 1:
            raise _refusal(f"an array of {array.ndim} dimensions")
        return array.tolist()
    if isinstance(wanted, (str, bytes, bytearray, memoryview)):
        raise _refusal(type(wanted).__name__, "S")
    if isinstance(wanted, Sequence):
        return wanted
    if isinstance(wanted, bool):
        raise _refusal("bool", "b")
    try:
        return operator.index(wanted)
    except TypeError:
        raise _refusal(type(wanted).__name__) from None


class _Turn:
    """The lock of the thread whose call runs. That thread may lock it again, so that a signal
    handler gets an error instead of waiting for the call that it interrupted."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.is_taken = False


class Dataset:
    """Reads records by number: dataset[7], dataset[-1], dataset[10:20], dataset[[3, 1, 4]].

    Numbers are integers in key order, from 0. Several numbers are a slice, a sequence, or an array
    of any integer type.

    Keys and values are copies and stay valid. The records of one call are read together, in file
    order: prefer a list of numbers, or `__getitems__`, to a loop.

    Any thread may use a dataset, and gets the records that it requested: calls take turns. A
    dataset can be pickled, and used after fork: the other process opens its own when it first
    reads. A handler of signals or of the log cannot use the dataset whose call it interrupts.
    """

    # Begin generated Dataset: scripts/generate_options.py, from api/options.toml.
    def __init__(self, path: Union[str, os.PathLike], *, database_name: Optional[str] = None,
                 snapshot: str = "immutable", queue_depth: int = 32, block_bytes: int = 1 << 20,
                 engine: Optional[str] = None, cache: Optional[str] = None) -> None:
        """Opens the database.

        path                 A directory with data.mdb, or a data file.

        Data:
        database_name        The named database to read. None: the main database.
        snapshot             The protection against a writer that changes the file. "immutable": For
                             files that no process changes. A change is detected at the end of an
                             epoch. "optimistic": Every slot is checked after it has been read.
                             "pinned": A read transaction of liblmdb keeps the pages in place. It
                             needs the lock file.

        Reading:
        queue_depth          The number of reads in flight for each reader.
        block_bytes          The size of the largest read. A multiple of 4,096. At the default, the
                             -coal strategies derive larger reads from memory_budget_bytes.
        engine               The code that executes reads, if the strategy does not determine it.
                             None: the strategy chooses. "mmap": Copies from a map of the file.
                             "pread": Threads with one blocking read each. "uring": io_uring.
        cache                The use of the page cache, if the strategy does not determine it. None:
                             the strategy chooses. "buffered": Reads go through the page cache.
                             "direct": Reads bypass the page cache (O_DIRECT). "mixed": Reads take
                             what the page cache has, and bypass it for the rest.
        """
        self._begin(path, dict(
            database_name=database_name, snapshot=snapshot, queue_depth=queue_depth,
            block_bytes=block_bytes, engine=engine, cache=cache))
    # End generated Dataset.

    def _begin(self, path: Union[str, os.PathLike], options: Dict[str, Any]) -> None:
        self._path = os.fspath(path)
        self._fields = _capi.option_fields(options)
        self._handle: Optional[ctypes.c_void_p] = None
        self._is_closed = False
        self._count: Optional[int] = None  # None until it has been opened once
        self._turns: Dict[int, _Turn] = {}
        self._in_turn(self._use)

    def _in_turn(self, call: Callable[..., Any], *arguments: Any) -> Any:
        # Each process has its own lock: a child of fork() may inherit one that is never unlocked.
        turn = self._turns.setdefault(os.getpid(), _Turn())
        with turn.lock:
            if turn.is_taken:
                raise InvalidStateError("the dataset is in use by the call that this handler "
                                        "interrupted")
            try:
                turn.is_taken = True
                return call(*arguments)
            finally:
                turn.is_taken = False

    def _use(self) -> ctypes.c_void_p:
        if self._is_closed:
            raise ClosedError("the dataset is closed")
        if self._handle is not None and self._pid != os.getpid():
            self._drop()
        if self._handle is None:
            handle = _capi.open_dataset(self._path, _capi.options_of(self._fields))
            self._closer = weakref.finalize(self, _capi.library().lmdbio_dataset_close, handle)
            self._pid = os.getpid()
            self._handle = handle  # set last: a child forked meanwhile has all fields or none
            self._check_count()
        return self._handle

    def _check_count(self) -> None:
        """Checks that the file is unchanged: another process may have received this dataset."""
        count = ctypes.c_uint64()
        status = _capi.library().lmdbio_dataset_count(self._handle, ctypes.byref(count))
        _capi.check_dataset(self._handle, status)
        if self._count not in (None, count.value):
            self._drop()
            raise StaleError(f"{self._path}: has {count.value} records, but had {self._count} when "
                             f"the dataset was opened")
        self._count = count.value

    def _drop(self) -> None:
        if self._handle is not None:
            self._closer.detach()
            _capi.library().lmdbio_dataset_close(self._handle)
            self._handle = None

    def __len__(self) -> int:
        return self._count

    def _number(self, i: Any) -> int:
        number = i if type(i) is int else _as_numbers(i)
        if not isinstance(number, int):
            raise _refusal(f"sequences of {type(i).__name__}")
        if not -self._count <= number < self._count:
            raise InvalidIndexError(f"record {number} is out of range; "
                                    f"the dataset has {self._count} records")
        return number % self._count

    def _range(self, wanted: slice) -> range:
        try:
            return range(*wanted.indices(self._count))
        except TypeError:
            raise _refusal("a slice of other types") from None

    def __getitem__(self, i: Any) -> Union[Record, List[Record]]:
        if isinstance(i, slice):
            return self.__getitems__(self._range(i))
        numbers = _as_numbers(i)
        if isinstance(numbers, int):
            return self.__getitems__((numbers,))[0]
        return self.__getitems__(numbers)

    def __getitems__(self, numbers: Any) -> List[Record]:
        """Returns several records in the requested order. PyTorch's DataLoader calls this for a
        whole batch.

        numbers  a sequence or array of integers
        """
        many = _as_numbers(numbers)
        if isinstance(many, int):
            raise _refusal("one integer if several records are read together")
        wanted = np.fromiter((self._number(i) for i in many), np.uint64, len(many))
        return self._in_turn(self._read, wanted)

    def _read(self, wanted: np.ndarray) -> List[Record]:
        handle = self._use()
        address = ctypes.c_void_p()
        status = _capi.library().lmdbio_dataset_read(handle, wanted.ctypes.data, len(wanted),
                                                     ctypes.byref(address))
        _capi.check_dataset(handle, status)
        table = record_table(address.value, len(wanted))
        copy = ctypes.string_at
        return [Record(copy(key, key_size), copy(value, value_size))
                for key, value, _, value_size, key_size in table.tolist()]

    def close(self) -> None:
        """Closes the database and releases its memory. Waits for calls of other threads."""
        self._in_turn(self._close)

    def _close(self) -> None:
        self._drop()
        self._is_closed = True

    def __enter__(self) -> "Dataset":
        return self

    def __exit__(self, *_error: Any) -> None:
        self.close()

    def __getstate__(self) -> Dict[str, Any]:
        return {"path": self._path, "fields": self._fields, "count": self._count,
                "is_closed": self._is_closed}

    def __setstate__(self, pickled: Dict[str, Any]) -> None:
        self._path, self._fields = pickled["path"], pickled["fields"]
        self._count, self._is_closed = pickled["count"], pickled["is_closed"]
        self._handle = None
        self._turns = {}

"""Records of an LMDB database by number."""

from __future__ import annotations

import ctypes
import operator
import os
import threading
import weakref
from collections.abc import Sequence
from typing import Any, Dict, List, NamedTuple, Optional, Union

import numpy as np

from lmdbio import _capi
from lmdbio._batch import Record, record_table
from lmdbio._errors import (
    ClosedError,
    InvalidIndexError,
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


class _Opened(NamedTuple):
    """An open handle, and the process that opened it."""

    handle: ctypes.c_void_p
    process: int


class Dataset:
    """Reads records by number: dataset[7], dataset[-1], dataset[10:20], dataset[[3, 1, 4]].

    Numbers are integers in key order, from 0. Several numbers are a slice, a sequence, or an array
    of any integer type.

    Keys and values are copies and stay valid. The records of one call are read together, in file
    order: prefer a list of numbers, or `__getitems__`, to a loop.

    Any number of threads may use a dataset at the same time; each gets the records that it
    requested, and none waits for another one's reads. As many threads as read at the same time need
    memory and a queue each. A dataset can be pickled, and used after fork: the other process opens
    its own when it first reads.
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
        self._opened: Optional[_Opened] = None
        self._is_closed = False
        self._count: Optional[int] = None  # None until it has been opened once
        self._locks: Dict[int, threading.RLock] = {}
        self._use()

    def _lock(self) -> threading.RLock:
        """Returns the lock for opening and closing. Each process has its own: a child of fork() may
        inherit one that is never unlocked. The thread that holds it may lock it again, because a
        handler of signals may use the dataset."""
        return self._locks.setdefault(os.getpid(), threading.RLock())

    def _use(self) -> ctypes.c_void_p:
        opened = self._opened
        if opened is not None and opened.process == os.getpid():
            return opened.handle
        with self._lock():
            if self._is_closed:
                raise ClosedError("the dataset is closed")
            if self._opened is None or self._opened.process != os.getpid():
                self._open()
            return self._opened.handle

    def _open(self) -> None:
        self._drop()
        handle = _capi.open_dataset(self._path, _capi.options_of(self._fields))
        try:
            self._check_count(handle)
        except Exception:
            _capi.library().lmdbio_dataset_close(handle)
            raise
        self._closer = weakref.finalize(self, _capi.library().lmdbio_dataset_close, handle)
        self._opened = _Opened(handle, os.getpid())  # last: others see all of it or nothing

    def _check_count(self, handle: ctypes.c_void_p) -> None:
        """Checks that the file is unchanged: another process may have received this dataset."""
        count = ctypes.c_uint64()
        status = _capi.library().lmdbio_dataset_count(handle, ctypes.byref(count))
        _capi.check_dataset(handle, status)
        if self._count not in (None, count.value):
            raise StaleError(f"{self._path}: has {count.value} records, but had {self._count} when "
                             f"the dataset was opened")
        self._count = count.value

    def _drop(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            self._closer.detach()
            _capi.library().lmdbio_dataset_close(opened.handle)

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
        return self._read(wanted)

    def _read(self, wanted: np.ndarray) -> List[Record]:
        handle, library = self._use(), _capi.library()
        result, address = ctypes.c_void_p(), ctypes.c_void_p()
        status = library.lmdbio_dataset_fetch(handle, wanted.ctypes.data, len(wanted),
                                              ctypes.byref(result), ctypes.byref(address))
        if status == _capi.BAD_HANDLE and self._is_closed:  # by another thread, meanwhile
            raise ClosedError("the dataset is closed")
        _capi.check_dataset(handle, status)
        try:
            table = record_table(address.value, len(wanted))
            copy = ctypes.string_at
            return [Record(copy(key, key_size), copy(value, value_size))
                    for key, value, _, value_size, key_size in table.tolist()]
        finally:
            library.lmdbio_result_close(result)

    def close(self) -> None:
        """Closes the database and releases its memory. Reads of other threads that have begun
        still succeed."""
        with self._lock():
            self._is_closed = True
            self._drop()

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
        self._opened = None
        self._locks = {}

"""Records of an LMDB database by number and by key."""

from __future__ import annotations

import ctypes
import operator
import os
import threading
import warnings
import weakref
from collections.abc import Sequence
from typing import Any, Dict, List, NamedTuple, Optional, Union

import numpy as np

from lmdbio import _capi
from lmdbio._batch import Record
from lmdbio._errors import (
    AbsentKeyError,
    ClosedError,
    InvalidIndexError,
    InvalidTypeError,
    KeyOrderWarning,
    StaleError,
)
from lmdbio._files import Files, files_of
from lmdbio._keys import Keys, KeyTable, as_key, as_keys, first_if, is_key, words_of_absent
from lmdbio._parts import Result, copies_of
from lmdbio._view import View, taken_apart

# Keys are looked at for numbers without leading zeros in databases with more records.
_ORDERED_COUNT_MAX = 10
_LOOKED_AT = 16

_HINTS = {"b": "; numpy.flatnonzero(mask) returns the numbers of a mask",
          "f": "; array.astype(int) converts floats to integers"}


def _refusal(what: str, hint: str = "") -> InvalidTypeError:
    return InvalidTypeError(f"records are selected by number or by key, not by {what}: pass an "
                            f"integer, a slice, a key (bytes or str), or a sequence or array of "
                            f"integers or of keys{_HINTS.get(hint, '')}")


def _is_selection(array: np.ndarray) -> bool:
    return array.dtype.kind in "iuSU" or (
        array.dtype.kind == "O" and array.size > 0 and all(map(is_key, array.flat)))


def _as_numbers(wanted: Any) -> Any:
    """Returns an int, or a sequence whose elements are still unchecked: numbers or keys."""
    if hasattr(wanted, "__array__") and not is_key(wanted):  # of NumPy, PyTorch or another package
        array = np.asarray(wanted)
        if not _is_selection(array):
            raise _refusal(f"values of type {array.dtype}", array.dtype.kind)
        if array.ndim > 1:
            raise _refusal(f"an array of {array.ndim} dimensions")
        return array.tolist()
    if is_key(wanted):
        raise _refusal(f"one key ({type(wanted).__name__}) among numbers, or in place of several")
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
    """Reads records by number: dataset[7], dataset[-1], dataset[10:20], dataset[[3, 1, 4]], and by
    key: dataset[b"image-000000001"], dataset[["image-000000001", "image-000000002"]].

    Numbers are integers in key order, from 0. Several numbers are a slice, a sequence, or an array
    of any integer type. A key is bytes as they are stored, or a str, which is encoded as UTF-8;
    several keys are a sequence or an array. So the key "7" is not the number 7. An absent key
    raises KeyError. Of a key with several values (MDB_DUPSORT) the first is read.

    With a View in place of the path, numbers are those of its samples. A sample is a Record, or
    with fields a dict of Records: dataset[7]["label"]. find and index give numbers of samples; get,
    dataset[key], `in` and count ask the database, so they also reach records that the view leaves
    out. Without a view, KeyOrderWarning tells of keys whose order is not that of their numbers.

    Several files are read as one: a list of paths, or of pairs of a path and the name of a
    database; a folder of data files; or a glob. Folders and globs are in natural order: data.2
    before data.10. The records of a file follow those of the files before it. A key is looked up in
    one file after the other, and the first that has it answers.

    Keys and values are copies and stay valid. The records of one call are read together, in file
    order: prefer a list of numbers or keys, or `__getitems__`, to a loop.

    Any number of threads may use a dataset at the same time; each gets the records that it
    requested, and none waits for another one's reads. As many threads as read at the same time need
    memory and a queue each. A dataset can be pickled, and used after fork: the other process opens
    its own when it first reads.
    """

    # Begin generated Dataset: scripts/generate_options.py, from api/options.toml.
    def __init__(self, path: Union[Files, View], *, database_name: Optional[str] = None,
                 snapshot: str = "immutable", queue_depth: int = 32, block_bytes: int = 1 << 20,
                 engine: Optional[str] = None, cache: Optional[str] = None,
                 layout_cache: Optional[str] = None, open_files_max: Optional[int] = 0) -> None:
        """Opens the database.

        path                 A directory with data.mdb, or a data file. Several files as one:
                             another directory, a glob, or a list of paths and of pairs (path,
                             database name). Or a View of them.

        Data:
        database_name        The named database to read. None: the main database.
        snapshot             The protection against a writer that changes the file. "immutable": For
                             files that no process changes. A change is detected at the end of an
                             epoch. "optimistic": Every slot is checked after it has been read.
                             "pinned": A read transaction of liblmdb keeps the pages in place. It
                             needs the lock file.
        layout_cache         The folder that keeps the layout of a walked database for later jobs,
                             with strategy auto, one reader on one host and no provenance. "off":
                             none. None: the folder in LMDBIO_CACHE, which may be "off"; else lmdbio
                             in the user's cache folder.

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
        open_files_max       The most descriptors of data files that are open at the same time, if
                             there are several files. A file may need two. With fewer descriptors
                             than files, files are opened again for later reads. 0: a quarter of
                             those that the process may have, and at most 1,024.
        """
        self._begin(path, dict(
            database_name=database_name, snapshot=snapshot, queue_depth=queue_depth,
            block_bytes=block_bytes, engine=engine, cache=cache, layout_cache=layout_cache,
            open_files_max=open_files_max))
    # End generated Dataset.

    def _begin(self, path: Any, options: Dict[str, Any]) -> None:
        path, self._view = taken_apart(path, options)
        self._names = None if self._view is None else self._view.field_names
        self._path = files_of(path)
        self._fields = _capi.option_fields(options)
        self._opened: Optional[_Opened] = None
        self._is_closed = False
        self._count: Optional[int] = None  # None until it has been opened once
        self._locks: Dict[int, threading.RLock] = {}
        self._has_key_index = False
        self._knows_order = self._view is not None
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
        handle = _capi.open_dataset(self._path, _capi.options_of(self._fields, self._view))
        try:
            self._check_count(handle)
            if self._has_key_index:
                _capi.check_dataset(handle, _capi.library().lmdbio_dataset_use_key_index(handle))
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
            raise StaleError(f"{self._path}: has {count.value} {self._word}s, but had "
                             f"{self._count} when the dataset was opened")
        self._count = count.value

    @property
    def _word(self) -> str:
        return "record" if self._view is None else "sample"

    def _check_order(self) -> None:
        """Warns, once, if keys are decimal numbers whose order is not that of the keys."""
        self._knows_order = True
        if self._count <= _ORDERED_COUNT_MAX:
            return
        keys = self._read_keys(0, min(self._count, _LOOKED_AT))
        is_plain = all(key.isdigit() and (key == b"0" or key[:1] != b"0") for key in keys)
        if not is_plain or len({len(key) for key in keys}) == 1:
            return
        last = self._read_keys(self._count - 1, 1)[0]
        exclude = "" if last.isdigit() else f", exclude=[{last!r}]"
        warnings.warn(
            f"{self._path}: numbers count the records in key order, but the keys are decimal "
            f"numbers without leading zeros: record 2 has the key {keys[2]!r}. For the order of "
            f"the numbers, open lmdbio.Dataset(lmdbio.View(path, order=\"numeric\"{exclude})); "
            f"order=\"key\" keeps this order without a warning", KeyOrderWarning, stacklevel=4)

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
            raise InvalidIndexError(f"{self._word} {number} is out of range; "
                                    f"the dataset has {self._count} {self._word}s")
        return number % self._count

    def _range(self, wanted: slice) -> range:
        try:
            return range(*wanted.indices(self._count))
        except TypeError:
            raise _refusal("a slice of other types") from None

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return self.__getitems__(self._range(i))
        if is_key(i):
            return self._get_all([as_key(i)])[0]
        numbers = _as_numbers(i)
        if isinstance(numbers, int):
            return self.__getitems__((numbers,))[0]
        return self.__getitems__(numbers)

    def __getitems__(self, numbers: Any) -> List[Any]:
        """Returns several records, or samples of the view, in the requested order. PyTorch's
        DataLoader calls this for a whole batch.

        numbers  a sequence or array of integers, or of keys
        """
        many = _as_numbers(numbers)
        if isinstance(many, int):
            raise _refusal("one integer if several records are read together")
        if len(many) > 0 and is_key(many[0]):
            for key in many:
                if not is_key(key):
                    raise _refusal(f"keys and {type(key).__name__} in one call")
            return self._get_all([as_key(key) for key in many])
        wanted = np.fromiter((self._number(i) for i in many), np.uint64, len(many))
        if not self._knows_order:
            self._check_order()

        def read(first: int, count: int) -> Result:
            address = wanted.ctypes.data + first * wanted.itemsize
            return self._read("lmdbio_dataset_fetch", address, count)
        return self._of_view(copies_of(read, len(wanted), None))

    def _call(self, name: str, *arguments: Any) -> None:
        handle = self._use()
        status = getattr(_capi.library(), name)(handle, *arguments)
        if status == _capi.BAD_HANDLE and self._is_closed:  # by another thread, meanwhile
            raise ClosedError("the dataset is closed")
        _capi.check_dataset(handle, status)

    def _read(self, name: str, what: int, count: int, is_samples: bool = True) -> Result:
        """Makes a call of the C API that returns records.

        is_samples  whether the call counts samples of the view, and not records
        """
        handle, address = ctypes.c_void_p(), ctypes.c_void_p()
        self._call(name, what, count, ctypes.byref(handle), ctypes.byref(address))
        if is_samples and self._names is not None:
            count *= len(self._names)
        return Result(handle, address.value, count)

    def _of_view(self, records: List[Any]) -> List[Any]:
        """Returns records, or dicts of them with the names of the fields."""
        names = self._names
        if names is None:
            return records
        return [dict(zip(names, records[at:at + len(names)]))
                for at in range(0, len(records), len(names))]

    def _get(self, keys: List[bytes], default: Any) -> List[Any]:
        table = KeyTable(keys)  # until the last call has returned

        def read(first: int, count: int) -> Result:
            return self._read("lmdbio_dataset_get", table.address_of(first), count, False)
        return copies_of(read, len(keys), default)

    def _get_all(self, keys: List[bytes]) -> List[Record]:
        records = self._get(keys, None)
        is_found = [record is not None for record in records]
        if not all(is_found):
            raise AbsentKeyError(words_of_absent(self._path, keys, is_found))
        return records

    def _read_keys(self, first: int, count: int) -> List[Any]:
        samples = self._of_view(self._read("lmdbio_dataset_keys", first, count).copies(None))
        if self._names is None:
            return [record.key for record in samples]
        return [{name: record.key for name, record in sample.items()} for sample in samples]

    def get(self, keys: Any, default: Any = None) -> Any:
        """Returns the record of a key, or `default` if it is absent. For several keys, a list of
        records and defaults; they are read together.

        keys  a key, or an iterable or array of keys
        """
        wanted, is_single = as_keys(keys)
        return first_if(is_single, self._get(wanted, default))

    def find(self, keys: Any) -> Any:
        """Returns the number of a key's record, -1 if it is absent: dataset[number] is that record.
        With a view, the number of the first sample that has the record. For several keys, an array
        [keys] int64. Of a key with several values, the number of the first; the others follow.

        The first call waits until all records are located.
        keys  a key, or an iterable or array of keys
        """
        wanted, is_single = as_keys(keys)
        numbers = np.empty(len(wanted), np.int64)  # LMDBIO_NO_RECORD is -1
        table = KeyTable(wanted)
        self._call("lmdbio_dataset_find", table.address, len(wanted), numbers.ctypes.data, None)
        return int(numbers[0]) if is_single else numbers

    def index(self, keys: Any) -> Any:
        """Does the same as `find`, but raises KeyError, with the first absent key, if not all keys
        are there."""
        wanted, is_single = as_keys(keys)
        numbers = self.find(wanted)
        if (numbers < 0).any():
            raise AbsentKeyError(words_of_absent(self._path, wanted, numbers >= 0))
        return int(numbers[0]) if is_single else numbers

    def count(self, keys: Any) -> Any:
        """Returns the number of values of a key: 0 if it is absent, and more than 1 in databases
        with duplicates only. For several keys, an array [keys] int64."""
        wanted, is_single = as_keys(keys)
        counts = np.empty(len(wanted), np.int64)
        table = KeyTable(wanted)
        self._call("lmdbio_dataset_find", table.address, len(wanted), None, counts.ctypes.data)
        return int(counts[0]) if is_single else counts

    def __contains__(self, key: Any) -> bool:
        return self.count(as_key(key)) > 0

    def use_key_index(self) -> None:
        """Makes the calls with keys use an index from the hashes of all keys to their numbers, from
        now on. The real keys are compared. The index is the one that an earlier process has kept
        (layout_cache), or a new one, which is then kept. It takes 8 bytes of memory for each key.

        Without an index keys are found by going down the tree, which is enough for most uses. The
        index needs no order of keys, so it also serves databases with a comparison function of the
        program that wrote them."""
        self._call("lmdbio_dataset_use_key_index")
        self._has_key_index = True  # also in other processes

    def keys(self) -> Keys:
        """Returns the keys of all records, in order, to iterate over; of a view with fields, dicts
        of them. They are read in parts, when they are needed; values are not read."""
        return Keys(self)

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
                "is_closed": self._is_closed, "has_key_index": self._has_key_index,
                "view": self._view, "knows_order": self._knows_order}

    def __setstate__(self, pickled: Dict[str, Any]) -> None:
        self._path, self._fields = pickled["path"], pickled["fields"]
        self._count, self._is_closed = pickled["count"], pickled["is_closed"]
        self._has_key_index = pickled["has_key_index"]
        self._view, self._knows_order = pickled["view"], pickled["knows_order"]
        self._names = None if self._view is None else self._view.field_names
        self._opened = None
        self._locks = {}

"""Copies of many records, read in parts.

While one part is copied into objects of Python, a thread reads the next one. The library's memory
holds two parts, and not all records.
"""

from __future__ import annotations

import ctypes
import threading
from concurrent.futures import Future
from typing import Any, Callable, List, Optional

from lmdbio import _capi
from lmdbio._batch import Record, record_table

# Up to so many samples are read at once.
_ALONE_MAX = 256
# The first of several parts. Its size tells how many samples the others have.
_FIRST_COUNT = 64
_PART_BYTES = 32 << 20


class Result:
    """Records in the library's memory."""

    def __init__(self, handle: ctypes.c_void_p, address: Optional[int], record_count: int) -> None:
        """Takes a result handle, and closes it in the end."""
        self._handle = handle
        self._table = record_table(address, record_count)

    @property
    def size_bytes(self) -> int:
        return int(self._table["value_size"].sum()) + int(self._table["key_size"].sum())

    def copies(self, default: Any) -> List[Any]:
        """Returns the records; `default` for those that are absent. Ends the result."""
        copy = ctypes.string_at
        try:
            return [Record(copy(key, key_size), copy(value, value_size)) if key else default
                    for key, value, _, value_size, key_size in self._table.tolist()]
        finally:
            self._close()

    def _close(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            _capi.library().lmdbio_result_close(handle)

    def __del__(self) -> None:
        self._close()


# Reads the samples [first, first + count) of those that are wanted.
Read = Callable[[int, int], Result]


def _begin(read: Read, first: int, count: int) -> Future[Result]:
    """Lets a thread read."""
    reading: Future[Result] = Future()

    def run() -> None:
        try:
            reading.set_result(read(first, count))
        except BaseException as error:  # for the thread that waits
            reading.set_exception(error)
    try:
        threading.Thread(target=run, name="lmdbio-read", daemon=True).start()
    except RuntimeError:  # the system has no more threads for the process, or it is exiting
        run()
    return reading


def copies_of(read: Read, count: int, default: Any) -> List[Any]:
    """Returns copies of all `count` samples; `default` for records that are absent."""
    if count <= _ALONE_MAX:
        return read(0, count).copies(default)
    part = read(0, _FIRST_COUNT)
    part_count = max(_FIRST_COUNT * _PART_BYTES // max(part.size_bytes, 1), _FIRST_COUNT)
    records: List[Any] = []
    first = _FIRST_COUNT
    while first < count:
        taken = min(part_count, count - first)
        reading = _begin(read, first, taken)
        records += part.copies(default)
        part = reading.result()
        first += taken
    records += part.copies(default)
    return records

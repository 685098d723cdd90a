"""Copies of many records, read in parts.

While one part is copied into objects of Python, a thread reads the next one. The library's memory
holds two parts, and not all records.
"""

from __future__ import annotations

import ctypes
import queue
import threading
from concurrent.futures import Future
from typing import Any, Callable, List, Optional, Tuple

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


class _Reader:
    """One thread that reads parts in turn.

    The kernel makes threads for the reads of io_uring that must wait, as many as are in flight, and
    keeps them for the thread that asked. A new thread for each part would have none of them.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self._wanted: queue.SimpleQueue[Optional[Tuple[Future[Result], int, int]]] = (
            queue.SimpleQueue())
        self._has_thread = True
        try:
            threading.Thread(target=self._run, name="lmdbio-read", daemon=True).start()
        except RuntimeError:  # no more threads for the process, or it is exiting
            self._has_thread = False

    def begin(self, first: int, count: int) -> Future[Result]:
        """Reads a part: in the thread, or now if there is none."""
        part: Future[Result] = Future()
        if self._has_thread:
            self._wanted.put((part, first, count))
        else:
            self._fill(part, first, count)
        return part

    def end(self) -> None:
        """Ends the thread, after the part that it reads."""
        self._wanted.put(None)

    def _run(self) -> None:
        while (wanted := self._wanted.get()) is not None:
            self._fill(*wanted)
            del wanted  # with the part, which may be the last reference to its result

    def _fill(self, part: Future[Result], first: int, count: int) -> None:
        try:
            part.set_result(self._read(first, count))
        except BaseException as error:  # for the thread that waits
            part.set_exception(error)


def copies_of(read: Read, count: int, default: Any) -> List[Any]:
    """Returns copies of all `count` samples; `default` for records that are absent."""
    if count <= _ALONE_MAX:
        return read(0, count).copies(default)
    part = read(0, _FIRST_COUNT)
    part_count = max(_FIRST_COUNT * _PART_BYTES // max(part.size_bytes, 1), _FIRST_COUNT)
    records: List[Any] = []
    reader = _Reader(read)
    try:
        for first in range(_FIRST_COUNT, count, part_count):
            reading = reader.begin(first, min(part_count, count - first))
            records += part.copies(default)
            part = reading.result()
    finally:
        reader.end()
    records += part.copies(default)
    return records

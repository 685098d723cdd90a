"""Memory in which a worker process hands arrays over to another process, without a copy.

The worker has an Outbox: one anonymous file in memory (memfd) that both processes map. It writes an
array into a parcel of it and sends a ticket, which is small. The receiver makes an array of the
ticket. When that array and all its views are gone, the receiver clears the ticket's flag, and the
worker uses the parcel again.

    bytes 0 to TICKETS_MAX   the flags: 1 while a ticket is on its way or in use. Only the worker
                             sets one, only the receiver clears one, and each store is one byte
    byte IS_OPEN_AT          1 after the receiver has mapped the memory
    byte STAMP_AT            8 random bytes, which tell this outbox from others
    from the second page on  the parcels
"""

from __future__ import annotations

import bisect
import collections
import contextlib
import mmap
import multiprocessing.reduction
import os
import threading
import time
from typing import Any, Deque, Dict, List, NamedTuple, Optional

import numpy as np

from lmdbio._errors import InvalidArgumentError

TICKETS_MAX = 1024
IS_OPEN_AT = 1024
STAMP_AT = 1032
DESCRIPTOR_PERIOD_S = 0.1
SPARE_BYTES = 64 << 20  # free memory that an outbox keeps, in addition to as much as it uses


class OutboxName(NamedTuple):
    """Identifies an outbox among all that the receiver may know."""

    pid: int  # of the worker
    fd: int  # the worker's descriptor of the memory
    stamp: bytes  # because numbers of processes are used again


class Ticket(NamedTuple):
    """A part of a parcel, as the receiver gets it."""

    outbox: OutboxName
    descriptor: Any  # DupFd until the receiver has mapped the memory, then None
    flag: int
    start: int  # bytes from the begin of the memory
    size: int  # bytes


class _Parcel:
    __slots__ = ("start", "end", "holders")

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end
        self.holders = 1  # arrays of the worker, and tickets


class Held:
    """Memory that NumPy may write. It calls `let_go(what)` when no view of it is left."""

    __slots__ = ("__array_interface__", "_keep", "_let_go", "_what", "_pid")

    def __init__(self, address: int, size: int, keep: Any, let_go: Any, what: Any) -> None:
        self.__array_interface__ = {"version": 3, "data": (address, False), "shape": (size,),
                                    "typestr": "|u1"}
        self._keep, self._let_go, self._what = keep, let_go, what
        self._pid = os.getpid()

    def __del__(self) -> None:
        if os is None:  # Python ends, and clears the modules before this object
            return
        if self._pid == os.getpid():  # a forked child has a copy of this object, and frees nothing
            self._let_go(self._what)


class Outbox:
    """Memory of this process whose parcels are handed over. Its pages take room when first used.

    size_bytes  the largest size of all parcels together
    page_bytes  of the system's memory: the unit of parcels, and of memory that goes back. The
                receiver need not know it

    Errors:  OSError or ValueError if the system refuses the memory, or lacks memfd_create or
             pidfd_open
    Threads: any
    """

    def __init__(self, size_bytes: int, page_bytes: int = mmap.PAGESIZE) -> None:
        self._page_bytes = page_bytes
        self.pid = os.getpid()
        os.close(os.pidfd_open(self.pid))  # the receiver needs it
        self._fd = os.memfd_create("lmdbio-hand-over", os.MFD_CLOEXEC)
        try:
            self._size = page_bytes + self._whole_pages(size_bytes)
            os.ftruncate(self._fd, self._size)
            self._map = mmap.mmap(self._fd, self._size)
        except BaseException:
            os.close(self._fd)
            raise
        stamp = os.urandom(8)
        self._map[STAMP_AT:STAMP_AT + 8] = stamp
        self._name = OutboxName(self.pid, self._fd, stamp)
        self._address = np.frombuffer(self._map, np.uint8).ctypes.data
        self._lock = threading.Lock()
        self._parcels: List[_Parcel] = []  # by start
        self._tickets: Dict[int, _Parcel] = {}  # by flag
        self._free_flags = list(range(TICKETS_MAX))
        self._dropped: Deque[_Parcel] = collections.deque()  # parcels whose array here is gone
        self._used_end = page_bytes  # no page from here on has been used
        self._next_descriptor = 0.0  # time of the next ticket with a descriptor

    def allocate(self, size: int) -> Optional[np.ndarray]:
        """Returns `size` bytes of undefined content, aligned to a page; None if all is used."""
        with self._lock:
            self._reclaim()
            parcel = self._new_parcel(self._whole_pages(size))
        if parcel is None:
            return None
        return np.asarray(Held(self._address + parcel.start, size, self._map, self._dropped.append,
                                parcel))

    def send(self, address: int, size: int) -> Optional[Ticket]:
        """Returns a ticket for memory inside a parcel, of which the caller still has an array; None
        if there are too many tickets. From now on the receiver owns the content.

        Errors: InvalidArgumentError if the memory is not in a parcel
        """
        start = address - self._address
        with self._lock:
            parcel = self._parcel_at(start, start + size)
            if not self._free_flags:
                self._reclaim()
            if not self._free_flags:
                return None
            flag = self._free_flags.pop()
            self._map[flag] = 1
            self._tickets[flag] = parcel
            parcel.holders += 1
        return Ticket(self._name, self._descriptor(), flag, start, size)

    def _descriptor(self) -> Any:
        """Returns the descriptor for the receiver, which maps the memory with the first ticket.
        Each copy stays open until it is fetched, so not all tickets before that carry one."""
        now = time.monotonic()
        if self._map[IS_OPEN_AT] or now < self._next_descriptor:
            return None
        self._next_descriptor = now + DESCRIPTOR_PERIOD_S
        try:
            return multiprocessing.reduction.DupFd(self._fd)
        except OSError:  # the receiver then looks into /proc
            return None

    def holds(self, address: int) -> bool:
        """Returns whether an address is in the memory of the parcels."""
        return self._address + self._page_bytes <= address < self._address + self._size

    def _whole_pages(self, size: int) -> int:
        return -(-size // self._page_bytes) * self._page_bytes

    def _parcel_at(self, start: int, end: int) -> _Parcel:
        index = bisect.bisect_right([parcel.start for parcel in self._parcels], start) - 1
        if index < 0 or end > self._parcels[index].end:
            raise InvalidArgumentError(f"no parcel of the outbox holds bytes {start} to {end}")
        return self._parcels[index]

    def _reclaim(self) -> None:
        flags = self._map[:TICKETS_MAX]
        for flag in [flag for flag in self._tickets if not flags[flag]]:
            self._free_flags.append(flag)
            self._let_go(self._tickets.pop(flag))
        while self._dropped:
            self._let_go(self._dropped.popleft())

    def _let_go(self, parcel: _Parcel) -> None:
        parcel.holders -= 1
        if parcel.holders == 0:
            self._parcels.remove(parcel)

    def _new_parcel(self, size: int) -> Optional[_Parcel]:
        """Takes the first gap that is large enough."""
        start, index = self._page_bytes, 0
        for index, parcel in enumerate([*self._parcels, _Parcel(self._size, self._size)]):
            if parcel.start - start >= size:
                break
            start = parcel.end
        else:
            return None
        parcel = _Parcel(start, start + size)
        self._parcels.insert(index, parcel)
        self._used_end = max(self._used_end, parcel.end)
        self._give_back()
        return parcel

    def _give_back(self) -> None:
        """Returns memory to the system if the receiver held far more parcels before than now."""
        keep_end = 2 * self._parcels[-1].end + SPARE_BYTES
        if keep_end < self._used_end:
            with contextlib.suppress(OSError):
                self._map.madvise(mmap.MADV_REMOVE, keep_end, self._used_end - keep_end)
            self._used_end = keep_end

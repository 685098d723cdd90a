"""The receiver's side of an outbox: makes arrays of tickets (_outbox.py)."""

from __future__ import annotations

import mmap
import os
import select
import threading
from typing import Dict

import numpy as np

from lmdbio._errors import NotFoundError, OutOfMemoryError
from lmdbio._outbox import IS_OPEN_AT, STAMP_AT, Held, OutboxName, Ticket


class _Inbox:
    """The receiver's map of an outbox."""

    def __init__(self, fd: int) -> None:
        self.map = mmap.mmap(fd, os.fstat(fd).st_size)
        self.address = np.frombuffer(self.map, np.uint8).ctypes.data

    def clear(self, flag: int) -> None:
        self.map[flag] = 0


_inboxes: Dict[OutboxName, _Inbox] = {}  # of workers that are alive
os.register_at_fork(after_in_child=_inboxes.clear)


def receive(ticket: Ticket) -> np.ndarray:
    """Returns the bytes of a ticket. The worker does not use them before all views of the array are
    gone.

    Errors: NotFoundError if the worker has ended before its memory was mapped here;
            OutOfMemoryError if the address space has no room for it
    """
    inbox = _inboxes.get(ticket.outbox) or _open(ticket)
    return np.asarray(Held(inbox.address + ticket.start, ticket.size, inbox.map, inbox.clear,
                            ticket.flag))


def _open(ticket: Ticket) -> _Inbox:
    inbox = _map(ticket)
    try:
        end = os.pidfd_open(ticket.outbox.pid)
    except ProcessLookupError:  # its last batches are here, and no more will come
        return inbox
    _inboxes[ticket.outbox] = inbox
    threading.Thread(target=_forget_at_end, args=(end, ticket.outbox), daemon=True,
                     name="lmdbio-hand-over").start()
    return inbox


def _map(ticket: Ticket) -> _Inbox:
    pid, number, stamp = ticket.outbox
    try:
        if ticket.descriptor is not None:
            fd = ticket.descriptor.detach()
        else:  # another process has received tickets of this worker before
            fd = os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
    except (OSError, EOFError) as error:
        raise NotFoundError(f"the batches of worker process {pid} are not available, because it "
                            f"has ended or may not be accessed: {error}") from error
    try:
        inbox = _Inbox(fd)
    except OSError as error:
        raise OutOfMemoryError(f"the memory of worker process {pid} cannot be mapped: {error}; use "
                               f"a smaller hand_over_bytes") from error
    finally:
        os.close(fd)
    if inbox.map[STAMP_AT:STAMP_AT + 8] != stamp:
        raise NotFoundError(f"the batches of worker process {pid} are not available, because it "
                            f"has ended")
    inbox.map[IS_OPEN_AT] = 1
    return inbox


def _forget_at_end(end: int, outbox: OutboxName) -> None:
    """Unmaps the memory when the worker has ended and its arrays are gone."""
    waiter = select.poll()
    waiter.register(end, select.POLLIN)
    waiter.poll()
    os.close(end)
    _inboxes.pop(outbox, None)

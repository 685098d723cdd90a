"""Allreduces that are submitted again and again, as with the persistent requests of MPI."""

from __future__ import annotations

import ctypes
from typing import Any, List, Optional, Sequence

from lmdbio import _capi
from lmdbio._errors import InvalidStateError


class PersistentAllreduce:
    """An allreduce of one tensor in place, whose request to the library is filled once.

    Made by Synchronizer.persistent_allreduce and persistent. The values stay in place from submit
    until wait has returned. One thread at a time.
    """

    __slots__ = ("_name", "_owner", "_request", "_op", "_arguments", "_submit", "address", "keeps")

    def __init__(self, owner: Any, name: str, request: _capi.SyncRequest) -> None:
        self._op = ctypes.c_void_p()
        self._name, self._owner, self._request = name, owner, request
        self._arguments = owner._use(), ctypes.byref(request), ctypes.byref(self._op)
        self._submit = _capi.library().lmdbio_sync_submit
        self.address: Optional[int] = None  # of the values
        self.keeps: Any = None  # the object that keeps the values in place

    def set_values(self, address: int, keeps: Any) -> None:
        """Sets the values of the next submissions. Not while the allreduce is in flight.

        keeps  the object that keeps the values in place
        InvalidStateError: it is in flight.
        """
        self._check_idle()
        self._request.input = self._request.output = self.address = address
        self.keeps = keeps

    def is_in_flight(self) -> bool:
        """Returns whether it was submitted, and not waited for."""
        return self._op.value is not None

    def _check_idle(self) -> None:
        if self._op.value is not None:
            raise InvalidStateError(f"{self._name} is in flight: wait for it first")

    def submit(self) -> None:
        """Submits it. InvalidStateError: it is in flight."""
        self._check_idle()
        if self._owner._orphans:
            self._owner.forget_done()
        status = self._submit(*self._arguments)
        if status != _capi.OK:
            self._owner._check(status)

    def wait(self) -> None:
        """Sleeps until it is done, if it is in flight. Errors as Operation.wait."""
        wait_all([self])

    def let_go(self) -> None:
        """Forgets an operation in flight, whose values stay in place until it is done."""
        handle = ctypes.c_void_p(self._op.value)
        self._op.value, keeps, self.keeps = None, self.keeps, None
        if handle.value is not None:
            self._owner._let_go_later(handle, self.address, keeps)

    def __del__(self) -> None:
        if self._op.value is not None:
            self.let_go()


def wait_all(allreduces: Sequence[PersistentAllreduce]) -> None:
    """Waits for all of them that are in flight. After an error, which is raised, none is waited for
    any more.

    allreduces  in the order of submission. The last one comes first: it is usually done last, so
                that this thread sleeps once
    """
    library = _capi.library()
    wait_within, close = library.lmdbio_sync_op_wait_within, library.lmdbio_sync_op_close
    try:
        for one in reversed(allreduces):
            op = one._op
            if op.value is None:
                continue
            status = wait_within(op, _capi.LOOK_UP_MS)
            while status == _capi.TIMEOUT:
                status = wait_within(op, _capi.LOOK_UP_MS)
            if status != _capi.OK:
                _capi.check_op(op, status)
            close(op)
            op.value = None
    except BaseException:
        for one in allreduces:
            one.let_go()
        raise


def let_go_of_all(allreduces: List[PersistentAllreduce]) -> None:
    """Forgets those that are in flight."""
    for one in allreduces:
        one.let_go()

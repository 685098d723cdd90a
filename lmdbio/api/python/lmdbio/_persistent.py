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

    Values on a GPU: set_stream comes before submit, and wait_all_on takes the place of wait.
    """

    __slots__ = ("_name", "_owner", "_request", "_op", "_is_enqueued", "_arguments", "_submit",
                 "address", "stream", "keeps")

    def __init__(self, owner: Any, name: str, request: _capi.SyncRequest) -> None:
        self._op = ctypes.c_void_p()
        self._is_enqueued = False  # streams wait for the result of _op, which may fail later
        self._name, self._owner, self._request = name, owner, request
        self._arguments = owner._use(), ctypes.byref(request), ctypes.byref(self._op)
        self._submit = _capi.library().lmdbio_sync_submit
        self.address: Optional[int] = None  # of the values
        self.stream: Optional[int] = None  # whose work writes the values
        self.keeps: Any = None  # the object that keeps the values in place

    def set_values(self, address: int, keeps: Any) -> None:
        """Sets the values of the next submissions. Not while the allreduce is in flight.

        keeps  the object that keeps the values in place
        InvalidStateError: it is in flight.
        """
        self._check_idle()
        self._request.input = self._request.output = self.address = address
        self.keeps = keeps

    def set_stream(self, stream: int) -> None:
        """Sets the stream of the GPU whose work writes the values of the next submissions."""
        self._request.stream = self.stream = stream

    def is_in_flight(self) -> bool:
        """Returns whether it was submitted, and not waited for."""
        return self._op.value is not None and not self._is_enqueued

    def is_enqueued(self) -> bool:
        """Returns whether streams wait for the result, and the host has not waited for it yet."""
        return self._is_enqueued

    def _check_idle(self) -> None:
        if self._op.value is not None:
            if not self._is_enqueued:
                raise InvalidStateError(f"{self._name} is in flight: wait for it first")
            self._close()

    def _close(self) -> None:
        _capi.library().lmdbio_sync_op_close(self._op)
        self._op.value, self._is_enqueued = None, False

    def submit(self) -> None:
        """Submits it. InvalidStateError: it is in flight."""
        self._check_idle()
        if self._owner._orphans:
            self._owner.forget_done()
        status = self._submit(*self._arguments)
        if status != _capi.OK:
            self._owner._check(status)

    def wait(self) -> None:
        """Sleeps until it is done, if it is in flight or enqueued. Errors as Operation.wait."""
        wait_all([self])

    def let_go(self) -> None:
        """Forgets an operation in flight, whose values stay in place until it is done."""
        handle = ctypes.c_void_p(self._op.value)
        self._op.value, keeps, self.keeps = None, self.keeps, None
        self._is_enqueued = False
        if handle.value is not None:
            self._owner._let_go_later(handle, self.address, keeps)

    def __del__(self) -> None:
        if self._op.value is not None:
            self.let_go()


def wait_all(allreduces: Sequence[PersistentAllreduce]) -> None:
    """Waits for all of them that are in flight or enqueued. After an error, which is raised, none
    is waited for any more.

    allreduces  in the order of submission. The last one comes first: it is usually done last, so
                that this thread sleeps once
    """
    wait_within = _capi.library().lmdbio_sync_op_wait_within
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
            one._close()
    except BaseException:
        for one in allreduces:
            one.let_go()
        raise


def wait_on(op: ctypes.c_void_p, stream: Optional[int]) -> int:
    """Sleeps until the result of an operation is enqueued before later work on a stream of the GPU.
    Returns the status of the library."""
    wait_on_within = _capi.library().lmdbio_sync_op_wait_on_within
    status = wait_on_within(op, stream, _capi.LOOK_UP_MS)
    while status == _capi.TIMEOUT:
        status = wait_on_within(op, stream, _capi.LOOK_UP_MS)
    return status


def wait_all_on(allreduces: Sequence[PersistentAllreduce], stream: int) -> None:
    """Makes later work on a stream of the GPU see the results of all of them that are in flight,
    and does not wait for the GPU. Errors as wait_all.

    The streams that they were submitted from wait, too: PyTorch gives the memory of values that a
    program drops to later work on the stream that has made them.
    """
    try:
        for one in reversed(allreduces):
            if not one.is_in_flight():
                continue
            for waiting in (stream, one.stream) if one.stream != stream else (stream,):
                status = wait_on(one._op, waiting)
                if status != _capi.OK:
                    _capi.check_op(one._op, status)
            one._is_enqueued, one.keeps = True, None
    except BaseException:
        for one in allreduces:
            one.let_go()
        raise


def let_go_of_all(allreduces: List[PersistentAllreduce]) -> None:
    """Forgets those that are in flight."""
    for one in allreduces:
        one.let_go()

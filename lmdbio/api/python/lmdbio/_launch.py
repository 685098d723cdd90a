"""The ranks that torchrun or srun has started, without MPI: comm="env" and comm="torch"."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any, Optional

from lmdbio import _capi
from lmdbio._errors import InvalidArgumentError, InvalidStateError, error_of

# All ranks open equally many loaders and synchronizers, so their meetings have equal numbers. The
# number also differs between the process groups that a program makes one after another.
_meetings = itertools.count()


class Ranks:
    """The ranks of a job: those that the environment tells, or those of a store.

    rank, size  of this process, and of the job
    """

    def __init__(self, rank: int, size: int, store: Optional[Any] = None) -> None:
        self.rank, self.size = rank, size
        self._store = store
        self._error: Optional[BaseException] = None

    def launch(self) -> Any:
        """Returns the argument `launch` of the C API for the next meeting. The ranks outlive the
        call that it is passed to."""
        if self._store is None:
            return None
        self._error = None
        self._set, self._get = _capi.SET_OF_STORE(self._set_key), _capi.GET_OF_STORE(self._get_key)
        self._struct = _capi.Launch(
            struct_size=ctypes.sizeof(_capi.Launch), rank=self.rank, rank_count=self.size,
            meeting=next(_meetings), set=self._set, get=self._get)
        return ctypes.byref(self._struct)

    def raise_error_of_store(self) -> None:
        """Raises the exception of the store, which the C API has only seen as a status."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    # A store may only wait for a key that is not set. So a counter beside each key tells whether it
    # is; to add 0 never waits.

    def _set_key(self, _context: Any, key: bytes, value: int, value_bytes: int) -> int:
        try:
            name = key.decode()
            self._store.set(name, ctypes.string_at(value, value_bytes))
            self._store.add(f"{name}/is_set", 1)
        except BaseException as error:  # pylint: disable=broad-except
            self._error = error
            return _capi.INTERNAL
        return _capi.OK

    def _get_key(self, _context: Any, key: bytes, value: int, capacity_bytes: int,
                 out_value_bytes: Any) -> int:
        try:
            name = key.decode()
            if self._store.add(f"{name}/is_set", 0) == 0:
                return _capi.NOT_FOUND
            found = self._store.get(name)
            if len(found) > capacity_bytes:
                raise InvalidStateError(f"the store returns {len(found)} bytes for {name}")
            ctypes.memmove(value, bytes(found), len(found))
            out_value_bytes[0] = len(found)
        except BaseException as error:  # pylint: disable=broad-except
            self._error = error
            return _capi.INTERNAL
        return _capi.OK


def _ranks_of_environment() -> Ranks:
    rank, size = ctypes.c_int(), ctypes.c_int()
    message = ctypes.create_string_buffer(1024)
    status = _capi.library().lmdbio_launch_rank(None, ctypes.byref(rank), ctypes.byref(size),
                                                message, len(message))
    if status != _capi.OK:
        raise error_of(status, f'comm="env": {message.value.decode(errors="replace")}', 0)
    return Ranks(rank.value, size.value)


def _ranks_of_torch() -> Ranks:
    try:
        from torch import distributed
    except ImportError as error:
        raise InvalidStateError('comm="torch" needs PyTorch; comm="env" does not') from error
    if not (distributed.is_available() and distributed.is_initialized()):
        raise InvalidStateError(
            'comm="torch" needs the process group of torch.distributed: call '
            'torch.distributed.init_process_group("gloo") before, or pass comm="env"')
    store = distributed.distributed_c10d._get_default_store()
    if store is None:
        raise InvalidStateError(
            f'comm="torch": the process group "{distributed.get_backend()}" has no store; pass '
            'comm="env", or a communicator of mpi4py')
    return Ranks(distributed.get_rank(), distributed.get_world_size(), store)


def resolve(comm: Any) -> Any:
    """Returns the ranks that `comm` stands for: None, a communicator of mpi4py, or Ranks."""
    if not isinstance(comm, str):
        return comm
    if comm == "env":
        return _ranks_of_environment()
    if comm == "torch":
        return _ranks_of_torch()
    raise InvalidArgumentError(f'comm {comm!r} is unknown; expected a communicator of mpi4py, '
                               '"env" or "torch"')

"""The exceptions of the package. Each is an LmdbioError and the built-in exception that fits."""

from __future__ import annotations

import errno
from typing import Any, Dict, Optional, Tuple, Type


class LmdbioError(Exception):
    """A failure of lmdbio. The text is one line: the failed step, the object and the reason.

    code   the status of the C API, as in lmdbio.h
    errno  of the system call that failed, here or on another rank; None if none failed
    """

    code = 9
    errno: Optional[int] = None

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), self.args, dict(self.__dict__)


class InvalidArgumentError(LmdbioError, ValueError):
    """The call was wrong: correct the arguments."""

    code = 1


class InvalidTypeError(LmdbioError, TypeError):
    """The call was wrong: an argument has the wrong type."""

    code = 1


class InvalidIndexError(LmdbioError, IndexError):
    """There is no record with this number."""

    code = 1


class AbsentKeyError(LmdbioError, KeyError):
    """There is no record with this key."""

    code = 2

    def __str__(self) -> str:  # KeyError would show the text in quotes
        return Exception.__str__(self)


class InvalidStateError(LmdbioError, RuntimeError):
    """The call came too late, or at a time when it is not allowed."""

    code = 1


class ClosedError(LmdbioError, ValueError):
    """The object has been closed."""

    code = 11


class InUseError(LmdbioError, BufferError):
    """Arrays that are views of this memory are still in use."""

    code = 1


class LibraryNotFoundError(LmdbioError, ImportError):
    """liblmdbio, or liblmdbio_mpi, does not exist or cannot be loaded."""

    code = 2


class NotFoundError(LmdbioError, FileNotFoundError):
    """The file, database or record does not exist."""

    code = 2


class StorageError(LmdbioError, OSError):
    """The storage failed, or may not be read."""

    code = 4


class AccessError(StorageError, PermissionError):
    """The file is there, but this process may not read or write it."""

    code = 3


class CorruptionError(LmdbioError):
    """The bytes break a rule of the format: restore the file."""

    code = 5


class UnsupportedError(LmdbioError):
    """The request or the file is valid, but the library does not support it; the text names it."""

    code = 6


class StaleError(LmdbioError):
    """The file is not, or is no longer, the expected one."""

    code = 7


class ResourceExhaustedError(LmdbioError):
    """Memory, disk space, open files, threads or a configured limit ran out."""

    code = 8


class OutOfMemoryError(ResourceExhaustedError, MemoryError):
    """Memory, or a memory budget, ran out."""


class SystemLimitError(ResourceExhaustedError, OSError):
    """The system has no more disk space, open files or threads; `errno` tells which."""


class PeerFailedError(LmdbioError):
    """Another rank failed; the text names it and says why."""

    code = 10


class KeyOrderWarning(UserWarning):
    """The records are numbered in key order, which is probably not the order of their numbers."""


_BY_STATUS: Dict[int, Type[LmdbioError]] = {
    1: InvalidArgumentError, 2: NotFoundError, 3: AccessError, 4: StorageError,
    5: CorruptionError, 6: UnsupportedError, 7: StaleError, 10: PeerFailedError, 11: ClosedError,
    12: InvalidStateError}


def error_of(status: int, text: str, number: int) -> LmdbioError:
    """Returns the exception for a status of the C API.

    number  the errno of the failed system call, or 0
    """
    kind = _BY_STATUS.get(status, LmdbioError)
    if status == ResourceExhaustedError.code:
        # Limits of the library itself, which have no errno, are limits of memory.
        kind = OutOfMemoryError if number in (0, errno.ENOMEM) else SystemLimitError
    error = kind(text)
    error.code = status
    error.errno = number or None
    return error

"""The C API in Python: structs, calls, and the conversion of statuses to exceptions."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import logging
import operator
import os
from typing import Any

from lmdbio import _options
from lmdbio._errors import (
    InvalidArgumentError,
    InvalidTypeError,
    LibraryNotFoundError,
    LmdbioError,
    error_of,
)
from lmdbio._options import Options, SyncOptions

OK = 0
NOT_FOUND = 2
INTERNAL = 9
BAD_HANDLE = 11
END = 100
TIMEOUT = 101
FORKED = 12

# The longest sleep of a call before Python checks for signals.
LOOK_UP_MS = 100

class BatchStruct(ctypes.Structure):
    """lmdbio_batch."""

    _fields_ = [
        ("records", ctypes.c_void_p),
        ("record_count", ctypes.c_size_t),
        ("skipped_count", ctypes.c_size_t),
        ("number", ctypes.c_uint64),
        ("epoch", ctypes.c_uint64),
        ("first_position", ctypes.c_uint64),
        ("global_record_count", ctypes.c_uint64),
        ("ends_epoch", ctypes.c_int),
        ("field_count", ctypes.c_size_t),
    ]


class Counters(ctypes.Structure):
    """lmdbio_counters."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in (
            "batch_count", "record_count", "skipped_count", "payload_bytes", "epoch_count",
            "dropped_count", "wrapped_count")),
        *((name, ctypes.c_double) for name in (
            "wait_s", "next_cpu_s", "locate_s", "read_s", "finish_s", "space_wait_s")),
        *((name, ctypes.c_uint64) for name in (
            "read_requests", "bytes_read", "bytes_direct", "bytes_useful", "retry_count")),
    ]


class DeviceRowsStruct(ctypes.Structure):
    """lmdbio_device_rows."""

    _fields_ = [
        ("rows", ctypes.c_void_p),
        ("size_bytes", ctypes.c_uint64),
        ("row_bytes", ctypes.c_uint64),
        ("offsets", ctypes.c_void_p),
    ]


class DeviceBatchStruct(ctypes.Structure):
    """lmdbio_device_batch."""

    _fields_ = [
        ("fields", ctypes.POINTER(DeviceRowsStruct)),
        ("records", ctypes.c_void_p),
        ("record_count", ctypes.c_size_t),
        ("skipped_count", ctypes.c_size_t),
        ("number", ctypes.c_uint64),
        ("epoch", ctypes.c_uint64),
        ("first_position", ctypes.c_uint64),
        ("global_record_count", ctypes.c_uint64),
        ("ends_epoch", ctypes.c_int),
        ("field_count", ctypes.c_size_t),
    ]


class FeedOptions(ctypes.Structure):
    """lmdbio_feed_options."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("device", ctypes.c_int),
        ("shape", ctypes.c_int),
        ("row_bytes_min", ctypes.c_uint64),
        ("depth", ctypes.c_uint32),
    ]


class FeedCounters(ctypes.Structure):
    """lmdbio_feed_counters."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in (
            "batch_count", "gathered_count", "staged_count", "device_bytes", "grown_count")),
        *((name, ctypes.c_double) for name in ("wait_s", "buffer_wait_s")),
    ]


class SyncRequest(ctypes.Structure):
    """lmdbio_sync_request."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("operation", ctypes.c_int),
        ("type", ctypes.c_int),
        ("reduction", ctypes.c_int),
        ("root", ctypes.c_int),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("dimension_count", ctypes.c_size_t),
        ("count", ctypes.c_int64),
        ("input", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("prescale", ctypes.c_double),
        ("postscale", ctypes.c_double),
        ("splits", ctypes.POINTER(ctypes.c_int64)),
        ("callback", ctypes.c_void_p),
        ("callback_context", ctypes.c_void_p),
        ("memory", ctypes.c_int),
        ("stream", ctypes.c_void_p),
    ]


class SyncResult(ctypes.Structure):
    """lmdbio_sync_result."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("size_bytes", ctypes.c_uint64),
        ("rows", ctypes.POINTER(ctypes.c_int64)),
        ("part_count", ctypes.c_size_t),
        ("last_joined", ctypes.c_int),
    ]


class SyncCounters(ctypes.Structure):
    """lmdbio_sync_counters."""

    _fields_ = [(name, ctypes.c_uint64) for name in (
        "cycle_count", "control_message_count", "control_bytes", "collective_count",
        "collective_bytes", "tensor_count", "plan_count", "plan_end_count", "thread_cpu_ns",
        "thread_run_delay_ns", "device_tensor_count", "device_out_bytes", "device_in_bytes",
        "device_copy_count", "device_wait_ns", "device_reduced_count", "device_reduced_bytes")]


SET_OF_STORE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p,
                                ctypes.c_size_t)
GET_OF_STORE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p,
                                ctypes.c_size_t, ctypes.POINTER(ctypes.c_size_t))


class Launch(ctypes.Structure):
    """lmdbio_launch."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("rank", ctypes.c_int),
        ("rank_count", ctypes.c_int),
        ("limit_ms", ctypes.c_uint32),
        ("meeting", ctypes.c_uint64),
        ("set", SET_OF_STORE),
        ("get", GET_OF_STORE),
        ("context", ctypes.c_void_p),
    ]


@_options.LOG
def _log(_context: Any, message: bytes) -> None:
    logging.getLogger("lmdbio").warning("%s", message.decode(errors="replace"))


def _inside(name: str) -> str | None:
    """Returns the path of the library in this package. Wheels have it, a source tree has not."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"lib{name}.so.0")
    return path if os.path.exists(path) else None


def _load(environment_name: str, name: str) -> ctypes.CDLL:
    path = (os.environ.get(environment_name) or _inside(name) or ctypes.util.find_library(name)
            or f"lib{name}.so.0")
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise LibraryNotFoundError(f"lib{name} cannot be loaded ({error}); install it, or set "
                                   f"{environment_name} to its path") from error


_P = ctypes.POINTER
_SIGNATURES = {
    "lmdbio_open": [ctypes.c_char_p, _P(Options), _P(ctypes.c_void_p)],
    "lmdbio_launch_rank": [_P(Launch), _P(ctypes.c_int), _P(ctypes.c_int), ctypes.c_char_p,
                           ctypes.c_size_t],
    "lmdbio_open_launched": [_P(Launch), ctypes.c_char_p, _P(Options), _P(ctypes.c_void_p)],
    "lmdbio_open_files": [ctypes.c_void_p, _P(Options), _P(ctypes.c_void_p)],
    "lmdbio_open_launched_files": [_P(Launch), ctypes.c_void_p, _P(Options), _P(ctypes.c_void_p)],
    "lmdbio_fetch": [ctypes.c_void_p, ctypes.c_uint32, _P(ctypes.c_void_p),
                     _P(_P(BatchStruct))],
    "lmdbio_save": [ctypes.c_void_p, _P(ctypes.c_char_p)],
    "lmdbio_restore": [ctypes.c_void_p, ctypes.c_char_p],
    "lmdbio_set_epoch": [ctypes.c_void_p, ctypes.c_uint64],
    "lmdbio_count": [ctypes.c_void_p, _P(ctypes.c_uint64), _P(ctypes.c_uint64)],
    "lmdbio_get_counters": [ctypes.c_void_p, _P(_P(Counters))],
    "lmdbio_get_options": [ctypes.c_void_p, _P(ctypes.c_char_p)],
    "lmdbio_describe": [ctypes.c_void_p, _P(ctypes.c_char_p)],
    "lmdbio_pin_compute": [ctypes.c_void_p],
    "lmdbio_close": [ctypes.c_void_p],
    "lmdbio_dataset_open": [ctypes.c_char_p, _P(Options), _P(ctypes.c_void_p)],
    "lmdbio_dataset_open_files": [ctypes.c_void_p, _P(Options), _P(ctypes.c_void_p)],
    "lmdbio_dataset_fetch": [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t,
                             _P(ctypes.c_void_p), _P(ctypes.c_void_p)],
    "lmdbio_dataset_find": [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p,
                            ctypes.c_void_p],
    "lmdbio_dataset_get": [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t,
                           _P(ctypes.c_void_p), _P(ctypes.c_void_p)],
    "lmdbio_dataset_keys": [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t,
                            _P(ctypes.c_void_p), _P(ctypes.c_void_p)],
    "lmdbio_dataset_use_key_index": [ctypes.c_void_p],
    "lmdbio_result_copy_field": [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t,
                                 ctypes.c_size_t],
    "lmdbio_result_copy_values": [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t,
                                  ctypes.c_size_t],
    "lmdbio_result_close": [ctypes.c_void_p],
    "lmdbio_result_use_on": [ctypes.c_void_p, ctypes.c_void_p],
    "lmdbio_feed_open": [ctypes.c_void_p, _P(FeedOptions), _P(ctypes.c_void_p)],
    "lmdbio_feed_fetch": [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, _P(ctypes.c_void_p),
                          _P(_P(DeviceBatchStruct))],
    "lmdbio_feed_get_counters": [ctypes.c_void_p, _P(_P(FeedCounters))],
    "lmdbio_feed_describe": [ctypes.c_void_p, _P(ctypes.c_char_p)],
    "lmdbio_feed_close": [ctypes.c_void_p],
    "lmdbio_dataset_count": [ctypes.c_void_p, _P(ctypes.c_uint64)],
    "lmdbio_dataset_close": [ctypes.c_void_p],
    "lmdbio_sync_open": [_P(SyncOptions), _P(ctypes.c_void_p)],
    "lmdbio_sync_open_launched": [_P(Launch), _P(SyncOptions), _P(ctypes.c_void_p)],
    "lmdbio_sync_rank": [ctypes.c_void_p, _P(ctypes.c_int), _P(ctypes.c_int)],
    "lmdbio_sync_place": [ctypes.c_void_p, ctypes.c_uint64, _P(ctypes.c_void_p)],
    "lmdbio_sync_place_device": [ctypes.c_void_p, ctypes.c_uint64, _P(ctypes.c_void_p)],
    "lmdbio_sync_shutdown": [ctypes.c_void_p],
    "lmdbio_sync_close": [ctypes.c_void_p],
    "lmdbio_sync_submit": [ctypes.c_void_p, _P(SyncRequest), _P(ctypes.c_void_p)],
    "lmdbio_sync_submit_group": [ctypes.c_void_p, _P(_P(SyncRequest)), ctypes.c_size_t,
                                 _P(ctypes.c_void_p)],
    "lmdbio_sync_set_graph": [ctypes.c_void_p, _P(_P(SyncRequest)), ctypes.c_size_t,
                              _P(ctypes.c_uint32), ctypes.c_size_t],
    "lmdbio_sync_op_result": [ctypes.c_void_p, _P(_P(SyncResult))],
    "lmdbio_sync_op_test": [ctypes.c_void_p, _P(ctypes.c_int)],
    "lmdbio_sync_op_wait_within": [ctypes.c_void_p, ctypes.c_uint32],
    "lmdbio_sync_op_wait_on_within": [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32],
    "lmdbio_sync_op_close": [ctypes.c_void_p],
    "lmdbio_sync_get_counters": [ctypes.c_void_p, _P(_P(SyncCounters))],
    "lmdbio_sync_get_options": [ctypes.c_void_p, _P(ctypes.c_char_p)],
    "lmdbio_sync_describe": [ctypes.c_void_p, _P(ctypes.c_char_p)],
    "lmdbio_sync_flight_record": [ctypes.c_void_p, _P(ctypes.c_char_p)],
}


# The prefix of the calls on each kind of handle.
_LOADER, _DATASET, _RESULT = "lmdbio", "lmdbio_dataset", "lmdbio_result"
_SYNC, _OP = "lmdbio_sync", "lmdbio_sync_op"
_FEED = "lmdbio_feed"


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """Returns liblmdbio. The first call loads it."""
    lib = _load("LMDBIO_LIBRARY", "lmdbio")
    for name, arguments in _SIGNATURES.items():
        call = getattr(lib, name, None)
        if call is None:
            raise LibraryNotFoundError(f"{lib._name} is no liblmdbio of this version: it has no "
                                       f"{name}; set LMDBIO_LIBRARY to another one, or not at all")
        call.argtypes, call.restype = arguments, ctypes.c_int
    for kind in (_LOADER, _DATASET, _RESULT, _FEED, _SYNC, _OP):
        for name, result in ("message", ctypes.c_char_p), ("errno", ctypes.c_int):
            call = getattr(lib, f"{kind}_{name}")
            call.argtypes, call.restype = [ctypes.c_void_p], result
    lib.lmdbio_version.restype = ctypes.c_char_p
    lib.lmdbio_strerror.restype = ctypes.c_char_p
    return lib


def version() -> str:
    """Returns the version of liblmdbio, for example "0.1.0"."""
    return library().lmdbio_version(None).decode()


def _failure(kind: str, handle: ctypes.c_void_p, status: int) -> LmdbioError:
    """Returns the exception for a failed call on a handle."""
    lib = library()
    message = getattr(lib, f"{kind}_message")(handle) or lib.lmdbio_strerror(status)
    return error_of(status, message.decode(errors="replace"),
                    getattr(lib, f"{kind}_errno")(handle))


def _check(kind: str, handle: ctypes.c_void_p, status: int) -> None:
    """Raises an exception if a call on a handle has returned a failure."""
    if status != OK:
        raise _failure(kind, handle, status)


check = functools.partial(_check, _LOADER)
check_dataset = functools.partial(_check, _DATASET)
check_result = functools.partial(_check, _RESULT)
check_feed = functools.partial(_check, _FEED)
feed_failure = functools.partial(_failure, _FEED)
check_sync = functools.partial(_check, _SYNC)
check_op = functools.partial(_check, _OP)


def number(name: str, value: Any, kind: Any) -> int:
    """Returns `value` as an integer, and checks that it fits into a C type.

    ctypes would cut it silently.
    """
    try:
        whole = operator.index(value)
    except TypeError:
        raise InvalidTypeError(f"{name} must be an integer, not {type(value).__name__}") from None
    bits = 8 * ctypes.sizeof(kind)
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind(-1).value < 0 else (
        0, (1 << bits) - 1)
    if not least <= whole <= most:
        raise InvalidArgumentError(f"{name} {whole} is out of range; expected {least} to {most}")
    return whole


def text(name: str, value: Any) -> bytes:
    """Returns `value` as a C string. A zero byte is an error, because it would end the string."""
    if not isinstance(value, str):
        raise InvalidTypeError(f"{name} must be a str, not {type(value).__name__}")
    if "\0" in value:
        raise InvalidArgumentError(f"{name} contains a zero byte")
    return value.encode()


def path_of(path: Any) -> bytes:
    """Returns a path as bytes, in the encoding of the file system."""
    encoded = os.fsencode(path)
    if b"\0" in encoded:
        raise InvalidArgumentError("the path contains a zero byte")
    return encoded


def _filled(options: Any, fields: Any) -> Any:
    kinds = dict(options._fields_)
    for name, value in fields.items():
        if value is None:
            continue
        if kinds[name] is ctypes.c_char_p:
            setattr(options, name, text(name, value))
        else:
            setattr(options, name, number(name, value, kinds[name]))
    return options


def option_fields(options: dict[str, Any]) -> dict[str, Any]:
    """Converts the options of a loader to fields of lmdbio_options. None is the default, which
    leaves the field out."""
    fields = {}
    for name, value in options.items():
        if value is not None:
            fields[name] = _option_field(name, value)
    return fields


def _option_field(name: str, value: Any) -> Any:
    kind, choices, default = _options.LOADER_OPTIONS[name]
    if kind == "enum":
        return choice(name, value, choices)
    if kind == "switch":
        return 1 if value else -1
    if kind == "number":
        whole = number(name, value, dict(Options._fields_)[name])
        if whole == 0 and default:  # in C, 0 stands for the default
            raise InvalidArgumentError(f"{name} 0 is out of range; expected 1 or more")
        return whole
    return value


def options_of(fields: dict[str, Any], view: Any = None) -> Options:
    """Returns lmdbio_options with these fields. Texts are str.

    view  a lmdbio.View, or None
    """
    options = _filled(Options(struct_size=ctypes.sizeof(Options), log=_log), fields)
    if view is not None:
        options.held = view.struct()  # as long as the options
        options.view = ctypes.addressof(options.held)
    return options


def sync_options_of(**fields: Any) -> SyncOptions:
    """Returns lmdbio_sync_options with these fields. Texts are str."""
    return _filled(SyncOptions(struct_size=ctypes.sizeof(SyncOptions), log=_log), fields)


def choice(field: str, value: str, choices: dict[str, int]) -> int:
    """Returns the number of a choice from its name."""
    if value not in choices:
        raise InvalidArgumentError(f"{field} {value!r} is unknown; "
                                   f"expected one of {', '.join(choices)}")
    return choices[value]


def open_loader(path: Any, options: Options, comm: Any) -> ctypes.c_void_p:
    """Opens a loader and returns its handle, which the caller closes.

    path  a path, or lmdbio._files.FileList
    comm  an mpi4py communicator, lmdbio._launch.Ranks, or None
    """
    handle = ctypes.c_void_p()
    suffix, what, kind = ("_files", ctypes.byref(path.struct()), ctypes.c_void_p) if _is_list(
        path) else ("", path_of(path), ctypes.c_char_p)
    rest = what, ctypes.byref(options), ctypes.byref(handle)
    if comm is None:
        status = getattr(library(), f"lmdbio_open{suffix}")(*rest)
    elif _is_launched(comm):
        status = getattr(library(), f"lmdbio_open_launched{suffix}")(comm.launch(), *rest)
    else:
        communicator = _communicator(comm)
        call = getattr(_mpi_library(), f"lmdbio_open_mpi{suffix}")
        call.argtypes = [type(communicator), kind, _P(Options), _P(ctypes.c_void_p)]
        call.restype = ctypes.c_int
        status = call(communicator, *rest)
    if status != OK:
        error = _failure(_LOADER, handle, status)
        library().lmdbio_close(handle)
        if _is_launched(comm):
            comm.raise_error_of_store()
        raise error
    return handle


def open_dataset(path: Any, options: Options) -> ctypes.c_void_p:
    """Opens a dataset and returns its handle, which the caller closes.

    path  a path, or lmdbio._files.FileList
    """
    handle = ctypes.c_void_p()
    if _is_list(path):
        status = library().lmdbio_dataset_open_files(
            ctypes.byref(path.struct()), ctypes.byref(options), ctypes.byref(handle))
    else:
        status = library().lmdbio_dataset_open(path_of(path), ctypes.byref(options),
                                               ctypes.byref(handle))
    if status != OK:
        error = _failure(_DATASET, handle, status)
        library().lmdbio_dataset_close(handle)
        raise error
    return handle


def open_sync(options: SyncOptions, comm: Any) -> ctypes.c_void_p:
    """Opens a synchronizer and returns its handle, which the caller closes.

    comm  as in open_loader
    """
    handle = ctypes.c_void_p()
    if comm is None:
        status = library().lmdbio_sync_open(ctypes.byref(options), ctypes.byref(handle))
    elif _is_launched(comm):
        status = library().lmdbio_sync_open_launched(comm.launch(), ctypes.byref(options),
                                                     ctypes.byref(handle))
    else:
        communicator = _communicator(comm)
        call = _mpi_library().lmdbio_sync_open_mpi
        call.argtypes = [type(communicator), _P(SyncOptions), _P(ctypes.c_void_p)]
        call.restype = ctypes.c_int
        status = call(communicator, ctypes.byref(options), ctypes.byref(handle))
    if status != OK:
        error = _failure(_SYNC, handle, status)
        library().lmdbio_sync_close(handle)
        if _is_launched(comm):
            comm.raise_error_of_store()
        raise error
    return handle


def _is_list(path: Any) -> bool:
    return hasattr(path, "struct")  # lmdbio._files.FileList, which imports this module


def _is_launched(comm: Any) -> bool:
    return hasattr(comm, "launch")  # lmdbio._launch.Ranks, which imports this module


@functools.lru_cache(maxsize=None)
def _mpi_library() -> ctypes.CDLL:
    """Returns liblmdbio_mpi, which must use the same MPI as mpi4py."""
    library()
    named = os.environ.get("LMDBIO_LIBRARY") or os.environ.get("LMDBIO_MPI_LIBRARY")
    if _inside("lmdbio") and not (_inside("lmdbio_mpi") or named):
        raise LibraryNotFoundError(
            "this lmdbio was built without MPI; where MPI and a C++ compiler are: pip install "
            "--no-binary lmdbio --config-settings=cmake.define.LMDBIO_WITH_MPI=ON lmdbio")
    lib = _load("LMDBIO_MPI_LIBRARY", "lmdbio_mpi")
    lib.lmdbio_open_mpi.restype = ctypes.c_int
    return lib


def _communicator(comm: Any) -> Any:
    """Returns the MPI_Comm of an mpi4py communicator: an int or a pointer, depending on the MPI."""
    from mpi4py import MPI

    kind = ctypes.c_int if MPI._sizeof(comm) == ctypes.sizeof(ctypes.c_int) else ctypes.c_void_p
    return kind.from_address(MPI._addressof(comm))

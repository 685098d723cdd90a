"""Keys of records: conversion from Python, the table for the C API, and the view of all keys."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from typing import Any, Iterator, List, Tuple

import numpy as np

from lmdbio._errors import InvalidArgumentError, InvalidTypeError

_KEY_TYPES = (bytes, str, bytearray, memoryview)

# lmdbio_key
_KEY = np.dtype([("data", np.uintp), ("size", np.uintp)])

# The keys that the view of all keys reads at once.
_CHUNK = 8192


def is_key(value: Any) -> bool:
    return isinstance(value, _KEY_TYPES)


def as_key(value: Any) -> bytes:
    """Returns a key as it is stored. A str is encoded as UTF-8."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgumentError(f"the key {value!r} has no UTF-8 form ({error.reason}): "
                                       f"pass bytes") from None
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    raise InvalidTypeError(f"a key is bytes or a str, not {type(value).__name__}")


def as_keys(wanted: Any) -> Tuple[List[bytes], bool]:
    """Returns keys, and whether `wanted` is one key and not several."""
    if is_key(wanted):
        return [as_key(wanted)], True
    if hasattr(wanted, "__array__"):
        wanted = np.asarray(wanted).tolist()
    if not isinstance(wanted, Iterable):
        raise InvalidTypeError(f"a key is bytes or a str, and several keys are an iterable or an "
                               f"array of them, not {type(wanted).__name__}")
    return [as_key(key) for key in wanted], False


class KeyTable:
    """An array of lmdbio_key, and the bytes that it points to."""

    def __init__(self, keys: List[bytes]) -> None:
        self._bytes = np.frombuffer(b"".join(keys) + b"\0", np.uint8)
        self._table = np.empty(len(keys), _KEY)
        sizes = np.fromiter(map(len, keys), np.uintp, len(keys))
        self._table["size"] = sizes
        self._table["data"] = self._bytes.ctypes.data + np.cumsum(sizes) - sizes

    @property
    def address(self) -> int:
        """Valid as long as this object."""
        return self.address_of(0)

    def address_of(self, i: int) -> int:
        """The address of key `i` and those after it."""
        return self._table.ctypes.data + i * _KEY.itemsize


def words_of_absent(path: str, keys: List[bytes], found: Any) -> str:
    """Returns the message about keys of which at least one is absent.

    found  whether each of them is there
    """
    missing = np.flatnonzero(~np.asarray(found, bool))
    first = int(missing[0])
    more = f" (and {len(missing) - 1} more of {len(keys)})" if len(missing) > 1 else ""
    place = f" at index {first}" if len(keys) > 1 else ""
    return f"{path}: has no key {reprlib.repr(keys[first])}{place}{more}"


class Keys:
    """The keys of all records, in order. They are read when they are needed, and not their values.

    A key with several values comes once for each, so key i is that of record i. With a view, of
    sample i; with its fields, a dict of the keys of the fields.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __iter__(self) -> Iterator[bytes]:
        for first in range(0, len(self), _CHUNK):
            yield from self._dataset._read_keys(first, min(_CHUNK, len(self) - first))

    def __contains__(self, key: Any) -> bool:
        return key in self._dataset

    def __repr__(self) -> str:
        return f"<the {len(self)} keys of lmdbio.Dataset>"


def first_if(single: bool, values: Any) -> Any:
    """Returns the only element for one key, else all."""
    return values[0] if single else values


"""Views: which records make which sample."""

from __future__ import annotations

import ctypes
import os
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from lmdbio import _capi
from lmdbio._errors import InvalidArgumentError, InvalidTypeError, NotFoundError
from lmdbio._files import Files, files_of
from lmdbio._keys import KeyTable, as_key, as_keys, is_key

_ORDERS = {"key": 0, "numeric": 1}


class _FieldStruct(ctypes.Structure):
    """lmdbio_view_field."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("key_template", ctypes.c_char_p),
        ("path", ctypes.c_char_p),
        ("database_name", ctypes.c_char_p),
    ]


class _ViewStruct(ctypes.Structure):
    """lmdbio_view."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("order", ctypes.c_int),
        ("exclude", ctypes.c_void_p),
        ("exclude_count", ctypes.c_size_t),
        ("fields", ctypes.POINTER(ctypes.POINTER(_FieldStruct))),
        ("field_count", ctypes.c_size_t),
        ("start", ctypes.c_uint64),
        ("has_count", ctypes.c_int),
        ("count", ctypes.c_uint64),
        ("count_key", ctypes.c_char_p),
        ("subset", ctypes.c_void_p),
        ("subset_keys", ctypes.c_void_p),
        ("subset_count", ctypes.c_size_t),
    ]


class Field(NamedTuple):
    """The records of a field of a view.

    path           another file; None: the file of the view
    database_name  a named database of the file; None: the view's database, or the main one of
                   another file
    key            the template of its keys, with a place for the number: "label-{:09d}". None: the
                   records of a sample have equal keys
    """

    path: Union[None, str, os.PathLike] = None
    database_name: Optional[str] = None
    key: Union[None, str, bytes] = None

    @property
    def is_own(self) -> bool:
        """Whether the records are those of the view's own database."""
        return self.path is None and self.database_name is None


def _c_text(what: str, text: Union[str, bytes]) -> bytes:
    encoded = as_key(text)
    if b"\0" in encoded:
        raise InvalidArgumentError(f"{what} contains a zero byte")
    return encoded


def _field_of(name: Any, value: Any) -> Field:
    if not isinstance(name, str):
        raise InvalidTypeError(f"the name of a field is a str, not {type(name).__name__}")
    if value is None:
        return Field()
    if isinstance(value, Field):
        if value.key is not None and not isinstance(value.key, (str, bytes)):
            raise InvalidTypeError(f"field {name!r}: key is a str or bytes, not "
                                   f"{type(value.key).__name__}")
        if value.path is not None and not isinstance(value.path, (str, os.PathLike)):
            raise InvalidTypeError(f"field {name!r}: path is a str or os.PathLike, not "
                                   f"{type(value.path).__name__}")
        return value
    if isinstance(value, os.PathLike):
        return Field(path=value)
    if not isinstance(value, (str, bytes)):
        raise InvalidTypeError(f"field {name!r} is a key template, a path, a lmdbio.Field or None, "
                               f"not {type(value).__name__}")
    braces = (b"{", b"}") if isinstance(value, bytes) else ("{", "}")
    if any(brace in value for brace in braces):
        return Field(key=value)
    if os.path.exists(value):
        return Field(path=os.fsdecode(value))
    raise InvalidArgumentError(
        f"field {name!r}: {value!r} is no file or folder, and no key template, because it has no "
        f"place for the number: write for example \"{name}-{{:09d}}\" or \"{name}-{{}}\"")


def _fields_of(fields: Any) -> Dict[str, Field]:
    if fields is None:
        return {}
    if not isinstance(fields, Mapping):
        raise InvalidTypeError(f"fields maps names to key templates or paths, as a dict does; it "
                               f"is no {type(fields).__name__}")
    if not fields:
        raise InvalidArgumentError("fields is empty; leave it out for samples of one record")
    found = {name: _field_of(name, value) for name, value in fields.items()}
    is_joined = all(field.key is None for field in found.values())
    if is_joined and not any(field.is_own for field in found.values()):
        # The view's own records are a field, too.
        if "value" in found:
            raise InvalidArgumentError("no field is of the view's own database: give one of them "
                                       "the value None")
        found = {"value": Field(), **found}
    return found


def _lines_of(path: Union[str, os.PathLike]) -> List[bytes]:
    try:
        with open(path, "rb") as file:
            lines = [line.strip() for line in file]
    except FileNotFoundError:
        raise NotFoundError(f"{os.fspath(path)}: the subset, a file with a key on each line, does "
                            f"not exist") from None
    return [line for line in lines if line]


_SUBSET = ("a subset is a sequence or array of integers or of keys, or the path of a file with a "
           "key on each line")


def _subset_of(subset: Any) -> Union[None, np.ndarray, List[bytes]]:
    """Returns the numbers of the samples as uint64, or their keys."""
    if subset is None:
        return None
    if isinstance(subset, (str, os.PathLike)):
        return _lines_of(subset)
    if isinstance(subset, bytes) or not isinstance(subset, Iterable):
        raise InvalidTypeError(f"{_SUBSET}, not {type(subset).__name__}")
    if not hasattr(subset, "__array__"):
        subset = list(subset)
        if subset and all(map(is_key, subset)):
            return [as_key(key) for key in subset]
        if any(map(is_key, subset)):
            raise InvalidTypeError(f"{_SUBSET}, and not both")
    try:
        array = np.asarray(subset)
    except ValueError:  # lists of several lengths
        raise InvalidTypeError(f"{_SUBSET}; this one holds other objects") from None
    if array.dtype.kind in "SU" or (
            array.dtype.kind == "O" and array.size > 0 and all(map(is_key, array.flat))):
        return [as_key(key) for key in array.tolist()]
    if array.size == 0 and array.dtype.kind == "f":  # an empty list
        array = array.astype(np.uint64)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        hint = "; numpy.flatnonzero(mask) returns the numbers of a mask" if (
            array.dtype.kind == "b") else ""
        raise InvalidTypeError(f"{_SUBSET}, not an array of {array.ndim} dimension(s) of "
                               f"{array.dtype}{hint}")
    negative = np.flatnonzero(array < 0)
    if len(negative):
        at = int(negative[0])
        raise InvalidArgumentError(f"subset[{at}] is {array[at]}; expected 0 or more")
    return np.ascontiguousarray(array, np.uint64)


class View:
    """Which records of a database make which sample: a description, which Loader, Dataset and the
    classes of lmdbio.torch take in place of a path. They then count and number samples.

        View("train.lmdb", exclude=["length"], order="numeric")
        View("ocr.lmdb", fields={"image": "image-{:09d}", "label": "label-{:09d}"}, start=1,
             count="num-samples")
        View("lq.lmdb", fields={"lq": None, "gt": "gt.lmdb"}, subset="split.txt")

    path      a directory with data.mdb, or a data file; several files as for Loader: their samples
              follow each other, file by file
    exclude   keys of records that are no samples; each may be absent
    order     "key": samples in the order of their keys. "numeric": keys are decimal numbers, and
              samples are in the order of these numbers
    fields    None: a sample is one record. Else names, and for each a key template with a place for
              the number of the sample ({}, or {:09d} for at least 9 digits); or a path: the records
              of that file with equal keys; or a Field; or None: the view's own records. If no
              field is the view's own, those are the field "value"
    start     with templates: the number of the first sample
    count     with templates: how many samples there are; or the key of a record that begins with
              this number. None: all numbers that are there
    subset    the numbers of chosen samples, from 0, in this order; or their keys; or the path of a
              text file with a key on each line. With templates a key is the number in the template
    database_name
              the named database of the view; None: the main one

    The view is resolved by the Loader or Dataset that opens it, which reads the keys of all records
    and no values. It can be pickled.
    Errors:  InvalidArgumentError, InvalidTypeError, NotFoundError. Those that need the database
             come from Loader and Dataset
    Threads: any; a view does not change
    """

    def __init__(self, path: Files, *, exclude: Any = (), order: str = "key",
                 fields: Optional[Mapping] = None, start: int = 0,
                 count: Union[None, int, str, bytes] = None, subset: Any = None,
                 database_name: Optional[str] = None) -> None:
        if isinstance(path, View):
            raise InvalidTypeError("the path of a view is a path, not another view")
        self.path = files_of(path)
        self.database_name = database_name
        if database_name is not None:
            _capi.text("database_name", database_name)
        self.exclude: Tuple[bytes, ...] = tuple(as_keys(exclude)[0])
        _capi.choice("order", order, _ORDERS)
        self.order = order
        self.fields: Dict[str, Field] = _fields_of(fields)
        self.start = _capi.number("start", start, ctypes.c_uint64)
        if count is not None and not isinstance(count, (str, bytes)):
            count = _capi.number("count", count, ctypes.c_uint64)
        self.count = count
        self.subset = _subset_of(subset)
        self.struct()  # reports what C could not take

    @property
    def field_names(self) -> Optional[Tuple[str, ...]]:
        """The names of the records of a sample; None: a sample is one record."""
        return tuple(self.fields) or None

    def struct(self) -> ctypes.Structure:
        """Returns lmdbio_view. It holds all that it points to."""
        struct = _ViewStruct(struct_size=ctypes.sizeof(_ViewStruct), order=_ORDERS[self.order],
                             start=self.start)
        held: List[Any] = []
        if self.exclude:
            held.append(KeyTable(list(self.exclude)))
            struct.exclude, struct.exclude_count = held[-1].address, len(self.exclude)
        structs = [_FieldStruct(
            struct_size=ctypes.sizeof(_FieldStruct), name=_c_text("the name of a field", name),
            key_template=None if field.key is None else _c_text(f"field {name!r}", field.key),
            path=None if field.path is None else _capi.path_of(field.path),
            database_name=None if field.database_name is None else _capi.text(
                "database_name", field.database_name)) for name, field in self.fields.items()]
        pointers = (ctypes.POINTER(_FieldStruct) * len(structs))(*map(ctypes.pointer, structs))
        struct.fields, struct.field_count = pointers, len(structs)
        if isinstance(self.count, int):
            struct.has_count, struct.count = 1, self.count
        elif self.count is not None:
            struct.count_key = _c_text("count", self.count)
        if isinstance(self.subset, np.ndarray):
            held.append(self.subset)
            struct.subset, struct.subset_count = self.subset.ctypes.data, len(self.subset)
        elif self.subset is not None:
            held.append(KeyTable(self.subset))
            struct.subset_keys, struct.subset_count = held[-1].address, len(self.subset)
        struct.held = (held, structs, pointers)
        return struct

    def __repr__(self) -> str:
        words = [reprlib.repr(self.path)]
        for name, default in (("exclude", ()), ("order", "key"), ("fields", {}), ("start", 0),
                              ("count", None), ("database_name", None)):
            value = getattr(self, name)
            if value != default:
                words.append(f"{name}={value!r}")
        if self.subset is not None:
            words.append(f"subset=<{len(self.subset)} samples>")
        return f"lmdbio.View({', '.join(words)})"


def taken_apart(path: Any, options: Dict[str, Any]) -> Tuple[Any, Optional[View]]:
    """Returns the path and the view of the first argument of a Loader or Dataset. Puts the view's
    database into `options`."""
    if not isinstance(path, View):
        return path, None
    if path.database_name is not None:
        if options.get("database_name") is not None:
            raise InvalidArgumentError("database_name is given by the view and by an argument")
        options["database_name"] = path.database_name
    return path.path, path


def words_of_choice(names: Sequence[str]) -> str:
    """Returns the message for a call that needs one field."""
    return (f"the samples have the fields {', '.join(map(repr, names))}: choose one, as in "
            f"batch[{names[0]!r}]")

"""What a path may be: one file, a folder, a glob, or a list of files."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import Any, List, NamedTuple, Optional, Tuple, Union

from lmdbio import _capi
from lmdbio._errors import InvalidArgumentError, InvalidTypeError

Path = Union[str, os.PathLike]
# A list holds paths, or pairs of a path and the name of a database in the file.
Files = Union[Path, "Sequence[Union[Path, Tuple[Path, Optional[str]]]]"]


class FileList(NamedTuple):
    """A list of files. Can be pickled; `str` names it in messages."""

    paths: Tuple[str, ...]
    names: Tuple[Optional[str], ...]  # of the databases; None: database_name

    def __str__(self) -> str:
        more = len(self.paths) - 1
        return str(self.paths[0]) + (f" and {more} more files" if more else "")

    def struct(self) -> "FilesStruct":
        """Returns lmdbio_files, which borrows nothing from this object."""
        paths = [_capi.path_of(path) for path in self.paths]
        names = [None if name is None else _capi.text("database_name", name)
                 for name in self.names]
        texts = ctypes.c_char_p * len(paths)
        struct = FilesStruct(ctypes.sizeof(FilesStruct), texts(*paths), texts(*names), len(paths))
        return struct


class FilesStruct(ctypes.Structure):
    """lmdbio_files."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("paths", ctypes.POINTER(ctypes.c_char_p)),
        ("database_names", ctypes.POINTER(ctypes.c_char_p)),
        ("count", ctypes.c_size_t),
    ]


def files_of(path: Any) -> Union[str, bytes, FileList]:
    """Returns the path of one file, a folder or a glob; or the list of files."""
    if isinstance(path, (str, bytes, os.PathLike, FileList)):
        return path if isinstance(path, FileList) else os.fspath(path)
    if not isinstance(path, Sequence):
        return os.fspath(path)  # raises the usual error
    pairs = [_pair_of(one) for one in path]
    if not pairs:
        raise InvalidArgumentError("the list of files is empty")
    return FileList(tuple(path for path, _ in pairs), tuple(name for _, name in pairs))


def _pair_of(one: Any) -> Tuple[str, Optional[str]]:
    if isinstance(one, (str, bytes, os.PathLike)):
        return os.fspath(one), None
    is_pair = isinstance(one, tuple) and len(one) == 2 and isinstance(one[1], (str, type(None)))
    if not is_pair:
        raise InvalidTypeError(f"a list of files holds paths, and pairs of a path and the name of "
                               f"a database, not {one!r}")
    return os.fspath(one[0]), one[1]

"""Delivers batches of an LMDB database at storage speed: shuffled, resumable, without a copy.

    with lmdbio.Loader("train.lmdb", batch_size=256, shuffle=True, seed=1) as loader:
        for epoch in range(10):
            for batch in loader:
                train(batch.array(), batch.keys())

`Loader` delivers batches in order, `Dataset` records by number or key. A `View` in place of a path
says which records make which sample; `lmdbio.views` has views of well-known sets. `lmdbio.torch`
has both for PyTorch's DataLoader. The package calls liblmdbio, the C API. It loads the library from
the path in $LMDBIO_LIBRARY, else from its own folder, else from the library folders of the system.
"""

from lmdbio import views
from lmdbio._batch import Batch, Record, Spans
from lmdbio._capi import version
from lmdbio._dataset import Dataset
from lmdbio._errors import (
    AbsentKeyError,
    AccessError,
    ClosedError,
    CorruptionError,
    InUseError,
    InvalidArgumentError,
    InvalidIndexError,
    InvalidStateError,
    InvalidTypeError,
    KeyOrderWarning,
    LibraryNotFoundError,
    LmdbioError,
    NotFoundError,
    OutOfMemoryError,
    PeerFailedError,
    ResourceExhaustedError,
    StaleError,
    StorageError,
    SystemLimitError,
    UnsupportedError,
)
from lmdbio._feed import DeviceArray, DeviceBatch, DeviceFeed
from lmdbio._loader import Loader
from lmdbio._view import Field, View

__all__ = [
    "AbsentKeyError", "AccessError", "Batch", "ClosedError", "CorruptionError", "Dataset",
    "DeviceArray", "DeviceBatch", "DeviceFeed", "Field", "InUseError", "InvalidArgumentError",
    "InvalidIndexError", "InvalidStateError", "InvalidTypeError", "KeyOrderWarning",
    "LibraryNotFoundError", "LmdbioError", "Loader", "NotFoundError", "OutOfMemoryError",
    "PeerFailedError", "Record", "ResourceExhaustedError", "Spans", "StaleError", "StorageError",
    "SystemLimitError", "UnsupportedError", "View", "version", "views",
]


def __getattr__(name: str) -> str:
    """Gives `__version__`: the version of the installed package, else that of the library."""
    import sys

    if name != "__version__":
        return object.__getattribute__(sys.modules[__name__], name)  # raises AttributeError
    import importlib.metadata

    try:
        return importlib.metadata.version("lmdbio")
    except importlib.metadata.PackageNotFoundError:  # it runs from a source tree
        return version()

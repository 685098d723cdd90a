"""Views of the databases that well-known programs write. Decoding their values is left to yours.

    loader = lmdbio.Loader(lmdbio.views.fairchem("data.0000.lmdb"), batch_size=32, shuffle=True)

Each returns a View. Further arguments are those of View, for example subset=.
"""

from __future__ import annotations

import glob
import os
from typing import Any, List, Tuple, Union

from lmdbio._errors import InvalidArgumentError
from lmdbio._keys import as_keys
from lmdbio._view import View

__all__ = ["arrays", "aselmdb", "basicsr", "deepmd", "fairchem", "ocr", "tape", "tensorpack",
           "unimol"]

Path = Union[str, os.PathLike]


def _numeric(path: Path, beside: Tuple[bytes, ...], more: Any) -> View:
    """Returns a view of decimal keys, in the order of their numbers.

    beside  keys of records that are no samples
    """
    more["exclude"] = [*beside, *as_keys(more.get("exclude", ()))[0]]
    return View(path, **{"order": "numeric", **more})


def _in_folder(path: Any, ending: str) -> Union[Path, List[str]]:
    """Returns the files of a folder in the order of their names, in which the family's reader
    takes them, too; any other path as it is."""
    if (not isinstance(path, (str, os.PathLike)) or not os.path.isdir(path)
            or os.path.exists(os.path.join(path, "data.mdb"))):
        return path
    return sorted(glob.glob(os.path.join(glob.escape(os.fspath(path)), "*" + ending))) or path


def fairchem(path: Path, **more: Any) -> View:
    """fairchem and OCP: keys "0", "1", ..., and the record `length`. Values are pickles. A folder
    stands for its files *.lmdb in the order of their names."""
    return _numeric(_in_folder(path, ".lmdb"), (b"length",), more)


def aselmdb(path: Path, **more: Any) -> View:
    """ASE databases in LMDB, as of OMol25 and OMat24: keys from "1" on, without those of deleted
    rows. Values are JSON, compressed by zlib. A folder stands for its files *.aselmdb in the order
    of their names."""
    return _numeric(_in_folder(path, ".aselmdb"), (b"nextid", b"deleted_ids", b"metadata"), more)


def deepmd(path: Path, **more: Any) -> View:
    """DeePMD-kit and dpdata: keys of 12 digits, and `__metadata__`. Values are msgpack."""
    return _numeric(path, (b"__metadata__",), more)


def unimol(path: Path, **more: Any) -> View:
    """Uni-Mol: keys "0", "1", ... Values are pickles. Uni-Core's own LMDBDataset counts in key
    order, and Uni-Mol 2 has keys of 4 bytes: for them take the path itself."""
    return _numeric(path, (), more)


def tape(path: Path, **more: Any) -> View:
    """TAPE, torchdrug and ATOM3D: keys "0", "1", ..., and records about the set. Values are
    pickles, or JSON compressed by gzip."""
    return _numeric(path, (b"num_examples", b"serialization_format", b"id_to_idx"), more)


def tensorpack(path: Path, **more: Any) -> View:
    """tensorpack's LMDBSerializer (keys of 8 digits) and Efficient-PyTorch (keys "0", "1", ...),
    with `__keys__` and `__len__`. Values are msgpack or pyarrow."""
    return _numeric(path, (b"__keys__", b"__len__"), more)


def ocr(path: Path, **more: Any) -> View:
    """deep-text-recognition-benchmark, PARSeq and others: fields `image` (a file of an image) and
    `label` (text in UTF-8), numbered from 1, and the record `num-samples`."""
    return View(path, **{"fields": {"image": "image-{:09d}", "label": "label-{:09d}"}, "start": 1,
                         "count": "num-samples", **more})


def arrays(path: Path, *names: str, **more: Any) -> View:
    """Self-Forcing, CausVid, DMD2 and others: a field for each named array, with keys
    NAME_0_data, NAME_1_data, ... Values are the bytes of arrays, or text. The record NAME_shape of
    the first array begins with the number of samples."""
    if not names:
        raise InvalidArgumentError("arrays needs the names of the arrays, as in "
                                   "arrays(path, \"latents\", \"prompts\")")
    return View(path, **{"fields": {name: name + "_{}_data" for name in names},
                         "count": f"{names[0]}_shape", **more})


def basicsr(lq: Path, gt: Path, **more: Any) -> View:
    """BasicSR, NAFNet and mmagic: pairs of two files with equal keys, as fields `lq` and `gt`.
    Values are files of images. Samples are in the order of keys, as in BasicSR; mmagic counts in
    that of meta_info.txt, which is subset=[line.split(".")[0] for line in open(...)]."""
    return View(lq, **{"fields": {"lq": None, "gt": os.fspath(gt)}, **more})

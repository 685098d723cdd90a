#!/usr/bin/python3
"""Measures the overhead of Python for a batch: the time of lmdbio.Loader minus that of its C call.

    LMDBIO_LIBRARY=build/release/lib/liblmdbio.so bench/python_overhead.py PATH [--batch-size N,...]

Each row is the minimum of several epochs. The page cache is filled first, so the C call never
sleeps. `array(copy=True)` also copies the bytes.
"""

import argparse
import ctypes
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lmdbio" / "api" / "python"))

import lmdbio  # noqa: E402
from lmdbio import _capi  # noqa: E402

WAYS = {
    "the loop": lambda batch: None,
    "spans()": lambda batch: batch.spans(),
    "values()": lambda batch: batch.values(),
    "keys()": lambda batch: batch.keys(),
    "array()": lambda batch: batch.array(),
    "array(copy=True)": lambda batch: batch.array(copy=True),
}


def fill_page_cache(path):
    file = os.path.join(path, "data.mdb") if os.path.isdir(path) else path
    with open(file, "rb", buffering=0) as data:
        while data.read(1 << 24):
            pass


def seconds_of_c(path, batch_size):
    """The seconds of lmdbio_fetch and lmdbio_result_close for a batch, from one epoch."""
    with lmdbio.Loader(path, batch_size) as loader:
        handle, count, result = loader._use().handle, len(loader), ctypes.c_void_p()
        pointer = ctypes.POINTER(_capi.BatchStruct)()
        fetch, close = _capi.library().lmdbio_fetch, _capi.library().lmdbio_result_close
        out_result, out_batch = ctypes.byref(result), ctypes.byref(pointer)
        start = time.perf_counter()
        for _ in range(count):
            fetch(handle, 1000, out_result, out_batch)
            close(result)
        return (time.perf_counter() - start) / count


def seconds_of_python(path, batch_size, use):
    with lmdbio.Loader(path, batch_size) as loader:
        start = time.perf_counter()
        for batch in loader:
            use(batch)
        return (time.perf_counter() - start) / len(loader)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", metavar="PATH", help="a directory with data.mdb, or a single file")
    parser.add_argument("--batch-size", default="1,64,256,1024", metavar="N,...")
    parser.add_argument("--repeat", type=int, default=5, metavar="N")
    options = parser.parse_args()
    fill_page_cache(options.path)
    with lmdbio.Loader(options.path) as loader:
        print(f"{options.path}: {loader.record_count} records; {loader.describe()}; times in us")
    print(f"{'records':>8}  {'C call':>8}" + "".join(f"  {name:>16}" for name in WAYS))
    for size in map(int, options.batch_size.split(",")):
        c_call = min(seconds_of_c(options.path, size) for _ in range(options.repeat))
        cells = []
        for use in WAYS.values():
            whole = min(seconds_of_python(options.path, size, use) for _ in range(options.repeat))
            cells.append(f"  {1e6 * (whole - c_call):16.1f}")
        print(f"{size:8}  {1e6 * c_call:8.1f}" + "".join(cells))


if __name__ == "__main__":
    main()

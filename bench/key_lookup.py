#!/usr/bin/python3
"""Compares lookups of random keys with py-lmdb's `get`, cold, on storage with a delay.

    LMDBIO_LIBRARY=build/release/lib/liblmdbio.so bench/key_lookup.py [--json FILE]

Makes a database for each size of values and reads it from storage with a delay (root):
scripts/remote-storage, or with --delayed-mount PROGRAM that program of bench/, which answers five
times as many requests; or in place with --local, warm. Each run is a process of its own, and opens
the mount anew, which drops its page cache. All readers get the same random keys, each once, and
copy every value. The columns:

    records/s   from the call of the first key to the last value; the database is open already
    times get   the same divided by that of py-lmdb, with and without read-ahead of the kernel

    py-lmdb             txn.get(key), one key after the other, with the read-ahead of its default
    py-lmdb, no ahead   the same with readahead=False, as most training scripts open it
    py-lmdb, sorted     the same, keys in the order of the database
    get                 dataset.get(keys), all keys in one call
    get direct          the same with cache="direct"
    get, 256            `get` in calls of 256 keys
    get, 1              the same in calls of 1 key
    C, 256              the C call behind `get`, which leaves the values in lmdbio's memory: the
                        difference to `get` is what copies into new objects of Python cost
    C, 256, direct      the same with cache="direct"
    key index           get in one call, with a kept layout and a kept key index
    absent              get of keys that are not there; and with the index
    find                dataset.find(keys): numbers; waits until the page walk has ended
    raw pages           random pages of 4 KiB by O_DIRECT and --connections threads: what the
                        storage gives. A value of up to half a page costs less than a page of it, as
                        several keys share a page; a larger one costs one page or more, and the page
                        with its key
    raw values          the same with reads of as many pages as a value occupies

A reader stops after --seconds-max, and its rate is that of the keys so far. A figure is the median
of --repeat runs, the range in parentheses. Runs of one size take turns. The values of the first
keys are compared. Exits with 77 if something is missing.
"""

import argparse
import concurrent.futures
import ctypes
import functools
import hashlib
import json
import mmap
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "lmdbio" / "api" / "python"), str(ROOT / "tests" / "support")]

from output_files import scratch_folder, write_report  # noqa: E402
from remote_mount import why_not_here  # noqa: E402

SKIPPED = 77
COMPARED = 100  # values whose digest all readers report
PY_LMDB = ("py-lmdb", "py-lmdb, no ahead", "py-lmdb, sorted")
ABSENT = ("absent", "absent, index")
RAW = ("raw pages", "raw values")
C_CALLS = ("C, 256", "C, 256, direct")
READERS = (*PY_LMDB, "get", "get direct", "get, 256", "get, 1", *C_CALLS, "key index", *ABSENT,
           "find", *RAW)
PAGE = 4096
HEADER_BYTES = 16  # of a page


def keys_of(records, count, absent):
    """Random keys of lmdbio-make synthetic, or keys between them."""
    chosen = random.Random(1).sample(range(records), count)
    return [b"%08d" % number + (b"?" if absent else b"") for number in chosen]


def digest(values):
    return hashlib.sha256(b"".join(values)).hexdigest()[:16]


def read_py_lmdb(reader, path, keys, seconds_max):
    import lmdb

    with lmdb.open(str(path), readonly=True, lock=False, meminit=False,
                   readahead="no ahead" not in reader) as environment:
        first, done = [], 0
        if "sorted" in reader:
            keys = sorted(keys)
        with environment.begin(buffers=True) as transaction:
            begin = time.perf_counter()
            for key in keys:
                value = bytes(transaction.get(key))
                done += 1
                if done <= COMPARED:
                    first.append(value)
                if time.perf_counter() - begin > seconds_max:
                    break
            seconds = time.perf_counter() - begin
    return done / seconds, None if "sorted" in reader else digest(first)


def read_raw(path, page_count, count, thread_count, seconds_max):
    """Reads `page_count` pages at once. Python opens the file in each thread, because reads of one
    descriptor may wait for each other."""
    data_path = pathlib.Path(path) / "data.mdb"
    last_page = data_path.stat().st_size // PAGE - page_count
    read_bytes = page_count * PAGE
    end = time.perf_counter() + seconds_max

    def read(pages):
        memory = mmap.mmap(-1, read_bytes)
        file = os.open(data_path, os.O_RDONLY | os.O_DIRECT)
        done = 0
        for number in pages:
            done += os.preadv(file, [memory], number * PAGE) == read_bytes
            if time.perf_counter() > end:
                break
        os.close(file)
        return done

    chosen = random.Random(2).sample(range(last_page + 1), min(count, last_page + 1))
    with concurrent.futures.ThreadPoolExecutor(thread_count) as pool:
        begin = time.perf_counter()
        done = sum(pool.map(read, [chosen[i::thread_count] for i in range(thread_count)]))
        return done / (time.perf_counter() - begin), None


def get_in_c(dataset, keys):
    """Reads the records of keys, and copies none."""
    from lmdbio import _capi
    from lmdbio._keys import KeyTable

    table, result, records = KeyTable(keys), ctypes.c_void_p(), ctypes.c_void_p()
    dataset._call("lmdbio_dataset_get", table.address, len(keys), ctypes.byref(result),
                  ctypes.byref(records))
    _capi.library().lmdbio_result_close(result)


def read_lmdbio(reader, path, keys, cache, depth, seconds_max):
    import lmdbio

    with lmdbio.Dataset(path, layout_cache=cache or "off", queue_depth=depth,
                        cache="direct" if "direct" in reader else None) as dataset:
        if "index" in reader:
            dataset.use_key_index()
        step = int(reader.split(", ")[1]) if ", " in reader and reader not in ABSENT else len(keys)
        ask = dataset.find if reader == "find" else dataset.get
        if reader in C_CALLS:
            ask = functools.partial(get_in_c, dataset)
        first, done = [], 0
        begin = time.perf_counter()
        for at in range(0, len(keys), step):
            found = ask(keys[at:at + step])
            done = min(at + step, len(keys))
            if reader not in (*ABSENT, *C_CALLS, "find") and at < COMPARED:
                first += [record.value for record in found]
            if time.perf_counter() - begin > seconds_max:
                break
        seconds = time.perf_counter() - begin
    return done / seconds, digest(first[:COMPARED]) if first else None


def measure(options):
    """The process of one run: prints its rate and digest as JSON."""
    keys = keys_of(options.records, options.keys, options.reader in ABSENT)
    if options.reader in PY_LMDB:
        result = read_py_lmdb(options.reader, options.path, keys, options.seconds_max)
    elif options.reader in RAW:
        value_pages = -(-(HEADER_BYTES + options.value_bytes) // PAGE)
        result = read_raw(options.path, value_pages if options.reader == "raw values" else 1,
                          len(keys), options.connections, options.seconds_max)
    else:
        result = read_lmdbio(options.reader, options.path, keys, options.cache,
                             options.queue_depth, options.seconds_max)
    print(json.dumps(result))


def run(reader, path, size, records, options, cache):
    words = [sys.executable, __file__, "--reader", reader, "--path", path, "--records", records,
             "--value-bytes", size, "--keys", min(options.keys, records),
             "--seconds-max", options.seconds_max, "--connections", options.connections,
             "--queue-depth", options.queue_depth]
    if "index" in reader:
        words += ["--cache", cache]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        sys.exit(f"key_lookup: {reader}: {last}")
    return json.loads(done.stdout)


def make(folder, size, options):
    """A database of `size` bytes a value. Returns its path and number of records."""
    records = max(options.database_bytes // size, 1)
    path = folder / f"values-of-{size}"
    subprocess.run([options.make, "synthetic", path, "--count", str(records), "--value-size",
                    str(size), "--no-provenance"], check=True, capture_output=True)
    return path, records


def compare(path, size, records, options, cache):
    """Returns the rates of each reader: {reader: [records/s]}."""
    rates, digests = {reader: [] for reader in READERS}, set()
    if not options.local:  # the index and the layout that a run finds are made once
        run("key index", path, size, records, options, cache)
    for _ in range(options.repeat):
        for reader in READERS:
            rate, seen = run(reader, path, size, records, options, cache)
            rates[reader].append(rate)
            digests |= {seen} - {None}
    if len(digests) != 1:
        sys.exit(f"key_lookup: the readers got different values: {digests}")
    return rates


def print_table(size, records, rates, options):
    base = [statistics.median(rates[reader]) for reader in PY_LMDB[:2]]
    print(f"\n{min(options.keys, records):,} random keys of {records:,} records of {size:,} B")
    print(f"{'':20}{'records/s':>12}{'(range)':>20}{'times get':>12}{'no ahead':>10}")
    for reader in READERS:
        rate = statistics.median(rates[reader])
        spread = f"({min(rates[reader]):,.0f} to {max(rates[reader]):,.0f})"
        print(f"{reader:20}{rate:12,.0f}{spread:>20}{rate / base[0]:12.1f}{rate / base[1]:10.1f}",
              flush=True)


def remote(folder, path, options):
    """Mounts a database. Returns the mount point."""
    mountpoint = folder / "mount"
    if options.delayed_mount:
        mountpoint.mkdir()
        words = [options.delayed_mount, "--file", path / "data.mdb", "--mountpoint", mountpoint,
                 "--delay-us", 1000 * options.delay_ms, "--requests", options.connections]
        options.server = subprocess.Popen(list(map(str, words)))
        while not (mountpoint / "data.mdb").exists():
            if options.server.poll() is not None:
                sys.exit(f"key_lookup: {options.delayed_mount} failed")
            time.sleep(0.05)
        return mountpoint
    subprocess.run([ROOT / "scripts" / "remote-storage", "up", path, mountpoint, "--delay-ms",
                    str(options.delay_ms), "--connections", str(options.connections), "--rate",
                    options.rate], check=True, capture_output=True)
    return mountpoint


def down(mountpoint, options):
    if options.delayed_mount:
        options.server.terminate()  # which unmounts
        options.server.wait(timeout=30)
        mountpoint.rmdir()
        return
    subprocess.run([ROOT / "scripts" / "remote-storage", "down", mountpoint, "--force"],
                   check=False, capture_output=True)


def compare_size(folder, size, options):
    path, records = make(folder, size, options)
    cache = folder / f"cache-{size}"
    try:
        place = path if options.local else remote(folder, path, options)
        return records, compare(place, size, records, options, cache)
    finally:
        if not options.local:
            down(folder / "mount", options)
        (path / "data.mdb").unlink()


def why_not(options):
    try:
        import lmdb  # noqa: F401
    except ImportError:
        return "python3-lmdb is not installed"
    if not options.make.exists():
        return f"{options.make} does not exist; build lmdbio-make, or name it with --make"
    if options.delayed_mount and not options.delayed_mount.exists():
        return f"{options.delayed_mount} does not exist; build it with the preset release"
    return None if options.local else why_not_here()


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="3080,16384,110000", help="of values, in bytes")
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--database-bytes", type=int, default=2_000_000_000, help="of values")
    parser.add_argument("--delay-ms", type=int, default=1, help="of each read of the storage")
    parser.add_argument("--connections", type=int, default=8, help="requests in flight")
    parser.add_argument("--queue-depth", type=int, default=32, help="of lmdbio's reads of values")
    parser.add_argument("--delayed-mount", type=pathlib.Path, metavar="PROGRAM",
                        help="the storage: build/release/bin/delayed_mount, without a limited rate")
    parser.add_argument("--rate", default="8G", help="of the storage, bits per second")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seconds-max", type=float, default=20, help="of a run")
    parser.add_argument("--local", action="store_true", help="read in place")
    parser.add_argument("--folder", type=pathlib.Path, help="for the databases")
    parser.add_argument("--make", type=pathlib.Path,
                        default=ROOT / "build" / "release" / "bin" / "lmdbio-make")
    parser.add_argument("--json", type=pathlib.Path, help="write all runs into this file")
    for name, kind in (("--reader", str), ("--path", str), ("--records", int), ("--cache", str),
                       ("--value-bytes", int)):
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parse()
    if options.reader:
        measure(options)
        return
    reason = why_not(options)
    if reason:
        print(f"key_lookup: skipped: {reason}")
        sys.exit(SKIPPED)
    results = {}
    with scratch_folder("keys", options.folder) as name:
        for size in map(int, options.sizes.split(",")):
            records, rates = compare_size(pathlib.Path(name), size, options)
            print_table(size, records, rates, options)
            results[size] = {"records": records, "records_per_s": rates}
    if options.json:
        facts = {"keys": options.keys, "delay_ms": options.delay_ms, "local": options.local,
                 "connections": options.connections, "queue_depth": options.queue_depth,
                 "delayed_mount": options.delayed_mount is not None,
                 "load": os.getloadavg()[0]}
        write_report(options.json, json.dumps({**facts, "sizes": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()

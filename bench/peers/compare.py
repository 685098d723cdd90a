#!/usr/bin/python3
"""Reads one LMDB database through py-lmdb, a PyTorch DataLoader and lmdbio, and prints the rates.

    bench/peers/compare.py PATH [--batch-size N] [--workers 0,2] [--order sequential,shuffled] ...

bench/peers/README.md explains the timing and its fairness. `scripts/setup --bench` installs the
modules. Exits with 1 if a reader fails or, with --verify, if two readers deliver different records.
"""

import argparse
import dataclasses
import datetime
import itertools
import json
import os
import pathlib
import platform
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

try:
    import lmdb
    import torch
    import torch.utils.data
    import xxhash
except ImportError as missing:
    sys.exit(f"compare.py: {missing}; `scripts/setup --bench` installs it for /usr/bin/python3")

ROOT = pathlib.Path(__file__).resolve().parents[2]
LMDBIO_BENCH = ROOT / "build" / "release" / "bin" / "lmdbio-bench"
LMDBIO_LIBRARY = ROOT / "build" / "release" / "lib" / "liblmdbio.so"
sys.path.insert(0, str(ROOT / "lmdbio" / "api" / "python"))
# The options of lmdbio-bench for each order. The Python readers support only PYTHON_ORDERS.
ORDERS = {
    "sequential": ("--order", "sequential"),
    "shuffled": ("--order", "shuffle", "--shuffle", "global"),
    "block": ("--order", "shuffle", "--shuffle", "block"),
}
PYTHON_ORDERS = ("sequential", "shuffled")
SHUFFLES = {"sequential": False, "shuffled": "global", "block": "block"}  # of lmdbio.torch
UINT64_MASK = (1 << 64) - 1


class Failure(Exception):
    """Ends the program with one line on standard error."""


@dataclasses.dataclass
class Run:
    """One pass over the database. The checksum is None if it was not requested."""

    reader: str
    order: str
    records_per_s: float
    bytes_per_s: float
    first_batch_s: float
    checksum: int | None = None


@dataclasses.dataclass
class Records:
    """The records to read: all, or the first `--records` in key order."""

    path: str
    batch_size: int
    readahead: bool
    keys: list  # keys of all records to read, in order
    shuffled: list  # indices of keys, in the order of a shuffled pass

    def open(self):
        return lmdb.open(self.path, subdir=os.path.isdir(self.path), readonly=True, lock=False,
                         readahead=self.readahead, max_spare_txns=1)


def list_records(options):
    """Finds the keys, outside the measured time (README.md)."""
    records = Records(options.path, options.batch_size, not options.no_readahead, [], [])
    with records.open() as environment, environment.begin() as transaction:
        keys = transaction.cursor().iternext(keys=True, values=False)
        records.keys = list(itertools.islice(keys, options.records))
    if not records.keys:
        raise Failure(f"{options.path} has no records")
    if len(set(records.keys)) < len(records.keys):
        raise Failure(f"{options.path} has duplicates, which a key does not distinguish")
    records.shuffled = list(range(len(records.keys)))
    random.Random(options.seed).shuffle(records.shuffled)
    return records


def make_batch(values):
    """Copies the values into one buffer, as a training step needs them. This reads every byte."""
    return bytearray().join(values), [len(value) for value in values]


def batches_by_lmdb(records, order):
    """One process and one transaction. Values are views of the map until the batch copies them."""
    with records.open() as environment, environment.begin(buffers=True) as transaction:
        if order == "sequential":
            cursor = transaction.cursor().iternext(keys=False, values=True)
            values = itertools.islice(cursor, len(records.keys))
        else:
            values = (transaction.get(records.keys[number]) for number in records.shuffled)
        while batch := list(itertools.islice(values, records.batch_size)):
            yield make_batch(batch)


class LmdbDataset(torch.utils.data.Dataset):
    """Records by number. Each worker opens the database itself, after the fork."""

    def __init__(self, records):
        self.records = records
        self.transaction = None

    def __len__(self):
        return len(self.records.keys)

    def __getitem__(self, number):
        if self.transaction is None:
            self.transaction = self.records.open().begin(buffers=True)
        return self.transaction.get(self.records.keys[number])


def collate(values):
    data, sizes = make_batch(values)
    return (torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0)), sizes


def batches_by_loader(records, order, worker_count):
    """A DataLoader. Its workers build the batches and pass them through shared memory."""
    numbers = records.shuffled if order == "shuffled" else range(len(records.keys))
    loader = torch.utils.data.DataLoader(
        LmdbDataset(records), batch_size=records.batch_size, sampler=numbers,
        num_workers=worker_count, collate_fn=collate)
    for data, sizes in loader:
        yield memoryview(data.numpy()), sizes


def values_of(batch):
    """Converts a batch of lmdbio to the result of collate."""
    rows, sizes = batch.array(copy=True), batch.sizes.tolist()
    if all(size == rows.shape[1] for size in sizes):
        return torch.from_numpy(rows.reshape(-1)), sizes
    return collate(batch.values())


def batches_by_lmdbio(options, order, worker_count):
    """lmdbio.torch in a DataLoader. Without workers the DataLoader passes the batches on."""
    import lmdbio.torch

    dataset = lmdbio.torch.IterableDataset(
        options.path, options.batch_size, shuffle=SHUFFLES[order],
        seed=options.seed & UINT64_MASK, decode=values_of)
    loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=worker_count)
    for data, sizes in loader:
        yield memoryview(data.numpy()), sizes


def batch_checksum(data, sizes):
    """The sum of the XXH3-64 hashes of all values. It does not depend on the order."""
    view, total, offset = memoryview(data), 0, 0
    for size in sizes:
        total += xxhash.xxh3_64_intdigest(view[offset : offset + size])
        offset += size
    return total


def time_batches(reader, order, batches, verify):
    """Times a generator of batches from its first step, which opens the database, to its end."""
    record_count = byte_count = checksum = 0
    first_batch_s = None
    start = time.perf_counter()
    for data, sizes in batches:
        if first_batch_s is None:
            first_batch_s = time.perf_counter() - start
        record_count += len(sizes)
        byte_count += len(data)
        if verify:
            checksum += batch_checksum(data, sizes)
    seconds = time.perf_counter() - start
    return Run(reader, order, record_count / seconds, byte_count / seconds, first_batch_s,
               checksum & UINT64_MASK if verify else None)


def run_lmdbio(options, order):
    """The runs that lmdbio-bench reports, or the reason for their absence. lmdbio-bench computes
    the checksum itself."""
    if not options.lmdbio_bench.is_file():
        return [], "not built"
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.json")
        result = subprocess.run(
            [options.lmdbio_bench, "read", options.path, "--strategy", "auto", "--no-raw",
             "--checksum", "values", *ORDERS[order], "--seed", str(options.seed & UINT64_MASK),
             "--global-batch-size", str(options.batch_size), "--json", report,
             *(["--drop-caches"] if options.cold else [])],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            lines = result.stderr.strip().splitlines() or ["no message"]
            raise Failure(f"lmdbio-bench failed: {lines[-1]}")
        runs = json.loads(report.read_text(encoding="utf-8"))["runs"]
    return [lmdbio_run(run, order) for run in runs], None


def lmdbio_run(run, order):
    ranks = run.get("ranks", 1)
    checksum = run.get("checksum")
    return Run(
        f"lmdbio {run['strategy']}, {ranks} rank{'s' * (ranks != 1)}", order,
        run["records_per_s"], run["bytes_per_s"], run["first_batch_s"],
        int(checksum, 16) if isinstance(checksum, str) else checksum)


def drop_caches():
    subprocess.run([ROOT / "scripts" / "remote-storage", "drop"], check=True)


def run_all(options, records):
    """All runs, interleaved, so that a drift of the machine affects all readers equally."""
    runs, note = [], None
    for _ in range(options.repeat):
        for order in options.order:
            if order in PYTHON_ORDERS:
                runs += run_python(options, records, order)
            lmdbio_runs, note = run_lmdbio(options, order)
            runs += lmdbio_runs + run_lmdbio_torch(options, order)
    return runs, note


def run_python(options, records, order):
    runs = []
    for worker_count in [None, *options.workers]:
        if worker_count is None:
            reader, batches = "py-lmdb", batches_by_lmdb(records, order)
        else:
            reader = f"DataLoader, {worker_count} worker{'s' * (worker_count != 1)}"
            batches = batches_by_loader(records, order, worker_count)
        if options.cold:
            drop_caches()
        runs.append(time_batches(reader, order, batches, options.verify))
    return runs


def run_lmdbio_torch(options, order):
    """None without the library; the note of run_lmdbio reports its absence."""
    runs = []
    for worker_count in options.workers if options.lmdbio_library.is_file() else []:
        os.environ["LMDBIO_LIBRARY"] = str(options.lmdbio_library)
        if options.cold:
            drop_caches()
        runs.append(time_batches(
            f"lmdbio.torch, {worker_count} worker{'s' * (worker_count != 1)}", order,
            batches_by_lmdbio(options, order, worker_count), options.verify))
    return runs


def summarize(runs):
    """One row for each order and reader, in the order of first runs: median, minimum, maximum."""
    groups = {}
    for run in runs:
        groups.setdefault((run.order, run.reader), []).append(run)
    rows = []
    for (order, reader), group in groups.items():
        rates = [run.records_per_s for run in group]
        rows.append({
            "order": order, "reader": reader, "runs": len(group),
            "records_per_s": statistics.median(rates),
            "records_per_s_min": min(rates), "records_per_s_max": max(rates),
            "bytes_per_s": statistics.median(run.bytes_per_s for run in group),
            "first_batch_s": statistics.median(run.first_batch_s for run in group),
            "checksums": sorted({f"{run.checksum:016x}" for run in group
                                 if run.checksum is not None}),
        })
    return rows


def print_table(rows, note):
    heads = ("order", "reader", "records/s", "(min to max)", "MB/s", "first batch s", "checksum")
    lines = [heads]
    for row in rows:
        lines.append((
            row["order"], row["reader"], f"{row['records_per_s']:,.0f}",
            f"({row['records_per_s_min']:,.0f} to {row['records_per_s_max']:,.0f})",
            f"{row['bytes_per_s'] / 1e6:,.1f}", f"{row['first_batch_s']:.4f}",
            " ".join(row["checksums"]) or "-"))
    if note:
        lines.append(("", "lmdbio", note, "", "", "", ""))
    widths = [max(map(len, column)) for column in zip(*lines)]
    for line in lines:
        cells = [cell.ljust(width) if index in (0, 1, 6) else cell.rjust(width)
                 for index, (cell, width) in enumerate(zip(line, widths))]
        print("  ".join(cells).rstrip())


def command_line(options):
    """The command that repeats these figures, without the paths of this machine."""
    words = ["PATH" if word == options.path else word for word in sys.argv[1:]]
    words = [pathlib.Path(word).name if os.path.isabs(word) else word for word in words]
    return shlex.join(["bench/peers/compare.py", *words])


def commit():
    """The commit of the tree; "unknown" without git."""
    try:
        result = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"],
                                capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return result.stdout.strip() or "unknown"


def describe(options, records):
    """The setting on which the figures depend."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "date": datetime.date.today().isoformat(), "commit": commit(),
        "command": command_line(options), "memory_gib": round(memory_bytes / 2**30, 1),
        "records": len(records.keys), "batch_size": options.batch_size,
        "cache": "dropped before each run" if options.cold else "as found",
        "readahead": records.readahead, "verify": options.verify, "repeat": options.repeat,
        "kernel": platform.release(), "cores": os.cpu_count(),
        "python": platform.python_version(), "torch": torch.__version__,
        "py-lmdb": lmdb.__version__, "liblmdb": ".".join(map(str, lmdb.version())),
    }


def number_list(text):
    if not all(word.isdecimal() for word in text.split(",")):
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of numbers")
    return [int(word) for word in text.split(",")]


def order_list(text):
    if not set(text.split(",")) <= set(ORDERS):
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of {', '.join(ORDERS)}")
    return text.split(",")


def positive(text):
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive number")
    return int(text)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", metavar="PATH", help="a directory with data.mdb, or a single file")
    parser.add_argument("--batch-size", type=positive, default=256, metavar="N")
    parser.add_argument("--workers", type=number_list, default=[0, 2], metavar="N,...",
                        help="workers of the DataLoader; 0: the main process reads (default: 0,2)")
    parser.add_argument("--order", type=order_list, default=list(ORDERS), metavar="ORDER,...",
                        help="sequential, shuffled, or block (lmdbio only) (default: all)")
    parser.add_argument("--records", type=positive, metavar="N",
                        help="the Python readers read only the first N records (default: all)")
    parser.add_argument("--no-readahead", action="store_true",
                        help="open LMDB with readahead=False, as usual for shuffled reading")
    parser.add_argument("--cold", action="store_true",
                        help="drop the page caches before each run (needs root)")
    parser.add_argument("--verify", action="store_true",
                        help="compute checksums of the records, within the measured time")
    parser.add_argument("--repeat", type=positive, default=1, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="N",
                        help="seed of the shuffled order")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all runs to FILE")
    parser.add_argument("--condition", metavar="NAME",
                        help="with --json: store the runs in FILE under this name and replace "
                             "earlier runs of the name; scripts/plot_readme.py draws such a file")
    parser.add_argument("--lmdbio-bench", type=pathlib.Path, default=LMDBIO_BENCH,
                        metavar="PROGRAM", help="lmdbio-bench (default: in build/release/bin)")
    parser.add_argument("--lmdbio-library", type=pathlib.Path, default=LMDBIO_LIBRARY,
                        metavar="FILE", help="liblmdbio (default: in build/release/lib)")
    options = parser.parse_args()
    if options.cold and os.geteuid() != 0:
        parser.error("--cold needs root")
    if options.condition is not None and options.json is None:
        parser.error("--condition needs --json FILE")
    return options


def check_checksums(rows, records_limit):
    """Checks that all passes over the whole database delivered the same records. lmdbio has no
    --records, so limited passes are not compared with it."""
    found = {checksum for row in rows for checksum in row["checksums"]
             if records_limit is None or not row["reader"].startswith("lmdbio")}
    if len(found) > 1:
        raise Failure(f"the readers delivered different records: {' '.join(sorted(found))}")


def load_conditions(path):
    """The comparisons of earlier runs in a file, by condition."""
    if not path.exists():
        return {}
    try:
        conditions = json.loads(path.read_text(encoding="utf-8"))["conditions"]
    except (ValueError, LookupError, TypeError) as error:
        raise Failure(f"{path} is not a file of conditions; name another file") from error
    return conditions


def save(options, conditions, result):
    if options.condition is not None:
        result = {"conditions": conditions | {options.condition: result}}
    options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def compare(options):
    # A file of another kind is refused before the measurements.
    conditions = load_conditions(options.json) if options.condition is not None else {}
    records = list_records(options)
    setting = describe(options, records)
    print(", ".join(f"{name} {value}" for name, value in setting.items()))
    runs, note = run_all(options, records)
    rows = summarize(runs)
    print_table(rows, note)
    check_checksums(rows, options.records)
    if options.json:
        details = [dataclasses.asdict(run) for run in runs]
        save(options, conditions,
             {"setting": setting, "summary": rows, "runs": details, "lmdbio": note})


def main():
    try:
        compare(parse_options())
    except (Failure, lmdb.Error, OSError, subprocess.CalledProcessError) as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

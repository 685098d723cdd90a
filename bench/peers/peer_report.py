"""The report of a comparison: the setting, the tables and the JSON file."""

import dataclasses
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys

import lmdb
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from output_files import write_report  # noqa: E402

from peer_source import Failure  # noqa: E402
from readers import interface  # noqa: E402

HEADS = ("order", "reader", "records/s", "(min to max)", "MB/s", "first batch s", "checksum")
LEFT = (0, 1, 6)  # columns of text
PROMISES = ("reader", "shuffled order", "continues after a stop with", "a record is a",
            "each exactly once")
PACKAGES = ("nvidia-dali-cuda120", "mosaicml-streaming", "webdataset", "litdata", "grain",
            "array-record")


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


def report_of(comparison):
    """The results as JSON has them."""
    return {
        "summary": summarize(comparison.runs),
        "runs": [dataclasses.asdict(run) for run in comparison.runs],
        "failures": rows_of(comparison.failures, "reason"),
        "differences": rows_of(comparison.differences, "records"),
        "absent": comparison.absent,
        "promises": {reader.label: dataclasses.asdict(reader.promises)
                     for reader in comparison.present.values()
                     if reader.label not in comparison.absent},
    }


def rows_of(texts, name):
    return [{"order": order, "reader": reader, name: text}
            for (order, reader), text in texts.items()]


def print_report(comparison, report):
    lines = [HEADS]
    for row in report["summary"]:
        place = row["order"], row["reader"]
        records = comparison.differences.get(place) or " ".join(row["checksums"]) or "-"
        lines.append((
            *place, f"{row['records_per_s']:,.0f}",
            f"({row['records_per_s_min']:,.0f} to {row['records_per_s_max']:,.0f})",
            f"{row['bytes_per_s'] / 1e6:,.1f}", f"{row['first_batch_s']:.4f}", records))
    # The reason of a failure stands in the cells of the figures, and may be longer than they are.
    failures = [(*place, f"failed: {reason}")
                for place, reason in comparison.failures.items()]
    print_lines(lines, LEFT, failures)
    print()
    print_lines([PROMISES, *(
        (label, told["shuffle"], told["resume"], told["record"],
         "yes" if told["exact"] else "not promised")
        for label, told in report["promises"].items())], range(len(PROMISES)))
    for label, reason in report["absent"].items():
        print(f"absent: {label}: {reason}")


def print_lines(lines, left, more=()):
    """Prints a table. The last cell of a line of `more` does not widen its column."""
    widths = [max(map(len, column)) for column in zip(*lines)]
    for index, line in enumerate(more):
        widths[:2] = [max(width, len(cell)) for width, cell in zip(widths[:2], line[:2])]
    for line in [*lines, *more]:
        cells = [cell.ljust(width) if index in left or line in more else cell.rjust(width)
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
        result = subprocess.run(["git", "-C", interface.ROOT, "rev-parse", "--short", "HEAD"],
                                capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return result.stdout.strip() or "unknown"


def versions():
    """The versions of the installed peers."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            pass
    return found


CACHES = {"cold": "dropped before each run", "warm": "read before each run",
          "partial": "{} % read before each run, in stretches of 1 MiB", "as found": "as found"}


def describe(options, record_count):
    """The setting on which the figures depend."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    storage = " ".join(["remote", *options.remote_options]) if options.remote else "as is"
    return {
        "date": datetime.date.today().isoformat(), "commit": commit(),
        "command": command_line(options), "memory_gib": round(memory_bytes / 2**30, 1),
        "records": record_count, "batch_size": options.batch_size,
        "storage": storage, "cache": CACHES[options.cache].format(options.cached_percent),
        "readahead": not options.no_readahead, "verify": options.verify, "repeat": options.repeat,
        "kernel": platform.release(), "cores": os.cpu_count(),
        "python": platform.python_version(), "torch": torch.__version__,
        "py-lmdb": lmdb.__version__, "liblmdb": ".".join(map(str, lmdb.version())), **versions(),
    }


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
    write_report(options.json, json.dumps(result, indent=2) + "\n")

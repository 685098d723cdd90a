#!/usr/bin/python3
"""Reads an LMDB database with py-lmdb, PyTorch and lmdbio, and its records with other loaders.

    bench/peers/compare.py PATH [--batch-size N] [--workers 0,2] [--order sequential,shuffled] ...

bench/peers/README.md explains the timing and its fairness. `scripts/setup --bench` installs the
modules for /usr/bin/python3, and `scripts/setup --peers` also the peers, in build/peers. Exits
with 1 if py-lmdb, PyTorch or lmdbio fails or if, with --verify, a reader that promises to deliver
each record once does not. A peer that is absent or fails is reported, and the others go on.
"""

import argparse
import os
import pathlib
import signal
import subprocess
import sys

try:
    import lmdb
    import torch as _  # the tables name its version
    import xxhash
except ImportError as missing:
    sys.exit(f"compare.py: {missing}; `scripts/setup --bench` installs it for /usr/bin/python3")

import peer_report
import peer_runs
import readers
from peer_source import Failure, Records
from readers import interface

BUILD = interface.ROOT / "build"
ORDERS = ("sequential", "shuffled", "block")
REMOTE = "--delay-ms 1 --rate 8G"


def number_list(text):
    if not all(word.isdecimal() for word in text.split(",")):
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of numbers")
    return [int(word) for word in text.split(",")]


def list_of(names):
    def parse(text):
        if not set(text.split(",")) <= set(names):
            raise argparse.ArgumentTypeError(f"'{text}' is not a list of {', '.join(names)}")
        return text.split(",")
    return parse


def positive(text):
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive number")
    return int(text)


def percentage(text):
    if not text.isdecimal() or int(text) > 100:
        raise argparse.ArgumentTypeError(f"'{text}' is not a percentage from 0 to 100")
    return int(text)


def add_reading(parser):
    """The options about readers, orders and caches."""
    parser.add_argument("path", metavar="PATH", help="a directory with data.mdb, or a single file")
    parser.add_argument("--readers", type=list_of(readers.NAMES), default=list(readers.NAMES),
                        metavar="NAME,...", help=f"of {', '.join(readers.NAMES)} (default: all)")
    parser.add_argument("--add", type=pathlib.Path, action="append", default=[], metavar="FILE",
                        help="also run the class Reader of this Python file, a subclass of "
                             "readers.interface.Reader; may be repeated")
    parser.add_argument("--formats", type=pathlib.Path, default=BUILD / "peer_formats",
                        metavar="FOLDER", help="the records in the formats of the peers, made if "
                        "absent; on the same storage as PATH (default: build/peer_formats)")
    parser.add_argument("--batch-size", type=positive, default=256, metavar="N")
    parser.add_argument("--workers", type=number_list, default=[0, 2], metavar="N,...",
                        help="workers of the DataLoader; 0: the main process reads (default: 0,2)")
    parser.add_argument("--order", type=list_of(ORDERS), default=list(ORDERS),
                        metavar="ORDER,...",
                        help="sequential, shuffled, or block (lmdbio only) (default: all)")
    parser.add_argument("--records", type=positive, metavar="N",
                        help="read only the first N records; lmdbio reads all (default: all)")
    parser.add_argument("--no-readahead", action="store_true",
                        help="open LMDB with readahead=False, as usual for shuffled reading")
    caches = parser.add_mutually_exclusive_group()
    caches.add_argument("--cold", dest="cache", action="store_const", const="cold",
                        default="as found",
                        help="drop the page caches before each run (needs root)")
    caches.add_argument("--warm", dest="cache", action="store_const", const="warm",
                        help="read the files of the data set before each run")
    caches.add_argument("--cached-percent", type=percentage, metavar="P",
                        help="drop the page caches before each run, then read P percent of the "
                             "data set, in random stretches of 1 MiB (needs root)")
    parser.add_argument("--remote", action="store_true",
                        help="read every data set from emulated remote storage")
    parser.add_argument("--remote-options", type=str.split, metavar="WORDS",
                        help="options of `scripts/remote-storage up`, in one word (default: "
                             f"'{REMOTE}')")


def add_results(parser):
    """The options about the runs and their results."""
    parser.add_argument("--verify", action="store_true",
                        help="compute checksums of the records, within the measured time")
    parser.add_argument("--repeat", type=positive, default=1, metavar="N")
    parser.add_argument("--timeout", type=positive, default=3600, metavar="SECONDS",
                        help="end a run that takes longer; it counts as failed (default: 3600)")
    parser.add_argument("--seed", type=int, default=1, metavar="N",
                        help="seed of the shuffled order")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all runs to FILE")
    parser.add_argument("--condition", metavar="NAME",
                        help="with --json: store the runs in FILE under this name and replace "
                             "earlier runs of the name; scripts/plot_readme.py draws such a file")
    parser.add_argument("--lmdbio-bench", type=pathlib.Path, metavar="PROGRAM",
                        default=BUILD / "release" / "bin" / "lmdbio-bench",
                        help="lmdbio-bench (default: in build/release/bin)")
    parser.add_argument("--lmdbio-library", type=pathlib.Path, metavar="FILE",
                        default=BUILD / "release" / "lib" / "liblmdbio.so",
                        help="liblmdbio (default: in build/release/lib)")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_reading(parser)
    add_results(parser)
    options = parser.parse_args()
    if options.cached_percent is not None:
        options.cache = "partial"
    if options.cache in ("cold", "partial") and os.geteuid() != 0:
        parser.error("--cold and --cached-percent need root")
    if options.condition is not None and options.json is None:
        parser.error("--condition needs --json FILE")
    if options.remote_options is not None and not options.remote:
        parser.error("--remote-options needs --remote")
    if options.remote_options is None:
        options.remote_options = REMOTE.split()
    return options


def compare(options):
    # A file of another kind is refused before the measurements.
    conditions = {}
    if options.condition is not None:
        conditions = peer_report.load_conditions(options.json)
    records = Records(options.path, options.records, not options.no_readahead)
    expected = None
    if options.verify:
        expected = [xxhash.xxh3_64_intdigest(value) for value in records.values()]
    setting = peer_report.describe(options, len(records.keys))
    print(", ".join(f"{name} {value}" for name, value in setting.items()), flush=True)
    comparison = peer_runs.Comparison(options, expected)
    peer_runs.find_readers(comparison, len(records.keys))
    peer_runs.run_all(comparison)
    report = peer_report.report_of(comparison)
    peer_report.print_report(comparison, report)
    if options.json:
        peer_report.save(options, conditions, {"setting": setting, **report})
    if comparison.errors:
        raise Failure(comparison.errors[0])


def main():
    # The end of this program ends its processes and mounts, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        compare(parse_options())
    except (Failure, lmdb.Error, OSError, subprocess.CalledProcessError) as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

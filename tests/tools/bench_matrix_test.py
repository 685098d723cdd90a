#!/usr/bin/env python3
"""One checksum for all strategies, numbers of ranks, engines and shares, under real mpirun.

    bench_matrix_test.py LMDBIO_BENCH LMDBIO_MAKE MPIRUN...

Every run of lmdbio-bench compares itself with a serial pass of liblmdb's cursor (--verify). Every
pair of settings occurs; LMDBIO_TEST_FULL=1 runs all combinations.
"""

import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

RANKS = (1, 2, 3, 4, 8)
ENGINES = ("mmap", "pread", "uring")
DIRECT = ("on", "off")
SHARES = ("block", "round-robin")
RUN_KEYS = {"strategy", "ranks", "hosts", "order", "batch_size", "records_per_s", "bytes_per_s",
            "raw_bytes_per_s", "raw_fraction", "seek_s", "io_s", "skew_s", "bytes_read",
            "bytes_useful", "read_requests", "context_switches", "major_faults", "cpu_s",
            "first_batch_s", "checksum"}
MACHINE_KEYS = {"processor", "cores", "kernel", "commit", "ranks", "mpi_wait_mode", "cache_state",
                "command_line"}


def combinations():
    """(ranks, engine, direct, share): all, or few in which every pair occurs."""
    everything = list(itertools.product(RANKS, ENGINES, DIRECT, SHARES))
    if os.environ.get("LMDBIO_TEST_FULL") == "1":
        return everything
    pairs = {(i, row[i], j, row[j]) for row in everything
             for i, j in itertools.combinations(range(4), 2)}
    chosen = []
    while pairs:
        best = max(everything, key=lambda row: len(pairs & pairs_of(row)))
        pairs -= pairs_of(best)
        chosen.append(best)
    return chosen


def pairs_of(row):
    return {(i, row[i], j, row[j]) for i, j in itertools.combinations(range(4), 2)}


class Bench:
    def __init__(self, program, mpirun, directory):
        self.program, self.mpirun, self.directory = program, mpirun, directory

    def call(self, ranks, *arguments):
        return subprocess.run([*self.mpirun, str(ranks), self.program, *arguments],
                              capture_output=True, text=True, timeout=240, check=False)

    def read(self, ranks, *arguments):
        """The report of a run that must succeed."""
        report = self.directory / "report.json"
        done = self.call(ranks, "read", *arguments, "--json", str(report), "--repeat", "1",
                         "--verify")
        if done.returncode != 0:
            sys.exit(f"{arguments} with {ranks} ranks: exit code {done.returncode}\n{done.stderr}")
        return json.loads(report.read_text())


def make(lmdbio_make, directory):
    digits, records = directory / "digits", directory / "records"
    subprocess.run([lmdbio_make, "digits", digits], check=True, capture_output=True)
    subprocess.run([lmdbio_make, "synthetic", records, "--count", "700", "--value-size", "3080"],
                   check=True, capture_output=True)
    return digits, records


def check_matrix(bench, databases):
    for path in databases:
        checksums = set()
        for ranks, engine, direct, share in combinations():
            report = bench.read(ranks, str(path), "--strategy", "all", "--engine", engine,
                                "--direct", direct, "--share", share, "--batch-size", "100")
            checksums |= {run["checksum"] for run in report["runs"]}
            assert len(report["runs"]) == 7, report["runs"]
        assert len(checksums) == 1, f"{path}: {checksums}"


def check_odd_sizes(bench, path):
    """Several readers; more ranks than records in a batch; a batch of more than an epoch."""
    for arguments in (["--readers-per-host", "2", "--batch-size", "64"],
                      ["--batch-size", "3", "--iterations", "50"],
                      ["--batch-size", "1500", "--iterations", "3", "--tail", "wrap"]):
        report = bench.read(4, str(path), "--strategy", "lmdb,lmm-dio-prov,scan,auto", *arguments)
        assert len({run["checksum"] for run in report["runs"]}) == 1, report["runs"]


def check_report(bench, path):
    picture = bench.directory / "bars.svg"
    report = bench.read(2, str(path), "--batch-size", "64", "--compute-time", "0.001",
                        "--compute-kind", "sleep", "--plot", str(picture))
    assert MACHINE_KEYS <= report.keys(), MACHINE_KEYS - report.keys()
    assert RUN_KEYS <= report["runs"][0].keys(), RUN_KEYS - report["runs"][0].keys()
    assert report["runs"][0]["utilisation"] > 0
    assert picture.read_text().rstrip().endswith("</svg>")


def check_failures(bench, path):
    for arguments, code, words in (
            (["read", str(path / "missing")], 1, "missing"),
            (["read", str(path), "--strategy", "best"], 2, "best"),
            (["read", str(path), "--batch-size", "0"], 1, "batch size"),
            (["read", str(path), "--memory-budget", "1"], 1, "memory budget"),
            (["raw", str(path / "missing")], 1, "missing"),
            (["raw", str(path), "--engine", "tape"], 2, "tape")):
        done = bench.call(3, *arguments)
        lines = [line for line in done.stderr.splitlines() if line.startswith("lmdbio-bench: ")]
        assert done.returncode == code, (arguments, done.returncode, done.stderr)
        assert len(lines) == 1 and words in lines[0], (arguments, done.stderr)


def check_raw(bench, path):
    report = bench.directory / "raw.json"
    done = bench.call(2, "raw", str(path), "-t", "4K,64K", "--direct", "both", "--repeat", "2",
                      "--json", str(report))
    assert done.returncode == 0, done.stderr
    runs = json.loads(report.read_text())["runs"]
    # mmap has no direct reads: 1 + 2 + 2 rows of 2 sizes, twice.
    assert len(runs) == 20 and all(run["bytes_per_s"] > 0 for run in runs), runs


def main():
    program, lmdbio_make, *mpirun = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        bench = Bench(program, mpirun, directory)
        databases = make(lmdbio_make, directory)
        check_failures(bench, databases[0])
        check_report(bench, databases[0])
        check_raw(bench, databases[1] / "data.mdb")
        check_odd_sizes(bench, databases[1])
        check_matrix(bench, databases)
    return 0


if __name__ == "__main__":
    sys.exit(main())

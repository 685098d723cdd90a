#!/usr/bin/env python3
"""Compares the benchmarks of two builds, for example of the commits before and after a change.

    bench/compare_builds.py OLD_BUILD NEW_BUILD --database PATH [--json FILE]

OLD_BUILD and NEW_BUILD are release build folders that hold bin/lmdbio-bench, bin/sync_bench and
bin/allreduce_bench. The two builds take turns, and the first of a pair alternates, so a slow
minute of the machine hits both. The columns of the table:

    old, new      the medians of the builds; less is better
    new / old     the median of the ratios of the pairs; below 1 the new build is faster
    spread        the middle half of these ratios
    95 %          the interval of their median, at a confidence of 95 %
    best          the smallest value of the new build / that of the old

Figures named "by MPI" or "by none" are divided by those of plain MPI, or of computing alone, in the
same run, so a slow run cancels out. Run it on an otherwise idle machine.
"""

import argparse
import dataclasses
import json
import math
import os
import pathlib
import platform
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))
from mpi_jobs import Failure, heed_signals, mpi_environment, run  # noqa: E402
from output_files import scratch_folder, write_report  # noqa: E402

RUN_SECONDS_MAX = 600


@dataclasses.dataclass(frozen=True)
class Program:
    """One call of a benchmark. Each of its figures is a time or its like: less is better."""

    name: str
    ranks: int
    words: tuple
    save: str  # the flag that names the JSON file
    figures: object  # {figure: number} of that file


def read_figures(document):
    run_ = document["runs"][0] if "runs" in document else document[0]
    return {"us/record": 1e6 / run_["records_per_s"]}


def sync_figures(document):
    step_ms = {row["variant"]: row["p50_ms"] for row in document["networks"][0]["variants"]}
    return {f"{name}, ms": value for name, value in step_ms.items()} | {
        f"{name} by none": value / step_ms["none"]
        for name, value in step_ms.items() if name != "none"}


def sum_figures(document):
    rows = document["rows"]
    ratios = [row["lmdbio"]["median_us"] / row["mpi"]["median_us"] for row in rows]
    return {f"{row['bytes']} B, us": row["lmdbio"]["median_us"] for row in rows} | {
        "all sizes by MPI, geometric mean": math.prod(ratios) ** (1 / len(ratios))}


def programs(database):
    """The calls that are compared. Flags are those that both builds know."""
    found = []
    for cache, caches in (("warm", "--warm-caches"), ("cold", "--drop-caches")):
        for order in ("sequential", "shuffle"):
            for ranks in (1, 2) if cache == "warm" and order == "sequential" else (1,):
                found.append(Program(
                    f"read {order} {cache}, {ranks} ranks", ranks,
                    ("lmdbio-bench", "read", database, "-b", "64", "--order", order, "--seed", "1",
                     caches, "--repeat", "1"), "--json", read_figures))
    found.append(Program(
        "sync resnet50", 2,
        ("sync_bench", "--variants", "none,lmdbio:topo,lmdbio:horovod", "--baseline", "none",
         "--scale", "0.25", "--repetitions", "1", "--iterations", "30", "--run-seconds", "3"),
        "--save", sync_figures))
    found.append(Program(
        "allreduce", 2, ("allreduce_bench", "--min", "4096", "--max", "16777216", "--repetitions",
         "3", "--seconds", "0.03"),
        "--json", sum_figures))
    return found


def measure(program, build, mpirun):
    """The figures of one call, or a Failure that quotes its output."""
    with scratch_folder("builds") as folder:
        saved = pathlib.Path(folder, "run.json")
        name, *rest = program.words
        code, output = run(
            [mpirun, "--host", "localhost:16", "--mca", "mpi_yield_when_idle", "1",
             "-n", program.ranks, build / "bin" / name, *rest, program.save, saved],
            mpi_environment(), RUN_SECONDS_MAX)
        if code != 0 or not saved.exists():
            raise Failure(f"{build}: {name} ended with {code}:\n{output}")
        return program.figures(json.loads(saved.read_text(encoding="utf-8")))


def compare(program, builds, repetitions, mpirun):
    """Rows {name, old, new} with all values of every figure of a program."""
    values = ({}, {})
    for repetition in range(repetitions):
        for which in (0, 1) if repetition % 2 == 0 else (1, 0):
            for figure, value in measure(program, builds[which], mpirun).items():
                values[which].setdefault(figure, []).append(value)
        print(f"# {program.name}: {repetition + 1} of {repetitions}", file=sys.stderr, flush=True)
    return [{"name": f"{program.name}: {figure}", "old": values[0][figure],
             "new": values[1][figure]} for figure in values[0] if figure in values[1]]


def interval_of_median(ratios):
    """The 95 % interval of the median of sorted values, from their order alone."""
    count = len(ratios)
    reach = 0.98 * math.sqrt(count)  # 1.96 standard deviations of a binomial distribution
    low = max(math.floor(count / 2 - reach), 0)
    return ratios[low], ratios[count - 1 - low]


def table(rows):
    lines = ["| figure | old | new | new / old | spread | 95 % | best |",
             "|---|---|---|---|---|---|---|"]
    for row in rows:
        ratios = sorted(new / old for old, new in zip(row["old"], row["new"], strict=True))
        low, _, high = (statistics.quantiles(ratios, n=4) if len(ratios) > 1
                        else (ratios[0],) * 3)
        first, last = interval_of_median(ratios)
        lines.append(f"| {row['name']} | {statistics.median(row['old']):.4g} "
                     f"| {statistics.median(row['new']):.4g} | {statistics.median(ratios):.3f} "
                     f"| {low:.3f} to {high:.3f} | {first:.3f} to {last:.3f} "
                     f"| {min(row['new']) / min(row['old']):.3f} |")
    return lines


def commit_of(build):
    done = subprocess.run(["git", "-C", str(build), "rev-parse", "--short", "HEAD"],
                          capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=pathlib.Path, metavar="OLD_BUILD")
    parser.add_argument("new", type=pathlib.Path, metavar="NEW_BUILD")
    parser.add_argument("--database", required=True, help="for lmdbio-bench; see lmdbio-make")
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--only", default="", help="programs whose name begins with this")
    parser.add_argument("--json", type=pathlib.Path, help="write all values there")
    parser.add_argument("--mpirun", default="mpirun")
    return parser.parse_args()


def main():
    heed_signals()
    options = parse_arguments()
    rows = []
    for program in programs(options.database):
        if program.name.startswith(options.only):
            rows += compare(program, (options.old, options.new), options.repetitions,
                            options.mpirun)
    print("\n".join(table(rows)))
    if options.json:
        document = {"old": commit_of(options.old), "new": commit_of(options.new),
                    "kernel": platform.release(), "cores": os.cpu_count(), "mpi_wait": "yield",
                    "repetitions": options.repetitions, "rows": rows}
        write_report(options.json, json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"compare_builds.py: {failure}")

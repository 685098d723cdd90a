#!/usr/bin/env python3
"""Runs allreduce_bench for several numbers of ranks, and compares lmdbio with MPI and Gloo.

    bench/allreduce_matrix.py [--ranks 2,3,4,5,6,7,8] [--waits spin,yield] [--out FOLDER] ...
    bench/allreduce_matrix.py --hosts 2,4,8 [--bandwidths 1G,10G,none] ...

By default MPI spins if every rank has a core, and yields if ranks share cores; that is best for
MPI. With --hosts each rank runs on an emulated host of its own (scripts/cluster, root), and lmdbio
is also measured with each fixed depth and by each algorithm. Unknown options are passed to
allreduce_bench. Tables go to standard output and OUT/matrix.md, all figures to OUT/matrix.json.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys

import allreduce_hosts
from allreduce_hosts import median, rival_ratio, size_text
from figures import number_list, wait_list, word_list
from mpi_jobs import Failure, heed_signals, mpi_environment, mpirun_words, run
from output_files import write_report

ROOT = pathlib.Path(__file__).resolve().parents[1]
SMALL_BYTES_MAX = 1 << 20
CELL_SECONDS_MAX = 3600


def run_cell(options, rest, ranks, wait):
    saved = options.out / f"cell-{ranks}-{wait}.json"
    saved.unlink(missing_ok=True)
    print(f"# {ranks} ranks, MPI: {wait}", file=sys.stderr, flush=True)
    code, output = run(
        [*mpirun_words(options.mpirun, ranks, wait), options.build / "bin" / "allreduce_bench",
         "--json", saved, *rest], mpi_environment(), CELL_SECONDS_MAX)
    if not saved.exists():
        raise Failure(f"{ranks} ranks, {wait}: allreduce_bench ended with {code}:\n{output}")
    return dict(json.loads(saved.read_text(encoding="utf-8")), mpi_wait=wait)


def table(cells):
    # The helper thread of a Synchronizer always sleeps. Spinning is for ranks with own cores.
    return ["us per call: lmdbio / MPI / Gloo (lmdbio by the better of both)", "",
            *allreduce_hosts.times_table(
                cells, lambda cell: f"{cell['ranks']} ranks, MPI {cell['mpi_wait']}, "
                                    f"lmdbio {cell['wait']}")]


def verdict(cells):
    compared = [(cell, row, rival_ratio(row))
                for cell in cells for row in cell["rows"] if rival_ratio(row) is not None]
    if not compared:
        return ["no cell has results of MPI or Gloo to compare"]
    cell, row, worst = max(compared, key=lambda one: one[2])
    ahead = sum(ratio < 1 for _, _, ratio in compared)
    small = [median(row, "gloo") / median(row, "lmdbio") for cell in cells for row in cell["rows"]
             if median(row, "gloo") and row["bytes"] <= SMALL_BYTES_MAX]
    lines = [f"ahead of both in {ahead} of {len(compared)} cells; the worst is {worst:.2f} of the "
             f"better one's time, with {cell['ranks']} ranks, MPI {cell['mpi_wait']}, "
             f"{size_text(row['bytes'])}"]
    if small:
        lines.append(f"speed relative to Gloo up to 1 MiB: {min(small):.1f} at least, "
                     f"{statistics.median(small):.1f} at the median")
    return lines


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0],
                                     allow_abbrev=False)
    parser.add_argument("--ranks", default="2,3,4,5,6,7,8", type=number_list(1))
    parser.add_argument("--hosts", type=number_list(2), help="emulated hosts of one rank each")
    parser.add_argument("--bandwidths", default="1G,10G", type=word_list,
                        help="bit/s of the network of each host, or none (default: %(default)s)")
    parser.add_argument("--waits", default="", type=wait_list,
                        help="spin, yield or both (default: best for MPI)")
    parser.add_argument("--build", default=ROOT / "build" / "release", type=pathlib.Path)
    parser.add_argument("--out", default=ROOT / "build" / "allreduce_matrix", type=pathlib.Path)
    parser.add_argument("--mpirun", default="mpirun")
    return parser.parse_known_args()


def measure_ranks(options, rest):
    """The cells of ranks on this host, and the lines about them."""
    cells = []
    for ranks in options.ranks:
        suits = "spin" if ranks <= os.cpu_count() else "yield"
        for wait in options.waits or [suits]:
            cells.append(run_cell(options, rest, ranks, wait))
    single_copy = mpi_environment()["OMPI_MCA_btl_vader_single_copy_mechanism"]
    return cells, [*table(cells), "", f"MPI's single copy between processes: {single_copy}",
                   *verdict(cells)]


def measure_hosts(options, rest):
    """The cells of ranks on emulated hosts, and the lines about them."""
    cells = allreduce_hosts.run_cells(options, rest)
    lines = [line for cell in cells for line in allreduce_hosts.table(cell)]
    return cells, [*lines, *allreduce_hosts.summary(cells), *allreduce_hosts.verdict(cells)]


def main():
    heed_signals()
    options, rest = parse_arguments()
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    cells, lines = (measure_hosts if options.hosts else measure_ranks)(options, rest)
    text = "\n".join(lines) + "\n"
    write_report(options.out / "matrix.md", text)
    write_report(options.out / "matrix.json", json.dumps(cells, indent=2))
    print(text, end="")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"allreduce_matrix.py: {failure}")

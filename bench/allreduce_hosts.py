"""AllReduce between emulated hosts: the jobs of allreduce_matrix.py --hosts, and their tables.

Each cell is one job: some hosts of one rank each, and the rate of their network. Within it
allreduce_bench measures all sizes, by lmdbio's trial, by each fixed depth and by each algorithm,
beside MPI and Gloo.
"""

import json
import os
import statistics
import sys

from emulated_hosts import cluster, hosts_up
from mpi_jobs import Failure

DEPTHS = ("depth 1", "depth 2", "depth 4", "depth 8")
ALGORITHMS = ("doubling", "ring", "halving", "direct")
RIVALS = ("mpi", "gloo")
# The aims of the trial and of the library.
DEPTH_RATIO_MAX = 1.05
CELLS_AHEAD_MIN = 0.9
# Nobody can be clearly faster than a library that takes at most this part of the time that the
# network needs for the bytes.
ROOM_MIN = 1.03
CELL_SECONDS_MAX = 3600


def run_cell(options, rest, name, hosts, bandwidth, wait):
    saved = options.out / f"hosts-{hosts}-{bandwidth}-{wait}.json"
    saved.unlink(missing_ok=True)
    print(f"# {hosts} hosts, {bandwidth}, MPI: {wait}", file=sys.stderr, flush=True)
    sizes = () if "--min" in rest else ("--min", 1024)
    output = cluster(name, "run", "-n", hosts, "--per-host", 1, "--wait", wait,
                     options.build / "bin" / "allreduce_bench", "--json", saved, *sizes, *rest,
                     seconds_max=CELL_SECONDS_MAX)
    if not saved.exists():
        raise Failure(f"{hosts} hosts, {bandwidth}, {wait}: no figures:\n{output}")
    return dict(json.loads(saved.read_text(encoding="utf-8")), hosts=hosts, bandwidth=bandwidth,
                mpi_wait_asked=wait)


def run_cells(options, rest):
    """All cells. Each rate has a cluster of its own, with as many hosts as the largest job."""
    name, cells = f"allreduce-{os.getpid()}", []
    for bandwidth in options.bandwidths:
        with hosts_up(name, max(options.hosts), None if bandwidth == "none" else bandwidth):
            for hosts in options.hosts:
                suits = "spin" if hosts <= os.cpu_count() else "yield"
                cells += [run_cell(options, rest, name, hosts, bandwidth, wait)
                          for wait in options.waits or [suits]]
    return cells


# --- Tables ---

def median(row, way):
    return row[way]["median_us"] if way in row else None


def best(row, ways):
    """(time, name) of the fastest of some ways; (None, None) if none was measured."""
    measured = [(median(row, way), way) for way in ways if way in row]
    return min(measured) if measured else (None, None)


def depth_ratio(row):
    time, _ = best(row, DEPTHS)
    return median(row, "lmdbio") / time if time else None


def rival_ratio(row):
    time, _ = best(row, RIVALS)
    return median(row, "lmdbio") / time if time else None


def least_us(cell, row):
    """The time that the network needs for the bytes of a sum, at the best rate that was seen."""
    bus_bytes = 2 * (cell["hosts"] - 1) / cell["hosts"] * row["bytes"]
    return bus_bytes / (transfer_gbit_s(cell) / 8 * 1e3)


def has_room(cell, row):
    """Whether the better rival takes longer than the network needs."""
    time, _ = best(row, RIVALS)
    return time is not None and time > ROOM_MIN * least_us(cell, row)


def size_text(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def time_text(time_us):
    if time_us is None:
        return "-"
    return f"{time_us:,.0f}" if time_us >= 100 else f"{time_us:.2g}"


def ratio_text(ratio):
    return "-" if ratio is None else f"{ratio:.2f}"


def choice_text(row):
    choice = row["lmdbio"]["choice"]
    if choice["algorithm"] == "doubling":
        return "doubling"
    return f"{choice['algorithm']}, {size_text(choice['chunk_bytes'])} x {choice['chunk_depth']}"


def transfer_gbit_s(cell):
    """The best rate of a rank at any size, while no rank reduces."""
    return max(row["transfer"]["bus_gb_s"] for row in cell["rows"]) * 8


def cell_name(cell):
    bandwidth = cell["bandwidth"]
    rate = "no limit" if bandwidth == "none" else f"{bandwidth.removesuffix('bit')}bit/s"
    return f"{cell['hosts']} hosts, {rate}, MPI {cell['mpi_wait_asked']}"


def table(cell):
    """The table of one cell, as lines of Markdown."""
    lines = [f"### {cell_name(cell)}", "",
             f"lmdbio waits by {cell['wait']}, MPI: {cell['mpi_wait']}. In a transfer each rank "
             f"sends {transfer_gbit_s(cell):.2f} Gbit/s to the next one while all do. The trial "
             f"took {cell['trial_seconds']:.2f} s.", "",
             "| size | lmdbio, us | choice of the trial | " +
             " | ".join(DEPTHS) + " | / best depth | " + " | ".join(ALGORITHMS) +
             " | MPI | Gloo | / better rival | transfer |",
             "|" + "---|" * (8 + len(DEPTHS) + len(ALGORITHMS))]
    for row in cell["rows"]:
        words = [size_text(row["bytes"]), time_text(median(row, "lmdbio")), choice_text(row),
                 *(time_text(median(row, way)) for way in DEPTHS), ratio_text(depth_ratio(row)),
                 *(time_text(median(row, way)) for way in (*ALGORITHMS, *RIVALS)),
                 ratio_text(rival_ratio(row)), time_text(median(row, "transfer"))]
        lines.append("| " + " | ".join(words) + " |")
    return lines + [""]


def times_table(cells, name_of, mark_of=lambda cell, row: ""):
    """The times of lmdbio and its rivals in all cells, as lines of Markdown."""
    lines = ["| bytes | " + " | ".join(name_of(cell) for cell in cells) + " |",
             "|" + "---|" * (len(cells) + 1)]
    for size in sorted({row["bytes"] for cell in cells for row in cell["rows"]}):
        words = [size_text(size)]
        for cell in cells:
            row = next((row for row in cell["rows"] if row["bytes"] == size), {})
            if rival_ratio(row) is None:
                words.append("-")
                continue
            times = " / ".join(time_text(median(row, way)) for way in ("lmdbio", *RIVALS))
            words.append(f"{times} ({ratio_text(rival_ratio(row))}){mark_of(cell, row)}")
        lines.append("| " + " | ".join(words) + " |")
    return lines


def summary(cells):
    """One table of all cells, as lines of Markdown."""
    return ["us per call: lmdbio / MPI / Gloo (lmdbio by the better of both); * where the better "
            f"one takes at most {ROOM_MIN} of what the network needs", "",
            *times_table(cells, cell_name,
                         lambda cell, row: "" if has_room(cell, row) else " *"), ""]


def verdict_of(name, ratios, limit, share_min):
    """One line about a ratio in all cells. ratios: [(ratio, place)]"""
    ratios = [(ratio, place) for ratio, place in ratios if ratio is not None]
    if not ratios:
        return f"{name}: nothing to compare"
    good = sum(ratio <= limit for ratio, _ in ratios)
    worst, place = max(ratios)
    holds = "holds" if good >= share_min * len(ratios) else "does not hold"
    return (f"{name}: {good} of {len(ratios)} cells ({100 * share_min:.0f} % expected), {holds}; "
            f"median {statistics.median(ratio for ratio, _ in ratios):.2f}, worst {worst:.2f} "
            f"({place})")


def verdict(cells):
    rows = [(cell, row) for cell in cells for row in cell["rows"]]
    places = [f"{cell_name(cell)}, {size_text(row['bytes'])}" for cell, row in rows]

    def ratios(of):
        return [(of(row), place) for (_, row), place in zip(rows, places)]

    against_rivals = ratios(rival_ratio)

    def algorithm_ratio(row):
        time, _ = best(row, ALGORITHMS)
        return median(row, "lmdbio") / time if time else None

    return [
        verdict_of(f"time at most {DEPTH_RATIO_MAX} of the best fixed depth", ratios(depth_ratio),
                   DEPTH_RATIO_MAX, 1),
        verdict_of("faster than MPI and Gloo", against_rivals, 1, CELLS_AHEAD_MIN),
        verdict_of("the same, where the network leaves room",
                   [one for (cell, row), one in zip(rows, against_rivals) if has_room(cell, row)],
                   1, CELLS_AHEAD_MIN),
        verdict_of(f"time at most {DEPTH_RATIO_MAX} of the best algorithm by itself",
                   ratios(algorithm_ratio), DEPTH_RATIO_MAX, CELLS_AHEAD_MIN)]

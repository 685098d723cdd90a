#!/usr/bin/env python3
"""Compares Horovod with the in-tree replay of its design, to show whether that may stand for it.

    bench/sync/compare_horovod.py [--networks resnet50] [--ranks 2,4] [--waits spin,yield]
                                  [--scale 1] [--compute-ms 50] [--repetitions 6]
                                  [--out build/horovod_compared] ...

Both sum the same tensors beside the same computing, in a Python program (replay_rank.py). Each run
is a job of its own. `scripts/setup --horovod` builds Horovod; exits with 77 where it is missing.
Tables go to standard output and OUT/horovod.md, all times of all runs to OUT/horovod.json.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from ddp_gloo import NETWORKS, Work  # noqa: E402
from figures import interval, number_list, wait_list, word_list  # noqa: E402
from mpi_jobs import Failure, heed_signals, mpi_environment, mpirun_words, run  # noqa: E402
from output_files import scratch_folder, write_report  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
RANK_PROGRAM = pathlib.Path(__file__).resolve().parent / "replay_rank.py"
HOROVOD_PYTHON = ROOT / "build" / "horovod" / "bin" / "python"
SKIPPED = 77
# (Horovod, its replays, responses in the cache of all). The first replay has Horovod's design. The
# second differs from the first in three things: the data go by `collective = mpi`, which does not
# block; its trial may choose algorithms over MPI's messages; tensors are submitted through lmdbio's
# Python package.
GROUPS = (("horovod", ("lmdbio:horovod:mpi-blocking", "lmdbio:horovod"), 0),
          ("horovod+cache", ("lmdbio:cache:mpi-blocking", "lmdbio:cache"), 1024))
VARIANTS = tuple((name, cache) for real, replays, cache in GROUPS for name in (real, *replays))
WITHIN = 0.15  # a replay may stand for Horovod if no time differs by more


def why_absent(options):
    """Returns "" or the reason why this machine has no Horovod."""
    if not options.python.exists():
        return f"{options.python} does not exist; run scripts/setup --horovod"
    for module in ("mpi4py", "numpy", "torch", "horovod.torch"):
        code, _ = run([options.python, "-c", f"import {module}"], os.environ, 120)
        if code != 0:
            return f"{options.python} has no {module}; run scripts/setup --horovod"
    return ""


def environment_for(options, cache_capacity):
    """The settings of a run, for Horovod and its replays; those of the caller must not matter."""
    kept = {name: value for name, value in mpi_environment().items()
            if not name.startswith("HOROVOD_")}
    return kept | {
        "HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "MPI",
        "HOROVOD_CYCLE_TIME": "1", "HOROVOD_FUSION_THRESHOLD": str(64 << 20),
        "HOROVOD_CACHE_CAPACITY": str(cache_capacity),
        "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
        "LMDBIO_LIBRARY": str(options.build / "lib" / "liblmdbio.so"),
        "LMDBIO_MPI_LIBRARY": str(options.build / "lib" / "liblmdbio_mpi.so")}


def work_library(options):
    return options.build / "lib" / "liblmdbio_sync_work.so"


def variant_library(options):
    return options.build / "lib" / "liblmdbio_sync_variant.so"


def run_once(options, cell, variant, cache_capacity):
    """Returns what replay_rank.py saves."""
    network, ranks, wait = cell
    with scratch_folder("horovod") as folder:
        saved = pathlib.Path(folder) / "run.json"
        units = options.compute_ms * 1e-3 * options.scale * options.units_per_second
        code, output = run(
            [*mpirun_words(options.mpirun, ranks, wait), options.python, "-B", RANK_PROGRAM,
             "--work-library", work_library(options), "--variant-library",
             variant_library(options), "--network", network, "--variant", variant,
             "--scale", options.scale, "--units", units, "--warmup", options.warmup,
             "--iterations", options.iterations, "--run-seconds", options.run_seconds,
             "--save", saved], environment_for(options, cache_capacity), options.cell_seconds)
        if code != 0 or not saved.exists():
            raise Failure(f"{network}, {ranks} ranks, {wait}, {variant} ended with {code}:\n"
                          f"{output}")
        return json.loads(saved.read_text(encoding="utf-8"))


def run_cell(options, cell):
    """Runs all variants `repetitions` times, in a random order each time."""
    network, ranks, wait = cell
    chance, runs = random.Random(f"{options.seed} {cell}"), []
    for repetition in range(options.repetitions):
        order = list(VARIANTS)
        chance.shuffle(order)
        for variant, cache_capacity in order:
            print(f"# {network}, {ranks} ranks, {wait}: {variant} ({repetition + 1})",
                  file=sys.stderr, flush=True)
            runs.append(run_once(options, cell, variant, cache_capacity)
                        | dict(repetition=repetition))
    return dict(network=network, ranks=ranks, wait=wait, runs=runs)


def neighbour_cores(one):
    return max(phase["neighbour_cores"] for phase in one["phases"].values())


def is_clean(options, one):
    return neighbour_cores(one) <= options.neighbour_limit


def chosen_runs(options, cell, variant):
    """Returns the runs of a variant without a neighbour, or all if each had one."""
    runs = [one for one in cell["runs"] if one["variant"] == variant]
    return [one for one in runs if is_clean(options, one)] or runs


def chosen_pairs(options, cell, variant, peer):
    """Returns the runs of a variant with the peer's of the same repetition. Both are without a
    neighbour; all pairs if there are none."""
    runs_of = {name: {one["repetition"]: one for one in cell["runs"] if one["variant"] == name}
               for name in (variant, peer)}
    pairs = [(one, runs_of[peer][repetition]) for repetition, one in runs_of[variant].items()]
    clean = [pair for pair in pairs if all(is_clean(options, one) for one in pair)]
    return clean or pairs


def medians(runs, phase, name="iteration_ms"):
    return [statistics.median(one["phases"][phase][name]) for one in runs]


def ratio_of(pairs, phase):
    """Returns (how many times as long as the peer's run, the interval of 95 % or None): the median
    of all pairs."""
    own, others = (medians(runs, phase) for runs in zip(*pairs))
    ratios = [one / other for one, other in zip(own, others)]
    return statistics.median(ratios), interval(statistics.median, ratios)


def ratio_text(pairs, phase):
    ratio, bounds = ratio_of(pairs, phase)
    return f"{ratio:.2f}" + (f" ({bounds[0]:.2f} to {bounds[1]:.2f})" if bounds else "")


def variant_row(options, cell, variant, peer):
    """peer  the variant with which this one is compared, or None"""
    runs = chosen_runs(options, cell, variant)

    def ms_text(phase, name="iteration_ms"):
        return f"{statistics.median(medians(runs, phase, name)):.2f}"

    def share_text(phase):
        shares = [one["phases"][phase]["other_threads"] for one in runs]
        return f"{100 * statistics.median(shares):.0f}"

    clean_count = sum(is_clean(options, one) for one in runs)
    row = [f"`{variant}`", ms_text("none"), ms_text("idle"), ms_text("train"),
           ms_text("train", "submit_ms"), ms_text("train", "wait_ms"), share_text("idle"),
           share_text("train"), f"{clean_count}/{options.repetitions}"]
    for phase in ("idle", "train"):
        row.append(ratio_text(chosen_pairs(options, cell, variant, peer), phase) if peer else "-")
    return "| " + " | ".join(row) + " |"


def cell_lines(options, cell):
    first = cell["runs"][0]
    lines = [f"### {cell['network']}, {cell['ranks']} ranks, MPI: {cell['wait']}", "",
             f"{first['tensors']} tensors, {first['gradient_bytes'] / 1e6:.1f} MB of gradients", "",
             "| variant | computing, ms | idle, ms | iteration, ms | of it submitting | of it "
             "waiting | other threads idle, % of a core | training, % | clean runs | idle / "
             "Horovod's | iteration / Horovod's |", "|---|" + "---|" * 10]
    far = []
    for real, replays, _ in GROUPS:
        lines += [variant_row(options, cell, real, None),
                  *(variant_row(options, cell, replay, real) for replay in replays)]
        for replay in replays:
            pairs = chosen_pairs(options, cell, replay, real)
            far += [f"{replay} {phase}" for phase in ("idle", "train")
                    if abs(ratio_of(pairs, phase)[0] - 1) > WITHIN]
    return lines + ["", f"Ratios that differ from 1 by more than {100 * WITHIN:.0f} %: "
                    f"{', '.join(far) or 'none'}.", ""]


def compare(options):
    """Returns (the cells with all times, the lines of their tables)."""
    cells, lines = [], []
    for library in (work_library(options), variant_library(options)):
        if not library.exists():
            raise Failure(f"{library} does not exist; build the benchmarks")
    if options.units_per_second is None:
        options.units_per_second = Work(work_library(options)).units_per_second()
    for network in options.networks:
        for ranks in options.ranks:
            for wait in options.waits:
                cells.append(run_cell(options, (network, ranks, wait)))
                lines += cell_lines(options, cells[-1])
    described = {one["variant"]: f"- `{one['variant']}`: {one['description']}; {one['mpi']}"
                 for cell in cells for one in cell["runs"]}
    return cells, lines + [described[name] for name, _ in VARIANTS] + [""]


def parse_options(words=None):
    """words  the command line; None: that of this program"""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--python", type=pathlib.Path, default=HOROVOD_PYTHON,
                        help="the Python that has Horovod; it runs all variants")
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--networks", type=word_list, default="resnet50",
                        help="names of networks, separated by commas")
    parser.add_argument("--ranks", type=number_list(1), default="2,4")
    parser.add_argument("--waits", type=wait_list, default="spin,yield")
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--compute-ms", type=float, default=50)
    parser.add_argument("--repetitions", type=int, default=6)
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--run-seconds", type=float, default=10, help="of a phase of a run")
    parser.add_argument("--neighbour-limit", type=float, default=0.1,
                        help="cores that other processes may use in a clean run")
    parser.add_argument("--seed", type=int, default=1, help="of the order of the runs")
    parser.add_argument("--units-per-second", type=float,
                        help="speed of the work loop, measured by another run")
    parser.add_argument("--cell-seconds", type=float, default=600,
                        help="time limit of one run in seconds")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "horovod_compared")
    options = parser.parse_args(words)
    for network in options.networks:
        if not (NETWORKS / f"{network}.json").exists():
            parser.error(f"--networks: '{network}' is unknown; {NETWORKS} has the networks")
    for name in ("repetitions", "iterations", "warmup"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)} is out of range; expected 1 or more")
    for name in ("compute_ms", "run_seconds"):
        if getattr(options, name) < 0:
            parser.error(f"--{name.replace('_', '-')} {getattr(options, name)} is out of range; "
                         "expected 0 or more")
    if options.scale <= 0:
        parser.error(f"--scale {options.scale} is out of range; expected more than 0")
    options.build, options.out = options.build.resolve(), options.out.resolve()
    return options


def main():
    heed_signals()
    options = parse_options()
    why = why_absent(options)
    if why:
        print(f"compare_horovod.py: skipped: Horovod is absent: {why}", file=sys.stderr)
        return SKIPPED
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        cells, lines = compare(options)
    except Failure as failure:
        sys.exit(f"compare_horovod.py: {failure}")
    text = "\n".join(lines)
    print(text, end="")
    write_report(options.out / "horovod.md", text)
    write_report(options.out / "horovod.json", json.dumps(dict(cells=cells), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Measures GS, NBCS, SCP and TOPO (dissertation 6.3) one at a time, from the response cache with
cycles.

    bench/sync/run_ladder.py [--networks resnet50,vgg16] [--ranks 2,4,8] [--waits spin,yield]
                             [--input-threads 0,1] [--repetitions 10] [--out build/ladder] ...

A row differs from the one it is compared with in one thing. All rows use one collective; control
messages go through MPI where the papers' do. Options that are not known here go to sync_bench.

Each job measures all rows once, in a random order, and leaves a file in OUT/runs. A job whose file
exists is not run again. So an interrupted measurement continues, one in parts (other networks,
ranks, waits or repetitions) adds to the same tables. OUT/runs may be merged with that of another
OUT, if both have the same options and the same speed of the work loop. Tables of all files go to
standard output and OUT/ladder.md, their figures to OUT/ladder.json.
"""

import argparse
import dataclasses
import json
import math
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from figures import number_list, wait_list, word_list  # noqa: E402
from ladder_report import ROWS, Job, cells_of, json_of, report, variant_of  # noqa: E402
from mpi_jobs import Failure, heed_signals  # noqa: E402
from output_files import write_report  # noqa: E402
from sync_bench_job import (NETWORKS, check_same_words, known_networks,  # noqa: E402
                            network_list, run_sync_bench, write_json)

ROOT = pathlib.Path(__file__).resolve().parents[2]
# For the first estimate; measured jobs correct it.
JOB_SECONDS, RUN_SECONDS, COMPUTE_MS, SLOWDOWN = 1.0, 0.25, 50, 2


def chosen_rows(words):
    """Returns the rows whose labels contain one of the words, and those they are compared with."""
    if not words:
        return list(ROWS)
    by_label = {row.label: row for row in ROWS}
    kept = {row.label for row in ROWS if any(word in row.label for word in words)}
    if not kept:
        raise Failure(f"no row contains {' or '.join(words)}; the rows are "
                      f"{', '.join(by_label)}")
    for label in list(kept):
        while by_label[label].against:
            label = by_label[label].against
            kept.add(label)
    return [row for row in ROWS if row.label in kept]


def jobs_of(options):
    """Returns all jobs. The repetitions of a cell are far apart, so that a drift of the machine
    affects all cells alike, and an interrupted measurement has a part of each."""
    return [Job(network, ranks, wait, input_threads, repetition)
            for repetition in range(options.first_repetition,
                                    options.first_repetition + options.repetitions)
            for network in options.networks for ranks in options.ranks
            for wait in options.waits for input_threads in options.input_threads]


def words_of(options, rest, rows, job):
    """Returns what a job asks of sync_bench, but for the seed and the speed of the work."""
    variants = ["none", *(variant_of(row, options.collective) for row in rows)]
    return [str(word) for word in (
        "--variants", ",".join(variants), "--baseline", variants[1], "--kinds", "train",
        "--repetitions", 1, "--warmup", options.warmup, "--iterations", options.iterations,
        "--run-seconds", options.run_seconds, "--scale", options.scale,
        "--compute-like", options.compute_like, "--input-threads", job.input_threads,
        "--input-batch-ms", options.input_batch_ms, *rest)]


def path_of(options, job):
    return options.out / "runs" / f"{job.name}.json"


def read_runs(options):
    """Returns what OUT/runs has, by job."""
    runs = {}
    for path in sorted((options.out / "runs").glob("*.json")):
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            runs[Job(**told["job"])] = told
        except (ValueError, KeyError, TypeError) as failure:
            raise Failure(f"{path}: not a file of run_ladder.py ({failure!r}); "
                          "remove it") from failure
    return runs


def speeds_of(runs):
    return {told["networks"][0]["settings"]["work_units_per_s"] for told in runs.values()}


def check_speeds(options, runs):
    """All runs of OUT do the same work."""
    speeds = speeds_of(runs)
    if len(speeds) > 1:
        raise Failure(f"{options.out / 'runs'} has runs of {len(speeds)} speeds of the work loop; "
                      "move those of one speed to another --out")
    asked = options.units_per_second
    if asked is not None and speeds - {asked}:
        raise Failure(f"{options.out / 'runs'} has runs with --units-per-second "
                      f"{speeds.pop()!r}, and not {asked!r}; give another --out")


def check_same(options, rest, rows, runs):
    """All runs of OUT were measured with the options of the present call."""
    for job, told in runs.items():
        check_same_words(path_of(options, job), told["asked"],
                         words_of(options, rest, rows, job))


def modelled_seconds(options, rows, job):
    """Returns about how long a job takes: its threads share the cores, and MPI waits beside
    them."""
    madds = {name: json.loads((NETWORKS / f"{name}.json").read_text(encoding="utf-8"))["madds"]
             for name in (job.network, options.compute_like)}
    compute_s = (COMPUTE_MS * 1e-3 * options.scale * madds[job.network]
                 / madds[options.compute_like])
    share = max(1.0, job.ranks * (1 + job.input_threads) / (os.cpu_count() or 1))
    run_s = min(options.run_seconds,
                SLOWDOWN * compute_s * share * (options.warmup + options.iterations))
    return JOB_SECONDS + (len(rows) + 1) * (RUN_SECONDS + run_s)


def minutes_left(options, rows, jobs, runs):
    """Returns how many minutes the jobs take, by the model and the jobs that were measured."""
    done = [(job, told["seconds"]) for job, told in runs.items()
            if (NETWORKS / f"{job.network}.json").exists()]
    factor = 1.0
    if done:
        factor = (sum(seconds for _, seconds in done)
                  / sum(modelled_seconds(options, rows, job) for job, _ in done))
    return math.ceil(factor * sum(modelled_seconds(options, rows, job) for job in jobs) / 60)


def run_job(options, words, runs, job):
    """Measures a job. All jobs do the same work: that of the first one that was measured."""
    speeds = [*speeds_of(runs)] or [options.units_per_second]
    speed = [] if speeds[0] is None else ["--units-per-second", repr(speeds[0])]
    began = time.monotonic()
    told, _ = run_sync_bench(
        options, job.name, job.ranks, job.wait,
        ["--network", job.network, "--seed", job.repetition, *speed, *words])
    told = dict(job=dataclasses.asdict(job), asked=words,
                seconds=round(time.monotonic() - began, 1), **told)
    write_json(path_of(options, job), told)
    (options.out / f"cell-{job.name}.json").unlink()
    return told


def measure(options, rest, rows, runs):
    """Runs the jobs that OUT lacks, and adds them to `runs`."""
    jobs = jobs_of(options)
    check_same(options, rest, rows, runs)
    missing = [job for job in jobs if job not in runs]
    print(f"# {len(jobs)} jobs of {len(rows) + 1} runs, {len(jobs) - len(missing)} of them done; "
          f"about {minutes_left(options, rows, missing, runs)} min",
          file=sys.stderr, flush=True)
    if options.estimate:
        return
    for place, job in enumerate(missing):
        if place > 0:
            print(f"# {len(missing) - place} jobs left, about "
                  f"{minutes_left(options, rows, missing[place:], runs)} min",
                  file=sys.stderr, flush=True)
        runs[job] = run_job(options, words_of(options, rest, rows, job), runs, job)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--networks", type=network_list, default="resnet50",
                        help="names of networks, separated by commas, or all")
    parser.add_argument("--ranks", type=number_list(1), default="2,4")
    parser.add_argument("--waits", type=wait_list, default="spin,yield")
    parser.add_argument("--input-threads", type=number_list(0), default="0")
    parser.add_argument("--rows", type=word_list, default="",
                        help="only rows whose labels contain one of these words")
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--first-repetition", type=int, default=1,
                        help="the number of the first repetition, to add more of them")
    parser.add_argument("--collective", default="auto", help="of all rows")
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--warmup", type=int, default=6,
                        help="iterations before the measured ones; TOPO makes its plan in them")
    parser.add_argument("--iterations", type=int, default=15)
    parser.add_argument("--run-seconds", type=float, default=2, help="limit of a run")
    parser.add_argument("--compute-like", default="resnet50", metavar="NETWORK",
                        help="the network that computes for sync_bench's --compute-ms; the others "
                        "compute in proportion to their multiply-adds")
    parser.add_argument("--input-batch-ms", type=float, default=25,
                        help="work of an input thread in each iteration, before --scale")
    parser.add_argument("--units-per-second", type=float,
                        help="speed of the work loop, if OUT has no runs; measured if missing")
    parser.add_argument("--estimate", action="store_true",
                        help="print how long the measurement takes, and measure nothing")
    parser.add_argument("--report", action="store_true",
                        help="print the tables of OUT, and measure nothing")
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "ladder")
    parser.add_argument("--cell-seconds", type=float, default=3600, help="time limit of a job")
    options, rest = parser.parse_known_args()
    for name in ("repetitions", "first_repetition"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} {getattr(options, name)} is out of range; "
                         "expected 1 or more")
    if options.compute_like not in known_networks():
        parser.error(f"--compute-like: network '{options.compute_like}' is unknown; expected one "
                     f"of {', '.join(known_networks())}")
    options.build, options.out = options.build.resolve(), options.out.resolve()
    return options, rest


def main():
    heed_signals()
    options, rest = parse_options()
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        runs = read_runs(options)
        check_speeds(options, runs)
        if not options.report:
            measure(options, rest, chosen_rows(options.rows), runs)
        if options.estimate:
            return 0
        if not runs:
            raise Failure(f"{options.out} has no runs")
    except Failure as failure:
        sys.exit(f"run_ladder.py: {failure}")
    cells = cells_of(runs)
    text = "\n".join(report(cells)) + "\n"
    print(text, end="")
    write_report(options.out / "ladder.md", text)
    write_report(options.out / "ladder.json", json.dumps(json_of(cells), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

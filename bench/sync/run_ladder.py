#!/usr/bin/env python3
"""Measures GS, NBCS and TOPO (dissertation 6.3) one at a time, from the response cache with cycles.

    bench/sync/run_ladder.py [--networks resnet50,vgg16] [--ranks 2,4,8] [--waits spin,yield]
                             [--input-threads 0,1] [--collective auto] [--out build/ladder] ...

A row differs from the one it is compared with in one thing. All rows use one collective; control
messages go through MPI where the papers' do. Options that are not known here go to sync_bench.
Tables go to standard output and OUT/ladder.md, everything to OUT/ladder.json.
"""

import argparse
import json
import pathlib
import random
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from mpi_jobs import Failure, heed_signals  # noqa: E402
from sync_bench_job import run_sync_bench  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESAMPLES = 2000

# (label, variant without collective and transport, transport, the label it is compared with)
ROWS = (
    ("cycle 1 ms", "lmdbio:cache+bucket=64M:cycle", "mpi", None),
    ("GS, each cycle", "lmdbio:cache+bucket=64M+gs=1:gs", "mpi", "cycle 1 ms"),
    ("GS, each 4th", "lmdbio:cache+bucket=64M+gs=4:gs", "mpi", "cycle 1 ms"),
    ("GS, each 10th", "lmdbio:cache+bucket=64M+gs=10:gs", "mpi", "cycle 1 ms"),
    ("GS, each 16th", "lmdbio:cache+bucket=64M+gs=16:gs", "mpi", "cycle 1 ms"),
    ("NBCS", "lmdbio:cache+bucket=64M:nbcs", "mpi", "cycle 1 ms"),
    ("cycle 5 ms", "lmdbio:cache+bucket=64M+cycle=5000:cycle", "mpi", "cycle 1 ms"),
    ("GS, each cycle of 5 ms", "lmdbio:cache+bucket=64M+cycle=5000+gs=1:gs", "mpi", "cycle 5 ms"),
    ("GS, each 10th of 5 ms", "lmdbio:cache+bucket=64M+cycle=5000+gs=10:gs", "mpi", "cycle 5 ms"),
    ("NBCS, 5 ms", "lmdbio:cache+bucket=64M+cycle=5000:nbcs", "mpi", "cycle 5 ms"),
    ("own transport", "lmdbio:cache+bucket=64M:cycle", "own", "cycle 1 ms"),
    ("event", "lmdbio:cache+bucket=64M:event", "own", "own transport"),
    ("TOPO", "lmdbio:topo+bucket=64M:event", "own", "event"),
    ("event, own buckets", "lmdbio:cache:event", "own", "event"),
    ("TOPO, own buckets", "lmdbio:topo:event", "own", "event, own buckets"),
)


def variant_of(row, collective):
    return f"{row[1]}:{collective}:{row[2]}"


def chosen_rows(words):
    """Returns the rows whose labels contain one of the words, and those they are compared with."""
    if not words:
        return list(ROWS)
    by_label = {row[0]: row for row in ROWS}
    kept = {row[0] for row in ROWS if any(word in row[0] for word in words)}
    if not kept:
        raise Failure(f"no row contains {' or '.join(words)}; the rows are "
                      f"{', '.join(by_label)}")
    for label in list(kept):
        while by_label[label][3]:
            label = by_label[label][3]
            kept.add(label)
    return [row for row in ROWS if row[0] in kept]


def run_cell(options, rest, rows, ranks, wait, input_threads):
    variants = ["none", *(variant_of(row, options.collective) for row in rows)]
    cell, _ = run_sync_bench(
        options, f"{ranks}-{wait}-{input_threads}", ranks, wait,
        ["--variants", ",".join(variants), "--baseline", variants[1],
         "--input-threads", input_threads, "--scale", options.scale,
         "--repetitions", options.repetitions, "--iterations", options.iterations, *rest])
    return dict(ranks=ranks, wait=wait, input_threads=input_threads, **cell)


def run_medians(network, variant):
    """Returns the median iteration in ms of each training run of a variant, by repetition."""
    return {one["repetition"]: statistics.median(one["iteration_ms"]) for one in network["runs"]
            if one["variant"] == variant and one["kind"] == "train"}


def gain_of(network, variant, against):
    """Returns (gain in percent, its interval of 95 %): how much less time than `against`, from the
    differences of the runs of one repetition."""
    own, other = run_medians(network, variant), run_medians(network, against)
    pairs = [(own[i], other[i]) for i in sorted(own.keys() & other.keys())]
    if not pairs:
        return None
    gains = [100 * (1 - mine / theirs) for mine, theirs in pairs]
    chance = random.Random(1)
    drawn = sorted(statistics.median(chance.choices(gains, k=len(gains)))
                   for _ in range(RESAMPLES))
    return (statistics.median(gains), drawn[int(0.025 * RESAMPLES)], drawn[int(0.975 * RESAMPLES)])


def gain_text(gain):
    return "-" if gain is None else f"{gain[0]:+.0f} % ({gain[1]:+.0f} to {gain[2]:+.0f})"


def network_lines(options, rows, cell, place):
    network = cell["networks"][place]
    found = {row["variant"]: row for row in network["variants"]}
    lines = [f"### {network['network']}, {cell['ranks']} ranks, {cell['wait']}, "
             f"{cell['input_threads']} input threads a rank", "",
             "| row | ms | gain over | gain (95 %) | gain over `cycle 1 ms` | helper, % of a core "
             "| its run delay, ms | control messages |", "|---|---|---|---|---|---|---|---|"]
    lines.append(f"| computing only | {found['none']['p50_ms']:.1f} | - | - | - | - | - | - |")
    first = variant_of(ROWS[0], options.collective)
    by_label = {row[0]: variant_of(row, options.collective) for row in ROWS}
    for row in rows:
        variant = variant_of(row, options.collective)
        told = found.get(variant, {})
        if "p50_ms" not in told:
            lines.append(f"| {row[0]} | failed: {told.get('error', 'no run')} |" + " - |" * 6)
            continue
        gain = gain_of(network, variant, by_label[row[3]]) if row[3] else None
        lines.append(
            f"| {row[0]} | {told['p50_ms']:.1f} | {row[3] or '-'} | {gain_text(gain)} | "
            f"{gain_text(gain_of(network, variant, first)) if variant != first else '-'} | "
            f"{100 * told['helper_share']:.0f} | {told['helper_run_delay_ms']:.1f} | "
            f"{told['control_messages']:.1f} |")
    return lines + [""]


def number_list(text):
    return [int(word) for word in text.split(",")]


def word_list(text):
    return [word for word in text.split(",") if word]


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", default="resnet50")
    parser.add_argument("--ranks", type=number_list, default="2,4")
    parser.add_argument("--waits", type=word_list, default="spin,yield")
    parser.add_argument("--input-threads", type=number_list, default="0")
    parser.add_argument("--rows", type=word_list, default="",
                        help="only rows whose labels contain one of these words")
    parser.add_argument("--collective", default="auto", help="of all rows")
    parser.add_argument("--scale", default="0.1")
    parser.add_argument("--repetitions", default="10")
    parser.add_argument("--iterations", default="15")
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "ladder")
    parser.add_argument("--cell-seconds", type=float, default=3600)
    options, rest = parser.parse_known_args()
    for wait in options.waits:
        if wait not in ("spin", "yield"):
            parser.error(f"--waits: '{wait}' is unknown; expected spin or yield")
    options.build, options.out = options.build.resolve(), options.out.resolve()
    return options, rest


def main():
    heed_signals()
    options, rest = parse_options()
    options.out.mkdir(parents=True, exist_ok=True)
    lines, cells = [], []
    try:
        rows = chosen_rows(options.rows)
        for ranks in options.ranks:
            for wait in options.waits:
                for input_threads in options.input_threads:
                    cell = run_cell(options, rest, rows, ranks, wait, input_threads)
                    cells.append(cell)
                    for place in range(len(cell["networks"])):
                        lines += network_lines(options, rows, cell, place)
    except Failure as failure:
        sys.exit(f"run_ladder.py: {failure}")
    first = cells[0]["environment"]
    lines.append(f"Collective `{options.collective}`, scale {options.scale}, "
                 f"{options.repetitions} repetitions, {first['cores']} cores, {first['mpi']}, "
                 f"commit {first['commit']}. A gain is the median of the repetitions: the share by "
                 "which a run takes less time than the other row's run of the same repetition.")
    text = "\n".join(lines) + "\n"
    print(text, end="")
    (options.out / "ladder.md").write_text(text, encoding="utf-8")
    (options.out / "ladder.json").write_text(json.dumps(dict(cells=cells), indent=1) + "\n",
                                             encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

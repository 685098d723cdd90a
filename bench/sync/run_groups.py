#!/usr/bin/env python3
"""Measures num_groups: one network in 1, 2, 5, ... tensor groups (Romero et al. 3.2, Figures 8, 9).

    bench/sync/run_groups.py [--hosts 2 --bandwidth 10G] [--groups 1,2,5,10,20,40] [--by tensors]
                             [--coordinators cache,horovod,topo] [--out build/groups] ...

The first table has the iteration of each coordinator for each number of groups, and its ratio to
that of the first number. "own buckets" is num_groups 0. `cache` is the paper's row with the
response cache, and `horovod` the one without. All rows wait by `event`, and not in cycles as the
paper's do. The second table has the time that a tensor spends in each phase, as Figure 9 has it.
With more than one host the ranks run on emulated hosts (scripts/cluster, needs root). Options that
are not known here go to sync_bench.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from figures import number_list, word_list  # noqa: E402
from mpi_jobs import Failure, heed_signals, run  # noqa: E402
from output_files import scratch_folder, write_report  # noqa: E402
from sync_bench_job import Ranks, medians_of, paired_ratio, ratio_text  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
PHASES = ("negotiate", "pack", "transfer", "unpack")


def variant_of(options, coordinator, groups, additions=""):
    grouped = f"+groups={groups}+by={options.by}" if groups > 0 else ""
    return f"lmdbio:{coordinator}{grouped}{additions}:event:{options.collective}:own"


def measure(options, rest, variants, repetitions, folder):
    """Returns what sync_bench saves about the variants."""
    told = options.rank_place.measure(options.build, [
        "--network", options.network, "--scale", options.scale, "--variants", ",".join(variants),
        "--kinds", "train", "--repetitions", repetitions, "--iterations", options.iterations,
        "--warmup", options.warmup, *rest], folder)
    for row in told["networks"][0]["variants"]:
        if "error" in row:
            raise Failure(f"{row['variant']}: {row['error']}")
    return told


def phases_of(options, variant, rest, folder):
    """Returns the median time of a tensor in each phase, in ms, by the timelines of all ranks."""
    for old in folder.glob("sync_bench_timeline.*"):
        old.unlink()
    measure(options, rest, [variant], 1, folder)
    files = sorted(folder.glob("sync_bench_timeline.train.*"))
    code, output = run([options.build / "bin" / "lmdbio-timeline", "report", "--json", *files],
                       dict(os.environ), 120)
    if code != 0:
        raise Failure(f"lmdbio-timeline ended with {code}: {output.strip()}")
    return {one["phase"]: one["p50_us"] * 1e-3 for one in json.loads(output)["phases"]}


def group_name(groups):
    return "own buckets" if groups == 0 else str(groups)


def origin_lines(options, told):
    """Returns what was measured and where, and how many runs other processes disturbed."""
    rate = f"{options.bandwidth.removesuffix('bit')}bit/s" if options.bandwidth else "no limit"
    where = (f"{options.hosts} hosts of {options.per_host} ranks, {rate}"
             if options.hosts > 1 else f"{options.per_host} ranks of one host")
    alone = statistics.median(medians_of(told, "none").values())
    environment, runs = told["environment"], told["networks"][0]["runs"]
    disturbed = sum(one["is_disturbed"] for one in runs)
    return [f"{options.network} at {options.scale}, {where}, MPI waits: {options.wait}, groups by "
            f"{options.by}; computing alone {alone:.1f} ms. {environment['cores']} cores, "
            f"{environment['mpi']}, commit {environment['commit']}. Other processes disturbed "
            f"{disturbed} of {len(runs)} runs."]


def iteration_table(options, told):
    base_name = group_name(options.groups[0])
    lines = ["| groups | " + " | ".join(f"{one}: ms | / {base_name}"
                                        for one in options.coordinators) + " |",
             "|---" * (1 + 2 * len(options.coordinators)) + "|"]
    for groups in options.groups:
        cells = []
        for coordinator in options.coordinators:
            own = medians_of(told, variant_of(options, coordinator, groups))
            base = medians_of(told, variant_of(options, coordinator, options.groups[0]))
            cells.append(f"{statistics.median(own.values()):.1f} | "
                         f"{ratio_text(paired_ratio(own, base))}")
        lines.append(f"| {group_name(groups)} | " + " | ".join(cells) + " |")
    return lines


def phase_table(phases):
    lines = ["| coordinator, groups | " + " | ".join(f"{one}, ms" for one in PHASES) + " |",
             "|---" * (1 + len(PHASES)) + "|"]
    for name, found in phases.items():
        lines.append(f"| {name} | " + " | ".join(f"{found[one]:.2f}" if one in found else "-"
                                                 for one in PHASES) + " |")
    return lines


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--network", default="resnet50")
    parser.add_argument("--groups", type=number_list(0), default="1,2,5,10,20,40,0",
                        help="the first one is what the others are compared with; 0: own buckets")
    parser.add_argument("--by", choices=("bytes", "tensors"), default="tensors")
    parser.add_argument("--coordinators", type=word_list, default="cache,horovod,topo")
    parser.add_argument("--collective", default="auto")
    parser.add_argument("--hosts", type=int, default=1, help="emulated ones if more than 1")
    parser.add_argument("--per-host", type=int, help="ranks; 2 on one host, else 1")
    parser.add_argument("--bandwidth", help="of each emulated host, as 1G")
    parser.add_argument("--wait", choices=("yield", "spin"), default="yield")
    parser.add_argument("--scale", type=float, default=0.25)
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=6,
                        help="iterations before the measured ones; the groups are learned in them")
    parser.add_argument("--no-phases", action="store_true", help="print the first table only")
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "groups")
    parser.add_argument("--run-seconds-max", type=float, default=3600)
    options, rest = parser.parse_known_args()
    for name in ("hosts", "repetitions"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)} is out of range; expected 1 or more")
    if options.bandwidth and options.hosts == 1:
        parser.error("--bandwidth has no effect on one host; add --hosts 2")
    options.per_host = options.per_host or (2 if options.hosts == 1 else 1)
    options.rank_place = Ranks(options.hosts, options.per_host, options.wait,
                               f"groups-{os.getpid()}", options.mpirun, options.run_seconds_max)
    options.build, options.out = options.build.resolve(), options.out.resolve()
    return options, rest


def main():
    heed_signals()
    options, rest = parse_options()
    options.out.mkdir(parents=True, exist_ok=True)
    variants = [variant_of(options, coordinator, groups)
                for coordinator in options.coordinators for groups in options.groups]
    phases = {}
    try:
        with scratch_folder("groups") as name, \
                options.rank_place.up(options.bandwidth):
            folder = pathlib.Path(name)
            told = measure(options, rest, ["none", *variants], options.repetitions, folder)
            for coordinator in () if options.no_phases else options.coordinators:
                for groups in options.groups:
                    variant = variant_of(options, coordinator, groups, "+trace")
                    phases[f"{coordinator}, {group_name(groups)}"] = phases_of(
                        options, variant, rest, folder)
    except Failure as failure:
        sys.exit(f"run_groups.py: {failure}")
    write_report(options.out / "groups.json",
               json.dumps(dict(told, phases=phases), indent=1) + "\n")
    lines = [*origin_lines(options, told), "", *iteration_table(options, told)]
    if phases:
        lines += ["", *phase_table(phases)]
    text = "\n".join(lines) + "\n"
    print(text, end="")
    write_report(options.out / "groups.md", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

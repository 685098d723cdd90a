#!/usr/bin/env python3
"""Runs sync_bench for ranks x ways of waiting x networks, and prints all of it in tables.

    bench/sync/run_matrix.py [--ranks 2,4] [--waits spin,yield] [--networks resnet50]
                             [--variants none,mpi,...] [--out build/sync_matrix] ...

`spin` and `yield` are said to Open MPI in words; slots enough are declared for each number of
ranks, because mpirun's --oversubscribe would let MPI yield by itself. What MPI then says of itself
is checked and printed. Options that are not known here go to sync_bench as they are. Tables go to
standard output and OUT/matrix.md, everything to OUT/matrix.json.
"""

import argparse
import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import compare_horovod  # noqa: E402
from mpi_jobs import Failure, heed_signals, run  # noqa: E402
from output_files import write_report  # noqa: E402
from sync_bench_job import run_sync_bench  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
DDP = pathlib.Path(__file__).resolve().parent / "ddp_gloo.py"
SKIPPED = 77
VARIANTS = ("none,mpi,mpi-fused,gloo,lmdbio:horovod+bucket=64M:cycle,"
            "lmdbio:cache+bucket=64M:cycle,lmdbio:cache+bucket=64M:gs,lmdbio:cache+bucket=64M:nbcs,"
            "lmdbio:cache+bucket=64M:event,lmdbio:cache:event,lmdbio:topo,lmdbio:graph")
# Options of sync_bench that the peers' programs have, too.
SHARED_OPTIONS = ("scale", "compute-ms", "repetitions", "iterations", "warmup", "run-seconds",
                  "neighbour-limit", "seed")


def run_cell(options, rest, ranks, wait):
    cell, output = run_sync_bench(
        options, f"{ranks}-{wait}", ranks, wait,
        ["--network", options.networks, "--variants", options.variants, "--baseline",
         options.baseline, *rest])
    return dict(ranks=ranks, wait=wait, text=output, **cell)


def shared_options(rest):
    chosen = []
    for name, value in zip(rest, rest[1:]):
        if name.startswith("--") and name[2:] in SHARED_OPTIONS:
            chosen += [name, value]
    for word in rest:
        if word.startswith("--") and "=" in word and word[2:].split("=")[0] in SHARED_OPTIONS:
            chosen.append(word)
    return chosen


def run_ddp(options, rest, cells):
    """PyTorch on the same networks, with the work loop as fast as the first cell measured it; a
    line that says why not, where it cannot be had."""
    library = options.build / "lib" / "liblmdbio_sync_work.so"
    python = "/usr/bin/python3" if pathlib.Path("/usr/bin/python3").exists() else sys.executable
    speed = cells[0]["networks"][0]["settings"]["work_units_per_s"]
    results = []
    for ranks in options.ranks:
        for network in [one["network"] for one in cells[0]["networks"]]:
            saved = options.out / f"ddp-{ranks}-{network}.json"
            saved.unlink(missing_ok=True)
            print(f"# {ranks} ranks, torch, {network}", file=sys.stderr, flush=True)
            code, output = run(
                [python, "-B", DDP, "--work-library", library, "--network", network,
                 "--ranks", ranks, "--units-per-second", speed, "--save", saved,
                 *shared_options(rest)], os.environ, options.cell_seconds)
            if code == SKIPPED:
                return [], output.strip()
            if not saved.exists():
                raise Failure(f"ddp_gloo.py ended with {code}:\n{output}")
            results.append(json.loads(saved.read_text(encoding="utf-8")))
    return results, ""


def run_horovod(options, rest, cells):
    """Horovod and its in-tree replay in a Python program, with the work loop as fast as the first
    cell measured it. Returns (cells, lines of tables), or a line that says why there are none."""
    compared = compare_horovod.parse_options([
        "--build", str(options.build), "--mpirun", options.mpirun,
        "--networks", ",".join(one["network"] for one in cells[0]["networks"]),
        "--ranks", ",".join(map(str, options.ranks)), "--waits", ",".join(options.waits),
        "--cell-seconds", str(options.cell_seconds), "--units-per-second",
        str(cells[0]["networks"][0]["settings"]["work_units_per_s"]),
        *shared_options(rest)])
    why_not = compare_horovod.why_absent(compared)
    return ([], [f"absent: {why_not}", ""]) if why_not else compare_horovod.compare(compared)


def number(row, name, digits, factor=1.0):
    return f"{row[name] * factor:.{digits}f}" if name in row else "-"


def time_text(row):
    if "p50_ms" not in row:
        return f"failed: {row.get('error', 'no run')}"
    mark = "" if row["clean_runs"] else " !"
    return f"{row['p50_ms']:.2f} / {row['p95_ms']:.2f} ({number(row, 'x_baseline', 2)}){mark}"


def traffic_text(row):
    if "p50_ms" not in row:
        return "-"
    return (f"{number(row, 'idle_slowdown', 3)}, {number(row, 'idle_helper_share', 1, 100)} %, "
            f"{number(row, 'helper_share', 1, 100)} %, {row['helper_run_delay_ms']:.2f} ms, "
            f"{row['control_messages']:.1f}, {row['collectives']:.1f}, "
            f"{row['mpi_calls']:.1f}")


def table(title, head, rows):
    lines = [title, "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows] + [""]


def network_tables(cells, place):
    """Two tables of one network: variants down, cells across."""
    first = cells[0]["networks"][place]
    names = [row["variant"] for row in first["variants"]]
    head = ["variant"] + [f"{cell['ranks']} ranks, {cell['wait']}" for cell in cells]
    rows_of = [{row["variant"]: row for row in cell["networks"][place]["variants"]}
               for cell in cells]
    lines = [f"## {first['network']}: {first['tensors']} tensors, "
             f"{first['gradient_bytes'] / 1e6:.1f} MB", ""]
    lines += table("Iteration: p50 / p95 ms (p50 to the baseline's); `!`: no run without a "
                   "neighbour", head,
                   [[name] + [time_text(rows[name]) for rows in rows_of] for name in names])
    lines += table("Idle slowdown of computing, helper's share of a core idle and training, its "
                   "run delay, control messages, data collectives, MPI calls; the last four per "
                   "iteration",
                   head,
                   [[name] + [traffic_text(rows[name]) for rows in rows_of] for name in names])
    return lines


def ddp_table(results):
    rows = []
    for result in results:
        for one in result["networks"]:
            alone, ddp = one["variants"]
            rows.append([one["network"], str(result["environment"]["ranks"]),
                         time_text(alone), time_text(ddp), f"{ddp['exposed_ms']:.2f}"])
    return table("## torch DDP over Gloo", ["network", "ranks", "computing only: p50 / p95 ms",
                                            "DDP: p50 / p95 ms", "exposed ms"], rows)


def environment_lines(cells):
    lines = ["## Environment", ""]
    for cell in cells:
        words = ", ".join(f"{name} {value}" for name, value in cell["environment"].items())
        lines.append(f"- {cell['ranks']} ranks, {cell['wait']}: {words}")
        lines += [f"- {name} is absent: {why}" for name, why in cell["absent"].items()]
    return list(dict.fromkeys(lines))


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--waits", default="spin,yield")
    parser.add_argument("--networks", default="resnet50",
                        help="names of networks, separated by commas, or all")
    parser.add_argument("--variants", default=VARIANTS)
    parser.add_argument("--baseline", default="lmdbio:horovod+bucket=64M:cycle")
    parser.add_argument("--no-ddp", action="store_true", help="do not measure PyTorch")
    parser.add_argument("--no-horovod", action="store_true", help="do not measure Horovod")
    parser.add_argument("--cell-seconds", type=float, default=3600,
                        help="time limit of one cell in seconds")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "sync_matrix")
    options, rest = parser.parse_known_args()
    options.ranks = [int(word) for word in options.ranks.split(",")]
    options.waits = options.waits.split(",")
    if not set(options.waits) <= {"spin", "yield"}:
        parser.error("--waits takes spin, yield or both, separated by a comma")
    options.out = options.out.resolve()
    return options, rest


def main():
    heed_signals()
    options, rest = parse_options()
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        cells = [run_cell(options, rest, ranks, wait)
                 for ranks in options.ranks for wait in options.waits]
        lines = []
        for place in range(len(cells[0]["networks"])):
            lines += network_tables(cells, place)
        results, why_not = ([], "--no-ddp") if options.no_ddp else run_ddp(options, rest, cells)
        lines += ddp_table(results) if results else [f"torch DDP over Gloo: absent: {why_not}", ""]
        horovod, horovod_lines = (([], ["absent: --no-horovod", ""]) if options.no_horovod
                                  else run_horovod(options, rest, cells))
        lines += ["## Horovod and its in-tree replay", "", *horovod_lines]
    except Failure as failure:
        sys.exit(f"run_matrix.py: {failure}")
    text = "\n".join(lines + environment_lines(cells)) + "\n"
    print(text, end="")
    write_report(options.out / "matrix.md", text)
    told = dict(baseline=options.baseline, cells=cells, ddp=results, horovod=horovod)
    write_report(options.out / "matrix.json", json.dumps(told, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

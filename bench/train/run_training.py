#!/usr/bin/env python3
"""Trains real PyTorch models with several ways to synchronise gradients, and compares the time that
each adds to an iteration.

    bench/train/run_training.py [--models mlp,resnet,transformer] [--ranks 2,4,8]
                                [--waits spin,yield] [--variants none,horovod,ddp,lmdbio]
                                [--repetitions 5] [--out build/training] ...

README.md describes models, variants and columns. Tables go to standard output and OUT/training.md,
all times of all runs to OUT/training.json: after an interruption or a failure, too, with the
repetitions that were complete.
"""

import argparse
import functools
import json
import os
import pathlib
import random
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from figures import interval, number_list, wait_list, word_list  # noqa: E402
from mpi_jobs import Failure, heed_signals, mpi_environment, mpirun_words, run  # noqa: E402
from output_files import scratch_folder, write_report  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
RANK_PROGRAM = pathlib.Path(__file__).resolve().parent / "train_rank.py"
HOROVOD_PYTHON = ROOT / "build" / "horovod" / "bin" / "python"
SYSTEM_PYTHON = pathlib.Path("/usr/bin/python3")
MODELS = ("mlp", "resnet", "transformer", "accelerated")
PEERS = ("horovod", "ddp")  # the exposed time is compared with theirs
# Sums of another order differ in their last bits. Small batches behind batch normalisation make
# such a difference fifty times as large in each iteration: only the first losses of resnet agree.
LOSS_TOLERANCE = 1e-4  # relative
COMPARED_ITERATIONS = {"resnet": 4}  # others: all
PARTS = ("forward", "backward", "synchronize", "step")  # of an iteration, as train_rank.py has them
COMPUTING_PARTS = 2  # forward and backward
# A rank computes undisturbed if it takes at most 1.15 of full speed. A rank whose hardware thread
# shares a core with a busy one takes 1.5 to 2 of it.
FULL_SPEED_QUANTILE = 0.1  # of the computing times of all ranks of a cell
DISTURBED_FROM = 1.15
UNDISTURBED_MIN = 10  # fewer iterations have no row


def python_for(options, variant):
    """Returns the Python that runs a variant: the one that has Horovod for all, if there is one,
    so that all variants run the same PyTorch."""
    if options.python:
        return options.python
    if HOROVOD_PYTHON.exists():
        return HOROVOD_PYTHON
    if variant.startswith("horovod"):
        raise Failure("absent: build/horovod does not exist; run scripts/setup --horovod")
    return SYSTEM_PYTHON if SYSTEM_PYTHON.exists() else pathlib.Path(sys.executable)


def check_variant(variant):
    kind = variant.partition(":")[0].partition("+")[0]
    if kind not in ("none", "barrier", "lmdbio", *PEERS):
        raise Failure(f"variant '{variant}' is unknown; expected none, barrier, horovod, "
                      "ddp[+view] or lmdbio[+copy][:OPTION=VALUE,...]")


def why_absent(options, variant):
    """Returns "" or the reason why this machine lacks a variant."""
    try:
        python = python_for(options, variant)
    except Failure as failure:
        return str(failure).removeprefix("absent: ")
    modules = ["torch", "mpi4py"] + (["horovod.torch"] if variant.startswith("horovod") else [])
    for module in modules:
        if not can_import(python, module):
            return f"{python} has no {module}; see README.md"
    return ""


@functools.cache
def can_import(python, module):
    code, _ = run([python, "-c", f"import {module}"], os.environ, 120)
    return code == 0


def run_once(options, model, ranks, wait, variant):
    """Returns the outcome of one run: the times of its iterations as the slowest rank saw them, the
    mean loss of each iteration, and figures of its ranks."""
    with scratch_folder("training") as folder:
        saved = pathlib.Path(folder) / "run.json"
        words = [*mpirun_words(options.mpirun, ranks, wait, options.cores_per_rank),
                 python_for(options, variant), "-B", RANK_PROGRAM, "--model", model,
                 "--depth", options.depth, "--variant", variant,
                 "--warmup", options.warmup, "--iterations", options.iterations,
                 *(["--set-to-none"] if options.set_to_none else []),
                 *(["--idle"] if options.idle else []),
                 "--meeting", pathlib.Path(folder) / "meeting", "--save", saved]
        environment = mpi_environment() | {
            "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
            "LMDBIO_LIBRARY": str(options.build / "lib" / "liblmdbio.so"),
            "LMDBIO_MPI_LIBRARY": str(options.build / "lib" / "liblmdbio_mpi.so")}
        code, output = run(words, environment, options.run_seconds_max)
        if code != 0 or not saved.exists():
            raise Failure(f"{model}, {ranks} ranks, {wait}, {variant} ended with {code}:\n{output}")
        told = json.loads(saved.read_text(encoding="utf-8"))
    per_rank = told["ranks"]
    return dict(
        variant=variant,
        computing_ms=[max(sum(times[:COMPUTING_PARTS]) for times in ranks)
                      for ranks in zip(*(r["times"] for r in per_rank))],
        computing_by_rank_ms=[[sum(times[:COMPUTING_PARTS]) for times in r["times"]]
                              for r in per_rank],
        times_ms=[max(map(sum, ranks)) for ranks in zip(*(r["times"] for r in per_rank))],
        parts_ms=[statistics.median(times[part] for r in per_rank for times in r["times"])
                  for part in range(len(PARTS))],
        losses=[statistics.fmean(losses) for losses in zip(*(r["losses"] for r in per_rank))],
        helper_share=max(r["helper_share"] for r in per_rank),
        weights_differ=told["weights_differ"], description=told["description"],
        cores=min(r["cores"] for r in per_rank), tensors=told["tensors"],
        gradient_bytes=told["gradient_bytes"], torch=told["torch"])


def run_cell(options, cell):
    """Runs all variants of a cell `repetitions` times, in a random order each time, and adds each
    repetition to cell["runs"] when it is complete."""
    model, ranks, wait = cell["model"], cell["ranks"], cell["wait"]
    chance = random.Random(f"{options.seed} {model} {ranks} {wait}")
    for repetition in range(options.repetitions):
        order = list(options.present)
        chance.shuffle(order)
        runs = []
        for variant in order:
            print(f"# {model}, {ranks} ranks, {wait}: {variant} ({repetition + 1})",
                  file=sys.stderr, flush=True)
            runs.append(run_once(options, model, ranks, wait, variant) | dict(
                repetition=repetition))
        cell["runs"] += runs
        if not options.idle:
            where, count = f"{model}, {ranks} ranks, {wait}", COMPARED_ITERATIONS.get(model)
            check_losses([one for one in cell["runs"] if not has_lag(one)], where, count)
            check_losses([one for one in cell["runs"] if has_lag(one)], where, count)


def has_lag(run):
    """A lag trains another model, because each step uses the gradients of older weights."""
    return "lag=1" in run["variant"].partition(":")[2].split(",")


def check_losses(runs, where, count):
    """All ways to average gradients train the same model, with the same lag.

    count  the number of losses to compare; None: all
    """
    synchronised = [one for one in runs if one["variant"] not in ("none", "barrier")]
    if not synchronised:
        return
    expected = synchronised[0]
    for one in synchronised:
        if one["weights_differ"] != 0:  # also if it is no number
            raise Failure(f"{where}: the weights of the ranks differ by {one['weights_differ']} "
                          f"with {one['variant']}")
        for i, (found, wanted) in enumerate(zip(one["losses"][:count], expected["losses"])):
            if not abs(found - wanted) <= LOSS_TOLERANCE * max(1.0, abs(wanted)):
                raise Failure(f"{where}: iteration {i} has the loss {found} with "
                              f"{one['variant']} and {wanted} with {expected['variant']}")


def medians(cell, variant):
    """Returns the median iteration in ms of each run of a variant, by repetition."""
    return [statistics.median(one["times_ms"]) for one in cell["runs"] if one["variant"] == variant]


def added_ratio(numerators, denominators, floors):
    """Returns how many times as much the numerators add to the floors as the denominators do, by
    medians; None if the denominators add nothing."""
    numerator, denominator, floor = map(statistics.median, (numerators, denominators, floors))
    return (numerator - floor) / (denominator - floor) if denominator > floor else None


def ratio_text(cell, variant, peer):
    own, others, floor = (medians(cell, name) for name in (variant, peer, "none"))
    if not others or not floor or variant in ("none", peer):
        return "-"
    return ratio_of(own, others, floor, peer)


def ratio_of(own, others, floor, peer):
    ratio = added_ratio(own, others, floor)
    if ratio is None:
        return f"{peer} adds nothing"
    bounds = interval(added_ratio, own, others, floor)
    return f"{ratio:.2f}" + (f" ({bounds[0]:.2f} to {bounds[1]:.2f})" if bounds else "")


def summarise(cell, variants):
    floor = medians(cell, "none")
    rows = []
    for variant in variants:
        times = medians(cell, variant)
        own = [one for one in cell["runs"] if one["variant"] == variant]
        row = dict(variant=variant, p50_ms=statistics.median(times), least_ms=min(times),
                   most_ms=max(times),
                   slowest_computing_ms=statistics.median(
                       statistics.median(one["computing_ms"]) for one in own),
                   parts_ms=[statistics.median(parts) for parts in
                             zip(*(one["parts_ms"] for one in own))],
                   helper_share=statistics.median(one["helper_share"] for one in own))
        if floor:
            row["exposed_ms"] = row["p50_ms"] - statistics.median(floor)
        rows.append(row)
    return rows


def full_speed_ms(cell):
    """Returns the computing time of a rank that nothing disturbs."""
    times = sorted(ms for run in cell["runs"] for rank in run["computing_by_rank_ms"]
                   for ms in rank)
    return times[int(FULL_SPEED_QUANTILE * len(times))]


def undisturbed(cell, variant):
    """Returns the iterations in ms of all runs of a variant in which every rank computed at full
    speed, and the number of all iterations."""
    most = DISTURBED_FROM * full_speed_ms(cell)
    pairs = [pair for run in cell["runs"] if run["variant"] == variant
             for pair in zip(run["computing_ms"], run["times_ms"])]
    return [iteration for computing, iteration in pairs if computing <= most], len(pairs)


def undisturbed_lines(cell, variants):
    """The table of the iterations without a disturbed rank; [] if computing alone has too few."""
    times = {variant: undisturbed(cell, variant) for variant in variants}
    floor = times.get("none", ([], 0))[0]
    if len(floor) < UNDISTURBED_MIN:
        return []
    peers = [peer for peer in PEERS if peer in variants]
    lines = [f"Iterations in which every rank computed for at most {DISTURBED_FROM} of "
             f"{full_speed_ms(cell):.1f} ms:", "",
             "| variant | iterations | iteration ms | exposed ms |"
             + "".join(f" exposed, of {peer} |" for peer in peers),
             "|---|---|---|---|" + "---|" * len(peers)]
    for variant, (own, count) in times.items():
        if len(own) < UNDISTURBED_MIN:
            lines.append(f"| `{variant}` | {len(own)} of {count} | - | - |" + " - |" * len(peers))
            continue
        middle = statistics.median(own)
        lines.append(f"| `{variant}` | {len(own)} of {count} | {middle:.1f} | "
                     f"{middle - statistics.median(floor):.1f} |"
                     + "".join(f" {undisturbed_ratio(times, variant, peer)} |" for peer in peers))
    return lines + [""]


def undisturbed_ratio(times, variant, peer):
    others = times[peer][0]
    if variant in ("none", peer) or len(others) < UNDISTURBED_MIN:
        return "-"
    return ratio_of(times[variant][0], others, times["none"][0], peer)


def cell_lines(cell, variants):
    first, count = cell["runs"][0], len(cell["runs"]) // len(variants)
    peers = [peer for peer in PEERS if peer in variants]
    lines = [f"### {cell['model']}, {cell['ranks']} ranks, MPI: {cell['wait']}", "",
             f"{first['tensors']} tensors, {first['gradient_bytes'] / 1e6:.1f} MB of gradients, "
             f"{count} runs of each variant", "",
             "| variant | iteration ms (runs) | exposed ms | " + " | ".join(PARTS)
             + " | slowest computing | other threads, % of a core |"
             + "".join(f" exposed, of {peer} |" for peer in peers),
             "|---|---|---|---|---|" + "---|" * (len(PARTS) + len(peers))]
    for row in summarise(cell, variants):
        exposed = f"{row['exposed_ms']:.1f}" if "exposed_ms" in row else "-"
        lines.append(
            f"| `{row['variant']}` | {row['p50_ms']:.1f} ({row['least_ms']:.1f} to "
            f"{row['most_ms']:.1f}) | {exposed} | "
            + " | ".join(f"{ms:.1f}" for ms in row["parts_ms"])
            + f" | {row['slowest_computing_ms']:.1f} | {100 * row['helper_share']:.0f} |"
            + "".join(f" {ratio_text(cell, row['variant'], peer)} |" for peer in peers))
    return lines + [""] + undisturbed_lines(cell, variants)


def variant_list(text):
    """Splits at commas that begin a variant: options of a variant contain commas, too."""
    variants = []
    for word in word_list(text):
        if "=" in word and ":" not in word and variants:
            variants[-1] += "," + word
        else:
            variants.append(word)
    return variants


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=word_list, default="mlp,resnet,transformer")
    parser.add_argument("--depth", type=int, default=32, help="layers of resnet: 6 n + 2")
    parser.add_argument("--ranks", type=number_list(1), default="2,4,8")
    parser.add_argument("--waits", type=wait_list, default="spin,yield")
    parser.add_argument("--variants", type=variant_list, default="none,horovod,ddp,lmdbio")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=8, help="iterations before the measured ones")
    parser.add_argument("--iterations", type=int, default=24)
    parser.add_argument("--set-to-none", action="store_true",
                        help="drop gradients between iterations, as PyTorch 2 does by default")
    parser.add_argument("--idle", action="store_true",
                        help="the variants exist, but get no gradients: the cost of their threads")
    parser.add_argument("--cores-per-rank", type=int, default=0,
                        help="binds each rank to so many cores of its own; default: no binding")
    parser.add_argument("--seed", type=int, default=1, help="of the order of the runs")
    parser.add_argument("--python", type=pathlib.Path,
                        help="the Python of all variants; default: that of build/horovod, or the "
                        "system's")
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "training")
    parser.add_argument("--run-seconds-max", type=float, default=300,
                        help="a run that takes longer is ended, and with it the benchmark")
    options = parser.parse_args()
    for model in options.models:
        if model not in MODELS:
            parser.error(f"--models: model '{model}' is unknown; expected {', '.join(MODELS)}")
    for name in ("repetitions", "iterations"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)} is out of range; expected 1 or more")
    if not 0 <= options.cores_per_rank * max(options.ranks) <= os.cpu_count():
        parser.error(f"--cores-per-rank {options.cores_per_rank} is out of range: "
                     f"{max(options.ranks)} ranks share {os.cpu_count()} cores")
    options.build, options.out = options.build.resolve(), options.out.resolve()
    return options


def main():
    heed_signals()
    options = parse_options()
    options.out.mkdir(parents=True, exist_ok=True)
    lines, cells, absent, ending = [], [], {}, None
    try:
        for variant in options.variants:
            check_variant(variant)
        absent = {variant: why_absent(options, variant) for variant in options.variants}
        options.present = [variant for variant in options.variants if not absent[variant]]
        for variant, why in absent.items():
            if why:
                lines += [f"`{variant}` is absent: {why}", ""]
        if not options.present:
            raise Failure("no variant can be run: " + "; ".join(sorted(set(absent.values()))))
        for model in options.models:
            for ranks in options.ranks:
                for wait in options.waits:
                    cells.append(dict(model=model, ranks=ranks, wait=wait, runs=[]))
                    run_cell(options, cells[-1])
    except (Failure, SystemExit, KeyboardInterrupt) as failure:
        ending = failure
    cells = [cell for cell in cells if cell["runs"]]
    if cells:
        write_reports(options, absent, cells, lines, ending)
    else:
        print("\n".join(lines))
    if isinstance(ending, Failure):
        sys.exit(f"run_training.py: {ending}")
    if ending:
        raise ending
    return 0


def write_reports(options, absent, cells, lines, ending):
    """Writes tables and times of the cells, behind the lines about absent variants.

    ending  what ended the benchmark early, or None
    """
    for cell in cells:
        lines += cell_lines(cell, options.present)
    lines += [f"PyTorch {cells[0]['runs'][0]['torch']}, one computing thread a rank, "
              f"{os.cpu_count()} cores, "
              + (f"{options.cores_per_rank} bound to each rank" if options.cores_per_rank else
                 "ranks are not bound")
              + f"; runs of {options.iterations} iterations, {time.strftime('%Y-%m-%d')}. Each "
              "time is the median of a run's iterations, each as the slowest rank saw it; then the "
              "median of the runs. "
              + ("The benchmark ended before all runs were done." if ending else
                 "The variants got no gradients." if options.idle else
                 f"The losses of all variants agree within {LOSS_TOLERANCE:g} (of resnet, which "
                 "amplifies the last bit, in the first iterations), the weights of the ranks to "
                 "the bit.")]
    text = "\n".join(lines) + "\n"
    print(text, end="")
    write_report(options.out / "training.md", text)
    write_report(options.out / "training.json",
               json.dumps(dict(absent=absent, cells=cells), indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())

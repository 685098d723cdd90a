#!/usr/bin/python3
"""Compares an iteration with late updates with one that waits for all gradients, between emulated
hosts (needs root).

    bench/train/late_ratio.py [--hosts 2] [--rate-mbit 400] [--rhos 0.5,1,2] [--layers 4] ...

Each layer sleeps for the time in which an accelerator would compute it: a third of it in the
forward pass. rho is the time of the communication alone / that of computing. The time of computing
follows from rho, and from the time that the gradients of all layers take alone at this rate. In
each repetition both ways are measured in a random order, in one job.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
sys.path.insert(0, str(ROOT / "bench" / "sync"))
sys.path.insert(0, str(ROOT / "lmdbio" / "api" / "python"))

from figures import interval  # noqa: E402
from mpi_jobs import Failure, heed_signals  # noqa: E402
from output_files import scratch_folder, write_report  # noqa: E402
from sync_bench_job import Ranks, ratio_text  # noqa: E402

BASELINE = "synchronize(), topo"
WAYS = {BASELINE: (False, "topo"), "step(), topo": (True, "topo"),
        "step(), caramel": (True, "caramel")}
FORWARD_SHARE = 1 / 3


# --- Ranks ---------------------------------------------------------------------------------------


def make_model(layer_count, layer_values):
    """Returns a model whose layers sleep for `seconds`, which the caller sets."""
    import torch

    class Sleep(torch.autograd.Function):
        @staticmethod
        def forward(ctx, rows, weight, layer):
            time.sleep(layer.seconds * FORWARD_SHARE)
            ctx.layer = layer
            return rows + weight[0]

        @staticmethod
        def backward(ctx, gradient):
            time.sleep(ctx.layer.seconds * (1 - FORWARD_SHARE))
            return gradient, torch.full_like(ctx.layer.weight, 1e-3), None

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(layer_values))
            self.seconds = 0.0

        def forward(self, rows):
            return Sleep.apply(rows, self.weight, self)

    return torch.nn.Sequential(*(Layer() for _ in range(layer_count)))


def seconds_alone(comm, model, options):
    """Returns the time in which the gradients of all layers are summed, on the slowest rank."""
    import lmdbio.sync

    arrays = {f"layer {i}": layer.weight.detach().numpy().copy() for i, layer in enumerate(model)}
    times = []
    with lmdbio.sync.Synchronizer(comm) as sync:
        for _ in range(options.warmup + options.iterations):
            start = time.perf_counter()
            operations = [sync.allreduce(name, array) for name, array in arrays.items()]
            for operation in operations:
                operation.wait()
            times.append(time.perf_counter() - start)
    return max(comm.allgather(statistics.median(times[options.warmup:])))


def seconds_of(comm, model, options, way):
    """Returns the mean time of an iteration, on the slowest rank."""
    import lmdbio.torch
    import torch

    is_late, coordinator = WAYS[way]
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    late = {"optimizer": optimizer} if is_late else {}
    rows = torch.ones(1)
    with lmdbio.torch.GradientSync(model, comm, coordinator=coordinator, **late) as gradients:
        for iteration in range(options.warmup + options.iterations):
            if iteration == options.warmup:
                gradients.flush()
                comm.barrier()
                start = time.perf_counter()
            model(rows).sum().backward()
            if is_late:
                gradients.step()
            else:
                gradients.synchronize()
                optimizer.step()
                optimizer.zero_grad(set_to_none=False)
        gradients.flush()
        seconds = (time.perf_counter() - start) / options.iterations
        told = gradients.synchronizer.describe()
    return max(comm.allgather(seconds)), told


def measure_as_rank(options):
    import torch
    from mpi4py import MPI

    torch.set_num_threads(1)
    comm = MPI.COMM_WORLD
    model = make_model(options.layers, int(options.layer_mb * 1e6 / 4))
    alone = seconds_alone(comm, model, options)
    chance = random.Random(options.repetitions)
    runs = []
    for rho in options.rhos:
        for layer in model:
            layer.seconds = alone / rho / options.layers
        for repetition in range(options.repetitions):
            for way in chance.sample(list(WAYS), len(WAYS)):
                seconds, told = seconds_of(comm, model, options, way)
                runs.append(dict(rho=rho, repetition=repetition, way=way, seconds=seconds,
                                 description=told))
    if comm.rank == 0:
        write_report(options.save, json.dumps(dict(alone_s=alone, runs=runs)))


# --- Driver --------------------------------------------------------------------------------------


def report(told, options):
    """Yields the lines of the table."""
    yield (f"{options.hosts} hosts, {options.rate_mbit} Mbit/s, {options.layers} layers of "
           f"{options.layer_mb:g} MB: {told['alone_s'] * 1e3:.1f} ms of communication alone")
    yield ""
    yield "| rho | way | iteration, ms | to synchronize() | to max(C, rho C) |"
    yield "|---|---|---|---|---|"
    for rho in options.rhos:
        computing_s = told["alone_s"] / rho
        seconds = {way: {run["repetition"]: run["seconds"] for run in told["runs"]
                         if run["way"] == way and run["rho"] == rho} for way in WAYS}
        for way in WAYS:
            ratios = [seconds[way][one] / seconds[BASELINE][one] for one in seconds[way]]
            median = statistics.median(seconds[way].values())
            ratio = ratio_text((statistics.median(ratios), interval(statistics.median, ratios)), 3)
            yield (f"| {rho:g} | {way} | {median * 1e3:.1f} | {ratio} | "
                   f"{median / max(computing_s, told['alone_s']):.3f} |")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=2,
                        help="emulated hosts of one rank each; 1: two ranks of this host, whose "
                        "rate has no limit")
    parser.add_argument("--rate-mbit", type=int, default=400)
    parser.add_argument("--rhos", type=lambda text: [float(word) for word in text.split(",")],
                        default="0.5,1,2")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--layer-mb", type=float, default=4)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=20, help="plans are made in them")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--wait", choices=("spin", "yield"), default="yield")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--seconds-max", type=float, default=1800)
    parser.add_argument("--save", type=pathlib.Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parse_options()
    if options.save:
        measure_as_rank(options)
        return
    heed_signals()
    os.environ.update(LMDBIO_LIBRARY=str(options.build / "lib" / "liblmdbio.so"),
                      LMDBIO_MPI_LIBRARY=str(options.build / "lib" / "liblmdbio_mpi.so"),
                      OMP_NUM_THREADS="1", LMDBIO_CACHE="off")
    ranks = Ranks(options.hosts, 1 if options.hosts > 1 else 2, options.wait,
                  f"late-{os.getpid()}", "mpirun", options.seconds_max)
    try:
        with scratch_folder("late") as name, \
                ranks.up(f"{options.rate_mbit}M"):
            saved = pathlib.Path(name) / "saved.json"
            code, output = ranks.run(
                [options.python, "-B", __file__, "--save", saved, *sys.argv[1:]],
                pathlib.Path(name))
            if code != 0 or not saved.exists():
                raise Failure(f"the ranks ended with {code}:\n{output}")
            told = json.loads(saved.read_text(encoding="utf-8"))
    except Failure as failure:
        sys.exit(f"late_ratio.py: {failure}")
    print("\n".join(report(told, options)))


if __name__ == "__main__":
    main()

#!/usr/bin/python3
"""PyTorch's DistributedDataParallel over Gloo on the gradients and the computing of sync_bench.

    bench/sync/ddp_gloo.py --work-library build/release/lib/liblmdbio_sync_work.so [--network NAME]
                           [--ranks 2] [--scale 1] [--compute-ms 50] [--save FILE] ...
    mpirun -n 2 bench/sync/ddp_gloo.py --meeting NEW_FILE --accelerator --units-per-second ...

A model whose parameters have the shapes of the network, and whose layers burn the work of
sync_bench forward and backward, one after the other; the same iteration without
DistributedDataParallel is what only computes. With --accelerator the ranks sleep meanwhile.
`scripts/setup --bench` installs torch for the system's Python. Exits with 77 where there is none.
"""

import argparse
import ctypes
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from output_files import scratch_folder, write_report  # noqa: E402

NETWORKS = pathlib.Path(__file__).resolve().parent / "networks"
WORK_WORDS = 16384  # SYNC_WORK_WORDS of work_loop.h
SKIPPED = 77
DDP = "torch-ddp-gloo"
RANK_VARIABLE = "SYNC_BENCH_RANK"
INIT_VARIABLE = "SYNC_BENCH_INIT"
MPI_RANK_VARIABLE, MPI_SIZE_VARIABLE = "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"
ITERATIONS_MIN = 5


class Work:
    """The loop of work_loop.c. ctypes lets go of Python's lock meanwhile."""

    def __init__(self, path):
        library = ctypes.CDLL(str(path))
        self.words = (ctypes.c_uint64 * WORK_WORDS)()
        library.sync_work_fill(self.words)
        self.call = library.sync_work
        self.call.restype = ctypes.c_uint64
        self.call.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64]

    def burn(self, units, seed):
        return self.call(self.words, units, seed)

    def units_per_second(self, units=2000):
        best = math.inf
        for _ in range(30):
            start = time.perf_counter()
            self.burn(units, 1)
            best = min(best, time.perf_counter() - start)
        return units / best


class Accelerator:
    """Computes one layer after the other, while the thread of the rank sleeps. What the thread does
    between two layers does not hold it up, as with kernels that were enqueued."""

    def __init__(self, units_per_second):
        self.units_per_second, self.free_at = units_per_second, 0.0

    def begin(self):
        self.free_at = time.perf_counter()

    def burn(self, units, _):
        self.free_at += units / self.units_per_second
        time.sleep(max(0.0, self.free_at - time.perf_counter()))


def divide(layers, units):
    """Whole units for each layer, by its multiply-adds; nothing is lost by rounding."""
    whole, given, passed, parts = sum(layer["madds"] for layer in layers), 0, 0, []
    for layer in layers:
        passed += layer["madds"]
        up_to_here = round(passed / whole * units)
        parts.append(up_to_here - given)
        given = up_to_here
    return parts


def make_model(network, scale, work, units, state):
    import torch

    class Burn(torch.autograd.Function):
        @staticmethod
        def forward(ctx, value, place, forward_units, backward_units, *parameters):
            ctx.place, ctx.units = place, backward_units
            ctx.shapes = [parameter.shape for parameter in parameters]
            work.burn(forward_units, place + 1)
            return value.clone()

        @staticmethod
        def backward(ctx, gradient):
            work.burn(ctx.units, ctx.place + 1)
            share = float(state["share"])
            return (gradient, None, None, None,
                    *[torch.full(shape, share) for shape in ctx.shapes])

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            forward, backward = divide(network["layers"], units / 3), divide(network["layers"],
                                                                            units * 2 / 3)
            self.plan, self.weights = [], torch.nn.ParameterList()
            for place, layer in enumerate(network["layers"]):
                first = len(self.weights)
                for _, shape in layer["tensors"]:
                    count = max(1, round(math.prod(shape) * scale))
                    self.weights.append(torch.nn.Parameter(torch.zeros(count)))
                self.plan.append((place, forward[place], backward[place],
                                  range(first, len(self.weights))))

        def forward(self, value):
            for place, forward_units, backward_units, own in self.plan:
                value = Burn.apply(value, place, forward_units, backward_units,
                                   *[self.weights[i] for i in own])
            return value

    return Model()


def quantile(values, q):
    return sorted(values)[max(0, math.ceil(q * len(values)) - 1)]


def host_busy_seconds():
    words = pathlib.Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
    user, nice, system, _, _, irq, soft_irq, steal = map(int, words[:8])
    return (user + nice + system + irq + soft_irq + steal) / os.sysconf("SC_CLK_TCK")


class Rank:
    """What one rank does."""

    def __init__(self, options):
        import torch
        import torch.distributed
        torch.set_num_threads(1)
        self.torch, self.dist, self.options = torch, torch.distributed, options
        self.rank = int(os.environ[MPI_RANK_VARIABLE if options.meeting else RANK_VARIABLE])
        meeting = f"file://{options.meeting}" if options.meeting else os.environ[INIT_VARIABLE]
        self.dist.init_process_group("gloo", init_method=meeting, rank=self.rank,
                                     world_size=options.ranks)
        self.units_per_second = options.units_per_second or self.measured_speed()
        self.accelerator = Accelerator(self.units_per_second) if options.accelerator else None
        work = self.accelerator or Work(options.work_library)
        units = options.compute_ms * 1e-3 * options.scale * self.units_per_second
        self.network = json.loads(
            (NETWORKS / f"{options.network}.json").read_text(encoding="utf-8"))
        self.state = {"share": 0}
        self.models = {"none": make_model(self.network, options.scale, work, units, self.state)}
        torch.distributed._DEFAULT_FIRST_BUCKET_BYTES = round(options.first_bucket_mb * 2**20)
        self.models[DDP] = torch.nn.parallel.DistributedDataParallel(
            make_model(self.network, options.scale, work, units, self.state),
            bucket_cap_mb=options.bucket_mb, gradient_as_bucket_view=True)

    def measured_speed(self):
        speed = [Work(self.options.work_library).units_per_second() if self.rank == 0 else None]
        self.dist.broadcast_object_list(speed)
        return speed[0]

    def iterate(self, variant, number):
        model = self.models[variant]
        self.state["share"] = (number % 5 + 1) * (self.rank + 1)
        for parameter in model.parameters():
            parameter.grad = None
        start = time.perf_counter()
        if self.accelerator:
            self.accelerator.begin()
        model(self.torch.zeros(1, requires_grad=True)).backward()
        seconds = time.perf_counter() - start
        if variant == DDP:
            expected = (number % 5 + 1) * (self.options.ranks + 1) / 2
            for parameter in model.parameters():
                ends = parameter.grad.view(-1)[[0, -1]]
                assert bool((ends == expected).all()), (number, ends, expected)
        return seconds * 1e3

    def gather(self, value):
        values = [None] * self.options.ranks
        self.dist.all_gather_object(values, value)
        return values

    def run(self, variant, repetition):
        options = self.options
        self.dist.barrier()
        last_ms = [self.iterate(variant, number) for number in range(options.warmup)][-1]
        slowest_s = max(self.gather(last_ms)) * 1e-3
        count = min(options.iterations, max(ITERATIONS_MIN, int(options.run_seconds / slowest_s)))
        self.dist.barrier()
        start, busy, own = time.perf_counter(), host_busy_seconds(), time.process_time()
        times = [self.iterate(variant, number) for number in range(count)]
        wall = time.perf_counter() - start
        busy, own = host_busy_seconds() - busy, time.process_time() - own
        self.dist.barrier()
        neighbours = max(0, busy - sum(self.gather(own))) / wall
        neighbours = max(self.gather(neighbours))
        return dict(variant=variant, kind="train", repetition=repetition,
                    is_disturbed=neighbours > options.neighbour_limit,
                    neighbour_cores=neighbours,
                    iteration_ms=[max(column) for column in zip(*self.gather(times))])

    def run_all(self):
        chance, runs = random.Random(self.options.seed), []
        for repetition in range(self.options.repetitions):
            order = list(self.models)
            chance.shuffle(order)
            runs += [self.run(variant, repetition) for variant in order]
        return runs


def summarise(runs):
    rows = []
    for variant in ("none", DDP):
        all_runs = [run for run in runs if run["variant"] == variant]
        clean = [run for run in all_runs if not run["is_disturbed"]]
        chosen = clean or all_runs
        times = [ms for run in chosen for ms in run["iteration_ms"]]
        medians = [quantile(run["iteration_ms"], 0.5) for run in chosen]
        rows.append(dict(variant=variant, runs=len(all_runs), clean_runs=len(clean),
                         p50_ms=quantile(times, 0.5), p95_ms=quantile(times, 0.95),
                         run_p50_min_ms=min(medians), run_p50_max_ms=max(medians)))
    rows[1]["exposed_ms"] = rows[1]["p50_ms"] - rows[0]["p50_ms"]
    return rows


def be_rank(options):
    rank = Rank(options)
    load = os.getloadavg()[0]
    runs = rank.run_all()
    if rank.rank > 0:
        return
    rows = summarise(runs)
    shapes = [shape for layer in rank.network["layers"] for _, shape in layer["tensors"]]
    count = sum(max(1, round(math.prod(shape) * options.scale)) for shape in shapes)
    settings = {name: value for name, value in vars(options).items()
                if name not in ("save", "work_library", "meeting")}
    settings["work_units_per_s"] = rank.units_per_second
    outcome = dict(
        environment=dict(ranks=options.ranks, cores=os.cpu_count(), torch=rank.torch.__version__,
                         load_before=load, load_after=os.getloadavg()[0]),
        networks=[dict(network=options.network, tensors=len(shapes), gradient_bytes=4 * count,
                       variants=rows, runs=runs, settings=settings)])
    print(f"## {options.network}: {len(shapes)} tensors, {4e-6 * count:.1f} MB, "
          f"{options.ranks} ranks, torch {rank.torch.__version__}\n")
    print("| variant | p50 ms (runs) | p95 ms | exposed ms | clean runs |\n|---|---|---|---|---|")
    for row in rows:
        exposed = f"{row['exposed_ms']:.2f}" if "exposed_ms" in row else "-"
        print(f"| {row['variant']} | {row['p50_ms']:.2f} ({row['run_p50_min_ms']:.2f}"
              f"..{row['run_p50_max_ms']:.2f}) | {row['p95_ms']:.2f} | {exposed} "
              f"| {row['clean_runs']}/{row['runs']} |")
    if options.save:
        write_report(options.save, json.dumps(outcome, indent=1) + "\n")


def start_ranks(options):
    with scratch_folder("ddp") as folder:
        environment = os.environ | {INIT_VARIABLE: f"file://{folder}/meeting",
                                    "OMP_NUM_THREADS": "1"}
        ranks = [subprocess.Popen([sys.executable, "-B", *sys.argv],
                                  env=environment | {RANK_VARIABLE: str(rank)})
                 for rank in range(options.ranks)]
        try:
            # A rank that fails makes the others wait: the first bad end ends all.
            while any(rank.poll() is None for rank in ranks):
                if any(rank.poll() for rank in ranks):
                    break
                time.sleep(0.1)
        finally:
            for rank in ranks:
                if rank.poll() is None:
                    rank.kill()
                rank.wait()
        return max(abs(rank.returncode) for rank in ranks)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work-library", type=pathlib.Path,
                        help="needed, unless an accelerator computes at a given speed")
    parser.add_argument("--meeting", type=pathlib.Path,
                        help="a file that all ranks see, for ranks that mpirun starts")
    parser.add_argument("--network", default="resnet50")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--compute-ms", type=float, default=50)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--run-seconds", type=float, default=10)
    parser.add_argument("--bucket-mb", type=float, default=25)
    parser.add_argument("--first-bucket-mb", type=float, default=1)
    parser.add_argument("--accelerator", action="store_true",
                        help="an accelerator computes, and the ranks sleep meanwhile")
    parser.add_argument("--units-per-second", type=float,
                        help="speed of the work loop, measured by another run")
    parser.add_argument("--neighbour-limit", type=float, default=0.1,
                        help="cores that other processes may use in a clean run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", type=pathlib.Path,
                        help="write all results to this file, as JSON")
    options = parser.parse_args()
    if not options.work_library and not (options.accelerator and options.units_per_second):
        parser.error("--work-library is missing; only --accelerator with --units-per-second does "
                     "without it")
    if options.meeting:
        if MPI_RANK_VARIABLE not in os.environ:
            parser.error("--meeting goes with ranks that mpirun of Open MPI starts")
        options.ranks = int(os.environ[MPI_SIZE_VARIABLE])
    try:
        import torch.distributed
    except ImportError as missing:
        print(f"ddp_gloo.py: skipped: {missing}", file=sys.stderr)
        return SKIPPED
    del torch
    if options.meeting or RANK_VARIABLE in os.environ:
        be_rank(options)
        return 0
    return start_ranks(options)


if __name__ == "__main__":
    sys.exit(main())

"""One rank of compare_horovod.py: replays a training in Python, with one way to sum its gradients.

mpirun starts it. The rank does the same work three times: computing only, before the variant
exists; computing while the variant exists and gets no gradient; and training. Rank 0 writes the
times to --save, each as the slowest rank saw it.
"""

import argparse
import contextlib
import ctypes
import json
import math
import os
import pathlib
import sys
import time
import traceback

import numpy as np
from mpi4py import MPI

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "lmdbio" / "api" / "python"))

from mpi_jobs import Failure  # noqa: E402
from output_files import write_report  # noqa: E402

from ddp_gloo import ITERATIONS_MIN, NETWORKS, Work, divide, host_busy_seconds  # noqa: E402


class Nothing:
    """Gradients are not summed."""

    description = ""

    def submit(self, index):
        pass

    def wait_all(self):
        pass


class WithHorovod:
    """Horovod, in place. It reads its settings from environment variables."""

    def __init__(self, tensors, stack):
        import horovod
        import horovod.torch as hvd
        import torch
        hvd.init()
        stack.callback(hvd.shutdown)
        if not hvd.mpi_enabled():
            raise Failure("Horovod does not use MPI; expected HOROVOD_CONTROLLER=mpi and a build "
                          "with MPI")
        self.hvd, self.handles = hvd, []
        self.tensors = [(name, torch.from_numpy(values)) for name, values in tensors]
        self.description = (f"Horovod {horovod.__version__}, torch {torch.__version__}, "
                            f"cache of {os.environ['HOROVOD_CACHE_CAPACITY']}")

    def submit(self, index):
        name, tensor = self.tensors[index]
        self.handles.append(self.hvd.allreduce_async_(tensor, name=name, op=self.hvd.Sum))

    def wait_all(self):
        for handle in self.handles:
            self.hvd.synchronize(handle)
        self.handles.clear()


class WithLmdbio:
    """The Synchronizer with the design of Horovod: rounds in cycles, and MPI for control messages
    and data. The settings are those of Horovod, from its environment variables."""

    def __init__(self, tensors, stack, coordinator):
        import lmdbio.sync
        fusion_bytes = int(os.environ["HOROVOD_FUSION_THRESHOLD"])
        synchronizer = stack.enter_context(lmdbio.sync.Synchronizer(
            MPI.COMM_WORLD, coordinator=coordinator, pacing="cycle", transport="mpi",
            collective="mpi", cycle_time_us=cycle_time_us(),
            fusion_threshold_bytes=fusion_bytes, bucket_bytes=fusion_bytes,
            cache_capacity=int(os.environ["HOROVOD_CACHE_CAPACITY"]) or -1))  # -1: no cache
        self.operations = [synchronizer.persistent_allreduce(name, values)
                           for name, values in tensors]
        self.description = "; ".join(synchronizer.describe().splitlines())

    def submit(self, index):
        self.operations[index].submit()

    def wait_all(self):
        for operation in self.operations:
            operation.wait()


class WithLibrary:
    """A variant of sync_bench, by its name (variant_library.cc)."""

    ERROR_BYTES = 4096

    def __init__(self, tensors, stack, options, variant):
        self.library = ctypes.CDLL(str(options.variant_library))
        for name, result, *kinds in (
                ("open", ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_double,
                 ctypes.c_char_p, ctypes.c_size_t),
                ("set_values", ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p,
                 ctypes.c_uint64),
                ("submit", None, ctypes.c_void_p, ctypes.c_uint32),
                ("wait_all", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t),
                ("description", ctypes.c_char_p, ctypes.c_void_p),
                ("close", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)):
            call = getattr(self.library, f"lmdbio_bench_{name}")
            call.restype, call.argtypes = result, kinds
        self.error = ctypes.create_string_buffer(self.ERROR_BYTES)
        self.handle = self.library.lmdbio_bench_open(
            variant.encode(), os.fsencode(network_path(options)), options.scale, self.error,
            self.ERROR_BYTES)
        self.check(self.handle is not None)
        stack.callback(self.close)
        for index, (name, values) in enumerate(tensors):
            if not self.library.lmdbio_bench_set_values(self.handle, index, values.ctypes.data,
                                                        values.size):
                raise Failure(f"{name}: {variant} has another size than {values.size}")
        self.submit_call = self.library.lmdbio_bench_submit
        self.description = self.library.lmdbio_bench_description(self.handle).decode()

    def check(self, is_done):
        if not is_done:
            raise Failure(self.error.value.decode())

    def submit(self, index):
        self.submit_call(self.handle, index)

    def wait_all(self):
        self.check(self.library.lmdbio_bench_wait_all(self.handle, self.error, self.ERROR_BYTES))

    def close(self):
        self.check(self.library.lmdbio_bench_close(self.handle, self.error, self.ERROR_BYTES))


def make_variant(options, tensors, stack):
    """Returns the way to sum that --variant describes: README.md, "The real Horovod"."""
    words = options.variant.split(":")
    if words[0] != "lmdbio":
        return WithHorovod(tensors, stack)
    if words[-1] != "mpi-blocking":
        return WithLmdbio(tensors, stack, words[1])
    bucket, cycle_us = os.environ["HOROVOD_FUSION_THRESHOLD"], cycle_time_us()
    return WithLibrary(tensors, stack, options, f"lmdbio:{words[1]}+bucket={bucket}+"
                                                f"cycle={cycle_us}:cycle:mpi-blocking:mpi")


def cycle_time_us():
    return round(1e3 * float(os.environ["HOROVOD_CYCLE_TIME"]))


def network_path(options):
    return NETWORKS / f"{options.network}.json"


def meet():
    """A barrier in which a rank sleeps: no rank takes a core from one that computes."""
    request = MPI.COMM_WORLD.Ibarrier()
    while not request.Test():
        time.sleep(0.0005)


def share(index, iteration):
    """What rank 0 contributes to a tensor. Rank r contributes r + 1 times as much. All sums are
    whole numbers that float32 has exactly."""
    return 1 + iteration % 5 + index % 3


def check_values(tensors, factor, iteration):
    """Some elements of each tensor must be `factor` times the share of rank 0. Returns the number
    of tensors."""
    for index, (name, values) in enumerate(tensors):
        expected = share(index, iteration) * factor
        found = values[[0, len(values) // 3, len(values) // 2, -1]]
        if (found != expected).any():
            raise Failure(f"{name}: iteration {iteration}: elements are {found.tolist()}; "
                          f"expected {expected}")
    return len(tensors)


class Replay:
    """The layers of a network: a third of the work forward, the rest backward. When a layer is done
    in the backward pass, its gradients are written and submitted."""

    def __init__(self, options):
        network = json.loads(network_path(options).read_text(encoding="utf-8"))
        self.work, layers = Work(options.work_library), network["layers"]
        self.forward = divide(layers, options.units / 3)
        self.backward = divide(layers, options.units * 2 / 3)
        self.tensors, self.own = [], []
        for layer in layers:
            first = len(self.tensors)
            for name, shape in layer["tensors"]:
                # Rounded as sync_bench does.
                count = max(1, math.floor(math.prod(shape) * options.scale + 0.5))
                self.tensors.append((name, np.zeros(count, np.float32)))
            self.own.append(range(first, len(self.tensors)))

    def iterate(self, variant, number):
        """Returns (milliseconds of the iteration, those of them in which tensors were submitted,
        those of them spent waiting at the end)."""
        rank, submitting = MPI.COMM_WORLD.rank, 0.0
        start = time.perf_counter()
        for place, units in enumerate(self.forward):
            self.work.burn(units, place + 1)
        for place in range(len(self.backward) - 1, -1, -1):
            self.work.burn(self.backward[place], place + 1)
            for index in self.own[place]:
                self.tensors[index][1].fill(share(index, number) * (rank + 1))
                before = time.perf_counter()
                variant.submit(index)
                submitting += time.perf_counter() - before
        done = time.perf_counter()
        variant.wait_all()
        end = time.perf_counter()
        return (end - start) * 1e3, submitting * 1e3, (end - done) * 1e3


def run(replay, variant, options, factor):
    """Runs one phase. Returns its times in ms, and the shares of a core that other threads of this
    process and neighbours of the job have used. Collective.

    factor  of rank 0's shares, after an iteration
    """
    job = MPI.COMM_WORLD
    meet()
    number = checked_count = 0

    def iterate():
        nonlocal number, checked_count
        times = replay.iterate(variant, number)
        # Outside the measured time.
        checked_count += check_values(replay.tensors, factor, number)
        number += 1
        return times

    warmup = [iterate() for _ in range(options.warmup)]
    slowest_s = job.allreduce(warmup[-1][0], MPI.MAX) * 1e-3
    count = min(options.iterations, max(ITERATIONS_MIN, int(options.run_seconds / slowest_s)))
    meet()
    start, busy = time.perf_counter(), host_busy_seconds()
    own, main_thread = time.process_time(), time.thread_time()
    times = [iterate() for _ in range(count)]
    wall = time.perf_counter() - start
    own, main_thread = time.process_time() - own, time.thread_time() - main_thread
    busy = host_busy_seconds() - busy
    meet()
    neighbours = max(0.0, busy - job.allreduce(own)) / wall
    per_rank = job.allgather(times)
    return dict(
        iteration_ms=[max(one[0] for one in ranks) for ranks in zip(*per_rank)],
        submit_ms=[max(one[1] for one in ranks) for ranks in zip(*per_rank)],
        wait_ms=[max(one[2] for one in ranks) for ranks in zip(*per_rank)],
        checked_tensors=checked_count,
        other_threads=job.allreduce((own - main_thread) / wall, MPI.MAX),
        neighbour_cores=job.allreduce(neighbours, MPI.MAX))


def end_job_after_failure(kind, failure, trace):
    """Other ranks may wait for this one in a call of MPI."""
    if kind is None:
        return
    if kind is Failure:
        print(f"replay_rank.py: {failure}", file=sys.stderr)
    else:
        traceback.print_exception(kind, failure, trace)
    sys.stderr.flush()
    MPI.COMM_WORLD.Abort(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work-library", type=pathlib.Path, required=True)
    parser.add_argument("--variant-library", type=pathlib.Path, required=True)
    parser.add_argument("--network", required=True)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--scale", type=float, required=True)
    parser.add_argument("--units", type=float, required=True, help="of work in an iteration")
    parser.add_argument("--warmup", type=int, required=True)
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--run-seconds", type=float, required=True)
    parser.add_argument("--save", type=pathlib.Path, required=True)
    options = parser.parse_args()
    job, phases = MPI.COMM_WORLD, {}
    own, sum_of_all = job.rank + 1, job.size * (job.size + 1) // 2
    with contextlib.ExitStack() as stack:
        stack.push(end_job_after_failure)
        replay = Replay(options)
        phases["none"] = run(replay, Nothing(), options, own)
        variant = make_variant(options, replay.tensors, stack)
        stack.push(end_job_after_failure)  # before the variant ends, which may wait for other ranks
        phases["idle"] = run(replay, Nothing(), options, own)
        phases["train"] = run(replay, variant, options, sum_of_all)
        description = variant.description
    if job.rank == 0:
        write_report(options.save, json.dumps(dict(
            variant=options.variant, description=description, phases=phases,
            mpi=MPI.Get_library_version().split(",")[0].strip(),
            tensors=len(replay.tensors),
            gradient_bytes=sum(values.nbytes for _, values in replay.tensors))) + "\n")


if __name__ == "__main__":
    main()

"""One rank of run_training.py: trains a model with one way to synchronise gradients.

mpirun starts it. Rank 0 writes the times and losses of all ranks to --save.
"""

import argparse
import contextlib
import json
import math
import os
import pathlib
import resource
import sys
import time

import torch
from mpi4py import MPI

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "lmdbio" / "api" / "python"))

from output_files import write_report  # noqa: E402

from models import MODELS, Training  # noqa: E402


class Alone:
    """Computing only: every rank trains for itself."""

    def __init__(self, training, optimizer):
        self.model, self.optimizer = training.model, optimizer

    def finish_gradients(self):
        """After the backward pass. Returns whether the optimiser takes a step."""
        return True

    def description(self):
        return []


class WithBarrier(Alone):
    """The ranks meet after each backward pass, asleep, and exchange nothing."""

    def __init__(self, training, optimizer, stack):
        import lmdbio.sync
        super().__init__(training, optimizer)
        self.synchronizer = stack.enter_context(lmdbio.sync.Synchronizer(MPI.COMM_WORLD))

    def finish_gradients(self):
        self.synchronizer.barrier().wait()
        return True


class WithHorovod(Alone):
    """Horovod's DistributedOptimizer; its step waits for the gradients."""

    def __init__(self, training, optimizer, stack, is_idle):
        import horovod.torch as hvd
        hvd.init()
        stack.callback(hvd.shutdown)
        if is_idle:
            super().__init__(training, optimizer)
            return
        hvd.broadcast_parameters(training.model.state_dict(), root_rank=0)
        super().__init__(training, hvd.DistributedOptimizer(
            optimizer, named_parameters=training.model.named_parameters()))


class WithDdp(Alone):
    """PyTorch's DistributedDataParallel over Gloo. Buffers are not broadcast, as nobody else does.
    """

    def __init__(self, training, optimizer, stack, meeting, has_views):
        import torch.distributed
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=MPI.COMM_WORLD.rank,
            world_size=MPI.COMM_WORLD.size)
        stack.callback(torch.distributed.destroy_process_group)
        super().__init__(training, optimizer)
        self.model = torch.nn.parallel.DistributedDataParallel(
            training.model, broadcast_buffers=False, gradient_as_bucket_view=has_views)


class WithLmdbio(Alone):
    """lmdbio.torch.GradientSync."""

    def __init__(self, training, optimizer, stack, options, is_idle):
        import lmdbio.sync
        import lmdbio.torch
        super().__init__(training, optimizer)
        if is_idle:
            options.pop("placed", None)
            stack.enter_context(lmdbio.sync.Synchronizer(MPI.COMM_WORLD, **options))
            self.gradients = None
            return
        self.gradients = stack.enter_context(
            lmdbio.torch.GradientSync(training.model, MPI.COMM_WORLD, **options))
        self.gradients.broadcast_parameters()

    def finish_gradients(self):
        return self.gradients is None or self.gradients.synchronize()

    def description(self):
        return self.gradients.synchronizer.describe().splitlines() if self.gradients else []


def option_value(text):
    return int(text) if text.lstrip("-").isdigit() else text


def make_variant(name, training, optimizer, stack, meeting, is_idle):
    """Returns the way to synchronise that `name` describes, see README.md.

    is_idle  its threads exist, but no gradient is given to them
    """
    kind, _, options = name.partition(":")
    kind, plus, extra = kind.partition("+")
    if kind == "none":
        return Alone(training, optimizer)
    if kind == "barrier":
        return WithBarrier(training, optimizer, stack)
    if kind == "horovod":
        return WithHorovod(training, optimizer, stack, is_idle)
    if kind == "ddp":
        if is_idle:
            return Alone(training, optimizer)  # it has no thread that does anything
        return WithDdp(training, optimizer, stack, meeting, extra == "view")
    pairs = (pair.partition("=") for pair in options.split(",") if pair)
    return WithLmdbio(training, optimizer, stack,
                      {key: option_value(value) for key, _, value in pairs}
                      | ({"placed": False} if extra == "copy" else {}), is_idle)


def own_threads_seconds():
    """Returns the processor time of each thread but the calling one, in seconds."""
    seconds = 0.0
    for task in pathlib.Path("/proc/self/task").iterdir():
        if int(task.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            seconds += int((task / "schedstat").read_text(encoding="ascii").split()[0]) * 1e-9
    return seconds


def train(variant, training, count, first, drops_gradients):
    """Trains `count` iterations. Returns the times of their parts in ms, and their losses."""
    times, losses = [], []
    for iteration in range(first, first + count):
        marks = [time.perf_counter()]
        training.model.zero_grad(set_to_none=drops_gradients)
        loss = training.loss(variant.model, iteration)
        marks.append(time.perf_counter())
        loss.backward()
        marks.append(time.perf_counter())
        has_gradients = variant.finish_gradients()
        marks.append(time.perf_counter())
        if has_gradients:
            variant.optimizer.step()
        marks.append(time.perf_counter())
        times.append([(end - begin) * 1e3 for begin, end in zip(marks, marks[1:])])
        losses.append(float(loss.detach()))
    return times, losses


def weights_differ(training):
    """Returns the largest difference between a weight of a rank and of rank 0; NaN if a weight is
    no number."""
    differences = [0.0]
    for parameter in training.model.parameters():
        mine = parameter.detach().numpy()
        first = MPI.COMM_WORLD.bcast(mine if MPI.COMM_WORLD.rank == 0 else None)
        differences.append(float(abs(mine - first).max()))
    everywhere = sum(MPI.COMM_WORLD.allgather(differences), [])
    return sum(everywhere) if any(map(math.isnan, everywhere)) else max(everywhere)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--depth", type=int, default=32)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--warmup", type=int, default=8)
    parser.add_argument("--iterations", type=int, default=24)
    parser.add_argument("--set-to-none", action="store_true",
                        help="drop gradients between iterations, as PyTorch 2 does by default")
    parser.add_argument("--idle", action="store_true",
                        help="the variant exists, but gets no gradients: the cost of its threads")
    parser.add_argument("--meeting", help="a file that does not exist, for DDP")
    parser.add_argument("--save", type=pathlib.Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    job = MPI.COMM_WORLD
    training = Training(options.model, options.depth, job.rank)
    optimizer = torch.optim.SGD(training.model.parameters(), lr=0.001, momentum=0.9)
    with contextlib.ExitStack() as stack:
        variant = make_variant(options.variant, training, optimizer, stack, options.meeting,
                               options.idle)
        _, first_losses = train(variant, training, options.warmup, 0, options.set_to_none)
        threads, usage = own_threads_seconds(), resource.getrusage(resource.RUSAGE_SELF)
        start = time.perf_counter()
        times, losses = train(variant, training, options.iterations, options.warmup,
                              options.set_to_none)
        wall = time.perf_counter() - start
        threads = own_threads_seconds() - threads
        now = resource.getrusage(resource.RUSAGE_SELF)
        cpu = now.ru_utime + now.ru_stime - usage.ru_utime - usage.ru_stime
        description = variant.description()
    difference = weights_differ(training)
    told = dict(times=times, losses=first_losses + losses, wall_s=wall, helper_share=threads / wall,
                cpu_share=cpu / wall, cores=len(os.sched_getaffinity(0)))
    ranks = job.gather(told)
    if job.rank == 0:
        parameters = list(training.model.parameters())
        write_report(options.save, json.dumps(dict(
            variant=options.variant, model=options.model, ranks=ranks, description=description,
            weights_differ=difference, tensors=len(parameters), torch=torch.__version__,
            gradient_bytes=sum(4 * parameter.numel() for parameter in parameters))) + "\n")


if __name__ == "__main__":
    main()

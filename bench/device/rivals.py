#!/usr/bin/env python3
"""AllReduce of ranks on one GPU by PyTorch's ways: Q9 of the device probe, and D4 and D9 of
lmdbio-device-jobs.

    rivals.py [--device N | --device cpu] [--repeat N] [--size-max BYTES] [--seconds S]
              [--ranks P] [--sizes BYTES,...] [--calls N]
    rivals.py --hooks COUNT,...

Prints one JSON object a line for each rival and size: row, state ("yes", "failed", "left out"),
unit (us), samples, note. Each rival has processes of its own and a limit of time, so one that hangs
ends alone. The samples are those of rank 0: from the call until the device is done, in the mean of
--calls calls in a row. Each result is compared with the sum of all ranks.

With `--hooks` there is one row in ms: the host's time in a backward pass of a model with such
parameters under DistributedDataParallel with Gloo, less that without it.

With `--device cpu` Gloo sums tensors of the host, to try this program without a GPU.
"""

import argparse
import contextlib
import ctypes
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

SIZES = "8,1048576,67108864"
RIVALS = {"gloo": "Gloo on CUDA tensors", "symmetric": "PyTorch symmetric memory",
          "nccl": "NCCL with host ids"}
HOOKS = "Gloo by the hooks of DDP"
PERIOD = 61  # of values; odd, so those of another place differ
WARM_UPS = 3
GRACE_S = 2


def size_words(size_bytes):
    for shift, unit in ((20, "MiB"), (10, "KiB")):
        if size_bytes >> shift:
            return f"{size_bytes >> shift} {unit}"
    return f"{size_bytes} B"


def row_of(rival, size_bytes):
    return HOOKS if rival == "hooks" else f"{RIVALS[rival]}, {size_words(size_bytes)}"


def say(rival, size_bytes, state, samples=(), note=""):
    print(json.dumps({"row": row_of(rival, size_bytes), "state": state,
                      "unit": "ms" if rival == "hooks" else "us", "samples": list(samples),
                      "note": note}), flush=True)


def end_with_parent():
    """Asks the kernel for a SIGKILL when the process that started this one ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def one_line(text):
    return " ".join(str(text).split())[:400]


# --- one rank of a rival, in a process of its own ---


def all_reduce_of(rival, torch, dist, count, device):
    """A call that sums floats over the ranks, a tensor with its input, and one with its result."""
    if rival != "symmetric":
        tensor = torch.empty(count, dtype=torch.float32, device=device)
        return (lambda: dist.all_reduce(tensor)), tensor, tensor
    import torch.distributed._symmetric_memory as symmetric
    name = dist.group.WORLD.group_name
    shared = symmetric.empty(count, dtype=torch.float32, device=device)
    symmetric.rendezvous(shared, name)
    out = torch.empty_like(shared)

    def call():
        out.copy_(torch.ops.symm_mem.one_shot_all_reduce(shared, "sum", name))
    return call, shared, out


def check_sum(torch, arguments, result, values):
    """Raises an exception if `result` is not the sum of all ranks, whose values are whole."""
    ranks = arguments.ranks
    expected = values * ranks + ranks * (ranks - 1) // 2
    if not torch.equal(result.cpu(), expected):
        place = int((result.cpu() != expected).nonzero()[0])
        raise RuntimeError(f"value {place} of {len(values)} is {float(result[place])}, and the sum "
                           f"of {ranks} ranks is {float(expected[place])}")


def measure(rival, torch, dist, arguments, size_bytes):
    """Samples in us. Raises an exception if the sum is wrong."""
    device, wait = device_of(torch, arguments)
    call, given, result = all_reduce_of(rival, torch, dist, size_bytes // 4, device)
    values = torch.arange(size_bytes // 4) % PERIOD
    values = values.to(torch.float32)
    given.copy_(values + arguments.rank)
    dist.barrier()
    call()
    wait()
    check_sum(torch, arguments, result, values)
    samples = []
    for i in range(WARM_UPS + arguments.repeat):
        if rival != "symmetric":
            result.fill_(1)  # in place, so it would grow
        wait()
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(arguments.calls):
            call()
            wait()
        if i >= WARM_UPS:
            samples.append((time.perf_counter() - begin) / arguments.calls * 1e6)
    return samples


def device_of(torch, arguments):
    """The device, and a call that waits for it."""
    if arguments.device == "cpu":
        return torch.device("cpu"), lambda: None
    device = torch.device(f"cuda:{arguments.device}")
    return device, lambda: torch.cuda.synchronize(device)


def measure_hooks(torch, arguments):
    """Samples in ms, less the time of the same pass without hooks."""
    device, wait = device_of(torch, arguments)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.all = torch.nn.ParameterList(
                [torch.nn.Parameter(torch.zeros(count, device=device))
                 for count in arguments.hooks])

        def forward(self):
            return sum(one.sum() for one in self.all) * (arguments.rank + 1)

    model = torch.nn.parallel.DistributedDataParallel(Model())

    def one_pass(context):
        with context():
            loss = model()
            wait()
            begin = time.perf_counter()
            loss.backward()
            seconds = time.perf_counter() - begin
        wait()
        return seconds * 1e3

    def with_hooks():
        return contextlib.nullcontext()
    for _ in range(WARM_UPS):
        one_pass(with_hooks)
    model.zero_grad()
    one_pass(with_hooks)
    mean = (arguments.ranks + 1) / 2
    for one in model.parameters():
        if not torch.equal(one.grad.cpu(), torch.full(one.shape, mean)):
            raise RuntimeError(f"a gradient is not the mean of all ranks, {mean}")
    with_ms = [one_pass(with_hooks) for _ in range(arguments.repeat)]
    without_ms = [one_pass(model.no_sync) for _ in range(arguments.repeat)]
    return [one - statistics.median(without_ms) for one in with_ms]


def play_rank(arguments):
    end_with_parent()
    import torch
    import torch.distributed as dist
    if arguments.device != "cpu":
        torch.cuda.set_device(int(arguments.device))
    backend = "nccl" if arguments.worker == "nccl" else "gloo"
    dist.init_process_group(backend, rank=arguments.rank, world_size=arguments.ranks,
                            init_method=f"tcp://127.0.0.1:{arguments.port}")
    for size_bytes in sizes_of(arguments.worker, arguments):
        if size_bytes > arguments.size_max:
            continue
        try:
            samples = (measure_hooks(torch, arguments) if arguments.worker == "hooks" else
                       measure(arguments.worker, torch, dist, arguments, size_bytes))
        except Exception as error:  # of any kind: PyTorch has many
            if arguments.rank == 0:
                say(arguments.worker, size_bytes, "failed", note=one_line(error))
            break  # the ranks may not agree any more
        if arguments.rank == 0:
            say(arguments.worker, size_bytes, "yes", samples)
    sys.stdout.flush()
    os._exit(0)  # without a meeting at the end, which may hang


# --- the first process ---


def sizes_of(rival, arguments):
    return [0] if rival == "hooks" else arguments.sizes


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def environment_of(rival, rank):
    more = {"OMP_NUM_THREADS": "1"}
    if rival == "symmetric":
        more["TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES"] = "1"
    if rival == "nccl":
        more |= {"NCCL_HOSTID": f"probe-{rank}", "NCCL_SOCKET_IFNAME": "lo"}
    return os.environ | more


def run_rival(rival, arguments, seconds):
    """Runs the ranks and passes on their rows. Says the rows that they did not."""
    port = free_port()
    with tempfile.TemporaryFile("w+") as rows, tempfile.TemporaryFile("w+") as errors:
        ranks = [subprocess.Popen(
            [sys.executable, "-B", pathlib.Path(__file__), "--worker", rival, "--rank", str(rank),
             "--port", str(port), "--device", arguments.device, "--repeat", str(arguments.repeat),
             "--size-max", str(arguments.size_max), "--ranks", str(arguments.ranks),
             "--sizes", ",".join(map(str, arguments.sizes)), "--calls", str(arguments.calls),
             "--hooks", ",".join(map(str, arguments.hooks))],
            env=environment_of(rival, rank), stdin=subprocess.DEVNULL, stdout=rows, stderr=errors)
            for rank in range(arguments.ranks)]
        limit = time.monotonic() + seconds
        is_late = False
        while any(rank.poll() is None for rank in ranks):
            failed = any(rank.poll() not in (None, 0) for rank in ranks)
            if failed:  # the other may wait for it
                limit = min(limit, time.monotonic() + GRACE_S)
            if time.monotonic() > limit:
                is_late = not failed
                break
            time.sleep(0.02)
        for rank in ranks:
            rank.kill()
        codes = [rank.wait() for rank in ranks]
        rows.seek(0)
        errors.seek(0)
        said = rows.read()
        print(said, end="", flush=True)
        words = [line for line in errors.read().splitlines() if line.strip()]
    if is_late:
        reason = f"not done in {seconds:.0f} s"
    else:
        reason = one_line(words[-1]) if words else f"exit codes {codes}"
    for size_bytes in sizes_of(rival, arguments):
        if f'"{row_of(rival, size_bytes)}"' in said:
            continue
        if size_bytes > arguments.size_max:
            say(rival, size_bytes, "left out", note="larger than --size-max")
        else:
            say(rival, size_bytes, "failed", note=reason)


def reason_to_leave_out(arguments):
    try:
        import torch
    except Exception as error:  # of any kind: a broken installation, too
        return f"PyTorch is not here: {one_line(error)}"
    if not torch.distributed.is_available():
        return f"PyTorch {torch.__version__} has no torch.distributed"
    if arguments.device != "cpu" and not torch.cuda.is_available():
        return f"PyTorch {torch.__version__} sees no GPU"
    return None


def numbers(text):
    return [int(word) for word in text.split(",") if word]


def main():
    parser = argparse.ArgumentParser(description=" ".join(__doc__.split("\n\n")[0].split()))
    parser.add_argument("--device", default="0")
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--size-max", type=int, default=64 << 20)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--sizes", type=numbers, default=SIZES)
    parser.add_argument("--calls", type=int, default=1, help="of a sample")
    parser.add_argument("--hooks", type=numbers, default="", help="elements of each parameter")
    parser.add_argument("--worker", choices=[*RIVALS, "hooks"], help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        play_rank(arguments)
    end_with_parent()
    end = time.monotonic() + arguments.seconds
    rivals = ["hooks"] if arguments.hooks else list(RIVALS)
    reason = reason_to_leave_out(arguments)
    if reason:
        for rival in rivals:
            for size_bytes in sizes_of(rival, arguments):
                say(rival, size_bytes, "left out", note=reason)
        return 0
    for number, rival in enumerate(rivals):
        left = end - time.monotonic() - GRACE_S
        run_rival(rival, arguments, max(0.1, left / (len(rivals) - number)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

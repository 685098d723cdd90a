#!/usr/bin/env python3
"""Q9 of the device probe: AllReduce of two ranks on one GPU by PyTorch's ways.

    rivals.py [--device N | --device cpu] [--repeat N] [--size-max BYTES] [--seconds S]

Prints one JSON object a line for each rival and size: row, state ("yes", "failed", "left out"),
unit (us), samples, note. Each rival has two processes of its own and a limit of time, so one that
hangs ends alone. The samples are those of rank 0: from the call until the device is done.

With `--device cpu` Gloo sums tensors of the host, to try this program without a GPU.
"""

import argparse
import ctypes
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

SIZES = {"8 B": 8, "1 MiB": 1 << 20, "64 MiB": 64 << 20}
RIVALS = {"gloo": "Gloo on CUDA tensors", "symmetric": "PyTorch symmetric memory",
          "nccl": "NCCL with host ids"}
RANKS = 2
GRACE_S = 2


def say(rival, size, state, samples=(), note=""):
    print(json.dumps({"row": f"{RIVALS[rival]}, {size}", "state": state, "unit": "us",
                      "samples": list(samples), "note": note}), flush=True)


def end_with_parent():
    """Asks the kernel for a SIGKILL when the process that started this one ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def one_line(text):
    return " ".join(str(text).split())[:400]


# --- one rank of a rival, in a process of its own ---


def all_reduce_of(rival, torch, dist, count, device):
    """A call that sums `count` floats over the ranks, and a tensor with its result."""
    if rival != "symmetric":
        tensor = torch.ones(count, dtype=torch.float32, device=device)
        return (lambda: dist.all_reduce(tensor)), tensor
    import torch.distributed._symmetric_memory as symmetric
    name = dist.group.WORLD.group_name
    shared = symmetric.empty(count, dtype=torch.float32, device=device)
    symmetric.rendezvous(shared, name)
    shared.fill_(1)
    out = torch.empty_like(shared)

    def call():
        out.copy_(torch.ops.symm_mem.one_shot_all_reduce(shared, "sum", name))
    return call, out


def measure(rival, torch, dist, arguments, size_bytes):
    """Samples in us. Raises an exception if the sum is wrong."""
    is_cpu = arguments.device == "cpu"
    device = torch.device("cpu" if is_cpu else f"cuda:{arguments.device}")
    wait = (lambda: None) if is_cpu else (lambda: torch.cuda.synchronize(device))
    call, result = all_reduce_of(rival, torch, dist, size_bytes // 4, device)
    call()
    wait()
    found = float(result.flatten()[0])
    if found != RANKS:
        raise RuntimeError(f"the sum of {RANKS} ones is {found}")
    samples = []
    for _ in range(arguments.repeat):
        if rival != "symmetric":
            result.fill_(1)
        wait()
        dist.barrier()
        begin = time.perf_counter()
        call()
        wait()
        samples.append((time.perf_counter() - begin) * 1e6)
    return samples


def play_rank(arguments):
    end_with_parent()
    import torch
    import torch.distributed as dist
    if arguments.device != "cpu":
        torch.cuda.set_device(int(arguments.device))
    backend = "nccl" if arguments.worker == "nccl" else "gloo"
    dist.init_process_group(backend, rank=arguments.rank, world_size=RANKS,
                            init_method=f"tcp://127.0.0.1:{arguments.port}")
    for size, size_bytes in SIZES.items():
        if size_bytes > arguments.size_max:
            continue
        try:
            samples = measure(arguments.worker, torch, dist, arguments, size_bytes)
        except Exception as error:  # of any kind: PyTorch has many
            if arguments.rank == 0:
                say(arguments.worker, size, "failed", note=one_line(error))
            break  # the ranks may not agree any more
        if arguments.rank == 0:
            say(arguments.worker, size, "yes", samples)
    sys.stdout.flush()
    os._exit(0)  # without a meeting at the end, which may hang


# --- the first process ---


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
    """Runs the two ranks and passes on their rows. Says the rows that they did not."""
    port = free_port()
    with tempfile.TemporaryFile("w+") as rows, tempfile.TemporaryFile("w+") as errors:
        ranks = [subprocess.Popen(
            [sys.executable, "-B", pathlib.Path(__file__), "--worker", rival, "--rank", str(rank),
             "--port", str(port), "--device", arguments.device, "--repeat", str(arguments.repeat),
             "--size-max", str(arguments.size_max)],
            env=environment_of(rival, rank), stdin=subprocess.DEVNULL, stdout=rows, stderr=errors)
            for rank in range(RANKS)]
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
    for size, size_bytes in SIZES.items():
        if f'"{RIVALS[rival]}, {size}"' in said:
            continue
        if size_bytes > arguments.size_max:
            say(rival, size, "left out", note="larger than --size-max")
        else:
            say(rival, size, "failed", note=reason)


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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="0")
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--size-max", type=int, default=64 << 20)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--worker", choices=RIVALS, help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        play_rank(arguments)
    end_with_parent()
    end = time.monotonic() + arguments.seconds
    reason = reason_to_leave_out(arguments)
    if reason:
        for rival in RIVALS:
            for size in SIZES:
                say(rival, size, "left out", note=reason)
        return 0
    for number, rival in enumerate(RIVALS):
        left = end - time.monotonic() - GRACE_S
        run_rival(rival, arguments, max(0.1, left / (len(RIVALS) - number)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

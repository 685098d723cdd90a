#!/usr/bin/env python3
"""C7: models of PyTorch on a GPU that several ranks share (lmdbio/docs/device_bundle.md).

    torch_checks.py [--device N] [--quick] [--seconds-max S] [--job-seconds S] [--json FILE]

Prints a line of JSON for each row. The ranks are processes of this program, which meet as those of
a launcher do. Oracles: the bits of all ranks, and the same training in one process on the CPU.
Without PyTorch, or without a GPU for it, all rows are left out. Exit code: 0 if no row has failed,
otherwise 1.

`--backend emulated` is for tests: the GPUs of tests/emulated_torch.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time

STEPS = 50
BATCH = 24  # of all ranks
CLOSE = 1e-3  # to the training on the CPU
TOLD_S = 5  # the others know of a killed rank
GRACE_S = 2
TRAININGS = [(f"{ranks} ranks train {STEPS} steps, order {order}", ranks, "train", order)
             for order in ("host", "mark") for ranks in (2, 4)]
KILLS = [(f"a rank of 3 is killed, order {order}", 3, "killed", order)
         for order in ("host", "mark")]


# --- a rank ---

def make_model(torch, seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 10))


def train(torch, model, device, share, gradients=None, after_step=lambda step: None):
    """The parameters after all steps, on the host. `share` is the part of each batch."""
    generator = torch.Generator().manual_seed(5)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, foreach=False)
    for step in range(STEPS):
        images = torch.randn(BATCH, 32, generator=generator)[share].clone().to(device)
        labels = torch.randint(10, (BATCH,), generator=generator)[share].clone().to(device)
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        if gradients is not None:
            gradients.synchronize()
        optimizer.step()
        after_step(step)
    return torch.cat([parameter.detach().cpu().flatten() for parameter in model.parameters()])


def training_rank(torch, gpu, device, options):
    """What this rank has found."""
    import lmdbio.torch

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    used = []
    share = slice(BATCH // size * rank, BATCH // size * (rank + 1))
    model = make_model(torch, 1 if rank == 0 else 2).to(device)
    with lmdbio.torch.GradientSync(model, "env", **options) as gradients:
        gradients.broadcast_parameters()
        found = train(torch, model, device, share, gradients,
                      lambda step: used.append((gpu.memory_allocated(), gpu.memory_reserved())))
        gradients.check()
        counters = gradients.synchronizer.counters()
    on_host = train(torch, make_model(torch, 1), "cpu", slice(None))
    return {"digest": hashlib.sha256(found.numpy().tobytes()).hexdigest(),
            "difference": (found - on_host).abs().max().item(),
            "grown": [used[-1][i] - used[9][i] for i in range(2)],
            "reduced": counters["device_reduced_count"]}


def killed_rank(torch, device, options):
    import lmdbio.torch

    rank = int(os.environ["RANK"])
    model = make_model(torch, 1).to(device)
    seen, told = time.monotonic(), None
    try:
        with lmdbio.torch.GradientSync(model, "env", **options) as gradients:
            for step in range(200):
                if step == 20 and rank == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                model.zero_grad()
                model(torch.ones(1, 32).to(device)).sum().backward()
                gradients.synchronize()
                gradients.check()
                seen = time.monotonic()
    except lmdbio.PeerFailedError as error:
        told = str(error)
    return {"seconds": time.monotonic() - seen, "error": told,
            "copy": torch.ones(3).to(device).cpu().tolist()}


def play_rank(backend, ordinal, mode, order):
    import torch

    if backend == "emulated":
        import emulated_torch as gpu
    else:
        gpu = torch.cuda
    device = torch.device(backend, ordinal)
    gpu.set_device(device)
    options = {"device_order": order, "device_buffer_bytes": 1 << 20}
    found = training_rank(torch, gpu, device, options) if mode == "train" else \
        killed_rank(torch, device, options)
    print(json.dumps(found), flush=True)


# --- all ranks ---

def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_job(options, ranks, mode, order, seconds):
    """[(return code, output, errors)] of all ranks; None if they are not done in time."""
    port = free_port()
    started = []
    for rank in range(ranks):
        environment = os.environ | {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks),
            "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            "TORCHELASTIC_RUN_ID": f"checks-{port}", "OMP_NUM_THREADS": "1"}
        group = started[0].pid if started else 0
        started.append(subprocess.Popen(
            [sys.executable, "-B", __file__, "rank", options.backend, str(options.device), mode,
             order], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
            preexec_fn=lambda group=group: os.setpgid(0, group)))  # one group for all
    limit = time.monotonic() + seconds
    ends = []
    try:
        for process in started:
            output, errors = process.communicate(timeout=max(0.0, limit - time.monotonic()))
            ends.append((process.returncode, output, errors))
    except subprocess.TimeoutExpired:
        ends = None
    finally:
        for process in started:
            process.kill()
            process.wait()
    return ends


def reports_of(ends):
    """The objects that ranks have printed. Raises ValueError with the reason of one that failed."""
    reports = []
    for rank, (code, output, errors) in enumerate(ends):
        lines = output.splitlines()
        if code != 0 or not lines:
            last = errors.strip().splitlines()[-1:] or ["no message"]
            raise ValueError(f"rank {rank}: exit code {code}: {last[0]}")
        reports.append(json.loads(lines[-1]))
    return reports


def complaint_of_training(ends):
    reports = reports_of(ends)
    if len({report["digest"] for report in reports}) != 1:
        return "the ranks have different parameters"
    for rank, report in enumerate(reports):
        if not report["difference"] < CLOSE:
            return f"rank {rank} differs by {report['difference']} from the training on the CPU"
        if report["grown"] != [0, 0]:
            return f"rank {rank}: memory of the GPU has grown by {report['grown']} bytes"
        if report["reduced"] == 0:
            return f"rank {rank}: no tensor was reduced on the GPU"
    return ""


def complaint_of_kill(ends):
    if ends[1][0] != -signal.SIGKILL:
        return f"rank 1 was not killed: {ends[1]}"
    for report in reports_of([ends[0], ends[2]]):
        if "rank 1" not in (report["error"] or ""):
            return f"the error does not name rank 1: {report['error']}"
        if report["seconds"] > TOLD_S:
            return f"the error came after {report['seconds']:.1f} s"
        if report["copy"] != [1.0, 1.0, 1.0]:
            return "a copy to the GPU and back is wrong"
    return ""


def obstacle(options):
    """Why the ranks cannot run; "" if they can."""
    for module in ("torch", "numpy"):
        if importlib.util.find_spec(module) is None:
            return f"{sys.executable} has no {module}"
    if options.backend == "cuda":
        code = "import torch, sys; sys.exit(0 if torch.cuda.is_available() else 3)"
        end = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True,
                             text=True, timeout=options.job_seconds)
        if end.returncode != 0:
            return "PyTorch finds no GPU, or has no CUDA"
    return ""


def outcome_of(options, job, limit):
    """(state, note) of a row."""
    _, ranks, mode, order = job
    seconds = min(options.job_seconds, limit - time.monotonic())
    if seconds < GRACE_S:
        return "left out", "no time was left"
    ends = run_job(options, ranks, mode, order, seconds)
    if ends is None:
        return "failed", f"not done within {seconds:.0f} s"
    try:
        complaint = (complaint_of_training if mode == "train" else complaint_of_kill)(ends)
    except ValueError as error:
        complaint = str(error)
    return ("failed", complaint) if complaint else ("passed", "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="2 ranks and one killed rank")
    parser.add_argument("--seconds-max", type=float, default=300)
    parser.add_argument("--job-seconds", type=float, default=60, help="a longer job hangs")
    parser.add_argument("--json", default="-", help="-: standard output")
    parser.add_argument("--backend", choices=("cuda", "emulated"), default="cuda")
    options = parser.parse_args()
    limit = time.monotonic() + options.seconds_max
    why_not = obstacle(options)
    jobs = [TRAININGS[0], KILLS[0]] if options.quick else TRAININGS + KILLS
    has_failed = False
    with open(1 if options.json == "-" else options.json, "w", encoding="utf-8",
              closefd=options.json != "-") as report:
        for job in jobs:
            state, note = ("left out", why_not) if why_not else outcome_of(options, job, limit)
            has_failed = has_failed or state == "failed"
            print(json.dumps({"id": "C7", "name": job[0], "state": state, "note": note}),
                  file=report, flush=True)
    sys.exit(1 if has_failed else 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        play_rank(sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
    else:
        main()

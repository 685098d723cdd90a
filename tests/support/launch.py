#!/usr/bin/env python3
"""Starts the ranks of a job as torchrun and srun do: processes that know their number by variables.

    launch.py [OPTION]... -n RANKS PROGRAM [ARGUMENT]...

    --as torchrun   the variables of torchrun, the default. As torchrun does, this program listens
                    at MASTER_PORT, unless --leave-port leaves the port to rank 0
    --as srun       the variables of srun
    --as itself     torchrun itself starts the ranks; exits with 77 if it is not installed
    --hosts A;B     equally many ranks in a row run on each host: A and B are put before their
                    commands, as "nsenter ..."; $LMDBIO_TEST_MASTER is the address of the first

When a rank fails, this program ends the others after $LMDBIO_TEST_GRACE_S seconds (1). The exit
code is that of the first rank that failed.
"""

import argparse
import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

# Variables of a launcher around this one mean other ranks.
FOREIGN = ("OMPI_", "PMI", "SLURM_", "TORCHELASTIC_")


def variables(kind, rank, ranks, per_host, address, port):
    local = {"LOCAL_RANK": rank % per_host, "LOCAL_WORLD_SIZE": per_host}
    if kind == "srun":
        return {"SLURM_PROCID": rank, "SLURM_NTASKS": ranks, "SLURM_STEP_NUM_TASKS": ranks,
                "SLURM_LOCALID": rank % per_host, "SLURM_STEP_NODELIST": address,
                "SLURM_JOB_ID": port, "SLURM_STEP_ID": 0}
    return local | {"RANK": rank, "WORLD_SIZE": ranks, "MASTER_ADDR": address, "MASTER_PORT": port,
                    "TORCHELASTIC_RUN_ID": f"test-{port}"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--as", dest="kind", choices=("torchrun", "srun", "itself"),
                        default="torchrun")
    parser.add_argument("--leave-port", action="store_true")
    parser.add_argument("--hosts", default="")
    parser.add_argument("-n", dest="ranks", type=int, required=True)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.kind == "itself":
        sys.exit(run_torchrun(options))
    hosts = [shlex.split(prefix) for prefix in options.hosts.split(";")]
    per_host = -(-options.ranks // len(hosts))
    address = os.environ.get("LMDBIO_TEST_MASTER", "127.0.0.1")
    taken = socket.socket()
    taken.bind(("", 0))
    port = taken.getsockname()[1]
    if options.leave_port:
        taken.close()
    else:
        taken.listen()
    inherited = {name: value for name, value in os.environ.items()
                 if not name.startswith(FOREIGN) or name.startswith("OMPI_MCA_")}
    processes = []

    def end_all(*_):
        for process in processes:
            process.terminate()

    signal.signal(signal.SIGTERM, lambda *_: (end_all(), sys.exit(143)))
    with tempfile.TemporaryDirectory(prefix="lmdbio-test-") as folder:
        for rank in range(options.ranks):
            own = variables(options.kind, rank, options.ranks, per_host, address, port)
            own |= {"LMDBIO_TEST_FOLDER": folder, "LMDBIO_TEST_RANK": rank,
                    "LMDBIO_TEST_RANKS": options.ranks}
            environment = inherited | {name: str(value) for name, value in own.items()}
            processes.append(subprocess.Popen([*hosts[rank // per_host], *options.command],
                                              env=environment, stdin=subprocess.DEVNULL))
        code = await_all(processes, end_all)
    sys.exit(code)


def quiet_port():
    """A port that is free, and below those that the system gives to programs that ask for any. The
    16 behind it are mostly free, too: lmdbio meets there."""
    first, count = 16384, 16384
    for attempt in range(100):
        port = first + (os.getpid() * 32 + attempt * 1024) % count
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise SystemExit("no port is free")


def run_torchrun(options):
    """The exit code of torchrun. Version 1.13 needs a redirection under Python 3.11. With
    --standalone it takes one port for all jobs, and otherwise finds a port that another program may
    take before its ranks do. So it gets one that the system gives nobody."""
    if shutil.which("torchrun") is None:
        print("skipped: torchrun is not installed")
        return 77
    with tempfile.TemporaryDirectory(prefix="lmdbio-test-") as folder:
        code = subprocess.run(
            ["torchrun", "--master_addr", "127.0.0.1", "--master_port", str(quiet_port()), "--tee",
             "1", "--redirects", "1", "--log_dir", f"{folder}/log", "--nproc_per_node",
             str(options.ranks), "--no_python", *options.command],
            check=False, env=os.environ | {"LMDBIO_TEST_FOLDER": folder},
            stdin=subprocess.DEVNULL).returncode
    if code != 0 and lacks_libuv():
        print("skipped: torchrun asks for libuv, which this PyTorch was built without")
        return 77
    return code


def lacks_libuv():
    """Whether torchrun can start no job, as that of PyTorch 2.6 in Debian 13."""
    with open(shutil.which("torchrun"), encoding="utf-8") as script:
        python = script.readline().removeprefix("#!").split()
    store = "import torch.distributed as d; d.TCPStore('127.0.0.1', 0, 1, True)"
    probe = subprocess.run([*python, "-c", store], check=False, capture_output=True, text=True)
    return "without libuv support" in probe.stderr


def await_all(processes, end_all):
    """Waits for all ranks. The first failure ends the others, a second later."""
    code = 0
    while True:
        codes = [process.poll() for process in processes]
        failed = [one for one in codes if one]
        if failed and code == 0:
            code = failed[0] if failed[0] > 0 else 128 - failed[0]
            deadline = time.monotonic() + float(os.environ.get("LMDBIO_TEST_GRACE_S", "1"))
        if code and time.monotonic() > deadline:
            end_all()
        if None not in codes:
            return code
        time.sleep(0.01)


if __name__ == "__main__":
    main()

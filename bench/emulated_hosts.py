"""Emulated hosts for the drivers of benchmarks (scripts/cluster, needs root)."""

import contextlib
import os
import pathlib
import shutil

from mpi_jobs import Failure, run
from output_files import scratch_folder

CLUSTER = pathlib.Path(__file__).resolve().parents[1] / "scripts" / "cluster"
SECONDS_MAX = 120


def cluster(name, command, *words, seconds_max=SECONDS_MAX):
    """Runs a command of scripts/cluster. Returns its output."""
    code, output = run([CLUSTER, "--name", name, command, *words], dict(os.environ), seconds_max)
    if code != 0:
        said = output.strip().splitlines() or [f"exit code {code}"]
        raise Failure(f"scripts/cluster {command}: {said[-1].removeprefix('scripts/cluster: ')}")
    return output


@contextlib.contextmanager
def hosts_up(name, count, bandwidth):
    """Hosts of a new cluster, also taken down if only a part of them came up.

    name       of no other cluster, because that one would be taken down, too
    bandwidth  of the network of each host, as 10G; None: no limit
    """
    with scratch_folder(name) as folder:
        # The hosts mount a database that no job reads.
        (pathlib.Path(folder) / "data.mdb").write_bytes(bytes(1 << 20))
        limit = ("--bandwidth", bandwidth) if bandwidth else ()
        try:
            cluster(name, "up", count, folder, pathlib.Path(folder + ".mount"), *limit)
            yield
        finally:
            with contextlib.suppress(Failure):
                cluster(name, "down", "--force")
            shutil.rmtree(folder + ".mount", ignore_errors=True)

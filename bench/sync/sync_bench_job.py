"""Jobs of sync_bench, for the drivers that compare its variants: their ranks, their networks, and
the figures that two variants are compared by."""

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import statistics
import sys

from emulated_hosts import CLUSTER, hosts_up
from figures import interval, word_list
from mpi_jobs import Failure, mpi_environment, mpirun_words, run
from output_files import write_text

NETWORKS = pathlib.Path(__file__).resolve().parent / "networks"


def known_networks():
    return sorted(path.stem for path in NETWORKS.glob("*.json"))


def network_list(text):
    networks = known_networks() if text == "all" else word_list(text)
    for network in networks:
        if network not in known_networks():
            raise argparse.ArgumentTypeError(
                f"network '{network}' is unknown; expected all or some of "
                f"{', '.join(known_networks())}")
    return networks


def check_wait(told, wait):
    reported = told["environment"]["mpi_wait"]
    if reported not in (wait, "unknown"):
        raise Failure(f"MPI waits by {reported}; expected {wait}")


def run_sync_bench(options, name, ranks, wait, words):
    """Runs sync_bench. Returns (what it saved, its output). A variant that could not be made is in
    its table; no other failure is forgiven.

    options  with mpirun, build, out and cell_seconds
    name     of the cell, for the file in options.out
    wait     "spin" or "yield"; MPI must report the same
    """
    saved = options.out / f"cell-{name}.json"
    saved.unlink(missing_ok=True)
    print(f"# {name}", file=sys.stderr, flush=True)
    code, output = run(
        [*mpirun_words(options.mpirun, ranks, wait), options.build / "bin" / "sync_bench",
         "--save", saved, *words],
        mpi_environment(), options.cell_seconds)
    if not saved.exists():
        raise Failure(f"{name}: sync_bench ended with {code}:\n{output}")
    cell = json.loads(saved.read_text(encoding="utf-8"))
    check_wait(cell, wait)
    return cell, output


@dataclasses.dataclass(frozen=True)
class Ranks:
    """The ranks of jobs: on this host, or on emulated ones if `hosts` is more than 1."""
    hosts: int
    per_host: int
    wait: str          # "spin" or "yield"
    cluster: str       # the name of the emulated hosts
    mpirun: str        # of this host
    seconds_max: float

    def up(self, bandwidth):
        """The emulated hosts, as a context; nothing for ranks of this host."""
        if self.hosts == 1:
            return contextlib.nullcontext()
        return hosts_up(self.cluster, self.hosts, bandwidth)

    def run(self, words, folder):
        """Runs a command on all ranks, whose hosts are up. Returns its exit code and output.
        `folder` is for its temporary files."""
        if self.hosts > 1:
            words = [CLUSTER, "--name", self.cluster, "run", "-n", self.hosts * self.per_host,
                     "--per-host", self.per_host, "--wait", self.wait,
                     "-x", f"TMPDIR={folder}", *words]
            environment = dict(os.environ)
        else:
            words = [*mpirun_words(self.mpirun, self.per_host, self.wait), *words]
            environment = mpi_environment() | {"TMPDIR": str(folder)}
        return run(words, environment, self.seconds_max)

    def measure(self, build, words, folder):
        """Runs sync_bench, and returns what it saves. A variant that could not be made is in it; no
        other failure is forgiven."""
        saved = folder / "saved.json"
        saved.unlink(missing_ok=True)
        code, output = self.run([build / "bin" / "sync_bench", *words, "--save", saved], folder)
        if not saved.exists():
            raise Failure(f"sync_bench ended with {code}:\n{output}")
        told = json.loads(saved.read_text(encoding="utf-8"))
        check_wait(told, self.wait)
        return told


def medians_of(told, variant, kind="train"):
    """Returns the median iteration in ms of each run of a variant, by repetition."""
    return {one["repetition"]: statistics.median(one["iteration_ms"])
            for one in told["networks"][0]["runs"]
            if one["variant"] == variant and one["kind"] == kind}


def paired_ratio(own, base):
    """Returns the median ratio of values of one repetition, and its interval of 95 % or None."""
    ratios = [own[one] / base[one] for one in sorted(own.keys() & base.keys())]
    return statistics.median(ratios), interval(statistics.median, ratios)


def ratio_text(ratio, digits=2):
    """ratio  of paired_ratio"""
    median, around = ratio
    bounds = f" ({around[0]:.{digits}f} to {around[1]:.{digits}f})" if around else ""
    return f"{median:.{digits}f}{bounds}"


def check_same_words(path, then, now):
    """A file of an earlier call was measured with the options of the present one."""
    if then == now:
        return
    # The name of the option and its value, at the first difference.
    place = next(i for i, (one, other) in enumerate(itertools.zip_longest(then, now))
                 if one != other)
    one, other = (" ".join(words[max(0, place - 1):place + 1]) for words in (then, now))
    raise Failure(f"{path} was measured with {one}, and not with {other}; give another --out")


def write_json(path, value):
    """Writes a file that is there as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(value, indent=1) + "\n")

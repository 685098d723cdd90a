#!/usr/bin/env python3
"""Measures variants at given ratios of communication and computing, between emulated hosts (needs
root).

    bench/sync/run_caramel.py [--hosts 2,4] [--networks resnet50,vgg16,inception_v3]
                              [--rhos 0.5,0.75,1,1.5,2,3] [--variants none,lmdbio:topo,...]
                              [--repetitions 10] [--out build/caramel] ...

rho is the time of lmdbio:topo's communication alone / the time of computing alone. For each network
and number of hosts, computing takes so long that rho is --fastest-rho at the highest rate. For each
rho the rate of the hosts' network is searched by a straight line of rho over 1 / rate. Then a cell
is measured at this rate: all variants, in a random order in each repetition. A variant that the
build does not know is absent. Options that are not known here go to sync_bench. With --ddp
PyTorch's DistributedDataParallel over Gloo trains behind these runs, in the same network.

A cell leaves a file in OUT/cells, and the rates of a network a file in OUT/rates. Nothing whose
file exists is measured again, so an interrupted measurement continues. Tables of all files go to
standard output and OUT/caramel.md, their figures to OUT/caramel.json.
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from caramel_report import BASELINE, COMPUTING, Cell, Figures, json_of, report  # noqa: E402
from ddp_gloo import DDP, SKIPPED  # noqa: E402
from figures import number_list, wait_list, word_list  # noqa: E402
from mpi_jobs import Failure, heed_signals  # noqa: E402
from output_files import scratch_folder, write_report  # noqa: E402
from sync_bench_job import (NETWORKS, Ranks, check_same_words, medians_of,  # noqa: E402
                            network_list, write_json)

ROOT = pathlib.Path(__file__).resolve().parents[2]
VARIANTS = f"{COMPUTING},{BASELINE},{BASELINE}+window,lmdbio:horovod:cycle,lmdbio:cache"
DDP_SCRIPT = pathlib.Path(__file__).resolve().parent / "ddp_gloo.py"
# The buckets of PyTorch by default. They are scaled like the network.
DDP_FIRST_BUCKET_MB, DDP_BUCKET_MB = 1, 25
RATE_STEP = 1000  # scripts/cluster takes whole kbit/s
RATE_TRIES = 3    # of each rho
RHO_ERROR_MAX = 0.03
NEAR = 0.1        # a rate whose rho is so far from the wanted one, as a share, counts half
JOB_SECONDS, RUN_SECONDS = 6.0, 0.3  # for the first estimate; measured cells correct it


# --- Rates ---------------------------------------------------------------------------------------


def next_rate(wanted, tried, limits):
    """Returns the rate at which rho is expected to be `wanted`: by the straight line of rho over
    1 / rate with the least squares, in which rates near the wanted rho count most.

    tried   {rate: rho}, not empty
    limits  (least, highest) rate
    """
    distances = {rate: abs(math.log(rho / wanted)) for rate, rho in tried.items()}
    near = min(distances, key=distances.get)
    weights = {rate: 1 / (NEAR + distance) for rate, distance in distances.items()}
    total = sum(weights.values())
    mean_inverse = sum(weights[rate] / rate for rate in tried) / total
    mean_rho = sum(weights[rate] * rho for rate, rho in tried.items()) / total
    spread = sum(weights[rate] * (1 / rate - mean_inverse) ** 2 for rate in tried)
    common = sum(weights[rate] * (1 / rate - mean_inverse) * (rho - mean_rho)
                 for rate, rho in tried.items())
    # One rate has no line, and a line that falls is chance. Then as if all of the time were that of
    # the bytes.
    inverse = wanted / tried[near] / near
    if len(tried) > 1 and common > 0:
        inverse = mean_inverse + (wanted - mean_rho) * spread / common
    least, highest = limits
    rate = highest if inverse <= 1 / highest else max(least, 1 / inverse)
    return round(rate / RATE_STEP) * RATE_STEP


def find_rate(wanted, tried, measure, limits):
    """Returns the rate whose rho is nearest to `wanted`, after some more tries if need be.

    tried    {rate: rho}, not empty; gets the tries
    measure  returns the rho of a rate
    """

    def error(rate):
        return abs(tried[rate] / wanted - 1)

    for _ in range(RATE_TRIES):
        rate = next_rate(wanted, tried, limits)
        if min(map(error, tried)) <= RHO_ERROR_MAX or rate in tried:
            break
        tried[rate] = measure(rate)
    return min(tried, key=error)


# --- Jobs ----------------------------------------------------------------------------------------


def network_bytes(network):
    return 4 * json.loads((NETWORKS / f"{network}.json").read_text(
        encoding="utf-8"))["parameter_count"]


def scale_of(options, network):
    return min(1.0, options.gradient_mb * 1e6 / network_bytes(network))


def alone_words(options, network):
    """What a measurement of the communication alone asks of sync_bench, but for the computing."""
    return [str(word) for word in (
        "--network", network, "--scale", f"{scale_of(options, network):.6g}",
        "--variants", BASELINE, "--baseline", BASELINE, "--kinds", "alone", "--repetitions", 1,
        "--warmup", options.warmup, "--iterations", options.iterations)]


def cell_words(options, rest, network):
    """What a cell asks of sync_bench, but for the computing."""
    return [str(word) for word in (
        "--network", network, "--scale", f"{scale_of(options, network):.6g}",
        "--variants", ",".join(options.variants), "--baseline", BASELINE,
        *([] if options.costs else ["--alone-of", BASELINE]),
        "--kinds", "train,alone", "--skip-unknown", "--repetitions", options.repetitions,
        "--warmup", options.warmup, "--iterations", options.iterations,
        "--run-seconds", options.run_seconds, *([] if options.processor else ["--accelerator"]),
        *rest)]


def ddp_words(options, network):
    """What a cell asks of ddp_gloo.py, but for the computing and the ranks; nothing without
    --ddp."""
    if not options.ddp:
        return []
    scale = scale_of(options, network)
    bucket_scale = scale if options.ddp == "scaled" else 1
    return [str(word) for word in (
        "--network", network, "--scale", f"{scale:.6g}", "--accelerator",
        "--first-bucket-mb", f"{DDP_FIRST_BUCKET_MB * bucket_scale:.6g}",
        "--bucket-mb", f"{DDP_BUCKET_MB * bucket_scale:.6g}",
        "--repetitions", options.repetitions,
        "--warmup", options.warmup, "--iterations", options.iterations,
        "--run-seconds", options.run_seconds)]


def asked_words(options, rest, network):
    """What a cell asks of all programs."""
    return [*cell_words(options, rest, network), *ddp_words(options, network)]


def computing_words(options, network, rates):
    """sync_bench multiplies --compute-ms by the scale."""
    compute_ms = rates["compute_ms"] / scale_of(options, network)
    return ["--compute-ms", f"{compute_ms:.6g}",
            "--units-per-second", repr(rates["units_per_second"])]


def run_at(options, ranks, rate, words, add=None):
    """Runs sync_bench between hosts of this rate. Returns what it saved.

    add  is called with an empty folder and what was saved, while the hosts are still up
    """
    with scratch_folder("caramel") as folder, \
            ranks.up(str(rate)):
        told = ranks.measure(options.build, words, pathlib.Path(folder))
        if add:
            add(pathlib.Path(folder), told)
        return told


def add_ddp(options, rates, cell, folder, told):
    """Runs DistributedDataParallel between hosts that are up, and adds its runs to those of
    sync_bench; or the reason why it is absent."""
    words = ddp_words(options, cell.network)
    if not words:
        return
    saved = folder / "ddp.json"
    code, output = rates.ranks.run(
        ["-x", "GLOO_SOCKET_IFNAME=eth0", DDP_SCRIPT, *words, "--meeting",
         folder / "meeting", "--save", saved,
         *computing_words(options, cell.network, rates.told)], folder)
    if code == SKIPPED:
        told["absent"][DDP] = (output.strip().splitlines() or ["no torch"])[0]
        return
    if code != 0:
        raise Failure(f"ddp_gloo.py ended with {code}:\n{output}")
    (theirs,) = json.loads(saved.read_text(encoding="utf-8"))["networks"]
    (network,) = told["networks"]
    network["runs"] += [run for run in theirs["runs"] if run["variant"] == DDP]
    network["variants"] += [row for row in theirs["variants"] if row["variant"] == DDP]


def median_of(told, variant, kind):
    medians = medians_of(told, variant, kind)
    if not medians:
        reasons = [row.get("error") for row in told["networks"][0]["variants"]
                   if row["variant"] == variant]
        raise Failure(f"{variant} was not measured: {(reasons or ['it is absent'])[0]}")
    return statistics.median(medians.values())


class Rates:
    """The rates that were tried for a network and a number of hosts, in a file."""

    def __init__(self, options, rest, group):
        self.options, self.group = options, group
        network, hosts, wait = group
        self.ranks = ranks_of(options, hosts, wait)
        self.asked = [*alone_words(options, network), "--fastest-rho", f"{options.fastest_rho:g}",
                      "--rates", str(options.rates[1]),
                      *(["--processor"] if options.processor else []), *rest]
        self.rest = rest
        self.path = options.out / "rates" / f"{network}-{hosts}-{wait}.json"
        self.told = None
        if self.path.exists():
            self.told = json.loads(self.path.read_text(encoding="utf-8"))
            check_same_words(self.path, self.told["asked"], self.asked)

    @property
    def tried(self):
        """{rate: rho}"""
        return {int(rate): alone / self.told["computing_ms"]
                for rate, alone in self.told["alone_ms"].items()}

    def measure_alone(self, rate):
        return run_at(self.options, self.ranks, rate,
                      [*alone_words(self.options, self.group[0]), *self.rest])

    def begin(self):
        """Measures the communication at the highest rate, and the computing that goes with it."""
        highest = self.options.rates[1]
        told = self.measure_alone(highest)
        alone_ms = median_of(told, BASELINE, "alone")
        self.told = dict(
            asked=self.asked, compute_ms=alone_ms / self.options.fastest_rho,
            units_per_second=told["networks"][0]["settings"]["work_units_per_s"],
            alone_ms={str(highest): alone_ms})
        words = cell_words(self.options, self.rest, self.group[0])
        words[words.index("--variants") + 1] = f"{COMPUTING},{BASELINE}"
        words[words.index("--kinds") + 1] = "train"
        words[words.index("--repetitions") + 1] = "1"
        told = run_at(self.options, self.ranks, highest,
                      [*words, *computing_words(self.options, self.group[0], self.told)])
        self.told["computing_ms"] = median_of(told, COMPUTING, "train")
        write_json(self.path, self.told)

    def measure(self, rate):
        alone_ms = median_of(self.measure_alone(rate), BASELINE, "alone")
        self.told["alone_ms"][str(rate)] = alone_ms
        write_json(self.path, self.told)
        return alone_ms / self.told["computing_ms"]

    def find(self, rho):
        """Returns (rate, its rho)."""
        if self.told is None:
            self.begin()
        tried = self.tried
        rate = find_rate(rho, tried, self.measure, self.options.rates)
        print(f"# {self.group[0]}, {self.group[1]} hosts: wanted rho {rho:g}, reached "
              f"{tried[rate]:.3f} at {rate / 1e6:.1f} Mbit/s", file=sys.stderr, flush=True)
        return rate, tried[rate]


def ranks_of(options, hosts, wait):
    return Ranks(hosts, 1, wait, f"caramel-{os.getpid()}", "mpirun", options.cell_seconds)


def path_of(options, cell):
    return options.out / "cells" / f"{cell.name}.json"


def read_cells(options):
    """Returns what OUT/cells has: {Cell: what sync_bench saved}."""
    found = {}
    for path in sorted((options.out / "cells").glob("*.json")):
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            found[Cell(**told["cell"])] = told
        except (ValueError, KeyError, TypeError) as failure:
            raise Failure(f"{path}: not a file of run_caramel.py ({failure!r}); "
                          "remove it") from failure
    return found


def cells_of(options):
    return [Cell(network, hosts, wait, rho) for hosts in options.hosts
            for network in options.networks for wait in options.waits for rho in options.rhos]


def modelled_seconds(options, cell):
    """Returns about how long a cell takes: a ring at the rate of the cell, computing as Rates sets
    it, and iterations of the length of one with a single wait."""
    wire_bytes = (2 * (cell.hosts - 1) / cell.hosts * scale_of(options, cell.network)
                  * network_bytes(cell.network))
    computing_s = wire_bytes * 8 / options.rates[1] / options.fastest_rho
    alone_s = cell.rho * computing_s
    train_s = computing_s / 3 + max(2 * computing_s / 3, alone_s)
    iterations = options.warmup + options.iterations
    alone_count = len(options.variants) - 1 if options.costs else 1
    runs_s = (computing_s + alone_count * alone_s
              + (len(options.variants) - 1) * train_s) * iterations
    if options.ddp:
        runs_s += (computing_s + train_s) * iterations + JOB_SECONDS / options.repetitions
    rates_s = 2 * (JOB_SECONDS + alone_s * iterations)
    return (rates_s + JOB_SECONDS
            + options.repetitions * (runs_s + RUN_SECONDS * (alone_count + len(options.variants))))


def minutes_left(options, missing, found):
    measured = [(modelled_seconds(options, cell), told["seconds"])
                for cell, told in found.items()]
    factor = 1.0
    if measured:
        factor = sum(seconds for _, seconds in measured) / sum(model for model, _ in measured)
    return math.ceil(factor * sum(modelled_seconds(options, cell) for cell in missing) / 60)


def measure_cell(options, rest, rates, cell):
    """Measures a cell, and writes its file."""
    began = time.monotonic()
    rate, rate_rho = rates.find(cell.rho)
    words = cell_words(options, rest, cell.network)
    told = run_at(options, rates.ranks, rate,
                  [*words, *computing_words(options, cell.network, rates.told)],
                  lambda folder, told: add_ddp(options, rates, cell, folder, told))
    for variant, kind in ((COMPUTING, "train"), (BASELINE, "train"), (BASELINE, "alone")):
        median_of(told, variant, kind)
    told = dict(cell=vars(cell), asked=asked_words(options, rest, cell.network),
                variants=[*options.variants, *([DDP] if options.ddp else [])], rate=rate,
                rate_rho=rate_rho, seconds=round(time.monotonic() - began, 1), **told)
    write_json(path_of(options, cell), told)
    return told


def measure(options, rest, found):
    """Measures the cells that OUT lacks, and adds them to `found`."""
    cells = cells_of(options)
    for cell in cells:
        if cell in found:
            check_same_words(path_of(options, cell), found[cell]["asked"],
                             asked_words(options, rest, cell.network))
    missing = [cell for cell in cells if cell not in found]
    rates = {cell.group: Rates(options, rest, cell.group) for cell in missing}
    print(f"# {len(cells)} cells of {len(options.variants)} variants, "
          f"{len(cells) - len(missing)} of them done; about "
          f"{minutes_left(options, missing, found)} min", file=sys.stderr, flush=True)
    if options.estimate:
        return
    for place, cell in enumerate(missing):
        print(f"# {cell.name}: {len(missing) - place} cells left, about "
              f"{minutes_left(options, missing[place:], found)} min", file=sys.stderr, flush=True)
        found[cell] = measure_cell(options, rest, rates[cell.group], cell)


# --- Options -------------------------------------------------------------------------------------


def positive_list(text):
    try:
        numbers = [float(word) for word in word_list(text)]
    except ValueError:
        numbers = []
    if not numbers or not all(0 < number < math.inf for number in numbers):
        raise argparse.ArgumentTypeError(f"'{text}' is invalid; expected numbers above 0")
    return numbers


def rate_limits(text):
    """Two rates in Gbit/s. Returns them in bit/s."""
    rates = sorted(positive_list(text))
    if len(rates) != 2:
        raise argparse.ArgumentTypeError(f"'{text}' is invalid; expected two rates")
    return tuple(round(rate * 1e9 / RATE_STEP) * RATE_STEP for rate in rates)


def variant_list(text):
    """Always with computing and the baseline, which the figures need."""
    return list(dict.fromkeys([COMPUTING, BASELINE, *word_list(text)]))


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--hosts", type=number_list(2), default="2,4",
                        help="emulated hosts of one rank each")
    parser.add_argument("--networks", type=network_list, default="resnet50,vgg16,inception_v3",
                        help="names of networks, separated by commas, or all")
    parser.add_argument("--rhos", type=positive_list, default="0.5,0.75,1,1.5,2,3",
                        help="communication alone / computing alone")
    parser.add_argument("--variants", type=variant_list, default=VARIANTS,
                        help="of sync_bench, separated by commas; "
                        f"{COMPUTING} and {BASELINE} are always among them")
    parser.add_argument("--waits", type=wait_list, default="yield", help="of MPI: spin, yield")
    parser.add_argument("--rates", type=rate_limits, default="0.15,1", metavar="LEAST,HIGHEST",
                        help="limits of the rate of a host's network in Gbit/s; at higher rates "
                        "the processor time of the sockets disturbs computing")
    parser.add_argument("--fastest-rho", type=float, default=0.5,
                        help="rho at the highest rate, which sets the time of computing")
    parser.add_argument("--gradient-mb", type=float, default=8,
                        help="each network is scaled so that its gradients have so many MB")
    parser.add_argument("--processor", action="store_true",
                        help="cores of this machine compute, and no accelerator")
    parser.add_argument("--costs", action="store_true",
                        help="measure the communication of each variant alone, too")
    parser.add_argument("--ddp", choices=("scaled", "unscaled"), nargs="?", const="scaled",
                        help=f"measure {DDP}, too, with buckets of 1 MB and then 25 MB that are "
                             "scaled like the network, or unscaled")
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=6,
                        help="iterations before the measured ones; plans are made in them")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--run-seconds", type=float, default=10, help="limit of a run")
    parser.add_argument("--estimate", action="store_true",
                        help="print how long the measurement takes, and measure nothing")
    parser.add_argument("--report", action="store_true",
                        help="print the tables of OUT, and measure nothing")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "caramel")
    parser.add_argument("--cell-seconds", type=float, default=7200, help="time limit of a job")
    options, rest = parser.parse_known_args()
    if not 0 < options.fastest_rho <= min(options.rhos):
        parser.error(f"--fastest-rho {options.fastest_rho:g} is out of range; expected above 0 and "
                     f"at most {min(options.rhos):g}, the least rho")
    if not options.gradient_mb > 0:
        parser.error(f"--gradient-mb {options.gradient_mb:g} is out of range; expected above 0")
    if options.repetitions < 1:
        parser.error(f"--repetitions {options.repetitions} is out of range; expected 1 or more")
    if options.ddp and options.processor:
        parser.error("--ddp goes with an accelerator; leave out --processor")
    options.build, options.out = options.build.resolve(), options.out.resolve()
    return options, rest


def main():
    heed_signals()
    options, rest = parse_options()
    try:
        found = read_cells(options)
        if not options.report:
            measure(options, rest, found)
        if options.estimate:
            return 0
        if not found:
            raise Failure(f"{options.out} has no cells")
    except Failure as failure:
        sys.exit(f"run_caramel.py: {failure}")
    cells = {cell: Figures(told) for cell, told in found.items()}
    text = "\n".join(report(cells)) + "\n"
    print(text, end="")
    write_report(options.out / "caramel.md", text)
    write_json(options.out / "caramel.json", json_of(cells))
    return 0


if __name__ == "__main__":
    sys.exit(main())

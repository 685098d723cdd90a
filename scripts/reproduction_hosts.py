"""The machinery under scripts/reproduce: commands, emulated hosts with a database, and the requests
that arrive at their storage."""

import calendar
import contextlib
import datetime
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

NAME = "scripts/reproduce"
ROOT = pathlib.Path(__file__).resolve().parent.parent
CLUSTER = ROOT / "scripts" / "cluster"
JOB_SECONDS_MAX = 900
CONNECTIONS_OF_MOUNT = 8       # as in scripts/remote-storage; they are opened host after host
ORDER_REQUESTS_MAX = 300       # requests of a run that are kept for a plot, evenly spaced
STRIPE_BYTES = 1 << 20         # defaults of scripts/remote-storage
SEEK_FREE_BYTES = 2 << 20


class Failure(Exception):
    """An error that ends the program with one line."""


def last_line(text, prefix=""):
    lines = [line for line in text.splitlines() if line.startswith(prefix) and line.strip()]
    return lines[-1] if lines else ""


def call(*words, seconds_max=JOB_SECONDS_MAX):
    """Runs a command that must succeed. The command has its own session, so only this script gets
    Ctrl-C; it then ends the command and gives it time to clean up."""
    words = [str(word) for word in words]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, errors="replace",
                               start_new_session=True)
    try:
        output, errors = process.communicate(timeout=seconds_max)
    except BaseException as failure:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=30)
        process.kill()
        process.wait()
        if isinstance(failure, subprocess.TimeoutExpired):
            raise Failure(f"not done after {seconds_max} s: {shlex.join(words)}") from None
        raise
    if process.returncode != 0:
        said = last_line(errors, "lmdbio-") or last_line(errors) or last_line(output)
        raise Failure(said or f"exit code {process.returncode}: {shlex.join(words)}")
    return output


class Hosts:
    """Emulated hosts with the database, for a `with` statement."""

    def __init__(self, count, database, options, log=None, storage=()):
        """storage: more options of scripts/remote-storage up"""
        self.name = f"reproduce-{os.getpid()}"
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lmdbio-reproduce-"))
        self.mountpoint = self.folder / "mount"
        self.up = (count, database, self.mountpoint, "--delay-ms", options.delay, "--rate",
                   options.rate, *(("--log", log) if log else ()), *storage)

    def cluster(self, command, *words):
        return call(CLUSTER, "--name", self.name, command, *words)

    def __enter__(self):
        try:
            self.cluster("up", *self.up)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        # A second Ctrl-C does not stop this. Children would inherit ignored signals.
        before = {number: signal.signal(number, lambda *_: None)
                  for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}
        try:
            done = subprocess.run([CLUSTER, "--name", self.name, "down", "--force"], check=False,
                                  capture_output=True, text=True, stdin=subprocess.DEVNULL,
                                  start_new_session=True)
            if done.returncode != 0 and "no cluster" not in done.stderr:
                print(f"{NAME}: {last_line(done.stderr)}", file=sys.stderr)
            else:
                shutil.rmtree(self.folder, ignore_errors=True)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def bench(self, *job):
        """The report of one job of lmdbio-bench. The cache of the storage is warm, those of the
        hosts are empty."""
        self.cluster("drop")
        self.cluster("stats", "--reset")
        return self.report(*job)

    def report(self, program, hosts, per_host, command, *words):
        """As `bench`, without emptying caches first. A mount drops its cache at each opening."""
        report = self.folder / "report.json"
        self.cluster("run", "-n", hosts * per_host, "--per-host", per_host, program, command,
                     self.mountpoint, "--json", report, *words)
        return json.loads(report.read_text(encoding="utf-8"))

    def crossed(self):
        return json.loads(self.cluster("stats", "--json"))


# --- Requests at the storage ---

_REQUEST = re.compile(r"(\S+ \S+)\.(\d+) connection=(\d+) Read id=\d+ "
                      r"offset=0x([0-9a-f]+) count=0x([0-9a-f]+) ")


def requests_of(log):
    """[(seconds since the epoch, host, offset, bytes)] in the order of arrival. The log has times
    in UTC."""
    found = []
    for line in log.read_text(encoding="ascii").splitlines():
        match = _REQUEST.match(line)
        if match:
            moment = datetime.datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S")
            seconds = calendar.timegm(moment.timetuple()) + float(f"0.{match[2]}")
            host = (int(match[3]) - 1) // CONNECTIONS_OF_MOUNT
            found.append((seconds, host, int(match[4], 16), int(match[5], 16)))
    return found


def describe_order(requests, began_s):
    """The requests of a run, and the order of their arrival."""
    jumps = [abs(now[2] - before[2] - before[3]) for before, now in zip(requests, requests[1:])]
    back = sum(now[2] < before[2] for before, now in zip(requests, requests[1:]))
    step = -(-len(requests) // ORDER_REQUESTS_MAX) or 1
    return {
        "bytes": sum(request[3] for request in requests),
        "requests": len(requests),
        "followed": sum(jump == 0 for jump in jumps),
        "went_back": back,
        "jump_bytes_mean": sum(jumps) / len(jumps) if jumps else 0,
        "sample": [[round(seconds - began_s, 6), host, offset, size]
                   for seconds, host, offset, size in requests[::step]],
    }


def count_seeks(requests, stripes):
    """(pieces, seeks) of the requests on striped disks, in the order of their arrival. The model is
    that of tools/storage/striped_disks.h."""
    heads, pieces, seeks = {}, 0, 0
    for _, _, offset, left in requests:
        while left > 0:
            stripe, within = divmod(offset, STRIPE_BYTES)
            size = min(left, STRIPE_BYTES - within)
            disk, place = stripe % stripes, stripe // stripes * STRIPE_BYTES + within
            pieces += 1
            seeks += disk not in heads or abs(place - heads[disk]) > SEEK_FREE_BYTES
            heads[disk] = place + size
            offset, left = offset + size, left - size
    return pieces, seeks

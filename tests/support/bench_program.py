"""Starts lmdbio-bench, or another program, under mpirun, and checks its output.

A test is called as TEST BENCH MAKE MPIEXEC... The last word of MPIEXEC is the flag before the
number of ranks. tests/CMakeLists.txt has the settings for Open MPI.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

BENCH, MAKE, *MPIEXEC = sys.argv[1:] if len(sys.argv) > 1 else ("", "")
NAME = pathlib.Path(BENCH).name + ": "
# Whether tests/support/launch.py starts the ranks, which then do not use MPI.
IS_LAUNCHED = any(word.endswith("launch.py") for word in MPIEXEC)
# Whether a test runs all its combinations, as in `scripts/test all`, or a share of them.
IS_WIDE = bool(os.environ.get("LMDBIO_TEST_WIDE") or os.environ.get("LMDBIO_TEST_FULL"))
SECONDS_MAX = 120  # for one job; all take much less
LAUNCHER_WARNING = re.compile(r"\[\S+\] plm:ssh: Warning: setpgid\(\d+,\d+\) failed in parent |"
                              r"\[warn\] Epoll \w+\(\d+\) on fd \d+ failed|"
                              r"\[\S+\] PMIX ERROR: \S+ in file \S+/pmix_server\.c|"
                              r"\[\S+\] PMIX ERROR: \S+ in file \S+/ptl_base_connection_hdlr\.c|"
                              r"\[\S+\] tcp_peer_recv_connect_ack: invalid header type: \d+$")


def environment(**more):
    """The environment with `more`, without leak detection. MPI leaks memory, and MPI_Finalize
    unloads the libraries that identify these leaks. tests/support/mpi_main.cc looks for leaks."""
    options = os.environ.get("ASAN_OPTIONS", "")
    return os.environ | {"ASAN_OPTIONS": f"{options}:detect_leaks=0"} | more


def end(process):
    """Ends a job with SIGTERM and waits for it; mpirun then ends its ranks."""
    process.terminate()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Outcome:
    """A completed job. `errors` is standard error without the messages of mpirun."""

    def __init__(self, process, output, errors):
        self.exit_code = process.returncode
        self.output = output
        self.all_errors = errors
        self.errors = _without_frames(errors)

    def flaw_of_failure(self, exit_code, *words):
        """The flaw of a failure as a user sees it. It is "" if the job ended with `exit_code` and
        one line that begins with the program's name and contains all `words`."""
        lines = self.errors.splitlines()
        if self.exit_code != exit_code:
            return f"exit code {self.exit_code}: {self.all_errors}"
        if len(lines) != 1 or not lines[0].startswith(NAME):
            return f"not one line of {NAME}{self.errors}"
        missing = [word for word in words if word not in lines[0]]
        return f"no {missing} in: {lines[0]}" if missing else ""


def _without_frames(errors):
    """Removes the messages of mpirun, which stand between two lines of dashes. The launcher of Open
    MPI 5 also warns, without dashes, if the agent of another host is faster than itself, its
    libevent if a rank ends while it looks, and its PMIx if a rank has ended. The last two warnings
    are those of a port to which a stranger connects: a rank of another test may still look for
    its coordinator at the number of a port that this launcher has got since."""
    kept, is_inside = [], False
    for line in errors.splitlines():
        if line.startswith("-----"):
            is_inside = not is_inside
        elif line.strip() and not is_inside and not LAUNCHER_WARNING.match(line):
            kept.append(line)
    return "\n".join(kept)


def start(ranks, *words):
    """Starts a job and does not wait for it. Without ranks it is one process without mpirun,
    because mpirun takes a second to end a failed job. Such a process would start a daemon of Open
    MPI 4, which takes as long as the process itself, for ranks that it might spawn. All processes
    without that daemon have one session folder, and one that starts fails while another one removes
    it. Open MPI 5 would leave a file in /dev/shm after it, if it had a transport to others."""
    alone = {"OMPI_MCA_btl": "self", "OMPI_MCA_ess_singleton_isolated": "1",
             "OMPI_MCA_orte_create_session_dirs": "0"}
    launcher, more = ([*MPIEXEC, str(ranks)], {}) if ranks else ([], alone)
    return subprocess.Popen([*launcher, BENCH, *map(str, words)], text=True, errors="replace",
                            env=environment(**more), stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def await_end(process, seconds_max=SECONDS_MAX):
    """Waits for the outcome of a job. A hanging job is ended and fails the test."""
    try:
        output, errors = process.communicate(timeout=seconds_max)
    except subprocess.TimeoutExpired:
        end(process)
        output, errors = process.communicate()
        raise AssertionError(f"{process.args} did not end in {seconds_max} s: "
                             f"{output}{errors}") from None
    return Outcome(process, output, errors)


def run(ranks, *words):
    return await_end(start(ranks, *words))


def report(ranks, *words):
    """Runs a job that must succeed with empty standard error, and returns its JSON."""
    with tempfile.TemporaryDirectory(prefix="lmdbio-test-") as folder:
        path = pathlib.Path(folder) / "report.json"
        outcome = run(ranks, *words, "--json", path)
        if outcome.exit_code != 0 or outcome.errors:
            raise AssertionError(f"{words} on {ranks} ranks: exit code {outcome.exit_code}: "
                                 f"{outcome.output}{outcome.all_errors}")
        return json.loads(path.read_text(encoding="utf-8"))


def make(kind, *words):
    """Runs lmdbio-make, which must succeed."""
    subprocess.run([MAKE, kind, *map(str, words)], check=True, stdout=subprocess.DEVNULL,
                   timeout=SECONDS_MAX)

"""How tests start lmdbio-bench, or another program, under mpirun, and what a user sees of it.

A test is called as TEST BENCH MAKE MPIEXEC... where the last word of MPIEXEC is the flag that the
number of ranks follows. What is set for Open MPI is in tests/CMakeLists.txt.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

BENCH, MAKE, *MPIEXEC = sys.argv[1:] if len(sys.argv) > 1 else ("", "")
NAME = pathlib.Path(BENCH).name + ": "
SECONDS_MAX = 120  # of one job; none comes near


def environment(**more):
    """As it is, with `more`. MPI loses memory of its own, and MPI_Finalize unloads the libraries by
    which it could be told from ours (tests/support/mpi_main.cc): leaks are looked for there."""
    options = os.environ.get("ASAN_OPTIONS", "")
    return os.environ | {"ASAN_OPTIONS": f"{options}:detect_leaks=0"} | more


def end(process):
    """Ends a job that was started, and waits for it. mpirun ends its ranks when it is asked to."""
    process.terminate()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Outcome:
    """A job that has ended. `errors` is standard error without what mpirun itself says."""

    def __init__(self, process, output, errors):
        self.exit_code = process.returncode
        self.output = output
        self.all_errors = errors
        self.errors = _without_frames(errors)

    def flaw_of_failure(self, exit_code, *words):
        """What is wrong with a failure as a user sees it; "" if it ended with `exit_code` and one
        line that begins with the program's name and holds all `words`."""
        lines = self.errors.splitlines()
        if self.exit_code != exit_code:
            return f"exit code {self.exit_code}: {self.all_errors}"
        if len(lines) != 1 or not lines[0].startswith(NAME):
            return f"not one line of {NAME}{self.errors}"
        missing = [word for word in words if word not in lines[0]]
        return f"no {missing} in: {lines[0]}" if missing else ""


def _without_frames(errors):
    """mpirun puts what it says between two lines of dashes."""
    kept, is_inside = [], False
    for line in errors.splitlines():
        if line.startswith("-----"):
            is_inside = not is_inside
        elif line.strip() and not is_inside:
            kept.append(line)
    return "\n".join(kept)


def start(ranks, *words):
    """A job that goes on while the test does something. No ranks: one process without mpirun,
    which takes a second to end a job that fails."""
    launcher = [*MPIEXEC, str(ranks)] if ranks else []
    return subprocess.Popen([*launcher, BENCH, *map(str, words)], text=True,
                            errors="replace", env=environment(), stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def await_end(process, seconds_max=SECONDS_MAX):
    """The outcome of a job; a job that hangs is ended, and fails the test."""
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
    """Runs a job that must succeed without a word on standard error, and returns its JSON."""
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

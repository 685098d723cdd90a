"""Jobs of several ranks for the drivers of benchmarks: MPI's environment, one command, its end."""

import contextlib
import functools
import os
import pathlib
import signal
import subprocess
import sys
import time

SLOTS_MIN = 16


class Failure(Exception):
    """One line for the user."""


def mpi_environment():
    """Returns the environment without the caller's settings of Open MPI's waiting and placing.
    Open MPI 4 and 5 have different names for some settings, and ignore those of the other."""
    kept = {name: value for name, value in os.environ.items()
            if not (name.startswith(("OMPI_MCA_", "PRTE_MCA_"))
                    and ("yield" in name or "rmaps" in name))}
    settings = {
        "OMPI_MCA_btl": "self,vader",
        "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
        "OMPI_MCA_smsc": "^cma",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
    }
    if os.geteuid() == 0:
        settings |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return settings | kept


def mpirun_words(mpirun, ranks, wait, cores_per_rank=0):
    """Returns the words before a command of `ranks` ranks whose MPI waits by "spin" or "yield".

    Slots enough are declared, because with --oversubscribe MPI yields whatever it is told.

    cores_per_rank  each rank is bound to so many cores that no other rank has; 0: nothing is bound
    """
    binding = ["--map-by", f"slot:PE={cores_per_rank}", "--bind-to", "core"]
    return [mpirun, "--host", f"localhost:{max(SLOTS_MIN, ranks)}",
            "--mca", "mpi_yield_when_idle", "1" if wait == "yield" else "0",
            *(binding if cores_per_rank else []), "-n", ranks]


def heed_signals():
    """Turns signals that end the driver into an exception, so that the command under way is ended,
    too."""
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, lambda caught, _: sys.exit(128 + caught))


@contextlib.contextmanager
def signals_held():
    """Keeps signals that end the driver until the block ends. Yields what gives a child the
    driver's own mask."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK,
                                  (signal.SIGHUP, signal.SIGINT, signal.SIGTERM))
    restore = functools.partial(signal.pthread_sigmask, signal.SIG_SETMASK, mask)
    try:
        yield restore
    finally:
        restore()


def session_of(process_id):
    """The session of a process; None if there is no such process."""
    try:
        return os.getsid(process_id)
    except ProcessLookupError:
        return None


def end_session(leader):
    """Ends a process and all others of its session. MPI gives each rank a process group of its own,
    and a rank that has not met the others yet does not notice that mpirun is gone."""
    os.kill(leader, signal.SIGKILL)  # first, because it starts the others
    left = [leader]
    while left:
        numbers = [int(entry.name) for entry in pathlib.Path("/proc").iterdir()
                   if entry.name.isdigit()]
        left = [number for number in numbers
                if number != leader and session_of(number) == leader]
        for number in left:
            try:
                os.kill(number, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it has ended by itself
        time.sleep(0.01 if left else 0)


def run(words, environment, seconds_max):
    """Runs a command in a session of its own, and ends all of it if it takes too long or the driver
    is interrupted. Returns its exit code and output."""
    process = None
    try:
        with signals_held() as release_signals:  # none may come while the process has no name here
            process = subprocess.Popen([str(word) for word in words], env=environment, text=True,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, start_new_session=True,
                                       preexec_fn=release_signals)
        output, _ = process.communicate(timeout=seconds_max)
    except BaseException as failure:
        if process is not None:
            end_session(process.pid)
            process.communicate()
        if isinstance(failure, subprocess.TimeoutExpired):
            raise Failure(f"{words[0]} took longer than {seconds_max} s") from failure
        raise
    return process.returncode, output

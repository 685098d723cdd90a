"""Runs a task of a reader in a process of its own, so that no reader disturbs another.

    peer_process.py FOLDER    (for run_task: reads FOLDER/task.json, writes FOLDER/result.json)
"""

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from output_files import scratch_folder  # noqa: E402

import peer_formats  # noqa: E402
import readers  # noqa: E402
from readers import interface  # noqa: E402


@dataclasses.dataclass
class Outcome:
    """The result of a task. `absent` and `failure` are reasons in one line, or None."""

    runs: list = dataclasses.field(default_factory=list)
    hashes: list | None = None
    absent: str | None = None
    failure: str | None = None


def run_task(action, task, timeout_s):
    """Runs `action` of the task's reader: "make" or "run". The process and its workers end after
    `timeout_s` seconds."""
    with scratch_folder("peer") as name:
        folder = pathlib.Path(name)
        words = {"action": action, "task": dataclasses.asdict(task)}
        (folder / "task.json").write_text(json.dumps(words), encoding="utf-8")
        with open(folder / "stderr", "wb") as stderr, subprocess.Popen(
                [sys.executable, "-B", __file__, name], start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr) as process:
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                return Outcome(failure=f"not finished after {timeout_s} s")
            finally:
                if process.returncode is None:
                    os.killpg(process.pid, signal.SIGKILL)
        return read_outcome(folder, process.returncode)


def read_outcome(folder, status):
    try:
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        lines = (folder / "stderr").read_text(encoding="utf-8", errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "no message")
        ended = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        return Outcome(failure=f"{ended}: {last}")
    result["runs"] = [interface.Run(**run) for run in result["runs"]]
    return Outcome(**result)


def perform(action, task):
    """Does the work in this process."""
    try:
        reader = readers.find(task.reader)
        reader.check(task)
    except interface.Absent as absent:
        return Outcome(absent=str(absent))
    except ImportError as error:
        return Outcome(absent=interface.one_line(error))
    if action == "make":
        peer_formats.make(reader, task)
        return Outcome()
    runs, hashes = reader.run(task, lambda: peer_formats.settle(task))
    return Outcome(runs=runs, hashes=hashes)


def main():
    folder = pathlib.Path(sys.argv[1])
    words = json.loads((folder / "task.json").read_text(encoding="utf-8"))
    try:
        outcome = perform(words["action"], interface.Task(**words["task"]))
    except Exception as error:  # pylint: disable=broad-exception-caught
        outcome = Outcome(failure=interface.one_line(error))
    part = folder / "result.part"
    part.write_text(json.dumps(dataclasses.asdict(outcome)), encoding="utf-8")
    part.rename(folder / "result.json")


if __name__ == "__main__":
    main()

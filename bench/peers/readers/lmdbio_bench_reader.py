"""lmdbio-bench, which reads in C++ and delivers to no Python loop."""

import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from output_files import scratch_folder  # noqa: E402
from readers import interface  # noqa: E402

# The options of lmdbio-bench for each order
ORDERS = {
    "sequential": ("--order", "sequential"),
    "shuffled": ("--order", "shuffle", "--shuffle", "global"),
    "block": ("--order", "shuffle", "--shuffle", "block"),
}


class Reader(interface.Reader):
    """lmdbio-bench computes the checksum itself, and makes several runs."""

    label = "lmdbio"
    orders = tuple(ORDERS)
    is_peer = False
    ignores_limit = True
    promises = interface.LMDBIO_PROMISES
    has_workers = False

    def check_installed(self, task):
        if not pathlib.Path(task.lmdbio_bench).is_file():
            raise interface.Absent("not built")

    def run(self, task, settle):
        settle()
        with scratch_folder("peer") as folder:
            report = pathlib.Path(folder, "report.json")
            result = subprocess.run(
                [task.lmdbio_bench, "read", task.path, "--strategy", "auto", "--no-raw",
                 "--checksum", "values", *ORDERS[task.order],
                 "--seed", str(task.seed & interface.MASK),
                 "--global-batch-size", str(task.batch_size), "--json", report,
                 *(["--drop-caches"] if task.cache == "cold" else []),
                 *(["--cached-percent", str(task.cached_percent)]
                   if task.cache == "partial" else [])],
                stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            if result.returncode != 0:
                lines = result.stderr.strip().splitlines() or ["no message"]
                raise RuntimeError(f"lmdbio-bench failed: {lines[-1]}")
            runs = json.loads(report.read_text(encoding="utf-8"))["runs"]
        return [run_of(run, task.order) for run in runs], None


def run_of(run, order):
    ranks = run.get("ranks", 1)
    checksum = run.get("checksum")
    return interface.Run(
        f"lmdbio {run['strategy']}, {ranks} rank{'s' * (ranks != 1)}", order,
        run["records_per_s"], run["bytes_per_s"], run["first_batch_s"],
        int(checksum, 16) if isinstance(checksum, str) else checksum)

"""One job of sync_bench, for the drivers that compare its variants."""

import json
import sys

from mpi_jobs import Failure, mpi_environment, mpirun_words, run


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
    reported = cell["environment"]["mpi_wait"]
    if reported not in (wait, "unknown"):
        raise Failure(f"MPI waits by {reported}; expected {wait}")
    return cell, output

"""Tests compare_horovod.py and its part of run_matrix.py on little data.

    compare_horovod_test.py BUILD_FOLDER

The ranks check the sums themselves; one test shows that they find a wrong one. Tests that need
Horovod are skipped where it is missing.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

FOLDER = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(sys.argv[1])
SKIPPED = 77
sys.path.insert(0, str(FOLDER))

import compare_horovod  # noqa: E402

LITTLE = ("--scale", "0.001", "--compute-ms", "500", "--iterations", "2", "--warmup", "1",
          "--repetitions", "1")
WHY_ABSENT = compare_horovod.why_absent(compare_horovod.parse_options([]))


def run_program(program, *words):
    return subprocess.run(
        [sys.executable, "-B", FOLDER / program, "--build", BUILD, *words],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=240,
        env=os.environ | {"HOROVOD_CACHE_CAPACITY": "3", "OMPI_MCA_mpi_yield_when_idle": "1"})


def made_up_cell(iteration_ms, idle_ms, repetitions=6):
    """A cell in which Horovod and its replays have these times. The last repetition of each is 100
    times as slow, beside a neighbour."""
    runs = []
    for repetition in range(repetitions + 1):
        is_last = repetition == repetitions
        for variant, _ in compare_horovod.VARIANTS:
            is_replay = variant.startswith("lmdbio")
            phases = {phase: dict(iteration_ms=[ms * (100 if is_last else 1)], submit_ms=[1],
                                  wait_ms=[2], other_threads=0.1,
                                  neighbour_cores=0.9 if is_last and phase == "idle" else 0.01)
                      for phase, ms in (("none", 5), ("idle", idle_ms[is_replay]),
                                        ("train", iteration_ms[is_replay]))}
            runs.append(dict(variant=variant, repetition=repetition, phases=phases, tensors=4,
                             gradient_bytes=1e6))
    return dict(network="made up", ranks=2, wait="spin", runs=runs)


def lines_of(cell):
    options = compare_horovod.parse_options(["--repetitions", "7"])
    return "\n".join(compare_horovod.cell_lines(options, cell))


class WithoutHorovodTest(unittest.TestCase):
    def test_ratios_and_verdict(self):
        text = lines_of(made_up_cell((100, 114), (10, 8.6)))
        self.assertIn("| `horovod` | 5.00 | 10.00 | 100.00 | 1.00 | 2.00 | 10 | 10 | 6/7 | - | - |",
                      text)
        self.assertIn("| 6/7 | 0.86 (0.86 to 0.86) | 1.14 (1.14 to 1.14) |", text)
        self.assertIn("differ from 1 by more than 15 %: none.", text)
        text = lines_of(made_up_cell((100, 84), (10, 11.6)))
        self.assertIn("15 %: lmdbio:horovod:mpi-blocking idle, lmdbio:horovod:mpi-blocking train, "
                      "lmdbio:horovod idle,", text)

    def test_few_runs_have_no_interval(self):
        self.assertIn("| 5/7 | 0.86 | 1.14 |", lines_of(made_up_cell((100, 114), (10, 8.6), 5)))

    def test_a_ratio_pairs_the_runs_of_a_repetition(self):
        # The machine is up to 3 times as slow from one repetition to the next.
        cell = made_up_cell((100, 120), (10, 10))
        for one in cell["runs"]:
            for phase in one["phases"].values():
                phase["iteration_ms"] = [ms * (1 + one["repetition"] % 3)
                                         for ms in phase["iteration_ms"]]
        self.assertIn("| 6/7 | 1.00 (1.00 to 1.00) | 1.20 (1.20 to 1.20) |", lines_of(cell))

    def test_the_interval_is_that_of_the_ratios(self):
        runs = [dict(phases=dict(train=dict(iteration_ms=[ms])))
                for ms in (10, 8, 9, 10, 10, 11, 12)]
        pairs = [(one, runs[0]) for one in runs[1:]]
        ratio, (least, most) = compare_horovod.ratio_of(pairs, "train")
        self.assertEqual(ratio, 1)
        self.assertTrue(0.8 <= least < 1 < most <= 1.2)

    def test_a_repetition_with_one_disturbed_run_has_no_ratio(self):
        cell = made_up_cell((100, 120), (10, 10), 2)
        for one in cell["runs"]:
            if one["repetition"] == 1 and one["variant"] == "horovod":
                one["phases"]["train"] |= dict(iteration_ms=[300], neighbour_cores=0.9)
        self.assertIn("| `lmdbio:horovod` | 5.00 | 10.00 | 120.00 | 1.00 | 2.00 | 10 | 10 | 2/7 | "
                      "1.00 | 1.20 |", lines_of(cell))

    def test_all_runs_count_if_each_had_a_neighbour(self):
        cell = made_up_cell((100, 100), (10, 10), 1)
        cell["runs"] = [one for one in cell["runs"] if one["repetition"] == 1]
        self.assertIn("| `horovod` | 500.00 | 1000.00 | 10000.00 | 1.00 | 2.00 | 10 | 10 | 0/7 |",
                      lines_of(cell))

    def test_settings_of_the_caller_do_not_matter(self):
        options = compare_horovod.parse_options([])
        with mock.patch.dict(os.environ, HOROVOD_CYCLE_TIME="9", HOROVOD_TIMELINE="/nowhere"):
            chosen = compare_horovod.environment_for(options, 1024)
        self.assertEqual((chosen["HOROVOD_CYCLE_TIME"], chosen["HOROVOD_CACHE_CAPACITY"],
                          chosen["HOROVOD_FUSION_THRESHOLD"]), ("1", "1024", "67108864"))
        self.assertNotIn("HOROVOD_TIMELINE", chosen)

    def test_a_python_without_horovod(self):
        result = run_program("compare_horovod.py", "--python", "/nowhere/python", *LITTLE)
        self.assertEqual((result.returncode, result.stdout), (SKIPPED, ""))
        self.assertIn("/nowhere/python does not exist; run scripts/setup --horovod", result.stderr)
        with tempfile.TemporaryDirectory() as folder:
            bare = pathlib.Path(folder) / "python"
            bare.write_text("#!/bin/sh\nexit 1\n", encoding="ascii")
            bare.chmod(0o755)
            result = run_program("compare_horovod.py", "--python", bare, *LITTLE)
        self.assertEqual(result.returncode, SKIPPED)
        self.assertIn("python has no mpi4py", result.stderr)

    def test_mistakes(self):
        for words, told in ((["--networks", "resnet5"], "'resnet5' is unknown"),
                            (["--waits", "sleep"], "'sleep' is unknown"),
                            (["--ranks", "0"], "'0' is invalid"),
                            (["--scale", "0"], "--scale 0.0 is out of range"),
                            (["--compute-ms", "-1"], "--compute-ms -1.0 is out of range"),
                            (["--warmup", "0"], "--warmup 0 is out of range")):
            result = run_program("compare_horovod.py", *words)
            self.assertEqual(result.returncode, 2)
            self.assertIn(told, result.stderr)


@unittest.skipIf(WHY_ABSENT, WHY_ABSENT)
class WithHorovodTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name) / "out"

    def check_cell(self, cell, tensor_count):
        runs = {run["variant"]: run for run in cell["runs"]}
        self.assertEqual(set(runs), {"horovod", "lmdbio:horovod", "lmdbio:horovod:mpi-blocking",
                                     "horovod+cache", "lmdbio:cache", "lmdbio:cache:mpi-blocking"})
        for run in runs.values():
            self.assertEqual(run["tensors"], tensor_count)
            self.assertEqual({name: len(phase["iteration_ms"])
                              for name, phase in run["phases"].items()},
                             {"none": 2, "idle": 2, "train": 2})
            # Three iterations with the one of the warm-up.
            self.assertEqual({name: phase["checked_tensors"]
                              for name, phase in run["phases"].items()},
                             dict.fromkeys(("none", "idle", "train"), 3 * tensor_count))
        for variant, words in (("horovod", ("Horovod 0.", "cache of 0")),
                               ("horovod+cache", ("Horovod 0.", "cache of 1024")),
                               ("lmdbio:cache", ("cache of 1024 responses",))):
            for word in words:
                self.assertIn(word, runs[variant]["description"])
        for coordinator in ("horovod", "cache"):
            for variant, calls in ((f"lmdbio:{coordinator}", "over MPI, by trial"),
                                   (f"lmdbio:{coordinator}:mpi-blocking", "MPI's collectives, "
                                    "blocking")):
                self.assertIn(f"coordinator {coordinator}, pacing cycle",
                              runs[variant]["description"])
                self.assertIn("buckets up to 67108864 bytes", runs[variant]["description"])
                self.assertIn(calls, runs[variant]["description"])

    def test_all_variants_sum(self):
        result = run_program("compare_horovod.py", "--networks", "alexnet", "--ranks", "2",
                             "--waits", "spin", "--out", self.out, *LITTLE)
        self.assertEqual(result.returncode, 0, result.stderr)
        told = json.loads((self.out / "horovod.json").read_text(encoding="utf-8"))
        [cell] = told["cells"]
        self.assertEqual((cell["network"], cell["ranks"], cell["wait"]), ("alexnet", 2, "spin"))
        self.check_cell(cell, 16)
        self.assertEqual((self.out / "horovod.md").read_text(encoding="utf-8"), result.stdout)

    def test_a_part_of_the_matrix(self):
        result = run_program("run_matrix.py", "--networks", "resnet18", "--ranks", "2", "--waits",
                             "yield", "--variants", "none,mpi", "--baseline", "mpi", "--no-ddp",
                             "--out", self.out, *LITTLE)
        self.assertEqual(result.returncode, 0, result.stderr)
        matrix = json.loads((self.out / "matrix.json").read_text(encoding="utf-8"))
        [cell] = matrix["horovod"]
        self.assertEqual((cell["network"], cell["ranks"], cell["wait"]), ("resnet18", 2, "yield"))
        self.check_cell(cell, 62)
        self.assertIn("| `horovod+cache` |", result.stdout)

    def check_values(self, change):
        """Runs check_values of a rank on right values and then on changed ones."""
        return subprocess.run(
            [compare_horovod.HOROVOD_PYTHON, "-B", "-c",
             "import numpy as np, replay_rank\n"
             "tensors = [(f't{i}', np.full(9, 3 * (1 + 4 + i), np.float32)) for i in range(3)]\n"
             "replay_rank.check_values(tensors, factor=3, iteration=14)\n"
             f"{change}\n"
             "replay_rank.check_values(tensors, factor=3, iteration=14)\n"],
            cwd=FOLDER, capture_output=True, text=True, check=False, timeout=120,
            env=compare_horovod.mpi_environment())

    def test_wrong_sums_are_found(self):
        right = self.check_values("")
        self.assertEqual((right.returncode, right.stderr), (0, ""))
        for element in (0, 3, 4, -1):
            wrong = self.check_values(f"tensors[2][1][{element}] = 0")
            self.assertEqual(wrong.returncode, 1)
            self.assertIn("t2: iteration 14: elements are", wrong.stderr)

    def test_a_failed_rank_ends_the_job(self):
        result = subprocess.run(
            ["mpirun", "--host", "localhost:16", "-n", "2", compare_horovod.HOROVOD_PYTHON, "-B",
             "-c", "import contextlib, replay_rank\n"
             "with contextlib.ExitStack() as stack:\n"
             "    stack.push(replay_rank.end_job_after_failure)\n"
             "    if replay_rank.MPI.COMM_WORLD.rank == 1:\n"
             "        raise replay_rank.Failure('of rank 1')\n"
             "    replay_rank.MPI.COMM_WORLD.Barrier()\n"],
            cwd=FOLDER, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=60, env=compare_horovod.mpi_environment())
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("replay_rank.py: of rank 1\n", result.stderr)

    def test_a_build_without_benchmarks(self):
        result = run_program("compare_horovod.py", "--build", self.out)
        self.assertEqual(result.returncode, 1)
        self.assertIn("liblmdbio_sync_work.so does not exist; build the benchmarks", result.stderr)


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    outcome = unittest.main(exit=False).result
    if not outcome.wasSuccessful():
        sys.exit(1)
    if WHY_ABSENT:
        print(f"skipped in part: {WHY_ABSENT}")
        sys.exit(SKIPPED)

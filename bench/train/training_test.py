"""Tests run_training.py, python_cost.py, late_cost.py and late_ratio.py on little data.

    training_test.py BUILD_FOLDER

The drivers themselves compare losses and weights of the variants. Skipped where the system's Python
has no PyTorch or mpi4py.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))

import run_training  # noqa: E402

BUILD = pathlib.Path(sys.argv[1])
PYTHON = "/usr/bin/python3" if pathlib.Path("/usr/bin/python3").exists() else sys.executable
SKIPPED = 77
LITTLE = ("--repetitions", "1", "--iterations", "2", "--warmup", "4")


def run_of(variant, computing_ms, exchange_ms):
    """Returns a run of two ranks, the second of which always computes for 80 ms."""
    slowest = [max(ms, 80) for ms in computing_ms]
    return dict(variant=variant, computing_ms=slowest,
                computing_by_rank_ms=[computing_ms, [80] * len(computing_ms)],
                times_ms=[ms + exchange_ms for ms in slowest])


class UndisturbedTest(unittest.TestCase):
    def test_a_disturbed_rank_does_not_count(self):
        cell = dict(runs=[run_of("none", [81] * 12 + [160] * 8, 7),
                          run_of("horovod", [80] * 5 + [160] * 4 + [81] * 11, 12),
                          run_of("lmdbio", [160] * 8 + [81] * 12, 8)])
        lines = run_training.undisturbed_lines(cell, ["none", "horovod", "lmdbio"])
        self.assertEqual(lines[-4:], [
            "| `none` | 12 of 20 | 88.0 | 0.0 | - |",
            "| `horovod` | 16 of 20 | 93.0 | 5.0 | - |",
            "| `lmdbio` | 12 of 20 | 89.0 | 1.0 | 0.20 (0.20 to 0.25) |", ""])

    def test_too_few_iterations_have_no_row(self):
        few = run_of("lmdbio", [81] * 9 + [160] * 11, 8)
        lines = run_training.undisturbed_lines(
            dict(runs=[run_of("none", [80] * 20, 7), few]), ["none", "lmdbio"])
        self.assertEqual(lines[-2:], ["| `lmdbio` | 9 of 20 | - | - |", ""])
        self.assertEqual(run_training.undisturbed_lines(dict(runs=[few]), ["lmdbio"]), [])


class TrainingTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name)

    def train(self, *options):
        return subprocess.run(
            [sys.executable, "-B", FOLDER / "run_training.py", "--build", BUILD, "--out", self.out,
             *LITTLE, *options], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=False, timeout=240,
            env=os.environ | {"OMPI_MCA_mpi_yield_when_idle": "1"})  # must not reach the jobs

    def test_all_ways_train_the_same_model(self):
        variants = "none,horovod,ddp,lmdbio,lmdbio+copy:coordinator=cache,bucket_bytes=65536"
        result = self.train("--models", "transformer", "--ranks", "2", "--waits", "yield",
                            "--variants", variants)
        self.assertEqual(result.returncode, 0, result.stderr)
        told = json.loads((self.out / "training.json").read_text(encoding="utf-8"))
        [cell] = told["cells"]
        by_variant = {run["variant"]: run for run in cell["runs"]}
        for variant, why in told["absent"].items():
            self.assertEqual(bool(why), variant not in by_variant)
            if why:
                self.assertIn(f"`{variant}` is absent: {why}", result.stdout)
        self.assertLessEqual({"none", "ddp", "lmdbio"}, set(by_variant))
        for run in by_variant.values():
            self.assertEqual((len(run["times_ms"]), len(run["losses"]), run["tensors"]), (2, 6, 52))
        # Ranks that train for themselves have other weights than those that average.
        self.assertGreater(by_variant["none"]["weights_differ"], 0)
        cache = by_variant["lmdbio+copy:coordinator=cache,bucket_bytes=65536"]
        self.assertIn("coordinator cache", cache["description"][0])
        self.assertIn("buckets up to 65536 bytes", "\n".join(cache["description"]))
        for variant in by_variant:
            self.assertIn(f"| `{variant}` |", result.stdout)

    def test_an_interruption_loses_no_complete_repetition(self):
        words = [sys.executable, "-B", FOLDER / "run_training.py", "--build", BUILD, "--out",
                 self.out, *LITTLE, "--repetitions", "1000", "--models", "transformer", "--ranks",
                 "1", "--waits", "yield", "--variants", "none,lmdbio"]
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as process:
            for line in process.stderr:
                if "(3)" in line:
                    process.send_signal(signal.SIGTERM)
                    break
            output, errors = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM, errors)
        self.assertIn("of gradients, 2 runs of each variant", output)
        self.assertIn("The benchmark ended before all runs were done.", output)
        [cell] = json.loads((self.out / "training.json").read_text(encoding="utf-8"))["cells"]
        self.assertEqual(sorted((run["repetition"], run["variant"]) for run in cell["runs"]),
                         [(0, "lmdbio"), (0, "none"), (1, "lmdbio"), (1, "none")])

    def test_variants_without_gradients(self):
        result = self.train("--models", "mlp", "--ranks", "2", "--waits", "spin", "--idle",
                            "--variants", "none,lmdbio")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("The variants got no gradients.", result.stdout)
        told = json.loads((self.out / "training.json").read_text(encoding="utf-8"))
        for run in told["cells"][0]["runs"]:  # each rank has trained for itself
            self.assertGreater(run["weights_differ"], 0)

    def test_bound_ranks(self):
        result = self.train("--models", "accelerated", "--ranks", "1", "--waits", "yield",
                            "--variants", "none,lmdbio", "--cores-per-rank", "1")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("1 bound to each rank", result.stdout)
        [cell] = json.loads((self.out / "training.json").read_text(encoding="utf-8"))["cells"]
        for run in cell["runs"]:
            self.assertEqual((run["cores"], run["computing_by_rank_ms"]),
                             (1, [run["computing_ms"]]))
            for computing, iteration in zip(run["computing_ms"], run["times_ms"]):
                self.assertGreater(computing, 0)
                self.assertLess(computing, iteration)

    def test_mistakes(self):
        for words, told in ((["--variants", "none,horvod"], "variant 'horvod' is unknown"),
                            (["--waits", "sleep"], "'sleep' is unknown"),
                            (["--ranks", "0"], "'0' is invalid"),
                            (["--repetitions", "0"], "--repetitions 0 is out of range"),
                            (["--ranks", "1", "--cores-per-rank", "4096"],
                             "--cores-per-rank 4096 is out of range"),
                            (["--models", "mpl"], "model 'mpl' is unknown"),
                            (["--models", "resnet", "--ranks", "1", "--waits", "yield", "--depth",
                              "21", "--variants", "none"], "depth 21 is invalid")):
            result = self.train(*words)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(told, result.stderr)

    def cost(self, program, *words):
        """The output of a program that times calls of Python."""
        result = subprocess.run(
            [PYTHON, "-B", FOLDER / program, *words], capture_output=True, text=True, check=False,
            timeout=120, env=os.environ | {"LMDBIO_LIBRARY": str(BUILD / "lib" / "liblmdbio.so")})
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_the_cost_of_python(self):
        output = self.cost("python_cost.py", "--tensors", "10", "--repetitions", "3")
        self.assertRegex(output, re.compile(r"^\| \*\*together\*\* \| \*\*[\d.]+\*\* \|$",
                                            re.MULTILINE))

    def test_the_cost_of_late_updates(self):
        output = self.cost("late_cost.py", "--modules", "3", "--repetitions", "2")
        rows = re.findall(r"(?m)^\| .* \| -?[\d.]+ \| -?[\d.]+ \|$", output)
        self.assertEqual(len(rows), 5)

    def test_the_ratio_of_late_updates(self):
        result = subprocess.run(
            [PYTHON, "-B", FOLDER / "late_ratio.py", "--hosts", "1", "--rhos", "1,2",
             "--layer-mb", "0.1", "--repetitions", "2", "--warmup", "2", "--iterations", "2",
             "--build", BUILD], capture_output=True, text=True, check=False, timeout=300)
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = re.findall(r"(?m)^\| ([12]) \| (\w+\(\)), \w+ \| [\d.]+ \| ([\d.]+)", result.stdout)
        self.assertEqual([row[:2] for row in rows], [
            (rho, way) for rho in "12" for way in ("synchronize()", "step()", "step()")])
        self.assertEqual([ratio for _, way, ratio in rows if way == "synchronize()"], ["1.000"] * 2)


if __name__ == "__main__":
    if subprocess.run([PYTHON, "-c", "import torch, mpi4py"], capture_output=True,
                      check=False).returncode != 0:
        print(f"skipped: {PYTHON} has no PyTorch or no mpi4py")
        sys.exit(SKIPPED)
    sys.argv = sys.argv[:1]
    unittest.main()

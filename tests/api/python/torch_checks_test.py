"""tests/gpu/torch_checks.py on the GPUs of tests/emulated_torch.

Exits with 77 without that backend of PyTorch.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SKIPPED = 77
ROOT = pathlib.Path(__file__).resolve().parents[3]
CHECKS = ROOT / "tests" / "gpu" / "torch_checks.py"
PYTHON = ROOT / "build" / "trainers" / "bin" / "python"
HAS_BACKEND = bool(os.environ.get("LMDBIO_EMULATED_TORCH")) and PYTHON.exists()
SECONDS_MAX = 1500  # only a hang takes so long


class TorchChecks(unittest.TestCase):
    def run_checks(self, *words, faults=""):
        """(exit code, rows)"""
        with tempfile.TemporaryDirectory(prefix="lmdbio-test-") as folder:
            ended = subprocess.run(
                [PYTHON, "-B", CHECKS, "--backend", "emulated", *words],
                text=True, check=False, capture_output=True, timeout=SECONDS_MAX,
                env=os.environ | {"LMDBIO_EMULATED_GPU": f"{folder}/devices-%g",
                                  "LMDBIO_EMULATED_GPU_FAULTS": faults})
        self.assertEqual(ended.stderr, "")
        return ended.returncode, [json.loads(line) for line in ended.stdout.splitlines()]

    def test_all_rows_pass(self):
        code, rows = self.run_checks("--job-seconds", "300", "--seconds-max", "1500")
        self.assertEqual((code, {row["state"] for row in rows}), (0, {"passed"}), rows)
        self.assertEqual(len({row["name"] for row in rows}), 6)
        self.assertEqual({row["id"] for row in rows}, {"C7"})

    def test_a_reduction_that_does_not_run_is_seen(self):
        code, rows = self.run_checks("--quick", faults="cuLaunchKernel:9:skip")
        self.assertEqual((code, rows[0]["state"]), (1, "failed"), rows)
        self.assertRegex(rows[0]["note"], "different parameters|from the training on the CPU")

    def test_ranks_that_reduce_through_the_host_are_seen(self):
        code, rows = self.run_checks("--quick", faults="cuIpcGetMemHandle:hide")
        self.assertEqual((code, rows[0]["state"]), (1, "failed"), rows)
        self.assertIn("no tensor was reduced on the GPU", rows[0]["note"])

    def test_a_rank_that_hangs_is_ended(self):
        code, rows = self.run_checks("--quick", "--seconds-max", "20",
                                     faults="cuIpcOpenMemHandle:1:hang")
        self.assertEqual((code, rows[0]["state"]), (1, "failed"), rows)
        self.assertEqual(rows[1]["note"], "no time was left")

    def test_a_call_that_fails_is_told(self):
        code, rows = self.run_checks("--quick", faults="cuStreamCreateWithPriority:2:2")
        self.assertEqual((code, rows[0]["state"]), (1, "failed"), rows)
        self.assertRegex(rows[0]["note"], "^rank [01]: exit code 1: .")


if __name__ == "__main__":
    if not HAS_BACKEND:
        print("skipped: run scripts/setup --trainers, and configure again")
        sys.exit(SKIPPED)
    unittest.main()

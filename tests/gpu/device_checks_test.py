#!/usr/bin/env python3
"""lmdbio-device-checks on the stand-in for a driver: all checks pass, and faults are seen.

    device_checks_test.py CHECKS DRIVER KERNELS

CHECKS is lmdbio-device-checks, DRIVER the stand-in's libcuda.so.1. KERNELS is the file of kernels
that the library has, or nothing.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from left_processes import processes_with  # noqa: E402

CHECKS, DRIVER, KERNELS = sys.argv[1:] if len(sys.argv) > 1 else ("", "", "")
SECONDS_MAX = 300  # for one run; all take much less
PROCESSES = [f"{ranks} processes, {way}"
             for way in ("through the host", "on the GPU, order host", "on the GPU, order event",
                         "on the GPU, order mark") for ranks in (1, 2, 4, 8)]


class Run:
    """A run that has ended."""

    def __init__(self, process, output, errors):
        self.exit_code, self.output, self.errors = process.returncode, output, errors
        lines = [json.loads(line) for line in output.splitlines()]
        self.facts = [line for line in lines if "id" not in line]
        self.rows = [line for line in lines if "id" in line]

    def row(self, name):
        found, = (row for row in self.rows if row["name"] == name)
        return found

    def states(self):
        return [row["state"] for row in self.rows]


class ChecksCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lmdbio-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def start(self, *words, faults="", **more):
        environment = os.environ | {"LD_LIBRARY_PATH": str(pathlib.Path(DRIVER).parent),
                                    "LMDBIO_EMULATED_GPU": f"{self.folder}/devices-%g",
                                    "LMDBIO_EMULATED_GPU_FAULTS": faults} | more
        return subprocess.Popen([CHECKS, "--quick", "--json", "-", *words], text=True,
                                env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run_checks(self, *words, **more):
        process = self.start(*words, **more)
        try:
            output, errors = process.communicate(timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            self.fail(f"{process.args} did not end: {process.communicate()}")
        self.assertEqual(processes_with(self.folder), [])
        return Run(process, output, errors)

    def listed(self, *words):
        output = subprocess.run([CHECKS, "--list", *words], check=True, text=True,
                                capture_output=True).stdout
        return [tuple(line.split("  ", 1)) for line in output.splitlines()]


class WithoutKernels(ChecksCase):
    def test_checks_that_need_kernels_fail_and_say_so(self):
        run = self.run_checks("--only", "C1,C3")
        self.assertEqual(run.exit_code, 1)
        self.assertIn("built without kernels", run.rows[0]["note"])
        self.assertEqual(run.row("2 processes, through the host")["state"], "passed")


class WithKernels(ChecksCase):
    def assert_passes(self, only):
        run = self.run_checks("--only", only)
        self.assertEqual((run.exit_code, run.errors), (0, ""), run.output)
        self.assertEqual([(row["id"], row["name"]) for row in run.rows],
                         self.listed("--only", only))
        self.assertEqual(set(run.states()), {"passed"}, run.output)
        self.assertIn("Emulated GPU 0", run.facts[0]["gpu"])

    def test_kernels_pointers_and_rows(self):
        self.assert_passes("C1,C2,C5,C6")

    def test_ranks_reduce(self):
        self.assert_passes("C3")

    def test_ranks_end(self):
        self.assert_passes("C4")

    def test_the_seed_is_told_and_gives_the_same_again(self):
        run = self.run_checks("--only", "C1", "--seed", "7", faults="cuLaunchKernel:9:skip")
        again = self.run_checks("--only", "C1", "--seed", "7", faults="cuLaunchKernel:9:skip")
        other = self.run_checks("--only", "C1", faults="cuLaunchKernel:9:skip")
        self.assertEqual(run.facts[0]["seed"], 7)
        self.assertIn("(seed 7)", run.rows[0]["note"])
        self.assertEqual(run.rows, again.rows)
        self.assertNotEqual(other.facts[0]["seed"], 7)

    # A call that says success and does nothing: wrong bytes, and no error.

    def test_a_kernel_that_does_not_run_is_seen(self):
        run = self.run_checks("--only", "C1,C2", faults="cuLaunchKernel:2:skip")
        self.assertEqual((run.exit_code, set(run.states())), (1, {"failed"}))
        for row in run.rows:
            self.assertIn("is wrong", row["note"])

    def test_a_reduction_that_does_not_run_is_seen(self):
        run = self.run_checks("--only", "C3",
                              faults="cuMemcpyDtoHAsync:4:skip,cuLaunchKernel:3:skip")
        self.assertEqual(run.exit_code, 1)
        for name in PROCESSES:
            row = run.row(name)
            self.assertEqual(row["state"], "failed", row)
            self.assertRegex(row["note"], "element .* (is wrong|differs from that of the host)")

    def test_a_row_that_is_not_copied_is_seen(self):
        run = self.run_checks("--only", "C6",
                              faults="cuLaunchKernel:1:skip,cuMemcpyHtoDAsync:1:skip")
        self.assertEqual((run.exit_code, set(run.states())), (1, {"failed"}))
        for row in run.rows:
            self.assertRegex(row["note"], "another row at position|records, not")

    def test_a_wrong_answer_about_a_pointer_is_seen(self):
        run = self.run_checks("--only", "C5", faults="cuPointerGetAttributes:1:skip")
        self.assertEqual(run.exit_code, 1, run.output)
        self.assertIn("not memory of a GPU", run.rows[0]["note"])

    # Calls that fail, hang or kill.

    def test_a_call_that_fails_ends_one_check(self):
        run = self.run_checks("--only", "C1", faults="cuLaunchKernel:30:700")
        self.assertEqual(run.exit_code, 1)
        self.assertEqual(run.rows[0]["state"], "failed")
        self.assertIn("CUDA_ERROR_ILLEGAL_ADDRESS", run.rows[0]["note"])
        self.assertIn("passed", run.states())

    def test_a_killed_check_is_told(self):
        run = self.run_checks("--only", "C1", faults="cuLaunchKernel:30:kill")
        self.assertEqual(run.exit_code, 1)
        self.assertIn("ended by signal 9", run.rows[0]["note"])

    def test_a_check_that_hangs_ends_alone(self):
        run = self.run_checks("--only", "C3", "--seconds-max", "6",
                              faults="cuIpcOpenMemHandle:1:hang")
        self.assertEqual(run.exit_code, 1)
        states = {row["name"]: row["state"] for row in run.rows}
        self.assertEqual(states["2 processes, through the host"], "passed")
        self.assertIn("failed", states.values())
        self.assertEqual(run.rows[-1]["note"], "no time was left")

    def test_an_interrupted_run_leaves_no_process(self):
        process = self.start("--only", "C4")
        process.stdout.readline()
        while len(processes_with(self.folder)) < 5:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=SECONDS_MAX)
        self.assertEqual(process.returncode, -signal.SIGTERM, errors)
        self.assertEqual(processes_with(self.folder), [])

    # A machine that lacks something.

    def test_without_ipc_the_ways_on_the_gpu_are_left_out(self):
        run = self.run_checks("--only", "C3", faults="cuIpcGetMemHandle:hide")
        self.assertEqual(run.exit_code, 0, run.output)
        for name in PROCESSES:
            is_staged = "through the host" in name or name.startswith("1 ")
            self.assertEqual(run.row(name)["state"], "passed" if is_staged else "left out")
            if not is_staged:
                self.assertIn("do not reduce on their GPUs", run.row(name)["note"])

    def test_without_a_driver(self):
        run = self.run_checks(LD_LIBRARY_PATH="")
        self.assertEqual((run.exit_code, run.output), (77, ""))
        self.assertIn("libcuda.so.1", run.errors)

    def test_without_a_gpu(self):
        run = self.run_checks("--device", "7")
        self.assertEqual((run.exit_code, run.output), (77, ""))
        self.assertEqual(len(run.errors.splitlines()), 1)

    def test_wrong_options(self):
        for words in (("--only", "C9"), ("--only", ","), ("--seconds-max", "0"),
                      ("--device", "9999")):
            run = self.run_checks(*words)
            self.assertEqual((run.exit_code, run.output), (2, ""))

    def test_a_report_in_a_file_is_that_on_standard_output(self):
        path = f"{self.folder}/report"
        words = [CHECKS, "--quick", "--only", "C5", "--seed", "1"]
        environment = os.environ | {"LD_LIBRARY_PATH": str(pathlib.Path(DRIVER).parent)}
        outputs = [subprocess.run([*words, "--json", target], check=True, text=True,
                                  capture_output=True, env=environment).stdout
                   for target in ("-", path)]
        self.assertEqual(pathlib.Path(path).read_text(encoding="utf-8"), outputs[0])
        self.assertRegex(outputs[1], r"\A# Emulated GPU 0.*\n# seed 1\n  C5  memory .* passed ")
        failed = subprocess.run([*words, "--json", "/proc/none"], text=True, check=False,
                                capture_output=True, env=environment)
        self.assertEqual((failed.returncode, failed.stdout), (1, ""))
        self.assertIn("/proc/none", failed.stderr)


if __name__ == "__main__":
    del sys.argv[1:]
    unittest.main(defaultTest="WithKernels" if KERNELS else "WithoutKernels")

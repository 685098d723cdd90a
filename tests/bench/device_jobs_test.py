#!/usr/bin/env python3
"""lmdbio-device-jobs on the stand-in for a driver: rows, results, exit codes, and jobs that fail.

    device_jobs_test.py PROGRAM DRIVER

DRIVER is the stand-in's libcuda.so.1. The figures mean nothing here, so no case looks at one, but
for those of counts.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM, DRIVER = sys.argv[1:] if len(sys.argv) > 1 else ("", "")
SECONDS_MAX = 300  # for one run; all take much less
TINY = ("--quick", "--samples", "2", "--sample-seconds", "0", "--size-max", "4096")
KEYS = ["id", "name", "unit", "value", "low", "high", "bar", "sense", "held", "state", "note"]

MEASURED, LEFT, FAILED = "measured", "left out", "failed"
SIZES = ("8 B", "1 MiB", "64 MiB")
RIVALS = ("Gloo on CUDA tensors", "PyTorch symmetric memory", "NCCL with host ids")
ORDERS = ("host", "event", "mark")
ROWS = {
    "D3": [f"P = {ranks} processes, {words}" for ranks in (2, 4, 8)
           for words in ("8 B, time", "1 MiB, time", "64 MiB, floor by time",
                         "512 MiB, floor by time")]
    + [f"P = {ranks} threads, {words}" for ranks in (2, 4, 8)
       for words in ("8 B, time", "64 MiB, floor by time")]
    + [f"P = 4 processes, {size}, order {order} by order host"
       for order in ("event", "mark") for size in SIZES]
    + ["P = 2 processes, 512 MiB, in 16 pieces by in one"],
    "D4": [f"P = 2, {size}, {way}" for way in ("serial staging", *RIVALS) for size in SIZES],
    "D5": [f"{size}, time by serial staging" for size in SIZES]
    + ["64 MiB, bytes to the device by the rate of a pinned copy"],
    "D6": [f"{algorithm}, {link}, {size}, {what}"
           for algorithm in ("ring", "halving") for link in ("memory", "loopback")
           for size in ("64 KiB", "16 MiB", "64 MiB") for what in ("time", "processor time")],
    "D9": [f"order {order}, {what}" for order in ORDERS
           for what in ("hooks and synchronize()", "helper thread by a core",
                        "iterations without a call that waits for the GPU",
                        "hooks and synchronize() by Gloo's hooks of DDP")],
    "D10": ["exposed by communication alone", "communication alone", "emulated kernels alone"],
    "D13": [f"order {order}, {what}" for order in ORDERS
            for what in ("until the others have the error", "until their streams are done",
                         "their GPU copies afterwards")]
    + ["NCCL, until the others have the error"],
}


class Outcome:
    def __init__(self, done, rows):
        self.exit_code, self.output, self.errors, self.rows = done.returncode, done.stdout, \
            done.stderr, rows

    def of(self, figure):
        return {row["name"]: row for row in self.rows if row["id"] == figure}


class DeviceJobs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lmdbio-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_program(self, *words, driver=DRIVER, faults="", python="no-such-python"):
        report = self.folder / "report.json"
        environment = os.environ | {
            "LD_LIBRARY_PATH": str(pathlib.Path(driver).parent),
            # Ranks of a killed one keep memory for ever.
            "ASAN_OPTIONS": f"{os.environ.get('ASAN_OPTIONS', '')}:detect_leaks=0",
            "LMDBIO_EMULATED_GPU": str(self.folder / "devices"),
            "LMDBIO_EMULATED_GPU_FAULTS": faults}
        done = subprocess.run([PROGRAM, *TINY, "--python", python, "--json", report, *words],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False, timeout=SECONDS_MAX, env=environment)
        lines = report.read_text(encoding="utf-8").splitlines() if report.exists() else []
        return Outcome(done, [json.loads(line) for line in lines[1:]])

    def assert_rows(self, outcome, figure):
        """All rows of a figure are there and well formed. Returns their states by name."""
        rows = outcome.of(figure)
        self.assertEqual(list(rows), ROWS[figure], outcome.output + outcome.errors)
        for row in rows.values():
            self.assertEqual(list(row), KEYS)
            if row["state"] == MEASURED:
                self.assertTrue(row["low"] <= row["value"] <= row["high"], row)
                self.assertEqual(row["held"] is None, row["sense"] == "reported", row)
            else:
                self.assertNotEqual(row["note"], "", row)
                self.assertIsNone(row["held"], row)
        return {name: row["state"] for name, row in rows.items()}

    def has_kernels(self, outcome, figure):
        """False for a build without kernels, whose rows say so."""
        return not any("no kernels" in row["note"] or "without kernels" in row["note"]
                       for row in outcome.of(figure).values())

    def assert_measured(self, figure, but=()):
        """Every row is measured, except those with a word of `but`, which are left out."""
        outcome = self.run_program("--only", figure)
        states = self.assert_rows(outcome, figure)
        if not self.has_kernels(outcome, figure):
            self.assertNotIn(FAILED, states.values(), outcome.output)
            return outcome
        for name, state in states.items():
            expected = LEFT if any(word in name for word in but) else MEASURED
            self.assertEqual(state, expected, outcome.of(figure)[name])
        is_held = all(row["held"] is not False for row in outcome.rows)
        self.assertEqual(outcome.exit_code, 0 if is_held else 1, outcome.output)
        return outcome

    # --- each figure ---

    def test_d3_placed_values(self):
        rows = self.assert_measured("D3").of("D3")
        bars = {name: (row["sense"], row["bar"]) for name, row in rows.items()}
        self.assertEqual(bars["P = 4 processes, 512 MiB, floor by time"], ("at least", 0.8))
        self.assertEqual(bars["P = 8 processes, 512 MiB, floor by time"][0], "reported")
        self.assertEqual(bars["P = 8 processes, 64 MiB, floor by time"], ("at least", 0.5))
        self.assertEqual(bars["P = 8 threads, 64 MiB, floor by time"], ("at least", 0.9))

    def test_d4_rivals(self):
        rows = self.assert_measured("D4", but=RIVALS).of("D4")
        for name, row in rows.items():
            if any(rival in name for rival in RIVALS):
                self.assertIn("no-such-python", row["note"])
        bars = {name: (row["sense"], row["bar"]) for name, row in rows.items()}
        self.assertEqual(bars[f"P = 2, 8 B, {RIVALS[0]}"], ("at most", 0.2))
        self.assertEqual(bars[f"P = 2, 1 MiB, {RIVALS[0]}"], ("at most", 0.1))
        self.assertEqual(bars[f"P = 2, 8 B, {RIVALS[1]}"], ("at most", 1.0))
        self.assertEqual(bars[f"P = 2, 8 B, {RIVALS[2]}"][0], "reported")

    def test_d4_times_of_rivals(self):
        script = self.folder / "rivals.py"
        script.write_text(
            "import json, sys\n"
            "sizes = sys.argv[sys.argv.index('--sizes') + 1]\n"
            "assert sizes == '8,4096' and sys.argv[sys.argv.index('--ranks') + 1] == '2'\n"
            "for name, state in (('Gloo on CUDA tensors', 'yes'),\n"
            "                    ('PyTorch symmetric memory', 'failed')):\n"
            "    for size in ('8 B', '4 KiB'):\n"
            "        print(json.dumps({'row': f'{name}, {size}', 'state': state, 'unit': 'us',\n"
            "                          'samples': [1e9], 'note': 'toy'}))\n", encoding="utf-8")
        outcome = self.run_program("--only", "D4", "--rivals", script, python=sys.executable)
        self.assert_rows(outcome, "D4")
        rows = outcome.of("D4")
        if not self.has_kernels(outcome, "D4"):
            return
        for size in SIZES:
            gloo, symmetric, nccl = (rows[f"P = 2, {size}, {rival}"] for rival in RIVALS)
            self.assertEqual((gloo["state"], gloo["held"]), (MEASURED, True), gloo)
            self.assertIn("1000000000.0 us", gloo["note"])
            self.assertEqual((symmetric["state"], symmetric["note"]), (LEFT, "toy"))
            self.assertEqual(nccl["state"], LEFT, nccl)

    def test_d5_staging(self):
        self.assert_measured("D5")

    def test_d6_messages(self):
        rows = self.assert_measured("D6").of("D6")
        for name, row in rows.items():
            has_bar = "memory" in name and "64 KiB" not in name
            self.assertEqual(row["sense"], "at most" if has_bar else "reported", row)

    def test_d9_time_of_the_host(self):
        self.assert_measured("D9", but=("Gloo",))

    def test_d10_overlap(self):
        self.assert_measured("D10")

    def test_d13_a_killed_rank(self):
        outcome = self.assert_measured("D13", but=("NCCL",))
        if self.has_kernels(outcome, "D13"):
            for order in ("host", "mark"):
                row = outcome.of("D13")[f"order {order}, until the others have the error"]
                self.assertIs(row["held"], True, row)

    # --- ends ---

    def test_an_error_of_the_driver_fails_the_rows_that_need_it(self):
        outcome = self.run_program("--only", "D5", faults="cuMemcpyDtoHAsync:3:999")
        states = self.assert_rows(outcome, "D5")
        self.assertIn(FAILED, states.values(), outcome.output)
        self.assertEqual(outcome.exit_code, 1)

    def test_a_process_that_ends_fails_its_rows(self):
        outcome = self.run_program("--only", "D5", faults="cuMemcpyDtoHAsync:3:kill")
        states = self.assert_rows(outcome, "D5")
        self.assertIn(FAILED, states.values(), outcome.output)
        self.assertEqual(outcome.exit_code, 1)

    def test_rows_behind_the_time_limit_are_left_out(self):
        outcome = self.run_program("--only", "D3", "--seconds-max", "0.01")
        self.assert_rows(outcome, "D3")
        last = outcome.rows[-1]
        self.assertEqual(last["state"], LEFT, last)
        self.assertIn("--seconds-max", last["note"])

    def test_without_a_driver(self):
        outcome = self.run_program(driver=self.folder / "nowhere" / "libcuda.so.1")
        self.assertEqual(outcome.exit_code, 77, outcome.errors)
        self.assertEqual(len(outcome.errors.splitlines()), 1, outcome.errors)
        self.assertIn("libcuda.so.1", outcome.errors)
        self.assertEqual(outcome.rows, [])

    def test_without_such_a_gpu(self):
        outcome = self.run_program("--device", "9")
        self.assertEqual((outcome.exit_code, len(outcome.errors.splitlines())), (77, 1),
                         outcome.errors)

    def test_a_wrong_command_line(self):
        outcome = self.run_program("--only", "D1")
        self.assertEqual(outcome.exit_code, 2)
        self.assertIn("D1", outcome.errors)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

#!/usr/bin/env python3
"""The figures of a GPU on the stand-in for a driver: rows, results, exit codes, and no GPU.

    device_figures_test.py PROGRAM DRIVER OLD yes|no

PROGRAM is lmdbio-device-figures, DRIVER the stand-in's libcuda.so.1, and OLD a driver that is too
old; yes: this build has kernels. The stand-in has no speed, so no case looks at a figure.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM, DRIVER, OLD, HAS_KERNELS = sys.argv[1:] if len(sys.argv) > 1 else ("",) * 4
SCRIPT = pathlib.Path(PROGRAM).parent / "torch_feed.py"
SECONDS_MAX = 200
TINY = ("--samples", "2", "--sample-seconds", "0", "--size-max", "256K")
KEYS = ["id", "name", "unit", "value", "low", "high", "bar", "sense", "held", "state", "note"]
# The number of rows, and of those with a bar.
ROWS = {"D1": (18, 18), "D2": (12, 8), "D7": (7, 4), "D8": (15, 5), "D11": (16, 10)}
NEED_KERNELS = ("D1", "D2")


def run(*words, folder=None, **environment):
    """Returns exit code, standard output and standard error."""
    environment = {**os.environ, **environment}
    environment["LD_LIBRARY_PATH"] = str(folder or pathlib.Path(DRIVER).parent)
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=False,
                          timeout=SECONDS_MAX, env=environment)
    return done.returncode, done.stdout, done.stderr


def rows_of(text):
    lines = [json.loads(line) for line in text.splitlines()]
    return lines[0], lines[1:]


class Figures(unittest.TestCase):
    def check_row(self, row):
        self.assertEqual(list(row), KEYS)
        self.assertIn(row["state"], ("measured", "left out"), row)
        is_measured = row["state"] == "measured"
        self.assertEqual(row["bar"] is None, row["sense"] == "reported", row)
        for key in ("value", "low", "high"):
            self.assertEqual(row[key] is not None, is_measured, row)
        if not is_measured:
            self.assertNotEqual(row["note"], "", row)
        if is_measured:
            self.assertLessEqual(row["low"], row["value"])
            self.assertLessEqual(row["value"], row["high"])
            self.assertGreater(row["value"], 0)
        held = None
        if is_measured and row["sense"] == "at least":
            held = row["value"] >= row["bar"]
        elif is_measured and row["sense"] == "at most":
            held = row["value"] <= row["bar"]
        self.assertEqual(row["held"], held, row)

    def test_every_row_is_there_and_right(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rows.json"
            code, table, errors = run(*TINY, "--dir", folder, "--python", sys.executable, "--json",
                                      path)
            self.assertEqual(os.listdir(folder), ["rows.json"])  # databases are removed
            facts, rows = rows_of(path.read_text(encoding="utf-8"))
        self.assertEqual(errors, "")
        self.assertEqual(set(facts), {"machine", "device"})
        for key in ("driver_module", "command_line", "usable_cores"):
            self.assertIn(key, facts["machine"])
        self.assertIn("driver_for_cuda", facts["device"])
        for row in rows:
            with self.subTest(f"{row['id']} {row['name']}"):
                self.check_row(row)
                self.assertIn(row["name"], table)
                if row["id"] in NEED_KERNELS:
                    self.assertEqual(row["state"] == "measured", HAS_KERNELS == "yes", row)
                if row["id"] in ("D7", "D8"):
                    self.assertEqual(row["state"], "measured", row)
        for name, (count, bars) in ROWS.items():
            mine = [row for row in rows if row["id"] == name]
            self.assertEqual(len(mine), count, name)
            self.assertEqual(len({row["name"] for row in mine}), count)
            self.assertEqual(sum(row["bar"] is not None for row in mine), bars, name)
        self.assertEqual({row["id"] for row in rows}, set(ROWS))
        self.assertEqual(code, 1 if any(row["held"] is False for row in rows) else 0)
        self.assertEqual("NOT HELD" in table, code == 1)
        for row in rows:
            if "launches" in row["name"] and HAS_KERNELS == "yes":
                self.assertEqual(row["value"], 1)

    def test_only_the_chosen_figures_are_measured(self):
        code, text, _ = run(*TINY, "--quick", "--only", "D7,D8", "--json", "-")
        _, rows = rows_of(text)  # no table between the lines
        self.assertEqual([row["id"] for row in rows], 7 * ["D7"] + 6 * ["D8"])
        self.assertIn(code, (0, 1))

    def test_no_driver_is_a_skip_with_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "libcuda.so.1").touch()
            code, text, errors = run(*TINY, folder=folder)
        self.assertEqual((code, text), (77, ""))
        self.assertRegex(errors, r"\Almdbio-device-figures: .*libcuda.so.1.*\n\Z")

    def test_no_such_gpu_is_a_skip_with_one_line(self):
        code, text, errors = run(*TINY, "--device", "9")
        self.assertEqual((code, text), (77, ""))
        self.assertRegex(errors, r"\Almdbio-device-figures: GPU 9: .*\n\Z")

    def test_a_driver_that_is_too_old_is_a_failure(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "libcuda.so.1").symlink_to(OLD)
            code, text, errors = run(*TINY, folder=folder)
        self.assertEqual((code, text), (1, ""))
        self.assertIn("driver", errors)

    def test_a_failing_driver_fails_rows_by_its_reason(self):
        code, text, _ = run(*TINY, "--only", "D7", "--json", "-",
                            LMDBIO_EMULATED_GPU_FAULTS="cuPointerGetAttributes:1:719")
        _, rows = rows_of(text)
        self.assertEqual(code, 1)
        self.assertEqual({row["state"] for row in rows}, {"failed"})
        self.assertIn("cuPointerGetAttributes", rows[0]["note"])

    def test_wrong_options_are_misuse(self):
        for words in (("--only", "D99"), ("--only", ""), ("--samples", "0"), ("--device", "x"),
                      ("--size-max", "1"), ("--seconds-max", "0"), ("--sample-seconds", "-1")):
            with self.subTest(words):
                code, text, errors = run(*words)
                self.assertEqual((code, text), (2, ""), errors)

    def test_a_report_that_cannot_be_written_is_a_failure(self):
        code, _, errors = run(*TINY, "--only", "D7", "--json", "/nowhere/rows.json")
        self.assertEqual(code, 1)
        self.assertIn("/nowhere/rows.json", errors)


class TorchFeed(unittest.TestCase):
    def test_the_rival_tells_its_rate_or_why_there_is_none(self):
        with tempfile.NamedTemporaryFile() as values:
            values.write(bytes(64 * 100))
            values.flush()
            done = subprocess.run(
                [sys.executable, "-B", SCRIPT, "--values", values.name, "--record-bytes", "100",
                 "--batch", "16", "--samples", "1", "--seconds", "30", "--device-type", "cpu"],
                capture_output=True, text=True, check=True, timeout=SECONDS_MAX)
        told = json.loads(done.stdout)
        if "left_out" in told:
            self.assertIn("PyTorch", told["left_out"])
            return
        self.assertIn(told["workers"], (0, 2, 4, 8))
        self.assertGreater(min(told["bytes_per_second"]), 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)

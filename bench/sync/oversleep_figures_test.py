"""The figures show what the dissertation says of them (6.2.4, 6.3.1, 6.3.2).

    oversleep_figures_test.py PROGRAM
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv[1]
CYCLES, CYCLE_US, EXCHANGE_US, LATE_US, GS_CYCLES = 30, 5000, 100, 2000, 10


def waits(thread):
    """Returns the lengths of the waits of a thread in us."""
    return [span["end_us"] - span["begin_us"] for span in thread if span["use"] == "wait"]


class OversleepTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            saved = pathlib.Path(folder) / "spans.json"
            cls.result = subprocess.run(
                [PROGRAM, "--cycles", str(CYCLES), "--gs-cycles", str(GS_CYCLES), "--save", saved],
                capture_output=True, text=True, check=False, timeout=60)
            figures = json.loads(saved.read_text(encoding="utf-8"))
        cls.threads = {one["figure"]: one["threads"] for one in figures}

    def test_without_an_oversleep_no_thread_waits_for_another(self):
        for thread in self.threads["6.8"]:
            self.assertEqual(waits(thread), [EXCHANGE_US] * CYCLES)

    def test_with_cycles_the_other_thread_waits_in_each_later_cycle(self):
        early, late = self.threads["6.9"]
        self.assertEqual(waits(early), [EXCHANGE_US] + [LATE_US + EXCHANGE_US] * (CYCLES - 1))
        self.assertEqual(waits(late), [EXCHANGE_US] * CYCLES)

    def test_with_gs_it_waits_until_the_next_agreement(self):
        early, _ = self.threads["6.11"]
        long_waits = [wait for wait in waits(early) if wait > LATE_US]
        # In cycles 1 to 8: the threads agree on the sleep before the tenth, which is cycle 9.
        self.assertEqual(len(long_waits), GS_CYCLES - 2)

    def test_with_nbcs_no_thread_keeps_its_core(self):
        for thread in self.threads["6.12"]:
            self.assertEqual(waits(thread), [])

    def test_the_drawing(self):
        self.assertEqual(self.result.returncode, 0, self.result.stderr)
        self.assertEqual(self.result.stdout.count("\nthread 0 |"), 4)
        figure = self.result.stdout.split("Figure ")[2]
        self.assertIn("W", figure)
        self.assertIn("o", figure.split("\n")[2])

    def test_bad_numbers(self):
        for words, told in ((["--ranks", "0"], "out of range"), (["--cycle-us", "x"], "cycle-us"),
                            (["--x"], "unrecognised option '--x'")):
            result = subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=False,
                                    timeout=60)
            self.assertEqual(result.returncode, 2)
            self.assertIn(told, result.stderr)
            self.assertEqual(result.stderr.count("\n"), 1)


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()

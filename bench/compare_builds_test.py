"""Tests bench/compare_builds.py with programs that tell known figures.

    compare_builds_test.py
"""

import json
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent / "compare_builds.py"

# An mpirun that runs one rank: the command begins behind the number of ranks.
MPIRUN = '#!/bin/sh\nwhile [ "$1" != -n ]; do shift; done\nshift 2\nexec "$@"\n'

# An allreduce_bench, of which each run takes a tenth longer than the one before.
BENCH = """#!/usr/bin/python3
import json, pathlib, sys
runs = pathlib.Path(__file__).with_name("runs")
before = int(runs.read_text()) if runs.exists() else 0
runs.write_text(str(before + 1))
row = {{"bytes": 4096, "lmdbio": {{"median_us": {us} * 1.1 ** before}}, "mpi": {{"median_us": 10}}}}
pathlib.Path(sys.argv[-1]).write_text(json.dumps({{"rows": [row]}}))
"""


class CompareTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.write(self.folder / "mpirun", MPIRUN)

    @staticmethod
    def write(path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def compare(self, *options):
        return subprocess.run(
            [sys.executable, "-B", SCRIPT, self.folder / "old", self.folder / "new", "--database",
             "none", "--only", "allreduce", "--mpirun", self.folder / "mpirun", *options],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60)

    def test_ratios_of_pairs(self):
        self.write(self.folder / "old/bin/allreduce_bench", BENCH.format(us=20))
        self.write(self.folder / "new/bin/allreduce_bench", BENCH.format(us=15))
        saved = self.folder / "all.json"
        result = self.compare("--repetitions", "3", "--json", saved)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("| allreduce: 4096 B, us | 22 | 16.5 | 0.750 |", result.stdout)
        self.assertIn("by MPI, geometric mean | 2.2 | 1.65 | 0.750 |", result.stdout)
        rows = json.loads(saved.read_text(encoding="utf-8"))["rows"]
        self.assertEqual([len(rows[0][build]) for build in ("old", "new")], [3, 3])

    def test_a_program_that_fails_is_quoted(self):
        self.write(self.folder / "old/bin/allreduce_bench", "#!/bin/sh\necho no memory\nexit 3\n")
        result = self.compare()
        self.assertEqual(result.returncode, 1)
        self.assertIn("allreduce_bench ended with 3:\nno memory", result.stderr)


if __name__ == "__main__":
    unittest.main()

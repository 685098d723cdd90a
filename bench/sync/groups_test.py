"""Tests run_groups.py on little data, on this host.

    groups_test.py BUILD_FOLDER
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

DRIVER = pathlib.Path(__file__).resolve().parent / "run_groups.py"
BUILD = pathlib.Path(sys.argv[1])


def run_driver(*words):
    return subprocess.run([sys.executable, "-B", str(DRIVER), *words, "--build", str(BUILD)],
                          text=True, capture_output=True, timeout=240,
                          env=os.environ | {"ASAN_OPTIONS": "detect_leaks=0"})  # MPI leaks


class GroupsTest(unittest.TestCase):
    def test_an_iteration_has_as_many_calls_as_groups(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run_driver("--groups", "1,3,0", "--coordinators", "cache,topo", "--out", folder,
                              "--repetitions", "1", "--iterations", "3", "--scale", "0.001",
                              "--compute-ms", "500", "--neighbour-limit", "100")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            told = json.loads((pathlib.Path(folder) / "groups.json").read_text(encoding="utf-8"))
            self.assertEqual((pathlib.Path(folder) / "groups.md").read_text(encoding="utf-8"),
                             done.stdout)
        calls = {one["variant"].split(":event")[0]: one["collectives"]
                 for one in told["networks"][0]["variants"] if one["variant"] != "none"}
        self.assertEqual(calls["lmdbio:topo+groups=1+by=tensors"], 1)
        self.assertEqual(calls["lmdbio:topo+groups=3+by=tensors"], 3)
        self.assertEqual(calls["lmdbio:cache+groups=1+by=tensors"], 1)
        # Two groups that are ready in one round may share a bucket.
        self.assertLessEqual(calls["lmdbio:cache+groups=3+by=tensors"], 3)
        self.assertEqual(set(told["phases"]), {f"{one}, {groups}" for one in ("cache", "topo")
                                               for groups in ("1", "3", "own buckets")})
        for found in told["phases"].values():
            self.assertGreater(found["transfer"], 0)
        self.assertIn("\n| own buckets | ", done.stdout)
        self.assertIn("\n| 1 | ", done.stdout)
        self.assertIn("| groups | cache: ms | / 1 | topo: ms | / 1 |", done.stdout)
        self.assertRegex(done.stdout.splitlines()[0],
                         r"[0-9]+ cores, .*Open MPI.*, commit [0-9a-f]+.*\. Other processes "
                         r"disturbed 0 of 7 runs\.$")

    def test_what_cannot_be_measured_is_refused(self):
        for words, wrong in ((("--bandwidth", "1G"), "no effect on one host"),
                             (("--groups", "1,x"), "'1,x' is invalid"),
                             (("--hosts", "0"), "--hosts 0 is out of range")):
            done = run_driver(*words)
            self.assertEqual(done.returncode, 2)
            self.assertIn(wrong, done.stderr)
        with tempfile.TemporaryDirectory() as folder:
            done = run_driver("--coordinators", "other", "--out", folder)
        self.assertEqual(done.returncode, 1)
        self.assertIn("other", done.stderr)


if __name__ == "__main__":
    del sys.argv[1]
    unittest.main(verbosity=2)

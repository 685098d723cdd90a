"""Tests bench/key_lookup.py on tiny databases: all readers get the same values.

    key_lookup_test.py LMDBIO_MAKE [DELAYED_MOUNT]
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent / "key_lookup.py"
SKIPPED = 77
MAKE, *MOUNT = sys.argv[1:]


class KeyLookupTest(unittest.TestCase):
    def test_readers_agree(self):
        self.compare("--local")

    def test_readers_agree_behind_a_delay(self):
        sys.path.append(str(SCRIPT.parents[1] / "tests" / "support"))
        from remote_mount import why_not_here  # noqa: PLC0415

        reason = why_not_here() if MOUNT else "libfuse 3.12 is not installed"
        if reason:
            self.skipTest(reason)
        self.compare("--delayed-mount", *MOUNT)

    def compare(self, *storage):
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "report.json"
            done = subprocess.run(
                [sys.executable, SCRIPT, *storage, "--make", MAKE, "--sizes", "100,5000",
                 "--database-bytes", "300000", "--keys", "50", "--repeat", "1", "--folder", folder,
                 "--json", report], capture_output=True, text=True, check=False)
            if done.returncode == SKIPPED:
                print(done.stdout.strip())
                sys.exit(SKIPPED)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("50 random keys of 3,000 records of 100 B", done.stdout)
            rates = json.loads(report.read_text())["sizes"]["5000"]["records_per_s"]
            self.assertEqual(len(rates), 15)
            self.assertTrue(all(rate > 0 for runs in rates.values() for rate in runs))
            self.assertEqual([path.name for path in pathlib.Path(folder).iterdir()],
                             ["report.json"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

"""Shared code of the tests of the Python package: databases, and their records by mdb_dump."""

import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SKIPPED = 77
# The address sanitizer's allocator does not survive a fork while another thread allocates, as a
# loader's does that reads ahead.
HAS_ASAN = "libasan" in os.environ.get("LD_PRELOAD", "")
STARTS = ("spawn",) if HAS_ASAN else ("fork", "spawn")  # of multiprocessing
# The quickest start, for tests that are not about the start. The server has no threads and has
# imported PyTorch, which takes seconds in each process that "spawn" begins.
START = "forkserver" if HAS_ASAN else "fork"
multiprocessing.set_forkserver_preload(["torch"])
MAKE = os.environ["LMDBIO_MAKE"]
COUNT = 300


class Databases(unittest.TestCase):
    """Makes a folder with `digits` (1,797 values of two sizes) and `even` (300 of 3,000 bytes)."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="lmdbio python ")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.digits = cls.folder / "digits"
        cls.even = cls.folder / "even"
        make("digits", cls.digits)
        make("synthetic", cls.even, "--count", COUNT, "--value-size", 3000)

    def records(self, path):
        """Returns (key, value) in key order, from LMDB's tool mdb_dump."""
        dump = subprocess.run(["mdb_dump", path], capture_output=True, check=True).stdout
        lines = dump[dump.index(b"HEADER=END\n") + 11:dump.rindex(b"DATA=END")].splitlines()
        texts = [bytes.fromhex(line.strip().decode()) for line in lines if line]
        return list(zip(texts[::2], texts[1::2]))


def make(*words):
    subprocess.run([MAKE, *map(str, words)], check=True, capture_output=True,
                   stdin=subprocess.DEVNULL)


def run_unless(why_not):
    """Runs the tests of the program, or says why not and exits with a skip."""
    if why_not:
        print(f"skipped: {why_not}")
        sys.exit(SKIPPED)
    unittest.main(module="__main__")

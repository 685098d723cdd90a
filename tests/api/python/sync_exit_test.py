"""lmdbio.sync: a program that ends without `with` and close() leaves no other rank behind."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from support import run_unless

SOON_S = 60  # with sanitizers on a busy machine; the library would wait for 600 s
ERROR_ON_ONE_RANK = """if True:
    import sys
    import numpy as np
    from mpi4py import MPI
    import lmdbio.sync
    sync = lmdbio.sync.Synchronizer(MPI.COMM_WORLD, collective=sys.argv[1])
    sync.allreduce("first", np.ones(3)).wait()
    if sync.rank == 0:
        raise ZeroDivisionError
    sync.allreduce("second", np.ones(3)).wait()
    """
NO_CLOSE = """if True:
    import os, pathlib, sys, time, warnings
    import numpy as np
    import lmdbio.sync
    warnings.simplefilter("ignore", DeprecationWarning)  # from 3.12 on, of a fork beside threads
    sync = lmdbio.sync.Synchronizer(timeline_path=sys.argv[1], gradient_bytes=64)
    view = sync.place(12).view(np.float32)
    sync.allreduce("first", np.ones(3)).wait()
    # The sanitizer of GCC 12 has locks that a child of fork never gets if another thread has them.
    while any(path.read_text().rpartition(")")[2].split()[0] != "S"
              for path in pathlib.Path("/proc/self/task").glob("*/stat")
              if path.parent.name != str(os.getpid())):
        time.sleep(0.01)
    if os.fork() == 0:
        sys.exit()  # the child closes nothing of its parent
    os.wait()
    sync.allreduce("placed", view).wait()
    lost = lmdbio.sync.Synchronizer()
    del lost
    """


class SyncExitTest(unittest.TestCase):
    @unittest.skipUnless(importlib.util.find_spec("mpi4py"), "there is no mpi4py")
    def test_an_error_on_one_rank_ends_all(self):
        launcher = os.environ["LMDBIO_MPIEXEC"].split()
        for collective in ("auto", "mpi"):
            with self.subTest(collective=collective):
                ended = subprocess.run(
                    [*launcher, "2", sys.executable, "-c", ERROR_ON_ONE_RANK, collective],
                    text=True, capture_output=True, timeout=SOON_S, check=False)
                self.assertEqual(ended.returncode, 1, ended.stderr)
                self.assertRegex(ended.stderr, "(?m)^ZeroDivisionError$")
                self.assertIn("'second' (number 1): rank 0 has closed its synchronizer",
                              ended.stderr)
                self.assertNotIn("signal", ended.stderr)

    def test_an_open_synchronizer_is_closed_at_exit(self):
        with tempfile.TemporaryDirectory() as folder:
            ended = subprocess.run(
                [sys.executable, "-c", NO_CLOSE, f"{folder}/timeline"], text=True,
                capture_output=True, timeout=SOON_S, check=False)
            self.assertEqual((ended.returncode, ended.stderr), (0, ""))
            # The file is valid JSON only after the synchronizer was closed, and only once.
            json.loads(pathlib.Path(folder, "timeline.0").read_text(encoding="utf-8"))


if __name__ == "__main__":
    run_unless("" if importlib.util.find_spec("numpy") else "there is no numpy")

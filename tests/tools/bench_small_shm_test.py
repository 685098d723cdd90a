#!/usr/bin/env python3
"""Jobs with a /dev/shm of 64 MB, as in docker: lmdbio's own shared memory does not use it.

    bench_small_shm_test.py BENCH MAKE MPIEXEC...

LMDBIO_TEST_MPI_ENDINGS is the path of mpi_endings. Exits with 77 if mounting is not possible.
"""

import contextlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import bench_program
import own_shm
import watched_folder

SHARED_MEMORY = "/dev/shm"
MPI_MESSAGES = ("vader_segment.", "sm_segment.")  # the prefixes of files of Open MPI 4 and 5
MPI_OWN = ("open_mpi.", *MPI_MESSAGES)
RECORDS = 500
KILL_ROUNDS = 16
KILL_SPAN_S = 0.4  # from the first file of MPI until after Open
SECONDS_MAX = 60


def ranks_in_mpi(job, count):
    """Waits until a rank has created MPI's own memory, and returns the ranks; none if it ends."""
    children = pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children")
    while job.poll() is None:
        try:
            ranks = children.read_text(encoding="ascii").split()
            maps = [pathlib.Path(f"/proc/{rank}/maps").read_text(encoding="utf-8")
                    for rank in ranks]
        except OSError:
            continue
        if len(ranks) == count and any(name in one for one in maps for name in MPI_MESSAGES):
            return [int(rank) for rank in ranks]
        time.sleep(0.002)
    return []


def named_files():
    return sorted(name for name in os.listdir(SHARED_MEMORY) if not name.startswith(MPI_OWN))


class BenchSmallShm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="lmdbio-test-")
        cls.addClassCleanup(folder.cleanup)
        cls.database = pathlib.Path(folder.name) / "database"
        bench_program.make("synthetic", "--count", RECORDS, "--value-size", 3080, cls.database)

    def test_any_number_of_ranks_reads_with_the_default_options(self):
        room = os.statvfs(SHARED_MEMORY)
        self.assertEqual(room.f_blocks * room.f_frsize, own_shm.DOCKER_BYTES)
        checksums = set()
        for ranks in (1, 4, 8):
            with self.subTest(ranks=ranks):
                runs = bench_program.report(ranks, "read", self.database)["runs"]
                self.assertTrue(runs)
                checksums |= {run["checksum"] for run in runs}
        self.assertEqual(len(checksums), 1)

    def endings(self, *words, **more):
        return subprocess.run(
            [*bench_program.MPIEXEC, "4", os.environ["LMDBIO_TEST_MPI_ENDINGS"], *words],
            env=bench_program.environment(**more), capture_output=True, text=True,
            timeout=SECONDS_MAX, check=False)

    def test_memory_is_not_limited_by_dev_shm_and_makes_no_file_there(self):
        with watched_folder.WatchedFolder(SHARED_MEMORY) as watch:
            ended = self.endings("large", "1000")
            made = [name for name in watch.created() if not name.startswith(MPI_OWN)]
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertIn("/memfd:lmdbio (deleted)", ended.stdout)
        self.assertEqual(made, [])

    def test_a_window_that_does_not_fit_is_refused_with_the_remedy(self):
        ended = self.endings("large", "256", LMDBIO_TEST_NO_MEMFD="1")
        if ended.returncode == own_shm.SKIPPED:
            self.skipTest(ended.stderr)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        for words in ("refused: 268435456 bytes of shared memory: /dev/shm has 67108864 bytes, of",
                      "(memfd_create: Operation not permitted)",
                      "make /dev/shm larger (docker run --shm-size=", "or ask for less"):
            self.assertIn(words, ended.stdout)

    def test_a_window_of_mpi_is_used_on_request(self):
        words = ("read", "--window-memory", "mpi", "--no-raw", "--repeat", 1)
        with watched_folder.WatchedFolder(SHARED_MEMORY) as watch:
            report = bench_program.report(4, *words, "--memory-budget-bytes", 16 << 20,
                                          self.database)
            made = [name for name in watch.created() if not name.startswith(MPI_OWN)]
        self.assertNotEqual(made, [])
        self.assertEqual(report["runs"][0]["checksum"],
                         bench_program.report(1, "read", self.database)["runs"][0]["checksum"])
        outcome = bench_program.run(4, *words, self.database)
        self.assertNotEqual(outcome.exit_code, 0)
        self.assertIn("/dev/shm has 67108864 bytes, of which", outcome.errors)
        self.assertIn("are free; make /dev/shm larger", outcome.errors)

    def test_a_rank_that_is_killed_while_it_opens_leaves_nothing(self):
        """No named file is ever created, so no kill can leave one."""
        moments = random.Random(1)
        with watched_folder.WatchedFolder(SHARED_MEMORY) as watch:
            for which in range(KILL_ROUNDS):
                job = bench_program.start(4, "read", "--no-raw", self.database)
                self.addCleanup(bench_program.end, job)
                ranks = ranks_in_mpi(job, 4)
                time.sleep(KILL_SPAN_S * moments.random())
                how = moments.choice((signal.SIGKILL, signal.SIGTERM))
                if job.poll() is None and ranks:
                    with contextlib.suppress(ProcessLookupError):  # mpirun ends after its ranks
                        os.kill(ranks[which % 4], how)
                bench_program.await_end(job, SECONDS_MAX)
            made = [name for name in watch.created() if not name.startswith(MPI_OWN)]
        self.assertEqual(named_files(), [])
        self.assertEqual(made, [])


if __name__ == "__main__":
    own_shm.enter(own_shm.DOCKER_BYTES)
    unittest.main(argv=sys.argv[:1])

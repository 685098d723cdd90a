#!/usr/bin/env python3
"""Jobs with failing storage or ranks: they end soon with one line, and leave no process or file.

    bench_fault_test.py BENCH MAKE MPIEXEC...

The storage is a mount of a server that fails on request. Exits with 77 if mounting is not possible.
"""

import json
import os
import pathlib
import signal
import sys
import tempfile
import time
import unittest

import bench_program
import own_shm
import remote_mount

SECONDS_MAX = 15  # from a failure to the end of the job; mpirun itself takes one or two
RECORDS = 3000
SHM_BYTES = 1 << 30  # tmpfs takes memory only for what is written
READING = ("scan", "lmm-dio-prov-coal", "auto")


def ranks_of(job):
    """The processes that the mpirun of a job has started."""
    children = pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text(encoding="ascii")
    return [int(pid) for pid in children.split()]


def shared_files():
    return set(os.listdir("/dev/shm"))


class BenchFault(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="lmdbio-test-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.database = cls.folder / "database"
        bench_program.make("synthetic", "--count", RECORDS, "--value-size", 3080, "--append",
                           cls.database)

    def mount(self, *options):
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        mount = remote_mount.RemoteMount(folder, self.database, *options)
        self.addCleanup(mount.down)
        return mount

    def endless_job(self, path, *options, ranks=4, strategy="scan"):
        """Starts a job that reads epoch after epoch slowly, and returns when it reads. It reads
        around the page cache, which would hide the failure of the storage."""
        job = bench_program.start(ranks, "read", path, "--strategy", strategy, "--max-batches",
                                  100000, "--global-batch-size", 64, "--memory-budget-bytes", "2M",
                                  "--no-raw", "--allow-map", "off", "--cache", "direct",
                                  "--compute-time", "0.002", "--compute-kind", "sleep", *options)
        self.addCleanup(bench_program.end, job)
        time.sleep(3)
        self.assertIsNone(job.poll(), "the job has ended too early")
        return job

    def assert_ends_with(self, job, *words):
        start = time.monotonic()
        outcome = bench_program.await_end(job, SECONDS_MAX)
        self.assertLess(time.monotonic() - start, SECONDS_MAX)
        self.assertEqual(outcome.flaw_of_failure(1, *words), "")

    def test_transient_errors_are_retried(self):
        (sound,) = bench_program.report(4, "read", self.database, "--verify", "--no-raw",
                                        "--repeat", 1)["runs"]
        mount = self.mount("--error-rate", "5%")
        mount.errors.touch()
        for engine in ("uring", "pread"):
            for cache in ("direct", "buffered"):
                with self.subTest(engine=engine, cache=cache):
                    # Small blocks give many reads. Opening retries, too, a few times.
                    runs = bench_program.report(
                        4, "read", mount.mountpoint, "--no-raw", "--repeat", 1,
                        "--allow-map", "off", "--strategy", ",".join(READING), "--engine", engine,
                        "--cache", cache,
                        "--block-bytes", "64K")["runs"]
                    self.assertEqual({run["checksum"] for run in runs}, {sound["checksum"]})
                    self.assertGreater(sum(run["retries"] for run in runs), 0)

    def test_transient_errors_do_not_show_in_a_shuffled_stream(self):
        """Transient errors change no record, in blocks with gaps or chunks of the file cache."""
        shuffled = ("--order", "shuffle", "--global-batch-size", 48, "--no-raw", "--repeat", 1)
        (sound,) = bench_program.report(4, "read", self.database, "--verify", *shuffled)["runs"]
        mount = self.mount("--error-rate", "5%")
        mount.errors.touch()
        for strategy, keep in (("scan", "never"), ("auto", "never"), ("auto", "auto"),
                               ("auto", "1G")):
            for readers in (1, 2):
                with self.subTest(strategy=strategy, keep=keep, readers=readers):
                    (run,) = bench_program.report(
                        4, "read", mount.mountpoint, *shuffled, "--strategy", strategy,
                        "--keep-bytes", keep, "--readers-per-host", readers,
                        "--memory-budget-bytes", "4M", "--allow-map", "off", "--cache", "direct",
                        "--block-bytes", "64K")["runs"]
                    self.assertEqual(run["checksum"], sound["checksum"])
                    self.assertGreater(run["retries"], 0)

    def test_kept_file_is_read_once(self):
        mount = self.mount()
        crossed = []
        for epochs in (1, 4):
            mount.take_stats()
            (run,) = bench_program.report(
                2, "read", mount.mountpoint, "--order", "shuffle", "--global-batch-size", 100,
                "--no-raw",
                "--max-batches", epochs * RECORDS // 100, "--repeat", 1, "--allow-map", "off",
                "--cache", "direct", "--keep-bytes", "1G")["runs"]
            self.assertIn("with a file cache", run["how"])
            crossed.append(json.loads(mount.take_stats())["bytes"])
        self.assertEqual(crossed[0], crossed[1])

    def test_storage_that_fails_for_good_ends_a_shuffled_job(self):
        mount = self.mount()
        job = self.endless_job(mount.mountpoint, "--order", "shuffle", "--keep-bytes",
                               "never")
        mount.errors.touch()
        self.assert_ends_with(job, str(mount.mountpoint / "data.mdb"), "Input/output error")

    def test_storage_that_fails_for_good_ends_the_job(self):
        for strategy in READING:
            with self.subTest(strategy=strategy):
                mount = self.mount()
                job = self.endless_job(mount.mountpoint, strategy=strategy)
                mount.errors.touch()
                self.assert_ends_with(job, str(mount.mountpoint / "data.mdb"), "Input/output error")

    def test_server_that_is_killed_ends_the_job(self):
        mount = self.mount()
        job = self.endless_job(mount.mountpoint)
        os.kill(mount.server_pid(), signal.SIGKILL)
        self.assert_ends_with(job, str(mount.mountpoint / "data.mdb"))

    def test_rank_that_is_killed_ends_the_job(self):
        before = shared_files()
        for which in (0, 3):  # the reader, and a rank that only waits
            with self.subTest(rank=which):
                job = self.endless_job(self.database)
                ranks = ranks_of(job)
                self.assertEqual(len(ranks), 4)
                os.kill(ranks[which], signal.SIGKILL)
                outcome = bench_program.await_end(job, SECONDS_MAX)
                self.assertNotEqual(outcome.exit_code, 0)
                deadline = time.monotonic() + SECONDS_MAX
                while any(pathlib.Path(f"/proc/{pid}").exists() for pid in ranks):
                    self.assertLess(time.monotonic(), deadline, "a rank lives on")
                    time.sleep(0.1)
        self.assertEqual(shared_files() - before, set())

    def test_nothing_crosses_that_is_not_needed(self):
        """A run reads at most 1.05 times the pages of its records. Reads before the runs are equal
        for one run and for three, so the difference of both excludes them. Each has a mount of its
        own, so that no job finds pages of an earlier one in the page cache."""
        for strategy in READING:
            with self.subTest(strategy=strategy):
                crossed = []
                for repeat in (1, 3):
                    mount = self.mount()
                    mount.take_stats()
                    runs = bench_program.report(4, "read", mount.mountpoint, "--no-raw",
                                                "--repeat", repeat, "--strategy", strategy,
                                                "--allow-map", "off")["runs"]
                    crossed.append(json.loads(mount.take_stats())["bytes"])
                useful = 2 * runs[0]["bytes_useful"]
                self.assertGreater(useful, 2 * RECORDS * 4096)
                self.assertGreaterEqual(crossed[1] - crossed[0], useful)
                self.assertLessEqual(crossed[1] - crossed[0], 1.05 * useful)


if __name__ == "__main__":
    reason = remote_mount.why_not_here()
    if reason is not None:
        print(f"bench_fault_test: skipped: {reason}")
        sys.exit(remote_mount.SKIPPED)
    own_shm.enter(SHM_BYTES)
    unittest.main(argv=sys.argv[:1])

#!/usr/bin/env python3
"""However a job with shared memory ends, it ends, and leaves no file behind.

    mpi_endings_test.py MPI_ENDINGS MPI_MAIN_CANARY MPIEXEC [ARGUMENT...]

The arguments of MPIEXEC say that it shall start RANK_COUNT processes. Files are looked for in
/dev/shm, where MPI keeps shared memory, and in a temporary directory of each job's own. Every job
runs twice: with memory of the library's own, and with a window of MPI's, which hosts get that
refuse the former.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

ENDINGS, CANARY, *MPIEXEC = sys.argv[1:]
RANK_COUNT = 3  # as CMakeLists.txt has it
SHARED_MEMORY = "/dev/shm"
MPI_MESSAGES = re.compile(r"/(vader|sm)_segment\.")  # files of Open MPI 4 and 5
SECONDS_MAX = 60
OWN, WINDOW = {}, {"LMDBIO_TEST_NO_MEMFD": "1"}
KINDS = {"memory of our own": OWN, "a window of MPI's": WINDOW}
REFUSED = "memfd_create: Operation not permitted"


class Job:
    """A job that has ended: its exit code, its output, and what is left of it."""

    def __init__(self, *command, kind=OWN):
        with tempfile.TemporaryDirectory(prefix="lmdbio-test-") as directory:
            # Leaks are looked for elsewhere; a killed rank would report none anyway.
            environment = {**os.environ, **kind, "TMPDIR": directory,
                           "ASAN_OPTIONS": "detect_leaks=0"}
            ended = subprocess.run([*MPIEXEC, *command], env=environment, capture_output=True,
                                   text=True, timeout=SECONDS_MAX, check=False)
            self.temporary_left = _await_empty(lambda: _files_below(directory))
        self.exit_code = ended.returncode
        self.output = ended.stdout
        self.errors = ended.stderr
        self.mapped = [line for line in ended.stdout.splitlines()
                       if line.startswith((SHARED_MEMORY, "/memfd:"))]
        self.note = re.findall("^note: (.*)$", ended.stdout, re.MULTILINE)
        paths = {line.removesuffix(" (deleted)") for line in self.mapped}
        self.shared_left = _await_empty(lambda: sorted(filter(os.path.exists, paths)))


def _files_below(directory):
    return [os.path.join(folder, name)
            for folder, _, names in os.walk(directory) for name in names]


def _await_empty(listing):
    """What `listing` still holds when mpirun's clean-up has had time."""
    for _ in range(50):
        left = listing()
        if not left:
            return left
        time.sleep(0.1)
    return left


class Endings(unittest.TestCase):
    def run_job(self, *command, kind=OWN):
        job = Job(*command, kind=kind)
        if kind is WINDOW and job.exit_code == 77:
            self.skipTest(job.errors)
        return job

    def assert_nothing_left(self, job):
        self.assertEqual(job.shared_left, [], job.output + job.errors)
        self.assertEqual(job.temporary_left, [], job.output + job.errors)

    def test_leaves_nothing_after_a_good_end(self):
        for name, kind in KINDS.items():
            for mode in ("orderly", "outlive", "abandon"):
                with self.subTest(mode, memory=name):
                    job = self.run_job(ENDINGS, mode, kind=kind)
                    self.assertEqual(job.exit_code, 0, job.output + job.errors)
                    self.assert_nothing_left(job)

    def test_ends_and_leaves_nothing_when_a_rank_is_killed(self):
        for name, kind in KINDS.items():
            for victim in range(RANK_COUNT):
                with self.subTest(victim=victim, memory=name):
                    job = self.run_job(ENDINGS, "kill", str(victim), kind=kind)
                    self.assertNotEqual(job.exit_code, 0)
                    self.assert_nothing_left(job)

    def test_own_memory_has_no_file(self):
        job = self.run_job(ENDINGS, "orderly")
        self.assertEqual((job.exit_code, job.note), (0, [""]), job.output + job.errors)
        self.assertEqual([line for line in job.mapped if not MPI_MESSAGES.search(line)],
                         ["/memfd:lmdbio (deleted)"])

    def test_windows_have_no_name_while_they_are_in_use(self):
        """So nothing is left even where nobody cleans up. They are used where memory of our own is
        refused, and say why."""
        job = self.run_job(ENDINGS, "orderly", kind=WINDOW)
        self.assertEqual(job.note, [f"shared memory is a window of MPI's: {REFUSED}"],
                         job.output + job.errors)
        windows = [line for line in job.mapped if "osc_sm" in line]
        if not windows:
            self.skipTest("this MPI keeps windows elsewhere")
        for line in windows:
            self.assertTrue(line.endswith(" (deleted)"), line)

    def test_a_failing_rank_reports_and_ends_all(self):
        job = Job(CANARY)
        self.assertEqual(job.exit_code, 1, job.output + job.errors)
        self.assertIn("rank 1:", job.errors)
        self.assertNotIn("rank 2:", job.errors)
        self.assertIn("REQUIRE( rank != 1 )", job.errors)
        self.assertNotIn("FAILED", job.output)  # rank 0, which prints there, has not failed
        self.assert_nothing_left(job)

    def test_ranks_that_pass_are_silent_but_one(self):
        job = Job(CANARY, "passes")
        self.assertEqual(job.exit_code, 0, job.errors)
        self.assertEqual(job.output.count("All tests passed"), 1, job.output)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

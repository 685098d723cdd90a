#!/usr/bin/env python3
"""All strategies and options of lmdbio-bench deliver the same records, under mpirun.

    bench_matrix_test.py BENCH MAKE MPIEXEC...

Each job runs all strategies with --verify. Its oracle is a serial pass of liblmdb's cursor. The
checksums in the reports must be equal for all jobs. By default the jobs contain every pair of
values of two parameters; LMDBIO_TEST_FULL=1 runs every combination.
"""

import itertools
import os
import pathlib
import sys
import tempfile
import unittest

import bench_program

PARAMETERS = {
    "database": ("digits", "equal", "mixed", "bare"),
    "ranks": (1, 2, 3, 4, 8),
    "engine": ("mmap", "pread", "uring"),
    "cache": ("direct", "buffered"),
    "share": ("block", "round-robin"),
    "readers-per-host": (1, 2),
}
# The same code reads for ranks of a launcher. Other ways to read show nothing new there.
if bench_program.IS_LAUNCHED and not bench_program.IS_WIDE:
    PARAMETERS |= {"database": ("mixed", "bare"), "engine": ("uring",), "cache": ("buffered",)}
RECORD_COUNTS = {"digits": 1797, "equal": 600, "mixed": 400, "bare": 500}
WITHOUT_PROVENANCE = "lmdb,lmm,lmm-dm,lmm-dio,scan,auto"


def pairwise(parameters):
    """Combinations that contain every pair of values of different parameters; greedy."""
    names = list(parameters)
    left = {((a, x), (b, y)) for a, b in itertools.combinations(names, 2)
            for x in parameters[a] for y in parameters[b]}
    every = [dict(zip(names, values)) for values in itertools.product(*parameters.values())]
    while left:
        best = max(every, key=lambda one: len(left & _pairs(one)))
        left -= _pairs(best)
        yield best


def _pairs(combination):
    return set(itertools.combinations(combination.items(), 2))


class BenchMatrix(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="lmdbio-test-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.checksums = {}
        bench_program.make("digits", cls.folder / "digits")
        bench_program.make("synthetic", "--count", 600, "--value-size", 3080, cls.folder / "equal")
        # Values in leaves and in overflow runs of one to some tens of pages, in insertion order.
        bench_program.make("synthetic", "--count", 400, "--value-size-lognormal", "1500:1.2",
                           "--order", "random", cls.folder / "mixed")
        bench_program.make("synthetic", "--count", 500, "--value-size-uniform", "0:9000",
                           "--no-provenance", cls.folder / "bare")

    def read(self, database, ranks, **options):
        """The runs of one job. All must deliver `records` and the same checksum."""
        strategies = WITHOUT_PROVENANCE if database == "bare" else "all"
        words = ["read", "--verify", "--repeat", 1, "--strategy", strategies]
        for name, value in options.items():
            words += ["--" + name.replace("_", "-"), value]
        runs = bench_program.report(ranks, *words, self.folder / database)["runs"]
        self.assertEqual(len(runs), 6 if database == "bare" else 9)
        for figure in ("checksum", "records"):
            values = {run["strategy"]: run[figure] for run in runs}
            self.assertEqual(len(set(values.values())), 1, (figure, values))
        self.assertEqual({run["ranks"] for run in runs}, {ranks})
        self.assertEqual({run["skipped"] for run in runs}, {0})
        return runs

    def assert_same_as_before(self, sequence, runs):
        """Compares the checksum of a job with that of the first job of `sequence`."""
        first = self.checksums.setdefault(sequence, runs[0]["checksum"])
        self.assertEqual(runs[0]["checksum"], first, sequence)

    def one_epoch(self, database, ranks, **options):
        runs = self.read(database, ranks, **options)
        self.assertEqual(runs[0]["records"], RECORD_COUNTS[database])
        self.assert_same_as_before(database, runs)
        return runs

    def test_delivers_the_same_whatever_reads_it(self):
        if os.environ.get("LMDBIO_TEST_FULL"):
            jobs = (dict(zip(PARAMETERS, values))
                    for values in itertools.product(*PARAMETERS.values()))
        else:
            jobs = pairwise(PARAMETERS)
        for job in jobs:
            with self.subTest(**job):
                runs = self.one_epoch(job["database"], job["ranks"], share=job["share"],
                                      engine=job["engine"], cache=job["cache"],
                                      readers_per_host=job["readers-per-host"],
                                      global_batch_size=64)
                # If the strategy does not fix the engine, it is the requested one.
                how = next(run["how"] for run in runs if run["strategy"] == "auto")
                self.assertIn("page walk" if job["database"] == "bare" else "provenance", how)
                self.assertIn(job["engine"], how)

    def test_batch_size_does_not_matter(self):
        for batch_size in (1, 3, 5, 399, 400, 401, 100000):  # also fewer records than ranks
            with self.subTest(batch_size=batch_size):
                self.one_epoch("mixed", 4, global_batch_size=batch_size)

    def test_more_ranks_than_records_of_a_batch(self):
        for share in ("block", "round-robin"):
            with self.subTest(share=share):
                self.one_epoch("mixed", 8, global_batch_size=3, share=share, readers_per_host=2)

    def test_more_readers_than_ranks(self):
        self.one_epoch("equal", 2, readers_per_host=8)

    def test_ranks_decide_together_what_is_cached(self):
        """A former bug: while rank 0 verified, the others saw a file that was not cached yet. They
        measured the raw rate otherwise than rank 0, beyond the end of the shared memory."""
        for _ in range(5):
            with open(self.folder / "equal" / "data.mdb", "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            self.one_epoch("equal", 2, readers_per_host=2)

    def test_small_blocks_and_little_memory(self):
        for ranks in (1, 3):
            with self.subTest(ranks=ranks):
                self.one_epoch("equal", ranks, block_bytes="4K", queue_depth=3,
                               memory_budget_bytes="1M", global_batch_size=64)

    def test_epochs_follow_each_other(self):
        """With batches of 64, an epoch of 1,797 records has 28 full batches and 5 records."""
        for ranks, share in ((1, "block"), (3, "block"), (4, "round-robin"), (8, "block")):
            with self.subTest(ranks=ranks, share=share):
                for tail, records in (("wrap", 100 * 64), ("short", 97 * 64 + 3 * 5),
                                      ("drop", 100 * 64)):
                    runs = self.read("digits", ranks, tail=tail, max_batches=100,
                                     global_batch_size=64,
                                     share=share, readers_per_host=2)
                    self.assertEqual(runs[0]["records"], records, tail)
                    self.assert_same_as_before(tail, runs)

    def test_batch_larger_than_the_database_wraps_in_itself(self):
        for ranks in (1, 4):
            with self.subTest(ranks=ranks):
                runs = self.read("mixed", ranks, tail="wrap", max_batches=3, global_batch_size=1000)
                self.assertEqual(runs[0]["records"], 3000)
                self.assert_same_as_before("mixed, 1000", runs)

    def test_different_sequences_have_different_checksums(self):
        """Different records give different checksums, so equal checksums are significant."""
        self.one_epoch("digits", 2)
        short = self.read("digits", 2, max_batches=1, global_batch_size=1796)
        self.assertNotEqual(short[0]["checksum"], self.checksums["digits"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

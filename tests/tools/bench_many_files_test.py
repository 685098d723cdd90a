#!/usr/bin/env python3
"""lmdbio-bench read delivers a folder of files as one data set, under mpirun.

    bench_many_files_test.py BENCH MAKE MPIEXEC...

The oracle of --verify is a serial pass of liblmdb's cursor over each file. The checksums of all
jobs must be equal.
"""

import pathlib
import tempfile
import unittest

import bench_program

FILES = 11
COUNT = 60  # records of a file


class BenchManyFiles(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="lmdbio-test-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.split = cls.folder / "files"
        cls.split.mkdir()
        for i in range(FILES):
            words = ["--no-provenance"] if i % 3 else []
            bench_program.make("synthetic", "--count", COUNT, "--value-size-lognormal", "1500:1.2",
                               "--seed", i, *words, cls.split / f"s{i}")

    def read(self, ranks, path, *words):
        runs = bench_program.report(ranks, "read", "--verify", "--repeat", 1, "--order", "shuffle",
                                    "--global-batch-size", 50, *words, path)["runs"]
        self.assertEqual({run["skipped"] for run in runs}, {0})
        return runs

    def test_same_stream_whatever_reads_it(self):
        checksums = set()
        for ranks in 1, 2, 4:
            for words in ([], ["--open-files-max", 3], ["--engine", "pread", "--cache", "direct"],
                          ["--readers-per-host", 2]):
                with self.subTest(ranks=ranks, words=words):
                    run, = self.read(ranks, self.split, *words)
                    self.assertEqual(run["records"], FILES * COUNT)
                    self.assertIn(f"{FILES} files", run["how"])
                    checksums.add(run["checksum"])
        run, = self.read(2, self.split / "s*")
        self.assertEqual({run["checksum"]}, checksums)

    def test_resumes_at_another_number_of_ranks(self):
        state = self.folder / "state.json"
        whole, = self.read(2, self.split, "--max-batches", 13)
        first, = self.read(2, self.split, "--max-batches", 5, "--save", state)
        rest, = self.read(3, self.split, "--max-batches", 13, "--state", state)
        self.assertEqual(first["records"] + rest["records"], whole["records"])
        total = (int(first["checksum"], 16) + int(rest["checksum"], 16)) % 2**64
        self.assertEqual(total, int(whole["checksum"], 16))
        (self.split / "s4").rename(self.folder / "s4")
        self.addCleanup((self.folder / "s4").rename, self.split / "s4")
        outcome = bench_program.run(0, "read", "--global-batch-size", 50, "--order", "shuffle",
                                    "--state", state, self.split)
        self.assertEqual("", outcome.flaw_of_failure(
            1, "the loader does not have s4 as file 5, as the saved state has, with 11 files"))

    def test_an_empty_glob_is_refused(self):
        outcome = bench_program.run(0, "read", self.split / "x*")
        self.assertEqual("", outcome.flaw_of_failure(1, "x*: no file matches"))


if __name__ == "__main__":
    unittest.main(argv=bench_program.sys.argv[:1])

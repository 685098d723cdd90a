#!/usr/bin/env python3
"""Each flag of lmdbio-bench read, set to the example of options.toml, reaches the loader.

    bench_options_test.py BENCH MAKE MPIEXEC...

The oracle is what the report says of the effective options (tests/load/plan/option_text_test.cc).
"""

import pathlib
import sys
import tempfile
import unittest

import bench_program
import option_table

ROWS = option_table.rows("loader") or []
SPECIAL = ("database_name", "state", "max_batches")  # tested one by one
OWN_DEFAULTS = {"layout_cache": "off"}  # of lmdbio-bench, so that repeated runs do the same
QUIET = ("--no-raw", "--repeat", 1)


@unittest.skipUnless(ROWS, "this Python has no tomllib")
class BenchOptions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="lmdbio-test-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.data = cls.folder / "data"
        bench_program.make("synthetic", "--count", 300, "--value-size", 100, cls.data)

    def effective(self, *words, ranks=0):
        report = bench_program.report(ranks, "read", *QUIET, *words, self.data)
        return report["runs"][0]["options"]

    def test_defaults(self):
        effective = self.effective()
        self.assertEqual(list(effective), [row["name"] for row in ROWS])
        for row in ROWS:
            if row["name"] in OWN_DEFAULTS:
                self.assertEqual(effective[row["name"]], OWN_DEFAULTS[row["name"]], row["name"])
            elif row["name"] != "max_batches":  # one epoch
                self.assertEqual(effective[row["name"]], row.get("default"), row["name"])

    def test_each_flag_arrives_and_no_other_option_changes(self):
        defaults = self.effective()
        for row in ROWS:
            name = row["name"]
            if name in SPECIAL:
                continue
            with self.subTest(name):
                given = {**row.get("with", {}), name: row["example"]}
                words = [word for one in given.items() for word in option_table.flag_words(*one)]
                effective = self.effective(*words)
                effective["max_batches"] = defaults["max_batches"]  # of an epoch of other batches
                self.assertEqual(effective, {**defaults, **given})

    def test_short_flags(self):
        effective = self.effective("-b", 10, "-n", 4, "-q", 2)
        self.assertEqual((effective["global_batch_size"], effective["max_batches"],
                          effective["queue_depth"]), (10, 4, 2))

    def test_names_and_states(self):
        outcome = bench_program.run(0, "read", *QUIET, "--database-name", "other", self.data)
        self.assertEqual(outcome.flaw_of_failure(1, "database 'other': not found"), "")
        saved = self.folder / "state"
        self.effective("--epoch", 2, "--save", saved)
        self.assertIn('"epoch":3', self.effective("--state", saved)["state"])

    def test_sizes_and_words(self):
        for words, name, value in ((("--keep-bytes", "never"), "keep_bytes", -1),
                                   (("--keep-bytes", "auto"), "keep_bytes", 0),
                                   (("--keep-bytes", "1G"), "keep_bytes", 1 << 30),
                                   (("--block-bytes", "64K"), "block_bytes", 64 << 10),
                                   (("--memory-budget-bytes", "8M"), "memory_budget_bytes",
                                    8 << 20)):
            with self.subTest(words):
                self.assertEqual(self.effective(*words)[name], value)

    def test_misuse_names_the_flag(self):
        for name, value in (("global-batch-size", "-1"), ("global-batch-size", "x"),
                            ("max-batches", "1.5"), ("queue-depth", "0"), ("queue-depth", "65537"),
                            ("readers-per-host", "0"), ("keep-bytes", "off"), ("tail", "x"),
                            ("allow-map", "yes"), ("cache", "x"), ("engine", "x"),
                            ("block-bytes", "1X"), ("stagger", "-1"), ("num-shards", "0")):
            with self.subTest(name=name, value=value):
                outcome = bench_program.run(0, "read", *QUIET, f"--{name}={value}", self.data)
                self.assertEqual(outcome.flaw_of_failure(2, f"--{name}"), "")

    def test_help_has_every_flag(self):
        text = bench_program.run(0, "read", "--help").output
        for row in ROWS:
            self.assertIn("--" + row["name"].replace("_", "-"), text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

#!/usr/bin/env python3
"""Tests lmdbio-bench order, which computes how well orders mix.

    bench_order_test.py BENCH MAKE MPIEXEC...

The chunked order has no seed, so the test computes its figures from the definition. The oracle of
the shuffled orders is the statistics of a random order.
"""

import collections
import math
import pathlib
import statistics
import subprocess
import tempfile
import unittest

import bench_program

RECORD_COUNT = 20000  # enough records for 1,024 bins
BIN_COUNT = 1024
ORDERS = ["sequential", "chunked", "block shuffle", "global shuffle"]
SHAPE = ("--global-batch-size", 64, "--block-records", 100, "--group-batches", 8)


def chunked_positions(record_count, batch_size, group_batches):
    """The positions of the chunked order: records of a group of batches are dealt out in turn; the
    remaining records keep their order."""
    positions = []
    while len(positions) < record_count:
        first = len(positions)
        batches = min(group_batches, (record_count - first) // batch_size)
        if batches == 0:
            positions += range(first, record_count)
        else:
            positions += [first + i % batches * batch_size + i // batches
                          for i in range(batches * batch_size)]
    return positions


def mix_of(positions):
    """The entropy and the median of neighbour distances, and the share of distance 1."""
    distances = [abs(one - other) for one, other in zip(positions, positions[1:])]
    bins = collections.Counter(d * BIN_COUNT // len(positions) for d in distances)
    shares = [count / len(distances) for count in bins.values()]
    return (-sum(p * math.log2(p) for p in shares), statistics.median_high(distances),
            distances.count(1) / len(distances))


class BenchOrder(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="lmdbio-test-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.many = cls.folder / "many"
        bench_program.make("synthetic", "--count", RECORD_COUNT, "--value-size", 32, cls.many)

    def rows(self, *words, ranks=0):
        report = bench_program.report(ranks, "order", *words, self.many)
        self.assertEqual(report["records"], RECORD_COUNT)
        self.assertEqual([row["order"] for row in report["orders"]], ORDERS)
        return {row["order"]: row for row in report["orders"]}

    def assert_mix(self, row, positions):
        entropy, median, adjacent = mix_of(positions)
        self.assertAlmostEqual(row["entropy_bits"], entropy, places=9)
        self.assertEqual(row["median_distance"], median)
        self.assertAlmostEqual(row["adjacent_share"], adjacent, places=9)
        self.assertEqual(row["pairs"], len(positions) - 1)

    def test_orders_without_a_key(self):
        for tail in ("wrap", "short"):
            with self.subTest(tail=tail):
                rows = self.rows(*SHAPE, "--tail", tail)
                self.assert_mix(rows["sequential"], range(RECORD_COUNT))
                self.assertEqual(rows["sequential"]["entropy_bits"], 0)
                self.assert_mix(rows["chunked"], chunked_positions(RECORD_COUNT, 64, 8))
                self.assertEqual(rows["chunked"]["group_batches"], 8)

    def test_global_shuffle_mixes_as_chance_does(self):
        bins = [(2 * (BIN_COUNT - k) - 1) / BIN_COUNT**2 for k in range(BIN_COUNT)]
        self.assertAlmostEqual(sum(bins), 1)
        random_bits = -sum(p * math.log2(p) for p in bins)
        for seed in range(3):
            with self.subTest(seed=seed):
                row = self.rows(*SHAPE, "--seed", seed)["global shuffle"]
                self.assertTrue(0.97 < row["entropy_share"] < 1.03, row)
                self.assertAlmostEqual(row["entropy_share"], row["entropy_bits"] / random_bits)
                # In a random order half of all pairs are closer than (1 - sqrt(1/2)) N.
                self.assertAlmostEqual(row["median_distance"] / RECORD_COUNT, 1 - math.sqrt(0.5),
                                       delta=0.015)
                self.assertLess(row["adjacent_share"], 0.001)

    def test_block_shuffle_lies_between(self):
        rows = self.rows(*SHAPE)
        block = rows["block shuffle"]
        self.assertEqual((block["block_records"], block["group_batches"]), (100, 8))
        self.assertTrue(0.1 < block["entropy_share"] < 0.9, block)
        self.assertLess(rows["chunked"]["entropy_bits"], block["entropy_bits"])
        self.assertLess(block["median_distance"], 8 * 64)  # neighbours stay in their group
        for name in ("sequential", "chunked", "global shuffle"):
            self.assertIsNone(rows[name]["block_records"])

    def test_other_seeds_mix_otherwise(self):
        one, same, other = (self.rows(*SHAPE, "--seed", seed) for seed in (1, 1, 2))
        for name in ORDERS[2:]:
            self.assertEqual(one[name]["entropy_bits"], same[name]["entropy_bits"], name)
            self.assertNotEqual(one[name]["entropy_bits"], other[name]["entropy_bits"], name)

    def test_records_that_an_epoch_drops_make_no_pairs(self):
        dropped = RECORD_COUNT % 96
        rows = self.rows("--global-batch-size", 96, "--tail", "drop")
        self.assertEqual(rows["sequential"]["pairs"], RECORD_COUNT - 1 - dropped)
        # Each dropped record removes two pairs; two adjacent dropped records remove three.
        missing = RECORD_COUNT - 1 - rows["global shuffle"]["pairs"]
        self.assertTrue(dropped < missing <= 2 * dropped, missing)

    def test_one_batch_larger_than_the_database(self):
        for tail in ("wrap", "short"):
            size = "--global-batch-size", 10 * RECORD_COUNT
            row = self.rows(*size, "--tail", tail)["global shuffle"]
            self.assertTrue(0.97 < row["entropy_share"] < 1.03, row)

    def test_table_of_one_rank(self):
        outcome = bench_program.run(2, "order", self.many)
        self.assertEqual((outcome.exit_code, outcome.errors), (0, ""))
        for name in ORDERS:
            self.assertEqual(sum(line.startswith(name) for line in outcome.output.splitlines()), 1)
        self.assertIn("entropy", bench_program.run(0, "order", "--help").output)

    def assert_fails(self, exit_code, words, *command, all_ranks=(0,)):
        for ranks in all_ranks:
            with self.subTest(command=command, ranks=ranks):
                outcome = bench_program.run(ranks, "order", *command)
                self.assertEqual(outcome.flaw_of_failure(exit_code, *words), "")

    def test_bad_input_gives_one_line(self):
        missing = self.folder / "missing"
        text = self.folder / "text"
        text.write_bytes(b"x" * 3 * 4096)
        self.assert_fails(1, [str(missing), "No such file"], missing, all_ranks=(0, 2))
        self.assert_fails(1, [str(text), "not an LMDB data file"], text)
        self.assert_fails(1, ["database 'other': not found"], "--database-name", "other", self.many,
                          all_ranks=(0, 2))
        self.assert_fails(1, ["tail drop leaves no batch"], "--tail", "drop",
                          "--global-batch-size", 10**6,
                          self.many)
        self.assert_fails(1, ["no", "file"], "--json", self.folder / "no" / "file", self.many)
        for words, option in ((["global_batch_size"], ("--global-batch-size", 0)),
                              (["--tail", "wrap"], ("--tail", "x")),
                              (["--seed"], ("--seed", -1)),
                              (["group_batches"], ("--group-batches", 10**6))):
            self.assert_fails(2, words, *option, self.many)

    def test_too_few_records(self):
        for count, words in ((0, "holds no records"), (1, "no neighbours")):
            lines = "".join(f" {key:02x}\n 00\n" for key in range(count))
            path = self.folder / f"with-{count}"
            path.mkdir()
            subprocess.run(["mdb_load", path], check=True, text=True, input=(
                "VERSION=3\nformat=bytevalue\ntype=btree\nHEADER=END\n" + lines + "DATA=END\n"))
            self.assert_fails(1, [words], path)


if __name__ == "__main__":
    unittest.main(argv=bench_program.sys.argv[:1])

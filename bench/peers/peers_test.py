"""Tests bench/peers/compare.py on a tiny database: every reader delivers every record.

    peers_test.py [LMDBIO_BENCH [LIBLMDBIO]]

The oracle is the checksum of the records that were put. Without LIBLMDBIO, lmdbio.torch is not
among the readers. Exits with 77 without the modules.
"""

import importlib.util
import json
import os
import pathlib
import random
import stat
import subprocess
import sys
import tempfile
import unittest

COMPARE = pathlib.Path(__file__).resolve().parent / "compare.py"
MODULES = ("lmdb", "numpy", "torch", "xxhash")
SKIPPED = 77
RECORD_COUNT = 100
LMDBIO_BENCH = sys.argv[1] if len(sys.argv) > 1 else None
LIBLMDBIO = sys.argv[2] if len(sys.argv) > 2 else None

# Reports like lmdbio-bench, with a given checksum. Its strategy names the requested order.
STAND_IN = """#!{python}
import json, sys
def option(name):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else ""
path = option("--json")
strategy = (option("--order") + " " + option("--shuffle")).strip()
run = dict(strategy=strategy, ranks=1, order="any", records_per_s=5.0, bytes_per_s=6.0,
           raw_bytes_per_s=7.0, raw_fraction=0.9, first_batch_s=0.5, checksum="{checksum:016x}")
json.dump(dict(runs=[run]), open(path, "w"))
"""


def write_database(path, record_count):
    """Returns the checksum of the records."""
    import lmdb
    import xxhash
    source, total = random.Random(7), 0
    with lmdb.open(str(path), map_size=1 << 24) as environment, \
            environment.begin(write=True) as transaction:
        for number in range(record_count):
            value = source.randbytes(0 if number == 3 else source.randrange(1, 9000))
            transaction.put(b"%08d" % number, value)
            total += xxhash.xxh3_64_intdigest(value)
    return total & ((1 << 64) - 1)


class CompareTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.checksum = write_database(self.folder / "db", RECORD_COUNT)

    def compare(self, *options, liblmdbio="none"):
        return subprocess.run(
            [sys.executable, "-B", COMPARE, *options, "--lmdbio-library", liblmdbio],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120,
            # MPI leaks memory.
            env=os.environ | {"ASAN_OPTIONS": "detect_leaks=0"})

    def stand_in(self, checksum):
        program = self.folder / "stand_in"
        program.write_text(STAND_IN.format(python=sys.executable, checksum=checksum),
                           encoding="utf-8")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return program

    def test_every_reader_delivers_every_record_once(self):
        report = self.folder / "report.json"
        result = self.compare(
            self.folder / "db", "--verify", "--batch-size", "7", "--repeat", "2", "--json", report,
            "--lmdbio-bench", self.stand_in(self.checksum))
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        rows = json.loads(report.read_text(encoding="utf-8"))["summary"]
        readers = ["py-lmdb", "DataLoader, 0 workers", "DataLoader, 2 workers"]
        self.assertEqual(
            [(row["order"], row["reader"]) for row in rows],
            [("sequential", reader) for reader in [*readers, "lmdbio sequential, 1 rank"]]
            + [("shuffled", reader) for reader in [*readers, "lmdbio shuffle global, 1 rank"]]
            + [("block", "lmdbio shuffle block, 1 rank")])
        for row in rows:
            self.assertEqual(row["checksums"], [f"{self.checksum:016x}"], row)
            self.assertEqual(row["runs"], 2)
            self.assertIn(row["reader"], result.stdout)

    def test_a_file_of_conditions_keeps_the_others(self):
        report = self.folder / "peers.json"
        options = (self.folder / "db", "--workers", "0", "--order", "sequential", "--json", report,
                   "--lmdbio-bench", self.stand_in(0))
        for condition, records in (("cold", "10"), ("warm", "20"), ("cold", "30")):
            result = self.compare(*options, "--condition", condition, "--records", records)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
        conditions = json.loads(report.read_text(encoding="utf-8"))["conditions"]
        self.assertEqual({name: one["setting"]["records"] for name, one in conditions.items()},
                         {"cold": 30, "warm": 20})
        for one in conditions.values():
            self.assertTrue(one["summary"])
            self.assertRegex(one["setting"]["date"], r"\A\d{4}-\d\d-\d\d\Z")
            self.assertIn("bench/peers/compare.py PATH --workers 0", one["setting"]["command"])
        self.assertNotIn(str(self.folder), report.read_text(encoding="utf-8"))

    def test_another_file_is_not_replaced_by_conditions(self):
        report = self.folder / "other.json"
        for text in ('{"summary": []}', "text"):
            report.write_text(text, encoding="utf-8")
            result = self.compare(self.folder / "db", "--json", report, "--condition", "cold")
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stderr,
                             r"\Acompare.py: .+ is not a file of conditions[^\n]+\n\Z")
            self.assertEqual(report.read_text(encoding="utf-8"), text)
        result = self.compare(self.folder / "db", "--condition", "cold")
        self.assertIn("--condition needs --json", result.stderr)

    @unittest.skipUnless(LMDBIO_BENCH, "no lmdbio-bench was given")
    def test_lmdbio_delivers_the_same_in_any_order(self):
        report = self.folder / "report.json"
        result = self.compare(self.folder / "db", "--verify", "--workers", "0", "--json", report,
                              "--batch-size", "7", "--seed", "-1", "--lmdbio-bench", LMDBIO_BENCH,
                              liblmdbio=LIBLMDBIO or "none")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        rows = json.loads(report.read_text(encoding="utf-8"))["summary"]
        for reader in ["lmdbio auto"] + ["lmdbio.torch, 0 workers"] * (LIBLMDBIO is not None):
            self.assertEqual([row["order"] for row in rows if row["reader"].startswith(reader)],
                             ["sequential", "shuffled", "block"])
        for row in rows:
            self.assertEqual(row["checksums"], [f"{self.checksum:016x}"], row)

    def test_different_records_are_an_error(self):
        result = self.compare(self.folder / "db", "--verify", "--workers", "0", "--lmdbio-bench",
                              self.stand_in(self.checksum ^ 1))
        self.assertEqual(result.returncode, 1)
        self.assertIn("delivered different records", result.stderr)

    def test_limit_and_missing_lmdbio_bench(self):
        other = self.folder / "first"
        expected = write_database(other, 10)  # the same generator: the first ten records
        report = self.folder / "report.json"
        result = self.compare(
            self.folder / "db", "--verify", "--workers", "0", "--records", "10", "--json", report,
            "--lmdbio-bench", self.folder / "none")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("not built", result.stdout)
        for row in json.loads(report.read_text(encoding="utf-8"))["summary"]:
            self.assertEqual(row["checksums"], [f"{expected:016x}"], row)

    def test_bad_input_gives_one_line(self):
        (self.folder / "text").write_text("no database " * 1000, encoding="utf-8")
        for path in ("missing", "text"):
            result = self.compare(self.folder / path)
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stderr, r"\Acompare.py: [^\n]+\n\Z")


def main():
    for module in MODULES:
        if importlib.util.find_spec(module) is None:
            print(f"peers_test: skipped: {sys.executable} has no module {module}")
            return SKIPPED
    return 0 if unittest.main(argv=sys.argv[:1], exit=False).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())

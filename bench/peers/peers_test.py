"""Tests bench/peers/compare.py on a tiny database: every reader delivers every record.

    peers_test.py [LMDBIO_BENCH [LIBLMDBIO]]

The oracle is the checksum of the records that were put. Without LIBLMDBIO, lmdbio.torch is not
among the readers. Peers are tested if this Python has them; readers of the test stand for peers
that fail, lose records or are absent. Exits with 77 without the modules.
"""

import importlib.util
import json
import os
import pathlib
import random
import shutil
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


OWN = "py_lmdb,dataloader,lmdbio_bench,lmdbio_loader,lmdbio_torch"
PEERS = {"DALI": "nvidia", "MosaicML Streaming": "streaming", "WebDataset": "webdataset",
         "LitData": "litdata", "Grain": "grain", "ArrayRecord": "array_record"}

# A reader for --add, which keeps the records in one file. `change` may spoil the list `values`.
READER = """
import os, pathlib, pickle, time
{imports}
from readers import interface

class Reader(interface.Reader):
    label = "{label}"
    modules = ("torch", "xxhash")
    format = "{label}"
    promises = interface.Promises("as it likes", "nothing", "copy", exact={exact})

    def title(self, workers):
        return self.label

    def workers(self, requested):
        return [None]

    def make(self, task, values):
        with open({log!r}, "a") as log:
            log.write(self.label + "\\n")
        pathlib.Path(task.path, "values").write_bytes(pickle.dumps(list(values)))

    def batches(self, task):
        values = pickle.loads(pathlib.Path(task.path, "values").read_bytes())
        if task.order == "shuffled":
            values.reverse()
        {change}
        for group in interface.grouped(values, task.batch_size):
            yield interface.collate(group)
            {after}
"""


def write_database(path, record_count, is_even=False):
    """Returns the checksum of the records."""
    import lmdb
    import xxhash
    source, total = random.Random(7), 0
    with lmdb.open(str(path), map_size=1 << 24) as environment, \
            environment.begin(write=True) as transaction:
        for number in range(record_count):
            size = 0 if number == 3 else source.randrange(1, 9000)
            value = source.randbytes(512 if is_even else size)
            transaction.put(b"%08d" % number, value)
            total += xxhash.xxh3_64_intdigest(value)
    return total & ((1 << 64) - 1)


class CompareTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.checksum = write_database(self.folder / "db", RECORD_COUNT)

    def compare(self, *options, liblmdbio="none", names=OWN):
        return subprocess.run(
            [sys.executable, "-B", COMPARE, *options, "--lmdbio-library", liblmdbio,
             "--readers", names, "--formats", self.folder / "formats"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=600,
            # MPI leaks memory.
            env=os.environ | {"ASAN_OPTIONS": "detect_leaks=0"})

    def stand_in(self, checksum):
        program = self.folder / "stand_in"
        program.write_text(STAND_IN.format(python=sys.executable, checksum=checksum),
                           encoding="utf-8")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return program

    def reader(self, label, change="", after="", imports="", exact=True):
        """The option for a reader of the test."""
        path = self.folder / f"{label}_reader.py"
        path.write_text(READER.format(label=label, change=change, after=after, imports=imports,
                                      exact=exact, log=str(self.folder / "made")),
                        encoding="utf-8")
        return ["--add", path]

    def compare_added(self, *words, order="sequential"):
        """Runs readers of the test beside py-lmdb. Returns (result, report)."""
        path = self.folder / "added.json"
        result = self.compare(self.folder / "db", "--verify", "--batch-size", "7", "--order",
                              order, "--json", path, *words, names="py_lmdb")
        return result, json.loads(path.read_text(encoding="utf-8"))

    def test_a_peer_that_fails_does_not_end_the_comparison(self):
        result, report = self.compare_added(
            *self.reader("Failing", after="raise ValueError('broken\\nshard')"),
            *self.reader("Killed", change="os.kill(os.getpid(), 9)"),
            *self.reader("Absent", imports="import no_such_module"),
            *self.reader("Good"), order="sequential,shuffled")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual([(row["order"], row["reader"]) for row in report["summary"]],
                         [(order, reader) for order in ("sequential", "shuffled")
                          for reader in ("py-lmdb", "Good")])
        for row in report["summary"]:
            self.assertEqual(row["checksums"], [f"{self.checksum:016x}"], row)
        reasons = {"Failing": "ValueError: broken", "Killed": "signal SIGKILL: no message"}
        for order in ("sequential", "shuffled"):
            for reader, reason in reasons.items():
                self.assertIn({"order": order, "reader": reader, "reason": reason},
                              report["failures"])
                self.assertRegex(result.stdout, rf"{order} +{reader} +failed: {reason}")
        self.assertEqual(len(report["failures"]), 4)
        self.assertRegex(result.stdout, r"absent: \S+: ModuleNotFoundError: No module named 'no_")
        self.assertEqual(len(report["absent"]), 1)

    def test_a_peer_that_hangs_is_ended(self):
        # On a busy machine the other reader, or the making of the data set, may be late, too.
        _, report = self.compare_added(*self.reader("Late", after="time.sleep(3600)"),
                                       "--timeout", "8")
        reasons = {one["reason"] for one in report["failures"] if one["reader"] == "Late"}
        self.assertEqual(reasons, {"not finished after 8 s"})

    def test_lost_and_repeated_records_are_counted(self):
        spoil = "values[5] = values[6]; values.append(b'foreign')"
        result, report = self.compare_added(*self.reader("Careless", change=spoil, exact=False))
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual({one["records"] for one in report["differences"]},
                         {"1 lost, 1 repeated, 1 foreign"})
        self.assertIn("not promised", result.stdout)
        self.assertIn("1 lost, 1 repeated, 1 foreign", result.stdout)

    def test_a_broken_promise_is_an_error(self):
        result, report = self.compare_added(*self.reader("Liar", change="values.pop()"))
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr,
                         r"\Acompare.py: [^\n]+different records: Liar, sequential: 1 lost\n\Z")
        self.assertEqual(len(report["differences"]), 1)

    def test_a_data_set_is_made_once(self):
        log = self.folder / "made"
        for text in ("raise OSError('no space')", "pass", "pass"):
            words = self.reader("Kept")
            path = words[1]
            source = path.read_text(encoding="utf-8")
            path.write_text(source.replace("pathlib.Path(task.path, \"values\").write_bytes",
                                           f"{text}\n        "
                                           "pathlib.Path(task.path, \"values\").write_bytes"),
                            encoding="utf-8")
            result, report = self.compare_added(*words, order="shuffled")
            self.assertEqual(result.returncode, 0, result.stderr)
            failures = [one["reason"] for one in report["failures"]]
            self.assertEqual(failures, ["OSError: no space"] if "raise" in text else [])
        self.assertEqual(log.read_text(encoding="utf-8").split(), ["Kept", "Kept"])

    @unittest.skipUnless(shutil.which("nbdfuse") and os.access("/dev/fuse", os.W_OK)
                         and os.geteuid() == 0, "no emulated remote storage here")
    def test_remote_storage_delivers_the_same(self):
        result, report = self.compare_added("--remote", "--remote-options", "--delay-ms 0",
                                            *self.reader("Good"), order="sequential,shuffled")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(len(report["summary"]), 4)
        for row in report["summary"]:
            self.assertEqual(row["checksums"], [f"{self.checksum:016x}"], row)

    def test_every_peer_delivers_every_record_or_is_named(self):
        checksum = write_database(self.folder / "even", RECORD_COUNT, is_even=True)
        path = self.folder / "peers.json"
        names = "dali,mosaic,webdataset,litdata,grain,arrayrecord"
        result = self.compare(self.folder / "even", "--verify", "--batch-size", "7", "--seed", "-3",
                              "--order", "sequential,shuffled", "--json", path, names=names)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        report = json.loads(path.read_text(encoding="utf-8"))
        self.assertEqual(report["failures"], [])
        for label, package in PEERS.items():
            rows = [row for row in report["summary"] if row["reader"].startswith(label + ",")]
            if importlib.util.find_spec(package) is None:
                self.assertEqual(report["absent"][label], f"no Python module {package}")
                self.assertIn(f"absent: {label}: no Python module {package}\n", result.stdout)
            self.assertEqual(len(rows), 0 if label in report["absent"] else 4, label)
            for row in rows:
                self.assertEqual(row["checksums"], [f"{checksum:016x}"], row)

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
            result = self.compare(*options, "--condition", condition, "--records", records,
                                  names="py_lmdb,lmdbio_bench")
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
        own = ["lmdbio.Loader", "lmdbio.torch, 0 workers"] if LIBLMDBIO is not None else []
        for reader in ["lmdbio auto", *own]:
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

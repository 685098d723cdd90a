"""Tests allreduce_matrix.py and allreduce_bench on little data.

    allreduce_matrix_test.py BUILD_FOLDER

Sums are checked by allreduce_bench itself. The oracles here are made-up figures for the tables, and
the kernel's rate for the hosts. The test of hosts is skipped where namespaces are refused.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import allreduce_hosts
import box_cluster
from mpi_jobs import mpi_environment, mpirun_words

FOLDER = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(sys.argv[1])
LITTLE = ("--max", "70000", "--registered", "1000000", "--repetitions", "1", "--seconds", "0.001")
OWN_WAYS = ("lmdbio", *allreduce_hosts.DEPTHS, *allreduce_hosts.ALGORITHMS)


def devices():
    links = subprocess.run(["ip", "-json", "link"], check=True, capture_output=True).stdout
    return {link["ifname"] for link in json.loads(links)}


def time(median_us):
    return {"median_us": median_us, "min_us": median_us, "max_us": median_us, "bus_gb_s": 0.1}


def made_up_row(size, own, depths, algorithms, mpi, gloo):
    # Four ranks send 1.5 times the bytes.
    transfer = time(own / 2) | {"bus_gb_s": 1.5 * size / (own / 2) / 1e3}
    row = {"bytes": size, "lmdbio": time(own), "mpi": time(mpi), "transfer": transfer}
    row["lmdbio"]["choice"] = {"algorithm": "ring", "chunk_bytes": 65536, "chunk_depth": 2}
    row |= {way: time(us) for way, us in zip(allreduce_hosts.DEPTHS, depths)}
    row |= {way: time(us) for way, us in zip(allreduce_hosts.ALGORITHMS, algorithms)}
    if gloo:
        row["gloo"] = time(gloo)
    return row


def made_up_cell(*rows):
    return {"hosts": 4, "bandwidth": "10G", "mpi_wait_asked": "yield", "mpi_wait": "yields (asked)",
            "wait": "sleep", "trial_seconds": 0.2, "rows": list(rows)}


class TableTest(unittest.TestCase):
    # 5 % behind the best depth, ahead of both rivals.
    GOOD = made_up_row(1 << 20, 105, (100, 105, 107, 109), (200, 105, 130, 140), 150, 400)
    # 20 % behind the best depth, slower than MPI; without Gloo.
    BAD = made_up_row(4 << 20, 120, (100, 120, 120, 120), (300, 110, 130, 140), 80, None)

    def test_a_row_has_times_choice_and_ratios(self):
        lines = allreduce_hosts.table(made_up_cell(self.GOOD, self.BAD))
        self.assertIn("| 1 MiB | 105 | ring, 64 KiB x 2 | 100 | 105 | 107 | 109 | 1.05 | 200 | 105 "
                      "| 130 | 140 | 150 | 400 | 0.70 | 52 |", lines)
        self.assertTrue(any(line.startswith("| 4 MiB |") and "| 1.20 |" in line and
                            "| 80 | - | 1.50 |" in line for line in lines), lines)
        self.assertEqual({line.count("|") for line in lines if line.startswith("|")}, {17})

    def test_the_verdict_counts_cells(self):
        self.assertEqual(allreduce_hosts.verdict([made_up_cell(self.GOOD, self.BAD)]), [
            "time at most 1.05 of the best fixed depth: 1 of 2 cells (100 % expected), does not "
            "hold; median 1.12, worst 1.20 (4 hosts, 10Gbit/s, MPI yield, 4 MiB)",
            "faster than MPI and Gloo: 1 of 2 cells (90 % expected), does not hold; median 1.10, "
            "worst 1.50 (4 hosts, 10Gbit/s, MPI yield, 4 MiB)",
            "the same, where the network leaves room: 1 of 2 cells (90 % expected), does not hold; "
            "median 1.10, worst 1.50 (4 hosts, 10Gbit/s, MPI yield, 4 MiB)",
            "time at most 1.05 of the best algorithm by itself: 1 of 2 cells (90 % expected), does "
            "not hold; median 1.05, worst 1.09 (4 hosts, 10Gbit/s, MPI yield, 4 MiB)"])

    def test_a_rival_as_fast_as_the_network_leaves_no_room(self):
        # The best rate is that of 4 MiB in 60 us.
        full = made_up_row(4 << 20, 62, (62,) * 4, (62,) * 4, 61, None) | {"transfer": time(60)}
        cell = made_up_cell(self.BAD, full)
        self.assertAlmostEqual(allreduce_hosts.least_us(cell, full), 60)
        self.assertIn("where the network leaves room: 0 of 1 cells",
                      allreduce_hosts.verdict([cell])[2])
        self.assertIn("| 4 MiB | 120 / 80 / - (1.50) |", allreduce_hosts.summary([cell]))
        self.assertIn("| 4 MiB | 62 / 61 / - (1.02) * |",
                      allreduce_hosts.summary([made_up_cell(full) | {"rows": [
                          full | {"transfer": self.BAD["transfer"]}]}]))

    def test_nine_of_ten_cells_are_enough_against_rivals(self):
        rows = [self.GOOD] * 9 + [self.BAD]
        self.assertIn("9 of 10 cells (90 % expected), holds",
                      allreduce_hosts.verdict([made_up_cell(*rows)])[1])
        rows = [self.GOOD] * 8 + [self.BAD]
        self.assertIn("does not hold", allreduce_hosts.verdict([made_up_cell(*rows)])[1])


class MatrixTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name) / "out"
        # MPI and Gloo lose memory of their own.
        self.environment = mpi_environment() | {"ASAN_OPTIONS": "detect_leaks=0"}

    def run_matrix(self, *words):
        return subprocess.run([sys.executable, "-B", FOLDER / "allreduce_matrix.py", "--build",
                               BUILD, "--out", self.out, *words],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                              timeout=240, env=self.environment)

    def run_bench(self, ranks, *words):
        command = [*mpirun_words("mpirun", ranks, "yield"), BUILD / "bin" / "allreduce_bench",
                   *words]
        return subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False, timeout=120,
                              env=self.environment)

    def test_ranks_of_this_host(self):
        done = self.run_matrix("--ranks", "2", *LITTLE)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| 4 KiB |", done.stdout)
        (cell,) = json.loads((self.out / "matrix.json").read_text())
        self.assertEqual(cell["ranks"], 2)
        self.assertIn("lmdbio in place", cell["rows"][0])

    def test_messages_of_ranks_of_this_host(self):
        self.out.mkdir()
        saved = self.out / "figures.json"
        done = self.run_bench(3, "--over", "wire", "--min", 1024, *LITTLE, "--json", saved)
        self.assertEqual(done.returncode, 0, done.stderr)
        cell = json.loads(saved.read_text())
        self.assertEqual([row["bytes"] for row in cell["rows"]], [1024, 4096, 16384, 65536])
        self.assertIn("by a trial of 1024 to ", cell["description"])
        for row in cell["rows"]:
            self.assertLessEqual({*OWN_WAYS, "transfer", "mpi"}, row.keys())
            # Messages of one chunk have no depth, so one measurement stands for all depths.
            self.assertEqual(len({row[way]["median_us"] for way in allreduce_hosts.DEPTHS}), 1)
            for depth in allreduce_hosts.DEPTHS:
                self.assertEqual(f"depth {row[depth]['choice']['chunk_depth']}", depth)
            for name in allreduce_hosts.ALGORITHMS:
                self.assertEqual(row[name]["choice"]["algorithm"], name)

    @unittest.skipIf(box_cluster.why_not_here(), box_cluster.why_not_here())
    def test_ranks_of_emulated_hosts(self):
        before = devices()
        done = self.run_matrix("--hosts", "2", "--bandwidths", "100M", *LITTLE)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("### 2 hosts, 100Mbit/s, MPI ", done.stdout)
        self.assertIn("faster than MPI and Gloo: ", done.stdout)
        self.assertEqual(done.stdout, (self.out / "matrix.md").read_text())
        (cell,) = json.loads((self.out / "matrix.json").read_text())
        self.assertEqual((cell["ranks"], cell["hosts"], cell["bandwidth"]), (2, 2, "100M"))
        self.assertEqual(cell["rows"][0]["bytes"], 1024)
        self.assertEqual(devices(), before)

    @unittest.skipIf(box_cluster.why_not_here(), box_cluster.why_not_here())
    def test_a_bandwidth_that_cannot_be_set_ends_with_one_line(self):
        done = self.run_matrix("--hosts", "2", "--bandwidths", "fast")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"\Aallreduce_matrix.py: scripts/cluster up: [^\n]*'fast' is "
                                      r"no rate from 1M to 1000G[^\n]*\n\Z")

    def test_bad_input_is_named(self):
        for words, said in ((("--hosts", "1"), "'1' is invalid; expected numbers from 2 on"),
                            (("--ranks", "0"), "'0' is invalid; expected numbers from 1 on"),
                            (("--waits", "sleep"), "'sleep' is unknown; expected spin or yield")):
            done = self.run_matrix(*words)
            self.assertEqual(done.returncode, 2)
            self.assertIn(said, done.stderr)
        for words, said in (
                (("--over", "sideways"), "--over is 'sideways'; it takes memory or wire"),
                (("--wait", "long"), "--wait takes spin or sleep")):
            done = self.run_bench(2, *words)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(f"allreduce_bench: {said}", done.stderr)
        self.assertIn("--over wire needs at least 2 ranks",
                      self.run_bench(1, "--over", "wire").stderr)


if __name__ == "__main__":
    reason = box_cluster.why_not_here()
    if reason:
        print(f"the tests of hosts are skipped: {reason}", file=sys.stderr)
    unittest.main(argv=[sys.argv[0]])

"""Tests run_caramel.py: the search for rates by made-up networks, its figures by made-up runs, and
the whole of it on little data between emulated hosts.

    caramel_test.py BUILD_FOLDER

The test of hosts is skipped where namespaces are refused.
"""

import argparse
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent)]

import box_cluster  # noqa: E402
import caramel_report  # noqa: E402
import run_caramel  # noqa: E402
from caramel_report import BASELINE, COMPUTING, Cell, Figures  # noqa: E402
from ddp_gloo import DDP  # noqa: E402
from sync_bench_job import Ranks  # noqa: E402

BUILD = pathlib.Path(sys.argv[1])
WINDOW = f"{BASELINE}+window"
MBIT = 10**6
LIMITS = (100 * MBIT, 1000 * MBIT)


class RateTest(unittest.TestCase):
    def search(self, wanted, rho_of, tried=None):
        """Returns (rate, {rate: rho} of all tries, rates in the order in which they were tried)."""
        tried, order = dict(tried or {LIMITS[1]: rho_of(LIMITS[1])}), []

        def measure(rate):
            order.append(rate)
            return rho_of(rate)

        return run_caramel.find_rate(wanted, tried, measure, LIMITS), tried, order

    def test_a_network_with_a_constant_cost_is_found(self):
        # rho = 0.1 + 0.4 Gbit/s / rate
        rate, tried, order = self.search(2, lambda rate: 0.1 + 400 * MBIT / rate)
        self.assertAlmostEqual(tried[rate], 2, places=2)
        # The first try takes all of the time for that of the bytes: 0.5 at 1 Gbit/s.
        self.assertEqual(order, [250 * MBIT, 211 * MBIT - 474_000])

    def test_rates_that_were_tried_are_not_measured_again(self):
        rate, tried, order = self.search(
            1, None, {1000 * MBIT: 0.5, 500 * MBIT: 1.02, 250 * MBIT: 2.1})
        self.assertEqual((rate, order, len(tried)), (500 * MBIT, [], 3))

    def test_many_networks_end_near_the_wanted_ratio(self):
        chance = random.Random(1)
        for _ in range(300):
            constant, by_rate = chance.uniform(0, 0.3), chance.uniform(0.3, 0.5) * 1000 * MBIT
            wanted = chance.uniform(constant + by_rate / LIMITS[1], constant + by_rate / LIMITS[0])
            rate, tried, order = self.search(wanted, lambda rate: constant + by_rate / rate)
            self.assertLessEqual(abs(tried[rate] / wanted - 1), run_caramel.RHO_ERROR_MAX)
            self.assertLessEqual(len(order), run_caramel.RATE_TRIES)
            self.assertTrue(all(LIMITS[0] <= one <= LIMITS[1] for one in order))
            self.assertTrue(all(one % run_caramel.RATE_STEP == 0 for one in order))

    def test_a_ratio_out_of_reach_gets_the_nearest_limit(self):
        for wanted, limit in ((0.1, 1000 * MBIT), (100, 100 * MBIT)):
            rate, _, order = self.search(wanted, lambda rate: 500 * MBIT / rate)
            self.assertEqual(rate, limit)
            self.assertLessEqual(len(order), 1)

    def test_two_rates_that_differ_by_chance_do_not_lead_away(self):
        # 690 Mbit/s was disturbed a little: with 675 alone its line would be far too steep.
        tried = {1000 * MBIT: 0.5, 690 * MBIT: 0.70, 675 * MBIT: 0.76}
        rate = run_caramel.next_rate(1, tried, LIMITS)
        self.assertTrue(430 * MBIT < rate < 560 * MBIT, rate)

    def test_a_line_that_falls_by_chance_is_not_followed(self):
        tried = {1000 * MBIT: 0.52, 990 * MBIT: 0.50}
        self.assertEqual(run_caramel.next_rate(1, tried, LIMITS), 520 * MBIT)


def made_up_run(variant, kind, repetition, milliseconds):
    return dict(variant=variant, kind=kind, repetition=repetition, is_disturbed=repetition == 1,
                iteration_ms=[milliseconds] * 3)


def made_up_cell(rho, repetitions, topo, window):
    """Computing takes 100, 101, ... ms, the communication rho as long. `topo` and `window`:
    iteration / computing."""
    runs = []
    for repetition in range(repetitions):
        computing = 100.0 + repetition
        runs += [made_up_run(COMPUTING, "train", repetition, computing),
                 made_up_run(BASELINE, "alone", repetition, rho * computing),
                 made_up_run(BASELINE, "train", repetition, topo * computing),
                 made_up_run(WINDOW, "train", repetition, window * computing)]
    rows = [dict(variant=variant, helper_share=0.04, collectives=7.5, runs=repetitions,
                 clean_runs=repetitions - 1)
            for variant in (COMPUTING, BASELINE, WINDOW)]
    rows[2] |= dict(x_least=1.0321, prediction_error=-0.0123, prediction_error_furthest=-0.0456,
                    transfer_error=0.05, transfer_error_max=0.25)
    rows.append(dict(variant="gloo", error="no network", runs=0, clean_runs=0))
    return dict(variants=[COMPUTING, BASELINE, WINDOW, "gloo", "lmdbio:other"], rate=250 * MBIT,
                rate_rho=1.01, absent={"lmdbio:other": "coordinator 'other' is unknown"},
                environment=dict(cores=2, mpi="Open MPI", commit="abc"),
                networks=[dict(settings=dict(has_accelerator=True, repetitions=repetitions),
                               variants=rows, runs=runs)])


class ReportTest(unittest.TestCase):
    CELL = Cell("vgg16", 4, "yield", 2)

    def test_figures_of_a_row(self):
        figures = Figures(made_up_cell(2, 6, 7 / 3, 2.1))
        self.assertAlmostEqual(figures.rho, 2)
        window = figures.row_of(WINDOW)
        expected = dict(ms=215.25, ms_min=210, ms_max=220.5, x_topo=0.9, x_bound=1.05, alpha=0.9,
                        utilisation=1 / 2.1, helper_share=0.04, collectives=7.5, runs=6,
                        clean_runs=5)
        for name, value in expected.items():
            self.assertAlmostEqual(window[name], value, msg=name)
        for name, value in (("x_topo_interval", 0.9), ("x_bound_interval", 1.05)):
            for bound in window[name]:
                self.assertAlmostEqual(bound, value)
        topo = figures.row_of(BASELINE)
        self.assertAlmostEqual(topo["x_topo"], 1)
        self.assertAlmostEqual(topo["utilisation"], 3 / 7)
        self.assertAlmostEqual(figures.row_of(COMPUTING)["x_bound"], 0.5)
        self.assertNotIn("alpha", figures.row_of(COMPUTING))

    def test_the_bound_is_computing_if_the_network_is_fast(self):
        row = Figures(made_up_cell(0.5, 3, 1.05, 1.01)).row_of(WINDOW)
        self.assertAlmostEqual(row["x_bound"], 1.01)
        self.assertIsNone(row["x_bound_interval"])
        self.assertAlmostEqual(row["alpha"], (1.5 - 1.01) / 0.5)

    def test_a_variant_measured_alone_has_an_overlap_of_its_own(self):
        told = made_up_cell(2, 6, 7 / 3, 2.1)
        self.assertNotIn("alone_ms", Figures(told).row_of(WINDOW))
        told["networks"][0]["runs"] += [
            made_up_run(WINDOW, "alone", run["repetition"], 1.5 * run["iteration_ms"][0])
            for run in told["networks"][0]["runs"] if run["variant"] == COMPUTING]
        row = Figures(told).row_of(WINDOW)
        self.assertAlmostEqual(row["alone_ms"], 1.5 * 102.5)
        self.assertAlmostEqual(row["alpha_own"], 1 + 1.5 - 2.1)
        self.assertAlmostEqual(row["alpha"], 0.9)

    def test_ratios_pair_the_runs_of_a_repetition(self):
        told = made_up_cell(1, 3, 1.5, 1.5)
        slow = [run for run in told["networks"][0]["runs"] if run["repetition"] == 2]
        for run in slow:  # everything takes longer for a while
            run["iteration_ms"] = [10 * one for one in run["iteration_ms"]]
        row = Figures(told).row_of(WINDOW)
        self.assertAlmostEqual(row["x_topo"], 1)
        self.assertAlmostEqual(row["x_bound"], 1.5)

    def test_tables(self):
        cells = {self.CELL: Figures(made_up_cell(2, 6, 7 / 3, 2.1)),
                 Cell("vgg16", 4, "yield", 0.5): Figures(made_up_cell(0.5, 6, 1, 1))}
        lines = caramel_report.report(cells)
        self.assertIn("## vgg16, 4 hosts, MPI waits: yield", lines)
        self.assertIn("| 2 | 250.0 | 1.010 | 2.000 | 205.0 | 102.5 |", lines)
        self.assertIn(f"| 2 | {WINDOW} | 215.2 (210.0 to 220.5) | 0.900 (0.900 to 0.900) | 1.050 "
                      "(1.050 to 1.050) | 1.032 | -1.2, -4.6 | 5.0, 25.0 | - | - | 0.90 | 48 | 4 | "
                      "7.5 | 5/6 |", lines)
        nothing = " | -" * 12
        self.assertIn(f"| 2 | lmdbio:other | absent{nothing} |", lines)
        self.assertIn(f"| 2 | gloo | failed: no network{nothing} |", lines)
        self.assertIn(f"| 2 | {BASELINE} | 239.2 (233.3 to 245.0) | 1.000 (1.000 to 1.000) | 1.167 "
                      "(1.167 to 1.167) | - | - | - | 205.0 | 0.67 | 0.67 | 43 | 4 | 7.5 | 5/6 |",
                      lines)
        self.assertIn("`lmdbio:other` is absent: coordinator 'other' is unknown.", lines)
        self.assertIn(f"| vgg16, 4 hosts, MPI waits: yield | {WINDOW} | 1.000 (1.000 to 1.000) | "
                      "0.900 (0.900 to 0.900) |", lines)
        self.assertIn("an accelerator computes", lines[0])
        self.assertIn("Other processes disturbed 8 of 48 runs.", lines[0])
        told = caramel_report.json_of(cells)
        self.assertEqual([(one["rho"], one["rate_bits"]) for one in told],
                         [(0.5, 250 * MBIT), (2, 250 * MBIT)])
        self.assertAlmostEqual(told[1]["rho_reached"], 2)
        self.assertEqual([row["variant"] for row in told[1]["rows"]],
                         [COMPUTING, BASELINE, WINDOW, "gloo", "lmdbio:other"])

    def test_a_cell_keeps_its_name(self):
        self.assertEqual(self.CELL.name, "vgg16-4-yield-2")
        self.assertEqual(Cell(**json.loads(json.dumps(vars(self.CELL)))), self.CELL)


class PredictionTest(unittest.TestCase):
    def test_predictions_are_those_that_the_plan_tells(self):
        with tempfile.TemporaryDirectory() as folder:
            told = Ranks(1, 2, "yield", "", "mpirun", 300).measure(
                BUILD, ("--accelerator", "--wire-rate", "1", "--variants",
                        "none,lmdbio:topo,lmdbio:caramel+window", "--baseline", "none", "--kinds",
                        "train", "--scale", "0.02", "--compute-ms", "1000", "--repetitions", "2",
                        "--iterations", "5", "--warmup", "20", "--neighbour-limit", "100"),
                pathlib.Path(folder))
        (network,) = told["networks"]
        rows = {row["variant"]: row for row in network["variants"]}
        for variant in (COMPUTING, BASELINE):
            self.assertEqual([name for name in caramel_report.PREDICTION if name in rows[variant]],
                             [])
        errors, ratios = [], []
        for run in network["runs"]:
            # No plan is by time where the machine disturbs the iterations too much.
            lines = [line for line in run["description"] if " by time: an iteration" in line]
            self.assertEqual("prediction" in run, len(lines) == 1)
            if not lines:
                continue
            self.assertEqual(run["variant"], "lmdbio:caramel+window")
            numbers = re.search("of ([0-9.]+) ms is predicted.* at least ([0-9.]+) ms", lines[0])
            iteration, bound = map(float, numbers.groups())
            self.assertEqual(run["prediction"], dict(iteration_ms=iteration, bound_ms=bound,
                                                     is_by_arrival="by arrival" in lines[0][-12:]))
            p50 = statistics.median_low(run["iteration_ms"])
            errors.append(iteration / p50 - 1)
            ratios.append(p50 / bound)
            for _, predicted, measured in run["untried_sizes"]:
                self.assertGreater(min(predicted, measured), 0)
        row = rows["lmdbio:caramel+window"]
        if not errors:
            self.assertNotIn("prediction_error", row)
            return
        self.assertAlmostEqual(row["prediction_error"], min(errors))
        self.assertAlmostEqual(row["prediction_error_furthest"], max(errors, key=abs))
        self.assertAlmostEqual(row["x_least"], min(ratios))


class DdpTest(unittest.TestCase):
    def buckets_of(self, ddp):
        """The sizes of the first bucket and of the others, in MB; none without --ddp."""
        options = argparse.Namespace(ddp=ddp, gradient_mb=1, repetitions=1, warmup=1, iterations=1,
                                     run_seconds=1)
        words = run_caramel.ddp_words(options, "vgg16")
        return [float(words[words.index(word) + 1])
                for word in ("--first-bucket-mb", "--bucket-mb") if word in words]

    def test_buckets_are_scaled_unless_unscaled_ones_are_wanted(self):
        scale = 1e6 / run_caramel.network_bytes("vgg16")
        for found, expected in zip(self.buckets_of("scaled"), (scale, 25 * scale), strict=True):
            self.assertAlmostEqual(found, expected, places=6)
        self.assertEqual(self.buckets_of("unscaled"), [1, 25])
        self.assertEqual(self.buckets_of(None), [])


class DriverTest(unittest.TestCase):
    LITTLE = ("--hosts", "2", "--networks", "resnet50", "--rhos", "1", "--gradient-mb", "0.2",
              "--repetitions", "2", "--iterations", "2", "--warmup", "4", "--neighbour-limit",
              "100", "--variants", f"{WINDOW},lmdbio:other", "--ddp")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name) / "out"

    def run_driver(self, *words):
        return subprocess.run(
            [sys.executable, "-B", FOLDER / "run_caramel.py", "--build", BUILD, "--out", self.out,
             *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=300, env=os.environ | {"ASAN_OPTIONS": "detect_leaks=0"})  # MPI leaks

    @unittest.skipIf(box_cluster.why_not_here(), box_cluster.why_not_here())
    def test_a_cell_is_measured_once(self):
        done = self.run_driver(*self.LITTLE)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"\A# 1 cells of 4 variants, 0 of them done; about [0-9]+ min"
                                      r"\n# resnet50-2-yield-1: 1 cells left")
        self.assertRegex(done.stderr, r"wanted rho 1, reached [0-9.]+ at [0-9.]+ Mbit/s\n")
        self.assertEqual((self.out / "caramel.md").read_text(encoding="utf-8"), done.stdout)
        self.assertIn("\n## resnet50, 2 hosts, MPI waits: yield\n", done.stdout)
        self.assertIn("`lmdbio:other` is absent: ", done.stdout)
        (cell,) = json.loads((self.out / "caramel.json").read_text(encoding="utf-8"))
        rows = {row["variant"]: row for row in cell["rows"]}
        self.assertEqual(list(rows), [COMPUTING, BASELINE, WINDOW, "lmdbio:other", DDP])
        self.assertIn("absent", rows["lmdbio:other"])
        (saved,) = (self.out / "cells").iterdir()
        told = json.loads(saved.read_text(encoding="utf-8"))
        self.assertEqual(told["environment"]["ranks_on_host"], 1)
        self.assertEqual(told["environment"]["ranks"], 2)
        has_torch = "absent" not in rows[DDP]
        if has_torch:
            self.assertGreater(rows[DDP]["ms"], rows[COMPUTING]["ms"])
        else:
            self.assertIn("ddp_gloo.py: skipped: No module named", rows[DDP]["absent"])
        # Only the communication of the baseline was measured alone.
        self.assertEqual({(run["variant"], run["kind"]) for run in told["networks"][0]["runs"]},
                         {(COMPUTING, "train"), (BASELINE, "train"), (BASELINE, "alone"),
                          (WINDOW, "train"), *([(DDP, "train")] if has_torch else [])})
        self.assertEqual({run["repetition"] for run in told["networks"][0]["runs"]}, {0, 1})
        for row in (rows[BASELINE], rows[WINDOW]):
            # U is the share of computing in an iteration; of medians over repetitions, about.
            self.assertGreater(row["utilisation"], 0)
            self.assertGreater(row["x_bound"], 0)

        before = saved.stat().st_mtime_ns
        again = self.run_driver(*self.LITTLE)
        self.assertEqual((again.returncode, again.stdout), (0, done.stdout), again.stderr)
        self.assertEqual(again.stderr, "# 1 cells of 4 variants, 1 of them done; about 0 min\n")
        self.assertEqual(saved.stat().st_mtime_ns, before)
        self.assertEqual(self.run_driver("--report").stdout, done.stdout)

        other = self.run_driver(*self.LITTLE, "--repetitions", "3")
        self.assertEqual(other.returncode, 1)
        self.assertIn("resnet50-2-yield-1.json was measured with --repetitions 2, and not with "
                      "--repetitions 3; give another --out", other.stderr)
        more = self.run_driver(*self.LITTLE, "--rhos", "1,2", "--iterations", "3")
        self.assertEqual(more.returncode, 1)
        self.assertIn("--iterations 2, and not with --iterations 3", more.stderr)

    @unittest.skipIf(box_cluster.why_not_here(), box_cluster.why_not_here())
    def test_ranks_of_emulated_hosts_are_no_neighbours_of_each_other(self):
        ranks = Ranks(2, 1, "yield", f"neighbours-{os.getpid()}", "mpirun", 300)
        self.out.mkdir()
        with ranks.up(None):
            told = ranks.measure(
                BUILD, ("--variants", "none", "--baseline", "none", "--kinds", "train", "--scale",
                        "0.02", "--compute-ms", "10000",
                        "--repetitions", "1", "--iterations", "5", "--warmup", "1"), self.out)
        (run,) = told["networks"][0]["runs"]
        own = sum(rank["process_cpu_s"] / rank["wall_s"] for rank in run["ranks"])
        # All that is busy, by these ranks and by others, has no more than the cores of the machine.
        self.assertGreater(own, 0.5)
        self.assertLess(own + run["neighbour_cores"], os.cpu_count() + 0.2)

    def test_an_estimate_measures_nothing(self):
        done = self.run_driver("--estimate")
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertIn("# 36 cells of 5 variants, 0 of them done; about ", done.stderr)
        self.assertFalse(self.out.exists())

    def test_a_file_that_is_no_cell_gets_its_name(self):
        (self.out / "cells").mkdir(parents=True)
        (self.out / "cells" / "notes.json").write_text("{}", encoding="utf-8")
        done = self.run_driver("--report")
        self.assertEqual(done.returncode, 1)
        self.assertIn("notes.json: not a file of run_caramel.py", done.stderr)

    def test_bad_input(self):
        for words, said in ((("--hosts", "1"), "'1' is invalid; expected numbers from 2 on"),
                            (("--rhos", "1,0"), "'1,0' is invalid; expected numbers above 0"),
                            (("--rhos", "nan"), "'nan' is invalid; expected numbers above 0"),
                            (("--rates", "1"), "'1' is invalid; expected two rates"),
                            (("--networks", "vgg15"), "network 'vgg15' is unknown"),
                            (("--waits", "sleep"), "'sleep' is unknown"),
                            (("--fastest-rho", "0.6"), "--fastest-rho 0.6 is out of range"),
                            (("--gradient-mb", "0"), "--gradient-mb 0 is out of range"),
                            (("--repetitions", "0"), "--repetitions 0 is out of range"),
                            (("--report",), "has no cells")):
            with self.subTest(words=words):
                done = self.run_driver(*words)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(said, done.stderr)


if __name__ == "__main__":
    reason = box_cluster.why_not_here()
    if reason:
        print(f"the test of hosts is skipped: {reason}", file=sys.stderr)
    unittest.main(argv=sys.argv[:1])

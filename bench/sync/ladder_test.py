"""Tests run_ladder.py: its figures by made-up runs, and the whole of it on little data.

    ladder_test.py BUILD_FOLDER
"""

import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent)]

import figures  # noqa: E402
import ladder_report  # noqa: E402
from ladder_report import BASELINE, ROWS, Job, cells_of, json_of, report, variant_of  # noqa: E402

BUILD = pathlib.Path(sys.argv[1])
LITTLE = ("--scale", "0.001", "--compute-ms", "500", "--input-batch-ms", "100", "--iterations", "2",
          "--warmup", "4", "--neighbour-limit", "100")
CORES = sorted(os.sched_getaffinity(0))


class FiguresTest(unittest.TestCase):
    def test_rank_correlation(self):
        self.assertEqual(figures.rank_correlation([1, 2, 3, 4], [10, 20, 30, 40]), 1)
        self.assertEqual(figures.rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]), -1)
        # 1 - 6 sum(d^2) / (n (n^2 - 1)), where d are the differences of the places
        self.assertAlmostEqual(figures.rank_correlation([1, 2, 3, 4, 5], [2, 1, 3, 6, 4]),
                               1 - 6 * (1 + 1 + 0 + 1 + 1) / (5 * 24))
        self.assertEqual(figures.places([5, 1, 5, 3]), [3.5, 1, 3.5, 2])
        self.assertIsNone(figures.rank_correlation([1, 1, 1], [1, 2, 3]))

    def test_the_share_of_random_orders_is_that_of_all_orders(self):
        one, other = [1, 2, 3, 4, 5], [1, 2, 3, 5, 4]
        found = abs(figures.rank_correlation(one, other))
        orders = list(itertools.permutations(other))
        exact = sum(abs(figures.rank_correlation(one, order)) >= found - 1e-9
                    for order in orders) / len(orders)
        self.assertAlmostEqual(figures.share_as_correlated(one, other), exact, delta=0.03)

    def test_interval(self):
        self.assertEqual(figures.interval(statistics.median, [3.0] * 6), (3, 3))
        self.assertIsNone(figures.interval(statistics.median, [3.0] * 5))
        self.assertIsNone(figures.interval(lambda *_: None, [1.0] * 6, [1.0] * 6))
        low, high = figures.interval(lambda one, other: statistics.fmean(one)
                                     - statistics.fmean(other), range(100), range(100, 200))
        self.assertTrue(-110 < low < -100 < high < -90, (low, high))

    def test_lists(self):
        self.assertEqual(figures.number_list(0)("0,2"), [0, 2])
        for parse, text in ((figures.number_list(1), "0"), (figures.number_list(0), "x"),
                            (figures.number_list(0), ""), (figures.wait_list, "spin,sleep")):
            with self.assertRaises(figures.argparse.ArgumentTypeError):
                parse(text)


def made_up_run(label, milliseconds, window=0.25, **rank):
    row = next((row for row in ROWS if row.label == label), None)
    return dict(variant=variant_of(row, "auto") if row else label, kind="train", repetition=0,
                is_disturbed=False, iteration_ms=[milliseconds] * 4,
                ranks=[dict(wall_s=1.0, helper_cpu_s=0.1, helper_run_delay_s=0.008,
                            helper_starts=4, late_p50_us=70.0, late_p99_us=900.0, helper_sleeps=9,
                            computing_switches=8, input_switches=4, helper_switches=2,
                            window_share=window, control_messages=12) | rank,
                       dict(wall_s=1.0, helper_cpu_s=0.2, helper_run_delay_s=0.004,
                            helper_starts=1, late_p50_us=60.0, late_p99_us=950.0, helper_sleeps=9,
                            computing_switches=0, input_switches=8, helper_switches=0,
                            window_share=window, control_messages=0)])


def made_up_jobs(network, gain_percent, window, repetitions, input_threads=1):
    """Repetitions that take 10, 20, 30, ... ms, and TOPO a part of it less."""
    jobs = {}
    for repetition in range(1, repetitions + 1):
        job = Job(network, 2, "yield", input_threads, repetition)
        base = 10.0 * repetition
        jobs[job] = dict(
            job=vars(job), absent={variant_of(ROWS[6], "auto"): "too few cores"},
            environment=dict(cores=2, mpi="Open MPI", commit="abc"),
            networks=[dict(network=network, settings=dict(scale=1), runs=[
                made_up_run("none", base / 2), made_up_run(BASELINE, base, window),
                made_up_run("event", base),
                made_up_run("TOPO", base * (1 - gain_percent / 100), computing_switches=4,
                            helper_sleeps=0)])])
    return jobs


class ReportTest(unittest.TestCase):
    def test_a_gain_pairs_the_runs_of_a_repetition(self):
        (cell,) = cells_of(made_up_jobs("alexnet", 20, 0.3, 6))
        gain, bounds = cell.gain("TOPO", BASELINE)
        for value in (gain, *bounds):
            self.assertAlmostEqual(value, 20)
        self.assertEqual(ladder_report.gain_text((20.0, (19.8, 20.4))), "+20 (+20 to +20)")
        (cell,) = cells_of(made_up_jobs("alexnet", 20, 0.3, 5))
        self.assertEqual(ladder_report.gain_text(cell.gain("TOPO", BASELINE)), "+20 (-)")
        self.assertIsNone(cell.gain("NBCS", BASELINE))

    def test_figures_of_a_row(self):
        (cell,) = cells_of(made_up_jobs("alexnet", 20, 0.3, 3))
        told = ladder_report.figures_of(cell, BASELINE)
        expected = dict(ms=20, helper_percent=20, helper_run_delay_ms=2,
                        helper_run_delay_us_a_start=4000, late_p50_us=70, late_p99_us=950,
                        computing_switches=2, input_switches=2, helper_switches=0.5,
                        window_percent=30, control_messages=3)
        self.assertEqual(set(told), set(expected))
        for name, value in expected.items():
            self.assertAlmostEqual(told[name], value, msg=name)
        # Of the rank whose helper thread slept; the other one has no lateness.
        self.assertEqual(ladder_report.figures_of(cell, "TOPO")["late_p50_us"], 60)

    def test_the_window_is_compared_with_the_gain_of_topo(self):
        jobs = {}
        for place, network in enumerate(("alexnet", "googlenet", "resnet50", "vgg16")):
            jobs |= made_up_jobs(network, 10 * place, 0.1 * place, 2)
        text = "\n".join(report(cells_of(jobs)))
        self.assertIn("gain of TOPO over `cycle 1 ms` (three changes: own transport, event, plan): "
                      "1.00 over 4 networks", text)
        self.assertIn("| window, % of an iteration of the baseline | 0 | 10 | 20 | 30 |", text)
        self.assertIn("| TOPO | +0 (-) | +10 (-) | +20 (-) | +30 (-) |", text)
        self.assertIn("| SCP | absent | absent | absent | absent |", text)
        self.assertIn("| SCP | cycle 1 ms | absent | absent | absent | absent |", text)
        self.assertEqual(text.count("`SCP` is absent: too few cores."), 1)
        (found,) = json_of(cells_of(jobs))["correlations"]
        self.assertAlmostEqual(found["rank_correlation"], 1)
        few = {job: told for job, told in jobs.items() if job.network != "vgg16"}
        self.assertNotIn("Rank correlation", "\n".join(report(cells_of(few))))

    def test_switches_with_and_without_input(self):
        jobs = made_up_jobs("alexnet", 10, 0.3, 2)
        for job, told in made_up_jobs("alexnet", 10, 0.3, 2, input_threads=0).items():
            for run in told["networks"][0]["runs"]:
                for rank in run["ranks"]:
                    rank |= dict(computing_switches=2, input_switches=0)
            jobs[job] = told
        self.assertIn("| alexnet | 2 | yield | 1 | 0.5 | 3.0 | 6.0 | 2.0 | 1.5 |",
                      "\n".join(report(cells_of(jobs))))

    def test_switches_are_those_of_one_rank_and_run(self):
        jobs = made_up_jobs("alexnet", 10, 0.3, 2)
        first, second = (told["networks"][0]["runs"][1]["ranks"] for told in jobs.values())
        first[0] |= dict(computing_switches=8, input_switches=0)
        first[1] |= dict(computing_switches=0, input_switches=12)
        second[0] |= dict(computing_switches=20, input_switches=8)
        (cell,) = cells_of(jobs)
        # In 4 iterations: 12 of the second rank, then 28 of the first one.
        self.assertEqual(ladder_report.switches(cell, BASELINE), 5)

    def test_each_variant_has_one_label(self):
        for row in ROWS:
            self.assertEqual(ladder_report.label_of(variant_of(row, "ring")), row.label)
        labels = {row.label for row in ROWS}
        self.assertEqual(len(labels), len(ROWS))
        self.assertLessEqual({row.against for row in ROWS}, labels | {""})


class LadderTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name) / "out"

    def run_ladder(self, *options):
        return subprocess.run(
            [sys.executable, "-B", FOLDER / "run_ladder.py", "--build", BUILD, "--out", self.out,
             "--ranks", "2", "--waits", "yield", *options, *LITTLE],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=240,
            # MPI loses memory of its own; a switch that must not reach it.
            env=os.environ | {"ASAN_OPTIONS": "detect_leaks=0",
                              "OMPI_MCA_mpi_yield_when_idle": "0"})

    def runs_of(self, name):
        told = json.loads((self.out / "runs" / f"{name}.json").read_text(encoding="utf-8"))
        return {run["variant"]: run for run in told["networks"][0]["runs"]}

    def test_a_ladder_in_parts(self):
        part = ("--rows", "NBCS,TOPO", "--input-threads", "1", "--repetitions")
        result = self.run_ladder("--networks", "alexnet", *part, "1")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(result.stderr.startswith("# 1 jobs of 13 runs, 0 of them done; about "),
                        result.stderr)
        first = self.out / "runs" / "alexnet-2-yield-1-1.json"
        before = first.read_bytes()
        result = self.run_ladder("--networks", "alexnet,vgg16", *part, "2")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(result.stderr.startswith("# 4 jobs of 13 runs, 1 of them done; about "),
                        result.stderr)
        self.assertEqual(first.read_bytes(), before)
        self.assertIn("| row | alexnet | vgg16 |", result.stdout)
        self.assertIn("### vgg16, 2 ranks, MPI waits: yield, input threads a rank: 1",
                      result.stdout)
        self.assertEqual((self.out / "ladder.md").read_text(encoding="utf-8"), result.stdout)
        self.assertEqual(self.run_ladder("--report").stdout, result.stdout)
        cells = json.loads((self.out / "ladder.json").read_text(encoding="utf-8"))["cells"]
        self.assertEqual([(cell["network"], cell["repetitions"]) for cell in cells],
                         [("alexnet", 2), ("vgg16", 2)])
        self.check_runs()
        # Other rows do not fit to these.
        result = self.run_ladder("--networks", "alexnet", "--input-threads", "1", "--rows", "NBCS")
        self.assertIn("alexnet-2-yield-1-1.json was measured with --variants none,lmdbio",
                      result.stderr)
        self.assertEqual(result.returncode, 1)
        # Neither do they fit if the present call does not ask for the jobs that were measured.
        result = self.run_ladder("--networks", "alexnet", *part, "1", "--first-repetition", "3",
                                 "--seed-of-nothing", "1")
        self.assertIn("alexnet-2-yield-1-1.json was measured with", result.stderr)
        self.assertEqual(result.returncode, 1)
        self.check_speeds(first, part)

    def check_speeds(self, first, part):
        """Runs of two speeds are in no table."""
        told = json.loads(first.read_text(encoding="utf-8"))
        speed = told["networks"][0]["settings"]["work_units_per_s"]
        result = self.run_ladder("--units-per-second", repr(2 * speed), *part, "1")
        self.assertIn(f"has runs with --units-per-second {speed!r}, and not {2 * speed!r}",
                      result.stderr)
        told["networks"][0]["settings"]["work_units_per_s"] = 2 * speed
        first.write_text(json.dumps(told), encoding="utf-8")
        for words in (("--report",), ("--networks", "vgg16", *part, "1")):
            result = self.run_ladder(*words)
            self.assertIn("has runs of 2 speeds of the work loop; move those of one speed to "
                          "another --out", result.stderr)
            self.assertEqual(result.returncode, 1)

    def check_runs(self):
        runs = [self.runs_of(f"{network}-2-yield-1-{repetition}")
                for network in ("alexnet", "vgg16") for repetition in (1, 2)]
        settings = [json.loads(path.read_text(encoding="utf-8"))["networks"][0]["settings"]
                    for path in sorted((self.out / "runs").glob("*.json"))]
        self.assertEqual(len({one["work_units_per_s"] for one in settings}), 1)
        # By their multiply-adds: ResNet-50, which takes --compute-ms, has 4.1 G.
        madds = {name: json.loads((FOLDER / "networks" / f"{name}.json").read_text(
            encoding="utf-8"))["madds"] for name in ("alexnet", "vgg16", "resnet50")}
        for one, name in zip(settings, ("alexnet", "alexnet", "vgg16", "vgg16"), strict=True):
            self.assertAlmostEqual(one["compute_ms"], 0.5 * madds[name] / madds["resnet50"])
        labels = {"none"} | {row.label for row in ROWS}
        for variants in runs:
            self.assertEqual({run["kind"] for run in variants.values()}, {"train"})
            for variant, run in variants.items():
                label = variant if variant == "none" else ladder_report.label_of(variant)
                self.assertIn(label, labels)
                for rank in run["ranks"]:
                    self.assertTrue(0 <= rank["window_share"] <= 1)
                    # Only cyclic pacings sleep for a time.
                    self.assertEqual(rank["helper_sleeps"] > 0,
                                     ":cycle:" in variant or ":nbcs:" in variant, variant)
                    self.assertLessEqual(rank["late_p50_us"], rank["late_p99_us"])
                    # One in each iteration; the first and the last may lie outside.
                    self.assertLessEqual(abs(rank["input_batches"] - len(run["iteration_ms"])), 1)
                    if variant == "none":
                        self.assertEqual(rank["early_transfers"], 0)
        ranks_of = [(variant, rank) for variants in runs for variant, run in variants.items()
                    for rank in run["ranks"]]
        self.assertTrue(any(rank["window_share"] > 0 for _, rank in ranks_of))
        # The last layers of a network have most of its gradients, which are transferred early.
        self.assertTrue(any(rank["early_transfers"] > 0 for variant, rank in ranks_of
                            if ":topo" in variant))

    def test_scp_is_absent_without_three_cores_a_rank(self):
        ranks = len(CORES) // 3 + 1
        result = self.run_ladder("--ranks", str(ranks), "--rows", "SCP", "--repetitions", "1")
        self.assertEqual(result.returncode, 0, result.stderr)
        for label in ("SCP", "SCP-TOPO"):
            self.assertIn(f"\n| {label} | absent |", result.stdout)
            self.assertIn(f"`{label}` is absent: placement: scp needs 3 cores for each rank, but "
                          f"{ranks} rank", result.stdout)
        variants = self.runs_of(f"resnet50-{ranks}-yield-0-1")
        self.assertFalse([name for name in variants if "+scp" in name])

    @unittest.skipIf(len(CORES) < 2, "one core")
    def test_scp_pins_the_threads_of_its_rows_only(self):
        compute, sync = CORES[:2]
        result = self.run_ladder("--rows", "SCP", "--repetitions", "1", "--input-threads", "1",
                                 "--threads", "2", "--placement",
                                 f"compute={compute},input={compute},sync={sync}")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("absent", result.stdout)
        pinned = dict(computing=str(compute), input=str(compute), helpers=str(sync))
        variants = self.runs_of("resnet50-2-yield-1-1")
        free = variants["none"]["cores"]["computing"]
        self.assertNotEqual(free, str(compute))
        counts = {True: 0, False: 0}
        for variant, run in variants.items():
            is_pinned = "+scp" in variant
            counts[is_pinned] += 1
            expected = pinned if is_pinned else dict(
                computing=free, input=free, helpers="" if variant == "none" else free)
            self.assertEqual(run["cores"], expected, variant)
        self.assertEqual(counts, {True: 2, False: 5})

    def test_bad_input(self):
        for words, told in (
                (["--placement", "compute=0,sync=99999"], "core 99999 does not exist"),
                (["--placement", "compute=0;compute=0;sync=0"], "3 groups for the 2 ranks"),
                (["--networks", "alexnet,vgg15"], "network 'vgg15' is unknown"),
                (["--compute-like", "vgg15"], "network 'vgg15' is unknown"),
                (["--rows", "TOPOLOGY"], "no row contains TOPOLOGY"),
                (["--ranks", "0"], "'0' is invalid; expected numbers from 1 on"),
                (["--input-threads", "-1"], "expected numbers from 0 on"),
                (["--waits", "sleep"], "'sleep' is unknown"),
                (["--repetitions", "0"], "--repetitions 0 is out of range"),
                (["--report"], "has no runs")):
            with self.subTest(words=words):
                result = self.run_ladder(*words)
                self.assertNotEqual(result.returncode, 0)
                self.assertIn(told, result.stderr)

    def test_a_file_that_is_no_run_gets_its_name(self):
        (self.out / "runs").mkdir(parents=True)
        (self.out / "runs" / "notes.json").write_text("{}", encoding="utf-8")
        result = self.run_ladder("--report")
        self.assertIn("notes.json: not a file of run_ladder.py", result.stderr)
        self.assertNotEqual(result.returncode, 0)

    def test_an_estimate_measures_nothing(self):
        result = self.run_ladder("--estimate", "--networks", "all", "--input-threads", "0,1")
        self.assertEqual((result.returncode, result.stdout), (0, ""))
        self.assertIn(f" jobs of {len(ROWS) + 1} runs, 0 of them done; about ", result.stderr)
        self.assertFalse((self.out / "runs").exists())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

"""Tests the figures of scripts/reproduce end to end at tiny scale: the report has the measured
numbers, every plot exists, and all hosts are removed.

    reproduce_test.py BENCH MAKE

The oracle of the tables is the file of results. The test asserts no time. Exits with 77 if hosts or
plots cannot be made.
"""

import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

import remote_mount
from box_cluster import why_not_here
from remote_mount import run_unless

SCRIPT = remote_mount.ROOT / "scripts" / "reproduce"
BENCH, MAKE = sys.argv[1:3] if len(sys.argv) > 2 else ("", "")
REFUSED = "scan"  # a strategy that the wrapper below does not know
SCALE = ("--hosts", "1,2", "--ranks-per-host", "1", "--repeat", "2", "--records", "3000",
         "--batch", "500", "--iterations", "4", "--delay", "0", "--rate", "none", "--figures",
         "3.6,3.7,3.8,4.2,4.6,4.10,4.11,5.2,5.5,5.6,5.7,5.8,5.9,all")
# Runs lmdbio-bench, but refuses one strategy. Leak detection is off, as in bench_program.py.
WRAPPER = """#!/bin/sh
if [ "$3" = {refused} ]; then echo "lmdbio-bench: strategy '$3' is unknown" >&2; exit 2; fi
ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0" exec "{bench}" "$@"
"""
VERDICT = re.compile(r"\*\*(holds|does not hold|holds at .+; not at .+|cannot be decided .+)\*\*")


def tables_of(section):
    """(head, rows) of each table by caption; the last table has the claims."""
    found = []
    for block in section.split("\n\n"):
        lines = block.splitlines()
        if lines and lines[0].startswith("|"):
            cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
            found.append((cells[0], cells[2:]))
    return found


class Reproduce(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="lmdbio-test-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.bench = cls.folder / "lmdbio-bench"
        cls.bench.write_text(WRAPPER.format(refused=REFUSED, bench=BENCH), encoding="utf-8")
        cls.bench.chmod(0o755)
        (cls.folder / "lmdbio-make").symlink_to(MAKE)
        (cls.folder / "tmp").mkdir()
        cls.environment = os.environ | {
            "TMPDIR": str(cls.folder / "tmp"),
            "LMDBIO_CLUSTER_DIR": str(cls.folder / "clusters"),
            "LMDBIO_REMOTE_STORAGE_DIR": str(cls.folder / "states")}
        done = cls.call(*SCALE)
        if done.returncode != 0:
            raise AssertionError(f"exit code {done.returncode}: {done.stdout}{done.stderr}")
        cls.said = done.stdout
        cls.results = json.loads((cls.folder / "results.json").read_text(encoding="utf-8"))
        cls.report = (cls.folder / "out" / "reproduction.md").read_text(encoding="utf-8")
        cls.sections = dict(re.findall(r"^## ([^\n:]+)[^\n]*\n(.*?)(?=^## |\Z)", cls.report,
                                       re.MULTILINE | re.DOTALL))

    @classmethod
    def words(cls, *words):
        return [str(word) for word in (
            SCRIPT, "--bench", cls.bench, "--databases", cls.folder / "databases", "--keep",
            cls.folder / "results.json", "--out", cls.folder / "out", "--reasons",
            cls.folder / "none", *words)]

    @classmethod
    def call(cls, *words):
        return subprocess.run(cls.words(*words), env=cls.environment, text=True, check=False,
                              capture_output=True, stdin=subprocess.DEVNULL, timeout=300)

    def assert_nothing_left(self):
        self.assertEqual(list((self.folder / "tmp").iterdir()), [])
        self.assertFalse((self.folder / "clusters").exists())
        self.assertEqual(remote_mount.processes_of(self.folder), {})

    def runs(self, strategy, hosts):
        return [run for run in self.results["runs"]
                if (run["strategy"], run["hosts"]) == (strategy, hosts)]

    def test_read_times_are_those_of_the_runs(self):
        for name in ("Figure 3.6", "Figure 4.6", "Figure 5.5", "Figure 5.7", "Figure 5.8",
                     "All strategies"):
            head, rows = tables_of(self.sections[name])[0]
            self.assertEqual([row[:2] for row in rows], [["1", "1"], ["2", "1"]])
            columns = [(i, cell[1:-3]) for i, cell in enumerate(head)
                       if cell.startswith("`") and cell.endswith("` s")]
            self.assertGreaterEqual(len(columns), 2)
            for row in rows:
                for column, strategy in columns:
                    seconds = [run["seconds"] for run in self.runs(strategy, int(row[0]))]
                    self.assertEqual(len(seconds), 2)
                    self.assertEqual(
                        row[column], f"{statistics.median(seconds):.3f} "
                        f"({min(seconds):.3f}..{max(seconds):.3f})", (name, strategy))

    def test_breakdown_is_that_of_the_ranks(self):
        head, rows = tables_of(self.sections["Figure 3.6"])[1]
        for row in rows:
            seek = statistics.median(max(rank["seek_s"] for rank in run["by_rank"])
                                     for run in self.runs("lmm", int(row[0])))
            self.assertEqual(row[head.index("seek max s")], f"{seek:.3f}")
        _, rows = tables_of(self.sections["Figure 3.7"])[0]
        self.assertEqual([row[0] for row in rows], ["0", "1"])

    def test_bytes_that_crossed_are_those_of_the_storage(self):
        for job in self.results["storage_jobs"]:
            self.assertEqual((job["log_bytes"], job["log_requests"]),
                             (job["stats_bytes"], job["stats_requests"]))
        head, rows = tables_of(self.sections["Figure 4.2"])[0]
        for row in rows:
            for one in self.results["storage"]:
                if one["hosts"] == int(row[0]):
                    self.assertEqual(row[head.index(f"`{one['strategy']}`")],
                                     f"{one['bytes'] / one['needed_bytes']:.3f}")
                    self.assertGreater(one["bytes"], 0.9 * one["needed_bytes"])
                    self.assertEqual({request[1] for request in one["sample"]},
                                     set(range(one["hosts"])), one["strategy"])

    def test_guesses_are_those_of_the_jobs(self):
        _, rows = tables_of(self.sections["Figure 4.10"])[0]
        self.assertEqual([(row[1], row[3]) for row in rows],
                         [(str(one["missed_pages"]), str(one["redundant_pages"]))
                          for one in self.results["guesses"]])
        self.assertEqual([one["iterations"] for one in self.results["guesses"]], [1, 2, 3, 4])

    def test_every_figure_has_a_plot_and_claims(self):
        shown = [name for name in self.sections if name.startswith(("Figure", "All"))
                 and "Not measured" not in self.sections[name]]
        self.assertGreaterEqual(len(shown), 13)
        plots = set()
        for name in shown:
            (path,) = re.findall(r"\]\((reproduction/\S+\.svg)\)", self.sections[name])
            plots.add(path)
            root = xml.etree.ElementTree.parse(self.folder / "out" / path).getroot()
            self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
            head, claims = tables_of(self.sections[name])[-1]
            self.assertEqual(head[-2:], ["verdict", "reason"])
            self.assertGreaterEqual(len(claims), 1)
            for claim in claims:
                self.assertRegex(claim[-2], VERDICT)
                self.assertEqual(claim[-1] == "-", "not at" not in claim[-2]
                                 and "does not hold" not in claim[-2], claim)
        made = {f"reproduction/{path.name}"
                for path in (self.folder / "out" / "reproduction").iterdir()}
        self.assertEqual(made, plots)

    def test_says_what_was_left_out_and_how_to_measure_again(self):
        self.assertIn(f"left out: this lmdbio-bench knows no strategy '{REFUSED}'", self.said)
        self.assertIn(f"knows no `{REFUSED}`", self.report)
        self.assertIn("| command | `scripts/reproduce " + " ".join(SCALE[:6]), self.report)
        self.assertRegex(self.report, r"\| date \| \d{4}-\d\d-\d\d \|")
        self.assertNotIn(str(self.folder), self.report)
        self.assertNotIn(REFUSED, {run["strategy"] for run in self.results["runs"]})

    def test_draws_the_same_again_without_measuring(self):
        done = self.call("--from", self.folder / "results.json", "--out", self.folder / "again")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for path in sorted((self.folder / "out").rglob("*.*")):
            other = self.folder / "again" / path.relative_to(self.folder / "out")
            self.assertEqual(path.read_bytes(), other.read_bytes(), path.name)

    def test_says_what_is_wrong_in_one_line(self):
        nowhere = self.folder / "nowhere"
        for words in (("--bench", nowhere), ("--from", nowhere), ("--rate", "fast", *SCALE[:-4])):
            done = self.call(*words)
            self.assertEqual(done.returncode, 1, words)
            self.assertRegex(done.stderr, r"\Ascripts/reproduce: [^\n]+\n\Z")
        for words in (("--figures", "9.9"), ("--iterations", "0"), ("--hosts", "none"),
                      ("--records", "100", "--batch", "50", "--iterations", "3")):
            self.assertEqual(self.call(*words).returncode, 2, words)
        self.assert_nothing_left()

    def test_takes_its_hosts_down_when_it_is_ended(self):
        keep = ("--keep", self.folder / "ended.json")
        process = subprocess.Popen(self.words(*SCALE, *keep), env=self.environment, text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        self.addCleanup(process.kill)
        while "run(s) of lmdb" not in process.stdout.read(64):
            self.assertIsNone(process.poll())
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)
        self.assert_nothing_left()


def why_no_plots():
    """The reason why plots cannot be drawn, or None."""
    python = SCRIPT.read_text(encoding="utf-8").splitlines()[0].removeprefix("#!")
    try:
        drawn = subprocess.run([python, "-c", "import matplotlib"], check=False,
                               capture_output=True)
    except OSError:
        return f"there is no {python}"
    return None if drawn.returncode == 0 else f"{python} has no matplotlib"


if __name__ == "__main__":
    sys.exit(run_unless(why_not_here() or why_no_plots(), sys.argv[:1]))

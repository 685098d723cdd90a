"""Tests the series of scripts/reproduce: their jobs, criteria and reasons with made-up results, and
some of them end to end at a tiny scale.

    reproduce_series_test.py BENCH MAKE

The made-up read times are chosen, so the verdicts are known. The test asserts no measured time. The
part end to end is skipped if hosts or plots cannot be made.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import remote_mount
from box_cluster import why_not_here

ROOT = remote_mount.ROOT
sys.path.insert(0, str(ROOT / "scripts"))

import reproduction_claims as claims_of  # noqa: E402
import reproduction_figures  # noqa: E402
import reproduction_hosts  # noqa: E402
import reproduction_series  # noqa: E402
import reproduction_series_figures  # noqa: E402
from reproduction_claims import COAL, DISSERTATION, STAG  # noqa: E402

SCRIPT = ROOT / "scripts" / "reproduce"
BENCH, MAKE = sys.argv[1:3] if len(sys.argv) > 2 else ("", "")
MIB = 1 << 20
DEFAULTS = argparse.Namespace(hosts=[1, 2, 4, 8, 16], batch=4096, iterations=32, records=300000,
                              value_bytes=3080, quick=False)


def made_up(strategy, hosts, per_host, seconds, **more):
    """A run as in the report of lmdbio-bench."""
    rank = {"rank": 0, "host": 0, "seek_s": 0.2 * seconds, "io_s": seconds, "turn_s": 0,
            "wait_s": 0, "meet_s": 0, "next_s": seconds, "asleep_s": 0.95 * seconds}
    return {"strategy": strategy, "hosts": hosts, "per_host": per_host, "seconds": seconds,
            "by_rank": [rank], "bytes_useful": 10 ** 9, "bytes_read": 64 * MIB,
            "read_requests": 64, "raw_fraction": 0.5, "raw_bytes_per_s": 1e9,
            "context_switches": 100 * per_host ** 4, "missed_pages": 0, "redundant_pages": 0,
            "global_batch_size": 256 * hosts} | more


def results_of(series=None, **more):
    """Results with runs of each strategy of the dissertation, each faster than the one before."""
    runs = [made_up(name, hosts, 1, 10 - number) for hosts in (1, 16)
            for number, name in enumerate((*DISSERTATION, "auto"))]
    return {"runs": runs, "storage": [], "storage_jobs": [], "guesses": [], "left_out": [],
            "series": series or {}, "seeks": [], "plain": [], "strategies": list(DISSERTATION),
            "conditions": {name: {"cache_state": "as it was", "mpi_wait_mode": "yield"}
                           for name in reproduction_figures.NAMES},
            "options": {"figures": list(reproduction_figures.NAMES), "stripes": 4,
                        "seek_ms": 8}} | more


def section_of(results, name):
    results["options"]["figures"] = [name]
    ((_, section),), _ = reproduction_figures.sections(results)
    return section


def verdicts_of(results, name):
    return {one.key: one.verdict() for one in section_of(results, name).claims}


class Jobs(unittest.TestCase):
    def test_all_runs_of_weak_scaling_read_as_many_records(self):
        jobs = reproduction_series.weak(DEFAULTS)
        self.assertEqual([job.hosts for job in jobs], [1, 4, 16])
        self.assertEqual({job.batch // job.hosts for job in jobs}, {256})
        self.assertEqual({job.batch * job.iterations for job in jobs}, {131072})

    def test_large_records_fill_as_many_bytes(self):
        series = reproduction_series.SERIES_OF["wide"]
        for job in series.jobs(DEFAULTS):
            self.assertEqual((job.batch, job.iterations), (64, 32))
        self.assertEqual(reproduction_series.records_of(series, DEFAULTS), 4697)
        few = argparse.Namespace(**vars(DEFAULTS) | {"records": 100, "batch": 10})
        self.assertGreaterEqual(reproduction_series.records_of(series, few),
                                few.iterations * reproduction_series.wide_batch(few))

    def test_readers_orders_and_blocks(self):
        jobs = reproduction_series.several_readers(DEFAULTS)
        self.assertEqual([(job.hosts, job.words[1]) for job in jobs],
                         [(hosts, readers) for hosts in (1, 4) for readers in (1, 2, 4)])
        orders = [job.words[1] for job in reproduction_series.chunked(DEFAULTS)]
        self.assertEqual(orders, ["sequential", "chunked"] * 2)
        self.assertEqual(reproduction_series.BLOCK_BYTES,
                         (4096, 64 << 10, MIB, 16 * MIB, 256 * MIB, 1 << 30))
        for size in reproduction_series.BLOCK_BYTES:
            for is_direct in (False, True):
                self.assertGreaterEqual(reproduction_series.bytes_of_run(size, is_direct), size)

    def test_chunks_and_tokens_on_seeking_storage(self):
        jobs = {job.variant: job for job in reproduction_series.seeking(DEFAULTS)}
        self.assertEqual(set(jobs), {(4, 1), (16, 1), (1, 4), "16x1 chunked"}
                         | {f"16x1 chunked, {tokens} at a time" for tokens in (1, 2, 4)})
        self.assertEqual([shape for shape, job in jobs.items() if not job.is_timed], [(4, 1)])
        self.assertEqual(jobs["16x1 chunked, 2 at a time"].words,
                         ("--order", "chunked", "--group-batches", 32, "--stagger", 2))
        two = argparse.Namespace(**vars(DEFAULTS) | {"hosts": [1, 2]})
        self.assertEqual([str(job.variant) for job in reproduction_series.seeking(two)][-2:],
                         ["2x1 chunked, 1 at a time", "(1, 4)"])

    def test_each_name_has_a_section_and_minutes(self):
        for name in reproduction_figures.NAMES:
            if name not in reproduction_figures.NEEDS:
                behind = reproduction_series.SERIES_BEHIND.get(name, name)
                self.assertIn(behind, reproduction_series.MINUTES)
                self.assertTrue(behind in reproduction_series.SERIES_OF
                                or name in reproduction_series.PLAIN)


class Criteria(unittest.TestCase):
    def test_the_order_of_strategies_names_each_step_that_fails(self):
        self.assertEqual(verdicts_of(results_of(), "all")["all/order"], "holds")
        slow = results_of()
        for run in slow["runs"]:
            if run["strategy"] == "lmm-dio" and run["hosts"] == 16:
                run["seconds"] = 20
        self.assertEqual(verdicts_of(slow, "all")["all/order"],
                         "holds at `lmm`, `lmm-dm`, `lmm-dio-prov`, `lmm-dio-prov-coal`, "
                         "`lmm-dio-prov-coal-stag`; not at `lmm-dio`")
        for run in slow["runs"]:
            run["seconds"] = 5 if run["hosts"] == 16 else 1  # equal is not faster
        self.assertEqual(verdicts_of(slow, "all")["all/order"], "does not hold")

    def seeking(self, coal_s, stag_s):
        times = dict(zip(DISSERTATION, (20, 18, 16, 14, 12, coal_s, stag_s)))
        runs = [made_up(name, 16, 1, seconds, variant=[16, 1]) for name, seconds in times.items()]
        runs += [made_up(name, 1, 4, seconds, variant=[1, 4]) for name, seconds in times.items()]
        chunks = reproduction_series.chunks
        runs.append(made_up(COAL, 16, 1, coal_s, variant=chunks(16)))
        runs += [made_up(STAG, 16, 1, seconds, variant=chunks(16, tokens))
                 for tokens, seconds in ((1, 2 * stag_s), (2, stag_s), (4, 1.5 * stag_s))]
        seeks = [{"variant": [hosts, 1], "strategy": name, "pieces": 1000, "seeks": 20 * hosts,
                  "bytes": MIB, "requests": 8, "jump_bytes_mean": 0}
                 for hosts in (4, 16) for name in DISSERTATION]
        seeks += [seeks[0] | {"variant": place, "strategy": name, "seeks": 320}
                  for place, name in ((chunks(16), COAL), (chunks(16, 2), STAG))]
        return verdicts_of(results_of({"seeking": runs}, seeks=seeks), "seeking")

    def test_staggering_must_take_two_thirds_of_the_time(self):
        verdicts = self.seeking(10, 6.6)
        for key in ("order", "stag", "one-host", "readers", "dio"):
            self.assertEqual(verdicts[f"seeking/{key}"], "holds", key)
        self.assertEqual(verdicts["seeking/seeks"], "does not hold")
        verdicts = self.seeking(10, 7)
        self.assertEqual(verdicts["seeking/order"], "holds")
        self.assertEqual(verdicts["seeking/stag"], "does not hold")

    def test_a_share_of_the_read_time(self):
        self.assertEqual(verdicts_of(results_of(), "5.5")["5.5/seek-share"], "holds")
        high = results_of()
        for run in high["runs"]:
            run["by_rank"][0]["seek_s"] = 0.31 * run["seconds"]
        self.assertEqual(verdicts_of(high, "5.5")["5.5/seek-share"], "does not hold")

    def test_switches_and_sleep(self):
        runs = [made_up("lmdb", 1, ranks, 2, variant=[1, ranks]) for ranks in (1, 2)]
        section = section_of(results_of({"one-host": runs}), "3.4")
        self.assertEqual(section.tables[0][2], [[1, "100", "1.00", "95"], [2, "1600", "16.00",
                                                                           "95"]])
        self.assertEqual([one.verdict() for one in section.claims], ["holds", "holds"])

    def test_the_baseline_of_more_readers_is_that_of_one(self):
        runs = [made_up(name, 1, 4, 4 / readers, variant=f"1x4 with {readers}")
                for readers in (1, 2) for name in ("lmm", COAL, STAG)]
        runs.append(made_up("lmdb", 1, 4, 8, variant="1x4 with 1"))
        section = section_of(results_of({"readers": runs}), "readers")
        ratios = {(row[0], row[1]): row[3] for row in section.tables[0][2]}
        self.assertEqual(ratios["1x4 with 2", "`lmm`"], "4.00")
        self.assertEqual([one.verdict() for one in section.claims], ["holds", "holds"])

    def test_chunks_are_compared_with_the_order_of_the_database(self):
        runs = [made_up(name, 4, 1, 2, variant=f"4x1 {order}",
                        read_requests=16 if order == "chunked" else 64)
                for order in ("sequential", "chunked") for name in ("lmdb", COAL, STAG)]
        section = section_of(results_of({"chunked": runs}), "chunked")
        self.assertEqual([(one.verdict(), one.measured()) for one in section.claims],
                         [("holds", "4.00 (4x1)"), ("holds", "1.00 (4x1)")])

    def test_blocks_and_maps(self):
        rates = {"map": (100, 110), "pread": (250, 300), "pread, direct": (2, 900),
                 "io_uring, direct": (3, 20)}
        plain = [{"figure": figure, "way": way, "transfer_bytes": size, "bytes_per_s": 1e6 * rate}
                 for figure in ("5.1", "5.1.1") for way, pair in rates.items()
                 for size, rate in zip((4096, MIB), pair)
                 if figure == "5.1" or size == 4096]
        verdicts = verdicts_of(results_of(plain=plain), "5.1")
        self.assertEqual(verdicts, {"5.1/explicit": "holds at pread, direct; not at io_uring, "
                                                    "direct", "5.1/map": "holds"})
        self.assertEqual(verdicts_of(results_of(plain=plain), "5.1.1"), {"5.1.1/map": "holds"})

    def test_what_was_not_measured_is_named(self):
        _, absent = reproduction_figures.sections(results_of())
        self.assertIn(("weak", "the measurement ended before"), absent)
        self.assertIn(("5.1", "the measurement ended before"), absent)

    def test_a_share_of_raw_is_empty_without_raw_reads(self):
        run = made_up("lmdb", 1, 1, 1, raw_fraction=None, raw_bytes_per_s=None)
        caption, _, rows = claims_of.raw_table(claims_of.Runs([run]), ["lmdb"])
        self.assertIn("raw rate", caption)
        self.assertEqual(rows, [[1, 1, "-", "-"]])


class Seeks(unittest.TestCase):
    def test_a_reader_in_order_seeks_once_on_each_disk(self):
        requests = [(0, 0, number * MIB, MIB) for number in range(64)]
        self.assertEqual(reproduction_hosts.count_seeks(requests, 4), (64, 4))

    def test_two_distant_readers_seek_always(self):
        requests = [(0, reader, (reader * 512 + number) * MIB, MIB) for number in range(32)
                    for reader in range(2)]
        self.assertEqual(reproduction_hosts.count_seeks(requests, 4), (64, 64))

    def test_a_request_has_a_piece_on_each_stripe(self):
        self.assertEqual(reproduction_hosts.count_seeks([(0, 0, MIB - 4096, 2 * MIB)], 4), (3, 3))


def why_no_series():
    reason = why_not_here() or remote_mount.why_no_seeks()
    python = SCRIPT.read_text(encoding="utf-8").splitlines()[0].removeprefix("#!")
    if reason is None and (not os.access(python, os.X_OK) or subprocess.run(
            [python, "-c", "import matplotlib"], check=False, capture_output=True).returncode):
        return f"{python} has no matplotlib"
    return reason


@unittest.skipIf(not BENCH or why_no_series(), "needs hosts, seeks and plots")
class Series(unittest.TestCase):
    """One call measures two series, and another adds two."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lmdbio-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        bench = self.folder / "lmdbio-bench"
        bench.write_text('#!/bin/sh\nASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0" exec '
                         f'"{BENCH}" "$@"\n', encoding="utf-8")
        bench.chmod(0o755)
        (self.folder / "lmdbio-make").symlink_to(MAKE)
        self.reasons = self.folder / "reasons.toml"
        self.reasons.write_text("", encoding="utf-8")
        self.environment = os.environ | {
            "LMDBIO_CLUSTER_DIR": str(self.folder / "clusters"),
            "LMDBIO_REMOTE_STORAGE_DIR": str(self.folder / "states")}

    def call(self, *words):
        return subprocess.run(
            [str(word) for word in (
                SCRIPT, "--quick", "--bench", self.folder / "lmdbio-bench", "--databases",
                self.folder / "databases", "--keep", self.folder / "results.json", "--out",
                self.folder / "out", "--reasons", self.reasons, "--records", "3000", "--rate",
                "none", "--seek-ms", "1", *words)],
            env=self.environment, text=True, check=False, capture_output=True,
            stdin=subprocess.DEVNULL, timeout=250)

    def succeed(self, *words):
        done = self.call(*words)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(list(self.folder.glob("clusters/*")), [])
        return done.stdout, (self.folder / "out" / "reproduction.md").read_text(encoding="utf-8")

    def test_series_end_to_end(self):
        _, report = self.succeed("--figures", "seeking,5.1.1")
        results = json.loads((self.folder / "results.json").read_text(encoding="utf-8"))
        runs = results["series"]["seeking"]
        places = {(2, 1), (1, 4), "2x1 chunked", "2x1 chunked, 1 at a time"}
        self.assertEqual(set(map(reproduction_series_figures.place_of, runs)), places)
        self.assertTrue(all(run["raw_fraction"] > 0 for run in runs))
        self.assertEqual(set(map(reproduction_series_figures.place_of, results["seeks"])),
                         places | {(1, 1)})
        for one in results["seeks"]:
            self.assertTrue(0 < one["seeks"] <= one["pieces"], one)
        self.assertIn("a seek takes 1 ms", report)
        self.assertRegex(report, r"\| sources \| [0-9a-f]{16}, a digest")

        said, report = self.succeed("--add", "--figures", "3.4,chunked")
        for title in ("Figure 3.4", "5.1.1", "Order `chunked`", "Storage with a cost of seeking"):
            self.assertIn(f"\n## {title}", report)
        self.assertIn("MPI wait mode: yield", report)
        self.assertRegex(report, r"\| command \| `scripts/reproduce --quick .*; .* --add`")

        missing = [line.split(": ", 2)[2] for line in said.splitlines()
                   if "claims without a reason" in line][0].split(", ")
        self.reasons.write_text(f'"{missing[0]}" = """\nA reason\n of two lines."""\n'
                                '"5.1.1/none" = "No such claim."\n', encoding="utf-8")
        said, report = self.succeed("--from", self.folder / "results.json")
        self.assertIn("| A reason of two lines. |", report)
        self.assertNotIn(f"without a reason: {missing[0]}", said)
        self.assertIn("that do not exist: 5.1.1/none", said)

        done = self.call("--add", "--figures", "weak", "--seek-ms", "2")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--seek-ms was 1; --add needs the same", done.stderr)
        self.reasons.write_text("3 = 4\n", encoding="utf-8")
        self.assertIn("is no text", self.call("--from", self.folder / "results.json").stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

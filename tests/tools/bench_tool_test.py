#!/usr/bin/env python3
"""The user interface of lmdbio-bench: help, errors, table, JSON and plot.

    bench_tool_test.py BENCH MAKE MPIEXEC...
"""

import os
import pathlib
import select
import shutil
import socket
import subprocess
import tempfile
import time
import unittest
import xml.etree.ElementTree

import bench_program
from bench_program import run

STRATEGIES = ("lmdb", "lmm", "lmm-dm", "lmm-dio", "lmm-dio-prov", "lmm-dio-prov-coal",
              "lmm-dio-prov-coal-stag", "scan", "auto")
MACHINE_KEYS = {"processor", "cores", "kernel", "commit", "ranks", "mpi_wait_mode", "cache_state",
                "command_line"}
RUN_KEYS = {"strategy", "ranks", "hosts", "order", "global_batch_size", "records_per_s",
            "bytes_per_s", "raw_bytes_per_s", "raw_fraction", "seek_s", "io_s", "skew_s",
            "bytes_read",
            "bytes_useful", "read_requests", "context_switches", "major_faults", "cpu_s",
            "first_batch_s", "checksum"}
FIGURES = ("records/s", "MB/s", "% of raw", "seek max s", "seek mean s", "I/O max s", "I/O mean s",
           "turn max s", "skew max s", "skew mean s", "read MB", "useful MB", "requests",
           "ctx sw/GB", "maj faults", "missed pages", "redundant p.", "CPU s/GB", "loader CPU %",
           "p50 ms", "p95 ms", "p99 ms", "first batch ms", "busy %", "peak MB", "skipped",
           "checksum")
PAGE_BYTES = 4096


class BenchTool(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="lmdbio-test-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.digits = cls.folder / "digits"
        bench_program.make("digits", cls.digits)
        cls.equal = cls.folder / "equal"
        bench_program.make("synthetic", "--count", 300, "--value-size", 3080, cls.equal)

    def copy(self, name):
        """A copy of the digits for a test to damage; returns the directory and the data file."""
        shutil.copytree(self.digits, self.folder / name)
        return self.folder / name, self.folder / name / "data.mdb"

    def assert_fails(self, exit_code, words, *command, ranks=(0, 4)):
        for count in ranks:
            if count == 0 and bench_program.IS_LAUNCHED and not bench_program.IS_WIDE:
                continue  # no launcher, as in the test with mpirun
            with self.subTest(command=command, ranks=count):
                outcome = run(count, *command)
                self.assertEqual(outcome.flaw_of_failure(exit_code, *words), "")

    @staticmethod
    def ranks_in_turn(place):
        """The numbers of ranks for one of many strategies: a strategy finds a damage, and all share
        the way on which the ranks tell each other."""
        return (0, 4) if bench_program.IS_WIDE else (4 * (place % 2),)

    def test_help_and_version(self):
        for command in ((), ("raw",), ("read",), ("order",)):
            outcome = run(2, *command, "--help")
            self.assertEqual((outcome.exit_code, outcome.errors), (0, ""))
            self.assertEqual(outcome.output.count("Usage: lmdbio-bench"), 1)  # of one rank
        text = run(1, "read", "--help").output
        for strategy in STRATEGIES:
            self.assertIn(strategy, text)
        self.assertEqual(run(1, "--version").exit_code, 0)

    def test_the_streams_of_other_ranks_are_silent_and_open(self):
        """The launcher of Open MPI 5 may hang if the streams of ranks end before the ranks."""
        port = socket.socket()
        self.addCleanup(port.close)
        port.bind(("127.0.0.1", 0))  # rank 0 does not come
        variables = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                     "MASTER_PORT": str(port.getsockname()[1])}
        alone = subprocess.Popen([bench_program.BENCH, "read", self.digits],
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT,
                                 env=bench_program.environment(**variables))
        self.addCleanup(alone.wait)
        self.addCleanup(alone.stdout.close)
        self.addCleanup(alone.kill)
        while os.readlink(f"/proc/{alone.pid}/fd/2") != os.devnull:
            self.assertIsNone(alone.poll())
            time.sleep(0.01)
        self.assertEqual(os.readlink(f"/proc/{alone.pid}/fd/1"), os.devnull)
        self.assertEqual(select.select([alone.stdout], [], [], 0)[0], [])
        alone.kill()
        self.assertEqual(alone.stdout.read(), b"")

    def test_misuse_names_the_option(self):
        for words, command in (
                (["COMMAND"], ()), (["PATH"], ("read",)), (["FILE"], ("raw",)),
                (["nothing"], ("nothing",)), (["operands"], ("read", "a", "b")),
                (["--nothing"], ("read", "--nothing")), (["--cache"], ("read", "--cache", "x")),
                (["--engine", "mmap, pread, uring"], ("read", "--engine", "x")),
                (["--engine"], ("raw", "--engine", "x")), (["--engine"], ("raw", "--engine", ",")),
                (["--transfer-size"], ("raw", "-t", "0")),
                (["--transfer-size"], ("raw", "-t", "16E")),
                (["--transfer-size"], ("raw", "-t", "")),
                (["--transfer-size"], ("raw", "-t", "1G,1073741825")),
                (["--transfer-size"], ("raw", "-t", "18446744073709551615")),
                (["--transfer-size"], ("raw", "-t", "17179869184G")),
                (["--direct"], ("raw", "--direct", "x")),
                (["--raw-memory", "best, window, small"], ("raw", "--raw-memory", "x")),
                (["--raw-memory", "best, window, small"], ("read", "--raw-memory", "x")),
                (["--queue-depth"], ("raw", "-q", "0")), (["--size"], ("raw", "--size", "-1")),
                (["'nothing'", "lmm-dio-prov-coal"], ("read", "--strategy", "nothing")),
                (["--strategy"], ("read", "--strategy", ",")),
                (["--allow-map"], ("read", "--allow-map", "x")),
                (["--share", "round-robin"], ("read", "--share", "x")),
                (["--tail", "wrap"], ("read", "--tail", "x")),
                (["--on-error", "skip"], ("read", "--on-error", "x")),
                (["--snapshot", "pinned"], ("read", "--snapshot", "x")),
                (["--order", "sequential"], ("read", "--order", "x")),
                (["--compute-kind", "sleep"], ("read", "--compute-kind", "x")),
                (["--checksum", "values"], ("read", "--checksum", "x")),
                (["--verify", "--checksum"], ("read", "--verify", "--checksum", "values")),
                (["--compute-time"], ("read", "--compute-time", "-1")),
                (["--compute-time"], ("read", "--compute-time", "nan")),
                (["--global-batch-size"], ("read", "--global-batch-size", "-1")),
                (["global_batch_size"], ("read", "--global-batch-size", "0")),
                (["--readers-per-host"], ("read", "--readers-per-host", "0")),
                (["--queue-depth"], ("read", "--queue-depth", "65537")),
                (["block_bytes", "4096"], ("read", "--block-bytes", "5000")),
                (["memory_budget_bytes"], ("read", "--memory-budget-bytes", "1K")),
                (["--drop-caches", "--warm-caches"], ("read", "--drop-caches", "--warm-caches")),
                (["--drop-caches", "--warm-caches"], ("raw", "--drop-caches", "--warm-caches")),
                (["--cached-percent", "--drop-caches"],
                 ("read", "--cached-percent", "50", "--drop-caches")),
                (["--cached-percent 101"], ("read", "--cached-percent", "101")),
                (["--repeat"], ("read", "--repeat", "0"))):
            operands = () if "operands" in words or len(command) < 2 else (self.digits,)
            self.assert_fails(2, words, *command, *operands, ranks=(0,))
        self.assert_fails(2, ["--readers-per-host"], "read", "--readers-per-host", "0",
                          self.digits, ranks=(3,))

    def test_files_that_cannot_be_read(self):
        missing = self.folder / "missing"
        no_lmdb = self.folder / "no-lmdb"
        no_lmdb.write_bytes(b"x" * 3 * PAGE_BYTES)
        nothing = self.folder / "nothing"
        nothing.write_bytes(b"")
        bare, _ = self.copy("no-data")
        (bare / "data.mdb").unlink()
        for words, path in (([str(missing), "No such file"], missing),
                            ([str(no_lmdb), "not an LMDB data file"], no_lmdb),
                            ([str(nothing)], nothing), ([str(bare), "data.mdb"], bare)):
            self.assert_fails(1, words, "read", "--strategy", "all", path)
        self.assert_fails(1, [str(missing)], "raw", missing)
        self.assert_fails(1, ["database 'other': not found"], "read", "-s", "other", self.digits)

    def test_empty_database(self):
        empty = self.folder / "empty"
        subprocess.run(["mdb_load", "-n", empty], check=True, text=True,
                       input="VERSION=3\nformat=bytevalue\ntype=btree\nHEADER=END\nDATA=END\n")
        self.assert_fails(1, ["holds no records"], "read", "--strategy", "all", empty)

    def test_damage_is_found_by_every_strategy_that_looks(self):
        """liblmdb does not check pages, so the baseline is left out."""
        _, data = self.copy("cut")
        os.truncate(data, data.stat().st_size - 3 * PAGE_BYTES)
        self.assert_fails(1, [str(data)], "read", "--strategy", "scan", data)
        folder, data = self.copy("overwritten")
        with open(data, "r+b") as file:
            file.seek(20 * PAGE_BYTES + 16)
            file.write(b"\xff" * 64)
        for place, strategy in enumerate(STRATEGIES[1:]):
            self.assert_fails(1, [str(data), "page 20"], "read", "--strategy", strategy, folder,
                              ranks=self.ranks_in_turn(place))

    def test_damage_that_shows_while_reading(self):
        """The walk before the runs does not read overflow pages; the reader checks them."""
        shutil.copytree(self.equal, self.folder / "large")
        bench_program.make("synthetic", "--count", 50, "--value-size", 9000, "--append",
                           self.folder / "overflow")
        data = self.folder / "overflow" / "data.mdb"
        content = bytearray(data.read_bytes())
        heads = [at for at in range(2 * PAGE_BYTES, len(content), PAGE_BYTES)
                 if content[at:at + 16] == at.to_bytes(8, "little").replace(
                     at.to_bytes(8, "little"), (at // PAGE_BYTES).to_bytes(8, "little"))
                 + b"\0\0\4\0" + (3).to_bytes(4, "little")]
        self.assertGreater(len(heads), 40)
        victim = heads[len(heads) // 2]
        content[victim + 10] = 2  # the flags of a leaf page
        data.write_bytes(content)
        for place, strategy in enumerate(STRATEGIES[1:]):
            self.assert_fails(1, [str(data), f"page {victim // PAGE_BYTES}"], "read",
                              "--strategy", strategy, "--global-batch-size", 5, data,
                              ranks=self.ranks_in_turn(place + 1))

    def test_skips_damage_and_says_so(self):
        folder = self.folder / "skip"
        bench_program.make("synthetic", "--count", 50, "--value-size", 9000, "--append", folder)
        data = folder / "data.mdb"
        content = bytearray(data.read_bytes())
        content[-3 * PAGE_BYTES + 10] ^= 0xFF  # the head of some overflow run
        data.write_bytes(content)
        for ranks in (1, 4):
            runs = bench_program.report(ranks, "read", "--strategy", "scan,lmm-dio", "--repeat", 1,
                                        "--on-error", "skip", "-b", 7, data)["runs"]
            for one in runs:
                self.assertEqual((one["skipped"], one["records"]), (1, 49), one["strategy"])

    def test_provenance_of_another_database(self):
        folder, data = self.copy("stale")
        shutil.copy(self.equal / "data.mdb.prov", f"{data}.prov")
        for strategy in ("lmm-dio-prov", "lmm-dio-prov-coal"):
            self.assert_fails(1, [f"{data}.prov"], "read", "--strategy", strategy, folder)
        outcome = run(4, "read", "--strategy", "auto", "--repeat", 1, "--verify", folder)
        self.assertEqual((outcome.exit_code, outcome.errors), (0, ""))
        self.assertEqual(outcome.output.count("using a page walk instead"), 1)
        os.unlink(f"{data}.prov")
        self.assert_fails(1, [f"{data}.prov"], "read", "--strategy", "lmm-dio-prov", folder)
        outcome = run(4, "read", "--strategy", "auto", "--repeat", 1, "--verify", folder)
        self.assertNotIn("instead", outcome.output)
        self.assertIn("auto: a page walk", outcome.output)

    def test_too_little_memory(self):
        self.assert_fails(1, ["batch 0", "memory_budget_bytes"], "read",
                          "--memory-budget-bytes", "1M", "--global-batch-size", 100000,
                          "--tail", "wrap", self.equal)
        self.assert_fails(1, ["batch 0", "memory_budget_bytes"], "read", "--strategy", "scan",
                          "--global-batch-size", 2**40, "--tail", "wrap", self.equal)
        self.assert_fails(1, ["shared memory"], "read", "--memory-budget-bytes", "65536G",
                          self.equal,
                          ranks=(2,))

    def test_nothing_left_to_read(self):
        self.assert_fails(1, ["batch size 301", "300 records"], "read", "--tail", "drop",
                          "--global-batch-size", 301, "--max-batches", 5, self.equal)

    def test_reports_that_cannot_be_written(self):
        nowhere = self.folder / "no" / "such" / "file"
        for option in ("--json", "--plot"):
            self.assert_fails(1, [str(nowhere)], "read", "--repeat", 1, option, nowhere,
                              self.digits)
        self.assert_fails(1, [str(nowhere)], "raw", "--repeat", 1, "--json", nowhere, self.digits)

    def test_reports_go_through_links_and_into_fifos(self):
        for option, begin in (("--json", "{"), ("--plot", "<svg"), ("--save", "")):
            with self.subTest(option):
                link, fifo = self.folder / f"link{option}", self.folder / f"fifo{option}"
                link.symlink_to(f"target{option}")
                os.mkfifo(fifo)
                reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
                for path in (link, fifo):
                    outcome = run(0, "read", "--repeat", 1, "-n", 1, option, path, self.digits)
                    self.assertEqual((outcome.exit_code, outcome.errors), (0, ""))
                self.assertTrue(link.is_symlink())
                self.assertTrue(link.read_text().startswith(begin))
                self.assertTrue(fifo.is_fifo())
                self.assertTrue(os.read(reader, 1 << 16).decode().startswith(begin))
                os.close(reader)

    def test_json_of_read(self):
        report = bench_program.report(3, "read", "--strategy", "all", "--repeat", 2, "-b", 100,
                                      self.equal)
        self.assertLessEqual(MACHINE_KEYS, report.keys())
        self.assertEqual(report["ranks"], 3)
        modes = ("none",) if bench_program.IS_LAUNCHED else ("spin", "yield", "unknown")
        self.assertIn(report["mpi_wait_mode"], modes)
        self.assertIn("read --strategy all --repeat 2", report["command_line"])
        self.assertEqual([one["strategy"] for one in report["runs"]], [*STRATEGIES, *STRATEGIES])
        data_bytes = (self.equal / "data.mdb").stat().st_size
        for one in report["runs"]:
            self.assertLessEqual(RUN_KEYS, one.keys())
            self.assertEqual((one["ranks"], one["hosts"], one["global_batch_size"], one["order"]),
                             (3, 1, 100, "sequential"))
            self.assertEqual(one["records"], 300)
            for key in ("records_per_s", "bytes_per_s", "raw_bytes_per_s", "raw_fraction", "cpu_s",
                        "first_batch_s"):
                self.assertGreater(one[key], 0, key)
            for key in ("seek_s", "io_s", "skew_s"):
                self.assertLessEqual(one[key]["mean"], one[key]["max"] * (1 + 1e-9), key)
            self.assertRegex(one["checksum"], r"\A[0-9a-f]{16}\Z")
            # All pages except two meta pages, branch pages and free pages.
            self.assertGreater(one["bytes_useful"], 0.95 * data_bytes)
            self.assertLessEqual(one["bytes_useful"], data_bytes)
            if one["strategy"] == "auto":  # the file is in the page cache
                self.assertIn("in place", one["how"])
                self.assertEqual(one["bytes_read"], 0)
            elif not one["strategy"].startswith("lm") or "dio" in one["strategy"]:
                # For maps it is the bytes from storage.
                self.assertGreaterEqual(one["bytes_read"], one["bytes_useful"])
                self.assertGreater(one["read_requests"], 0)
                self.assertAlmostEqual(one["raw_fraction"], one["bytes_useful"] / one["seconds"]
                                       / one["raw_bytes_per_s"], places=9)

    def test_json_tells_the_times_of_each_rank(self):
        report = bench_program.report(3, "read", "--strategy", "lmdb,lmm", "--repeat", 1, "-b",
                                      100, "--no-raw", self.equal)
        for one in report["runs"]:
            ranks = one["by_rank"]
            self.assertEqual([rank["rank"] for rank in ranks], [0, 1, 2])
            self.assertEqual([rank["host"] for rank in ranks], [0, 0, 0])
            for key, mine in (("seek_s", "seek_s"), ("io_s", "io_s"), ("turn_s", "turn_s"),
                              ("skew_s", "wait_s")):
                self.assertEqual(one[key]["max"], max(rank[mine] for rank in ranks), key)
            readers = sum(rank["seek_s"] + rank["io_s"] > 0 for rank in ranks)
            self.assertEqual(readers, 3 if one["strategy"] == "lmdb" else 1)
            for rank in ranks:
                self.assertLess(rank["meet_s"], one["seconds"])
                self.assertGreater(rank["next_s"], 0)
                self.assertLess(rank["next_s"], one["seconds"])
                self.assertTrue(0 <= rank["asleep_s"] <= rank["next_s"], rank)
            self.assertLess(abs(time.time() - one["began_unix_s"]), 3600)

    def test_runs_begin_with_the_caches_that_were_asked_for(self):
        for option, words in (("--drop-caches", "cold"), ("--warm-caches", "warm")):
            report = bench_program.report(2, "read", option, "--repeat", 2, self.equal)
            self.assertIn(words, report["cache_state"])
            for one in report["runs"]:
                self.assertEqual("in place" in one["how"], words == "warm", one["how"])
            report = bench_program.report(2, "raw", option, "--repeat", 1, self.equal / "data.mdb")
            self.assertIn(words, report["cache_state"])

    def test_a_plain_loop_of_pread_reads_the_same_bytes(self):
        # The file has no multiple of these bytes, so the last transfer is shorter.
        for ranks in (1, 2):
            report = bench_program.report(ranks, "raw", "--engine", "pread", "-q", 1, "-t",
                                          "5000,1G", "--repeat", 2, self.equal / "data.mdb")
            self.assertEqual([(one["transfer_bytes"], one["direct"]) for one in report["runs"]],
                             [(size, False) for size in (5000, 1 << 30) for _ in range(2)])
            for one in report["runs"]:
                self.assertGreater(one["bytes_per_s"], 0)

    def test_partly_cached_files_are_read_from_cache_and_storage(self):
        report = bench_program.report(2, "read", "--cached-percent", 50, "--repeat", 2,
                                      "--no-raw", self.equal)
        self.assertIn("50 % in the page cache", report["cache_state"])
        for one in report["runs"]:
            self.assertIn("mixed", one["how"])
            # Other programs may bring pages into the cache, or drop them.
            self.assertGreater(one["bytes_direct"], 0)
            self.assertLess(one["bytes_direct"], one["bytes_read"])

    def test_raw_memory_is_chosen_and_named(self):
        names = {"best": "private memory", "window": "shared memory",
                 "small": "private memory, 0 %"}
        for memory, words in names.items():
            report = bench_program.report(2, "raw", "--raw-memory", memory, "--repeat", 1,
                                          self.equal / "data.mdb")
            self.assertIn(words, report["raw_memory"])
            outcome = run(2, "read", "--raw-memory", memory, "--repeat", 1, self.equal)
            self.assertIn(f"1 reader(s), into {words}", outcome.output)

    def test_huge_pages_can_be_switched_off(self):
        best = bench_program.report(1, "raw", "--repeat", 1, self.equal / "data.mdb")
        has_huge = not best["raw_memory"].endswith(" 0 % in huge pages")
        for ranks in (1, 3):
            for word in ("auto", "off"):
                report = bench_program.report(ranks, "read", "--strategy", "scan", "--huge-pages",
                                              word, "--no-raw", "--repeat", 1, self.equal)
                how = report["runs"][0]["how"]
                self.assertEqual("in huge pages" in how, has_huge and word == "auto", how)

    def test_raw_rate_can_be_left_out(self):
        report = bench_program.report(2, "read", "--no-raw", "--repeat", 1, self.digits)
        self.assertIsNone(report["runs"][0]["raw_bytes_per_s"])
        self.assertIsNone(report["runs"][0]["raw_fraction"])
        plot = self.folder / "no-raw.svg"
        outcome = run(1, "read", "--no-raw", "--repeat", 1, "--plot", plot, self.digits)
        self.assertIn("# raw: not measured", outcome.output)
        self.assertNotIn("% of raw", outcome.output)
        self.assertNotIn("raw", plot.read_text(encoding="utf-8").split("</text>", 1)[1])

    def test_checksum_of_values_is_the_same_in_any_order(self):
        for kind, distinct in (("values", 1), ("records", 3)):
            found = set()
            for order in ((), ("--order", "shuffle"), ("--order", "shuffle", "--seed", 1)):
                for ranks in (1, 3):
                    report = bench_program.report(ranks, "read", "--checksum", kind, "--no-raw",
                                                  "--repeat", 1, *order, self.digits)
                    found.add(report["runs"][0]["checksum"])
            self.assertEqual(len(found), distinct, kind)

    def test_table_and_plot(self):
        plot = self.folder / "plot.svg"
        outcome = run(2, "read", "--strategy", "lmdb,scan", "--repeat", 2, "--plot", plot,
                      self.digits)
        self.assertEqual((outcome.exit_code, outcome.errors), (0, ""))
        lines = outcome.output.splitlines()
        for figure in FIGURES:
            self.assertEqual(sum(line.startswith(f"{figure}  ") for line in lines), 1, figure)
        for key in MACHINE_KEYS:
            self.assertIn(f"# {key.replace('_', ' ')}: ", outcome.output)
        root = xml.etree.ElementTree.parse(plot).getroot()
        self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
        texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
        self.assertLessEqual({"lmdb", "scan"}, set(texts))

    def test_names_of_any_bytes(self):
        folder = pathlib.Path(os.fsdecode(os.fsencode(self.folder) + b"/a&<b>\"\xff'"))
        shutil.copytree(self.digits, folder)
        plot = self.folder / "bytes.svg"
        report = bench_program.report(1, "read", "--repeat", 1, "--plot", plot, folder)
        self.assertIn("a&<b>\"\ufffd'", report["command_line"])
        self.assertIn("a&<b>", xml.etree.ElementTree.parse(plot).getroot()[1].text)

    def test_raw_measures_the_product(self):
        words = ("raw", "--engine", "pread,uring,mmap", "-t", "4K,64K,5000", "--direct", "both",
                 "--repeat", 2, "--size", "1M", self.equal)
        report = bench_program.report(2, *words)
        self.assertLessEqual(MACHINE_KEYS, report.keys())
        expected = {(engine, direct, size) for engine in ("pread", "uring", "mmap")
                    for direct in (True, False) for size in (4096, 65536, 5000)
                    if not (engine == "mmap" and direct)}
        runs = [(one["engine"], one["direct"], one["transfer_bytes"]) for one in report["runs"]]
        self.assertEqual(sorted(runs), sorted([*expected, *expected]))
        for one in report["runs"]:
            self.assertGreater(one["bytes_per_s"], 0)
        table = run(2, *words).output.splitlines()
        self.assertEqual(sum(line.startswith(("pread ", "uring ", "mmap ")) for line in table), 15)
        self.assertEqual(len(bench_program.report(1, "raw", "--random", "-i", 1, self.digits)
                             ["runs"]), 3)  # all engines

    def test_ranks_that_compute_are_busy(self):
        report = bench_program.report(2, "read", "--compute-time", "0.002", "--compute-kind",
                                      "sleep", "--repeat", 1, "-b", 100, self.digits)
        one = report["runs"][0]
        self.assertGreater(one["utilisation"], 0)
        self.assertGreaterEqual(one["seconds"], 18 * 0.002)  # at least the time slept


if __name__ == "__main__":
    unittest.main(argv=bench_program.sys.argv[:1])

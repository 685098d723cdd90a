#!/usr/bin/env python3
"""Tests lmdbio-timeline: it merges several ranks and aligns their clocks. The report has the
figures of the files. Truncated files are accepted, damaged files are refused with one line.

    timeline_tool_test.py LMDBIO_TIMELINE
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = None


def run(*words):
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, check=False)


class Trace:
    """A timeline file of a rank; times are microseconds since its time 0."""

    def __init__(self, rank, size=2, host="n0", boot_id="b0", steady_ns=0, day_ns=0):
        self.rank = rank
        self.lines = []
        self.add(name="process_name", ph="M", tid=0, args={"name": f"rank {rank} on {host}"})
        self.add(name="lmdbio_clock", ph="M", tid=0, args={
            "version": 1, "rank": rank, "size": size, "host": host, "boot_id": boot_id,
            "steady_ns": steady_ns, "day_minus_steady_ns": day_ns})

    def add(self, **event):
        self.lines.append(json.dumps({**event, "pid": self.rank}))

    def name(self, row, name):
        self.add(name="thread_name", ph="M", tid=row, args={"name": name})

    def negotiate(self, row, number, begin, end):
        self.add(name="negotiate", ph="B", tid=row, ts=begin,
                 args={"number": number, "bytes": 64})
        self.add(ph="E", tid=row, ts=end)

    def bucket(self, number, times, bytes, done):
        """times: begin, transfers [begin, end] ..., end; done: {row: time}"""
        begin, *transfers, end = times
        for transfer in transfers:
            self.span("transfer", 0, *transfer, bytes=bytes)
        self.span("bucket", 0, begin, end, number=number, bytes=bytes, tensors=len(done))
        for row, at in done.items():
            self.span("allreduce", row, begin, at, bucket=number)

    def span(self, name, tid, begin, end, **args):
        self.add(name=name, ph="X", tid=tid, ts=begin, dur=end - begin, args=args)

    def text(self):
        return "[\n" + ",\n".join(self.lines) + "\n]\n"


class TimelineTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, text):
        path = self.folder / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def report(self, *words):
        result = run("report", "--json", *words)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def refuse(self, words, *needles):
        """Checks that standard error is one line with all needles, and standard output is empty."""
        result = run(*words)
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertTrue(result.stderr.startswith("lmdbio-timeline: "), result.stderr)
        for needle in needles:
            self.assertIn(str(needle), result.stderr)

    def two_ranks(self):
        """Rank 1 submits everything 2 ms late; each bucket is transferred in 1 ms."""
        paths = []
        for rank in range(2):
            trace = Trace(rank)
            for row, name in ((2, "conv1"), (3, "fc")):
                trace.name(row, name)
            for i in range(10):
                at = 10_000 * i
                mine = at + 2_000 * rank
                for row in (2, 3):
                    trace.negotiate(row, i + 1, mine, at + 2_100)
                trace.bucket(i + 1, (at + 2_100, (at + 2_200, at + 2_700), (at + 2_710, at + 3_210),
                                     at + 3_300), 1 << 20 if i % 2 else 100,
                             {row: at + 3_300 + row for row in (2, 3)})
                trace.span("wait", 1, mine, at + 3_310, row=2)
            paths.append(self.write(f"t.{rank}", trace.text()))
        return paths

    def test_merges_machines_by_their_times_of_day(self):
        # Ranks 0 and 1 share a machine, and rank 1 has a wrong time of day. Rank 2 is on another.
        traces = [Trace(0, 3, steady_ns=5_000_000, day_ns=10**18),
                  Trace(1, 3, steady_ns=7_000_000, day_ns=10**18 + 10**12),
                  # The median of two is the later one.
                  Trace(2, 3, "n1", "b1", 1_000_000, 10**18 + 10**12 + 4_500_500)]
        for trace in traces:
            trace.add(name="cycle", ph="i", s="t", tid=0, ts=1.5)
        paths = [self.write(f"t.{i}", trace.text()) for i, trace in enumerate(traces)]
        out = self.folder / "all.json"
        result = run("merge", "--json", out, *paths)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        outcome = json.loads(result.stdout)
        self.assertIn("the times of day between 2 machines", outcome["clocks"])
        self.assertEqual([file["moved_by_us"] for file in outcome["files"]], [0, 2000, 500.5])
        events = json.loads(out.read_text())
        self.assertEqual([e["ts"] for e in events if e.get("name") == "cycle"], [1.5, 2001.5, 502])
        self.assertEqual([e["pid"] for e in events if e.get("name") == "cycle"], [0, 1, 2])
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()),
                         ["all.json", "t.0", "t.1", "t.2"])

    def test_reports_the_late_rank(self):
        report = self.report(*self.two_ranks())
        self.assertEqual(report["last_to_submit"], [{
            "rank": 1, "times": 20, "percent": 100.0, "behind_the_next_p50_us": 2000.0,
            "behind_the_next_p95_us": 2000.0, "behind_the_next_max_us": 2000.0}])
        phases = {phase["phase"]: phase for phase in report["phases"]}
        self.assertEqual(list(phases), ["negotiate", "pack", "transfer", "unpack", "finish"])
        self.assertEqual(phases["negotiate"], {"phase": "negotiate", "count": 40, "p50_us": 100.0,
                                               "p95_us": 2100.0, "max_us": 2100.0})
        for phase, us in (("pack", 100.0), ("transfer", 1000.0), ("unpack", 100.0)):
            self.assertEqual(phases[phase], {"phase": phase, "count": 40, "p50_us": us,
                                             "p95_us": us, "max_us": us})
        self.assertEqual((phases["finish"]["p50_us"], phases["finish"]["max_us"]), (2.0, 3.0))
        self.assertEqual(report["slowest_tensors"][0]["tensor"], "fc")
        self.assertEqual(report["slowest_tensors"][0]["max_us"], 3303.0)
        self.assertEqual(report["missing"], [])
        exposed = report["exposed"]
        self.assertEqual(exposed["counted"], "while the program waited")
        # 3310 us on rank 0 and 1310 on rank 1: negotiation 2100 and 100, transfer 1200 each.
        self.assertEqual(exposed["negotiation_percent"], round(100 * 2200 / 4620, 1))
        self.assertEqual(exposed["transfer_percent"], round(100 * 2400 / 4620, 1))
        self.assertEqual(report["buckets"]["count"], 10)
        self.assertEqual(report["buckets"]["by_bytes"],
                         {"64 to 127": 5, "1048576 to 2097151": 5})
        advice = " ".join(one["text"] for one in report["advice"])
        self.assertIn("rank 1 was the last to submit in 100 %", advice)
        self.assertIn("fusion_threshold_bytes", advice)

    def test_report_of_the_merged_file_is_the_same(self):
        paths = self.two_ranks()
        out = self.folder / "all.json"
        self.assertEqual(run("merge", out, *paths).returncode, 0)
        apart, merged = self.report(*paths), self.report(out)
        for report in (apart, merged):
            del report["files"], report["clocks"]
        self.assertEqual(apart, merged)
        self.refuse(("merge", self.folder / "x", out, paths[0]),
                    "a merged timeline cannot be read with other files")

    def test_reports_what_a_rank_never_submits(self):
        traces = [Trace(0), Trace(1)]
        for trace in traces:
            trace.name(2, "conv1")
            trace.negotiate(2, 1, 0, 10)
            trace.bucket(1, (10, (20, 30), 40), 64, {2: 50})
        traces[0].add(name="negotiate", ph="B", tid=2, ts=100, args={"number": 2, "bytes": 64})
        traces[1].add(name="cycle", ph="i", s="t", tid=0, ts=5000)
        paths = [self.write(f"t.{i}", trace.text()) for i, trace in enumerate(traces)]
        self.assertEqual(self.report(*paths)["missing"], [
            {"tensor": "conv1", "number": 2, "never_submitted_by_ranks": "1"}])

    def test_adds_the_slices_of_a_tensor(self):
        trace = Trace(0)
        for row, name in ((2, "large"), (3, "small")):
            trace.name(row, name)
            trace.negotiate(row, 1, 0, 10)
        trace.bucket(1, (10, (11, 31), 33), 64, {})
        trace.bucket(2, (40, (41, 71), 71), 64, {3: 72})
        trace.bucket(1, (80, (83, 93), 94), 64, {2: 98})
        report = self.report(self.write("t.0", trace.text()))
        phases = {phase["phase"]: phase for phase in report["phases"]}
        for phase, least, most in (("pack", 1, 4), ("transfer", 30, 30), ("unpack", 0, 3),
                                   ("finish", 1, 4)):
            self.assertEqual((phases[phase]["count"], phases[phase]["p50_us"],
                              phases[phase]["max_us"]), (2, least, most), phase)
        self.assertEqual(report["buckets"]["count"], 3)

    def test_names_the_slowest_only(self):
        paths = self.two_ranks()
        self.assertEqual(len(self.report("--tensors", "1", *paths)["slowest_tensors"]), 1)
        words = run("report", *paths)
        self.assertEqual((words.returncode, words.stderr), (0, ""))
        self.assertIn("last to submit", words.stdout)

    def test_takes_files_that_are_cut_short_anywhere(self):
        whole, other = self.two_ranks()
        text = whole.read_bytes()
        head = text.index(b"lmdbio_clock")
        head = text.index(b"\n", head) + 1
        for end in [*range(head, len(text) - 3, 397), len(text) - 3]:
            cut = self.write("cut", text[:end])
            result = run("report", "--json", cut, other)
            self.assertEqual(result.returncode, 0, (end, result.stderr))
            self.assertEqual(result.stderr, f"lmdbio-timeline: {cut}: is truncated; its complete "
                             "events are used\n")
            self.assertTrue(json.loads(result.stdout)["files"][0]["is_cut"])
        out = self.folder / "out"
        self.assertEqual(run("merge", out, self.write("cut", text[:-700]), other).returncode, 0)
        json.loads(out.read_text())

    def test_keeps_a_link_and_replaces_its_target(self):
        files = self.two_ranks()
        link, target = self.folder / "link", self.folder / "target"
        link.symlink_to(target.name)
        for _ in range(2):  # without a target, and with one
            self.assertEqual(run("merge", link, *files).returncode, 0)
            self.assertTrue(link.is_symlink())
            json.loads(target.read_text())

    def test_merges_into_a_fifo(self):
        files = self.two_ranks()
        fifo = self.folder / "fifo"
        os.mkfifo(fifo)
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        self.assertEqual(run("merge", fifo, *files).returncode, 0)
        self.assertTrue(fifo.is_fifo())
        json.loads(os.read(reader, 1 << 16))

    def test_refuses_what_is_damaged(self):
        whole, other = self.two_ranks()
        lines = whole.read_text().splitlines()
        for about, line in {"no JSON": "{{{", "no event": "[]", "a number": "17",
                            "no time": '{"ph":"B","pid":0,"tid":2},',
                            "a text as time": '{"ph":"B","pid":0,"tid":2,"ts":"1"},',
                            "no duration": '{"name":"wait","ph":"X","pid":0,"tid":1,"ts":1},',
                            "a huge time": '{"ph":"B","pid":0,"tid":2,"ts":1e300},',
                            "a rank below 0": '{"ph":"B","pid":-1,"tid":2,"ts":1},',
                            "a rank beyond all": '{"ph":"B","pid":5000000000,"tid":2,"ts":1},',
                            "an odd name": '{"ph":"i","name":5,"pid":0,"tid":2,"ts":1},',
                            "an empty line": "", "its end": "]"}.items():
            with self.subTest(about):
                bad = self.write("bad", "\n".join([*lines[:9], line, *lines[9:]]) + "\n")
                self.refuse(("report", bad, other), bad, "line 10")
                out = self.folder / "out"
                self.refuse(("merge", out, other, bad), bad, "line 10")
                self.assertEqual(list(self.folder.glob("out*")), [])

    def test_refuses_what_is_no_timeline(self):
        whole, _ = self.two_ranks()
        self.refuse(("report", self.folder / "none"), "none: No such file or directory")
        self.refuse(("report", self.folder), "is a directory")
        for about, text in {"empty": b"", "binary": bytes(range(256)) * 9, "JSON": b'{"a": 1}\n',
                            "another trace": b'[\n{"ph":"i","pid":0,"ts":1}\n]\n'}.items():
            with self.subTest(about):
                bad = self.write("bad", text)
                self.refuse(("report", whole, bad), bad, "not an lmdbio timeline")
        self.refuse(("report", whole, self.write("again", whole.read_bytes())), whole, "again",
                    "both of rank 0")
        self.refuse(("merge", whole, whole), "is one of the files to merge")
        self.refuse(("merge", self.folder / "no" / "out", whole), "cannot be written")

    def test_is_told_what_to_do(self):
        for words in ((), ("merge",), ("merge", "out"), ("report",), ("explain",),
                      ("report", "--tensors", "-1", "x")):
            self.assertEqual(run(*words).returncode, 2, words)
        self.assertIn("IN...", run("merge", "--help").stdout)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()

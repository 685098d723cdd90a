#!/usr/bin/env python3
"""The device probe on the stand-in for a driver: rows, states, exit codes, JSON, interruptions.

    device_probe_test.py PROBE BENCH DRIVER MPIEXEC...

PROBE is lmdbio-device-probe, BENCH is lmdbio-bench, DRIVER the stand-in's libcuda.so.1. The figures
mean nothing here, so no case looks at one.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROBE, BENCH, DRIVER, *MPIEXEC = sys.argv[1:] if len(sys.argv) > 1 else ("", "", "")
SECONDS_MAX = 150  # for one run; all take much less
QUICK = ("--repeat", "2", "--size-max", "1M", "--drain-seconds", "0.3")

YES, NO, LEFT, STUCK = "yes", "unsupported", "left out", "did not drain"
COPIES = ("on the device, bytes read and written", "to the device, pinned",
          "from the device, pinned", "both ways at once, pinned, sum", "to the device, pageable",
          "from the device, pageable")
DRAINS = "the survivor's stream drains"
OTHER = "another stream of the survivor works"
POISONED = "the survivor's stream drains after poison"
WINDOW = "a window of MPI"

# The rows of each question in their order, and the state of each on the stand-in.
ROWS = {
    "Q1": {"memory: another process maps it": YES,
           "memory: a copy out of it has the bytes of its owner": YES,
           "memory: a copy out of it on the device, 16 MiB": YES,
           "event: another process opens it": YES,
           "event: a stream of another process waits for it": YES},
    "Q2": {"shared memory is registered": YES,
           "a stream waits for the host to raise a mark, round trip": YES,
           "a stream raises a mark, until the host sees it": YES,
           "a stream waits for 255 marks in one call": YES,
           "a stream waits for a stream of another process to raise a mark": YES,
           "poison ends a wait": YES},
    "Q3": {f"event, killed before it recorded: {DRAINS}": YES,
           f"event, killed before it recorded: {OTHER}": YES,
           f"event, killed after it recorded: {DRAINS}": YES,
           f"event, killed after it recorded: {OTHER}": YES,
           f"event, killed with unfinished work before it recorded: {DRAINS}": STUCK,
           f"event, killed with unfinished work before it recorded: {OTHER}": YES,
           f"mark, killed before it raised: {DRAINS}": STUCK,
           f"mark, killed before it raised: {OTHER}": YES,
           f"mark, killed before it raised: {POISONED}": YES,
           f"mark, killed after it raised: {DRAINS}": YES,
           f"mark, killed after it raised: {OTHER}": YES,
           f"mark, killed with unfinished work before it raised: {DRAINS}": STUCK,
           f"mark, killed with unfinished work before it raised: {OTHER}": YES,
           f"mark, killed with unfinished work before it raised: {POISONED}": YES},
    "Q4": {"events, two processes, enqueued in step as by a job": YES,
           "events, two processes": YES,
           "events, two processes, each fills 4 KiB": YES,
           "marks, two processes": YES,
           "marks, two processes, each fills 4 KiB": YES,
           "marks, two streams of one process, each fills 4 KiB": YES,
           "events, two streams of one process, each fills 4 KiB": YES},
    "Q5": {f"{copy}, {size} MiB": YES if size == 1 else LEFT
           for copy in COPIES for size in (1, 16, 256)},
    "Q6": {f"records of {size}, {way}": LEFT if "kernel" in way else YES
           for size in ("3 KB", "196 KB")
           for way in ("one copy a record", "one call for all (cuMemcpyBatchAsync)",
                       "one kernel for all")},
    "Q7": {"ordinary memory, untouched": YES,
           "ordinary memory, touched": YES,
           "ordinary memory, registration undone": YES,
           "lmdbio's memory file (memfd), untouched": YES,
           "lmdbio's memory file (memfd), touched": YES,
           "lmdbio's memory file (memfd), mapped twice": YES,
           "a map of a file that may only be read": NO,
           WINDOW: LEFT},
    "Q8": {"kernel: launch": LEFT,
           "event: record": YES,
           "event: wait of a stream": YES,
           "event: query": YES,
           "event: from its record until the host sees it": YES,
           "stream: query": YES,
           "stream: synchronise, nothing to wait for": YES,
           "stream: copy of 8 bytes on the device, enqueued": YES,
           "mark: raise by a stream": YES,
           "mark: wait of a stream, reached already": YES,
           "mark: wait of a stream for 8 in one call": YES,
           "context: ask which is current": YES,
           "pointer: query of the driver, seven attributes": YES,
           "pointer: hit in the cache, checked by the buffer id": YES,
           "pointer: hit in the cache, not checked": YES,
           "pointer: hit in the cache, memory of lmdbio": YES},
    "Q9": {f"{rival}, {size}": LEFT
           for rival in ("Gloo on CUDA tensors", "PyTorch symmetric memory", "NCCL with host ids")
           for size in ("8 B", "1 MiB", "64 MiB")},
}
# Rows that are "yes" without a figure.
PLAIN = {"memory: another process maps it", "memory: a copy out of it has the bytes of its owner",
         "event: another process opens it", "event: a stream of another process waits for it",
         "shared memory is registered", "a stream waits for 255 marks in one call",
         "a stream waits for a stream of another process to raise a mark", "poison ends a wait"}


class Outcome:
    def __init__(self, process, output, errors, path):
        self.exit_code, self.output, self.errors = process.returncode, output, errors
        self.report = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def rows(self, question):
        return [row for row in self.report["rows"] if row["question"] == question]

    def row(self, name):
        found, = (row for row in self.report["rows"] if row["row"] == name)
        return found


def parts_of(pid):
    """The processes that the probe `pid` has started and that have not ended."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"device-part" in words and str(pid).encode() in words:
            found.append(int(folder.name))
    return found


def files_of(pid):
    """What a process has mapped or open; nothing if it has ended."""
    try:
        maps = pathlib.Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")
        opened = [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return ""
    return "\n".join([maps, *opened])


class DeviceProbe(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lmdbio-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def environment(self, faults="", **more):
        path = f"{pathlib.Path(DRIVER).parent}:{os.environ.get('LD_LIBRARY_PATH', '')}"
        options = f"{os.environ.get('ASAN_OPTIONS', '')}:detect_leaks=0"  # MPI leaks memory
        return os.environ | {"LD_LIBRARY_PATH": path, "ASAN_OPTIONS": options,
                             "LMDBIO_EMULATED_GPU": str(self.folder / "devices"),
                             "LMDBIO_EMULATED_GPU_FAULTS": faults} | more

    def start(self, *words, faults="", command=None, **more):
        return subprocess.Popen([*(command or [PROBE]), *map(str, words)], text=True,
                                errors="replace", env=self.environment(faults, **more),
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def finish(self, process):
        try:
            output, errors = process.communicate(timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            output, errors = process.communicate()
            self.fail(f"{process.args} did not end: {output}{errors}")
        self.assertEqual(parts_of(process.pid), [])
        return Outcome(process, output, errors, self.folder / "report.json")

    def run_probe(self, only, *words, quick=QUICK, **more):
        """A run that succeeds."""
        (self.folder / "report.json").unlink(missing_ok=True)
        outcome = self.finish(self.start("--only", only, *quick, "--json",
                                         self.folder / "report.json", *words, **more))
        self.assertEqual((outcome.exit_code, outcome.errors), (0, ""), outcome.output)
        return outcome

    def assert_rows(self, outcome, question, **other):
        """All rows of a question; `other` has the states that differ from ROWS, by row."""
        expected = ROWS[question] | other
        self.assertEqual([row["row"] for row in outcome.rows(question)], list(expected))
        for row in outcome.rows(question):
            self.assertEqual(row["state"], expected[row["row"]], row)
            has_figure = row["state"] == YES and row["row"] not in PLAIN and \
                not row["row"].endswith(OTHER)
            self.assertEqual({"unit", "median", "min", "max", "samples"} <= set(row), has_figure,
                             row)
            if has_figure:
                self.assertTrue(row["min"] <= row["median"] <= row["max"], row)
            if row["state"] != YES:
                self.assertNotEqual(row["note"], "", row)

    def assert_fails(self, outcome, exit_code, *words, name="lmdbio-device-probe: "):
        lines = outcome.errors.splitlines()
        self.assertEqual((outcome.exit_code, len(lines)), (exit_code, 1), outcome.errors)
        self.assertTrue(lines[0].startswith(name), lines[0])
        for word in words:
            self.assertIn(word, lines[0])

    # --- each question ---

    def test_q1_memory_and_events_of_another_process(self):
        self.assert_rows(self.run_probe("Q1"), "Q1")

    def test_q2_marks(self):
        self.assert_rows(self.run_probe("Q2"), "Q2")

    def test_q3_killed_processes(self):
        outcome = self.run_probe("Q3")
        self.assert_rows(outcome, "Q3")
        for row in outcome.rows("Q3"):
            if row["state"] == STUCK:
                self.assertIn("not in 0.3 s", row["note"])
                self.assertEqual("poison is needed" in row["note"], row["row"].startswith("mark"))
            elif "unit" in row:
                self.assertEqual(row["unit"], "s")

    def test_q4_turns(self):
        outcome = self.run_probe("Q4")
        self.assert_rows(outcome, "Q4")
        self.assertEqual({row["unit"] for row in outcome.rows("Q4")}, {"us/turn"})
        self.assertEqual({row["samples"] for row in outcome.rows("Q4")}, {2})

    def test_q5_copies(self):
        outcome = self.run_probe("Q5")
        self.assert_rows(outcome, "Q5")
        self.assertEqual(outcome.row(f"{COPIES[0]}, 16 MiB")["note"], "larger than --size-max")

    def test_q5_a_size_that_the_device_has_not(self):
        outcome = self.run_probe("Q5", quick=("--size-max", "256M", "--repeat", "1"))
        for copy in COPIES:
            self.assertEqual(outcome.row(f"{copy}, 16 MiB")["state"], YES)
            row = outcome.row(f"{copy}, 256 MiB")
            self.assertEqual(row["state"], "failed")
            self.assertRegex(row["note"], r"CUDA_ERROR_OUT_OF_MEMORY.* bytes are free")

    def test_q6_records(self):
        outcome = self.run_probe("Q6")
        self.assert_rows(outcome, "Q6")
        self.assertEqual(outcome.row("records of 3 KB, one kernel for all")["note"],
                         "needs kernels")

    def test_q7_registration(self):
        outcome = self.run_probe("Q7")
        self.assert_rows(outcome, "Q7")
        self.assertIn("mpirun", outcome.row(WINDOW)["note"])

    def test_q8_single_calls(self):
        outcome = self.run_probe("Q8")
        self.assert_rows(outcome, "Q8")
        self.assertEqual({row["unit"] for row in outcome.rows("Q8") if "unit" in row}, {"ns"})

    def toy_torch(self):
        package = self.folder / "torch"
        package.mkdir()
        (package / "__init__.py").write_text("raise ImportError('a toy')", encoding="utf-8")
        return {"PYTHONPATH": str(self.folder)}

    def test_q9_rivals(self):
        outcome = self.run_probe("Q9", "--python", sys.executable, **self.toy_torch())
        self.assert_rows(outcome, "Q9")
        for row in outcome.rows("Q9"):
            self.assertEqual(row["note"], "PyTorch is not here: a toy")

    def test_q9_without_python_and_without_its_program(self):
        for words, note in ((("--python", "no-such-python"), "no-such-python"),
                            (("--rivals", self.folder / "nowhere.py"), "--rivals")):
            outcome = self.run_probe("Q9", *words)
            self.assert_rows(outcome, "Q9")
            self.assertIn(note, outcome.rows("Q9")[0]["note"])

    def test_q9_a_program_that_breaks_off(self):
        broken = self.folder / "broken.py"
        broken.write_text("import json\n"
                          "print(json.dumps({'row': 'NCCL with host ids, 8 B', 'state': 'yes',\n"
                          "                  'unit': 'us', 'samples': [3, 1, 2], 'note': ''}))\n"
                          "print('{\"row\": ')\n"
                          "raise SystemExit(3)\n", encoding="utf-8")
        outcome = self.run_probe("Q9", "--python", sys.executable, "--rivals", broken)
        row = outcome.row("NCCL with host ids, 8 B")
        self.assertEqual([row[key] for key in ("state", "median", "min", "max", "samples")],
                         [YES, 2, 1, 3, 3])
        for row in outcome.rows("Q9"):
            if row["row"] != "NCCL with host ids, 8 B":
                self.assertEqual(row["state"], "failed")
                self.assertIn("exit code 3", row["note"])

    # --- the whole report ---

    def test_the_report(self):
        outcome = self.run_probe("all", "--python", "no-such-python")
        for question in ROWS:
            self.assert_rows(outcome, question)
        self.assertEqual(len(outcome.report["rows"]), sum(map(len, ROWS.values())))
        self.assertLessEqual({"processor", "kernel", "commit", "command_line", "samples",
                              "driver_module", "locked_memory_limit", "usable_cores"},
                             set(outcome.report["machine"]))
        device = outcome.report["device"]
        self.assertEqual(device["name"], "Emulated GPU 0")
        self.assertEqual(device["cuda_of_driver"], "13.0")
        self.assertLessEqual({"uuid", "memory_bytes", "free_bytes", "multiprocessors", "clock_khz",
                              "has_batch_copies"}, set(device))
        for question, rows in ROWS.items():
            self.assertIn(f"\n{question}  ", outcome.output)
            for row in rows:
                self.assertIn(f"\n  {row}  ", outcome.output)
        self.assertIn("# name: Emulated GPU 0\n", outcome.output)

    def test_another_device(self):
        outcome = self.run_probe("Q8", "--device", "2")
        self.assertEqual(outcome.report["device"]["name"], "Emulated GPU 2")

    def test_without_json_there_is_a_table(self):
        outcome = self.finish(self.start("--only", "Q6", *QUICK))
        self.assertEqual((outcome.exit_code, outcome.errors, outcome.report), (0, "", None))
        self.assertIn("records of 3 KB, one copy a record", outcome.output)

    def test_a_report_that_cannot_be_written(self):
        outcome = self.finish(self.start("--only", "Q6", *QUICK, "--json", "/nowhere/report.json"))
        self.assert_fails(outcome, 1, "/nowhere/report.json", "No such file")
        self.assertIn("records of 3 KB, one copy a record", outcome.output)

    # --- faults ---

    def test_no_gpu(self):
        for words, more in (
                (["no GPU driver"], {"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}),
                (["cuInit", "999"], {"faults": "cuInit:1:999"}),
                (["no GPU that this process may use"], {"faults": "cuInit:1:100"}),
                (["the driver fails", "signal 9"], {"faults": "cuInit:1:kill"})):
            with self.subTest(words=words):
                self.assert_fails(self.finish(self.start("--only", "Q1", **more)), 1, *words)
        self.assert_fails(self.finish(self.start("--device", "9")), 1, "GPU 9", "3 GPUs")
        self.assert_fails(self.finish(self.start("--seconds", "2", faults="cuInit:1:hang")), 1,
                          "does not answer in time")

    def test_calls_that_fail(self):
        for question, fault, state, words, rows in (
                ("Q1", "cuIpcOpenMemHandle:1:800", NO, "CUDA_ERROR_NOT_PERMITTED",
                 {"memory: another process maps it",
                  "memory: a copy out of it has the bytes of its owner",
                  "memory: a copy out of it on the device, 16 MiB"}),
                ("Q1", "cuIpcOpenEventHandle:1:801", NO, "cuIpcOpenEventHandle",
                 {"event: another process opens it",
                  "event: a stream of another process waits for it"}),
                ("Q1", "cuIpcGetEventHandle:1:999", "failed", "cuIpcGetEventHandle",
                 {"event: another process opens it",
                  "event: a stream of another process waits for it"}),
                ("Q1", "cuIpcGetMemHandle:1:999", "failed", "cuIpcGetMemHandle",
                 {"memory: another process maps it",
                  "memory: a copy out of it has the bytes of its owner",
                  "memory: a copy out of it on the device, 16 MiB"}),
                ("Q2", "cuStreamBatchMemOp:1:801", NO, "cuStreamBatchMemOp",
                 {"a stream waits for the host to raise a mark, round trip"}),
                ("Q2", "cuMemHostRegister:1:801", NO, "cuMemHostRegister", set(ROWS["Q2"])),
                ("Q4", "cuIpcOpenEventHandle:1:801", NO, "cuIpcOpenEventHandle",
                 {"events, two processes, enqueued in step as by a job", "events, two processes",
                  "events, two processes, each fills 4 KiB"}),
                ("Q5", "cuMemcpyDtoDAsync:1:999", "failed", "cuMemcpyDtoDAsync",
                 {f"{COPIES[0]}, 1 MiB"}),
                ("Q6", "cuMemcpyBatchAsync:2:999", "failed", "cuMemcpyBatchAsync",
                 {"records of 3 KB, one call for all (cuMemcpyBatchAsync)"}),
                ("Q7", "cuMemHostRegister:1:999", "failed", "cuMemHostRegister",
                 {"ordinary memory, untouched"}),
                ("Q8", "cuEventQuery:1:999", "failed", "cuEventQuery", {"event: query"}),
                ("Q8", "cuMemHostRegister:1:801", NO, "cuMemHostRegister",
                 {"mark: raise by a stream", "mark: wait of a stream, reached already",
                  "mark: wait of a stream for 8 in one call"})):
            with self.subTest(fault=fault, question=question):
                outcome = self.run_probe(question, faults=fault)
                self.assert_rows(outcome, question, **dict.fromkeys(rows, state))
                for row in rows:
                    self.assertIn(words, outcome.row(row)["note"])

    def test_functions_that_the_driver_lacks(self):
        batch = {f"records of {size}, one call for all (cuMemcpyBatchAsync)"
                 for size in ("3 KB", "196 KB")}
        for question, name, words, rows in (
                ("Q1", "cuIpcOpenMemHandle", "does not share memory",
                 {"memory: another process maps it",
                  "memory: a copy out of it has the bytes of its owner",
                  "memory: a copy out of it on the device, 16 MiB"}),
                ("Q2", "cuStreamWriteValue64", "no memory operations",
                 {"a stream raises a mark, until the host sees it",
                  "a stream waits for a stream of another process to raise a mark"}),
                ("Q4", "cuStreamBatchMemOp", "(64-bit marks|memory operations)", set(ROWS["Q4"]) -
                 {"events, two processes, enqueued in step as by a job"}),
                ("Q6", "cuMemcpyBatchAsync", "12.8", batch)):
            with self.subTest(name=name):
                outcome = self.run_probe(question, faults=f"{name}:hide")
                self.assertEqual({row["row"] for row in outcome.rows(question)
                                  if row["state"] == NO}, rows)
                for row in rows:
                    self.assertRegex(outcome.row(row)["note"], words)

    def test_a_process_that_crashes_ends_its_trial_only(self):
        outcome = self.run_probe("Q5,Q6", faults="cuMemcpyDtoHAsync:1:kill,"
                                                 "cuMemcpyBatchAsync:1:kill")
        rows = {row["row"]: row for row in outcome.rows("Q5")}
        for copy in COPIES[:2]:
            self.assertEqual(rows[f"{copy}, 1 MiB"]["state"], YES)  # said before
        for copy in COPIES[2:]:
            self.assertEqual(rows[f"{copy}, 1 MiB"]["state"], "failed")
            self.assertIn("ended by signal 9", rows[f"{copy}, 1 MiB"]["note"])
        self.assertEqual([row["row"] for row in outcome.rows("Q6")], list(ROWS["Q6"]))

    def test_a_survivor_that_is_killed_did_not_drain(self):
        outcome = self.run_probe("Q3", faults="cuStreamWaitEvent:1:kill")
        self.assertEqual([row["row"] for row in outcome.rows("Q3")], list(ROWS["Q3"]))
        for row in outcome.rows("Q3"):
            if row["row"].startswith("event"):
                self.assertEqual(row["state"], STUCK, row)
                self.assertIn("ended by signal 9", row["note"])
            else:
                self.assertEqual(row["state"], ROWS["Q3"][row["row"]], row)

    def test_a_survivor_that_hangs_did_not_drain_and_the_probe_goes_on(self):
        outcome = self.run_probe("Q3,Q8", "--seconds", "8", faults="cuStreamWaitEvent:1:hang")
        first, second, *later = outcome.rows("Q3")
        for row in (first, second):
            self.assertEqual(row["state"], STUCK, row)
            self.assertRegex(row["note"], r"not done in \d+ s and was killed")
        for row in later + outcome.rows("Q8"):
            self.assertEqual((row["state"], row["note"]),
                             (LEFT, "the time of --seconds was over"), row)
        self.assertEqual(len(outcome.report["rows"]), len(ROWS["Q3"]) + len(ROWS["Q8"]))

    # --- interruptions ---

    def interrupt(self, number):
        """Sends a signal while a trial runs; returns the exit code."""
        process = self.start("--only", "Q3", "--drain-seconds", "100")
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        limit = time.monotonic() + 60
        while len(parts_of(process.pid)) < 2:  # one of them is that of the first trial
            self.assertLess(time.monotonic(), limit)
            self.assertIsNone(process.poll())
            time.sleep(0.01)
        for pid in [process.pid, *parts_of(process.pid)]:
            self.assertNotIn("/dev/shm/", files_of(pid))
        process.send_signal(number)
        process.wait(timeout=30)
        while parts_of(process.pid):
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.01)
        return process.returncode

    def test_a_signal_ends_all_processes(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            with self.subTest(number=number):
                self.assertEqual(self.interrupt(number), -number)

    def test_a_part_of_no_probe_ends(self):
        parent = str(os.getpid())
        for words in (("0", "0", "1"), ("999", "0", parent), ("0", "7", parent)):
            outcome = self.finish(self.start("device-part", *words))
            self.assertEqual((outcome.exit_code, outcome.output), (1, ""))

    # --- the command line ---

    def test_misuse_names_the_option(self):
        for words in (("--only", "Q10"), ("--only", ","), ("--only", ""), ("--repeat", "0"),
                      ("--size-max", "1"), ("--seconds", "nan"), ("--drain-seconds", "-1"),
                      ("--device", "-1"), ("--device", "99999"), ("--nothing", "1")):
            with self.subTest(words=words):
                self.assert_fails(self.finish(self.start(*words)), 2, words[0])
        self.assert_fails(self.finish(self.start("operand")), 2, "operand")

    def test_help(self):
        for command in ([PROBE], [BENCH, "device"]):
            outcome = self.finish(self.start("--help", command=command))
            self.assertEqual((outcome.exit_code, outcome.errors), (0, ""))
            self.assertIn("--drain-seconds", outcome.output)

    # --- lmdbio-bench ---

    def test_lmdbio_bench_has_the_same_command(self):
        alone = {"OMPI_MCA_btl": "self"}
        outcome = self.run_probe("Q3,Q7", command=[BENCH, "device"], **alone)
        self.assert_rows(outcome, "Q3")
        self.assert_rows(outcome, "Q7")
        self.assert_fails(self.finish(self.start("--repeat", "0", command=[BENCH, "device"],
                                                 **alone)), 2, "--repeat", name="lmdbio-bench: ")

    def test_ranks_of_mpi_have_a_window(self):
        outcome = self.run_probe("Q7", command=[*MPIEXEC, "2", BENCH, "device"])
        self.assert_rows(outcome, "Q7", **{WINDOW: YES})
        failed = self.finish(self.start("--repeat", "0", command=[*MPIEXEC, "2", BENCH, "device"]))
        self.assertEqual(failed.exit_code, 2)
        self.assertEqual(failed.errors.count("lmdbio-bench: "), 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

"""Tests bench/sync/run_matrix.py and ddp_gloo.py on little data.

    sync_matrix_test.py BUILD_FOLDER

MPI has to say of itself that it waits as the matrix asked for; sums are checked by the programs
themselves. PyTorch's part is left out, and says so, where there is no torch.
"""

import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))
import mpi_jobs  # noqa: E402

BUILD = pathlib.Path(sys.argv[1])
LITTLE = ("--scale", "0.001", "--compute-ms", "500", "--iterations", "2", "--warmup", "1",
          "--run-seconds", "1")


class MatrixTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name) / "out"

    def run_matrix(self, *options, repetitions=1):
        return subprocess.run(
            [sys.executable, "-B", FOLDER / "run_matrix.py", "--build", BUILD, "--out", self.out,
             *options, *LITTLE, "--repetitions", str(repetitions)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=240,
            # MPI loses memory of its own; switches that must not reach it.
            env=os.environ | {"ASAN_OPTIONS": "detect_leaks=0", "OMPI_MCA_mpi_yield_when_idle": "1",
                              "OMPI_MCA_rmaps_base_oversubscribe": "1"})

    def test_every_cell_waits_as_it_was_asked_to(self):
        result = self.run_matrix("--ranks", "2", "--networks", "alexnet,resnet50",
                                 "--variants", "none,mpi", "--baseline", "mpi", "--no-horovod")
        self.assertEqual(result.returncode, 0, result.stderr)
        matrix = json.loads((self.out / "matrix.json").read_text(encoding="utf-8"))
        self.assertEqual([(cell["ranks"], cell["wait"], cell["environment"]["mpi_wait"])
                          for cell in matrix["cells"]],
                         [(2, "spin", "spin"), (2, "yield", "yield")])
        for cell in matrix["cells"]:
            for network, tensor_count in zip(cell["networks"], (16, 161)):
                none, mpi = network["variants"]
                self.assertEqual((none["variant"], mpi["variant"]), ("none", "mpi"))
                self.assertEqual((none["collectives"], mpi["collectives"]), (0, tensor_count))
                self.assertEqual(mpi["x_baseline"], 1)
                self.check_runs(network["runs"])
        if matrix["ddp"]:
            self.assertEqual([one["networks"][0]["network"] for one in matrix["ddp"]],
                             ["alexnet", "resnet50"])
        else:
            print("sync_matrix_test: without torch")
        self.assertIn("torch DDP over Gloo", result.stdout)
        self.assertEqual(matrix["horovod"], [])
        self.assertIn("absent: --no-horovod", result.stdout)
        self.assertEqual((self.out / "matrix.md").read_text(encoding="utf-8"), result.stdout)

    def test_idle_runs_are_compared_with_those_beside_them(self):
        result = self.run_matrix("--ranks", "2", "--waits", "yield", "--networks", "alexnet",
                                 "--variants", "none,lmdbio:topo", "--baseline", "lmdbio:topo",
                                 "--neighbour-limit", "100", "--no-ddp", "--no-horovod",
                                 repetitions=3)
        self.assertEqual(result.returncode, 0, result.stderr)
        matrix = json.loads((self.out / "matrix.json").read_text(encoding="utf-8"))
        (network,) = matrix["cells"][0]["networks"]
        medians = {(run["variant"], run["kind"], run["repetition"]):
                   statistics.median_low(run["iteration_ms"]) for run in network["runs"]}
        expected = statistics.median_low(medians["lmdbio:topo", "idle", repetition] /
                                         medians["none", "train", repetition]
                                         for repetition in range(3))
        (topo,) = [one for one in network["variants"] if one["variant"] == "lmdbio:topo"]
        self.assertAlmostEqual(topo["idle_slowdown"], expected, places=9)
        (none,) = [one for one in network["variants"] if one["variant"] == "none"]
        computing, alone = none["p50_ms"], topo["alone_ms"]
        self.assertAlmostEqual(topo["rho"], alone / computing)
        self.assertAlmostEqual(topo["utilisation"], computing / topo["p50_ms"])
        self.assertAlmostEqual(topo["alpha"] * min(alone, computing),
                               computing + alone - topo["p50_ms"])
        self.assertAlmostEqual(topo["x_bound"], topo["p50_ms"] / max(alone, computing))
        self.assertNotIn("rho", none)

    def check_runs(self, runs):
        """Every rank did the same work, in every run of every variant that computes."""
        checksums = {rank["checksum"] for run in runs if run["kind"] != "alone"
                     for rank in run["ranks"]}
        self.assertEqual(len(checksums), 1)
        self.assertNotIn("0" * 16, checksums)

    def processes_of_job(self):
        """How many processes have a file of this test's among their words."""
        count = 0
        for entry in pathlib.Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            count += entry.name.isdigit() and os.fsencode(self.out / "cell") in words
        return count

    def await_processes(self, wanted):
        """Until there are some, or none."""
        give_up = time.monotonic() + 30
        while (self.processes_of_job() > 0) != wanted:
            self.assertLess(time.monotonic(), give_up, f"processes of the job: not {wanted}")
            time.sleep(0.1)

    def test_who_is_told_to_end_ends_the_job(self):
        matrix = subprocess.Popen(
            [sys.executable, "-B", FOLDER / "run_matrix.py", "--build", BUILD, "--out", self.out,
             "--ranks", "2", "--variants", "none", "--iterations", "1000000", "--run-seconds",
             "1000"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        self.addCleanup(matrix.wait)
        self.addCleanup(matrix.kill)
        self.await_processes(True)
        matrix.terminate()
        self.assertEqual(matrix.wait(timeout=30), 128 + signal.SIGTERM)
        self.await_processes(False)

    def test_ranks_in_groups_of_their_own_end_too(self):
        self.out.mkdir()
        begun = self.out / "cell"
        rank = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(1000)"
        starter = f"import os, subprocess, sys; subprocess.run([sys.executable, '-c', {rank!r}, " \
                  f"{str(begun)!r}], preexec_fn=os.setpgrp)"
        with self.assertRaisesRegex(mpi_jobs.Failure, "took longer than 5 s"):
            mpi_jobs.run([sys.executable, "-c", starter], os.environ, 5)
        self.assertTrue(begun.exists())
        self.await_processes(False)

    def test_who_is_told_to_end_while_a_job_begins_ends_it(self):
        handlers = {number: signal.getsignal(number)
                    for number in (signal.SIGHUP, signal.SIGTERM)}
        for number, handler in handlers.items():
            self.addCleanup(signal.signal, number, handler)
        begun = []

        def begin(*words, begin_process=subprocess.Popen, **options):
            begun.append(begin_process(*words, **options))
            os.kill(os.getpid(), signal.SIGTERM)
            return begun[0]

        mpi_jobs.heed_signals()
        with unittest.mock.patch("subprocess.Popen", begin), self.assertRaises(SystemExit) as end:
            mpi_jobs.run(["sleep", "1000"], os.environ, 30)
        self.addCleanup(begun[0].kill)
        self.assertEqual(end.exception.code, 128 + signal.SIGTERM)
        self.assertEqual(begun[0].returncode, -signal.SIGKILL)

    def test_an_unknown_variant_gives_its_name(self):
        result = self.run_matrix("--ranks", "2", "--networks", "alexnet", "--variants",
                                 "none,other", "--no-ddp", "--no-horovod")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("'other'", result.stderr)

    def test_an_unknown_variant_may_be_absent(self):
        result = self.run_matrix("--ranks", "2", "--waits", "yield", "--networks", "alexnet",
                                 "--variants", "none,lmdbio:other,other", "--skip-unknown",
                                 "--baseline", "none", "--no-ddp", "--no-horovod")
        self.assertEqual(result.returncode, 0, result.stderr)
        (cell,) = json.loads((self.out / "matrix.json").read_text(encoding="utf-8"))["cells"]
        self.assertEqual([one["variant"] for one in cell["networks"][0]["variants"]], ["none"])
        self.assertEqual(set(cell["absent"]), {"lmdbio:other", "other"})
        for name, why in cell["absent"].items():
            self.assertIn(f"'{name.removeprefix('lmdbio:')}' is unknown", why)

    def test_windows_are_for_variants_that_wait_for_one_layer(self):
        for variant in ("none+window", "mpi+window", "mpi-fused+window", "gloo+window"):
            with self.subTest(variant=variant):
                result = self.run_matrix("--ranks", "2", "--waits", "yield", "--networks",
                                         "alexnet", "--variants", variant, "--no-ddp",
                                         "--no-horovod")
                self.assertNotEqual(result.returncode, 0)
                self.assertIn(f"variant '{variant}': '+window' is for lmdbio variants only",
                              result.stderr)

    def test_a_paced_wire(self):
        words = ("--waits", "yield", "--networks", "alexnet", "--no-ddp", "--no-horovod",
                 "--baseline", "none", "--wire-rate", "1", "--kinds", "train")
        for ranks, variants, said in (
                ("2", "none,mpi", "variant 'mpi' has a network of its own"),
                ("2", "lmdbio:topo+roots=2", "variant 'lmdbio:topo+roots=2' has a network"),
                ("2", "lmdbio:topo:event:shm", "variant 'lmdbio:topo:event:shm' has a network"),
                ("2", "lmdbio:topo:event:mpi", "variant 'lmdbio:topo:event:mpi' has a network"),
                ("1", "lmdbio:topo", "one rank has no wire")):
            with self.subTest(variants=variants, ranks=ranks):
                result = self.run_matrix("--ranks", ranks, "--variants", variants, *words)
                self.assertNotEqual(result.returncode, 0)
                self.assertIn(said, result.stderr)
        result = self.run_matrix("--ranks", "2", "--variants", "none,lmdbio:topo", *words)
        self.assertEqual(result.returncode, 0, result.stderr)
        matrix = json.loads((self.out / "matrix.json").read_text(encoding="utf-8"))
        (network,) = matrix["cells"][0]["networks"]
        self.assertEqual(network["settings"]["wire_gbit_s"], 1)
        (run,) = [run for run in network["runs"] if run["variant"] == "lmdbio:topo"]
        (line,) = [line for line in run["description"] if line.startswith("paced wire: ")]
        # No wire is faster than it was set.
        self.assertLessEqual(float(line.split()[-2]), 1000)

    def test_orders_of_the_backward_pass(self):
        words = ("--ranks", "2", "--waits", "yield", "--networks", "googlenet", "--variants",
                 "none,lmdbio:topo", "--baseline", "none", "--kinds", "train", "--no-ddp",
                 "--no-horovod", "--backward-order")
        for order, said in ((("best",), "--backward-order: 'best' is unknown; expected network or"),
                            (("greedy", "--shuffle"), "with --shuffle the order is random")):
            with self.subTest(order=order):
                result = self.run_matrix(*words, *order)
                self.assertNotEqual(result.returncode, 0)
                self.assertIn(said, result.stderr)
        result = self.run_matrix(*words, "greedy")
        self.assertEqual(result.returncode, 0, result.stderr)
        matrix = json.loads((self.out / "matrix.json").read_text(encoding="utf-8"))
        (network,) = matrix["cells"][0]["networks"]
        self.assertTrue(network["settings"]["is_backward_greedy"])
        self.check_runs(network["runs"])

    def test_kinds_of_runs(self):
        words = ("--ranks", "2", "--waits", "yield", "--networks", "alexnet", "--variants",
                 "none,lmdbio:topo", "--baseline", "lmdbio:topo", "--no-ddp", "--kinds")
        result = self.run_matrix(*words, "train,idel")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("--kinds: 'idel' is unknown", result.stderr)
        result = self.run_matrix(*words, "train,alone", "--alone-of", "none,gloo")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("--alone-of: 'gloo' is none of the variants", result.stderr)
        result = self.run_matrix(*words, "train,alone")
        self.assertEqual(result.returncode, 0, result.stderr)
        matrix = json.loads((self.out / "matrix.json").read_text(encoding="utf-8"))
        self.assertEqual({(run["variant"], run["kind"])
                          for run in matrix["cells"][0]["networks"][0]["runs"]},
                         {("none", "train"), ("lmdbio:topo", "train"), ("lmdbio:topo", "alone")})
        result = self.run_matrix(*words, "train,alone", "--variants",
                                 "none,lmdbio:topo,lmdbio:cache", "--alone-of", "lmdbio:cache")
        self.assertEqual(result.returncode, 0, result.stderr)
        matrix = json.loads((self.out / "matrix.json").read_text(encoding="utf-8"))
        self.assertEqual({run["variant"] for run in matrix["cells"][0]["networks"][0]["runs"]
                          if run["kind"] == "alone"}, {"lmdbio:cache"})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

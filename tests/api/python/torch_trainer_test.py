"""examples/train_digits.py: the losses do not depend on the decoder or the number of ranks.

The oracle is the run of one process. Exits with 77 without torch.
"""

import importlib.util
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from support import HAS_ASAN

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))

from launch import quiet_port  # noqa: E402

SKIPPED = 77
SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "examples" / "train_digits.py"
MAKE = os.environ["LMDBIO_MAKE"]
WITH_FORK_SERVER = pathlib.Path(__file__).with_name("train_with_fork_server.py")
EPOCHS = 20  # enough for 95 %
SECONDS_MAX = 120  # of a job
# The order of the additions over several ranks changes the last digits of a double.
TOLERANCE = 1e-6


class TrainDigitsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        for part in ("train", "test"):
            subprocess.run([MAKE, "digits", cls.folder / part, "--part", part], check=True,
                           capture_output=True)
        cls.alone = cls.train(cls)

    def run_ranks(self, rank_count, *options):
        """The finished processes of a job."""
        script = WITH_FORK_SERVER if HAS_ASAN and "--workers" in options else SCRIPT
        words = [sys.executable, script, self.folder / "train", self.folder / "test", "--epochs",
                 str(EPOCHS), *map(str, options)]
        path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(SCRIPT.parent)])
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path,
                                    "PYTHONFAULTHANDLER": "1",  # for end_job
                                    # of free-threaded Python, for modules that PyTorch loads
                                    "PYTHONWARNINGS": "ignore:The global interpreter lock"}
        if rank_count > 1:
            environment |= {"WORLD_SIZE": str(rank_count), "MASTER_ADDR": "127.0.0.1",
                            "MASTER_PORT": str(quiet_port())}
        jobs = [subprocess.Popen(words, env=environment | {"RANK": str(rank)}, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                for rank in range(rank_count)]
        end = time.monotonic() + SECONDS_MAX
        while None in (codes := [job.poll() for job in jobs]):
            if any(codes) or time.monotonic() > end:
                TrainDigitsTest.end_job(jobs)
            time.sleep(0.05)
        return [(job.communicate(), job.returncode) for job in jobs]

    @staticmethod
    def end_job(jobs):
        """Ends the ranks of a job of which one has failed or hangs, and tells where each was."""
        codes = [job.poll() for job in jobs]
        for job in jobs:
            job.send_signal(signal.SIGABRT)
        said = [job.communicate()[1] for job in jobs]
        raise AssertionError("\n".join(
            f"rank {rank}: {'still ran' if code is None else f'exit code {code}'}\n{errors}"
            for rank, (code, errors) in enumerate(zip(codes, said))))

    def train(self, *options, rank_count=1):
        """[(epoch, loss, accuracy in percent)] that rank 0 prints."""
        ended = self.run_ranks(self, rank_count, *options) if isinstance(self, type) \
            else self.run_ranks(rank_count, *options)
        for (_, errors), code in ended:
            if code != 0:
                raise AssertionError(errors)
        return TrainDigitsTest.lines_of(ended[0][0][0])

    @staticmethod
    def lines_of(output):
        lines = re.findall(r"epoch (\d+): loss ([\d.]+), test accuracy ([\d.]+) %", output)
        return [(int(epoch), float(loss), float(accuracy)) for epoch, loss, accuracy in lines]

    def expect_curve(self, found, expected):
        self.assertEqual([epoch for epoch, _, _ in found], [epoch for epoch, _, _ in expected])
        for (_, loss, accuracy), (_, expected_loss, expected_accuracy) in zip(found, expected):
            self.assertAlmostEqual(loss, expected_loss, delta=TOLERANCE * expected_loss + 1e-9)
            self.assertEqual(accuracy, expected_accuracy)

    def test_it_learns(self):
        self.assertEqual(len(self.alone), EPOCHS)
        self.assertGreaterEqual(self.alone[-1][2], 95)

    def test_workers_and_ranks_change_nothing(self):
        self.expect_curve(self.train("--workers", 2), self.alone)
        self.expect_curve(self.train(rank_count=2), self.alone)

    def test_gradients_through_lmdbio_without_mpi(self):
        self.expect_curve(self.train("--sync", "lmdbio", rank_count=2), self.alone)

    def test_late_updates_change_nothing(self):
        checkpoint = self.folder / "late"
        options = ("--sync", "lmdbio", "--late-updates", "--checkpoint", checkpoint)
        found = self.train(*options, "--stop-after", 3, rank_count=2)
        found += self.train(*options, rank_count=2)
        self.expect_curve(found, self.alone)
        ((_, errors), code), = self.run_ranks(1, "--late-updates")
        self.assertEqual(code, 2)
        self.assertIn("--late-updates needs --sync lmdbio", errors)

    @unittest.skipUnless(importlib.util.find_spec("mpi4py"), "there is no mpi4py")
    def test_gradients_through_lmdbio_change_nothing(self):
        for rank_count in (1, 2):
            words = [*os.environ["LMDBIO_MPIEXEC"].split(), str(rank_count), sys.executable, SCRIPT,
                     self.folder / "train", self.folder / "test", "--epochs", "5", "--sync",
                     "lmdbio"]
            ended = subprocess.run(words, env=os.environ | {"OMP_NUM_THREADS": "1"}, text=True,
                                   capture_output=True, timeout=120, check=False)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            self.expect_curve(self.lines_of(ended.stdout), self.alone[:5])

    @unittest.skipUnless(importlib.util.find_spec("mpi4py"), "there is no mpi4py")
    def test_an_error_on_one_rank_ends_all(self):
        # By a shell, because the mpirun of Open MPI 5.0.7 crashes if a job has two programs.
        choose = ('test "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 && train=$1 || train=$2; test=$3; '
                  'shift 3; exec "$0" "$@" "$train" "$test" --sync lmdbio')
        words = [*os.environ["LMDBIO_MPIEXEC"].split(), "2", "sh", "-c", choose, sys.executable,
                 self.folder / "train", self.folder / "missing", self.folder / "test", SCRIPT]
        ended = subprocess.run(words, env=os.environ | {"OMP_NUM_THREADS": "1"}, text=True,
                               capture_output=True, timeout=120,
                               check=False)  # the library would wait for 600 s
        self.assertEqual(ended.returncode, 1, ended.stderr)
        self.assertRegex(ended.stderr, "train_digits.py: .*missing")

    @unittest.skipUnless(importlib.util.find_spec("mpi4py"), "there is no mpi4py")
    def test_the_wrong_launcher_is_told_from_the_right_one(self):
        for more, options, what in (({"OMPI_COMM_WORLD_SIZE": "2"}, [], "--sync lmdbio only"),
                                    ({"WORLD_SIZE": "2"}, ["--sync", "lmdbio"],
                                     "WORLD_SIZE is 2, but MPI has 1")):
            ended = subprocess.run(
                [sys.executable, SCRIPT, self.folder / "train", self.folder / "test", "--epochs",
                 "1", *options], env=os.environ | more, text=True, capture_output=True, timeout=120,
                check=False)
            self.assertEqual((ended.returncode, ended.stdout), (1, ""))
            self.assertRegex(ended.stderr, rf"\Atrain_digits\.py: [^\n]*{what}[^\n]*\n\Z")

    def test_goes_on_with_another_number_of_ranks(self):
        checkpoint = self.folder / "checkpoint"
        checkpoint.symlink_to("checkpoint-target")
        found = self.train("--checkpoint", checkpoint, "--stop-after", 3)
        found += self.train("--checkpoint", checkpoint, "--stop-after", 7, rank_count=2)
        found += self.train("--checkpoint", checkpoint, "--workers", 2)
        self.expect_curve(found, self.alone)
        self.assertTrue(checkpoint.is_symlink())

    def test_one_line_of_what_is_wrong(self):
        for options in (["--batch-size", "0"], ["--batch-size", "-3"]):
            ((_, errors), code), = self.run_ranks(1, *options)
            self.assertEqual(code, 1)
            # At the exit of a free-threaded Python, triton lists what it has not freed.
            errors = re.sub(r"(?m)^(nanobind: | - |See https://nanobind).*\n?", "", errors)
            self.assertRegex(errors, r"\Atrain_digits\.py: [^\n]+\n\Z")


if __name__ == "__main__":
    if not importlib.util.find_spec("torch"):
        print("skipped: there is no torch")
        sys.exit(SKIPPED)
    unittest.main()

"""Ranks with a model on a GPU that are killed, whose GPU fails, or that are interrupted; and
examples/train_digits.py on a GPU. The GPUs are those of tests/emulated_torch.

Exits with 77 without that backend of PyTorch.
"""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

SKIPPED = 77
FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parents[2]
PYTHON = ROOT / "build" / "trainers" / "bin" / "python"
HAS_BACKEND = bool(os.environ.get("LMDBIO_EMULATED_TORCH")) and PYTHON.exists()
SOON_S = 5  # after the end of a rank; asserted by what the ranks measure
SECONDS_MAX = 120  # of a job; only a hang takes so long


class Job:
    """The ranks of a job."""

    def __init__(self, ranks, *command, **variables):
        self._folder = tempfile.TemporaryDirectory(prefix="lmdbio torch ")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        environment = os.environ | {
            "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": f"test-{port}", "OMP_NUM_THREADS": "1",
            "LMDBIO_EMULATED_GPU": os.path.join(self._folder.name, "devices"), **variables}
        self.ranks = [subprocess.Popen(
            [PYTHON, *map(str, command)], text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank in range(ranks)]

    def ends(self):
        """[(return code, output, errors)] of all ranks."""
        found = []
        for rank in self.ranks:
            output, errors = rank.communicate(timeout=SECONDS_MAX)
            found.append((rank.returncode, output, errors))
        self._folder.cleanup()
        return found


class TorchDeviceFaultsTest(unittest.TestCase):
    def test_a_killed_rank_ends_the_others(self):
        for order in ("host", "mark"):
            ends = Job(3, FOLDER / "torch_device_rank.py", "killed", order).ends()
            self.assertEqual(ends[1][0], -signal.SIGKILL, ends[1][2])
            for code, output, errors in (ends[0], ends[2]):
                self.assertEqual(code, 0, errors)
                found = re.match(r"([\d.]+) .*rank 1\b.*\na copy: \[1\.0, 1\.0, 1\.0\]\n", output)
                self.assertTrue(found, output)
                self.assertLess(float(found[1]), SOON_S)

    def test_a_fault_of_the_gpu_is_told(self):
        for with_check in ("0", "1"):
            job = Job(1, FOLDER / "torch_device_rank.py", "fault", "host", WITH_CHECK=with_check)
            (code, output, errors), = job.ends()
            self.assertEqual(code, 0, errors)
            self.assertRegex(output, "^LmdbioError .*CUDA_ERROR_ILLEGAL_ADDRESS.*\n"
                                     "the gradient: None\n\\Z")

    def test_ctrl_c_ends_a_wait_for_the_others(self):
        job = Job(2, FOLDER / "torch_device_rank.py", "ctrl_c", "host")
        for rank in job.ranks:
            self.assertEqual(rank.stdout.readline(), "waits\n")
        job.ranks[0].send_signal(signal.SIGINT)
        output, errors = job.ranks[0].communicate(timeout=SECONDS_MAX)
        self.assertEqual((job.ranks[0].returncode, output), (0, "was interrupted\n"), errors)
        job.ranks[1].kill()
        job.ends()

    def test_train_digits(self):
        folder = tempfile.TemporaryDirectory(prefix="lmdbio torch ")
        self.addCleanup(folder.cleanup)
        for part in ("train", "test"):
            subprocess.run([os.environ["LMDBIO_MAKE"], "digits", f"{folder.name}/{part}", "--part",
                            part], check=True, capture_output=True)
        words = [ROOT / "examples" / "train_digits.py", f"{folder.name}/train",
                 f"{folder.name}/test", "--epochs", "2"]
        program = "import emulated_torch, runpy, sys; sys.argv = sys.argv[1:]; " \
                  "runpy.run_path(sys.argv[0], run_name='__main__')"
        outputs = []
        on_gpu = ["-c", program, *words, "--sync", "lmdbio", "--device", "emulated"]
        for ranks, command in ((1, words), (1, on_gpu), (2, on_gpu)):
            ends = Job(ranks, *command).ends()
            for code, _, errors in ends:
                self.assertEqual(code, 0, errors)
            outputs.append(ends[0][1])
        self.assertRegex(outputs[0], r"\Aepoch 1: .*\nepoch 2: .*%\n\Z")
        losses = [[float(loss) for loss in re.findall(r"loss ([\d.]+)", output)]
                  for output in outputs]
        for found in losses[1:]:
            for loss, expected in zip(found, losses[0], strict=True):
                self.assertAlmostEqual(loss, expected, delta=1e-6 * expected)


if __name__ == "__main__":
    if not HAS_BACKEND:
        print("skipped: run scripts/setup --trainers, and configure again")
        sys.exit(SKIPPED)
    unittest.main()

#!/usr/bin/env python3
"""bench/device/rivals.py: its rows without PyTorch, without a GPU, and with rivals that end badly.

    rivals_test.py RIVALS

Sums on the host by Gloo need PyTorch for this Python; without it that case is skipped.
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

RIVALS = sys.argv[1] if len(sys.argv) > 1 else ""
NAMES = ("Gloo on CUDA tensors", "PyTorch symmetric memory", "NCCL with host ids")
SIZES = ("8 B", "1 MiB", "64 MiB")
ROWS = [f"{name}, {size}" for name in NAMES for size in SIZES]
HAS_TORCH = importlib.util.find_spec("torch") is not None
# PyTorch in little. Its ranks sum to the text of TOY, as code.
TOY = """
import os, time
__version__ = "0.toy"
class distributed:
    is_available = staticmethod(lambda: True)
class cuda:
    is_available = staticmethod(lambda: {has_gpu})
    set_device = staticmethod(lambda number: None)
"""


def rows_of(*words, path=None):
    environment = dict(os.environ)
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    done = subprocess.run([sys.executable, "-B", RIVALS, *words], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=True, timeout=100, env=environment)
    return [json.loads(line) for line in done.stdout.splitlines()]


class Rivals(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lmdbio-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def toy(self, text, distributed=""):
        package = self.folder / "torch"
        package.mkdir()
        (package / "__init__.py").write_text(text, encoding="utf-8")
        (package / "distributed.py").write_text(distributed, encoding="utf-8")
        return self.folder

    def assert_rows(self, rows, state, words):
        self.assertEqual([row["row"] for row in rows], ROWS)
        for row in rows:
            self.assertEqual(row["state"], state, row)
            self.assertIn(words, row["note"])
            self.assertEqual(row["samples"], [])

    def test_without_pytorch(self):
        path = self.toy("raise ModuleNotFoundError(\"No module named 'torch'\")")
        self.assert_rows(rows_of(path=path), "left out",
                         "PyTorch is not here: No module named 'torch'")

    def test_rows_of_other_sizes_and_of_hooks(self):
        path = self.toy("raise ModuleNotFoundError(\"No module named 'torch'\")")
        rows = rows_of("--sizes", "8,65536,1048580", "--ranks", "4", path=path)
        self.assertEqual([row["row"] for row in rows],
                         [f"{name}, {size}" for name in NAMES for size in ("8 B", "64 KiB",
                                                                           "1 MiB")])
        rows = rows_of("--hooks", "10,1000", path=path)
        self.assertEqual([(row["row"], row["unit"], row["state"]) for row in rows],
                         [("Gloo by the hooks of DDP", "ms", "left out")])

    def test_all_ranks_are_started(self):
        path = self.toy(TOY.format(has_gpu="True"),
                        "def init_process_group(*_, rank, world_size, **more):\n"
                        "    if rank == 2: raise SystemExit(f'rank 2 of {world_size} is here')\n"
                        "    import time\n"
                        "    time.sleep(1000)\n")
        rows = rows_of("--seconds", "90", "--ranks", "3", "--sizes", "8", path=path)
        self.assertEqual({row["note"] for row in rows}, {"rank 2 of 3 is here"})

    def test_without_a_gpu(self):
        path = self.toy(TOY.format(has_gpu="False"))
        self.assert_rows(rows_of(path=path), "left out", "PyTorch 0.toy sees no GPU")

    def test_rivals_that_fail(self):
        path = self.toy(TOY.format(has_gpu="True"),
                        "def init_process_group(*_, **more):\n"
                        "    raise RuntimeError('two ranks on one GPU')\n")
        self.assert_rows(rows_of("--seconds", "60", path=path), "failed", "two ranks on one GPU")

    def test_rivals_that_hang(self):
        path = self.toy(TOY.format(has_gpu="True"),
                        "import time\n"
                        "def init_process_group(*_, **more):\n"
                        "    time.sleep(1000)\n")
        self.assert_rows(rows_of("--seconds", "8", path=path), "failed", "not done in")

    def test_a_rank_that_ends_while_the_other_waits(self):
        path = self.toy(TOY.format(has_gpu="True"),
                        "import time\n"
                        "def init_process_group(*_, rank, **more):\n"
                        "    if rank == 1: raise SystemExit('rank 1 is gone')\n"
                        "    time.sleep(1000)\n")
        self.assert_rows(rows_of("--seconds", "90", path=path), "failed", "rank 1 is gone")

    @unittest.skipUnless(HAS_TORCH, "this Python has no PyTorch")
    def test_gloo_on_the_host(self):
        rows = rows_of("--device", "cpu", "--repeat", "3", "--size-max", "1048576")
        self.assertEqual([row["row"] for row in rows], ROWS)
        for row in rows[:2]:
            self.assertEqual((row["state"], row["unit"], len(row["samples"])), ("yes", "us", 3))
        self.assertEqual(rows[2]["note"], "larger than --size-max")
        self.assertEqual({row["state"] for row in rows[3:]}, {"failed", "left out"})

    @unittest.skipUnless(HAS_TORCH, "this Python has no PyTorch")
    def test_hooks_on_the_host(self):
        row, = rows_of("--device", "cpu", "--repeat", "3", "--ranks", "3", "--hooks", "10,1000")
        self.assertEqual((row["state"], len(row["samples"])), ("yes", 3), row)

    @unittest.skipUnless(HAS_TORCH, "this Python has no PyTorch")
    def test_a_wrong_sum_fails(self):
        import torch
        spec = importlib.util.spec_from_file_location("rivals", RIVALS)
        rivals = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(rivals)
        arguments = rivals.argparse.Namespace(ranks=3)
        values = torch.arange(100) % rivals.PERIOD
        values = values.to(torch.float32)
        rivals.check_sum(torch, arguments, 3 * values + 3, values)
        wrong = 3 * values + 3
        wrong[99] += 1
        with self.assertRaisesRegex(RuntimeError, "value 99 of 100"):
            rivals.check_sum(torch, arguments, wrong, values)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

"""comm="env" and comm="torch": errors that say what to do, and ranks that are killed.

The ranks that run tests together are those of mpi_test.py and sync_mpi_test.py.
"""

import importlib.util
import itertools
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
import unittest.mock

import lmdbio
import lmdbio.sync
from lmdbio import _capi, _launch

SUPPORT = pathlib.Path(__file__).resolve().parents[2] / "support"
sys.path.insert(0, str(SUPPORT))
LAUNCH = SUPPORT / "launch.py"
NAMES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID", "SLURM_NTASKS",
         "SLURM_STEP_NUM_TASKS", "LMDBIO_MEETING", "LMDBIO_MEETING_LIMIT_S")
NAMED_WITHIN_S = 5

# A rank that reads or sums for ever. One of them is killed; the others print what they hear.
VICTIM = textwrap.dedent("""
    import os, signal, sys, time
    import numpy as np
    import lmdbio, lmdbio.sync

    what, path, comm, victim = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    if comm == "torch":
        from torch import distributed
        distributed.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    is_reader = what == "read"
    it = (lmdbio.Loader(path, 8, comm=comm) if is_reader else
          lmdbio.sync.Synchronizer(comm, coordinator="cache"))
    def say(words):  # in one piece, as other ranks write to the same pipe
        os.write(1, f"{words}\\n".encode())

    try:
        for step in range(10**9):
            if step == 20 and rank == victim:
                say(f"killed {time.time()}")
                os.kill(os.getpid(), signal.SIGKILL)
            if is_reader:
                it.next()
            else:
                it.allreduce("values", np.ones(100)).wait()
    except lmdbio.PeerFailedError as error:
        say(f"heard {time.time()} {error}")
    os._exit(0)
""")


class LaunchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="lmdbio-test-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.digits = cls.folder / "digits"
        subprocess.run([os.environ["LMDBIO_MAKE"], "digits", str(cls.digits)], check=True,
                       capture_output=True)

    def setUp(self):
        # The C library reads the environment of the process, which os.environ sets, too.
        patch = unittest.mock.patch.dict(os.environ)
        patch.start()
        self.addCleanup(patch.stop)
        for name in NAMES:
            os.environ.pop(name, None)

    def open_both(self, kind, words, comm="env"):
        """Opening a loader and a synchronizer raises an exception of `kind` with `words`."""
        with self.assertRaisesRegex(kind, words):
            lmdbio.Loader(self.digits, 8, comm=comm)
        with self.assertRaisesRegex(kind, words):
            lmdbio.sync.Synchronizer(comm)

    def test_no_launcher(self):
        self.open_both(lmdbio.InvalidArgumentError,
                       'comm="env": no launcher has set RANK and WORLD_SIZE')
        os.environ["RANK"] = "0"
        self.open_both(ValueError, 'comm="env": RANK is set, but WORLD_SIZE is not')
        os.environ["WORLD_SIZE"] = "1"
        with lmdbio.Loader(self.digits, 8, comm="env") as loader:
            self.assertEqual(loader.global_batch_size, 8)
        with lmdbio.sync.Synchronizer("env") as sync:
            self.assertEqual((sync.rank, sync.size), (0, 1))
        os.environ["WORLD_SIZE"] = "two"
        self.open_both(ValueError, "WORLD_SIZE is 'two'; expected a whole number")

    def test_other_ranks_do_not_come(self):
        os.environ |= {"RANK": "0", "WORLD_SIZE": "3", "LMDBIO_MEETING_LIMIT_S": "1",
                       "MASTER_ADDR": "localhost", "MASTER_PORT": "29400"}
        self.open_both(lmdbio.PeerFailedError, "ranks 1 and 2 have not come to the meeting")
        os.environ |= {"RANK": "2"}
        self.open_both(lmdbio.StorageError, "rank 0 of this job cannot be found at localhost ports "
                       "29401 to 29416 within 1 s")

    def test_words_that_are_no_communicator(self):
        self.open_both(lmdbio.InvalidArgumentError, "'world' is unknown; expected a communicator "
                       'of mpi4py, "env" or "torch"', comm="world")

    def test_mpi_is_refused(self):
        os.environ |= {"RANK": "0", "WORLD_SIZE": "1"}
        for option in ("collective", "transport"):
            with self.assertRaisesRegex(lmdbio.UnsupportedError, f"options.{option}: 'mpi' needs a "
                                        "communicator"):
                lmdbio.sync.Synchronizer("env", **{option: "mpi"})

    @unittest.skipUnless(importlib.util.find_spec("torch"), "there is no torch")
    def test_torch_without_its_process_group(self):
        self.open_both(lmdbio.InvalidStateError, "call torch.distributed.init_process_group",
                       comm="torch")

    def test_no_torch(self):
        with unittest.mock.patch.dict(sys.modules, {"torch": None}):
            self.open_both(lmdbio.InvalidStateError, 'comm="torch" needs PyTorch', comm="torch")

    def test_a_store_that_fails_raises_its_exception(self):
        class Store:
            """Fails after a number of calls."""

            def __init__(self, calls):
                self.calls = calls

            def set(self, *_):
                self.calls -= 1
                if self.calls < 0:
                    raise RuntimeError("Broken pipe")

            def add(self, *_):
                self.set()
                return 0

        for calls in range(6):
            comm = _launch.Ranks(0, 2, Store(calls))
            with self.assertRaisesRegex(RuntimeError, "Broken pipe"):
                _capi.open_loader(self.digits, _capi.options_of({}), comm)
            with self.assertRaisesRegex(RuntimeError, "Broken pipe"):
                _capi.open_sync(_capi.sync_options_of(), _launch.Ranks(0, 2, Store(calls)))

    def run_victim(self, what, comm, ranks, victim):
        """The time at which the victim was killed, and for each other rank time and words."""
        flags = ["--leave-port"] if comm == "torch" else []
        return self.survivors(
            ranks, [sys.executable, "-B", str(LAUNCH), *flags, "-n", str(ranks), sys.executable,
                    "-c", VICTIM, what, str(self.digits), comm, str(victim)], os.environ)

    def survivors(self, ranks, words, environment):
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False,
                              env=environment | {"LMDBIO_TEST_GRACE_S": "30"})
        self.assertEqual(done.returncode, 128 + signal.SIGKILL, done.stderr)
        lines = done.stdout.splitlines()
        (killed,) = [float(line.split()[1]) for line in lines if line.startswith("killed")]
        heard = [line.split(maxsplit=2)[1:] for line in lines if line.startswith("heard")]
        self.assertEqual(len(heard), ranks - 1, f"{done.stdout}{done.stderr}")
        return killed, [(float(at), words) for at, words in heard]

    def test_all_ranks_name_a_killed_rank(self):
        kinds = ["env"] + (["torch"] if importlib.util.find_spec("torch") else [])
        before = set(os.listdir("/dev/shm"))
        for what, comm, victim in itertools.product(("read", "sum"), kinds, (0, 2)):
            with self.subTest(what=what, comm=comm, victim=victim):
                killed, heard = self.run_victim(what, comm, 3, victim)
                for at, words in heard:
                    self.assertLess(at - killed, NAMED_WITHIN_S)
                    self.assertRegex(words, f"rank {victim}.* has ended unexpectedly")
        self.assertEqual(set(os.listdir("/dev/shm")) - before, set())

    @unittest.skipIf("libasan" in os.environ.get("LD_PRELOAD", ""),
                     "the programs of scripts/cluster do not start with the sanitizer in front")
    def test_all_hosts_name_a_killed_rank(self):
        """On each of two hosts two ranks. With provenance, no reader waits for another host."""
        import box_cluster

        reason = box_cluster.why_not_here()
        if reason is not None:
            self.skipTest(reason)
        box_cluster.IS_LAUNCHED = True
        folder = tempfile.TemporaryDirectory(prefix="lmdbio-test-")
        self.addCleanup(folder.cleanup)
        cluster = box_cluster.BoxCluster(pathlib.Path(folder.name), self.digits, "launch")
        self.addCleanup(cluster.down)
        cluster.up(2)
        for what, victim in itertools.product(("read", "sum"), (0, 1, 3)):
            with self.subTest(what=what, victim=victim):
                killed, heard = self.survivors(
                    4, cluster.words("run", "-n", 4, "--per-host", 2, sys.executable, "-c", VICTIM,
                                     what, cluster.mountpoint, "env", victim), cluster.environment)
                for at, words in heard:
                    self.assertLess(at - killed, NAMED_WITHIN_S)
                    self.assertRegex(words, f"rank {victim}( on .*)? has ended unexpectedly")
                    self.assertIn(f"{cluster.name}-{1 + victim // 2}", words)


if __name__ == "__main__":
    import own_shm

    own_shm.enter(own_shm.DOCKER_BYTES)
    unittest.main(argv=sys.argv[:1])

"""Lightning, Fabric, Accelerate, torchdata and loops with a mesh: two ranks, every record once, and
the same stream after a stop, with one rank as with two.

The oracles are mdb_dump's records, and the order of lmdbio.Loader in one process. It needs the
environment of `scripts/setup --trainers`, and exits with 77 without it.
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from support import HAS_ASAN, Databases, run_unless

import lmdbio

PACKAGES = ("accelerate", "lightning", "torch", "torchdata")
PYTHON = pathlib.Path(__file__).resolve().parents[3] / "build" / "trainers" / "bin" / "python"
PROGRAM = pathlib.Path(__file__).with_name("trainers_ranks.py")
GLOBAL_BATCH = 120
EPOCHS = 2
SECONDS_MAX = 300  # of one job; only a hang takes so long


def versions():
    from importlib import metadata

    return ", ".join(f"{name} {metadata.version(name)}" for name in PACKAGES)


class TrainersTest(Databases):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        print("with", versions(), flush=True)
        cls.all = sorted(int(key) for key, _ in cls.records(cls, cls.digits))
        with lmdbio.Loader(cls.digits, GLOBAL_BATCH, shuffle=True, seed=5) as loader:
            cls.stream = [[int(key) for key in batch.keys()] for _ in range(EPOCHS)
                          for batch in loader]
        cls.steps = len(cls.stream) // EPOCHS

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lmdbio trainers ")
        self.addCleanup(folder.cleanup)
        self.jobs = pathlib.Path(folder.name)

    def run_job(self, mode, ranks=2, **options):
        """Runs a job, and returns it and its folder."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix="job ", dir=self.jobs))
        words = [PROGRAM, mode, self.digits, folder,
                 *(f"{name}={int(value)}" for name, value in options.items())]
        if ranks > 1:
            words = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", ranks,
                     *words]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        job = subprocess.run([sys.executable, *map(str, words)], env=environment, text=True,
                             capture_output=True, timeout=SECONDS_MAX, check=False)
        return job, folder

    def batches(self, mode, ranks=2, **options):
        """Returns the batches that each rank of a job got."""
        job, folder = self.run_job(mode, ranks, **options)
        self.assertEqual(job.returncode, 0, job.stderr[-6000:])
        return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]

    def stream_of(self, mode, ranks=2, **options):
        """Returns the global batches of a job."""
        found = self.batches(mode, ranks, **options)
        self.assertEqual(len({len(each) for each in found}), 1)  # all ranks took as many steps
        return [sum(parts, []) for parts in zip(*found)]

    def assert_whole(self, stream):
        """Checks the order of all epochs, and that each has every record once."""
        self.assertEqual(stream, self.stream)
        for epoch in range(EPOCHS):
            records = sum(stream[epoch * self.steps:(epoch + 1) * self.steps], [])
            self.assertEqual(sorted(records), self.all)

    def assert_refused(self, cause, mode, **options):
        job, folder = self.run_job(mode, **options)
        self.assertNotEqual(job.returncode, 0)
        told = [path.read_text() for path in folder.glob("*.error")]
        self.assertTrue(told, job.stderr[-6000:])
        for message in told:
            self.assertRegex(message, cause)
        self.assertEqual(list(folder.glob("*.json")), [])

    def check_stop_and_resume(self, mode, at, ranks, workers, **options):
        begun = self.stream_of(mode, 2, workers=workers, stop=at, **options)
        rest = self.stream_of(mode, ranks, workers=workers, **options)
        self.assert_whole(begun + rest)

    def test_lightning(self):
        self.assert_whole(self.stream_of("lightning"))
        for at, ranks, workers in ((5, 1, 2), (self.steps, 2, 0), (self.steps + 4, 2, 2)):
            with self.subTest(at=at, ranks=ranks, workers=workers):
                rest = self.stream_of("lightning", ranks, workers=workers, at=at)
                self.assert_whole(self.stream[:at] + rest)

    def test_lightning_with_few_batches_of_each_epoch(self):
        stream = self.stream_of("lightning_with_few_batches")
        self.assertEqual(stream, self.stream[:3] + self.stream[self.steps:self.steps + 3])

    def test_lightning_with_the_loader_of_pytorch(self):
        for workers in (0, 2):
            self.assert_whole(self.stream_of("lightning_with_dataset", workers=workers))

    def test_fabric(self):
        self.check_stop_and_resume("fabric", at=9, ranks=1, workers=2)

    def test_accelerate(self):
        self.check_stop_and_resume("accelerate", at=9, ranks=1, workers=0)

    def test_accelerate_shards_nothing_twice(self):
        cause = r"Accelerate \((DataLoaderDispatcher|IterableDatasetShard)\).*#3547.*DataLoader"
        self.assert_refused(cause, "accelerate_with_dataset")
        self.assert_refused(cause, "accelerate_with_dataset", dispatch=1, workers=1)
        self.assert_refused(cause, "accelerate_with_dataset", dispatch=0, batched=1)
        self.assert_refused(cause, "accelerate_with_dataset", dispatch=0, batched=1, workers=2)

    def test_accelerate_shards_once_what_is_not_sharded(self):
        found = self.batches("accelerate_with_dataset", alone=1, dispatch=1)
        seen = [number for rank in found for batch in rank for number in batch]
        self.assertEqual(sorted(set(seen)), self.all)

    def test_a_loop_with_a_mesh(self):
        self.check_stop_and_resume("loop", at=self.steps - 2, ranks=2, workers=0)

    def test_distributed_checkpoints(self):
        self.check_stop_and_resume("distributed_checkpoint", at=5, ranks=1, workers=0)

    def test_ranks_of_a_tensor_parallel_group_get_the_same_batches(self):
        first, second = self.batches("loop", tensor=2)
        self.assertEqual(first, second)
        self.assert_whole(first)

    def test_a_mesh_without_a_word_is_refused(self):
        for tensor in (1, 2):
            self.assert_refused(r"DeviceMesh.*mesh\['dp'\]", "mesh_without_a_word", tensor=tensor)

    def test_stateful_dataloader(self):
        for at, ranks, workers, persistent in ((9, 1, 0, 0), (self.steps + 3, 1, 2, 0),
                                               (self.steps - 1, 2, 2, 1)):
            with self.subTest(at=at, ranks=ranks, workers=workers):
                for checkpoint in self.jobs.glob("checkpoint*"):
                    checkpoint.unlink()
                begun = self.stream_of("stateful", stop=at, workers=workers, persistent=persistent)
                rest = self.stream_of("stateful", ranks, workers=workers, persistent=persistent)
                more = max(0, len(begun) + len(rest) - len(self.stream))  # it counts epochs anew
                self.assert_whole((begun + rest)[:len(begun) + len(rest) - more])


def why_not():
    """Returns why the tests cannot run here; may go on with the Python of scripts/setup."""
    if HAS_ASAN:
        return "the trainers run without sanitizers"
    missing = [name for name in PACKAGES if not importlib.util.find_spec(name)]
    if missing and PYTHON.exists() and sys.prefix != str(PYTHON.parents[1]):
        os.execv(PYTHON, [str(PYTHON), *sys.argv])
    return f"there is no {', '.join(missing)}: run scripts/setup --trainers" if missing else None


if __name__ == "__main__":
    run_unless(why_not())

"""lmdbio.sync and lmdbio.torch.GradientSync: all ranks train as one process would on whole batches.

Under mpirun. Exits with 77 without mpi4py or torch. Each rank runs the same tests in the same
order; a failure ends all.
"""

import gc
import importlib.util
import sys
import unittest

SKIPPED = 77
HAS_ALL = importlib.util.find_spec("mpi4py") and importlib.util.find_spec("torch")
if HAS_ALL:
    import mpi4py

    mpi4py.rc.thread_level = "funneled"
    import numpy as np
    import torch
    from mpi4py import MPI

    import lmdbio
    import lmdbio.sync
    import lmdbio.torch

    COMM = MPI.COMM_WORLD

BATCH = 12  # of all ranks
STEPS = 20


def make_model(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(7, 16), torch.nn.Tanh(), torch.nn.BatchNorm1d(16),
                                torch.nn.Linear(16, 3))
    model.eval()  # so that normalising does not depend on who has which records
    return model.double()


def train(model, share, synchronize):
    generator = torch.Generator().manual_seed(5)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(STEPS):
        images = torch.randn(BATCH, 7, generator=generator, dtype=torch.float64)
        labels = torch.randint(3, (BATCH,), generator=generator)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images[share]), labels[share]).backward()
        synchronize()
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


class SyncTest(unittest.TestCase):
    def test_arrays(self):
        with lmdbio.sync.Synchronizer(COMM, coordinator="cache") as sync:
            self.assertEqual((sync.rank, sync.size), (COMM.rank, COMM.size))
            for kind in (np.float32, np.float64, np.int64):
                mine = np.arange(1000, dtype=kind).reshape(10, 100) + COMM.rank
                expected = COMM.allreduce(mine)
                sync.allreduce(f"sum {kind.__name__}", mine).wait()
                np.testing.assert_array_equal(mine, expected)
            largest = np.array(COMM.rank, np.int32)
            operation = sync.allreduce("max", largest, reduction="max")
            operation.wait()
            self.assertTrue(operation.is_done())
            self.assertEqual(largest, COMM.size - 1)
            name = np.full(3, COMM.rank, np.float32)
            sync.broadcast("root", name, root=COMM.size - 1).wait()
            self.assertEqual(name.tolist(), [COMM.size - 1] * 3)
            self.assertGreaterEqual(sync.counters()["tensor_count"], 5)
            self.assertIn("coordinator cache", sync.describe())
            self.assertIn("'max'", sync.flight_record())

    def test_wrong_calls(self):
        with lmdbio.sync.Synchronizer(COMM) as sync:
            with self.assertRaisesRegex(ValueError, "contiguous"):
                sync.allreduce("strided", np.zeros(10)[::2])
            with self.assertRaisesRegex(lmdbio.InvalidArgumentError, "type"):
                sync.allreduce("bool", np.zeros(3, bool))
            with self.assertRaisesRegex(lmdbio.InvalidArgumentError, "lmdbio\\."):
                sync.allreduce("lmdbio.x", np.zeros(3))
            odd = sync.allreduce("odd", np.zeros(3 + COMM.rank))
            if COMM.size > 1:
                with self.assertRaisesRegex(lmdbio.InvalidArgumentError, "'odd'"):
                    odd.wait()
            else:
                odd.wait()
        with self.assertRaisesRegex(ValueError, "closed"):
            sync.describe()
        with self.assertRaisesRegex(lmdbio.InvalidArgumentError, "boss"):
            lmdbio.sync.Synchronizer(coordinator="boss")
        with self.assertRaisesRegex(TypeError, "bogus"):
            lmdbio.sync.Synchronizer(bogus=1)

    def test_placed_memory_in_use_is_not_taken_away(self):
        sync = lmdbio.sync.Synchronizer(COMM, gradient_bytes=1 << 12)
        place = sync.place(4000).view(np.float32)
        place += COMM.rank
        sync.allreduce("placed", place).wait()
        self.assertEqual(place[999], COMM.size * (COMM.size - 1) / 2)
        with self.assertRaises(BufferError):
            sync.close()
        with self.assertRaises(MemoryError):
            sync.place(1000)
        sync.shutdown()
        del place
        gc.collect()
        sync.close()

    def test_ranks_train_as_one(self):
        alone = train(make_model(1), slice(None), lambda: None)
        part = BATCH // COMM.size
        share = slice(part * COMM.rank, part * (COMM.rank + 1))
        for placed in (False, True):
            model = make_model(1 if COMM.rank == 0 else 2)
            bytes_to_place = lmdbio.torch.GradientSync.bytes_to_place(model)
            sync = lmdbio.sync.Synchronizer(COMM, gradient_bytes=bytes_to_place if placed else None)
            gradients = lmdbio.torch.GradientSync(model, sync, placed=placed)
            gradients.broadcast_parameters()
            together = train(model, share, gradients.synchronize)
            self.assertLess((together - alone).abs().max().item(), 1e-6)
            bits = COMM.allgather(together.numpy().tobytes())
            self.assertEqual(len(set(bits)), 1)
            self.assertGreaterEqual(sync.counters()["plan_count"], 1)
            sync.shutdown()
            gradients.close()
            gc.collect()
            sync.close()

    def test_a_parameter_without_a_gradient_brings_zeros(self):
        model = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 1), "b": torch.nn.Linear(2, 1)})
        with lmdbio.sync.Synchronizer(COMM) as sync:
            gradients = lmdbio.torch.GradientSync(model, sync, average=False)
            used = "a" if COMM.rank == 0 else "b"
            model[used](torch.ones(1, 2)).sum().backward()
            gradients.synchronize()
            self.assertEqual(model["a"].weight.grad.tolist(), [[1, 1]])
            others = COMM.size - 1
            self.assertEqual(model["b"].weight.grad.tolist(), [[others, others]])
            gradients.close()


if __name__ == "__main__":
    if not HAS_ALL:
        print("skipped: there is no mpi4py, or no torch")
        sys.exit(SKIPPED)
    torch.set_num_threads(1)
    result = unittest.main(exit=False).result
    if not result.wasSuccessful():
        COMM.Abort(1)  # others may be waiting

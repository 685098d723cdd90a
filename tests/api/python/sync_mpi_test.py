"""lmdbio.sync and lmdbio.torch.GradientSync: ranks train like one process with the whole batches.

Under mpirun, or a launcher (job.py). Exits with 77 without mpi4py or torch. Each rank runs the same
tests in the same order; a failure ends all.
"""

import gc
import importlib.util
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
import warnings
import weakref

import job

SKIPPED = 77
HAS_ALL = all(map(importlib.util.find_spec, (*job.needs(), "torch")))
if HAS_ALL:
    if job.KIND == "mpi":
        import mpi4py

        mpi4py.rc.thread_level = "funneled"
    import numpy as np
    import torch

    import lmdbio
    import lmdbio.sync
    import lmdbio.torch

    COMM = job.communicator()

BATCH = 12  # of all ranks
STEPS = 20
SOON_S = 30  # with sanitizers on a busy machine; the library would wait for 600 s


def make_model(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(7, 16), torch.nn.Tanh(), torch.nn.BatchNorm1d(16),
                                torch.nn.Linear(16, 3))
    model.eval()  # so that normalising does not depend on the distribution of the records
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

    def test_every_reduction(self):
        with lmdbio.sync.Synchronizer(COMM) as sync:
            ranks = range(1, COMM.size + 1)
            for reduction, expected in (("sum", sum(ranks)), ("min", 1), ("max", COMM.size),
                                        ("product", math.prod(ranks))):
                mine = np.full(5, COMM.rank + 1, np.int64)
                sync.allreduce(reduction, mine, reduction=reduction).wait()
                self.assertEqual(mine.tolist(), [expected] * 5)
                rows = np.full((2 * COMM.size, 3), COMM.rank + 1, np.int64)
                part = sync.reduce_scatter(f"part {reduction}", rows, reduction=reduction).wait()
                self.assertEqual(part.result().tolist(), [[expected] * 3] * 2)
                self.assertEqual(part.rows(), [2])

    def test_rows_of_other_ranks(self):
        with lmdbio.sync.Synchronizer(COMM) as sync:
            mine = np.full((COMM.rank + 1, 2), COMM.rank, np.float32)
            gathered = sync.allgather("gathered", mine).wait()
            self.assertEqual(gathered.rows(), [rank + 1 for rank in range(COMM.size)])
            self.assertEqual(gathered.result().tolist(),
                             [[rank, rank] for rank in range(COMM.size) for _ in range(rank + 1)])
            # Rank r has one row for rank 0, two for rank 1, ...
            splits = [rank + 1 for rank in range(COMM.size)]
            rows = np.arange(sum(splits), dtype=np.int32) + 100 * COMM.rank
            exchanged = sync.alltoall("exchanged", rows, splits).wait()
            first = sum(splits[:COMM.rank])
            self.assertEqual(exchanged.result().tolist(),
                             [100 * rank + first + i for rank in range(COMM.size)
                              for i in range(COMM.rank + 1)])
            result = gathered.result()
            with self.assertRaises(ValueError):
                result[0] = 1
            del gathered
            gc.collect()
            self.assertEqual(result[0].tolist(), [0, 0])
            with self.assertRaisesRegex(ValueError, "short: .* splits"):
                sync.alltoall("short", rows, [1] * (COMM.size + 1))
        self.assertEqual(result[0].tolist(), [0, 0])

    def test_groups_and_barriers(self):
        with lmdbio.sync.Synchronizer(COMM, coordinator="cache") as sync:
            arrays = {name: np.full(10, i + COMM.rank, np.float64)
                      for i, name in enumerate(("a", "b", "c"))}
            operations = sync.allreduce_group(arrays, postscale=2.0)
            self.assertEqual(list(operations), list(arrays))
            for i, (name, operation) in enumerate(operations.items()):
                operation.wait()
                total = sum(i + rank for rank in range(COMM.size))
                self.assertEqual(arrays[name].tolist(), [2.0 * total] * 10)
            self.assertEqual(sync.allreduce_group({}), {})
            sync.barrier().wait()
            sync.barrier().wait()
            with self.assertRaisesRegex(ValueError, "lmdbio\\."):
                sync.allreduce_group({"fine": np.zeros(2), "lmdbio.x": np.zeros(2)})
            fine = np.ones(2)
            sync.allreduce("fine", fine).wait()  # the refused group has submitted none
            self.assertEqual(fine.tolist(), [COMM.size] * 2)

    def test_a_rank_that_has_joined_brings_zeros(self):
        with lmdbio.sync.Synchronizer(COMM, coordinator="cache") as sync:
            for step in range(3):
                if step > COMM.rank:
                    break
                mine = np.ones(4)
                sync.allreduce("step", mine).wait()
                self.assertEqual(mine.tolist(), [max(COMM.size - step, 1)] * 4)
            joined = sync.join().wait()
            self.assertIn(joined.last_joined(), range(COMM.size))
            self.assertEqual(joined.rows(), [])

    def test_graphs(self):
        tensors = [lmdbio.sync.Tensor(f"layer{i}", (8, i + 1)) for i in range(3)]
        with lmdbio.sync.Synchronizer(COMM) as sync:
            # A backward pass: each tensor follows a node that computes it.
            nodes = [node for tensor in tensors for node in (None, tensor)]
            sync.set_graph(nodes, [(0, 1), (0, 2), (2, 3), (2, 4), (4, 5)])
            for _ in range(4):
                arrays = [np.full(tensor.shape, COMM.rank, np.float32) for tensor in tensors]
                operations = [sync.allreduce(tensor.name, array)
                              for tensor, array in zip(tensors, arrays)]
                for operation, array in zip(operations, arrays):
                    operation.wait()
                    self.assertEqual(set(array.ravel().tolist()), {sum(range(COMM.size))})
            self.assertEqual(sync.counters()["plan_count"], 1)
            with self.assertRaisesRegex(ValueError, "before the first one"):
                sync.set_graph(nodes, [])
        with lmdbio.sync.Synchronizer(COMM) as sync:
            for nodes, edges in ((tensors, [(0, 1), (1, 0)]), (tensors, [(0, 7)]),
                                 ([tensors[0], tensors[0]], []),
                                 ([lmdbio.sync.Tensor("a", (1,), operation="join")], [])):
                with self.assertRaises(lmdbio.InvalidArgumentError):
                    sync.set_graph(nodes, edges)

    def test_wrong_calls(self):
        with lmdbio.sync.Synchronizer(COMM) as sync:
            with self.assertRaisesRegex(ValueError, "contiguous"):
                sync.allreduce("strided", np.zeros(10)[::2])
            with self.assertRaisesRegex(lmdbio.InvalidArgumentError, "type"):
                sync.allreduce("bool", np.zeros(3, bool))
            with self.assertRaisesRegex(ValueError, "turned: .* byte order"):
                sync.allreduce("turned", np.zeros(3, np.dtype(np.float32).newbyteorder()))
            for scale in ("prescale", "postscale"):
                with self.assertRaisesRegex(ValueError, "zero: .* scale of 0"):
                    sync.allreduce("zero", np.zeros(3), **{scale: 0.0})
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

    def test_a_communicator_is_enough(self):
        alone = train(make_model(1), slice(None), lambda: None)
        part = BATCH // COMM.size
        share = slice(part * COMM.rank, part * (COMM.rank + 1))
        model = make_model(1 if COMM.rank == 0 else 2)
        with lmdbio.torch.GradientSync(model, COMM, coordinator="cache") as gradients:
            sync = gradients.synchronizer
            self.assertEqual(sync.options()["coordinator"], "cache")
            gradients.broadcast_parameters()
            together = train(model, share, gradients.synchronize)
            # A gradient is placed if it lies in the memory of the synchronizer.
            for parameter in model.parameters():
                self.assertIn(parameter.grad.data_ptr(), sync._placed)
        self.assertLess((together - alone).abs().max().item(), 1e-6)
        for parameter in model.parameters():
            self.assertTrue(torch.isfinite(parameter.grad).all())  # it outlives the placed memory
        with self.assertRaises(ValueError):
            sync.counters()

    def test_a_model_that_cannot_be_reduced_closes_its_synchronizer(self):
        with self.assertRaisesRegex(ValueError, "weight is on the device meta"):
            lmdbio.torch.GradientSync(torch.nn.Linear(2, 2, device="meta"), COMM)
        with lmdbio.sync.Synchronizer(COMM) as sync:
            with self.assertRaisesRegex(ValueError, "pacing: the synchronizer is made already"):
                lmdbio.torch.GradientSync(torch.nn.Linear(2, 2), sync, pacing="cycle")

    def test_gradients_that_are_dropped_between_iterations(self):
        for placed in (False, True):
            model = torch.nn.Linear(3, 1, bias=False)
            with lmdbio.torch.GradientSync(model, COMM, average=False, placed=placed) as gradients:
                for factor in range(1, 5):
                    model.weight.grad = None
                    model(torch.full((1, 3), float(factor))).sum().backward()
                    gradients.synchronize()
                    self.assertEqual(model.weight.grad.tolist(), [[factor * COMM.size] * 3])

    def test_synchronize_keeps_no_gradient(self):
        model = torch.nn.Linear(3, 1, bias=False)
        with lmdbio.torch.GradientSync(model, COMM, placed=False) as gradients:
            model(torch.ones(1, 3)).sum().backward()
            gradients.synchronize()
            last = weakref.ref(model.weight.grad)
            model.weight.grad = None
            self.assertIsNone(last())

    def test_a_gradient_that_changes_its_size_is_refused(self):
        model = torch.nn.Linear(3, 1, bias=False)
        with lmdbio.torch.GradientSync(model, COMM) as gradients:
            model.weight.data = torch.ones(1, 2)
            model.weight.grad = torch.ones(1, 2)
            with self.assertRaisesRegex(ValueError, "weight has 2 values of float32; it had 3"):
                gradients.synchronize()

    def test_a_gradient_that_is_not_contiguous(self):
        model = torch.nn.Linear(3, 2, bias=False)
        with lmdbio.torch.GradientSync(model, COMM, average=False, placed=False) as gradients:
            strided = torch.arange(6.0).view(3, 2).t()
            model.weight.grad = strided
            gradients.synchronize()
            self.assertEqual(model.weight.grad.tolist(), (strided * COMM.size).tolist())

    def test_an_allreduce_that_is_submitted_again_and_again(self):
        with lmdbio.sync.Synchronizer(COMM) as sync:
            values = np.zeros(5, np.float64)
            total = sync.persistent_allreduce("total", values, postscale=0.5)
            for factor in range(1, 6):
                values[:] = factor * (COMM.rank + 1)
                total.submit()
                with self.assertRaisesRegex(RuntimeError, "total is in flight"):
                    total.submit()
                total.wait()
                total.wait()  # nothing is in flight
                expected = factor * COMM.size * (COMM.size + 1) / 4
                self.assertEqual(values.tolist(), [expected] * 5)
            self.assertFalse(total.is_in_flight())
            last = weakref.ref(values)
            del values  # the allreduce still uses it
            total.submit()
            total.wait()
            self.assertIsNotNone(last())
            del total
            self.assertIsNone(last())

    def test_a_persistent_allreduce_nobody_waits_for(self):
        with lmdbio.sync.Synchronizer(COMM) as sync:
            values = np.ones(1000)
            last = weakref.ref(values)
            total = sync.persistent_allreduce("total", values)
            total.submit()
            with self.assertRaisesRegex(RuntimeError, "total is in flight"):
                total.set_values(0, None)
            del total, values
            # Kept while the library uses it, on each rank at least until the other has submitted.
            sync.allreduce("behind it", np.ones(1)).wait()
            until = time.monotonic() + SOON_S
            while last() is not None and time.monotonic() < until:
                sync.forget_done()
                time.sleep(0.01)
            self.assertIsNone(last())
            self.assertEqual(sync._orphans, {})

    def test_values_of_a_dropped_allreduce_outlive_it(self):
        with lmdbio.sync.Synchronizer(COMM) as sync:
            if COMM.rank == 0:
                values = np.full(1000, 2.0)
                last = weakref.ref(values)
                total = sync.persistent_allreduce("total", values)
                total.submit()
                if COMM.size > 1:  # the other ranks have not submitted it yet
                    del total, values
                    self.assertIsNotNone(last())
                    self.assertEqual(len(sync._orphans), 1)
            COMM.Barrier()
            if COMM.rank > 0:
                sync.allreduce("total", np.full(1000, 2.0)).wait()

    def test_ranks_that_differ_in_a_persistent_allreduce(self):
        if COMM.size == 1:
            return
        with lmdbio.sync.Synchronizer(COMM, coordinator="cache") as sync:
            values = np.ones(3 + COMM.rank)
            total = sync.persistent_allreduce("total", values)
            total.submit()
            with self.assertRaisesRegex(ValueError, "total"):
                total.wait()
            self.assertFalse(total.is_in_flight())
            sync.allreduce("after it", np.ones(1)).wait()

    def test_closing_lets_go_of_placed_gradients(self):
        model = torch.nn.Linear(3, 1)
        size = lmdbio.torch.GradientSync.bytes_to_place(model)
        with lmdbio.sync.Synchronizer(COMM, gradient_bytes=size) as sync:
            gradients = lmdbio.torch.GradientSync(model, sync, placed=True)
            model(torch.ones(1, 3)).sum().backward()
            gradients.synchronize()
        self.assertEqual(model.weight.grad.tolist(), [[1, 1, 1]])
        self.assertEqual(gradients._pending, {})

    def test_closing_lets_go_of_gradients_under_way(self):
        model = torch.nn.Linear(3, 1)
        with lmdbio.sync.Synchronizer(COMM) as sync:
            gradients = lmdbio.torch.GradientSync(model, sync)
            model(torch.ones(1, 3)).sum().backward()
            gradients.close()
            self.assertEqual(gradients._pending, {})

    def test_arrays_nobody_waits_for_go_when_they_are_done(self):
        with lmdbio.sync.Synchronizer(COMM) as sync:
            array = np.ones(1000)
            last = weakref.ref(array)
            sync.allreduce("not awaited", array)
            del array
            COMM.Barrier()
            until = time.monotonic() + SOON_S
            while sync.counters()["tensor_count"] == 0 and time.monotonic() < until:
                time.sleep(0.01)
            for i in range(2):
                sync.allreduce(f"awaited {i}", np.ones(1)).wait()
            self.assertIsNone(last())
            self.assertEqual(sync._orphans, {})

    def fail_in_first_rank(self, options, step):
        """Rank 0 fails in `step`, and the other ranks get an error soon."""
        began = time.monotonic()
        with self.assertRaises(ZeroDivisionError if COMM.rank == 0 else lmdbio.PeerFailedError):
            with lmdbio.sync.Synchronizer(COMM, **options) as sync:
                step(sync)
        self.assertLess(time.monotonic() - began, SOON_S)
        COMM.Barrier()

    def test_an_error_on_one_rank_is_heard_of_by_all(self):
        def step(sync):
            sync.allreduce("first", np.ones(3)).wait()
            if sync.rank == 0:
                raise ZeroDivisionError
            sync.allreduce("second", np.ones(3)).wait()

        self.fail_in_first_rank({}, step)

    def test_an_error_while_placed_memory_is_in_use(self):
        model = torch.nn.Linear(3, 1)
        size = lmdbio.torch.GradientSync.bytes_to_place(model) + 64

        def step(sync):
            gradients = lmdbio.torch.GradientSync(model, sync, placed=True)
            view = sync.place(12).view(np.float32)
            model(torch.ones(1, 3)).sum().backward()
            gradients.synchronize()
            if sync.rank == 0:
                raise ZeroDivisionError
            sync.allreduce("second", view).wait()

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.fail_in_first_rank({"gradient_bytes": size}, step)
        self.assertEqual(model.weight.grad.tolist(), [[1, 1, 1]])

    def test_the_failure_of_a_peer_does_not_end_a_backward_pass(self):
        model, passed = torch.nn.Linear(3, 1), []

        def step(sync):
            gradients = lmdbio.torch.GradientSync(model, sync)
            if sync.rank == 0:
                raise ZeroDivisionError
            with self.assertRaises(lmdbio.PeerFailedError):
                sync.allreduce("second", np.ones(3)).wait()
            model(torch.ones(1, 3)).sum().backward()
            passed.append(model.weight.grad.tolist())
            gradients.synchronize()

        self.fail_in_first_rank({}, step)
        self.assertEqual(passed, [] if COMM.rank == 0 else [[[1, 1, 1]]])

    def test_an_error_that_placed_memory_outlives(self):
        views = []

        def step(sync):
            views.append(sync.place(12).view(np.float32))
            sync.allreduce("first", views[0]).wait()
            if sync.rank == 0:
                raise ZeroDivisionError
            views.pop()
            sync.allreduce("second", np.ones(3)).wait()

        if COMM.rank == 0:
            with self.assertWarnsRegex(RuntimeWarning, "in use after an error"):
                with self.assertRaises(ZeroDivisionError):
                    with lmdbio.sync.Synchronizer(COMM, gradient_bytes=64) as sync:
                        step(sync)
            with self.assertRaisesRegex(ValueError, "closed"):
                sync.describe()
            self.assertEqual(views[0].tolist(), [0, 0, 0])  # it is still there
            views.pop()
            COMM.Barrier()
        else:
            self.fail_in_first_rank({"gradient_bytes": 64}, step)

    def test_an_error_that_placed_memory_outlives_until_exit(self):
        program = """if True:
            import sys, lmdbio.sync
            with lmdbio.sync.Synchronizer(gradient_bytes=64, timeline_path=sys.argv[1]) as sync:
                view = sync.place(12)
                raise ZeroDivisionError
            """
        with tempfile.TemporaryDirectory() as folder:
            ended = subprocess.run([sys.executable, "-c", program, f"{folder}/timeline"], text=True,
                                   capture_output=True, check=False, timeout=SOON_S)
            self.assertEqual(ended.returncode, 1)
            self.assertRegex(ended.stderr, "RuntimeWarning(.|\\n)*ZeroDivisionError\\n\\Z")
            # The file is valid JSON only after the synchronizer was closed.
            json.loads(pathlib.Path(folder, "timeline.0").read_text())

    def test_tensors_that_cannot_be_reduced(self):
        with lmdbio.sync.Synchronizer(COMM) as sync:
            with self.assertRaisesRegex(ValueError, "weight is on the device meta"):
                lmdbio.torch.GradientSync(torch.nn.Linear(2, 2, device="meta"), sync)
            for wrong, what in ((torch.zeros(3, device="meta"), "on the device meta"),
                                (torch.zeros(3, dtype=torch.bool), "of type bool"),
                                (torch.zeros(3, dtype=torch.uint8), "of type uint8"),
                                (torch.eye(3).to_sparse(), "the layout torch.sparse_coo")):
                model = torch.nn.Linear(2, 2)
                model.register_buffer("odd", wrong)
                with self.assertRaisesRegex(ValueError, f"odd .*{what}"):
                    lmdbio.torch.GradientSync(model, sync).broadcast_parameters()
            model = torch.nn.Embedding(3, 2, sparse=True)
            gradients = lmdbio.torch.GradientSync(model, sync)
            with self.assertRaisesRegex(ValueError, "gradient of weight .* layout"):
                model(torch.tensor([1])).sum().backward()
            with self.assertRaisesRegex(ValueError, "strided is not contiguous"):
                gradients._submit_tensor("strided", torch.zeros(3, 2).t())
            self.assertEqual(sync.counters()["tensor_count"], 0)
            self.assertEqual(sync.flight_record(), "")

    def test_a_lag_delivers_the_sums_of_the_iteration_before(self):
        def input_of(iteration, rank):
            return np.array([iteration + 1.0, rank - 1.0, 0.5 * iteration])

        def gradient_of(weights, iteration, rank):  # of (w x)^2 / 2
            values = input_of(iteration, rank)
            return (weights @ values) * values

        def sum_of(weights, iteration):
            return sum(gradient_of(weights, iteration, rank) for rank in range(COMM.size))

        for placed, coordinator in ((False, "cache"), (True, "topo")):
            model = torch.nn.Linear(3, 1, bias=False).double()
            torch.nn.init.ones_(model.weight)
            expected, late = np.ones(3), None
            with lmdbio.torch.GradientSync(model, COMM, average=False, placed=placed, lag=1,
                                           coordinator=coordinator) as gradients:
                for iteration in range(8):
                    model.zero_grad(set_to_none=iteration % 2 == 0)
                    values = torch.from_numpy(input_of(iteration, COMM.rank))
                    (model(values) ** 2 / 2).sum().backward()
                    own = sum_of(expected, iteration)
                    has_sums = gradients.synchronize()
                    self.assertEqual(has_sums, late is not None)
                    delivered = model.weight.grad.numpy().ravel()
                    np.testing.assert_allclose(delivered, np.zeros(3) if late is None else late)
                    if has_sums:
                        model.weight.data -= 0.001 * model.weight.grad
                        expected = expected - 0.001 * late
                    late = own
                    if iteration in (4, 7):
                        self.assertTrue(gradients.flush())
                        np.testing.assert_allclose(model.weight.grad.numpy().ravel(), late)
                        late = None
                        self.assertFalse(gradients.flush())
                np.testing.assert_allclose(model.weight.detach().numpy().ravel(), expected)

    def test_a_lag_after_its_end(self):
        model = torch.nn.Linear(3, 1, bias=False)
        with lmdbio.sync.Synchronizer(COMM) as sync:
            with self.assertWarnsRegex(RuntimeWarning, "last iteration were not delivered"):
                with lmdbio.torch.GradientSync(model, sync, lag=1) as gradients:
                    model(torch.ones(1, 3)).sum().backward()
                    model.zero_grad(set_to_none=True)
                    self.assertFalse(gradients.synchronize())
                    self.assertEqual(model.weight.grad.tolist(), [[0, 0, 0]])
            self.assertFalse(gradients.flush())
            sync.join().wait()

    def test_a_lag_delivers_no_sums_after_an_error(self):
        model = torch.nn.Linear(3, 1, bias=False)
        with lmdbio.sync.Synchronizer(COMM) as sync:
            gradients = lmdbio.torch.GradientSync(model, sync, lag=1)
            model(torch.ones(1, 3)).sum().backward()
            gradients.synchronize()
            broken = gradients._watched[0].allreduce

            def fail():
                raise KeyboardInterrupt

            with unittest.mock.patch.object(type(broken), "wait", lambda _: fail()):
                with self.assertRaises(KeyboardInterrupt):
                    model(torch.ones(1, 3)).sum().backward()
            self.assertFalse(gradients.synchronize())
            self.assertTrue(gradients.flush())
            gradients.close()

    def test_a_lag_that_is_wrong_is_refused(self):
        with self.assertRaisesRegex(ValueError, "lag is 2; expected 0 or 1"):
            lmdbio.torch.GradientSync(torch.nn.Linear(2, 2), COMM, lag=2)

    def test_a_lag_loses_no_sums_before_a_join(self):
        model = torch.nn.Linear(3, 1, bias=False)
        with lmdbio.torch.GradientSync(model, COMM, average=False, lag=1) as gradients:
            for _ in range(2):
                model(torch.ones(1, 3)).sum().backward()
                with self.assertRaisesRegex(RuntimeError, "synchronize.. before flush"):
                    gradients.flush()
                gradients.synchronize()
                model.zero_grad()
            with self.assertRaisesRegex(RuntimeError, "cannot join: .* call flush.. first"):
                gradients.synchronizer.join()
            gradients.flush()
            self.assertEqual(model.weight.grad.tolist(), [[COMM.size] * 3])
            gradients.synchronizer.join().wait()

    def test_gradients_of_several_batches(self):
        for placed in (False, True):
            model = torch.nn.Linear(3, 1, bias=False)
            size = lmdbio.torch.GradientSync.bytes_to_place(model)
            with lmdbio.sync.Synchronizer(COMM, gradient_bytes=size) as sync:
                gradients = lmdbio.torch.GradientSync(model, sync, average=False, placed=placed)
                for _ in range(3):
                    model.zero_grad()
                    with gradients.no_sync():
                        for _ in range(2):
                            model(torch.full((1, 3), 10.0 + COMM.rank)).sum().backward()
                    self.assertEqual(gradients._pending, {})
                    model(torch.ones(1, 3)).sum().backward()
                    gradients.synchronize()
                    expected = COMM.allreduce(21 + 2 * COMM.rank)
                    self.assertEqual(model.weight.grad.tolist(), [[expected] * 3])
                self.assertEqual(sync.counters()["tensor_count"], 3)

    def test_a_second_gradient_is_an_error_and_the_next_step_is_right(self):
        model = torch.nn.Linear(3, 1, bias=False)
        with lmdbio.sync.Synchronizer(COMM) as sync:
            gradients = lmdbio.torch.GradientSync(model, sync)
            model(torch.ones(1, 3)).sum().backward()
            with self.assertRaisesRegex(RuntimeError, "weight got a second gradient"):
                model(torch.ones(1, 3)).sum().backward()
            gradients.synchronize()
            model.zero_grad()
            model(torch.ones(1, 3)).sum().backward()
            gradients.synchronize()
            self.assertEqual(model.weight.grad.tolist(), [[1, 1, 1]])

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

"""GradientSync with models on a GPU: the GPUs are those of tests/emulated_torch.

Under a launcher (job.py). Exits with 77 without that backend of PyTorch. The ranks share the first
GPU. Each rank runs the same tests in the same order; a failure ends all. The oracle is the training
on the host, whose bits are the same: operators of the backend run on the host, on copies.
"""

import os
import pathlib
import sys
import unittest
import weakref

SKIPPED = 77
PYTHON = pathlib.Path(__file__).resolve().parents[3] / "build" / "trainers" / "bin" / "python"
HAS_BACKEND = bool(os.environ.get("LMDBIO_EMULATED_TORCH")) and PYTHON.exists()
if HAS_BACKEND and sys.prefix != str(PYTHON.parents[1]):
    os.execv(PYTHON, [str(PYTHON), *sys.argv])
if HAS_BACKEND:
    # Before the driver is opened.
    os.environ["LMDBIO_EMULATED_GPU"] = os.path.join(os.environ["LMDBIO_TEST_FOLDER"], "devices")
    os.environ["LMDBIO_EMULATED_GPU_SEED"] = os.environ.get("RANK", "0")
    import emulated_torch
    import numpy as np
    import torch

    import job
    import lmdbio
    import lmdbio.sync
    import lmdbio.torch

    COMM = job.communicator()
    GPU = torch.device("emulated:0")

BATCH = 12  # of all ranks
STEPS = 50
BUFFER = {"device_buffer_bytes": 1 << 20}
STAGED = {"device_collective": "staged"}
# Calls that wait for the device, or may.
SYNCHRONISING = ("cuStreamSynchronize", "cuMemAlloc", "cuMemFree", "cuMemHostRegister",
                 "cuMemHostUnregister", "cuModuleLoadData", "cuIpcOpenMemHandle",
                 "cuIpcCloseMemHandle", "cuStreamCreateWithPriority", "cuStreamDestroy")


def make_model(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(7, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))


def share_of_rank():
    part = BATCH // COMM.size
    return slice(part * COMM.rank, part * (COMM.rank + 1))


def batches_of(share):
    generator = torch.Generator().manual_seed(5)
    for _ in range(STEPS):
        images = torch.randn(BATCH, 7, generator=generator)[share].clone()
        yield images, torch.randint(3, (BATCH,), generator=generator)[share]


def loss_of(found, labels):
    return torch.nn.functional.cross_entropy(found, labels)


def parameters_of(model):
    return torch.cat([parameter.detach().cpu().flatten() for parameter in model.parameters()])


def train(model, gradients, device, share, after_step=lambda step: None):
    """The parameters after all steps."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, foreach=False)
    for step, (images, labels) in enumerate(batches_of(share)):
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        loss_of(model(images.to(device)), labels.to(device)).backward()
        if gradients is not None:
            gradients.synchronize()
        optimizer.step()
        after_step(step)
    return parameters_of(model)


def host_training(**options):
    model = make_model(1)
    with lmdbio.torch.GradientSync(model, COMM, **options) as gradients:
        found = train(model, gradients, "cpu", share_of_rank())
        gradients.flush()
    return found


def linear(device="emulated:0"):
    return torch.nn.Linear(3, 1, bias=False).to(device)


def sum_of_ranks():
    return COMM.size * (COMM.size + 1) / 2


def run_backward(model, factor=1.0):
    """The gradient of each weight is factor * (rank + 1)."""
    ones = torch.full((1, 3), float(factor * (COMM.rank + 1))).to(GPU)
    model(ones).sum().backward()


class TorchDeviceTest(unittest.TestCase):
    def test_ranks_train_as_on_the_host(self):
        on_host = host_training()
        whole = train(make_model(1), None, "cpu", slice(None))
        self.assertLess((on_host - whole).abs().max().item(), 1e-5)
        for options in ({}, {"placed": False}, {"device_order": "mark"},
                        {"device_order": "event"}, STAGED, {"placed": False, **STAGED}):
            with self.subTest(options=options):
                model = make_model(1 if COMM.rank == 0 else 2).to(GPU)
                with lmdbio.torch.GradientSync(model, COMM, **BUFFER, **options) as gradients:
                    gradients.broadcast_parameters()
                    found = train(model, gradients, GPU, share_of_rank())
                    gradients.check()
                    counters = gradients.synchronizer.counters()
                reduced = counters["device_reduced_count"] + counters["device_tensor_count"]
                self.assertGreaterEqual(reduced, STEPS * 4)
                self.assertEqual(found.numpy().tobytes(), on_host.numpy().tobytes())
                self.assertEqual(len(set(COMM.allgather(found.numpy().tobytes()))), 1)

    def test_late_updates_train_as_on_the_host(self):
        on_host = host_training()
        for options in ({}, {"placed": False}, STAGED):
            model = make_model(1).to(GPU)
            optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, foreach=False)
            with lmdbio.torch.GradientSync(model, COMM, optimizer=optimizer, check=True, **BUFFER,
                                           **options) as gradients:
                for images, labels in batches_of(share_of_rank()):
                    loss_of(model(images.to(GPU)), labels.to(GPU)).backward()
                    gradients.step()
            self.assertEqual(parameters_of(model).numpy().tobytes(), on_host.numpy().tobytes())

    def test_nothing_waits_for_the_gpu_and_memory_does_not_grow(self):
        counts, used = [], []

        def after_step(step):
            counts.append([emulated_torch.control.call_count(name.encode())
                           for name in SYNCHRONISING])
            used.append((emulated_torch.memory_allocated(), emulated_torch.memory_reserved()))

        model = make_model(1).to(GPU)
        with lmdbio.torch.GradientSync(model, COMM, **BUFFER) as gradients:
            train(model, gradients, GPU, share_of_rank(), after_step)
        self.assertEqual(dict(zip(SYNCHRONISING, counts[9])), dict(zip(SYNCHRONISING, counts[-1])))
        self.assertEqual(used[9], used[-1])

    def test_gradients_are_submitted_before_they_are_computed(self):
        model = linear()
        with lmdbio.torch.GradientSync(model, COMM, average=False, **BUFFER) as gradients:
            for step in range(1, 6):
                # The stand-in draws the order in which streams run, so some work is left.
                run_backward(model, step)
                self.assertEqual(list(gradients._pending), ["weight"])
                gradients.synchronize()
                self.assertEqual(model.weight.grad.tolist(), [[step * sum_of_ranks()] * 3])
                model.weight.grad = None

    def test_a_gradient_under_way_is_kept_and_not_longer(self):
        model = linear()
        with lmdbio.torch.GradientSync(model, COMM, placed=False, **BUFFER) as gradients:
            run_backward(model)
            kept, address = weakref.ref(model.weight.grad), model.weight.grad.data_ptr()
            model.weight.grad = None
            self.assertIsNotNone(kept())
            self.assertNotEqual(torch.empty(1, 3, device=GPU).data_ptr(), address)
            gradients.synchronize()
            self.assertIsNone(kept())

    def test_streams_of_the_program(self):
        first, second = emulated_torch.Stream(GPU), emulated_torch.Stream(GPU)
        for placed in (False, True):
            model = linear()
            with lmdbio.torch.GradientSync(model, COMM, average=False, placed=placed,
                                           **BUFFER) as gradients:
                for step in range(1, 41):
                    with emulated_torch.stream(first):
                        run_backward(model, step)
                    with emulated_torch.stream(second):
                        gradients.synchronize()
                        self.assertEqual(model.weight.grad.tolist(),
                                         [[step * sum_of_ranks()] * 3])
                        model.weight.grad = None

    def test_memory_of_a_dropped_gradient_is_written_by_nobody(self):
        first, second = emulated_torch.Stream(GPU), emulated_torch.Stream(GPU)
        model = linear()
        with emulated_torch.stream(first):
            made = lmdbio.torch.GradientSync(model, COMM, average=False, placed=False, **BUFFER)
        with made as gradients:
            for step in range(1, 21):
                with emulated_torch.stream(first):
                    run_backward(model, step)
                    address = model.weight.grad.data_ptr()
                with emulated_torch.stream(second):
                    gradients.synchronize()
                model.weight.grad = None
                with emulated_torch.stream(first):  # PyTorch gives the memory away again there
                    again = torch.full((1, 3), 7.0).to(GPU)
                self.assertEqual(again.data_ptr(), address)
                gradients.check()  # all work of the synchronizer is done
                with emulated_torch.stream(first):
                    self.assertEqual(again.tolist(), [[7.0] * 3])
                del again

    def test_placed_gradients(self):
        for lag in (0, 1):
            model = make_model(1).to(GPU)
            size = lmdbio.torch.GradientSync.bytes_to_place(model, lag)
            with lmdbio.sync.Synchronizer(COMM, device=1, device_gradient_bytes=size,
                                          **BUFFER) as sync:
                gradients = lmdbio.torch.GradientSync(model, sync, placed=True, lag=lag)
                train(model, gradients, GPU, share_of_rank())
                gradients.flush()
                addresses = [values.data_ptr() for watched in gradients._watched
                             for values in watched.sums or [watched.parameter.grad]]
                self.assertEqual(len(addresses), 4 * (1 + lag))
                for address in addresses:
                    self.assertIn(address, sync._placed_on_device)
                delivered = [parameter.grad.tolist() for parameter in model.parameters()]
            # They outlive the memory of the synchronizer, which is given back.
            self.assertEqual([parameter.grad.tolist() for parameter in model.parameters()],
                             delivered)

    def test_memory_is_given_back_behind_the_work_that_uses_it(self):
        for _ in range(5):
            model = make_model(1).to(GPU)
            with lmdbio.torch.GradientSync(model, COMM, **BUFFER) as gradients:
                model(torch.ones(4, 7).to(GPU)).sum().backward()
                gradients.synchronize()
                copies = [parameter.grad.clone() for parameter in model.parameters()]
            for copy, parameter in zip(copies, model.parameters()):
                self.assertEqual(copy.tolist(), parameter.grad.tolist())

    def test_gradients_of_several_batches(self):
        model = linear()
        with lmdbio.torch.GradientSync(model, COMM, average=False, **BUFFER) as gradients:
            with gradients.no_sync():
                run_backward(model, 10)
                run_backward(model, 10)
            self.assertEqual(gradients._pending, {})
            run_backward(model)
            gradients.synchronize()
            self.assertEqual(model.weight.grad.tolist(), [[21 * sum_of_ranks()] * 3])

    def test_a_lag_delivers_the_sums_of_the_iteration_before(self):
        on_host = host_training(lag=1)
        for options in ({}, STAGED):
            model = make_model(1).to(GPU)
            with lmdbio.torch.GradientSync(model, COMM, lag=1, **BUFFER, **options) as gradients:
                found = train(model, gradients, GPU, share_of_rank())
                self.assertTrue(gradients.flush())
                gradients.check()
                self.assertFalse(gradients.flush())
            self.assertEqual(found.numpy().tobytes(), on_host.numpy().tobytes())

    def test_a_parameter_without_a_gradient_brings_zeros(self):
        model = torch.nn.ModuleDict({"a": torch.nn.Linear(3, 1), "b": torch.nn.Linear(3, 1)})
        model.to(GPU)
        with lmdbio.torch.GradientSync(model, COMM, average=False, **BUFFER) as gradients:
            run_backward(model["a" if COMM.rank == 0 else "b"])
            gradients.synchronize()
            self.assertEqual(model["a"].weight.grad.tolist(), [[1] * 3])
            self.assertEqual(model["b"].weight.grad.tolist(), [[sum_of_ranks() - 1] * 3])

    def test_a_gradient_that_is_not_contiguous(self):
        model = torch.nn.Linear(3, 2, bias=False).to(GPU)
        with lmdbio.torch.GradientSync(model, COMM, average=False, **BUFFER) as gradients:
            values = torch.arange(6.0).view(3, 2).t()
            model.weight.grad = torch.arange(6.0).view(3, 2).to(GPU).t()
            gradients.synchronize()
            self.assertEqual(model.weight.grad.tolist(), (values * COMM.size).tolist())
            self.assertTrue(model.weight.grad.is_contiguous())

    def test_an_empty_parameter(self):
        model = torch.nn.ParameterDict({"a": torch.nn.Parameter(torch.zeros(0, 3, device=GPU)),
                                        "b": torch.nn.Parameter(torch.zeros(3, device=GPU))})
        with lmdbio.torch.GradientSync(model, COMM, average=False, **BUFFER) as gradients:
            gradients.broadcast_parameters()
            model["b"].sum().backward()
            gradients.synchronize()
            self.assertEqual(model["b"].grad.tolist(), [COMM.size] * 3)
            self.assertEqual(model["a"].grad.shape, (0, 3))

    def test_parameters_and_buffers_of_one_rank(self):
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).to(GPU)
        model.register_buffer("turned", torch.full((2, 3), 1.0 + COMM.rank).to(GPU).t())
        model.register_buffer("on_host", torch.full((5,), 2.0 + COMM.rank))
        model[1].num_batches_tracked += 3 + COMM.rank
        first = COMM.bcast([tensor.tolist() for tensor in model.state_dict().values()])
        with lmdbio.torch.GradientSync(model, COMM, **BUFFER) as gradients:
            gradients.broadcast_parameters()
            found = [tensor.tolist() for tensor in model.state_dict().values()]
        self.assertEqual(found, first)
        self.assertEqual(model[1].num_batches_tracked.item(), 3)
        self.assertEqual(model.on_host.device.type, "cpu")

    def test_ddp_hook(self):
        class Bucket:
            """A bucket of DistributedDataParallel."""

            def __init__(self, values):
                self.values = values

            def buffer(self):
                return self.values

            def index(self):
                return 0

        with lmdbio.sync.Synchronizer(COMM, device=1, **BUFFER) as sync:
            hook = lmdbio.torch.ddp_hook(sync, average=False)
            for step in range(1, 11):
                values = torch.full((1000,), float(step * (COMM.rank + 1))).to(GPU)
                sums = hook(None, Bucket(values)).wait()
                self.assertEqual(sums.data_ptr(), values.data_ptr())
                self.assertEqual(set(sums.tolist()), {step * sum_of_ranks()})
            hook.check()
            self.assertEqual(sync.counters()["tensor_count"], 10)

    def assert_refused(self, cause, model, comm, **options):
        with self.assertRaisesRegex(ValueError, cause):
            lmdbio.torch.GradientSync(model, comm, **options)

    def test_models_that_are_refused(self):
        two = torch.nn.ModuleDict({"a": linear(), "b": linear("emulated:1")})
        mixed = torch.nn.ModuleDict({"a": linear("cpu"), "b": linear()})
        cause = r"b\.weight is on the device emulated:1; move it to emulated:0"
        self.assert_refused(cause, two, COMM, **BUFFER)
        self.assert_refused(r"b\.weight is on the device emulated:0; move it to cpu", mixed, COMM)
        with self.assertRaisesRegex(MemoryError, "device_gradient_bytes"):
            lmdbio.torch.GradientSync(linear(), COMM, device_gradient_bytes=1, **BUFFER)
        with lmdbio.sync.Synchronizer(COMM) as sync:
            cause = "weight is on .* option device of the synchronizer is 0; .* device=1"
            self.assert_refused(cause, linear(), sync)
        with lmdbio.sync.Synchronizer(COMM, device=1, **BUFFER) as sync:
            cause = "weight is on .* option device of the synchronizer is 1; .* device=2"
            self.assert_refused(cause, linear("emulated:1"), sync)
            model = linear()
            model.register_buffer("odd", torch.zeros(3, device="emulated:1"))
            gradients = lmdbio.torch.GradientSync(model, sync)
            with self.assertRaisesRegex(ValueError, "odd is on the device emulated:1"):
                gradients.broadcast_parameters()
            whole = torch.nn.Linear(3, 1, dtype=torch.complex64).to(GPU)
            self.assert_refused("weight is of type complex64", whole, sync)
            gradients.close()
            self.assertEqual(sync.counters()["tensor_count"], 0)

    def test_a_model_on_the_host_with_a_gpu_at_hand(self):
        model = linear("cpu")
        with lmdbio.sync.Synchronizer(COMM, device=1, **BUFFER) as sync:
            gradients = lmdbio.torch.GradientSync(model, sync, average=False)
            model(torch.full((1, 3), COMM.rank + 1.0)).sum().backward()
            gradients.synchronize()
            self.assertEqual(model.weight.grad.tolist(), [[sum_of_ranks()] * 3])
            gradients.close()

    def test_a_captured_stream_is_refused(self):
        captured = emulated_torch.Stream(GPU)
        model = linear()
        with lmdbio.torch.GradientSync(model, COMM, average=False, **BUFFER) as gradients:
            emulated_torch.control.begin_capture(captured.cuda_stream)
            with emulated_torch.stream(captured):
                with self.assertRaisesRegex(ValueError, "captured"):
                    run_backward(model)
            captured.destroy()
            model.weight.grad = None
            run_backward(model)
            gradients.synchronize()
            self.assertEqual(model.weight.grad.tolist(), [[sum_of_ranks()] * 3])

    def test_an_error_of_the_driver_waits_for_the_end_of_the_backward_pass(self):
        model, passed = linear(), []
        with self.assertRaisesRegex(lmdbio.LmdbioError, "cuStreamIsCapturing") as failure:
            with lmdbio.torch.GradientSync(model, COMM, **BUFFER) as gradients:
                emulated_torch.control.fail_call(b"cuStreamIsCapturing", 1, 999)
                run_backward(model)
                passed.append(emulated_torch.control.faults_left())
                gradients.synchronize()
        self.assertIs(type(failure.exception), lmdbio.LmdbioError)
        self.assertEqual(passed, [0])


if __name__ == "__main__":
    if not HAS_BACKEND:
        print("skipped: run scripts/setup --trainers, and configure again")
        sys.exit(SKIPPED)
    torch.set_num_threads(1)
    # Where GradientSync is not made on the stream of the backward pass, PyTorch advises to do so.
    torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
    np.seterr(all="raise")
    result = unittest.main(exit=False).result
    if not result.wasSuccessful():
        COMM.Abort(1)  # others may be waiting

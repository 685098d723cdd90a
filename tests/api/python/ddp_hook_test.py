"""lmdbio.torch.ddp_hook: DistributedDataParallel has the gradients that it computes without it.

Under a launcher (job.py). The oracle is DistributedDataParallel over Gloo. Exits with 77 without
torch.distributed. Each rank runs the same tests in the same order; a failure ends all.
"""

import copy
import importlib.util
import os
import sys
import unittest

SKIPPED = 77
HAS_ALL = importlib.util.find_spec("torch") is not None
if HAS_ALL:
    import torch
    from torch import distributed

    HAS_ALL = distributed.is_available()
if HAS_ALL:
    from torch.nn.parallel import DistributedDataParallel

    import job
    import lmdbio
    import lmdbio.sync
    import lmdbio.torch

    COMM = job.communicator()
    distributed.init_process_group(
        "gloo", init_method=f"file://{os.environ['LMDBIO_TEST_FOLDER']}/store", rank=COMM.rank,
        world_size=COMM.size)

STEPS = 6
SMALL = {"bucket_cap_mb": 0.01}


def make_model():
    """A model of more than one bucket: the first one has 1 MiB, others are of SMALL."""
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(5, 600), torch.nn.Tanh(),
                               torch.nn.Linear(600, 600), torch.nn.Tanh(),
                               torch.nn.Linear(600, 2))


def gradients_of(model, step):
    """The gradients after a backward pass on the data of this rank and step."""
    generator = torch.Generator().manual_seed(100 * step + COMM.rank)
    model.zero_grad()
    model(torch.randn(4, 5, generator=generator)).square().sum().backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


class DdpHookTest(unittest.TestCase):
    def expect_equal(self, found, expected):
        for one, other in zip(found, expected):
            if COMM.size == 2:  # a half is exact, and the order of two summands does not matter
                self.assertTrue(torch.equal(one, other))
            else:
                torch.testing.assert_close(one, other)

    def test_gradients_are_those_of_ddp(self):
        for options in (SMALL, {}, {"gradient_as_bucket_view": True, **SMALL},
                        {"find_unused_parameters": True, **SMALL}):
            with lmdbio.sync.Synchronizer(COMM) as sync:
                plain = DistributedDataParallel(make_model(), **options)
                hooked = DistributedDataParallel(make_model(), **options)
                hooked.register_comm_hook(None, lmdbio.torch.ddp_hook(sync))
                for step in range(STEPS):
                    self.expect_equal(gradients_of(hooked, step), gradients_of(plain, step))
                count = sync.counters()["tensor_count"]
                self.assertGreaterEqual(count, STEPS + 1 if "bucket_cap_mb" in options else STEPS)

    def test_sums(self):
        with lmdbio.sync.Synchronizer(COMM) as sync:
            plain = DistributedDataParallel(make_model())
            hooked = DistributedDataParallel(make_model())
            hook = lmdbio.torch.ddp_hook(sync, average=False)
            hooked.register_comm_hook(None, hook)
            found, expected = gradients_of(hooked, 0), gradients_of(plain, 0)
            self.expect_equal(found, [COMM.size * gradient for gradient in expected])
            hook.check()

    def test_two_models(self):
        with lmdbio.sync.Synchronizer(COMM) as sync:
            models = [make_model(), make_model()]
            plain = DistributedDataParallel(copy.deepcopy(models[0]))
            for name, model in zip("ab", models):
                hooked = DistributedDataParallel(model)
                hooked.register_comm_hook(None, lmdbio.torch.ddp_hook(sync, name=name))
                self.expect_equal(gradients_of(hooked, 1), gradients_of(plain, 1))

    def test_an_error_ends_the_backward_pass_with_its_text(self):
        model = DistributedDataParallel(make_model())
        sync = lmdbio.sync.Synchronizer(COMM)
        model.register_comm_hook(None, lmdbio.torch.ddp_hook(sync))
        gradients_of(model, 0)
        if COMM.rank == 1:
            sync.close()
            cause = "synchronizer is closed"
        else:
            cause = "rank 1 has closed its synchronizer"
        with self.assertRaisesRegex(RuntimeError, cause):
            gradients_of(model, 1)
        sync.close()


if __name__ == "__main__":
    if not HAS_ALL:
        print("skipped: there is no torch.distributed")
        sys.exit(SKIPPED)
    torch.set_num_threads(1)
    result = unittest.main(exit=False).result
    if not result.wasSuccessful():
        COMM.Abort(1)  # others may be waiting
    distributed.destroy_process_group()

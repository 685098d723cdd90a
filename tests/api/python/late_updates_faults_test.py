"""Late updates: what is refused, early reads, and failures while updates wait.

Under a launcher (job.py). Exits with 77 without torch. Each rank runs the same tests in the same
order; a failure ends all.
"""

import copy
import io
import math
import subprocess
import sys
import time
import unittest
import unittest.mock
import warnings
import weakref

import job
import torch
from late_model import bits_of, loss_of, make_network, saved
from torch import nn

import lmdbio
import lmdbio.sync
import lmdbio.torch
from lmdbio._module_hooks import Hook

COMM = job.communicator()
SOON_S = 30  # with sanitizers on a busy machine


class Counting(torch.optim.SGD):
    """Counts its steps in a place that all parameters share."""

    def step(self, closure=None):
        result = super().step(closure)
        self.count()
        return result


class CountsInGroup(Counting):
    def count(self):
        for group in self.param_groups:
            group["count"] = group.get("count", 0) + 1


class ChangesGroup(Counting):
    def count(self):
        for group in self.param_groups:
            group["lr"] = group["lr"] / 2


class CountsInState(Counting):
    def count(self):
        self.state["all"] = {"count": 1}


class CountsInAttribute(Counting):
    def count(self):
        self.steps_done = getattr(self, "steps_done", 0) + 1


def make_chain():
    torch.manual_seed(1)
    return nn.Sequential(*(nn.Linear(2, 2) for _ in range(3)))


def loss_of_chain(model):
    return model(torch.ones(1, 2)).square().sum()


def hooks_of(model):
    # Those of load_state_dict are wrapped.
    return [getattr(hook, "hook", hook) for module in model.modules()
            for table in ("_forward_pre_hooks", "_state_dict_hooks", "_load_state_dict_pre_hooks",
                          "_state_dict_pre_hooks")
            for hook in getattr(module, table, {}).values()]


class LateUpdatesFaultsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sync = lmdbio.sync.Synchronizer(COMM)

    @classmethod
    def tearDownClass(cls):
        cls.sync.shutdown()
        cls.sync.close()

    def setUp(self):
        self.model = make_chain()
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)

    def gradients(self, **options):
        return lmdbio.torch.GradientSync(self.model, self.sync, optimizer=self.optimizer, **options)

    def train_once(self, gradients):
        loss_of_chain(self.model).backward()
        gradients.step()

    def expect_values(self, expected):
        self.assertEqual(bits_of(list(self.model.parameters())), expected)

    def settle(self):
        """Waits for sums that were given up, so that their names are free again."""
        until = time.monotonic() + SOON_S
        while self.sync._orphans and time.monotonic() < until:
            self.sync.forget_done()
            time.sleep(0.002)

    def values(self):
        return bits_of(list(self.model.parameters()))

    def test_optimizers_that_are_refused(self):
        parameters = list(self.model.parameters())
        wrong = [(torch.optim.LBFGS(parameters), "LBFGS computes the loss .* by a closure"),
                 (self.model, "of type Sequential; expected a torch.optim.Optimizer"),
                 (torch.optim.SGD([nn.Parameter(torch.ones(1))], 0.1),
                  "SGD has no parameter of the model")]
        wrong.append((torch.optim.Adam(parameters, differentiable=True),
                      "Adam has differentiable=True"))
        for optimizer, what in wrong:
            with self.assertRaisesRegex(lmdbio.InvalidArgumentError, what):
                lmdbio.torch.GradientSync(self.model, self.sync, optimizer=optimizer)
        with self.assertRaisesRegex(lmdbio.InvalidArgumentError, "with a lag of 1"):
            self.gradients(lag=1)
        with self.assertRaisesRegex(lmdbio.InvalidArgumentError, "check=True needs optimizer="):
            lmdbio.torch.GradientSync(self.model, self.sync, check=True)
        self.assertEqual(hooks_of(self.model), [])
        gradients = lmdbio.torch.GradientSync(self.model, self.sync)
        with self.assertRaisesRegex(lmdbio.InvalidStateError, "pass optimizer= to GradientSync"):
            gradients.step()
        gradients.close()

    def test_optimizers_with_state_of_a_group_are_refused_by_the_first_step(self):
        for kind, what in ((CountsInGroup, "CountsInGroup changes 'count' of its param_groups"),
                           (ChangesGroup, "ChangesGroup changes 'lr' of its param_groups"),
                           (CountsInState, "CountsInState has the state 'all'"),
                           (CountsInAttribute, "CountsInAttribute changes its attribute 'steps_d")):
            self.optimizer = kind(self.model.parameters(), 0.1)
            groups = self.optimizer.param_groups
            gradients = self.gradients()
            loss_of_chain(self.model).backward()
            with self.assertRaisesRegex(lmdbio.InvalidArgumentError, what):
                gradients.step()
            self.assertIs(self.optimizer.param_groups, groups)
            self.assertFalse(gradients.flush())
            gradients.close()
            self.settle()

    def test_an_optimizer_that_takes_no_dense_gradients(self):
        self.optimizer = torch.optim.SparseAdam(self.model.parameters())
        gradients = self.gradients()
        loss_of_chain(self.model).backward()
        with self.assertRaisesRegex(RuntimeError, "SparseAdam does not support dense"):
            gradients.step()
        gradients.close()
        self.settle()

    def test_a_program_that_ends_while_updates_wait(self):
        program = """if True:
            import torch, lmdbio.torch
            model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            gradients = lmdbio.torch.GradientSync(model, None, optimizer=optimizer, check=True)
            model(torch.ones(1, 3)).sum().backward()
            gradients.step()
            print(len(gradients._updates.waiting))
            """
        ended = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True,
                               check=False, timeout=4 * SOON_S)
        self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (0, "3\n", ""))

    def test_a_read_that_comes_too_early(self):
        for index in range(3):
            for check in (False, True):
                self.setUp()
                gradients = self.gradients(check=check)
                self.train_once(gradients)
                read = self.model[index].weight.sum()
                loss = read + loss_of_chain(self.model)
                self.assertEqual(math.isnan(loss.item()), check)
                self.assertEqual(read.item() == self.model[index].weight.sum().item(), False)
                gradients.close()

    def test_an_early_read_whose_module_does_not_run(self):
        gradients = self.gradients()
        self.train_once(gradients)
        early = nn.functional.linear(torch.ones(1, 2), self.model[1].weight).sum()
        with self.assertRaisesRegex(lmdbio.InvalidStateError, "1.weight was read before its upd"):
            early.backward()
        gradients.close()
        self.settle()

    def test_a_second_backward_pass_before_the_step(self):
        gradients = self.gradients()
        loss_of_chain(self.model).backward()
        with self.assertRaisesRegex(lmdbio.InvalidStateError, "got a second gradient: call step"):
            loss_of_chain(self.model).backward()
        with gradients.no_sync():
            with self.assertRaisesRegex(lmdbio.InvalidStateError, "got a second gradient"):
                loss_of_chain(self.model).backward()
        before = self.values()
        gradients.step()
        self.assertTrue(gradients.flush())
        self.assertNotEqual(self.values(), before)
        self.assertFalse(gradients.flush())
        gradients.close()

    def test_copies_of_the_model_have_no_hooks(self):
        gradients = self.gradients()
        self.train_once(gradients)
        early = copy.deepcopy(self.model)
        loss_of_chain(early)
        self.assertEqual(bits_of(early.state_dict()["0.weight"]),
                         bits_of(self.model[0].weight))  # it has updated nothing
        gradients.flush()
        for late in (copy.deepcopy(self.model), saved_model(self.model)):
            self.assertEqual(loss_of_chain(late).item(), loss_of_chain(self.model).item())
            late.load_state_dict(early.state_dict())
            self.assertEqual({type(hook) for hook in hooks_of(late)}, {Hook})
        gradients.close()

    def test_closing_removes_everything(self):
        def own(*_unused):
            return {}

        self.optimizer.state_dict = own
        gradients = self.gradients()
        self.assertIsNot(self.optimizer.state_dict, own)
        self.assertNotEqual(hooks_of(self.model), [])
        self.train_once(gradients)
        before = self.values()
        gradients.close()
        self.assertNotEqual(self.values(), before)  # with the last updates
        self.assertEqual(hooks_of(self.model), [])
        self.assertIs(self.optimizer.state_dict, own)
        self.assertNotIn("load_state_dict", vars(self.optimizer))

    def test_a_wrapper_of_another_package_outlives_it(self):
        gradients = self.gradients()
        inner = self.optimizer.state_dict
        self.optimizer.state_dict = lambda: {"wrapped": inner()}
        gradients.close()
        self.assertEqual(list(self.optimizer.state_dict()["wrapped"]), ["state", "param_groups"])

    def test_the_first_scheduler_has_nothing_to_warn_of(self):
        scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1)
        gradients = self.gradients()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.train_once(gradients)
            scheduler.step()
        gradients.close()

    def test_an_optimizer_that_fails_in_a_late_update(self):
        gradients = self.gradients(check=True)
        self.train_once(gradients)
        before, groups = [], self.optimizer.param_groups
        # The values before the update are kept while it waits.
        kept = {one.name: bits_of(one.kept) for one in gradients._watched if one.is_late}
        with unittest.mock.patch.object(type(self.optimizer), "step",
                                        side_effect=ZeroDivisionError):
            with self.assertRaises(ZeroDivisionError):
                loss_of_chain(self.model)
        for name, parameter in self.model.named_parameters():
            before.append(name in kept)
            if name in kept:
                self.assertEqual(bits_of(parameter), kept[name])
        self.assertEqual(sum(before), 5)  # the first step() has updated one of six
        self.assertIs(self.optimizer.param_groups, groups)
        self.assertEqual([one.grad for one in self.model.parameters()], [None] * 6)
        self.assertFalse(gradients.flush())
        self.settle()
        for _ in range(2):
            self.train_once(gradients)
        gradients.close()

    def test_the_end_of_a_synchronizer_while_updates_wait(self):
        expected = []
        for closes_first in (True, False):
            self.setUp()
            with lmdbio.sync.Synchronizer(COMM) as sync:
                gradients = lmdbio.torch.GradientSync(self.model, sync, optimizer=self.optimizer)
                self.train_once(gradients)
                if closes_first:
                    gradients.close()
            expected.append(self.values())
        self.assertEqual(expected[0], expected[1])

    def test_a_synchronizer_that_is_closed_before_the_updates(self):
        sync = lmdbio.sync.Synchronizer(COMM)
        gradients = lmdbio.torch.GradientSync(self.model, sync, optimizer=self.optimizer,
                                              check=True)
        before = bits_of(list(self.model.parameters())[:5])
        self.train_once(gradients)
        with self.assertLogs("lmdbio", "WARNING") as lines:
            sync.close()
        self.assertIn("before 5 parameters were updated by the last step", lines.output[0])
        self.assertEqual(bits_of(list(self.model.parameters())[:5]), before)
        self.assertEqual(hooks_of(self.model), [])
        COMM.barrier()

    def test_a_rank_that_fails_while_updates_wait(self):
        before = []
        with self.assertRaises(ZeroDivisionError if COMM.rank == 0 else lmdbio.PeerFailedError):
            with lmdbio.sync.Synchronizer(COMM) as sync:
                gradients = lmdbio.torch.GradientSync(self.model, sync, optimizer=self.optimizer,
                                                      check=True)
                self.train_once(gradients)
                gradients.flush()
                before.append(self.values())
                if COMM.rank == 0:
                    raise ZeroDivisionError
                self.train_once(gradients)
                loss_of_chain(self.model)
        self.expect_values(before[0])
        COMM.barrier()

    @staticmethod
    def waiting(gradients):
        return {one.name[0] for one in gradients._watched if one.is_late}

    def test_only_an_evaluation_without_gradients_updates_all(self):
        gradients = self.gradients()
        self.train_once(gradients)
        self.assertEqual(self.waiting(gradients), {"0", "1", "2"})
        with torch.no_grad():  # as in a part of a model that is computed again
            self.model[1](torch.ones(1, 2))
        self.assertEqual(self.waiting(gradients), {"0", "2"})
        self.model.eval()  # as a part of a model that is not trained
        self.model[2](torch.ones(1, 2))
        self.assertEqual(self.waiting(gradients), {"0"})
        self.model.train()
        self.train_once(gradients)
        self.model.eval()
        with torch.no_grad():
            self.model[1](torch.ones(1, 2))
        self.assertEqual(self.waiting(gradients), set())
        gradients.close()

    def test_both_ways_in_turn(self):
        gradients = self.gradients()
        for way in ("late", "own", "late", "at once", "late", "own", "own", "at once", "late"):
            loss_of_chain(self.model).backward()
            if way == "late":
                gradients.step()
            else:
                gradients.synchronize()
                self.assertFalse(any(one.grad is None for one in self.model.parameters()))
                (gradients if way == "at once" else self.optimizer).step()
                self.optimizer.zero_grad(set_to_none=True)
            self.assertEqual(len(self.waiting(gradients)), 3 if way == "late" else 0)
            if way == "at once":
                gradients.step()  # of no backward pass: zeros
                self.assertEqual(len(self.waiting(gradients)), 3)
        gradients.close()

    def test_an_end_between_a_backward_pass_and_its_step(self):
        before = self.values()
        with lmdbio.torch.GradientSync(self.model, COMM, optimizer=self.optimizer,
                                       placed=True) as gradients:
            loss_of_chain(self.model).backward()
        with self.assertRaisesRegex(ValueError, "closed"):  # placed memory was given back
            gradients.synchronizer.counters()
        self.assertEqual(self.values(), before)

    def test_a_gradient_is_not_kept_longer_than_it_is_needed(self):
        gradients = self.gradients(placed=False)
        self.train_once(gradients)
        kept = [weakref.ref(one.gradient) for one in gradients._watched if one.is_late]
        gradients.flush()
        self.assertEqual([one() for one in kept], [None] * 5)
        gradients.close()

    def test_a_rank_without_gradients(self):
        # It takes part with zeros, and updates as the others.
        gradients = self.gradients()
        self.train_once(gradients)
        if COMM.rank == 0:
            loss_of_chain(self.model).backward()
        gradients.step()
        gradients.flush()
        self.assertEqual(len(set(map(str, COMM.allgather(self.values())))), 1)
        gradients.close()

    def test_broadcast_and_check_flush_first(self):
        for name in ("broadcast_parameters", "check"):
            gradients = self.gradients(check=True)
            self.train_once(gradients)
            getattr(gradients, name)()
            self.assertFalse(gradients.flush())
            self.assertTrue(all(one.isfinite().all() for one in self.model.parameters()))
            gradients.close()

    def test_placed_gradients(self):
        expected = []
        for placed in (False, True):
            self.setUp()
            with lmdbio.torch.GradientSync(self.model, COMM, optimizer=self.optimizer,
                                           placed=placed) as gradients:
                for _ in range(3):
                    self.train_once(gradients)
                gradients.synchronize()  # of no backward pass: zeros
                place = self.model[0].weight.grad
                self.assertEqual(place.data_ptr() in gradients.synchronizer._placed, placed)
                del place
            expected.append(self.values())
        self.assertEqual(expected[0], expected[1])

    def test_states_of_a_network_that_waits(self):
        model = make_network()
        optimizer = torch.optim.Adam(model.parameters())
        with lmdbio.torch.GradientSync(model, self.sync, optimizer=optimizer,
                                       check=True) as gradients:
            loss_of(model, 0, COMM.rank).backward()
            gradients.step()
            state = saved(model.state_dict())
        self.assertTrue(all(value.isfinite().all() for value in state.values()))


def saved_model(model):
    """A copy by torch.save, whose unpickler may take any class."""
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    try:
        return torch.load(file, weights_only=False)
    except TypeError:  # PyTorch 1.13 before its last releases
        file.seek(0)
        return torch.load(file)


if __name__ == "__main__":
    torch.set_num_threads(1)
    result = unittest.main(exit=False).result
    if not result.wasSuccessful():
        COMM.Abort(1)  # others may be waiting

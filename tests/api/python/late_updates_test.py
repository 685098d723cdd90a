"""Late updates: step() has the parameters of synchronize() and the optimizer's step(), bit for bit.

Under a launcher (job.py). The oracle is the same training with synchronize(). Exits with 77 without
torch. Each rank runs the same tests in the same order; a failure ends all.
"""

import contextlib
import inspect
import unittest

import job
import torch
from late_model import bits_of, loss_of, make_network, saved
from torch import nn
from torch.utils.checkpoint import checkpoint

import lmdbio
import lmdbio.sync
import lmdbio.torch

COMM = job.communicator()

STEPS = 7
# Each with the arguments that bring in most of its state.
OPTIMIZERS = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
    "Nesterov": {"lr": 0.1, "momentum": 0.9, "nesterov": True},
    "Adam": {"lr": 0.01, "amsgrad": True},
    "AdamW": {"lr": 0.01},
    "Adamax": {"lr": 0.01},
    "Adagrad": {"lr": 0.1, "lr_decay": 0.01},
    "Adadelta": {"lr": 1.0},
    "RMSprop": {"lr": 0.01, "momentum": 0.5, "centered": True},
    "RAdam": {"lr": 0.01, "weight_decay": 0.01},
    "NAdam": {"lr": 0.01},
    "ASGD": {"lr": 0.1, "t0": 2.0},
    "Rprop": {"lr": 0.01},
    "Adafactor": {"lr": 0.1},
    "Muon": {"lr": 0.01},
}
MOMENTS = ("begin", "forward", "backward", "step", "scheduled")


def class_of(name):
    return getattr(torch.optim, {"Nesterov": "SGD"}.get(name, name), None)


def make_optimizer(model, name, **options):
    """Two groups, of which one has parameters that no other one has. Muon takes matrices only."""
    parameters = [one for one in model.parameters() if name != "Muon" or one.dim() == 2]
    options = {name: value() if callable(value) else value
               for name, value in {**OPTIMIZERS[name], **options}.items()}
    slow = {"params": parameters[:2], "lr": options["lr"] / 2}
    return class_of(name)([slow, {"params": parameters[2:]}], **options)


class Half(nn.Module):
    """Does not use all of its modules."""

    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, values):
        return self.used(values)


class Training:
    """A training whose gradients come by synchronize() or by step()."""

    def __init__(self, is_late, name="AdamW", model=None, check=False, rate_of=None, **options):
        self.is_late, self.check = is_late, check
        self.model = model or make_network()
        self.optimizer = make_optimizer(self.model, name, **options)
        rate_of = rate_of or (lambda step: 0.8 ** step)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, rate_of)
        self.losses = []

    def state(self):
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                "scheduler": self.scheduler.state_dict()}

    def load(self, state):
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])

    def run(self, sync, steps=range(STEPS), at=lambda moment, step: None):
        """Trains, and returns all bits of its end. `at` is called at each moment."""
        late = {"optimizer": self.optimizer, "check": self.check} if self.is_late else {}
        gradients = lmdbio.torch.GradientSync(self.model, sync, **late)
        for step in steps:
            at("begin", step)
            # Every third iteration adds the gradients of two batches up.
            with gradients.no_sync() if step % 3 == 2 else contextlib.suppress():
                if step % 3 == 2:
                    loss_of(self.model, step + 100, COMM.rank).backward()
            loss = loss_of(self.model, step, COMM.rank)
            at("forward", step)
            loss.backward()
            at("backward", step)
            self.losses.append(loss.item())
            if self.is_late:
                gradients.step()
            else:
                gradients.synchronize()
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=step % 2 == 0)
            at("step", step)
            self.scheduler.step()
            at("scheduled", step)
        gradients.close()
        return bits_of({"losses": self.losses, **self.state()})


def end_iteration(gradients, optimizer, is_late):
    """Ends an iteration in one of the two ways that are compared."""
    if is_late:
        gradients.step()
    else:
        gradients.synchronize()
        optimizer.step()
        optimizer.zero_grad()


class LateUpdatesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sync = lmdbio.sync.Synchronizer(COMM)

    @classmethod
    def tearDownClass(cls):
        cls.sync.shutdown()
        cls.sync.close()

    def expect_equal(self, found, expected):
        self.assertEqual(found["losses"], expected["losses"])
        for part, values in expected.items():
            self.assertEqual(found[part], values, part)

    def compare(self, name="AdamW", at=lambda moment, step: None, **options):
        """Trains in both ways; `at` acts in the late one."""
        expected = Training(False, name, **options).run(self.sync)
        self.expect_equal(Training(True, name, **options).run(self.sync, at=at), expected)
        return expected

    def test_twelve_optimizers_in_all_implementations(self):
        names = [name for name in OPTIMIZERS if class_of(name)]
        self.assertGreaterEqual(len(names), 12)
        for name in names:
            known = inspect.signature(class_of(name)).parameters
            for options in ({}, {"foreach": False}, {"foreach": True}, {"fused": True}):
                if not set(options) <= set(known):
                    continue
                try:
                    make_optimizer(make_network(), name, **options)
                except RuntimeError:  # PyTorch 1.13 has `fused` on a GPU only
                    self.assertIn("fused", options)
                    continue
                with self.subTest(name=name, **options):
                    expected = self.compare(name, **options)
                    self.assertGreater(len(expected["optimizer"]["state"]), 4)
                    self.assertEqual(len(set(expected["losses"])), STEPS)

    def test_checkpoints_at_any_moment(self):
        for name in (one for one in OPTIMIZERS if class_of(one)):
            expected, found = [], []
            for is_late, states in ((False, expected), (True, found)):
                training = Training(is_late, name)

                def save(moment, step, training=training, states=states):
                    states.append((moment, step, bits_of(saved(training.state()))))

                training.run(self.sync, at=save)
            self.assertEqual(len(found), STEPS * len(MOMENTS))
            self.assertEqual(found, expected)

    def test_one_part_of_a_state_is_enough(self):
        def read_part(training, moment, step):
            if moment == "scheduled":
                part = (training.model.twice.state_dict, training.optimizer.state_dict)[step % 2]
                parts.append(bits_of(saved(part())))

        both = []
        for is_late in (False, True):
            parts, training = [], Training(is_late)
            training.run(self.sync, at=lambda *when, one=training: read_part(one, *when))
            both.append(parts)
        self.assertEqual(both[1], both[0])

    def test_resumption_at_any_moment(self):
        expected = Training(False).run(self.sync)
        for number, moment in enumerate(MOMENTS):
            stop, states = 2 + number % 3, []
            first = Training(True)

            def save(now, step, moment=moment, stop=stop, states=states, first=first):
                if (now, step) == (moment, stop):
                    states.append(saved(first.state()))

            is_done = moment in ("step", "scheduled")
            first.run(self.sync, range(stop + 1), at=save)
            if moment == "step":  # before the scheduler
                continue_at = stop + 1
            else:
                continue_at = stop + is_done
            second = Training(True)
            second.load(states[0])
            if moment == "step":
                second.scheduler.step()
            second.losses = first.losses[:continue_at]
            self.expect_equal(second.run(self.sync, range(continue_at, STEPS)), expected)

    def test_going_back_to_a_checkpoint(self):
        # A state is loaded while updates wait, by the model first or by the optimizer first.
        for parts in (("model", "optimizer"), ("optimizer", "model")):
            both = []
            for is_late in (False, True):
                training, states = Training(is_late), []

                def go_back(moment, step, training=training, states=states, parts=parts):
                    if (moment, step) == ("scheduled", 2):
                        states.append(saved(training.state()))
                    if (moment, step) == ("step", 4):
                        for part in parts:
                            getattr(training, part).load_state_dict(states[0][part])

                both.append(training.run(self.sync, at=go_back))
            self.expect_equal(both[1], both[0])

    def test_zero_grad_at_any_moment(self):
        for name in ("SGD", "Adam"):
            expected = Training(False, name).run(self.sync)
            for set_to_none in (False, True):
                training = Training(True, name)

                def zero(moment, step, training=training, set_to_none=set_to_none):
                    if moment == "forward" and step % 3 == 2:
                        return  # .grad has the first half of the sum
                    training.optimizer.zero_grad(set_to_none=set_to_none)
                    training.model.zero_grad(set_to_none=set_to_none)

                self.expect_equal(training.run(self.sync, at=zero), expected)

    def test_gradients_under_way_are_out_of_reach(self):
        training = Training(True)

        def look(moment, step):
            if moment != "forward" or step % 3 != 2:
                self.assertEqual([one.grad for one in training.model.parameters()],
                                 [None] * len(list(training.model.parameters())))

        training.run(self.sync, at=look)

    def test_nothing_is_updated_before_its_module_runs(self):
        training, changed = Training(True, "SGD"), []
        before = {}

        def look(moment, step):
            if moment == "backward":
                before.update({name: bits_of(one) for name, one
                               in training.model.named_parameters()})
            if moment == "step" and step > 0:
                changed.append([name for name, one in training.model.named_parameters()
                                if bits_of(one) != before[name]])

        training.run(self.sync, at=look)
        # Those whose modules did not run were left by the last step(). The first step() updates
        # the last parameter at once.
        unused = ["unused.weight", "unused.bias"]
        self.assertEqual(changed, [unused + ["sometimes.weight"] * (step == 4)
                                   for step in range(1, STEPS)])

    def test_a_scheduler_changes_no_update_that_waits(self):
        self.compare("SGD", rate_of=lambda step: (1.0, 0.0, 0.5)[step % 3])
        if hasattr(torch.optim.Optimizer, "register_step_pre_hook"):  # PyTorch 2
            self.compare("Adam", rate_of=lambda step: (1.0, 0.0, 0.5)[step % 3], foreach=False,
                         lr=lambda: torch.tensor(0.01))

    def test_check_changes_no_bit(self):
        expected = Training(False).run(self.sync)
        self.expect_equal(Training(True, check=True).run(self.sync), expected)

    def test_the_model_in_other_modes(self):
        # Updates happen inside of these modes, and must not take them over.
        for name in (one for one in ("Adam", "Adafactor", "Muon") if class_of(one)):
            both = []
            for is_late in (False, True):
                torch.manual_seed(7)
                model = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(3)))
                optimizer = make_optimizer(model, name)
                values, found = torch.rand(3, 4) + COMM.rank, []
                late = {"optimizer": optimizer} if is_late else {}
                with lmdbio.torch.GradientSync(model, self.sync, **late) as gradients:
                    for step in range(6):
                        model(values).square().sum().backward()
                        end_iteration(gradients, optimizer, is_late)
                        mode = (torch.inference_mode, torch.no_grad, torch.enable_grad)[step % 3]
                        with mode(), torch.autocast("cpu", dtype=torch.bfloat16):
                            found.append(bits_of(model(values).float()))
                both.append([found, bits_of(optimizer.state_dict()), bits_of(model.state_dict())])
            self.assertEqual(both[1], both[0])

    def test_evaluation_updates_what_modules_read_of_others(self):
        both = []
        for is_late in (False, True):
            torch.manual_seed(2)
            model = nn.TransformerEncoderLayer(8, 2, 8, dropout=0.0, batch_first=True)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            values, found = torch.rand(2, 3, 8), []
            late = {"optimizer": optimizer} if is_late else {}
            with lmdbio.torch.GradientSync(model, COMM, **late) as gradients:
                for _ in range(3):
                    model(values).square().sum().backward()
                    end_iteration(gradients, optimizer, is_late)
                    model.eval()
                    with torch.no_grad():
                        found.append(bits_of(model(values)))
                    model.train()
            both.append(found)
        self.assertEqual(both[1], both[0])

    def compare_model(self, make, loss_of_model, **late):
        """Trains a small model in both ways."""
        both = []
        for is_late in (False, True):
            torch.manual_seed(3)
            model = make()
            optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=0.1)
            options = {"optimizer": optimizer, **late} if is_late else {}
            with lmdbio.torch.GradientSync(model, self.sync, **options) as gradients:
                for step in range(4):
                    loss_of_model(model, torch.full((2, 4), 0.1 * step + COMM.rank)).backward()
                    end_iteration(gradients, optimizer, is_late)
            both.append(bits_of(model.state_dict()))
        self.assertEqual(both[1], both[0])

    def test_hooks_of_modules_that_read_parameters(self):
        for wrap in (nn.utils.weight_norm, nn.utils.parametrizations.spectral_norm):
            self.compare_model(
                lambda wrap=wrap: nn.Sequential(wrap(nn.Linear(4, 4)), nn.Tanh(),
                                                wrap(nn.Linear(4, 2))),
                lambda model, values: model(values).square().sum())

    def test_a_part_that_is_computed_again_in_the_backward_pass(self):
        for is_reentrant in (True, False):
            self.compare_model(
                lambda: nn.Sequential(*(nn.Linear(4, 4) for _ in range(3))),
                lambda model, values, way=is_reentrant: model[2](
                    checkpoint(model[1], model[0](values), use_reentrant=way)).square().sum())

    def test_modules_that_can_have_no_hooks(self):
        def make():
            return nn.ModuleList([nn.Linear(4, 4), torch.jit.script(nn.Linear(4, 4)),
                                  torch.jit.script(nn.Linear(4, 4))])  # the last one is unused

        self.compare_model(make, lambda model, values: model[1](model[0](values)).square().sum(),
                           check=True)

    def test_a_model_without_any_hooks(self):
        model = torch.jit.script(Half())
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with lmdbio.torch.GradientSync(model, self.sync, optimizer=optimizer,
                                       check=True) as gradients:
            for _ in range(2):
                model(torch.ones(1, 4)).sum().backward()
                gradients.step()
                self.assertTrue(all(one.isfinite().all() for one in model.parameters()))

    def test_parameters_of_others(self):
        # The optimizer has a parameter that the model does not have, and the model one that the
        # optimizer does not have.
        both = []
        for is_late in (False, True):
            model, other = make_network(), nn.Parameter(torch.ones(3))
            missing = model.twice.bias
            optimizer = torch.optim.Adam(
                [one for one in model.parameters() if one is not missing] + [other], 0.1)
            late = {"optimizer": optimizer} if is_late else {}
            found = []
            with lmdbio.torch.GradientSync(model, self.sync, **late) as gradients:
                for step in range(4):
                    loss = loss_of(model, step, COMM.rank) + (other * (step + 1)).sum()
                    loss.backward()
                    if is_late:
                        gradients.step()
                    else:
                        gradients.synchronize()
                        optimizer.step()
                    found.append(bits_of([other, missing.grad]))
                    optimizer.zero_grad()
                    missing.grad = None
            both.append([found, bits_of(model.state_dict())])
        self.assertEqual(both[1], both[0])

    def test_synchronize_before_step_for_what_needs_all_gradients(self):
        both = []
        for is_late in (False, True):
            training = Training(is_late, "SGD")
            late = {"optimizer": training.optimizer} if is_late else {}
            with lmdbio.torch.GradientSync(training.model, self.sync, **late) as gradients:
                for step in range(6):
                    training.optimizer.zero_grad()
                    loss_of(training.model, step, COMM.rank).backward()
                    if step % 3 > 0:  # two iterations with clipping, and one without
                        gradients.synchronize()
                        torch.nn.utils.clip_grad_norm_(training.model.parameters(), 0.01)
                    elif not is_late:
                        gradients.synchronize()
                    (gradients if is_late else training.optimizer).step()
                    training.scheduler.step()
            both.append(bits_of(training.state()))
        self.assertEqual(both[1], both[0])

    def test_read_elsewhere_in_the_first_iteration(self):
        class Reader(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.Linear(4, 4, bias=False)  # is never called
                self.first = nn.Linear(4, 4)

            def forward(self, values):
                return nn.functional.linear(self.first(values), self.inner.weight)

        self.compare_model(Reader, lambda model, values: model(values).sum(), check=True)

    def test_a_group_that_comes_later(self):
        both = []
        for is_late in (False, True):
            training = Training(is_late, "SGD")
            added = nn.Parameter(torch.ones(2))

            def add(moment, step, training=training, added=added):
                if (moment, step) == ("step", 1):
                    training.optimizer.add_param_group({"params": [added], "lr": 0.3})
                    training.scheduler.base_lrs.append(0.3)
                    training.scheduler.lr_lambdas.append(training.scheduler.lr_lambdas[0])
                if moment == "backward":
                    added.grad = torch.full((2,), float(step))

            both.append(training.run(self.sync, at=add))
            both[-1]["added"] = bits_of(added)
        self.expect_equal(both[1], both[0])

    def test_with_a_plan_by_time(self):
        expected = Training(False).run(self.sync)
        with lmdbio.sync.Synchronizer(COMM, coordinator="caramel") as sync:
            self.expect_equal(Training(True).run(sync), expected)


if __name__ == "__main__":
    torch.set_num_threads(1)
    result = unittest.main(exit=False).result
    if not result.wasSuccessful():
        COMM.Abort(1)  # others may be waiting

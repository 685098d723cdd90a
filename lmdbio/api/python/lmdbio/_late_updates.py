"""Updates of parameters just before their modules compute: lmdbio/docs/late_updates.md."""

from __future__ import annotations

import contextlib
import logging
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set

import torch

from lmdbio._module_hooks import (Hook, MethodHook, before_forward, before_state, is_evaluation,
                                  own_parameters)
from lmdbio._partial_step import PartialStep


class _Gate(Hook):
    """Runs before one module computes, and updates what it reads."""

    __slots__ = ("_updates", "watched", "has_run")

    def __init__(self, updates: "LateUpdates", watched: List[Any]) -> None:
        self._updates, self.watched = updates, watched
        self.has_run = False

    # Runs at every call of every module, so each line counts.
    def __call__(self, module: torch.nn.Module, _inputs: Any) -> None:
        self.has_run = True
        if not self._updates.waiting:
            return
        if is_evaluation(module):
            self._updates.flush()
            return
        late = [one for one in self.watched if one.is_late]
        if late:
            self._updates.finish(late)


def _is_autocast(device_type: str) -> bool:
    try:
        return torch.is_autocast_enabled(device_type)
    except TypeError:  # PyTorch before 2.4
        return {"cpu": torch.is_autocast_cpu_enabled,
                "cuda": torch.is_autocast_enabled}.get(device_type, bool)()


@contextlib.contextmanager
def _as_after_backward(device_type: str) -> Iterator[None]:
    """The modes in which a program calls step(). A forward pass may have others."""
    with torch.inference_mode(False), torch.autocast(device_type, enabled=False):
        yield


class LateUpdates:
    """The parameters of a model that wait for their sums and their update.

    watched   the parameters, with their allreduces
    wait_all  waits for allreduces
    check     fill parameters that wait with NaN
    """

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer,
                 watched: Sequence[Any], wait_all: Callable[[Sequence[Any]], None],
                 check: bool) -> None:
        self._partial = PartialStep(optimizer)
        self._wait_all, self._check = wait_all, check
        self._device_type = watched[0].parameter.device.type
        self.waiting: Dict[str, Any] = {}
        self._at_once: Optional[Set[str]] = None  # read outside of all hooks; None: not known yet
        self._ids = {id(one.parameter) for one in watched}
        self._gates: List[_Gate] = []
        self._hooks: List[Any] = []
        for module in model.modules():
            self._hook(module, watched)
        for name in ("state_dict", "load_state_dict"):
            self._hooks.append(MethodHook(optimizer, name, self.flush))

    def _hook(self, module: torch.nn.Module, watched: Sequence[Any]) -> None:
        if isinstance(module, torch.jit.ScriptModule):
            return  # it has no hooks
        own = {id(parameter) for parameter in own_parameters(module)}
        gate = _Gate(self, [one for one in watched if id(one.parameter) in own])
        if not gate.watched and not module._modules:
            return
        self._gates.append(gate)
        self._hooks.append(before_forward(module, gate))
        self._hooks += before_state(module, self.flush)

    def begin(self, watched: Sequence[Any], computed: Set[str]) -> None:
        """Lets all parameters wait for the sums that were submitted.

        computed  the names of those to which the backward pass has come
        """
        self._partial.note()
        for one in watched:
            one.is_late = True
            self.waiting[one.name] = one
        if self._at_once is None:
            self._at_once = self._read_elsewhere(watched, computed)
        now = [one for one in watched
               if one.name in self._at_once or not self._partial.has(one.parameter)]
        if not self._partial.is_proven:
            now += [one for one in watched if one not in now][:1]
        if now:
            self.finish(now)
        others = [parameter for parameter in self._partial.parameters()
                  if id(parameter) not in self._ids and parameter.grad is not None]
        self._partial.update(list({id(one): one for one in others}.values()))
        if self._check:
            self._poison()

    def _read_elsewhere(self, watched: Sequence[Any], computed: Set[str]) -> Set[str]:
        hooked = {one.name for gate in self._gates for one in gate.watched}
        seen = {one.name for gate in self._gates if gate.has_run for one in gate.watched}
        names = {one.name for one in watched} - hooked | computed - seen
        if names:
            logging.getLogger("lmdbio").info(
                "step() waits for parameters that are read outside of their modules: %s",
                ", ".join(sorted(names)))
        return names

    def _poison(self) -> None:
        with torch.no_grad():
            for one in self.waiting.values():
                one.kept = one.parameter.detach().clone()
                one.parameter.fill_(float("nan"))

    def finish(self, watched: Sequence[Any]) -> None:
        """Waits for the sums of parameters that wait, and updates them. After an error no parameter
        waits any more."""
        try:
            self._wait_all([one.allreduce for one in watched])
            if torch.is_inference_mode_enabled() or _is_autocast(self._device_type):
                with _as_after_backward(self._device_type):
                    self._update(watched)
            else:
                self._update(watched)
        except BaseException:
            self._give_up()
            raise

    def _update(self, watched: Sequence[Any]) -> None:
        for one in watched:
            self._end_wait(one)
            # A backward pass in no_sync may have begun the next sum.
            one.gradient, one.parameter.grad = one.parameter.grad, one.gradient
        known = [one for one in watched if self._partial.has(one.parameter)]
        try:
            self._partial.update([one.parameter for one in known])
        finally:
            for one in known:
                one.parameter.grad = one.gradient
            for one in watched:
                one.gradient = None

    def _end_wait(self, one: Any) -> None:
        del self.waiting[one.name]
        one.is_late, one.allreduce.keeps = False, None
        if one.kept is not None:
            with torch.no_grad():
                one.parameter.copy_(one.kept)
            one.kept = None

    def flush(self) -> bool:
        """Updates all parameters that wait. Returns whether there were any."""
        if not self.waiting:
            return False
        self.finish(list(self.waiting.values()))
        return True

    def update_all(self) -> None:
        """Calls the optimizer's step() with the gradients in .grad."""
        self._partial.update_all()

    def _give_up(self) -> None:
        for one in list(self.waiting.values()):
            one.allreduce.let_go()
            self._end_wait(one)
            one.gradient = None

    def close(self, is_done: bool) -> None:
        """Removes all hooks.

        is_done  the sums are there, so parameters that wait are updated. Otherwise they keep the
                 values before the last step(), and a line in the log says so
        """
        try:
            if is_done:
                self.flush()
            elif self.waiting:
                logging.getLogger("lmdbio").warning(
                    "the synchronizer was closed before %d parameters were updated by the last "
                    "step(): call flush() before", len(self.waiting))
                self._give_up()
        finally:
            for hook in self._hooks:
                hook.remove()
            self._hooks.clear()

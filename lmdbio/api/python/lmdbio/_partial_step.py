"""An optimizer of PyTorch that updates some of its parameters, with settings of an earlier moment.

Its param_groups are replaced for one call of step(). The state of a stock optimizer belongs to each
parameter, so several such calls have the effect of one with all parameters.
"""

from __future__ import annotations

import inspect
import itertools
import operator
from typing import Any, Dict, List, Sequence

import torch

from lmdbio._errors import InvalidArgumentError

# Numbers that PyTorch's schedulers keep on the optimizer, and that no update depends on.
_COUNTERS = ("_step_count",)


def check_optimizer(optimizer: Any) -> None:
    """Refuses, by name, an optimizer that cannot update some of its parameters alone."""
    name = type(optimizer).__name__
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidArgumentError(f"optimizer is of type {name}; expected a torch.optim.Optimizer")
    arguments = list(inspect.signature(type(optimizer).step).parameters.values())[1:]
    if any(one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD
           for one in arguments):
        raise InvalidArgumentError(
            f"{name} computes the loss in its step(), by a closure, so all gradients are needed at "
            "once; use synchronize() without optimizer=")
    if any(group.get("differentiable") for group in optimizer.param_groups):
        raise InvalidArgumentError(f"{name} has differentiable=True, so all updates belong to the "
                                   "graph; use synchronize() without optimizer=")


def _kept(value: Any) -> Any:
    """Returns a setting that no scheduler changes: a tensor is copied."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if type(value) in (tuple, list):
        return type(value)(map(_kept, value))
    return value


class PartialStep:
    """The updates of an optimizer, for some parameters at a time."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        check_optimizer(optimizer)
        self._optimizer = optimizer
        self._settings: List[Dict[str, Any]] = []  # of each group, without its parameters
        self._places: Dict[int, List[int]] = {}  # the groups of each parameter, by its id
        self.is_proven = False  # a first call has shown that it can be called so

    def note(self) -> None:
        """Notes the settings and the parameters of now, for later updates."""
        groups = self._optimizer.param_groups
        self._settings = [{name: _kept(value) for name, value in group.items() if name != "params"}
                          for group in groups]
        self._places = {}
        for number, group in enumerate(groups):
            for parameter in group["params"]:
                self._places.setdefault(id(parameter), []).append(number)

    def has(self, parameter: torch.Tensor) -> bool:
        """Returns whether the optimizer has this parameter."""
        return id(parameter) in self._places

    def parameters(self) -> List[torch.Tensor]:
        """Returns all parameters of the optimizer."""
        return [parameter for group in self._optimizer.param_groups
                for parameter in group["params"]]

    def update_all(self) -> None:
        """Calls step() with everything as it is."""
        self._optimizer.step()

    def update(self, parameters: Sequence[torch.Tensor]) -> None:
        """Updates these parameters, whose gradients are in .grad, with the settings noted last.

        InvalidArgumentError: the call has changed more than these parameters and their state, so
        calls for others would have another effect than one call for all
        """
        groups: Dict[int, Dict[str, Any]] = {}
        for parameter in parameters:
            for number in self._places[id(parameter)]:
                if number not in groups:
                    groups[number] = {"params": [], **self._settings[number]}
                groups[number]["params"].append(parameter)
        if not groups:
            return
        optimizer = self._optimizer
        numbers = {} if self.is_proven else self._numbers()
        whole, optimizer.param_groups = optimizer.param_groups, list(groups.values())
        try:
            optimizer.step()
        finally:
            optimizer.param_groups = whole
        for number, group in groups.items():
            self._check_settings(group, self._settings[number])
        if not self.is_proven:
            self._check_state(numbers)
            self.is_proven = True

    def _numbers(self) -> Dict[str, Any]:
        return {name: value for name, value in vars(self._optimizer).items()
                if type(value) in (int, float) and name not in _COUNTERS}

    # Runs for each module, so it compares objects, and not values.
    def _check_settings(self, group: Dict[str, Any], before: Dict[str, Any]) -> None:
        if len(group) == len(before) + 1 and all(
                map(operator.is_, itertools.islice(group.values(), 1, None), before.values())):
            return
        changed = [name for name, value in group.items()
                   if name != "params" and before.get(name) is not value]
        self._refuse(f"changes {', '.join(map(repr, changed))} of its param_groups")

    def _check_state(self, numbers: Dict[str, Any]) -> None:
        keys = [key for key in self._optimizer.state if not isinstance(key, torch.Tensor)]
        if keys:
            self._refuse(f"has the state {keys[0]!r}, which belongs to no parameter")
        changed = sorted(dict(self._numbers().items() ^ numbers.items()))
        if changed:
            self._refuse(f"changes its attribute {changed[0]!r}")

    def _refuse(self, what: str) -> None:
        raise InvalidArgumentError(
            f"{type(self._optimizer).__name__} {what} in step(), so it cannot update some "
            "parameters before others; use synchronize() without optimizer=")

"""Hooks that run before modules compute, and before their state is read or replaced."""

from __future__ import annotations

import functools
from typing import Any, Callable, Iterator, List, Tuple

import torch
from torch import nn

# Modules whose forward is never called: the module around them reads their parameters.
_NEVER_CALLED = (nn.ParameterList, nn.ParameterDict)


def own_parameters(module: nn.Module) -> Iterator[nn.Parameter]:
    """Yields the parameters that the forward of a module reads, without those of the modules that
    it calls."""
    for parameter in module._parameters.values():
        if parameter is not None:
            yield parameter
    for child in module._modules.values():
        # MultiheadAttention passes the weights of out_proj on, and does not call it.
        if isinstance(child, _NEVER_CALLED) or (isinstance(module, nn.MultiheadAttention)
                                                and child is not None):
            yield from own_parameters(child)


class Hook:
    """A callable in the tables of hooks of a module. A copy of the module, or one that was saved,
    has a hook that does nothing."""

    __slots__ = ()

    def __call__(self, *_arguments: Any) -> None:
        pass

    def __deepcopy__(self, _memo: Any) -> "Hook":
        return Hook()

    def __reduce__(self) -> Tuple[Any, Tuple[()]]:
        return Hook, ()


class _StateHook(Hook):
    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call

    def __call__(self, *_arguments: Any) -> None:
        self._call()


def before_forward(module: nn.Module, hook: Hook) -> Any:
    """Calls `hook` with the module and its inputs before the module computes, and before other
    hooks, which may read parameters, as those of weight_norm do. Returns a handle with remove()."""
    handle = module.register_forward_pre_hook(hook)
    module._forward_pre_hooks.move_to_end(handle.id, last=False)  # prepend=True of PyTorch 2
    return handle


def before_state(module: nn.Module, call: Callable[[], Any]) -> List[Any]:
    """Calls `call` before the state of a module is read or replaced. Returns handles."""
    hook = _StateHook(call)
    # PyTorch 1.13 has a hook behind it only. The tensors of the state share the memory of the
    # parameters, so a change in place is in time.
    read = getattr(module, "register_state_dict_pre_hook", module._register_state_dict_hook)
    return [read(hook), module._register_load_state_dict_pre_hook(hook)]


class MethodHook:
    """Calls `call` before a method of one object. remove() ends it."""

    def __init__(self, owner: Any, name: str, call: Callable[[], Any]) -> None:
        self._owner, self._name = owner, name
        self._before = vars(owner).get(name)
        method = getattr(owner, name)

        @functools.wraps(method)
        def hooked(*arguments: Any, **options: Any) -> Any:
            call()
            return method(*arguments, **options)

        self._hooked = hooked
        setattr(owner, name, hooked)

    def remove(self) -> None:
        if vars(self._owner).get(self._name) is not self._hooked:
            return  # someone has wrapped it again, and goes on to call it
        if self._before is None:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._before)


def is_evaluation(module: nn.Module) -> bool:
    """Returns whether the module runs without training and without gradients. It may read
    parameters of modules that it does not call then, as TransformerEncoderLayer does."""
    return not module.training and not torch.is_grad_enabled()

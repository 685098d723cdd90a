#!/usr/bin/python3
"""Measures the time of Python's part of gradient synchronisation, in microseconds for each tensor.

    LMDBIO_LIBRARY=build/release/lib/liblmdbio.so bench/train/python_cost.py [--tensors 160]

One process with its helper thread; each tensor has one value, so that no time goes into sums. Each
figure is the least of several repetitions. The parts of a hook are timed one by one, so their sum
differs a little from the whole.
"""

import argparse
import pathlib
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "lmdbio" / "api" / "python"))

import lmdbio.sync  # noqa: E402
import lmdbio.torch  # noqa: E402
from call_times import least_us  # noqa: E402


class Scalars(torch.nn.Module):
    """A chain of parameters of one value each."""

    def __init__(self, count):
        super().__init__()
        self.values = torch.nn.ParameterList(torch.nn.Parameter(torch.ones(1))
                                             for _ in range(count))

    def forward(self):
        total = torch.zeros(1)
        for value in self.values:
            total = total + value
        return total


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tensors", type=int, default=160)
    parser.add_argument("--repetitions", type=int, default=200)
    options = parser.parse_args()
    torch.set_num_threads(1)
    count, times = options.tensors, options.repetitions
    model = Scalars(count)
    loss = [model()]

    def forward():
        loss[0] = model()

    forward()
    loss[0].backward()
    plain = least_us(lambda: loss[0].backward(), times, count, forward)
    nodes = [value.expand_as(value).grad_fn.next_functions[0][0] for value in model.values]
    hooks = [node.register_hook(lambda *_unused: None) for node in nodes]
    empty = least_us(lambda: loss[0].backward(), times, count, forward)
    for hook in hooks:
        hook.remove()
    with lmdbio.sync.Synchronizer() as synchronizer:
        gradients = lmdbio.torch.GradientSync(model, synchronizer)
        for _ in range(10):  # until the plan is learnt
            forward()
            loss[0].backward()
            gradients.synchronize()

        def settle():
            gradients.synchronize()
            forward()

        def wait_until_done():
            forward()
            loss[0].backward()
            time.sleep(0.01)
        hooked = least_us(lambda: loss[0].backward(), times, count, settle)
        gradients.synchronize()
        waited = least_us(gradients.synchronize, times, count, wait_until_done)
        watched = gradients._watched
        gradient = [one.parameter.grad for one in watched]

        def each(call):
            return lambda: [call(one, tensor) for one, tensor in zip(watched, gradient)]

        def close():
            lmdbio.torch.wait_all([one.allreduce for one in watched])
        loop = least_us(each(lambda one, tensor: None), times, count)
        parts = {
            "read .grad": each(lambda one, tensor: one.parameter.grad),
            "check the gradient (can_take)": each(lambda one, tensor: one.can_take(tensor)),
            "set the address (set_values)":
                each(lambda one, tensor: one.allreduce.set_values(tensor.data_ptr(), tensor)),
            "submit (lmdbio_sync_submit)": each(lambda one, tensor: one.allreduce.submit()),
        }
        rows = [(name, least_us(call, times, count, close) - loop) for name, call in parts.items()]
        close()
    print("| part | us a tensor |\n|---|---|")
    print(f"| autograd calls an empty hook | {empty - plain:.2f} |")
    for name, cost in rows:
        print(f"| {name} | {cost:.2f} |")
    print(f"| the whole hook, with autograd's call | {hooked - plain:.2f} |")
    print(f"| synchronize(), all operations done: wait and close | {waited:.2f} |")
    print(f"| **together** | **{hooked - plain + waited:.2f}** |")


if __name__ == "__main__":
    main()

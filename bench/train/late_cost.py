#!/usr/bin/python3
"""Measures the time of late updates in Python, in microseconds for each module.

    LMDBIO_LIBRARY=build/release/lib/liblmdbio.so bench/train/late_cost.py [--modules 100]

One process with its helper thread. Each module has two parameters of one value, so that no time
goes into sums or into updates themselves, and all sums are there when a hook waits for them. Each
figure is the least of several repetitions.
"""

import argparse
import pathlib
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "lmdbio" / "api" / "python"))

import lmdbio.sync  # noqa: E402
import lmdbio.torch  # noqa: E402

OPTIMIZERS = {"SGD": {"lr": 0.01, "momentum": 0.9}, "Adam": {"lr": 0.001}}


def least_us(call, repetitions, per, before=lambda: None):
    """Returns the least time of a call in microseconds, divided by `per`."""
    least = float("inf")
    for _ in range(repetitions):
        before()
        start = time.perf_counter()
        call()
        least = min(least, time.perf_counter() - start)
    return least * 1e6 / per


def make_model(count):
    return torch.nn.Sequential(*(torch.nn.Linear(1, 1) for _ in range(count)))


def measure(name, count, times):
    """Yields (part, microseconds a module)."""
    values = torch.ones(1, 1)
    plain = make_model(count)
    without = least_us(lambda: plain(values), times, count)
    one = torch.optim.__dict__[name](plain.parameters(), **OPTIMIZERS[name])
    own = [[*module.parameters()] for module in plain]

    def backward():
        plain(values).sum().backward()

    def step_module_by_module():
        groups = one.param_groups
        for parameters in own:
            one.param_groups = [{**groups[0], "params": parameters}]
            one.step()
        one.param_groups = groups

    backward()
    at_once = least_us(one.step, times, count)
    module_by_module = least_us(step_module_by_module, times, count)

    model = make_model(count)
    optimizer = torch.optim.__dict__[name](model.parameters(), **OPTIMIZERS[name])
    with lmdbio.sync.Synchronizer() as sync:
        gradients = lmdbio.torch.GradientSync(model, sync, optimizer=optimizer)
        idle = least_us(lambda: model(values), times, count) - without

        def compute():
            model(values).sum().backward()

        def settle():
            compute()
            gradients.step()
            time.sleep(0.01)

        step = least_us(gradients.step, times, count, compute)
        late = least_us(lambda: model(values), times, count, settle) - without
        gradients.flush()
        gradients.close()
    yield "the optimizer, one call for all", at_once
    yield "the optimizer, a call for each module", module_by_module
    yield "a hook with nothing to do", idle
    yield "a hook that waits and updates", late
    yield "**the same without the optimizer's calls**", late - module_by_module
    yield "step()", step


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--modules", type=int, default=100)
    parser.add_argument("--repetitions", type=int, default=100)
    options = parser.parse_args()
    torch.set_num_threads(1)
    columns = [dict(measure(name, options.modules, options.repetitions)) for name in OPTIMIZERS]
    print(f"us a module, PyTorch {torch.__version__}\n")
    print(f"| part | {' | '.join(OPTIMIZERS)} |\n|---|{'---|' * len(OPTIMIZERS)}")
    for part in columns[0]:
        print(f"| {part} | {' | '.join(f'{column[part]:.1f}' for column in columns)} |")


if __name__ == "__main__":
    main()

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
from call_times import least_us  # noqa: E402

OPTIMIZERS = {"SGD": {"lr": 0.01, "momentum": 0.9}, "Adam": {"lr": 0.001}}


class TimedStep:
    """Adds up the time of an optimizer's step()."""

    def __init__(self, optimizer):
        self.seconds = 0.0
        self._step = optimizer.step
        optimizer.step = self.step

    def step(self):
        start = time.perf_counter()
        self._step()
        self.seconds += time.perf_counter() - start


def make_model(count):
    return torch.nn.Sequential(*(torch.nn.Linear(1, 1) for _ in range(count)))


def measure_late(gradients, model, timed, repetitions):
    """Returns the least seconds of a forward pass with updates, without those of the optimizer, and
    the seconds of the optimizer then."""
    values, least = torch.ones(1, 1), (float("inf"), 0.0)
    for _ in range(repetitions):
        model(values).sum().backward()
        gradients.step()
        time.sleep(0.01)  # until all sums are there
        timed.seconds, start = 0.0, time.perf_counter()
        model(values)
        least = min(least, (time.perf_counter() - start - timed.seconds, timed.seconds))
    return least


def measure(name, count, times):
    """Yields (part, microseconds a module)."""
    values = torch.ones(1, 1)
    model = make_model(count)
    optimizer = getattr(torch.optim, name)(model.parameters(), **OPTIMIZERS[name])
    model(values).sum().backward()
    yield "the optimizer's step(), for all modules at once", least_us(optimizer.step, times, count)
    without = least_us(lambda: model(values), times, count)
    with lmdbio.sync.Synchronizer() as sync:
        gradients = lmdbio.torch.GradientSync(model, sync, optimizer=optimizer)
        idle = least_us(lambda: model(values), times, count) - without
        timed = TimedStep(optimizer)

        def compute():
            gradients.flush()
            model(values).sum().backward()

        step = least_us(gradients.step, times, count, compute)
        late, own = measure_late(gradients, model, timed, times)
        gradients.close()
    yield "the same, module by module", own * 1e6 / count
    yield "**a hook that waits and updates, without the optimizer**", late * 1e6 / count - without
    yield "a hook with nothing to do", idle
    yield "GradientSync.step()", step


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

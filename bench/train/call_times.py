"""The time of calls of Python."""

import time


def least_us(call, repetitions, per, before=lambda: None):
    """Returns the least time of a call in microseconds, divided by `per`."""
    least = float("inf")
    for _ in range(repetitions):
        before()
        start = time.perf_counter()
        call()
        least = min(least, time.perf_counter() - start)
    return least * 1e6 / per

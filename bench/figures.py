"""Lists among the options of drivers of benchmarks, and figures of their measurements."""

import argparse
import random
import statistics

RESAMPLES = 2000
RUNS_MIN = 6  # fewer runs have no interval of 95 %
WAITS = ("spin", "yield")


def word_list(text):
    return [word for word in text.split(",") if word]


def number_list(least):
    """Returns a parser of lists of whole numbers from `least` on."""

    def parse(text):
        try:
            numbers = [int(word) for word in word_list(text)]
        except ValueError:
            numbers = []
        if not numbers or min(numbers) < least:
            raise argparse.ArgumentTypeError(
                f"'{text}' is invalid; expected numbers from {least} on")
        return numbers

    return parse


def wait_list(text):
    waits = word_list(text)
    for wait in waits:
        if wait not in WAITS:
            raise argparse.ArgumentTypeError(f"'{wait}' is unknown; expected {' or '.join(WAITS)}")
    return waits


def interval(statistic, *groups):
    """Returns the 2.5 % and 97.5 % quantiles of `statistic` over resampled groups (bootstrap), or
    None: a group has fewer than RUNS_MIN values, or the statistic of a sample is None.

    groups  of values; each is resampled by itself, and the statistic takes one sample of each
    """
    if min(map(len, groups)) < RUNS_MIN:
        return None
    chance, found = random.Random(1), []
    for _ in range(RESAMPLES):
        value = statistic(*(chance.choices(values, k=len(values)) for values in groups))
        if value is None:
            return None
        found.append(value)
    found.sort()
    return found[int(0.025 * RESAMPLES)], found[int(0.975 * RESAMPLES)]


def places(values):
    """Returns the place of each value in the order of all, from 1 on; equal values share the mean
    of their places."""
    order = sorted(values)
    return [order.index(value) + (order.count(value) + 1) / 2 for value in values]


def rank_correlation(one, other):
    """Returns Spearman's correlation of two lists of as many values: from -1 to 1. None if all
    values of a list are equal."""
    one, other = places(one), places(other)
    if len(set(one)) < 2 or len(set(other)) < 2:
        return None
    return statistics.correlation(one, other)


def share_as_correlated(one, other):
    """Returns the share of random orders of `other` whose rank correlation is as far from 0 as
    that of the lists themselves: small if the correlation is no chance."""
    found, chance, shuffled, count = abs(rank_correlation(one, other)), random.Random(1), \
        list(other), 0
    for _ in range(RESAMPLES):
        chance.shuffle(shuffled)
        count += abs(rank_correlation(one, shuffled)) >= found - 1e-9
    return count / RESAMPLES

"""The records that the readers of compare.py share: an LMDB database, or its first records."""

import hashlib
import itertools
import os
import pathlib
import random

import lmdb


class Failure(Exception):
    """Ends the program with one line on standard error."""


class Records:
    """The keys of all records to read, in their order.

    Errors: Failure for no records and for duplicates; lmdb.Error, OSError.
    """

    def __init__(self, path, limit, readahead=True):
        self.path, self.readahead = path, readahead
        with self.open() as environment, environment.begin() as transaction:
            keys = transaction.cursor().iternext(keys=True, values=False)
            self.keys = list(itertools.islice(keys, limit))
        if not self.keys:
            raise Failure(f"{path} has no records")
        if len(set(self.keys)) < len(self.keys):
            raise Failure(f"{path} has duplicates, which a key does not distinguish")

    def open(self):
        return lmdb.open(self.path, subdir=os.path.isdir(self.path), readonly=True, lock=False,
                         readahead=self.readahead, max_spare_txns=1)

    def values(self):
        """Generates the values as bytes, in the order of their keys."""
        with self.open() as environment, environment.begin() as transaction:
            cursor = transaction.cursor().iternext(keys=False, values=True)
            yield from itertools.islice(cursor, len(self.keys))


def order_of(record_count, task):
    """The numbers of the records in the order of a pass."""
    numbers = list(range(record_count))
    if task.order != "sequential":
        random.Random(task.seed).shuffle(numbers)
    return numbers


def data_file(path):
    """The file of a database."""
    return pathlib.Path(path, "data.mdb") if os.path.isdir(path) else pathlib.Path(path)


def fingerprint(path, limit):
    """A name for the records of a database, which changes with its file."""
    file = data_file(path).resolve()
    facts = file.stat()
    text = f"{file} {facts.st_size} {facts.st_mtime_ns} {limit}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]

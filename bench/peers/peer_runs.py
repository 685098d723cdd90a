"""The runs of a comparison: every reader in a process of its own, and the check of its records."""

import argparse
import collections
import contextlib
import dataclasses
import pathlib

import peer_formats
import peer_process
import readers
from peer_source import Failure, fingerprint
from readers import interface


@dataclasses.dataclass
class Comparison:
    """The readers and their runs. A place is (order, title of the reader)."""

    options: argparse.Namespace
    expected: list  # hashes of the records; None without --verify
    present: dict = dataclasses.field(default_factory=dict)  # reader by name
    absent: dict = dataclasses.field(default_factory=dict)  # reason by label
    tasks: dict = dataclasses.field(default_factory=dict)  # Task by name, for any order
    runs: list = dataclasses.field(default_factory=list)
    failures: dict = dataclasses.field(default_factory=dict)  # reason by place
    differences: dict = dataclasses.field(default_factory=dict)  # lost, repeated... by place
    errors: list = dataclasses.field(default_factory=list)  # what the comparison fails with

    def fail(self, reader, order, title, reason):
        """Notes the failure of a run, or of the making of a data set."""
        self.failures[order, title] = reason
        if not reader.is_peer:
            self.errors.append(f"{title}: {reason}")


def find_readers(comparison, record_count):
    """Finds the readers, and makes their data sets. A reader that is not installed is absent."""
    options = comparison.options
    for name in [*options.readers, *map(str, options.add)]:
        try:
            reader = readers.find(name)
            task = base_task(options, name, reader, record_count)
            reader.check_installed(task)
        except interface.Absent as absent:
            comparison.absent[reader.label] = str(absent)
            continue
        except Exception as error:  # pylint: disable=broad-exception-caught
            comparison.absent[pathlib.Path(name).name] = interface.one_line(error)
            continue
        comparison.tasks[name], outcome = task, peer_process.Outcome()
        if reader.format is not None and not pathlib.Path(task.path).is_dir():
            outcome = peer_process.run_task("make", task, options.timeout)
        if outcome.absent:
            comparison.absent[reader.label] = outcome.absent
        elif outcome.failure:
            comparison.fail(reader, "any order", reader.label, outcome.failure)
        else:
            comparison.present[name] = reader


def base_task(options, name, reader, record_count):
    path = options.path
    if reader.format is not None:
        path = str(options.formats / fingerprint(options.path, options.records) / reader.format)
    return interface.Task(
        reader=name, source=options.path, path=path, batch_size=options.batch_size,
        seed=options.seed, records=record_count, limit=options.records,
        readahead=not options.no_readahead, verify=options.verify, cache=options.cache,
        cached_percent=options.cached_percent,
        lmdbio_bench=str(options.lmdbio_bench), lmdbio_library=str(options.lmdbio_library))


def run_all(comparison):
    """All runs, interleaved, so that a drift of the machine affects all readers equally."""
    options = comparison.options
    for _ in range(options.repeat):
        for order in options.order:
            for name, reader in comparison.present.items():
                if order in reader.orders:
                    for workers in reader.workers(options.workers):
                        run_once(comparison, reader, dataclasses.replace(
                            comparison.tasks[name], order=order, workers=workers))


def run_once(comparison, reader, task):
    """One run. It is left out if an earlier one of the same place has failed."""
    options, title = comparison.options, reader.title(task.workers)
    if (task.order, title) in comparison.failures or reader.label in comparison.absent:
        return
    storage = contextlib.nullcontext(task.path)
    if options.remote:
        storage = peer_formats.remote(task.path, options.remote_options)
    try:
        with storage as path:
            outcome = peer_process.run_task("run", dataclasses.replace(task, path=path),
                                            options.timeout)
    except Failure as failure:  # of the storage: the other readers go on
        comparison.fail(reader, task.order, title, str(failure))
        return
    if outcome.absent:
        comparison.absent[reader.label] = outcome.absent
    if outcome.failure:
        comparison.fail(reader, task.order, title, outcome.failure)
    for run in outcome.runs:
        comparison.runs.append(run)
        if options.verify:
            check_records(comparison, reader, run, outcome.hashes)


def check_records(comparison, reader, run, hashes):
    """Compares the records of a run with those of the database. lmdbio has no --records, so its
    limited passes are not compared."""
    limit_holds = comparison.options.records is not None and reader.ignores_limit
    if limit_holds or run.checksum in (None, sum(comparison.expected) & interface.MASK):
        return
    text = f"checksum {run.checksum:016x}"
    if hashes is not None:
        text = ", ".join(f"{count} {word}" for word, count
                         in difference(comparison.expected, hashes).items() if count)
    comparison.differences[run.order, run.reader] = text
    if reader.promises.exact:
        comparison.errors.append(
            f"the readers delivered different records: {run.reader}, {run.order}: {text}")


def difference(expected, delivered):
    """The number of records that are missing, that came too often, and that are not expected.
    Both arguments are lists of hashes."""
    wanted, found = collections.Counter(expected), collections.Counter(delivered)
    foreign = sum(count for value, count in found.items() if value not in wanted)
    return {"lost": sum((wanted - found).values()),
            "repeated": sum((found - wanted).values()) - foreign, "foreign": foreign}

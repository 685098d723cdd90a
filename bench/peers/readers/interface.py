"""The interface of a reader: one module of this folder, or a file for `compare.py --add`."""

import dataclasses
import importlib
import importlib.util
import itertools
import pathlib
import time

MASK = (1 << 64) - 1  # checksums are sums modulo 2^64
ROOT = pathlib.Path(__file__).resolve().parents[3]


class Absent(Exception):
    """The reader cannot run here. The text is the reason, in one line."""


@dataclasses.dataclass(frozen=True)
class Promises:
    """The words of the table about a reader."""

    shuffle: str  # how far a record may move
    resume: str  # how an epoch continues after a stop
    record: str  # whether the reader copies a record, or shows a view of it
    exact: bool = True  # an epoch delivers each record exactly once


LMDBIO_PROMISES = Promises("global: any record may come anywhere",
                           "a state of a few numbers, exact", "view")


@dataclasses.dataclass
class Task:
    """One job of a process: make a data set, or read one once."""

    reader: str  # a name of readers.NAMES, or the path of a Python file
    source: str  # the LMDB database
    path: str  # the data set in the format of the reader
    order: str = "sequential"
    workers: int | None = None
    batch_size: int = 256
    seed: int = 1
    records: int = 0  # the number of records to read
    limit: int | None = None  # --records
    readahead: bool = True
    verify: bool = False
    cache: str = "as found"  # or "cold", "warm", "partial"
    cached_percent: int | None = None  # only with "partial"
    lmdbio_bench: str = ""
    lmdbio_library: str = ""

    @property
    def positive_seed(self):
        """The seed for readers that take no negative or large one."""
        return self.seed & 0x7FFFFFFF


@dataclasses.dataclass
class Run:
    """One pass over the records. The checksum is None if it was not requested."""

    reader: str
    order: str
    records_per_s: float
    bytes_per_s: float
    first_batch_s: float
    checksum: int | None = None


class Reader:
    """A reader has the attributes below, and it replaces `batches`. A new object serves each task.

    Errors: `check` raises Absent. Any other exception ends the run of this reader alone.
    """

    label = ""  # in the table
    modules = ()  # the Python modules that it needs
    format = None  # the name of its own format; None: it reads the LMDB database
    orders = ("sequential", "shuffled")
    promises = Promises("-", "-", "-")
    is_peer = True  # the comparison does not fail with it
    ignores_limit = False  # it reads all records in spite of --records
    has_workers = True  # --workers concerns it

    def title(self, workers):
        """The name of the row."""
        if workers is None:
            return self.label
        return f"{self.label}, {workers} worker{'s' * (workers != 1)}"

    def workers(self, requested):
        """The numbers of workers to run with; None stands for a reader without that choice."""
        return requested if self.has_workers else [None]

    def check_installed(self, task):
        """Raises Absent if a package of a module is not installed. Imports nothing."""
        del task
        for module in self.modules:
            package = module.partition(".")[0]
            if importlib.util.find_spec(package) is None:
                raise Absent(f"no Python module {package}")

    def check(self, task):
        """Imports the modules, or raises Absent."""
        del task
        for module in self.modules:
            try:
                importlib.import_module(module)
            except Exception as error:  # pylint: disable=broad-exception-caught
                raise Absent(one_line(error)) from error

    def make(self, task, values):
        """Writes the data set into the empty folder task.path. `values` is an iterator of bytes."""
        raise NotImplementedError

    def prepare(self, task):
        """Work outside the measured time."""

    def batches(self, task):
        """Generates (tensor of uint8, list of sizes). The tensor is [len, size] if all sizes are
        equal; otherwise the values follow each other in one dimension. The time runs from here."""
        raise NotImplementedError

    def run(self, task, settle):
        """Reads once. `settle` puts the caches into the state that task.cache names. Returns
        (list of Run, hashes of the values or None)."""
        self.prepare(task)
        settle()
        return time_batches(self.title(task.workers), task, self.batches(task))


def one_line(error):
    """An exception as `Type: first line of its text`; a RuntimeError as its text alone."""
    kind, lines = type(error).__name__, str(error).strip().splitlines()
    if not lines:
        return kind
    return lines[0] if isinstance(error, RuntimeError) else f"{kind}: {lines[0]}"


def tensor_of(data, sizes):
    """Makes the tensor of a batch from a writable buffer with the values, without a copy."""
    import torch
    tensor = torch.frombuffer(data, dtype=torch.uint8) if len(data) else torch.empty(0).byte()
    is_even = bool(sizes) and all(size == sizes[0] for size in sizes)
    return tensor.view(len(sizes), sizes[0]) if is_even else tensor


def collate(values):
    """Copies the values into one tensor, as a training step needs them. This reads every byte."""
    sizes = [len(value) for value in values]
    return tensor_of(bytearray().join(values), sizes), sizes


def grouped(values, size):
    """Lists of `size` values; the last may be shorter."""
    values = iter(values)
    while group := list(itertools.islice(values, size)):
        yield group


def hashes_of(tensor, sizes):
    """The XXH3-64 of each value."""
    import xxhash
    view, offset, hashes = memoryview(tensor.reshape(-1).numpy()), 0, []
    for size in sizes:
        hashes.append(xxhash.xxh3_64_intdigest(view[offset : offset + size]))
        offset += size
    return hashes


def time_batches(title, task, batches):
    """Times a generator of batches from its first step, which opens the data set, to its end."""
    record_count = byte_count = 0
    first_batch_s, hashes = None, []
    start = time.perf_counter()
    for tensor, sizes in batches:
        if first_batch_s is None:
            first_batch_s = time.perf_counter() - start
        record_count += len(sizes)
        byte_count += tensor.numel()
        if task.verify:
            hashes += hashes_of(tensor, sizes)
    seconds = time.perf_counter() - start
    checksum = sum(hashes) & MASK if task.verify else None
    run = Run(title, task.order, record_count / seconds, byte_count / seconds,
              first_batch_s or seconds, checksum)
    return [run], hashes if task.verify else None

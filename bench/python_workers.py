#!/usr/bin/python3
"""Measures how fast batches come from the workers of a PyTorch DataLoader to the trainer.

    LMDBIO_LIBRARY=build/release/lib/liblmdbio.so bench/python_workers.py PATH [--workers 0,2,4]

The page cache is filled first. Every row is a number of workers, with and without a decoder that
computes for 100 us a record. Its columns are records/s and, in parentheses, the processor time of
all processes for a record in microseconds, which a busy machine changes less:

    copied       PyTorch copies the batches (hand_over_bytes=0)
    handed over  the workers hand them over in shared memory (the default)
    decoded      what the workers decode: they make the same tensors, but send only the number of
                 records
    queue        without a decoder: the workers make no tensors and send the number of records, so
                 the loader and the queues of the DataLoader are left

The last columns are handed over / copied, and handed over / decoded. The runs of a row take turns;
a figure is the median. The time of the first batch does not count. The trainer reads one byte of
each record.
"""

import argparse
import itertools
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lmdbio" / "api" / "python"))

import torch  # noqa: E402
import torch.utils.data  # noqa: E402

import lmdbio.torch  # noqa: E402


class Decoder:
    """Computes for a time per record, holding Python's lock all the while, then copies the values.

    returns  "values"; "count": the values are made, but only their number is returned; "queue":
             only their number, and no values are made
    """

    def __init__(self, us, returns):
        self.seconds, self.returns = us / 1e6, returns

    def __call__(self, batch):
        for _ in range(len(batch) if self.seconds else 0):
            end = time.perf_counter() + self.seconds
            while time.perf_counter() < end:
                pass
        rows = lmdbio.torch.values_as_tensor(batch) if self.returns != "queue" else None
        return rows if self.returns == "values" else len(batch)


def count(values):
    return values if isinstance(values, int) else len(values[:, 0].clone())


def cpu_seconds():
    """The processor time of this process and of its children that have ended."""
    times = os.times()
    return sum(times[:4])


def run(options, workers, us, returns, hand_over_bytes):
    """Records/s, and microseconds of processor time for a record."""
    dataset = lmdbio.torch.IterableDataset(options.path, options.batch_size,
                                           decode=Decoder(us, returns),
                                           hand_over_bytes=hand_over_bytes, layout_cache="off")
    cpu_start = cpu_seconds()
    batches = iter(torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=workers))
    next(batches)  # starts the workers and opens the database
    start = time.perf_counter()
    measured = itertools.islice(batches, options.records_decoded // options.batch_size if us
                                else None)
    records = sum(map(count, measured))
    seconds = time.perf_counter() - start
    del batches, measured  # waits for the workers
    return records / seconds, 1e6 * (cpu_seconds() - cpu_start) / records


def row(options, workers, us):
    columns = {"copied": ("values", 0), "handed over": ("values", 1 << 30), "decoded": ("count", 0)}
    if not us:
        columns["queue"] = ("queue", 0)
    results = {name: [] for name in columns}
    for _ in range(options.repeat):
        for name, (returns, size) in columns.items():
            results[name].append(run(options, workers, us, returns, size))
    return {name: tuple(map(statistics.median, zip(*each))) for name, each in results.items()}


def print_row(workers, us, results):
    cells = [f"{results[name][0]:9,.0f} ({results[name][1]:6.2f})" if name in results
             else f"{'-':>18}" for name in ("copied", "handed over", "decoded", "queue")]
    rate = results["handed over"][0]
    print(f"{workers:7}  {us:10}  " + "  ".join(cells) + f"  {rate / results['copied'][0]:8.2f}"
          + f"  {rate / results['decoded'][0]:9.2f}", flush=True)


def fill_page_cache(path):
    file = os.path.join(path, "data.mdb") if os.path.isdir(path) else path
    with open(file, "rb", buffering=0) as data:
        while data.read(1 << 24):
            pass


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", metavar="PATH", help="a directory with data.mdb, or a single file")
    parser.add_argument("--batch-size", type=int, default=256, metavar="N")
    parser.add_argument("--workers", default="0,2,4", metavar="N,...")
    parser.add_argument("--decoder-us", default="0,100", metavar="N,...",
                        help="microseconds of the decoder for a record; 0: none (default: 0,100)")
    parser.add_argument("--records-decoded", type=int, default=50000, metavar="N",
                        help="end a run with a decoder after N records (default: 50000)")
    parser.add_argument("--repeat", type=int, default=5, metavar="N")
    options = parser.parse_args()
    fill_page_cache(options.path)
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, {os.cpu_count()} cores, batches of {options.batch_size}; "
          f"median of {options.repeat}; records/s (CPU us of a record)")
    print(f"{'workers':>7}  {'decoder us':>10}  {'copied':>18}  {'handed over':>18}  "
          f"{'decoded':>18}  {'queue':>18}  {'/ copied':>8}  {'/ decoded':>9}")
    for us in map(int, options.decoder_us.split(",")):
        for workers in map(int, options.workers.split(",")):
            print_row(workers, us, row(options, workers, us))


if __name__ == "__main__":
    main()

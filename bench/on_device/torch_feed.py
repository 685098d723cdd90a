#!/usr/bin/env python3
"""A loader of PyTorch with pinned memory: the rival of the feed (figure D11).

    torch_feed.py --values FILE --record-bytes N --batch N [--device N] [--samples N] [--seconds S]

FILE has the values one behind the other, so nothing of LMDB is in its way. The numbers of workers
are tried one after the other, and the best one counts. It prints one object of JSON:
bytes_per_second and workers, or left_out with the reason.
"""

import argparse
import json
import sys
import time

WORKERS = (0, 2, 4, 8)


def leave_out(why):
    print(json.dumps({"left_out": why}))
    return 0


def rates_of(torch, values, options, workers, end):
    """Bytes a second of each pass over the values, until the time is over."""
    device = torch.device(options.device_type, options.device)
    loader = torch.utils.data.DataLoader(
        values, batch_size=options.batch, num_workers=workers, pin_memory=options.pins,
        persistent_workers=workers > 0)
    rates = []
    for sample in range(options.samples + 1):
        begin = time.perf_counter()
        count = 0
        for rows in loader:
            rows = rows.to(device, non_blocking=True)
            count += rows.numel()
        if options.device_type == "cuda":
            torch.cuda.synchronize(device)
        if sample > 0:  # the first starts the workers
            rates.append(count / (time.perf_counter() - begin))
        if time.perf_counter() > end and rates:
            break
    return rates


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--values", required=True)
    parser.add_argument("--record-bytes", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--device-type", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    try:
        import numpy
        import torch
        import torch.utils.data
    except ImportError as error:
        return leave_out(f"no PyTorch: {error}")
    if options.device_type == "cuda" and not torch.cuda.is_available():
        return leave_out("this PyTorch sees no GPU")
    options.pins = options.device_type == "cuda"

    class Values(torch.utils.data.Dataset):
        def __init__(self):
            self.rows = numpy.memmap(options.values, dtype=numpy.uint8, mode="r").reshape(
                -1, options.record_bytes)

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, index):
            return torch.from_numpy(self.rows[index].copy())

    begin = time.perf_counter()
    best, best_workers = [], 0
    for number, workers in enumerate(WORKERS):
        end = begin + options.seconds * (number + 1) / len(WORKERS)
        rates = sorted(rates_of(torch, Values(), options, workers, end))
        if not best or rates[len(rates) // 2] > best[len(best) // 2]:
            best, best_workers = rates, workers
    print(json.dumps({"bytes_per_second": best, "workers": best_workers}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

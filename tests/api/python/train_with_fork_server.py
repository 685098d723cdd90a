"""Runs examples/train_digits.py with worker processes that a process without threads forks.

The allocator of the address sanitizer does not survive a fork while another thread allocates, and a
trainer has threads. (Allocators without a sanitizer do.) A process for each worker from scratch
would load PyTorch forty times.
"""

import multiprocessing
import sys

import train_digits

if __name__ == "__main__":
    multiprocessing.set_start_method("forkserver")
    multiprocessing.set_forkserver_preload(["train_digits"])
    sys.exit(train_digits.main())

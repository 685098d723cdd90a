"""A communication hook for DistributedDataParallel."""

from __future__ import annotations

import queue
import threading
import weakref
from typing import Any, Callable, List

import torch

from lmdbio._errors import LmdbioError
from lmdbio._torch_streams import streams_of
from lmdbio.sync import Operation, Synchronizer


def ddp_hook(synchronizer: Synchronizer, average: bool = True, name: str = "ddp") -> Callable:
    """Returns a hook by which DistributedDataParallel sums its buckets through a synchronizer.

        sync = lmdbio.sync.Synchronizer("torch")
        model = torch.nn.parallel.DistributedDataParallel(network)
        model.register_comm_hook(None, lmdbio.torch.ddp_hook(sync))

    synchronizer  of the same ranks; for a model on a GPU made with its option `device`
    average       divide by the number of ranks
    name          of the buckets; another one for each model that uses the synchronizer

    An error of the synchronizer ends the backward pass: a RuntimeError of PyTorch, with its text.
    hook.check() is as GradientSync.check.
    """
    buckets = _Buckets(synchronizer, 1.0 / synchronizer.size if average else 1.0, name)

    # PyTorch compares annotations with its own types, so there are none.
    def hook(_state, bucket):  # type: ignore[no-untyped-def]
        return buckets.reduce(bucket)

    hook.check = buckets.check  # type: ignore[attr-defined]
    return hook


class _Buckets:
    """The buckets of a model under way."""

    def __init__(self, synchronizer: Synchronizer, scale: float, name: str) -> None:
        self._synchronizer, self._scale, self._name = synchronizer, scale, name
        self._last: List[Operation] = []  # of this iteration, which begins with bucket 0
        self._stream: Any = None  # of PyTorch, on the GPU; its work begins behind each sum
        self._tasks: queue.SimpleQueue = queue.SimpleQueue()
        # A future is completed by a thread. It must not keep this object.
        threading.Thread(target=_run_all, args=(self._tasks,), name="lmdbio ddp",
                         daemon=True).start()
        weakref.finalize(self, self._tasks.put, None)

    def reduce(self, bucket: Any) -> torch.futures.Future:
        """Submits the bucket. Returns the future of its sum, which is in place."""
        values = bucket.buffer()
        # PyTorch makes other buckets after the first iteration, with the same numbers.
        name = f"{self._name}.{bucket.index()}.{values.numel()}"
        streams = streams_of(values)
        fields = {} if streams is None else {"memory": "device", "stream": streams.current()}
        is_there = torch.futures.Future(devices=None if streams is None else [streams.device])
        failures: List[BaseException] = []

        def sum_of(_: torch.futures.Future) -> torch.Tensor:
            for error in failures:
                raise error
            return values

        result = is_there.then(sum_of)
        try:
            operation = self._synchronizer.submit(
                name, values.data_ptr(), tuple(values.shape), str(values.dtype).split(".")[-1],
                values, postscale=self._scale, **fields)
        except LmdbioError as failure:
            failures.append(failure)
            is_there.set_result(None)
            return result
        if bucket.index() == 0:
            self._last.clear()
        self._last.append(operation)
        if streams is not None and self._stream is None:
            self._stream = streams.new()
        stream = self._stream
        self._tasks.put(lambda: _finish(operation, values, is_there, failures, stream))
        return result

    def check(self) -> None:
        """Waits until the GPU has the sums of all buckets. Errors as GradientSync.check."""
        for operation in self._last:
            operation.wait()


def _finish(operation: Operation, values: torch.Tensor, is_there: torch.futures.Future,
            failures: List[BaseException], stream: Any) -> None:
    streams = streams_of(values)
    try:
        if streams is None:
            operation.wait()
            is_there.set_result(values)
            return
        # A stream that waits for the future waits for the work on the current stream.
        with streams.use(stream):
            operation.wait_on(stream.cuda_stream)
            is_there.set_result(values)
    except BaseException as failure:  # the backward pass raises it
        failures.append(failure)
        is_there.set_result(None)


def _run_all(tasks: queue.SimpleQueue) -> None:
    while True:
        task = tasks.get()
        if task is None:
            return
        task()
        del task  # with its tensors

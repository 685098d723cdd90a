"""The epoch of the next loop over a dataset, in memory that its worker processes share."""

from __future__ import annotations

from typing import Any, Dict

import torch

WORKERS_MAX = 256  # more of them share the last word
_EPOCH, _SELECTIONS, _LOADED, _LOOPS, _DONE = range(5)


class Epochs:
    """The epoch that was selected last, and how many epochs each worker has delivered since.

    The trainer selects. Each worker, or the trainer without workers, says when it has handed over
    its last batch of an epoch. The next loop delivers the first epoch that not all workers have
    delivered, so all of them agree, also if a loop ended early.

    Threads: any; a word has one writer at a time
    """

    def __init__(self, epoch: int) -> None:
        self._words = torch.zeros(_DONE + WORKERS_MAX, dtype=torch.int64).share_memory_()
        self._words[_EPOCH] = epoch

    def select(self, epoch: int, is_loaded: bool = False) -> None:
        """The next loop delivers `epoch`; is_loaded: the rest of it, from a state."""
        self._words[_EPOCH] = epoch
        self._words[_LOOPS:] = 0
        self._words[_SELECTIONS] += 1
        if is_loaded:
            self._words[_LOADED] = self._words[_SELECTIONS]

    @property
    def selected(self) -> int:
        """The epoch that was selected last."""
        return int(self._words[_EPOCH])

    @property
    def selections(self) -> int:
        """How often an epoch was selected."""
        return int(self._words[_SELECTIONS])

    @property
    def is_loaded(self) -> bool:
        """Whether the last selection came with a state."""
        return self.selections > 0 and int(self._words[_LOADED]) == self.selections

    @property
    def loops(self) -> int:
        """How many loops have begun since the last selection."""
        return int(self._words[_LOOPS])

    def next(self, workers: int) -> int:
        """Returns the epoch of the next loop with that many workers."""
        done = self._words[_DONE:_DONE + min(workers, WORKERS_MAX)]
        return self.selected + int(done.min())

    def begin(self, worker: int) -> None:
        """Notes that a loop has begun."""
        if worker == 0:
            self._words[_LOOPS] += 1

    def finish(self, epoch: int, workers: int, worker: int) -> None:
        """Notes that a worker has delivered the epoch, and all before it."""
        # The last one speaks for workers of later loops, which may be more.
        at = _DONE + min(worker, WORKERS_MAX - 1)
        end = len(self._words) if worker == workers - 1 else at + 1
        self._words[at:end] = epoch + 1 - self.selected

    def __setstate__(self, pickled: Dict[str, Any]) -> None:
        self.__dict__.update(pickled)
        if not self._words.is_shared():
            self._words.share_memory_()

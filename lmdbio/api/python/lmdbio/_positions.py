"""Arithmetic of stream states: the batches of an epoch, and the state after some of them."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple

State = Dict[str, Any]


class Positions(NamedTuple):
    """The positions of a stream whose batches have one size (lmdbio/docs/order.md).

    With reuse, each batch of an epoch comes that many times, and those that are cut short come
    last.
    """

    records: int  # of the database
    reuse: int
    whole: int  # records of a global batch
    drop_last: bool

    def epoch_records(self) -> int:
        """Returns the number of positions of an epoch."""
        return self.records * self.reuse

    def is_at_start(self, state: State) -> bool:
        """Returns whether the state is before the first batch of its epoch."""
        return state["position"] == state["epoch"] * self.epoch_records()

    def start(self, state: State, epoch: int) -> State:
        """Returns the state before the first batch of an epoch; other fields as in `state`."""
        position = epoch * self.epoch_records()
        return {**state, "epoch": epoch, "position": position,
                "origin": {"batch": state["batch"], "position": position}}

    def _whole_left(self, state: State) -> int:
        """Returns the number of batches of full size in the rest of the epoch."""
        whole_records = self.records // self.whole * self.whole * self.reuse
        end = (state["epoch"] + 1) * self.epoch_records()
        if self.reuse == 1:  # the position may be that of another batch size
            return (end - state["position"]) // self.whole
        return max(0, (end - self.epoch_records() + whole_records - state["position"])
                   // self.whole)

    def _short_left(self, state: State, had: int) -> int:
        """Returns the number of short batches in the rest of the epoch."""
        end = (state["epoch"] + 1) * self.epoch_records()
        rest = end - state["position"] - had * self.whole
        size = rest if self.reuse == 1 else self.records % self.whole
        return rest // size if size > 0 else 0

    def left(self, state: State) -> int:
        """Returns the number of batches that a loop delivers from a state to the end of the
        epoch."""
        whole = self._whole_left(state)
        return whole + (0 if self.drop_last else self._short_left(state, whole))

    def after(self, state: State, batches: int) -> State:
        """Returns the state after some batches of the rest of an epoch, those of its tail included.
        After the last one it is the start of the next epoch."""
        whole = self._whole_left(state)
        short = self._short_left(state, whole)
        if batches >= whole + short:
            last = {**state, "batch": state["batch"] + whole + short}
            return self.start(last, state["epoch"] + 1)
        position = state["position"] + min(batches, whole) * self.whole
        position += max(0, batches - whole) * (self.records % self.whole)
        return {**state, "batch": state["batch"] + batches, "position": position}

    def beyond_tail(self, state: State) -> State:
        """Returns the start of the next epoch if the state is before a tail that is left out."""
        return self.start(state, state["epoch"] + 1) if self.left(state) == 0 else state

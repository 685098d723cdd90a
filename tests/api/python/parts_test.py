"""Calls for many records read them in parts, and return what calls for few records return."""

import contextlib
import ctypes
import gc
import random
import threading
import unittest
from unittest import mock

import numpy as np
from support import Databases, run_unless

import lmdbio
from lmdbio import _parts
from lmdbio._batch import RECORD


@contextlib.contextmanager
def small_parts(alone_max=7, first_count=3, part_bytes=9000):
    with mock.patch.multiple(_parts, _ALONE_MAX=alone_max, _FIRST_COUNT=first_count,
                             _PART_BYTES=part_bytes):
        yield


class Reader:
    """Reads records of `size` bytes from memory, and counts the results that are open."""

    def __init__(self, size, fails_at=None):
        self.size, self.fails_at = size, fails_at
        self.parts, self.threads, self.open, self.most_open = [], set(), 0, 0
        self._lock = threading.Lock()

    def __call__(self, first, count):
        self.threads.add(threading.get_ident())
        if self.fails_at is not None and first <= self.fails_at < first + count:
            raise lmdbio.StaleError(f"record {self.fails_at} has changed")
        with self._lock:
            self.parts.append((first, count))
            self.open += 1
            self.most_open = max(self.most_open, self.open)
        memory = np.frombuffer(b"".join(self.value(i) for i in range(first, first + count)),
                               np.uint8)
        table = np.zeros(count, RECORD)
        begins = memory.ctypes.data + np.arange(count, dtype=np.uint64) * self.size
        table["key"], table["key_size"] = begins, 8
        table["value"], table["value_size"] = begins, self.size
        result = _parts.Result(ctypes.c_void_p(), table.ctypes.data, count)
        result.memory, result._close = (memory, table), self._close_once()
        return result

    def value(self, i):
        return i.to_bytes(8, "big") + bytes(self.size - 8)

    def _close_once(self):
        closed = []

        def close():
            if not closed:
                closed.append(True)
                with self._lock:
                    self.open -= 1
        return close


class PartsTest(Databases):
    def assert_no_reader_is_left(self):
        for thread in threading.enumerate():
            if thread.name == "lmdbio-read":
                thread.join(60)
                self.assertFalse(thread.is_alive())

    def test_parts_are_of_equal_bytes_and_give_every_record_once(self):
        for size, count, parts in (
                (100, 7, [(0, 7)]),                                # few: at once
                (100, 8, [(0, 3), (3, 5)]),                        # small: the rest at once
                (1492, 16, [(0, 3), (3, 6), (9, 6), (15, 1)]),     # 1,500 bytes with the key
                (8000, 10, [(0, 3), (3, 3), (6, 3), (9, 1)])):     # large: not fewer than at first
            with self.subTest(size=size, count=count), small_parts():
                reader = Reader(size)
                records = _parts.copies_of(reader, count, None)
                self.assertEqual([record.value for record in records],
                                 [reader.value(i) for i in range(count)])
                self.assertEqual(reader.parts, parts)
                self.assertEqual(reader.open, 0)
                self.assertLessEqual(reader.most_open, 2)
                self.assertEqual(len(reader.threads), min(len(parts), 2))
                self.assert_no_reader_is_left()

    def test_an_error_of_any_part_is_raised_and_nothing_is_left(self):
        for fails_at in range(12):
            with self.subTest(fails_at=fails_at), small_parts():
                reader = Reader(1492, fails_at)
                with self.assertRaisesRegex(lmdbio.StaleError, f"record {fails_at} has changed"):
                    _parts.copies_of(reader, 12, None)
                self.assert_no_reader_is_left()
                gc.collect()
                self.assertEqual(reader.open, 0)

    def test_without_another_thread(self):
        reader = Reader(1492)
        with small_parts(), mock.patch.object(threading.Thread, "start",
                                              side_effect=RuntimeError("can't start new thread")):
            records = _parts.copies_of(reader, 12, None)
        self.assertEqual([record.value for record in records], [reader.value(i) for i in range(12)])
        self.assertEqual(reader.threads, {threading.get_ident()})

    def test_records_by_number_and_by_key(self):
        expected = self.records(self.digits)
        numbers = random.Random(1)
        with lmdbio.Dataset(self.digits) as dataset:
            for count in (0, 1, 7, 8, 9, 50, 400):
                wanted = [numbers.randrange(len(expected)) for _ in range(count)]
                records = [expected[i] for i in wanted]
                keys = [key for key, _ in records]
                with self.subTest(count=count), small_parts():
                    self.assertEqual(dataset[wanted], records)
                    self.assertEqual(dataset[np.array(wanted, int)], records)
                    self.assertEqual(dataset[keys], records)
                    keys[3:3] = keys[20:20] = [b"absent"]
                    records[3:3] = records[20:20] = ["none"]
                    self.assertEqual(dataset.get(keys, "none"), records)
                    with self.assertRaisesRegex(KeyError, r"b'absent' at index \d+ .and 1 more of"):
                        dataset[keys]
            with small_parts():
                self.assertEqual(dataset[:], expected)
        with self.assertRaises(lmdbio.ClosedError), small_parts():
            dataset[:50]

    def test_samples_of_several_records(self):
        expected = self.records(self.even)
        with lmdbio.Dataset(lmdbio.View(self.even, fields={"left": None, "right": self.even})) \
                as dataset, small_parts():
            for count in (7, 8, 60):
                wanted = random.Random(count).choices(range(len(expected)), k=count)
                self.assertEqual(dataset[wanted], [{"left": expected[i], "right": expected[i]}
                                                   for i in wanted])
            self.assertEqual(list(dataset.keys()), [{"left": key, "right": key}
                                                    for key, _ in expected])
            keys = [key for key, _ in expected]
            self.assertEqual(dataset.get(keys), expected)


if __name__ == "__main__":
    run_unless(None)
